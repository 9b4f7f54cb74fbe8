//! Packets whose CRCs need not be computed again when a field changes.
//!
//! A CRC is linear: changing bits of a packet changes its CRC by an amount that depends on the place and the
//! difference only, not on the rest. For every byte that differs from packet to packet the amount is computed once
//! for each of its values, with the parsers' own CRC functions; a packet then costs one copy and one look-up per byte,
//! however long its payload is.

use std::io;

use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::crc;
use ibscope_parsers::link::{self, Located, Location};

/// A record's data in which some bytes vary.
pub(crate) struct Template {
    /// The record's data with all varying bytes zero and both CRCs as they are then.
    bytes: Vec<u8>,
    varying: Vec<Varying>,
    /// ICRC in bits 0 to 31 and VCRC in bits 32 to 47, as they are when all varying bytes are zero.
    crcs: u64,
    icrc_at: usize,
    /// Where the VCRC stands, if the framing has one.
    vcrc_at: Option<usize>,
    /// Length on the wire as the statistics define it.
    pub(crate) wire_bytes: u32,
    /// Payload without pad.
    pub(crate) payload_bytes: u32,
}

/// One byte that differs from packet to packet.
struct Varying {
    offset: usize,
    /// How the CRCs change when the byte has this value instead of zero.
    change: Box<[u64; 256]>,
}

impl Template {
    /// Takes a record's data that ends with room for the ICRC (and a VCRC if `has_vcrc`), and the offsets of its
    /// varying bytes, in the order in which [`Template::render`] gets their values.
    ///
    /// # Errors
    ///
    /// `InvalidData` when the parsers find no InfiniBand packet in the data.
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
        let Ok(Located::Infiniband(location)) = link::locate(link_type, &bytes, bytes.len() as u32) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the template is no InfiniBand packet"));
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
            varying.push(Varying { offset, change });
        }
        let wire_bytes = location.wire_bytes;
        Ok(Self { bytes, varying, crcs, icrc_at, vcrc_at, wire_bytes, payload_bytes: payload_bytes as u32 })
    }

    /// Length of the record's data in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the packet to `out`; `values` are those of the varying bytes, in the order of their offsets. Returns
    /// the packet's place in `out`.
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

/// Computes both CRCs from the bytes as they stand, writes them to their places and returns them packed.
fn compute_crcs(bytes: &mut [u8], location: &Location, icrc_at: usize, vcrc_at: Option<usize>) -> io::Result<u64> {
    let icrc = crc::icrc(location.framed, bytes, location)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the template is cut"))?;
    let mut crcs = u64::from(icrc);
    put_crcs(bytes, crcs, icrc_at, None);
    if let Some(vcrc_at) = vcrc_at {
        crcs |= u64::from(crc::vcrc(&bytes[location.start..vcrc_at])) << 32;
        put_crcs(bytes, crcs, icrc_at, Some(vcrc_at));
    }
    Ok(crcs)
}

/// Writes packed CRCs to their places, least significant byte first as on the wire.
fn put_crcs(packet: &mut [u8], crcs: u64, icrc_at: usize, vcrc_at: Option<usize>) {
    packet[icrc_at..icrc_at + 4].copy_from_slice(&(crcs as u32).to_le_bytes());
    if let Some(vcrc_at) = vcrc_at {
        packet[vcrc_at..vcrc_at + 2].copy_from_slice(&((crcs >> 32) as u16).to_le_bytes());
    }
}
