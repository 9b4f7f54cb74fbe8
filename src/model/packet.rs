//! The waist of the program in memory: one InfiniBand packet in 32 bytes, and whose it is once for all packets of a batch.

use super::{ConnectionKey, Kind};
use ibscope_parsers::ib::Opcode;
use ibscope_parsers::ib::crc::CrcVerdict;
use ibscope_parsers::{Endpoint, Psn, Qpn};
use std::ops::Deref;

/// What a packet says of the fabric beside its traffic. Most packets say nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u32);

impl Marks {
    /// BTH FECN: the packet met congestion.
    pub const FECN: Self = Self(1);
    /// BTH BECN: the receiver of the packet is to slow down.
    pub const BECN: Self = Self(1 << 1);
    /// ECN "congestion experienced" in the IP header or GRH.
    pub const ECN_CE: Self = Self(1 << 2);
    /// The ICRC was computed and does not fit.
    pub const ICRC_BAD: Self = Self(1 << 3);
    /// The VCRC was computed and does not fit.
    pub const VCRC_BAD: Self = Self(1 << 4);
    /// All of them, in the order in which they are counted.
    pub const ALL: [Self; 5] = [Self::FECN, Self::BECN, Self::ECN_CE, Self::ICRC_BAD, Self::VCRC_BAD];

    /// The mark if `set`, else none.
    #[must_use]
    pub const fn when(self, set: bool) -> Self {
        if set { self } else { Self(0) }
    }

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True where one of them is set.
    #[must_use]
    pub const fn any(self) -> bool {
        self.0 != 0
    }

    /// True where `mark` is set.
    #[must_use]
    pub const fn has(self, mark: Self) -> bool {
        self.0 & mark.0 != 0
    }
}

/// One decoded packet, without what it has in common with the others of its connection. Offsets point into the bytes of the batch that
/// it came from.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PacketRecord {
    /// Capture time in nanoseconds since the epoch; [`PacketRecord::NO_TIME`] where the record has none.
    pub time_ns: i64,
    /// Opcode in the top 8 bits; number of the connection among those of [`Packets`] in the low 24.
    opcode_and_slot: u32,
    /// Flags in the top 8 bits, from the lowest: [`Kind`] (2), ACK requested, [`Marks`] (5); PSN in the low 24.
    flags_and_psn: u32,
    /// LRH to VCRC, or the whole Ethernet frame.
    pub wire_bytes: u32,
    /// By opcode: RETH `DMALen`, AETH, or the source queue pair of a datagram; else 0.
    pub extension: u32,
    /// Where the InfiniBand payload starts in the batch.
    pub payload_offset: u32,
    /// True length of the payload, without pad and ICRC.
    pub payload_bytes: u16,
    /// How much of it was captured.
    pub captured_payload_bytes: u16,
}

const _: () = assert!(size_of::<PacketRecord>() == 32, "two records fill one cache line");

impl PacketRecord {
    /// Stands for "the record has no time" (pcapng simple packets).
    pub const NO_TIME: i64 = i64::MIN;
    /// Connections that the packets of a batch may have: more than a batch has packets.
    const MAX_SLOTS: u32 = 1 << 24;

    const ACK_REQUESTED: u32 = 1 << 26;
    const MARKS_SHIFT: u32 = 27;

    /// Puts opcode, slot, PSN, marks and kind into their words; the other fields are taken as they are.
    #[must_use]
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub const fn new(
        time_ns: i64,
        (opcode, slot): (Opcode, u32),
        (kind, psn, ack_requested): (Kind, Psn, bool),
        marks: Marks,
        wire_bytes: u32,
        extension: u32,
        payload_offset: u32,
        (payload_bytes, captured_payload_bytes): (u16, u16),
    ) -> Self {
        let flags = (kind as u32) << 24 | if ack_requested { Self::ACK_REQUESTED } else { 0 };
        Self {
            time_ns,
            opcode_and_slot: (opcode.0 as u32) << 24 | slot & (Self::MAX_SLOTS - 1),
            flags_and_psn: flags | (marks.0 & 0x1F) << Self::MARKS_SHIFT | psn.value(),
            wire_bytes,
            extension,
            payload_offset,
            payload_bytes,
            captured_payload_bytes,
        }
    }

    /// Its marks.
    #[must_use]
    pub const fn marks(&self) -> Marks {
        Marks(self.flags_and_psn >> Self::MARKS_SHIFT & 0x1F)
    }

    /// The BTH opcode.
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        Opcode((self.opcode_and_slot >> 24) as u8)
    }

    /// Number of its connection among those of its [`Packets`].
    #[must_use]
    #[inline]
    pub const fn slot(&self) -> u32 {
        self.opcode_and_slot & (Self::MAX_SLOTS - 1)
    }

    /// The packet sequence number.
    #[must_use]
    pub const fn psn(&self) -> Psn {
        Psn::new(self.flags_and_psn)
    }

    /// What the packet is counted as.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self.flags_and_psn >> 24 & 3 {
            0 => Kind::Data,
            1 => Kind::Management,
            _ => Kind::Multicast,
        }
    }

    /// The sender asked for an acknowledgement.
    #[must_use]
    pub const fn ack_requested(&self) -> bool {
        self.flags_and_psn & Self::ACK_REQUESTED != 0
    }

    /// The captured payload, from the bytes of the packet's batch.
    #[must_use]
    pub fn payload<'a>(&self, batch_bytes: &'a [u8]) -> &'a [u8] {
        let start = self.payload_offset as usize;
        batch_bytes.get(start..start + usize::from(self.captured_payload_bytes)).unwrap_or_default()
    }
}

/// A packet and its connection.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Between whom it travels.
    pub key: &'a ConnectionKey,
    /// All else.
    pub record: &'a PacketRecord,
}

impl Deref for Packet<'_> {
    type Target = PacketRecord;

    #[inline]
    fn deref(&self) -> &PacketRecord {
        self.record
    }
}

impl Packet<'_> {
    /// Sender and receiver.
    #[must_use]
    #[inline]
    pub const fn pair(&self) -> (Endpoint, Endpoint) {
        (self.key.src, self.key.dst)
    }
}

/// Packets in file order, with each of their connections once.
#[derive(Clone, Debug, Default)]
pub struct Packets {
    /// The connections in the order of their first packets.
    pub keys: Vec<ConnectionKey>,
    /// The packets, whose slots are indices into `keys`.
    pub records: Vec<PacketRecord>,
}

impl Packets {
    /// The packets with their connections.
    pub fn iter(&self) -> impl Iterator<Item = Packet<'_>> {
        // Slots were given together with the keys.
        self.records.iter().map(|record| Packet { key: &self.keys[record.slot() as usize], record })
    }
}

/// One InfiniBand packet with everything that `inspect` shows of it.
#[derive(Clone, Copy, Debug)]
pub struct InspectedPacket {
    /// Number of its record in the file, from 1.
    pub frame: u64,
    /// Capture time in nanoseconds since the epoch, where the record has one.
    pub time_ns: Option<i64>,
    /// Source.
    pub src: Endpoint,
    /// Destination.
    pub dst: Endpoint,
    /// BTH opcode.
    pub opcode: Opcode,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// Packet sequence number.
    pub psn: Psn,
    /// LRH to VCRC, or the whole Ethernet frame.
    pub wire_bytes: u32,
    /// Captured bytes of the packet, without an ERF header.
    pub captured_bytes: usize,
    /// InfiniBand payload on the wire, without pad and ICRC.
    pub payload_bytes: usize,
    /// Whether the ICRC fits.
    pub icrc: CrcVerdict,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest number of a connection does not touch the opcode beside it.
    #[test]
    fn the_last_slot_of_a_batch_comes_back() {
        let number = (Kind::Multicast, Psn::new(0xFF_FFFF), true);
        let slot = PacketRecord::MAX_SLOTS - 1;
        let record = PacketRecord::new(0, (Opcode(0x81), slot), number, Marks::default(), 30, 0, 0, (0, 0));
        assert_eq!((record.opcode(), record.slot(), record.psn().value()), (Opcode(0x81), slot, 0xFF_FFFF));
        assert_eq!((record.kind(), record.ack_requested()), (Kind::Multicast, true));
    }
}
