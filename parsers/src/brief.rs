//! A record read as far as flows need it: whose packet it is, and what it does.
//!
//! Runs for every packet of a capture, so the shapes that nearly all packets have (an LRH behind a plain ERF header or at once, or
//! Ethernet, IPv4 without options and UDP; captured whole, one transport header) are read in one go by [`Shape::quick`]. Everything else,
//! and everything that is wrong, goes through [`link::locate`] and [`Packet::parse_lax`], which read every shape and say what is wrong.

#![expect(clippy::inline_always, reason = "see `Shape::quick`")]

use crate::field::{Endpoint, Lid};
use crate::frame::erf::ErfHeader;
use crate::frame::{LinkType, Record};
use crate::ib::{Bth, ICRC_BYTES, Lrh, Packet, VCRC_BYTES};
use crate::link::{self, Framed, Located, Location, NotInfiniband};
use crate::{ParseError, Qpn};

/// Bytes of an ERF header without extensions.
const ERF_BYTES: usize = 16;
/// Ethernet, IPv4 without options, UDP.
const ROCE_BYTES: usize = 42;
const UDP: u8 = 17;
const UDP_BYTES: usize = 8;
const ROCE_V2_PORT: u16 = 4791;
/// The shortest packet of the transport: a BTH and an ICRC.
const SHORTEST_TRANSPORT_BYTES: usize = Bth::LEN + ICRC_BYTES;

/// An InfiniBand packet, as far as flows need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// Where it lies, and between whom it travels.
    pub location: Location,
    /// Base transport header.
    pub bth: Bth,
    /// By opcode: the source queue pair (DETH), `DMALen` (RETH), syndrome and MSN (AETH); else 0.
    pub extension: u32,
    /// Offset of the payload in the record's data; where the capture is cut before it, where it would begin.
    pub payload_offset: usize,
    /// True length of the payload in bytes, pad and ICRC excluded, also where the capture cuts it.
    pub payload_bytes: usize,
    /// How much of it was captured.
    pub captured_payload_bytes: usize,
}

/// The common shape of the packets of a link type.
pub trait Shape {
    /// The link type.
    const LINK_TYPE: LinkType;

    /// Gives a whole packet of this shape, with an opcode that is known, to `then`, as [`Brief::read`] reads it; `None` for everything else.
    /// `original_bytes` are those of its record.
    ///
    /// With `then` as the end of its one way the packet stays in registers: put together in memory it would cost more than reading it.
    fn quick<T: Then>(data: &[u8], original_bytes: u32, then: T) -> Option<T::Output>;
}

/// What is done with a packet. A trait and no closure, because a closure cannot be told to be always a part of what calls it.
pub trait Then {
    /// What comes of it.
    type Output;

    /// Takes the packet.
    fn then(self, brief: Brief) -> Self::Output;
}

/// Gives the packet back.
struct Whole;

impl Then for Whole {
    type Output = Brief;

    fn then(self, brief: Brief) -> Brief {
        brief
    }
}

/// An LRH behind a plain ERF header.
#[derive(Clone, Copy, Debug)]
pub struct Erf;

/// An LRH at once.
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// `RoCEv2` in an untagged frame, over IPv4 without options.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet;

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// An InfiniBand packet.
    Infiniband(Brief),
    /// Something else, whole as far as it was read.
    Other(NotInfiniband),
}

impl Brief {
    /// What the [`Shape`] of its link type says of a record: `None` for one of another shape.
    #[must_use]
    pub fn quick(record: &Record<'_>) -> Option<Self> {
        match record.link_type {
            LinkType::ERF => Erf::quick(record.data, record.original_bytes, Whole),
            LinkType::ETHERNET => Ethernet::quick(record.data, record.original_bytes, Whole),
            LinkType::INFINIBAND => Native::quick(record.data, record.original_bytes, Whole),
            _ => None,
        }
    }

    /// Any record.
    ///
    /// # Errors
    /// A header is cut short before it could decide or before the end of the BTH, or the packet contradicts itself.
    pub fn read(record: &Record<'_>) -> Result<Content, ParseError> {
        let location = match link::locate(record.link_type, record.data, record.original_bytes)? {
            Located::Infiniband(location) => location,
            Located::Other(what) => return Ok(Content::Other(what)),
        };
        let packet = Packet::parse_lax(record.data, &location)?;
        // A packet that the capture cut has its true lengths; one that contradicts itself has none.
        if let Some(error) = packet.stop.filter(|error| !error.is_truncated()) {
            return Err(error);
        }
        Ok(Content::Infiniband(Self {
            location,
            bth: packet.bth,
            extension: extension(&packet),
            payload_offset: packet.payload_offset,
            payload_bytes: packet.payload_bytes,
            captured_payload_bytes: packet.payload.len(),
        }))
    }
}

/// The one word of the extension headers that flows need.
fn extension(packet: &Packet<'_>) -> u32 {
    let ext = &packet.ext;
    let aeth = ext.aeth.map(|aeth| u32::from(aeth.syndrome) << 24 | aeth.msn);
    ext.deth.map(|deth| deth.src_qp).map(Qpn::value).or(ext.reth.map(|reth| reth.dma_len)).or(aeth).unwrap_or(0)
}

/// A whole packet at this place, whose BTH is there.
#[inline(always)]
fn transport<const BTH_AT: usize, T: Then>(data: &[u8], location: Location, then: T) -> Option<T::Output> {
    let packet = data.get(..location.end())?;
    let (headers, behind) = packet.get(BTH_AT..)?.split_first_chunk::<{ Bth::LEN }>()?;
    let Bth { opcode, pad_count, .. } = Bth::from_bytes(headers);
    let (word_at, mask) = opcode.extension_word();
    // Where there is no such word, the ICRC at least stands there.
    let word = behind.get(usize::from(word_at)..)?.first_chunk()?;
    let payload_offset = BTH_AT + Bth::LEN + usize::from(opcode.ext_bytes());
    let payload_bytes = packet.len().checked_sub(payload_offset + usize::from(pad_count) + ICRC_BYTES)?;
    if !opcode.is_known() {
        return None;
    }
    // Read again for the rest of it, so that this need not be kept over the questions before.
    let bth = Bth::from_bytes(headers);
    Some(then.then(Brief {
        location,
        bth,
        extension: u32::from_be_bytes(*word) & mask,
        payload_offset,
        payload_bytes,
        captured_payload_bytes: payload_bytes,
    }))
}

/// Without extensions, and with the packet's length.
impl Shape for Erf {
    const LINK_TYPE: LinkType = LinkType::ERF;

    #[inline(always)]
    fn quick<T: Then>(data: &[u8], _: u32, then: T) -> Option<T::Output> {
        let (header, rest) = data.split_first_chunk::<ERF_BYTES>()?;
        let location = native(*rest.first_chunk()?, ERF_BYTES)?;
        let wlen = usize::from(u16::from_be_bytes([header[14], header[15]]));
        let fits = wlen == location.ib_bytes + VCRC_BYTES || wlen == location.ib_bytes;
        if !fits || header[8] != ErfHeader::TYPE_INFINIBAND {
            return None;
        }
        transport::<{ ERF_BYTES + Lrh::LEN }, T>(data, location, then)
    }
}

impl Shape for Native {
    const LINK_TYPE: LinkType = LinkType::INFINIBAND;

    #[inline(always)]
    fn quick<T: Then>(data: &[u8], _: u32, then: T) -> Option<T::Output> {
        transport::<{ Lrh::LEN }, T>(data, native(*data.first_chunk()?, 0)?, then)
    }
}

impl Shape for Ethernet {
    const LINK_TYPE: LinkType = LinkType::ETHERNET;

    #[inline(always)]
    fn quick<T: Then>(data: &[u8], original_bytes: u32, then: T) -> Option<T::Output> {
        let head = data.first_chunk::<ROCE_BYTES>()?;
        let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let (total, udp) = (usize::from(number(16)), usize::from(number(38)));
        let fits = number(12) == 0x0800
            && head[14] == 0x45
            // Neither "more fragments" nor an offset, whatever the two bits before them say.
            && number(20) << 2 == 0
            && head[23] == UDP
            && number(36) == ROCE_V2_PORT
            && udp >= UDP_BYTES + SHORTEST_TRANSPORT_BYTES
            && 20 + udp <= total;
        if !fits {
            return None;
        }
        let location = Location {
            framed: Framed::RoceV2Ipv4,
            start: ROCE_BYTES,
            network: 14,
            ib_bytes: udp - UDP_BYTES,
            wire_bytes: original_bytes,
            src: Endpoint::from_ipv4([head[26], head[27], head[28], head[29]]),
            dst: Endpoint::from_ipv4([head[30], head[31], head[32], head[33]]),
        };
        transport::<ROCE_BYTES, T>(data, location, then)
    }
}

/// A packet with this LRH, whose reserved bits are 0, and a BTH behind it.
#[inline(always)]
fn native(lrh: [u8; Lrh::LEN], at: usize) -> Option<Location> {
    let reserved = (lrh[0] & 0x0F) | (lrh[1] & 0x0C) | (lrh[4] & 0xF8);
    let ib_bytes = usize::from(u16::from_be_bytes([lrh[4], lrh[5]])) * 4;
    let fits = reserved == 0 && lrh[1] & 3 == Lrh::LNH_LOCAL && ib_bytes >= Lrh::LEN + SHORTEST_TRANSPORT_BYTES;
    if !fits {
        return None;
    }
    Some(Location {
        framed: Framed::Native,
        start: at,
        network: at,
        ib_bytes,
        wire_bytes: (ib_bytes + VCRC_BYTES) as u32,
        src: Endpoint::from_lid(Lid(u16::from_be_bytes([lrh[6], lrh[7]]))),
        dst: Endpoint::from_lid(Lid(u16::from_be_bytes([lrh[2], lrh[3]]))),
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

    /// Both ways say the same wherever the quick one says something.
    fn agree(record: &Record<'_>) -> bool {
        let Some(brief) = Brief::quick(record) else { return false };
        assert_eq!(Brief::read(record), Ok(Content::Infiniband(brief)), "{record:?}");
        true
    }

    #[test]
    fn common_shapes_are_read_in_one_go_and_as_the_general_way_reads_them() {
        let mut quick = 0;
        for (link_type, data) in samples() {
            quick += usize::from(agree(&record(link_type, data, data.len() as u32)));
            for there in 0..data.len() {
                agree(&record(link_type, &data[..there], data.len() as u32));
            }
            // Ethernet padding, or a longer snapped record.
            agree(&record(link_type, &[data, &[0; 9]].concat(), data.len() as u32 + 9));
        }
        // All but those with a GRH, tags, options or IPv6.
        assert!(quick >= 4, "{quick} of {}", samples().len());
    }

    /// Every opcode, so that each extension header is met in each place.
    #[test]
    fn every_opcode_has_its_word() {
        for (link_type, data) in samples() {
            let record_of = record(link_type, data, data.len() as u32);
            let Some(found) = Brief::quick(&record_of) else { continue };
            let bth_at = found.location.end() - found.location.ib_bytes
                + if found.location.framed == Framed::Native { Lrh::LEN } else { 0 };
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
        fn changes_never_make_the_two_ways_differ(
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
                    // Single bits reach what whole bytes seldom do: reserved bits, one more word of length.
                    *byte = if value & 1 == 0 { *byte ^ 1 << bit } else { value };
                }
            }
            agree(&record(link_type, &data, original_bytes.max(data.len() as u32)));
        }
    }
}
