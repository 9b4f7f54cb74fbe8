//! Packet templates whose CRCs are updated instead of recomputed when a field changes.
//!
//! A CRC is linear: changing bits of a packet changes its CRC by an amount that depends only on
//! their position and the difference. For every byte that varies between packets, this amount is
//! computed once per value with the parsers' CRC functions. A packet then costs one copy and one
//! look-up per varying byte, independent of its payload.

use std::io;

use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::crc;
use ibscope_parsers::link::{self, LinkContent, Location};

/// A record's data with varying bytes.
pub(crate) struct PacketTemplate {
    /// The record's data with all varying bytes zero, and the CRCs of these bytes.
    bytes: Vec<u8>,
    varying: Vec<VaryingByte>,
    /// ICRC in bits 0 to 31 and VCRC in bits 32 to 47 for varying bytes of zero.
    crcs: u64,
    icrc_at: usize,
    /// Offset of the VCRC, if the framing has one.
    vcrc_at: Option<usize>,
    /// Length on the wire, as the statistics define it.
    pub(crate) wire_bytes: u32,
    /// Length of the payload without pad.
    pub(crate) payload_bytes: u32,
}

/// A byte that differs from packet to packet.
struct VaryingByte {
    offset: usize,
    /// By value of the byte: the difference of the CRCs from those of value zero.
    change: Box<[u64; 256]>,
}

impl PacketTemplate {
    /// Creates a template from a record's data, which end with room for the ICRC (and a VCRC if
    /// `has_vcrc`), and the offsets of the varying bytes in the order of the values passed to
    /// [`PacketTemplate::render`].
    ///
    /// # Errors
    ///
    /// `InvalidData` if the parsers find no InfiniBand packet in the data.
    pub(crate) fn new(
        link_type: LinkType,
        mut bytes: Vec<u8>,
        offsets: &[usize],
        has_vcrc: bool,
        payload_bytes: usize,
    ) -> io::Result<Self> {
        for &offset in offsets {
            bytes[offset] = 0;
        }
        let Ok(LinkContent::Infiniband(location)) = link::locate(link_type, &bytes, bytes.len() as u32) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the template is not an InfiniBand packet"));
        };
        let vcrc_at = has_vcrc.then_some(bytes.len() - 2);
        let icrc_at = vcrc_at.unwrap_or(bytes.len()) - 4;
        let crcs = compute_crcs(&mut bytes, &location, icrc_at, vcrc_at)?;
        let mut varying = Vec::with_capacity(offsets.len());
        for &offset in offsets {
            let mut change = Box::new([0; 256]);
            for bit in 0..8 {
                bytes[offset] = 1 << bit;
                let of_bit = compute_crcs(&mut bytes, &location, icrc_at, vcrc_at)? ^ crcs;
                for (value, change) in change.iter_mut().enumerate() {
                    if value & 1 << bit != 0 {
                        *change ^= of_bit;
                    }
                }
            }
            bytes[offset] = 0;
            varying.push(VaryingByte { offset, change });
        }
        let wire_bytes = location.wire_bytes;
        Ok(Self { bytes, varying, crcs, icrc_at, vcrc_at, wire_bytes, payload_bytes: payload_bytes as u32 })
    }

    /// Length of the record's data in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the packet to `out` and returns its bytes. `values` are the varying bytes, in the
    /// order of their offsets.
    pub(crate) fn render<'a>(&self, out: &'a mut Vec<u8>, values: &[u8]) -> &'a mut [u8] {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let packet = &mut out[start..];
        let mut crcs = self.crcs;
        for (varying, &value) in self.varying.iter().zip(values) {
            packet[varying.offset] = value;
            crcs ^= varying.change[usize::from(value)];
        }
        put_crcs(packet, crcs, self.icrc_at, self.vcrc_at);
        packet
    }
}

/// Computes both CRCs of the bytes, writes them to their offsets and returns them packed.
fn compute_crcs(bytes: &mut [u8], location: &Location, icrc_at: usize, vcrc_at: Option<usize>) -> io::Result<u64> {
    let icrc = crc::icrc(location.encapsulation, bytes, location)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the template is truncated"))?;
    let mut crcs = u64::from(icrc);
    put_crcs(bytes, crcs, icrc_at, None);
    if let Some(vcrc_at) = vcrc_at {
        crcs |= u64::from(crc::vcrc(&bytes[location.start..vcrc_at])) << 32;
        put_crcs(bytes, crcs, icrc_at, Some(vcrc_at));
    }
    Ok(crcs)
}

/// Writes packed CRCs to their offsets, least significant byte first as on the wire.
fn put_crcs(packet: &mut [u8], crcs: u64, icrc_at: usize, vcrc_at: Option<usize>) {
    packet[icrc_at..icrc_at + 4].copy_from_slice(&(crcs as u32).to_le_bytes());
    if let Some(vcrc_at) = vcrc_at {
        packet[vcrc_at..vcrc_at + 2].copy_from_slice(&((crcs >> 32) as u16).to_le_bytes());
    }
}
