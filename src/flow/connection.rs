//! The state that every packet of a connection needs: its PSNs, its last messages, and whether its queue
//! pair serves a second connection.
//!
//! Invariant: the packets of a second connection never count as first observations of the first one.

use super::ledger::{Ledger, LedgerEntry};
use super::request_order::RequestOrder;
use crate::model::{ConnectionKey, IcrcOutcomes, PacketRecord, PacketRole, PsnDigest, PsnSpans};
use ibscope_parsers::Psn;

/// The state that every packet of a connection needs.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) key: ConnectionKey,
    /// Packets without a sequence number of their own.
    pub(super) others: u32,
    /// Response packets that the READ requests expect; saturating.
    pub(super) expected_responses: u32,
    /// Latest message sequence number of the ACKs; [`NO_MSN`] before the first.
    pub(super) last_msn: u32,
    /// A READ request was observed before the path MTU was known, so its span is a guess.
    pub(super) guesses: bool,
    pub(super) restart: Restart,
    /// True if the last acknowledge packet is a NAK or an RNR NAK.
    pub(super) ends_with_nak: bool,
    pub(super) icrcs: IcrcOutcomes,
    /// Unwrapped PSN of the first request.
    pub(super) first: Option<i32>,
    /// PSN of the last request that asks for a response; for a READ, the last PSN of its responses.
    /// [`NO_PSN`] until the first such request.
    pub(super) last_asking: u32,
    /// Time of the first request.
    pub(super) first_time_ns: i64,
    pub(super) request_order: RequestOrder,
    /// The PSNs of each role, each once, if digests are asked for.
    pub(super) packets: PsnDigest,
    /// Those of further observations, likewise.
    pub(super) later_packets: PsnDigest,
    pub(super) ledgers: [Ledger; 3],
}

/// Whether a queue pair serves a second connection with the same PSNs. The first request, observed again
/// after [`RESTART_NS`], may also be a mirror copy of a port with another clock:
///
/// ```text
/// PSN   4 5 6 7 8 ... 4 5 6 7 8 9    second connection: 9 comes after the second 8
/// PSN   4 5 6 7 8 ... 4 5 9 6 7 8    mirror copies: the first connection goes on meanwhile
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    /// The first request was not observed again, or sooner.
    No,
    /// It was observed again.
    Possible,
    /// All packets that were observed again are mirror copies.
    Copies,
    /// All packets from now on are those of a second connection.
    Certain,
}

/// No ACK was observed yet: message sequence numbers have 24 bits.
pub(super) const NO_MSN: u32 = u32::MAX;
const MSN_MASK: u32 = 0xFF_FFFF;
/// Marks that no request has asked for a response. PSNs have 24 bits, so no PSN has this value.
pub(super) const NO_PSN: u32 = u32::MAX;
/// A first request that is observed again after this time may belong to a new connection. The usual
/// local ACK timeout, 4.096 us x 2^14, reaches its 7th retry after half a second; a much longer
/// timeout (2^31 at most) can exceed this limit.
const RESTART_NS: i64 = 1_000_000_000;

/// The PSN of an unwrapped number.
pub(super) const fn psn(number: i64) -> u32 {
    number as u32 & MSN_MASK
}

impl Connection {
    pub(super) fn new(key: ConnectionKey, others: usize) -> Self {
        Self {
            key,
            others: 0,
            expected_responses: 0,
            last_msn: NO_MSN,
            guesses: false,
            restart: Restart::No,
            ends_with_nak: false,
            icrcs: IcrcOutcomes::default(),
            first: None,
            last_asking: NO_PSN,
            first_time_ns: PacketRecord::NO_TIME,
            request_order: RequestOrder::default(),
            packets: PsnDigest::default(),
            later_packets: PsnDigest::default(),
            ledgers: [Ledger::default(), Ledger::default(), Ledger::of_acks(others)],
        }
    }

    /// Takes the message sequence number of an ACK or response. Mirror copies lag behind, so the
    /// latest number counts.
    #[inline]
    pub(super) const fn acknowledged(&mut self, packet: &PacketRecord) {
        let Some(aeth) = packet.extension() else { return };
        let msn = aeth & MSN_MASK;
        if self.last_msn == NO_MSN || (msn.wrapping_sub(self.last_msn) & MSN_MASK) < (MSN_MASK >> 1) {
            self.last_msn = msn;
        }
    }

    /// Notes a request that asks for a response; `number` is the last PSN of the response,
    /// unwrapped.
    #[inline]
    pub(super) fn note_asking(&mut self, number: i64) {
        // A packet that arrives after a later one is not the last request.
        if self.ledgers[PacketRole::Request as usize].high() <= Some(number) {
            self.last_asking = psn(number);
        }
    }

    /// Notes whether the last acknowledge packet is a NAK.
    #[inline]
    pub(super) fn note_nak_at_end(&mut self, entry: LedgerEntry, is_nak: bool) {
        if self.ledgers[PacketRole::Acknowledge as usize].high() == Some(entry.number) {
            self.ends_with_nak = is_nak && (entry.occurrence == 1 || self.ends_with_nak);
        }
    }

    /// Highest PSNs that this direction acknowledged by ACK and by response, each unwrapped by its own
    /// ledger.
    pub(super) fn responded(&self) -> [Option<i64>; 2] {
        let [_, responses, acks] = &self.ledgers;
        // A NAK carries the PSN of the packet that is missing or rejected; all packets before it
        // have arrived.
        let acknowledged = acks.high().map(|number| number - i64::from(self.ends_with_nak));
        [acknowledged, responses.high()]
    }

    /// Lowest and highest PSN by packet role.
    pub(super) fn psn_spans(&self) -> PsnSpans {
        let [acknowledged, _] = self.responded();
        let [requests, responses, acks] = &self.ledgers;
        let ends = [(requests, requests.high()), (responses, responses.high()), (acks, acknowledged)];
        ends.map(|(ledger, last)| Some((psn(ledger.low()?), psn(last?))))
    }

    /// True if the PSNs of the requests have no gap.
    pub(super) fn misses_no_request(&self) -> bool {
        self.ledgers[PacketRole::Request as usize].missing_numbers() == 0
    }

    /// PSN of the last request, if none is missing and all PSNs are certain.
    pub(super) fn last_sent(&self) -> Option<u32> {
        let is_certain = !self.guesses && self.restart == Restart::No && self.misses_no_request();
        self.ledgers[PacketRole::Request as usize].high().map(psn).filter(|_| is_certain)
    }

    /// Notes a request whose PSN was observed before. The first request of the connection, observed
    /// again after [`RESTART_NS`] and after later requests, may show a new connection with the same
    /// queue pairs and PSNs. If it was observed twice before, both ports have observed it.
    #[cold]
    pub(super) fn note_retransmission(&mut self, entry: LedgerEntry, time_ns: i64) {
        let Some(first) = self.first else { return };
        let first = i64::from(first);
        let high = self.ledgers[0].high().unwrap_or(first);
        let is_late = time_ns.saturating_sub(self.first_time_ns) >= RESTART_NS;
        if entry.number == first && high > first && is_late {
            self.restart = if entry.occurrence > 2 { Restart::Certain } else { Restart::Possible };
        }
    }

    /// True if the last request so far was observed again.
    #[cold]
    pub(super) fn has_repeated_all(&self) -> bool {
        let requests = &self.ledgers[PacketRole::Request as usize];
        requests.high().is_some_and(|high| requests.count(Psn::new(psn(high))) > Some(1))
    }

    /// The occurrence of a packet after the first request was observed again. `has_repeated_all` is the
    /// state before this packet.
    ///
    /// The packets of a second connection never count as first observations, so that the results of
    /// both do not add up. Adding 2 keeps the occurrences of the two observation points odd and even.
    #[cold]
    pub(super) fn occurrence_after_restart(
        &mut self,
        (role, span): (PacketRole, u32),
        LedgerEntry { number, occurrence }: LedgerEntry,
        has_repeated_all: bool,
    ) -> u32 {
        let end = number + i64::from(span.max(1)) - 1;
        let is_new = occurrence == 1 && self.ledgers[role as usize].high() == Some(end);
        if self.restart == Restart::Possible && role == PacketRole::Request && is_new {
            self.restart = if has_repeated_all { Restart::Certain } else { Restart::Copies };
        }
        match self.restart {
            Restart::No | Restart::Copies => occurrence,
            // A number in a gap: lost at the first port, or used by the second connection only.
            Restart::Possible => occurrence + if occurrence == 1 && !is_new { 2 } else { 0 },
            Restart::Certain => occurrence + 2,
        }
    }
}
