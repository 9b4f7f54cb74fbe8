//! Headers from the record's first byte to the payload: which of their bits stay. All others are cleared.
//!
//! A bit stays where an analysis reads it, where the packet could not be read without it, or where it is a number that the
//! link or the queue pair has and that tells nothing of people and places. Addresses are exchanged afterwards (`record`).
//! docs/privacy.md has these masks as a table, and a test compares it with the bytes of packets.

use super::bits::{exchange, keep};
use super::names::Names;
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::{Bth, Grh, Lrh, Opcode};
use ibscope_parsers::link::{Framed, Location};

pub(super) const UDP_BYTES: usize = 8;
pub(super) const IPV4_BYTES: usize = 20;
pub(super) const IPV6_BYTES: usize = Grh::LEN;
pub(super) const ETHERNET_BYTES: usize = 14;
const TAG_BYTES: usize = 4;

/// Lanes, lengths and LIDs; reserved bits go.
const LRH: [u8; Lrh::LEN] = [0xFF, 0xF3, 0xFF, 0xFF, 0x07, 0xFF, 0xFF, 0xFF];
/// GRH and IPv6: of the traffic class the congestion bits, no flow label, no hop limit.
const GRH: [u8; Grh::LEN] = {
    let mut mask = [0xFF; Grh::LEN];
    (mask[0], mask[1], mask[2], mask[3], mask[7]) = (0xF0, 0x30, 0, 0, 0);
    mask
};
/// Of the type of service the congestion bits, of the flags "don't fragment"; no identification, no time to live.
const IPV4: [u8; IPV4_BYTES] = {
    let mut mask = [0xFF; IPV4_BYTES];
    (mask[1], mask[4], mask[5], mask[6], mask[7], mask[8]) = (0x03, 0, 0, 0x40, 0, 0);
    mask
};
/// The source port is a hash of what the sender's adapter chooses.
const UDP: [u8; UDP_BYTES] = [0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
const BTH: [u8; Bth::LEN] = [0xFF, 0xFF, 0xFF, 0xFF, 0xC0, 0xFF, 0xFF, 0xFF, 0x80, 0xFF, 0xFF, 0xFF];
const PARTITION_AT: usize = 2;

// Extension headers.
const RDETH: [u8; 4] = [0, 0xFF, 0xFF, 0xFF];
const DETH: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0xFF];
const XRCETH: [u8; 4] = [0, 0xFF, 0xFF, 0xFF];
const FETH: [u8; 4] = [0, 0, 0, 0x3F];
const RETH: [u8; 16] = [0xFF; 16];
/// Address and key stay; what is swapped, added or compared is the application's.
const ATOMIC_ETH: [u8; 28] = {
    let mut mask = [0; 28];
    let mut at = 0;
    while at < 12 {
        mask[at] = 0xFF;
        at += 1;
    }
    mask
};
const AETH: [u8; 4] = [0xFF; 4];
const ATOMIC_ACK: [u8; 8] = [0; 8];
const IMMEDIATE: [u8; 4] = [0; 4];
const IMMEDIATE_OF_NCCL: [u8; 4] = [0xFF; 4];
const IETH: [u8; 4] = [0xFF; 4];
const NOTIFICATION: [u8; 16] = [0; 16];

/// Time to live and hop limit of every packet: what is left of them tells how far the sender is.
const HOPS: u8 = 64;

/// Tags and labels between the link header, whose `EtherType` is at `kind_at`, and the network header.
pub(super) fn tags(data: &mut [u8], kind_at: usize, mut at: usize, network: usize, names: &mut Names) {
    let kind = |data: &[u8], at: usize| data.get(at..).and_then(<[u8]>::first_chunk::<2>).copied();
    let mut is_label = false;
    let mut kind_at = kind_at;
    while at < network {
        // Behind the first label there are labels only.
        is_label = is_label || matches!(kind(data, kind_at), Some([0x88, 0x47 | 0x48]));
        if is_label {
            // Label 20 bits, traffic class 3, end of stack 1, time to live 8.
            exchange(data, at, |old| {
                let old = u32::from_be_bytes(old);
                (names.mpls_label(old >> 12) << 12 | old & 0xF00 | u32::from(HOPS)).to_be_bytes()
            });
        } else {
            // Priority 3 bits, eligible to be dropped 1, VLAN 12.
            exchange(data, at, |old| {
                let old = u16::from_be_bytes(old);
                (old & 0xF000 | names.vlan(old & 0xFFF)).to_be_bytes()
            });
            kind_at = at + 2;
        }
        at += TAG_BYTES;
    }
}

/// The headers from the network header to the BTH.
pub(super) fn network(data: &mut [u8], location: &Location) {
    let at = location.network;
    match location.framed {
        Framed::Native => {
            let is_global = data.get(at + 1).is_some_and(|byte| byte & 3 == Lrh::LNH_GLOBAL);
            keep(data, at, &LRH);
            if is_global {
                global(data, at + Lrh::LEN);
            }
        }
        Framed::RoceV1 => global(data, at),
        Framed::RoceV2Ipv4 => {
            keep(data, at, &IPV4);
            put(data, at + 8, HOPS);
            keep(data, at + IPV4_BYTES, &UDP);
        }
        Framed::RoceV2Ipv6 => {
            global(data, at);
            keep(data, at + IPV6_BYTES, &UDP);
        }
    }
}

fn global(data: &mut [u8], at: usize) {
    keep(data, at, &GRH);
    put(data, at + 7, HOPS);
}

/// An LRH that stands before another packet.
pub(super) fn outer(data: &mut [u8], at: usize) {
    keep(data, at, &LRH);
}

/// BTH and extension headers, up to the payload. Decided by the opcode, so that a header which the capture truncates goes as well.
pub(super) fn transport(data: &mut [u8], payload_offset: usize, opcode: Opcode, is_nccl: bool, names: &mut Names) {
    let mut at = payload_offset - usize::from(opcode.ext_bytes()) - Bth::LEN;
    keep(data, at, &BTH);
    exchange(data, at + PARTITION_AT, |old| names.partition(u16::from_be_bytes(old)).to_be_bytes());
    at += Bth::LEN;
    // NCCL's immediate data are the length of its message.
    let immediate = if is_nccl { &IMMEDIATE_OF_NCCL } else { &IMMEDIATE };
    // In the order in which they follow each other.
    let headers: [(bool, &[u8]); 11] = [
        (opcode.has_rdeth(), &RDETH),
        (opcode.has_deth(), &DETH),
        (opcode.has_xrceth(), &XRCETH),
        (opcode.has_feth(), &FETH),
        (opcode.has_reth(), &RETH),
        (opcode.has_atomic_eth(), &ATOMIC_ETH),
        (opcode.has_aeth(), &AETH),
        (opcode.has_atomic_ack(), &ATOMIC_ACK),
        (opcode.has_immediate(), immediate),
        (opcode.has_invalidate(), &IETH),
        (opcode == Opcode::CNP, &NOTIFICATION),
    ];
    for (_, mask) in headers.into_iter().filter(|(is_there, _)| *is_there) {
        keep(data, at, mask);
        at += mask.len();
    }
}

/// Where the `EtherType` of a link header stands that begins at `begin`, and where tags may follow.
pub(super) fn ether_type(link_type: LinkType, begin: usize) -> Option<(usize, usize)> {
    match link_type {
        LinkType::SLL => Some((14, 16)),
        LinkType::SLL2 => Some((0, 20)),
        LinkType::RAW => None,
        _ => Some((begin + ETHERNET_BYTES - 2, begin + ETHERNET_BYTES)),
    }
}

fn put(data: &mut [u8], at: usize, value: u8) {
    if let Some(byte) = data.get_mut(at) {
        *byte = value;
    }
}
