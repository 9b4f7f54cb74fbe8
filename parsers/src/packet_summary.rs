//! Reads the fields of a record that flow analysis needs: addresses, BTH, one word of the extension
//! headers, payload position.
//!
//! Runs for every packet of a capture. Nearly all packets have a common shape, which
//! [`PacketShape::quick`] reads in one pass: an LRH, alone or after a plain ERF header, or Ethernet
//! with IPv4 without options and UDP; captured whole, with no GRH. All other records, and all
//! errors, go through [`link::locate`] and [`Packet::parse_lax`]. Invariant: where `quick` returns
//! a packet, both paths return the same.

#![expect(clippy::inline_always, reason = "see `PacketShape::quick`")]

use crate::field::{Endpoint, Lid};
use crate::frame::erf::ErfHeader;
use crate::frame::{LinkType, Record};
use crate::ib::{Bth, ICRC_BYTES, Lrh, Packet, VCRC_BYTES};
use crate::link::{self, Encapsulation, LinkContent, Location, NotInfiniband, TunnelKinds, TunnelPath};
use crate::{ParseError, PathFields, Qpn};

/// Length of an ERF header without extensions.
const ERF_BYTES: usize = 16;
/// Length of Ethernet, IPv4 without options and UDP headers together.
const ROCE_BYTES: usize = 42;
const ETHERNET_BYTES: u32 = 14;
/// Shorter Ethernet frames are padded.
const SHORTEST_FRAME_BYTES: u32 = 60;
const UDP: u8 = 17;
const UDP_BYTES: usize = 8;
const ROCE_V2_PORT: u16 = 4791;
/// Length of the shortest transport packet: a BTH and an ICRC.
const SHORTEST_TRANSPORT_BYTES: usize = Bth::LEN + ICRC_BYTES;

/// The fields of an InfiniBand packet that flow analysis needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSummary {
    /// Position and addresses.
    pub location: Location,
    /// Base transport header.
    pub bth: Bth,
    /// Fields that choose the traffic class, the partition and the path.
    pub path: PathFields,
    /// By opcode: source queue pair (DETH), `DMALen` (RETH), or syndrome and MSN (AETH); otherwise
    /// 0.
    pub extension: u32,
    /// Offset of the payload in the record's data, even if the record is truncated before it.
    pub payload_offset: usize,
    /// Original length of the payload in bytes, without pad and ICRC, even if the record is
    /// truncated.
    pub payload_bytes: usize,
    /// Captured part of `payload_bytes`.
    pub captured_payload_bytes: usize,
}

/// The common packet shape of a link type.
pub trait PacketShape {
    /// Link type of the records.
    const LINK_TYPE: LinkType;

    /// Reads a whole packet of this shape with a known opcode and passes it to `then`; `None` for
    /// everything else.
    ///
    /// `original_bytes` is the original length of the record. The result equals that of
    /// [`PacketSummary::read`]. Calling `then` at the single exit keeps the packet in registers:
    /// building it in memory costs more than reading it.
    fn quick<T: SummaryConsumer>(data: &[u8], original_bytes: u32, then: T) -> Option<T::Output>;
}

/// Receives a packet summary. A trait rather than a closure, because a closure cannot be marked
/// `#[inline(always)]`.
pub trait SummaryConsumer {
    /// Result of [`SummaryConsumer::consume`].
    type Output;

    /// Takes the packet.
    fn consume(self, brief: PacketSummary) -> Self::Output;
}

/// Returns the packet unchanged.
struct ReturnSummary;

impl SummaryConsumer for ReturnSummary {
    type Output = PacketSummary;

    fn consume(self, brief: PacketSummary) -> PacketSummary {
        brief
    }
}

/// LRH after an ERF header without extensions.
#[derive(Clone, Copy, Debug)]
pub struct ErfShape;

/// LRH at the start of the record.
#[derive(Clone, Copy, Debug)]
pub struct NativeShape;

/// `RoCEv2` in an untagged Ethernet frame, over IPv4 without options.
#[derive(Clone, Copy, Debug)]
pub struct EthernetShape;

/// Content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordContent {
    /// An InfiniBand packet.
    Infiniband(PacketSummary),
    /// Another protocol; the headers read so far are complete.
    Other(NotInfiniband),
}

impl PacketSummary {
    /// Reads the record if it has the [`PacketShape`] of its link type; `None` otherwise.
    #[must_use]
    pub fn quick(record: &Record<'_>) -> Option<Self> {
        match record.link_type {
            LinkType::ERF => ErfShape::quick(record.data, record.original_bytes, ReturnSummary),
            LinkType::ETHERNET => EthernetShape::quick(record.data, record.original_bytes, ReturnSummary),
            LinkType::INFINIBAND => NativeShape::quick(record.data, record.original_bytes, ReturnSummary),
            _ => None,
        }
    }

    /// Reads any record.
    ///
    /// # Errors
    /// The record is truncated before the end of the BTH or inside a header that identifies the
    /// protocol, or the packet's lengths contradict each other.
    pub fn read(record: &Record<'_>) -> Result<RecordContent, ParseError> {
        Self::read_in_tunnels(record, &mut TunnelPath::default())
    }

    /// Reads any record as [`PacketSummary::read`] does, and adds the tunnels around its content to
    /// `path`.
    ///
    /// # Errors
    /// As [`PacketSummary::read`].
    pub fn read_in_tunnels(record: &Record<'_>, path: &mut TunnelPath) -> Result<RecordContent, ParseError> {
        let Record { link_type, data, original_bytes, .. } = *record;
        let location = match link::locate_in_tunnels(link_type, data, original_bytes, path)? {
            LinkContent::Infiniband(location) => location,
            LinkContent::Other(what) => return Ok(RecordContent::Other(what)),
        };
        let packet = Packet::parse_lax(record.data, &location)?;
        // A truncated packet still has its original lengths; a packet whose lengths contradict each
        // other has none.
        if let Some(error) = packet.error.filter(|error| !error.is_truncated()) {
            return Err(error);
        }
        Ok(RecordContent::Infiniband(Self {
            location,
            bth: packet.bth,
            path: path_fields(record.data, &location, packet.bth.pkey, path.priority()),
            extension: extension(&packet),
            payload_offset: packet.payload_offset,
            payload_bytes: packet.payload_bytes,
            captured_payload_bytes: packet.payload.len(),
        }))
    }
}

/// The single word of the extension headers that flow analysis needs.
fn extension(packet: &Packet<'_>) -> u32 {
    let ext = &packet.ext;
    let aeth = ext.aeth.map(|aeth| u32::from(aeth.syndrome) << 24 | aeth.msn);
    ext.deth.map(|deth| deth.src_qp).map(Qpn::value).or(ext.reth.map(|reth| reth.dma_len)).or(aeth).unwrap_or(0)
}

/// The path fields of the packet at `location`.
fn path_fields(data: &[u8], location: &Location, p_key: u16, priority: Option<u8>) -> PathFields {
    let byte = |at: usize| data.get(at).copied().unwrap_or(0);
    let network = location.network;
    // IPv4: the second byte. IPv6 and GRH: the low half of the first byte and the high half of the
    // second.
    let class = || byte(network) << 4 | byte(network + 1) >> 4;
    // The UDP header ends where the BTH starts.
    let udp = location.start.saturating_sub(UDP_BYTES);
    let port = u16::from_be_bytes([byte(udp), byte(udp + 1)]);
    let fields = match location.encapsulation {
        Encapsulation::Native => PathFields::native([byte(network), byte(network + 1)]),
        Encapsulation::RoceV1 => PathFields::roce_v1(class()),
        Encapsulation::RoceV2Ipv4 => PathFields::roce_v2(byte(network + 1), port),
        Encapsulation::RoceV2Ipv6 => PathFields::roce_v2(class(), port),
    };
    fields.with_p_key(p_key).with_priority(priority)
}

/// The packet at `location`, with its BTH at offset `BTH_AT`. `path` has the path fields of the
/// headers before the BTH.
#[inline(always)]
fn transport<const BTH_AT: usize, T: SummaryConsumer>(
    data: &[u8],
    location: Location,
    path: PathFields,
    then: T,
) -> Option<T::Output> {
    let packet = data.get(..location.end())?;
    let (headers, behind) = packet.get(BTH_AT..)?.split_first_chunk::<{ Bth::LEN }>()?;
    let Bth { opcode, pad_count, .. } = Bth::from_bytes(headers);
    let (word_at, mask) = opcode.extension_word();
    // Opcodes without such a word read four bytes of payload or ICRC, which the mask clears.
    let word = behind.get(usize::from(word_at)..)?.first_chunk()?;
    let payload_offset = BTH_AT + Bth::LEN + usize::from(opcode.ext_bytes());
    let payload_bytes = packet.len().checked_sub(payload_offset + usize::from(pad_count) + ICRC_BYTES)?;
    if !opcode.is_known() {
        return None;
    }
    // Read the BTH a second time: keeping the first copy across the checks would cost registers.
    let bth = Bth::from_bytes(headers);
    Some(then.consume(PacketSummary {
        location,
        bth,
        path: path.with_p_key(bth.pkey),
        extension: u32::from_be_bytes(*word) & mask,
        payload_offset,
        payload_bytes,
        captured_payload_bytes: payload_bytes,
    }))
}

/// ERF header without extensions whose `wlen` agrees with the LRH.
impl PacketShape for ErfShape {
    const LINK_TYPE: LinkType = LinkType::ERF;

    #[inline(always)]
    fn quick<T: SummaryConsumer>(data: &[u8], _: u32, then: T) -> Option<T::Output> {
        let (header, rest) = data.split_first_chunk::<ERF_BYTES>()?;
        let lrh: [u8; Lrh::LEN] = *rest.first_chunk()?;
        let location = native(lrh, ERF_BYTES)?;
        let wlen = usize::from(u16::from_be_bytes([header[14], header[15]]));
        let fits = wlen == location.ib_bytes + VCRC_BYTES || wlen == location.ib_bytes;
        if !fits || header[8] != ErfHeader::TYPE_INFINIBAND {
            return None;
        }
        transport::<{ ERF_BYTES + Lrh::LEN }, T>(data, location, PathFields::native([lrh[0], lrh[1]]), then)
    }
}

impl PacketShape for NativeShape {
    const LINK_TYPE: LinkType = LinkType::INFINIBAND;

    #[inline(always)]
    fn quick<T: SummaryConsumer>(data: &[u8], _: u32, then: T) -> Option<T::Output> {
        let lrh: [u8; Lrh::LEN] = *data.first_chunk()?;
        transport::<{ Lrh::LEN }, T>(data, native(lrh, 0)?, PathFields::native([lrh[0], lrh[1]]), then)
    }
}

impl PacketShape for EthernetShape {
    const LINK_TYPE: LinkType = LinkType::ETHERNET;

    #[inline(always)]
    fn quick<T: SummaryConsumer>(data: &[u8], original_bytes: u32, then: T) -> Option<T::Output> {
        let head = data.first_chunk::<ROCE_BYTES>()?;
        let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let (total, udp) = (usize::from(number(16)), usize::from(number(38)));
        let fits = number(12) == 0x0800
            && head[14] == 0x45
            // Ignore the two bits above: only "more fragments" and the offset mark a fragment.
            && number(20) << 2 == 0
            && head[23] == UDP
            && number(36) == ROCE_V2_PORT
            && udp >= UDP_BYTES + SHORTEST_TRANSPORT_BYTES
            && 20 + udp <= total;
        if !fits {
            return None;
        }
        let location = Location {
            encapsulation: Encapsulation::RoceV2Ipv4,
            start: ROCE_BYTES,
            network: 14,
            ib_bytes: udp - UDP_BYTES,
            wire_bytes: frame_bytes(total, original_bytes),
            src: Endpoint::from_ipv4([head[26], head[27], head[28], head[29]]),
            dst: Endpoint::from_ipv4([head[30], head[31], head[32], head[33]]),
            tunnels: TunnelKinds::NONE,
        };
        transport::<ROCE_BYTES, T>(data, location, PathFields::roce_v2(head[15], number(34)), then)
    }
}

/// Length on the wire of an untagged frame with an IP packet of `total` bytes; see
/// [`Location::wire_bytes`].
#[inline(always)]
fn frame_bytes(total: usize, original_bytes: u32) -> u32 {
    (ETHERNET_BYTES + total as u32).max(original_bytes.min(SHORTEST_FRAME_BYTES))
}

/// A native packet whose reserved LRH bits are 0 and whose BTH follows the LRH.
#[inline(always)]
fn native(lrh: [u8; Lrh::LEN], at: usize) -> Option<Location> {
    let reserved = (lrh[0] & 0x0F) | (lrh[1] & 0x0C) | (lrh[4] & 0xF8);
    let ib_bytes = usize::from(u16::from_be_bytes([lrh[4], lrh[5]])) * 4;
    let fits = reserved == 0 && lrh[1] & 3 == Lrh::LNH_LOCAL && ib_bytes >= Lrh::LEN + SHORTEST_TRANSPORT_BYTES;
    if !fits {
        return None;
    }
    Some(Location {
        encapsulation: Encapsulation::Native,
        start: at,
        network: at,
        ib_bytes,
        wire_bytes: (ib_bytes + VCRC_BYTES) as u32,
        src: Endpoint::from_lid(Lid(u16::from_be_bytes([lrh[6], lrh[7]]))),
        dst: Endpoint::from_lid(Lid(u16::from_be_bytes([lrh[2], lrh[3]]))),
        tunnels: TunnelKinds::NONE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ib::Opcode;
    use crate::ib::samples::{ERF, ETHERNET, NATIVE};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn samples() -> Vec<(LinkType, &'static [u8])> {
        let ethernet = ETHERNET.map(|data| (LinkType::ETHERNET, data));
        let native = NATIVE.map(|data| (LinkType::INFINIBAND, data));
        ethernet.into_iter().chain(native).chain(ERF.map(|data| (LinkType::ERF, data))).collect()
    }

    fn record(link_type: LinkType, data: &[u8], original_bytes: u32) -> Record<'_> {
        Record { time_ns: None, link_type, interface: 0, data, original_bytes }
    }

    /// True if `quick` returns a packet; asserts that `read` returns the same one.
    fn agree(record: &Record<'_>) -> bool {
        let Some(brief) = PacketSummary::quick(record) else { return false };
        assert_eq!(PacketSummary::read(record), Ok(RecordContent::Infiniband(brief)), "{record:?}");
        true
    }

    #[test]
    fn quick_and_read_agree_on_all_samples() {
        let mut quick = 0;
        for (link_type, data) in samples() {
            quick += usize::from(agree(&record(link_type, data, data.len() as u32)));
            for there in 0..data.len() {
                agree(&record(link_type, &data[..there], data.len() as u32));
            }
            // Ethernet padding, or a record captured with a longer snap length.
            agree(&record(link_type, &[data, &[0; 9]].concat(), data.len() as u32 + 9));
        }
        // All samples except those with GRH, tags, options or IPv6.
        assert!(quick >= 4, "{quick} of {}", samples().len());
    }

    /// Tries every opcode, so that every extension header is read at every offset.
    #[test]
    fn every_opcode_has_its_word() {
        for (link_type, data) in samples() {
            let record_of = record(link_type, data, data.len() as u32);
            let Some(found) = PacketSummary::quick(&record_of) else { continue };
            let bth_at = found.location.end() - found.location.ib_bytes
                + if found.location.encapsulation == Encapsulation::Native { Lrh::LEN } else { 0 };
            for code in 0..=0xFF {
                let mut changed = data.to_vec();
                changed[bth_at] = code;
                let record = record(link_type, &changed, data.len() as u32);
                let fits = Opcode(code).is_known()
                    && usize::from(Opcode(code).ext_bytes()) + Bth::LEN + usize::from(found.bth.pad_count) + ICRC_BYTES
                        <= found.location.end() - bth_at;
                assert_eq!(agree(&record), fits, "{code:#04x}");
            }
        }
    }

    proptest! {
        #[test]
        fn quick_and_read_agree_on_damaged_packets(
            sample in any::<prop::sample::Index>(),
            changes in proptest::collection::vec((0usize..70, any::<u8>()), 0..4),
            bit in 0u8..8,
            original_bytes in 0u32..400,
        ) {
            let all = samples();
            let (link_type, data) = all[sample.index(all.len())];
            let mut data = data.to_vec();
            for (at, value) in changes {
                if let Some(byte) = data.get_mut(at) {
                    // Flipping single bits reaches cases that random bytes rarely hit: reserved
                    // bits, a length one word longer.
                    *byte = if value & 1 == 0 { *byte ^ 1 << bit } else { value };
                }
            }
            agree(&record(link_type, &data, original_bytes.max(data.len() as u32)));
        }
    }
}
