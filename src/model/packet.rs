//! The packet record that decoding hands to all later stages: 32 bytes per InfiniBand packet, with
//! the connection keys stored once per batch.

use super::{ConnectionKey, TrafficKind};
use ibscope_parsers::ib::Opcode;
use ibscope_parsers::ib::crc::CrcVerdict;
use ibscope_parsers::{Endpoint, PathFields, Psn, Qpn};
use std::ops::Deref;

/// Congestion flags (FECN, BECN, ECN) and checksum errors of a packet. Most packets have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFlags(u32);

impl PacketFlags {
    /// BTH FECN: the packet met congestion.
    pub const FECN: Self = Self(1);
    /// BTH BECN: the receiver of the packet shall slow down.
    pub const BECN: Self = Self(1 << 1);
    /// ECN "congestion experienced" in the IP header or GRH.
    pub const ECN_CE: Self = Self(1 << 2);
    /// The ICRC is wrong.
    pub const ICRC_BAD: Self = Self(1 << 3);
    /// The VCRC is wrong.
    pub const VCRC_BAD: Self = Self(1 << 4);
    /// All flags, in the order of the counters.
    pub const ALL: [Self; 5] = [Self::FECN, Self::BECN, Self::ECN_CE, Self::ICRC_BAD, Self::VCRC_BAD];

    /// This flag if `set`, otherwise none.
    #[must_use]
    pub const fn set_if(self, set: bool) -> Self {
        if set { self } else { Self(0) }
    }

    /// The flags of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if any flag is set.
    #[must_use]
    pub const fn is_any_set(self) -> bool {
        self.0 != 0
    }

    /// True if `flag` is set.
    #[must_use]
    pub const fn contains(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

/// The fields of a [`PacketRecord`], unpacked.
#[derive(Clone, Copy, Debug)]
pub struct PacketFields {
    /// Capture time in nanoseconds since the epoch; [`PacketRecord::NO_TIME`] if the record has
    /// none.
    pub time_ns: i64,
    /// The BTH opcode.
    pub opcode: Opcode,
    /// Index of the packet's connection in [`Packets::keys`]: 24 bits.
    pub slot: u32,
    /// The kind of traffic that the packet counts as.
    pub kind: TrafficKind,
    /// The packet sequence number.
    pub psn: Psn,
    /// True if the sender requested an ACK.
    pub ack_requested: bool,
    /// Congestion flags and checksum errors.
    pub packet_flags: PacketFlags,
    /// See [`PacketRecord::wire_bytes`].
    pub wire_bytes: u32,
    /// See [`PacketRecord::extension`].
    pub extension: u32,
    /// The ICRC was checked and is right.
    pub has_right_icrc: bool,
    /// See [`PacketRecord::payload_offset`]: 30 bits.
    pub payload_offset: u32,
    /// See [`PacketRecord::has_extension_headers`].
    pub has_extension_headers: bool,
    /// See [`PacketRecord::payload_bytes`].
    pub payload_bytes: u16,
    /// See [`PacketRecord::captured_payload_bytes`].
    pub captured_payload_bytes: u16,
}

/// A data packet without payload, so that a test names only the fields that matter to it.
#[cfg(test)]
impl Default for PacketFields {
    fn default() -> Self {
        Self {
            time_ns: 0,
            opcode: Opcode(0),
            slot: 0,
            kind: TrafficKind::Data,
            psn: Psn::new(0),
            ack_requested: false,
            packet_flags: PacketFlags::default(),
            wire_bytes: 30,
            extension: 0,
            has_right_icrc: false,
            payload_offset: 0,
            has_extension_headers: true,
            payload_bytes: 0,
            captured_payload_bytes: 0,
        }
    }
}

/// One decoded packet, without the key of its connection. Offsets point into the bytes of its
/// batch.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PacketRecord {
    /// Capture time in nanoseconds since the epoch; [`PacketRecord::NO_TIME`] if the record has
    /// none.
    pub time_ns: i64,
    /// Opcode in the top 8 bits; slot (index into [`Packets::keys`]) in the low 24.
    opcode_and_slot: u32,
    /// Flags in the top 8 bits, from the lowest: [`TrafficKind`] (2), ACK requested,
    /// [`PacketFlags`] (5); PSN in the low 24.
    flags_and_psn: u32,
    /// Wire bytes: LRH to VCRC, or the whole Ethernet frame.
    pub wire_bytes: u32,
    /// See [`PacketRecord::extension`].
    extension: u32,
    /// Offset of the payload in the low 30 bits; the top bit is set if the record ends before it, the
    /// next one if the ICRC is right.
    payload_offset_and_flags: u32,
    /// Full length of the payload, without pad and ICRC.
    pub payload_bytes: u16,
    /// Captured bytes of the payload.
    pub captured_payload_bytes: u16,
}

const _: () = assert!(size_of::<PacketRecord>() == 32, "two records fill one cache line");

impl PacketRecord {
    /// Time of a record without a time (pcapng simple packets).
    pub const NO_TIME: i64 = i64::MIN;
    /// Limit of connections per batch; a batch has fewer packets.
    const MAX_SLOTS: u32 = 1 << 24;

    const ACK_REQUESTED: u32 = 1 << 26;
    const PACKET_FLAGS_SHIFT: u32 = 27;
    const ENDS_EARLY: u32 = 1 << 31;
    const RIGHT_ICRC: u32 = 1 << 30;
    const PAYLOAD_OFFSET: u32 = Self::RIGHT_ICRC - 1;

    /// Packs opcode, slot, PSN, flags and kind into their words; stores the other fields unchanged.
    #[must_use]
    #[inline]
    pub const fn new(fields: PacketFields) -> Self {
        let flags = (fields.kind as u32) << 24 | if fields.ack_requested { Self::ACK_REQUESTED } else { 0 };
        let packet_flags = (fields.packet_flags.0 & 0x1F) << Self::PACKET_FLAGS_SHIFT;
        let ends_early = if fields.has_extension_headers { 0 } else { Self::ENDS_EARLY };
        let right_icrc = if fields.has_right_icrc { Self::RIGHT_ICRC } else { 0 };
        Self {
            time_ns: fields.time_ns,
            opcode_and_slot: (fields.opcode.0 as u32) << 24 | fields.slot & (Self::MAX_SLOTS - 1),
            flags_and_psn: flags | packet_flags | fields.psn.value(),
            wire_bytes: fields.wire_bytes,
            extension: fields.extension,
            payload_offset_and_flags: fields.payload_offset & Self::PAYLOAD_OFFSET | ends_early | right_icrc,
            payload_bytes: fields.payload_bytes,
            captured_payload_bytes: fields.captured_payload_bytes,
        }
    }

    /// Its flags.
    #[must_use]
    pub const fn packet_flags(&self) -> PacketFlags {
        PacketFlags(self.flags_and_psn >> Self::PACKET_FLAGS_SHIFT & 0x1F)
    }

    /// The BTH opcode.
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        Opcode((self.opcode_and_slot >> 24) as u8)
    }

    /// Index of its connection in [`Packets::keys`].
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

    /// The kind of traffic that the packet counts as.
    #[must_use]
    pub const fn kind(&self) -> TrafficKind {
        match self.flags_and_psn >> 24 & 3 {
            0 => TrafficKind::Data,
            1 => TrafficKind::Management,
            _ => TrafficKind::Multicast,
        }
    }

    /// True if the sender requested an ACK.
    #[must_use]
    pub const fn ack_requested(&self) -> bool {
        self.flags_and_psn & Self::ACK_REQUESTED != 0
    }

    /// Offset in the batch at which the InfiniBand payload starts, or would start if the record did not
    /// end before it.
    #[must_use]
    #[inline]
    pub const fn payload_offset(&self) -> usize {
        (self.payload_offset_and_flags & Self::PAYLOAD_OFFSET) as usize
    }

    /// True if the ICRC was checked and is right. It is not checked if the packet was not captured in
    /// full.
    #[must_use]
    #[inline]
    pub const fn has_right_icrc(&self) -> bool {
        self.payload_offset_and_flags & Self::RIGHT_ICRC != 0
    }

    /// True if the record holds all extension headers. If it does not, the bytes between BTH and
    /// [`Self::payload_offset`] belong to the next record.
    #[must_use]
    #[inline]
    pub const fn has_extension_headers(&self) -> bool {
        self.payload_offset_and_flags & Self::ENDS_EARLY == 0
    }

    /// RETH `DMALen`, AETH, or the source queue pair of a datagram, depending on the opcode; 0 for
    /// others. `None` if the record does not hold all extension headers.
    #[must_use]
    #[inline]
    pub const fn extension(&self) -> Option<u32> {
        if self.has_extension_headers() { Some(self.extension) } else { None }
    }

    /// The AETH of a NAK or an RNR NAK. A record that ends before the AETH counts as an ACK.
    #[must_use]
    #[inline]
    pub const fn nak(&self) -> Option<u32> {
        match self.extension() {
            // Syndrome, bits 6 and 5: 0 ACK, 1 RNR NAK, 3 NAK.
            Some(aeth) if self.opcode().is_ack() && aeth >> 29 != 0 => Some(aeth),
            _ => None,
        }
    }

    /// The captured payload, from the bytes of the packet's batch.
    #[must_use]
    pub fn payload<'a>(&self, batch_bytes: &'a [u8]) -> &'a [u8] {
        let start = self.payload_offset();
        batch_bytes.get(start..start + usize::from(self.captured_payload_bytes)).unwrap_or_default()
    }
}

/// A packet with the key of its connection.
#[derive(Clone, Copy, Debug)]
pub struct PacketRef<'a> {
    /// The connection.
    pub key: &'a ConnectionKey,
    /// The packet.
    pub record: &'a PacketRecord,
}

impl Deref for PacketRef<'_> {
    type Target = PacketRecord;

    #[inline]
    fn deref(&self) -> &PacketRecord {
        self.record
    }
}

impl PacketRef<'_> {
    /// Sender and receiver.
    #[must_use]
    #[inline]
    pub const fn pair(&self) -> (Endpoint, Endpoint) {
        (self.key.src, self.key.dst)
    }
}

/// Packets in file order, and the keys of their connections.
#[derive(Clone, Debug, Default)]
pub struct Packets {
    /// Connection keys in the order of their first packets. A connection whose packets differ in
    /// their path fields has one entry for each combination.
    pub keys: Vec<ConnectionKey>,
    /// The path fields of each entry of `keys`.
    pub paths: Vec<PathFields>,
    /// Packets; their slots are indices into `keys` and `paths`.
    pub records: Vec<PacketRecord>,
}

impl Packets {
    /// Removes all packets, and keeps the room for others.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.paths.clear();
        self.records.clear();
    }

    /// The packets with their connections.
    pub fn iter(&self) -> impl Iterator<Item = PacketRef<'_>> {
        // Every slot is the index of a key.
        self.records.iter().map(|record| PacketRef { key: &self.keys[record.slot() as usize], record })
    }
}

/// One InfiniBand packet with everything that `inspect` shows.
#[derive(Clone, Copy, Debug)]
pub struct InspectedPacket {
    /// Number of its record in the file, starting at 1.
    pub frame: u64,
    /// Capture time in nanoseconds since the epoch, if the record has one.
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
    /// Wire bytes: LRH to VCRC, or the whole Ethernet frame.
    pub wire_bytes: u32,
    /// Captured bytes of the packet, without an ERF header.
    pub captured_bytes: usize,
    /// InfiniBand payload on the wire in bytes, without pad and ICRC.
    pub payload_bytes: usize,
    /// Result of the ICRC check.
    pub icrc: CrcVerdict,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest slot does not change the fields that share a word with it.
    #[test]
    fn the_largest_slot_is_stored_unchanged() {
        let slot = PacketRecord::MAX_SLOTS - 1;
        let record = PacketRecord::new(PacketFields {
            opcode: Opcode(0x81),
            slot,
            kind: TrafficKind::Multicast,
            psn: Psn::new(0xFF_FFFF),
            ack_requested: true,
            ..PacketFields::default()
        });
        assert_eq!((record.opcode(), record.slot(), record.psn().value()), (Opcode(0x81), slot, 0xFF_FFFF));
        assert_eq!((record.kind(), record.ack_requested()), (TrafficKind::Multicast, true));
    }

    /// The syndrome is 0 for an ACK, 1 for an RNR NAK and 3 for a NAK (InfiniBand Architecture, 9.7.5.2.1).
    #[test]
    fn only_an_aeth_that_was_captured_shows_a_nak() {
        const ACK: u8 = 0x11;
        const SEND_ONLY: u8 = 0x04;
        let cases = [
            (ACK, 0, true, false),
            (ACK, 1, true, true),
            (ACK, 3, true, true),
            (ACK, 3, false, false),
            (SEND_ONLY, 3, true, false),
        ];
        for (opcode, syndrome, has_extension_headers, is_nak) in cases {
            let extension = syndrome << 29 | 7;
            let fields =
                PacketFields { opcode: Opcode(opcode), extension, has_extension_headers, ..PacketFields::default() };
            let record = PacketRecord::new(fields);
            assert_eq!(record.nak(), is_nak.then_some(extension));
            assert_eq!(record.extension(), has_extension_headers.then_some(extension));
        }
    }
}
