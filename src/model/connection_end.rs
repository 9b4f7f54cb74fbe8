//! The report of a tracker on a connection at the end of its input.

use super::health::HealthEvents;
use super::{ConnectionKey, Continuity, MissingMessages, StorageSums};
use ibscope_parsers::Qpn;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Whether some packet had a correct ICRC, and whether some packet had a wrong one. In one byte,
/// because each tracked connection has these outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IcrcOutcomes(u8);

impl IcrcOutcomes {
    /// Adds a packet; both arguments are false if its ICRC was not checked.
    #[inline]
    pub const fn add(&mut self, is_correct: bool, is_wrong: bool) {
        self.0 |= is_correct as u8 | (is_wrong as u8) << 1;
    }

    /// True if at least one was correct.
    #[must_use]
    pub const fn has_correct(self) -> bool {
        self.0 & 1 != 0
    }

    /// True if at least one was wrong.
    #[must_use]
    pub const fn has_wrong(self) -> bool {
        self.0 & 2 != 0
    }
}

/// Second observations of requests. At the receiver's port, a request comes before its ACK.
///
/// Each tracked connection has one, so it takes two bytes: both counts are halved when one exceeds 255.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOrder {
    /// Second observations of requests.
    copies: u8,
    /// Those that were recorded after the ACK of the request.
    after_ack: u8,
}

impl CopyOrder {
    /// So many second observations after the ACK show late copies, if they are at least one in
    /// [`Self::LATE_RATIO`] of all. Single records of a mirror may exchange places.
    const ENOUGH_LATE: u8 = 4;
    const LATE_RATIO: u16 = 4;

    /// The second observation of one request.
    #[must_use]
    pub const fn of(is_after_ack: bool) -> Self {
        Self { copies: 1, after_ack: is_after_ack as u8 }
    }

    /// True if a request was recorded after its ACK.
    #[must_use]
    pub const fn has_late(self) -> bool {
        self.after_ack > 0
    }

    /// True if the second observations are late: the clocks of two ports differ by more than a response
    /// takes, or a device delays the copies.
    #[must_use]
    pub const fn is_late(self) -> bool {
        self.after_ack >= Self::ENOUGH_LATE && self.after_ack as u16 * Self::LATE_RATIO >= self.copies as u16
    }
}

impl AddAssign for CopyOrder {
    fn add_assign(&mut self, other: Self) {
        let sums = [(self.copies, other.copies), (self.after_ack, other.after_ack)];
        let mut sums = sums.map(|(own, other)| u16::from(own) + u16::from(other));
        if sums.iter().any(|sum| *sum > u16::from(u8::MAX)) {
            sums = sums.map(|sum| sum / 2);
        }
        [self.copies, self.after_ack] = sums.map(|sum| sum as u8);
    }
}

/// Lowest and highest PSN by packet role ([`PacketRole`](super::PacketRole)).
pub type PsnSpans = [Option<(u32, u32)>; 3];

/// The lowest and the highest number of the datagrams to one endpoint of UCX, by UCX's own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramSpan {
    /// The endpoint of the receiver.
    pub endpoint: u32,
    /// Lowest number, modulo 2^16.
    pub first: u16,
    /// Highest number, modulo 2^16.
    pub last: u16,
    /// Datagrams to the endpoint before the first one.
    pub before: u64,
}

/// The report of the tracker on a connection at the end of its input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionEnd {
    /// The connection.
    pub key: ConnectionKey,
    /// Counts of incomplete messages, if any.
    pub missing: Option<Box<MissingMessages>>,
    /// Gaps that sequence numbers show; the reduction fills in the counts of observed packets.
    pub continuity: Continuity,
    /// Lowest and highest PSN of its packets by role, if the ledger still has the lowest one.
    pub psn_spans: PsnSpans,
    /// Its datagrams by endpoint, if they have numbers of their own.
    pub datagram_spans: Vec<DatagramSpan>,
    /// The ledgers overflowed.
    pub overflowed: bool,
    /// ICRCs of its packets.
    pub icrcs: IcrcOutcomes,
    /// Second observations of its requests, in relation to their ACKs; when the inputs are combined, of
    /// all requests between its ports.
    pub copy_order: CopyOrder,
    /// Votes of responses for the sender's queue pair: by PSN, and by returned request numbers. 0 if the
    /// responses come before the requests of this queue pair, and so belong to another one.
    pub partners: [Vec<(Qpn, u64)>; 2],
    /// Health events, if there were any.
    pub health: Option<Box<HealthEvents>>,
    /// Commands of a storage protocol, if it carries some.
    pub storage: Option<Box<StorageSums>>,
}

impl ConnectionEnd {
    /// The end of a connection without events.
    #[must_use]
    pub fn new(key: ConnectionKey) -> Self {
        Self {
            key,
            missing: None,
            continuity: Continuity::default(),
            psn_spans: [None; 3],
            datagram_spans: Vec::new(),
            overflowed: false,
            icrcs: IcrcOutcomes::default(),
            copy_order: CopyOrder::default(),
            partners: [Vec::new(), Vec::new()],
            health: None,
            storage: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_late_copies_keep_their_ratio() {
        for (late, of, is_late) in
            [(3, 3, false), (4, 16, true), (4, 17, false), (5000, 10_000, true), (2000, 10_000, false)]
        {
            let mut order = CopyOrder::default();
            (0..of).for_each(|number| order += CopyOrder::of(number * late % of < late));
            assert_eq!(order.is_late(), is_late, "{late} of {of}: {order:?}");
        }
    }
}
