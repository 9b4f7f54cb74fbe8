//! Recognizes the MPI library and the envelope in the first packet of each message of a connection.

use super::ledger::Ledger;
use crate::model::{DatagramSpan, PacketRecord, TruncatedHeader, UpperLayerVotes};
use ibscope_parsers::ib::{ExtHeaders, Reth, Service};
use ibscope_parsers::mpi::{
    self, Carrier, Identity, LibraryStack, MatchFields, MpiHeader, MpiMessagePart, Payload, ucx,
};
use ibscope_parsers::ulp::{self, UpperLayerMessage};

/// UCX endpoints whose datagram numbers are kept per pair of UD queue pairs; two interfaces have
/// one or a few. A further one replaces the oldest, whose retransmitted datagrams then count as
/// new.
const MAX_UD_ENDPOINTS: usize = 16;
/// First number of a UCX endpoint that a message, a put or a connection reply can have: a request, or
/// the reply, has the number before (`UCT_UD_INITIAL_PSN`). Requests do not name the endpoint.
const FIRST_DATAGRAM: i64 = 2;
/// Longest message in bytes whose envelope the next message may leave out (MVAPICH2's header
/// caching).
const MAX_CACHED_BYTES: u64 = 255;

/// After this many messages without a match, a connection is compared with no upper-layer protocol.
const MISSES_LIMIT: u8 = 64;

/// Library and envelope state of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Envelopes {
    /// Library stack that most messages showed, and its lead in messages.
    usual_stack: Option<(LibraryStack, u32)>,
    /// Messages in a row, up to [`MISSES_LIMIT`], that matched no upper-layer protocol; `None` before
    /// the first that was compared.
    misses: Option<u8>,
    /// State that only some libraries need.
    library_state: Option<Box<LibraryState>>,
}

#[derive(Clone, Debug, Default)]
struct LibraryState {
    /// UCX's own datagram numbers by receiver endpoint, because UCX retransmits datagrams under new
    /// PSNs.
    datagrams: Vec<EndpointDatagrams>,
    /// Missing datagrams of the endpoints that were dropped, after their first observed ones.
    missing_of_dropped: u64,
    /// Datagrams of the endpoints that were dropped, before their first observed ones.
    before_dropped: u64,
    /// Endpoints were dropped.
    forgot_endpoints: bool,
    /// Envelope of the latest small message.
    cached: Option<Identity>,
}

/// The datagrams to an endpoint.
#[derive(Clone, Debug)]
struct EndpointDatagrams {
    endpoint: u32,
    /// Lowest observed number.
    first: i64,
    ledger: Ledger,
}

impl EndpointDatagrams {
    /// Notes a number; returns how often it was observed.
    fn note(&mut self, sequence: u16) -> u32 {
        let observations = self.ledger.note_u16(sequence);
        // The ledger may drop its first runs later.
        self.first = self.ledger.runs().next().map_or(self.first, |(first, _)| first.min(self.first));
        observations
    }

    /// Datagrams before the first observed one.
    fn before(&self) -> u64 {
        u64::try_from(self.first - FIRST_DATAGRAM).unwrap_or(0)
    }
}

/// Result of [`Envelopes::first`].
#[derive(Clone, Copy, Debug)]
pub(super) enum FirstPacket {
    /// A message of an MPI library; the upper-layer protocol that it looks like too, if any.
    Recognized(MpiHeader, Option<UpperLayerMessage>),
    /// A retransmission under a new PSN.
    Retransmitted,
    /// A message of no known library; the upper-layer protocol that it looks like, if any.
    Unknown(Option<UpperLayerMessage>),
    /// Normally plain data: a missing envelope does not exclude any library.
    Data,
    /// The capture ends before the end of the header that a message of a library would have.
    Truncated(TruncatedHeader),
}

impl Envelopes {
    /// Classifies the first packet of a SEND, WRITE or datagram.
    pub(super) fn first(&mut self, packet: &PacketRecord, batch_bytes: &[u8]) -> FirstPacket {
        let opcode = packet.opcode();
        let is_datagram = opcode.service() == Service::Ud;
        let q_key = if is_datagram { q_key(packet, batch_bytes) } else { None };
        let Some(carrier) = Carrier::from_opcode(opcode, q_key, packet.extension().unwrap_or_default()) else {
            return if is_datagram { FirstPacket::Unknown(None) } else { FirstPacket::Data };
        };
        let usual = self.usual_stack.map(|(stack, _)| stack);
        let packet_bytes = u32::from(packet.payload_bytes);
        let payload = Payload {
            captured: packet.payload(batch_bytes),
            packet_bytes,
            message_bytes: carrier.message_bytes(opcode, packet_bytes),
        };
        // The command of a storage protocol may look like a message of an MPI library. The first
        // messages of a connection show it.
        let is_new = self.usual_stack.is_none_or(|(_, lead)| lead < UpperLayerVotes::COMPARED_MESSAGES);
        let head = mpi::recognize(carrier, &payload, usual);
        let is_open = match (self.misses, &head) {
            (Some(misses), None) => misses < MISSES_LIMIT,
            (Some(0), Some(_)) | (None, _) => true,
            (Some(_), Some(_)) => is_new,
        };
        let mut upper_layer = None;
        if is_open && !opcode.is_write() {
            upper_layer = ulp::recognize(is_datagram, &payload);
            let misses = self.misses.unwrap_or(0).saturating_add(1).min(MISSES_LIMIT);
            self.misses = Some(if upper_layer.is_some() { 0 } else { misses });
        }
        let Some(head) = head else {
            if payload.is_truncated() && payload.captured.len() < header_bytes(usual) && upper_layer.is_none() {
                let is_write = matches!(carrier, Carrier::Write(_));
                return FirstPacket::Truncated(if is_write { TruncatedHeader::Write } else { TruncatedHeader::Send });
            }
            return if opcode.is_write() { FirstPacket::Data } else { FirstPacket::Unknown(upper_layer) };
        };
        if head.stack == LibraryStack::UcxUd
            && let Some(datagram) = ucx::datagram_without_message(payload.captured)
        {
            self.note_datagram(datagram);
        }
        if head.datagram.is_some_and(|datagram| self.note_datagram(datagram) > 1) {
            return FirstPacket::Retransmitted;
        }
        self.usual_stack = match self.usual_stack {
            Some((stack, lead)) if stack == head.stack => Some((stack, lead.saturating_add(1))),
            Some((stack, lead)) if lead > 0 => Some((stack, lead - 1)),
            _ => Some((head.stack, 0)),
        };
        if let MpiMessagePart::Start(start) = head.part
            && let MatchFields::Named(identity) = start.envelope.matching
            && opcode.is_write()
            && start.envelope.length.in_message(0) <= MAX_CACHED_BYTES
        {
            self.library_state.get_or_insert_default().cached = Some(identity);
        }
        FirstPacket::Recognized(head, upper_layer)
    }

    /// True if the library of this connection puts several messages into one transport message.
    pub(super) fn may_hold_several(&self) -> bool {
        matches!(self.usual_stack, Some((LibraryStack::Ob1 | LibraryStack::Mvapich2, _)))
    }

    /// Envelope of a message that leaves out its own.
    pub(super) fn cached(&self) -> Option<Identity> {
        self.library_state.as_ref().and_then(|state| state.cached)
    }

    /// Missing datagrams after the first observed one, by UCX's own numbers; `None` without such
    /// numbers.
    pub(super) fn missing_datagrams(&self) -> Option<u64> {
        let state = self.library_state.as_ref().filter(|state| !state.datagrams.is_empty())?;
        let known: u64 = state.datagrams.iter().map(|own| own.ledger.missing_numbers()).sum();
        Some(state.missing_of_dropped + known)
    }

    /// True if retransmitted datagrams may have counted as new.
    pub(super) fn overflowed(&self) -> bool {
        let overflows =
            |state: &LibraryState| state.forgot_endpoints || state.datagrams.iter().any(|own| own.ledger.overflowed());
        self.library_state.as_deref().is_some_and(overflows)
    }

    /// Datagrams before the first observed one of each endpoint, by UCX's own numbers.
    pub(super) fn datagrams_before(&self) -> u64 {
        let Some(state) = &self.library_state else { return 0 };
        state.before_dropped + state.datagrams.iter().map(EndpointDatagrams::before).sum::<u64>()
    }

    /// The datagrams by endpoint; those of dropped endpoints are left out.
    pub(super) fn datagram_spans(&self) -> Vec<DatagramSpan> {
        let known = self.library_state.iter().flat_map(|state| &state.datagrams);
        known
            .filter_map(|own| {
                let (first, last) = (own.first as u16, own.ledger.high()? as u16);
                Some(DatagramSpan { endpoint: own.endpoint, first, last, before: own.before() })
            })
            .collect()
    }

    /// Notes a datagram; returns how often its number was observed.
    fn note_datagram(&mut self, datagram: ucx::Datagram) -> u32 {
        let LibraryState { datagrams, missing_of_dropped, before_dropped, forgot_endpoints: forgets, .. } =
            &mut **self.library_state.get_or_insert_default();
        if let Some(own) = datagrams.iter_mut().find(|own| own.endpoint == datagram.endpoint) {
            return own.note(datagram.sequence);
        }
        if datagrams.len() == MAX_UD_ENDPOINTS {
            let oldest = datagrams.remove(0);
            *missing_of_dropped += oldest.ledger.missing_numbers();
            *before_dropped += oldest.before();
            *forgets = true;
        }
        let (endpoint, sequence) = (datagram.endpoint, datagram.sequence);
        let mut own = EndpointDatagrams { endpoint, first: i64::from(sequence), ledger: Ledger::default() };
        let observations = own.note(sequence);
        datagrams.push(own);
        observations
    }
}

/// Bytes of the payload that must be captured to exclude a message of this library; of any library if
/// it is not known (docs/method.md, "Captures with a snap length").
const fn header_bytes(stack: Option<LibraryStack>) -> usize {
    match stack {
        Some(LibraryStack::Ob1) => 28,
        Some(LibraryStack::UcxVerbs | LibraryStack::UcxMlx5) => 41,
        Some(LibraryStack::UcxUd) => 48,
        Some(LibraryStack::Mvapich2) => 56,
        Some(LibraryStack::Rxm | LibraryStack::Nccl) | None => 64,
    }
}

/// The extension headers of a packet, if its record holds them.
fn extensions(packet: &PacketRecord, batch_bytes: &[u8]) -> Option<ExtHeaders> {
    if !packet.has_extension_headers() {
        return None;
    }
    let opcode = packet.opcode();
    let at = packet.payload_offset().checked_sub(usize::from(opcode.ext_bytes()))?;
    ExtHeaders::parse(opcode, batch_bytes.get(at..)?).ok()
}

fn q_key(packet: &PacketRecord, batch_bytes: &[u8]) -> Option<u32> {
    Some(extensions(packet, batch_bytes)?.deth?.q_key)
}

/// RDMA header of a packet, if it has one.
pub(super) fn reth(packet: &PacketRecord, batch_bytes: &[u8]) -> Option<Reth> {
    extensions(packet, batch_bytes)?.reth
}

/// Immediate data of the last packet of an RDMA WRITE, if it has some.
pub(super) fn immediate(packet: &PacketRecord, batch_bytes: &[u8]) -> Option<u32> {
    let opcode = packet.opcode();
    if !(opcode.is_write() && opcode.has_immediate()) {
        return None;
    }
    extensions(packet, batch_bytes)?.imm
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PacketFields;
    use ibscope_parsers::ib::Opcode;

    fn is_retransmitted(envelopes: &mut Envelopes, endpoint: u32, sequence: u16) -> bool {
        envelopes.note_datagram(ucx::Datagram { endpoint, sequence }) > 1
    }

    /// Datagrams 1 and 3 to each endpoint: one datagram per endpoint is missing.
    fn of_endpoints(endpoints: u32) -> Envelopes {
        let mut envelopes = Envelopes::default();
        for endpoint in 0..endpoints {
            assert!([1, 3].iter().all(|sequence| !is_retransmitted(&mut envelopes, endpoint, *sequence)));
        }
        envelopes
    }

    #[test]
    fn endpoints_beyond_the_limit_are_reported_as_overflow() {
        let most = MAX_UD_ENDPOINTS as u32;
        let mut at = of_endpoints(most);
        assert_eq!((at.overflowed(), at.missing_datagrams()), (false, Some(u64::from(most))));
        assert!((0..most).all(|endpoint| is_retransmitted(&mut at, endpoint, 3)));
        let mut beyond = of_endpoints(most + 1);
        assert_eq!((beyond.overflowed(), beyond.missing_datagrams()), (true, Some(u64::from(most) + 1)));
        assert!((1..=most).all(|endpoint| is_retransmitted(&mut beyond, endpoint, 3)));
        // The first endpoint was dropped.
        assert!(!is_retransmitted(&mut beyond, 0, 3));
    }

    /// The first number of an endpoint is that of its connection request. Every other one that is below
    /// the first observed one is a datagram that the capture missed, of each endpoint, also after a
    /// wrap-around.
    #[test]
    fn datagrams_before_the_first_observed_one_are_missing() {
        for (endpoints, before) in [
            (vec![(7, vec![2, 3])], 0),
            (vec![(7, vec![1, 2])], 0),
            (vec![(7, vec![3, 4])], 1),
            (vec![(7, vec![5, 4])], 2),
            (vec![(7, vec![2, 3]), (8, vec![4, 5])], 2),
            (vec![(7, vec![u16::MAX - 1, u16::MAX, 0, 1])], u64::from(u16::MAX) - 3),
        ] {
            let mut envelopes = Envelopes::default();
            for (endpoint, sequences) in &endpoints {
                assert!(sequences.iter().all(|sequence| !is_retransmitted(&mut envelopes, *endpoint, *sequence)));
            }
            assert_eq!(envelopes.datagrams_before(), before, "{endpoints:?}");
            assert_eq!(envelopes.missing_datagrams(), Some(0), "{endpoints:?}");
        }
        let most = MAX_UD_ENDPOINTS as u32;
        let mut envelopes = Envelopes::default();
        for endpoint in 0..=most {
            assert!(!is_retransmitted(&mut envelopes, endpoint, 3));
        }
        assert_eq!(envelopes.datagrams_before(), u64::from(most) + 1);
    }

    /// A message of MVAPICH2 in a slot of its ring: flag, envelope, data, flag.
    fn slot(tag: i32, data_bytes: usize) -> Vec<u8> {
        let mut content = vec![0; 40 + data_bytes];
        (content[6], content[16]) = (1, 2);
        content[8..16].copy_from_slice(&0x5566_1234_5680u64.to_le_bytes());
        content[20..24].copy_from_slice(&0x2C00_0001i32.to_le_bytes());
        content[24..28].copy_from_slice(&tag.to_le_bytes());
        content[28] = 1;
        content[32..40].copy_from_slice(&(data_bytes as u64).to_le_bytes());
        content[40..].fill(0x8B);
        let flag = (content.len() as u64).to_le_bytes();
        [&flag[..], &content, &flag].concat()
    }

    /// The record ends behind the BTH; what follows in the batch is the next record.
    #[test]
    fn headers_are_not_read_from_the_next_record() {
        let packet = |has_extension_headers| {
            PacketRecord::new(PacketFields {
                opcode: Opcode(0x0B),
                payload_offset: 20,
                has_extension_headers,
                ..PacketFields::default()
            })
        };
        let batch: Vec<u8> = (0..40).collect();
        assert_eq!(immediate(&packet(true), &batch), Some(0x1011_1213));
        assert_eq!(immediate(&packet(false), &batch), None);
        assert_eq!(reth(&packet(true), &batch).map(|reth| reth.dma_len), Some(0x0C0D_0E0F));
        assert_eq!(reth(&packet(false), &batch), None);
    }

    #[test]
    fn a_message_does_not_take_the_envelope_of_a_longer_message() {
        let mut envelopes = Envelopes::default();
        // The envelope of the second message is cached, that of the third is not.
        for (tag, bytes, remembered) in
            [(7, MAX_CACHED_BYTES - 1, 7), (8, MAX_CACHED_BYTES, 8), (9, MAX_CACHED_BYTES + 1, 8)]
        {
            let payload = slot(tag, bytes as usize);
            let length = payload.len() as u16;
            let packet = PacketRecord::new(PacketFields {
                opcode: Opcode(0x0A),
                extension: length.into(),
                payload_bytes: length,
                captured_payload_bytes: length,
                ..PacketFields::default()
            });
            let head = envelopes.first(&packet, &payload);
            assert!(
                matches!(head, FirstPacket::Recognized(MpiHeader { stack: LibraryStack::Mvapich2, .. }, None)),
                "{head:?}"
            );
            assert_eq!(envelopes.cached().map(|identity| identity.tag), Some(remembered));
        }
    }
}
