//! Masks of the headers from the first byte of a record to the payload. All bits outside of the
//! masks are cleared.
//!
//! A mask contains a bit if an analysis reads it, if the packet cannot be parsed without it, or if
//! it is a number of the link or queue pair that identifies neither people nor places. Addresses
//! are replaced afterwards (`record.rs`). docs/privacy.md lists these masks, and a test compares
//! the list with the bytes of packets.

use super::bits::{keep, replace_bytes};
use super::names::Pseudonyms;
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::{Bth, Grh, Lrh, Opcode};
use ibscope_parsers::link::{Encapsulation, Location};

pub(super) const UDP_BYTES: usize = 8;
pub(super) const IPV4_BYTES: usize = 20;
pub(super) const IPV6_BYTES: usize = Grh::LEN;
pub(super) const ETHERNET_BYTES: usize = 14;
const TAG_BYTES: usize = 4;

/// Virtual lane, lengths and LIDs; reserved bits are cleared.
const LRH: [u8; Lrh::LEN] = [0xFF, 0xF3, 0xFF, 0xFF, 0x07, 0xFF, 0xFF, 0xFF];
/// GRH and IPv6: keeps the traffic class (DSCP and ECN); clears the flow label and the hop limit.
const GRH: [u8; Grh::LEN] = {
    let mut mask = [0xFF; Grh::LEN];
    (mask[1], mask[2], mask[3], mask[7]) = (0xF0, 0, 0, 0);
    mask
};
/// Keeps the type of service (DSCP and ECN) and the "don't fragment" flag; clears identification
/// and time to live.
const IPV4: [u8; IPV4_BYTES] = {
    let mut mask = [0xFF; IPV4_BYTES];
    (mask[4], mask[5], mask[6], mask[7], mask[8]) = (0, 0, 0x40, 0, 0);
    mask
};
const BTH: [u8; Bth::LEN] = [0xFF, 0xFF, 0xFF, 0xFF, 0xC0, 0xFF, 0xFF, 0xFF, 0x80, 0xFF, 0xFF, 0xFF];
const PARTITION_AT: usize = 2;

// Extension headers.
const RDETH: [u8; 4] = [0, 0xFF, 0xFF, 0xFF];
const DETH: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0xFF];
const XRCETH: [u8; 4] = [0, 0xFF, 0xFF, 0xFF];
const FETH: [u8; 4] = [0, 0, 0, 0x3F];
const RETH: [u8; 16] = [0xFF; 16];
/// Keeps address and key; the operands belong to the application.
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

/// Time to live and hop limit of every packet. The original values show the distance to the sender.
const HOPS: u8 = 64;

/// Rewrites the tags and labels between the link header, whose `EtherType` is at `kind_at`, and the
/// network header.
pub(super) fn tags(data: &mut [u8], kind_at: usize, mut at: usize, network: usize, names: &mut Pseudonyms) {
    let kind = |data: &[u8], at: usize| data.get(at..).and_then(<[u8]>::first_chunk::<2>).copied();
    let mut is_label = false;
    let mut kind_at = kind_at;
    while at < network {
        // After the first label, only labels follow.
        is_label = is_label || matches!(kind(data, kind_at), Some([0x88, 0x47 | 0x48]));
        if is_label {
            // Label 20 bits, traffic class 3, end of stack 1, time to live 8.
            replace_bytes(data, at, |old| {
                let old = u32::from_be_bytes(old);
                (names.mpls_label(old >> 12) << 12 | old & 0xF00 | u32::from(HOPS)).to_be_bytes()
            });
        } else {
            // Priority 3 bits, drop eligible indicator 1, VLAN 12.
            replace_bytes(data, at, |old| {
                let old = u16::from_be_bytes(old);
                (old & 0xF000 | names.vlan(old & 0xFFF)).to_be_bytes()
            });
            kind_at = at + 2;
        }
        at += TAG_BYTES;
    }
}

/// Masks the headers from the network header to the BTH, and replaces the UDP source port.
pub(super) fn network(data: &mut [u8], location: &Location, names: &mut Pseudonyms) {
    let at = location.network;
    match location.encapsulation {
        Encapsulation::Native => {
            let is_global = data.get(at + 1).is_some_and(|byte| byte & 3 == Lrh::LNH_GLOBAL);
            keep(data, at, &LRH);
            if is_global {
                global(data, at + Lrh::LEN);
            }
        }
        Encapsulation::RoceV1 => global(data, at),
        Encapsulation::RoceV2Ipv4 => {
            keep(data, at, &IPV4);
            put(data, at + 8, HOPS);
            source_port(data, at + IPV4_BYTES, names);
        }
        Encapsulation::RoceV2Ipv6 => {
            global(data, at);
            source_port(data, at + IPV6_BYTES, names);
        }
    }
}

/// Replaces the UDP source port. Adapters compute it from addresses and queue pairs, and switches
/// choose the path of a packet by it, so analyses count the ports of each pair.
fn source_port(data: &mut [u8], at: usize, names: &mut Pseudonyms) {
    replace_bytes(data, at, |old| names.source_port(u16::from_be_bytes(old)).to_be_bytes());
}

fn global(data: &mut [u8], at: usize) {
    keep(data, at, &GRH);
    put(data, at + 7, HOPS);
}

/// Masks an LRH that precedes another packet.
pub(super) fn outer(data: &mut [u8], at: usize) {
    keep(data, at, &LRH);
}

/// Masks BTH and extension headers, up to the payload. The opcode determines the headers, so
/// headers that the capture truncates are masked as well.
pub(super) fn transport(data: &mut [u8], payload_offset: usize, opcode: Opcode, is_nccl: bool, names: &mut Pseudonyms) {
    let mut at = payload_offset - usize::from(opcode.ext_bytes()) - Bth::LEN;
    keep(data, at, &BTH);
    replace_bytes(data, at + PARTITION_AT, |old| names.partition(u16::from_be_bytes(old)).to_be_bytes());
    at += Bth::LEN;
    // NCCL's immediate data is the length of its message.
    let immediate = if is_nccl { &IMMEDIATE_OF_NCCL } else { &IMMEDIATE };
    // In the order of the packet.
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

/// Offset of the `EtherType` of a link header that starts at `begin`, and offset of the tags after
/// it.
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
