//! What the first packets of a connection's messages show of an MPI library.

use super::ledger::Ledger;
use crate::model::PacketRecord;
use ibscope_parsers::ib::{ExtHeaders, Reth, Service};
use ibscope_parsers::mpi::{self, Carrier, Form, Head, Identity, Matching, Part, Payload};

/// UCX endpoints whose datagram numbers are remembered per pair of UD queue pairs: two interfaces have one or a few. Beyond
/// that the oldest is forgotten, and a datagram of it that comes again counts as new.
const MAX_UD_ENDPOINTS: usize = 16;
/// UCX numbers the datagrams of an endpoint from 1 on (`UCT_UD_INITIAL_PSN`).
const FIRST_DATAGRAM: u16 = 1;
/// The first ones connect, in forms that are not read: so many at most.
const CONNECTING: u16 = 16;
/// Longest message whose envelope may be left out of the next one (MVAPICH2's header caching), in bytes.
const MAX_CACHED_BYTES: u64 = 255;

/// The memory of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Envelopes {
    /// The form that most messages have shown, and by how many it leads.
    usual: Option<(Form, u32)>,
    /// What some libraries alone need.
    seldom: Option<Box<Seldom>>,
}

#[derive(Clone, Debug, Default)]
struct Seldom {
    /// UCX repeats datagrams under new PSNs: its own numbers, by receiver endpoint.
    datagrams: Vec<(u32, Ledger)>,
    /// Datagrams to endpoints that were forgotten that their numbers show to be missing.
    missing_before: u64,
    /// Endpoints were forgotten.
    forgets: bool,
    /// The lowest of these numbers, to whatever endpoint.
    lowest: Option<u16>,
    /// Envelope of the last small message.
    cached: Option<Identity>,
}

/// What the first packet of a message is.
#[derive(Clone, Copy, Debug)]
pub(super) enum First {
    /// Of an MPI library.
    Known(Head),
    /// The same message again, under a new number.
    Repeated,
    /// Nothing that is known.
    Unknown,
    /// Plain data as a rule: that it shows no envelope says nothing about the library.
    Data,
}

impl Envelopes {
    /// Looks at the first packet of a SEND, WRITE or datagram.
    pub(super) fn first(&mut self, packet: &PacketRecord, batch_bytes: &[u8]) -> First {
        let opcode = packet.opcode();
        let is_datagram = opcode.service() == Service::Ud;
        let q_key = if is_datagram { q_key(packet, batch_bytes) } else { None };
        let Some(carrier) = Carrier::of(opcode, q_key, packet.extension) else {
            return if is_datagram { First::Unknown } else { First::Data };
        };
        let usual = self.usual.map(|(form, _)| form);
        let packet_bytes = u32::from(packet.payload_bytes);
        let payload = Payload {
            captured: packet.payload(batch_bytes),
            packet_bytes,
            message_bytes: carrier.message_bytes(opcode, packet_bytes),
        };
        let Some(head) = mpi::recognise(carrier, &payload, usual) else {
            return if opcode.is_write() { First::Data } else { First::Unknown };
        };
        if self.is_repeated(&head) {
            return First::Repeated;
        }
        self.usual = match self.usual {
            Some((form, lead)) if form == head.form => Some((form, lead.saturating_add(1))),
            Some((form, lead)) if lead > 0 => Some((form, lead - 1)),
            _ => Some((head.form, 0)),
        };
        if let Part::Start(start) = head.part
            && let Matching::Named(identity) = start.envelope.matching
            && opcode.is_write()
            && start.envelope.length.of(0) <= MAX_CACHED_BYTES
        {
            self.seldom.get_or_insert_default().cached = Some(identity);
        }
        First::Known(head)
    }

    /// The connection is of a library that puts several messages into one.
    pub(super) fn may_hold_several(&self) -> bool {
        matches!(self.usual, Some((Form::Ob1 | Form::Mvapich2, _)))
    }

    /// The envelope that a message without its own has.
    pub(super) fn cached(&self) -> Option<Identity> {
        self.seldom.as_ref().and_then(|seldom| seldom.cached)
    }

    /// Datagrams that UCX's own numbers show to be missing, from the first that was seen on; `None` without such numbers.
    pub(super) fn missing_datagrams(&self) -> Option<u64> {
        let seldom = self.seldom.as_ref().filter(|seldom| !seldom.datagrams.is_empty())?;
        let known: u64 = seldom.datagrams.iter().map(|(_, ledger)| ledger.never_seen()).sum();
        Some(seldom.missing_before + known)
    }

    /// True where datagrams that come again may not be known any more.
    pub(super) fn overflowed(&self) -> bool {
        let overflows = |seldom: &Seldom| seldom.forgets || seldom.datagrams.iter().any(|(_, own)| own.overflowed());
        self.seldom.as_deref().is_some_and(overflows)
    }

    /// Datagrams before the first that was seen, by the same numbers.
    pub(super) fn datagrams_before(&self) -> u64 {
        let lowest = self.seldom.as_ref().and_then(|seldom| seldom.lowest);
        lowest.filter(|lowest| *lowest > CONNECTING).map_or(0, |lowest| u64::from(lowest - FIRST_DATAGRAM))
    }

    fn is_repeated(&mut self, head: &Head) -> bool {
        let Some(datagram) = head.datagram else { return false };
        let Seldom { datagrams, missing_before, forgets, lowest, .. } = &mut **self.seldom.get_or_insert_default();
        *lowest = Some(lowest.map_or(datagram.sequence, |lowest| lowest.min(datagram.sequence)));
        if let Some((_, ledger)) = datagrams.iter_mut().find(|(endpoint, _)| *endpoint == datagram.endpoint) {
            return ledger.note_u16(datagram.sequence) > 1;
        }
        if datagrams.len() == MAX_UD_ENDPOINTS {
            let (_, oldest) = datagrams.remove(0);
            *missing_before += oldest.never_seen();
            *forgets = true;
        }
        let mut ledger = Ledger::default();
        ledger.note_u16(datagram.sequence);
        datagrams.push((datagram.endpoint, ledger));
        false
    }
}

fn extensions(packet: &PacketRecord, batch_bytes: &[u8]) -> Option<ExtHeaders> {
    let opcode = packet.opcode();
    let at = (packet.payload_offset as usize).checked_sub(usize::from(opcode.ext_bytes()))?;
    ExtHeaders::parse(opcode, batch_bytes.get(at..)?).ok()
}

fn q_key(packet: &PacketRecord, batch_bytes: &[u8]) -> Option<u32> {
    Some(extensions(packet, batch_bytes)?.deth?.q_key)
}

/// The RDMA header of a packet, where it has one.
pub(super) fn reth(packet: &PacketRecord, batch_bytes: &[u8]) -> Option<Reth> {
    extensions(packet, batch_bytes)?.reth
}

/// The immediate data of the last packet of an RDMA WRITE, where it has some.
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
    use ibscope_parsers::mpi::ucx::Datagram;

    fn is_repeated(envelopes: &mut Envelopes, endpoint: u32, sequence: u16) -> bool {
        let datagram = Some(Datagram { endpoint, sequence });
        envelopes.is_repeated(&Head { form: Form::UcxUd, part: Part::Control, datagram })
    }

    /// Datagrams 1 and 3 to each endpoint: one is missing of each.
    fn of_endpoints(endpoints: u32) -> Envelopes {
        let mut envelopes = Envelopes::default();
        for endpoint in 0..endpoints {
            assert!([1, 3].iter().all(|sequence| !is_repeated(&mut envelopes, endpoint, *sequence)));
        }
        envelopes
    }

    #[test]
    fn endpoints_beyond_those_that_are_remembered_are_said() {
        let most = MAX_UD_ENDPOINTS as u32;
        let mut at = of_endpoints(most);
        assert_eq!((at.overflowed(), at.missing_datagrams()), (false, Some(u64::from(most))));
        assert!((0..most).all(|endpoint| is_repeated(&mut at, endpoint, 3)));
        let mut beyond = of_endpoints(most + 1);
        assert_eq!((beyond.overflowed(), beyond.missing_datagrams()), (true, Some(u64::from(most) + 1)));
        assert!((1..=most).all(|endpoint| is_repeated(&mut beyond, endpoint, 3)));
        // Of the first one nothing is known any more.
        assert!(!is_repeated(&mut beyond, 0, 3));
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

    #[test]
    fn an_envelope_of_a_longer_message_is_not_the_next_ones() {
        let mut envelopes = Envelopes::default();
        // The library remembers the second one and not the third.
        for (tag, bytes, remembered) in
            [(7, MAX_CACHED_BYTES - 1, 7), (8, MAX_CACHED_BYTES, 8), (9, MAX_CACHED_BYTES + 1, 8)]
        {
            let payload = slot(tag, bytes as usize);
            let length = payload.len() as u16;
            let number = (crate::model::Kind::Data, ibscope_parsers::Psn::new(0), false);
            let opcode = (ibscope_parsers::ib::Opcode(0x0A), 0);
            let marks = crate::model::Marks::default();
            let packet = PacketRecord::new(0, opcode, number, marks, 30, length.into(), 0, (length, length));
            let head = envelopes.first(&packet, &payload);
            assert!(matches!(head, First::Known(Head { form: Form::Mvapich2, .. })), "{head:?}");
            assert_eq!(envelopes.cached().map(|identity| identity.tag), Some(remembered));
        }
    }
}
