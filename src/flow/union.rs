//! Finds the packets that are new when several inputs that overlap in time are read together.
//!
//! ```text
//! input 0, sender's port     PSN  4  5     7  5' 7'      5 was retransmitted after a loss
//! input 1, receiver's port   PSN  4     6  7  5' 7'
//! union                           4  5  6  7  5' 7'
//! ```
//! Each input counts the transmissions of a PSN that it holds. A transmission is new if its input
//! holds more of this PSN than the union so far. A PSN therefore has as many transmissions as the
//! input with the most, regardless of the clocks of the inputs and of their order.
//!
//! Invariant: if a ledger has dropped a PSN, or its count is not exact, its packets are left out and
//! counted: the union never counts a packet twice.

use super::ledger::Ledger;
use super::{Events, Tracker};
use crate::model::{PacketObservation, PacketRef, PacketRole, PointCount};

/// Transmissions of each PSN, per connection: of all inputs together, and in each input.
#[derive(Debug, Default)]
pub struct UnionLedgers {
    connections: Vec<ConnectionUnion>,
}

#[derive(Debug, Default)]
struct ConnectionUnion {
    all: RoleLedgers,
    /// By number of the input; few inputs observe the same connection.
    inputs: Vec<(usize, RoleLedgers)>,
    /// Packets whose PSN a ledger has forgotten, or whose number of transmissions is not exact.
    left_out: u64,
}

/// Observations by packet role.
#[derive(Debug, Default)]
struct RoleLedgers {
    ledgers: [Ledger; 3],
    /// Packets without a sequence number of their own.
    others: u32,
}

/// The input that holds a packet.
#[derive(Clone, Copy, Debug)]
pub struct UnionInput {
    /// Its number.
    pub input: usize,
    /// Its observation points of the connection.
    pub points: PointCount,
}

/// Role of a packet in the union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnionPacket {
    /// Another input held this transmission.
    AlreadyCounted,
    New,
    /// A later PSN came first from another input; in its own input it is in order.
    NewAndOvertaken,
}

impl UnionLedgers {
    /// Empty ledgers for this many connections.
    #[must_use]
    pub fn new(connections: usize) -> Self {
        Self { connections: (0..connections).map(|_| ConnectionUnion::default()).collect() }
    }

    /// Takes the next packet of an input, of connection `id`. Passes it to the tracker of the union
    /// if no other input held this transmission.
    pub fn packet(
        &mut self,
        tracker: &mut Tracker,
        packet: PacketRef<'_>,
        (id, of): (u32, UnionInput),
        batch_bytes: &[u8],
        events: &mut Events,
    ) -> Option<PacketObservation> {
        let span = tracker.psns_of(packet, id);
        let union = self.connections.get_mut(id as usize)?;
        match union.note(packet, of, span) {
            UnionPacket::AlreadyCounted => None,
            UnionPacket::New => Some(tracker.packet(packet, id, batch_bytes, events)),
            UnionPacket::NewAndOvertaken => Some(tracker.overtaken_packet(packet, id, batch_bytes, events)),
        }
    }

    /// True if packets of the connection were left out.
    #[must_use]
    pub fn left_out(&self, id: usize) -> bool {
        self.connections.get(id).is_some_and(|union| union.left_out > 0)
    }
}

impl ConnectionUnion {
    fn note(&mut self, packet: PacketRef<'_>, of: UnionInput, span: u32) -> UnionPacket {
        let role = PacketRole::of(packet.opcode()) as usize;
        let at = self.inputs.iter().position(|(input, _)| *input == of.input).unwrap_or(self.inputs.len());
        if at == self.inputs.len() {
            self.inputs.push((of.input, RoleLedgers::default()));
        }
        let own = &mut self.inputs[at].1;
        let Some(ledger) = own.ledgers.get_mut(role) else {
            own.others = own.others.saturating_add(1);
            let transmission = transmission(own.others, of.points);
            let is_new = transmission.is_some_and(|number| number > self.all.others);
            self.all.others += u32::from(is_new);
            return if is_new { UnionPacket::New } else { UnionPacket::AlreadyCounted };
        };
        let own_high = ledger.high();
        let entry = ledger.note(packet.psn(), span);
        if entry.occurrence > Ledger::LARGEST_EXACT_COUNT {
            self.left_out += 1;
            return UnionPacket::AlreadyCounted;
        }
        let Some(transmission) = transmission(entry.occurrence, of.points) else {
            return UnionPacket::AlreadyCounted;
        };
        let all = &mut self.all.ledgers[role];
        let Some(known) = all.count(packet.psn()) else {
            self.left_out += 1;
            return UnionPacket::AlreadyCounted;
        };
        if transmission <= known {
            return UnionPacket::AlreadyCounted;
        }
        let high = all.high();
        let number = all.note(packet.psn(), span).number;
        let is_in_order = own_high.is_none_or(|high| entry.number > high);
        if is_in_order && high.is_some_and(|high| number < high) {
            return UnionPacket::NewAndOvertaken;
        }
        UnionPacket::New
    }
}

/// Number of the transmission that this observation shows, from 1; `None` for a mirror copy.
const fn transmission(occurrence: u32, points: PointCount) -> Option<u32> {
    match points {
        PointCount::One => Some(occurrence),
        PointCount::Two if occurrence % 2 == 1 => Some(occurrence.div_ceil(2)),
        PointCount::Unclear if occurrence == 1 => Some(1),
        PointCount::Two | PointCount::Unclear => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConnectionKey, PacketFields, PacketRecord, TrafficKind};
    use ibscope_parsers::ib::Opcode;
    use ibscope_parsers::{Endpoint, Lid, Psn, Qpn};

    /// Takes SENDs with PSN 0 in this order of inputs. Returns the number of new packets.
    fn new_packets(union: &mut ConnectionUnion, points: PointCount, inputs: impl Iterator<Item = usize>) -> u64 {
        let [src, dst] = [1, 2].map(|lid| Endpoint::from_lid(Lid(lid)));
        let (dest_qp, src_qp) = (Qpn::new(7), Qpn::new(0));
        let key = ConnectionKey { src, dst, kind: TrafficKind::Data, service: 0, dest_qp, src_qp };
        let record = PacketRecord::new(PacketFields { opcode: Opcode(4), psn: Psn::new(0), ..PacketFields::default() });
        let packet = PacketRef { key: &key, record: &record };
        let packets = inputs.map(|input| union.note(packet, UnionInput { input, points }, 1));
        packets.filter(|packet| *packet != UnionPacket::AlreadyCounted).count() as u64
    }

    /// Input 0 holds 1000 transmissions, and input 1 holds 300 of them, before, between or after.
    #[test]
    fn a_psn_has_as_many_transmissions_as_in_the_input_with_the_most() {
        for (points, copies) in [(PointCount::One, 1), (PointCount::Two, 2)] {
            for before in [0, 500, 1000] {
                let mut union = ConnectionUnion::default();
                let order = [vec![0; before * copies], vec![1; 300 * copies], vec![0; (1000 - before) * copies]];
                assert_eq!(new_packets(&mut union, points, order.concat().into_iter()), 1000, "{points:?}, {before}");
                assert_eq!(union.left_out, 0);
            }
        }
    }

    /// The ledger of the input reaches its largest exact count, and exceeds it by one.
    #[test]
    fn transmissions_beyond_the_largest_exact_count_are_left_out() {
        let mut union = ConnectionUnion::default();
        let before = Ledger::observed(1, Ledger::LARGEST_EXACT_COUNT - 1);
        let observed = || RoleLedgers { ledgers: [(); 3].map(|()| before.clone()), others: 0 };
        union.all = observed();
        union.inputs.push((0, observed()));
        assert_eq!(new_packets(&mut union, PointCount::One, [0].into_iter()), 1);
        assert_eq!(union.left_out, 0);
        assert_eq!(new_packets(&mut union, PointCount::One, [0; 3].into_iter()), 0);
        assert_eq!(union.left_out, 3);
    }
}
