//! Rewrites management datagrams.
//!
//! Known fields of connection management (CM) messages are kept, with replaced addresses. Of all
//! other datagrams, only the header is kept.

use super::bits::{keep, replace_bytes};
use super::names::Pseudonyms;
use ibscope_parsers::Lid;
use ibscope_parsers::ib::{CmMessage, MadHeader};
use ibscope_parsers::mpi::rdmacm;

/// Mask of the datagram header: clears the class-specific bytes (hops of directed routes) and the
/// attribute modifier. The transaction id is replaced.
const HEADER: [u8; MadHeader::LEN] = [
    0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0,
    0, 0,
];
const TRANSACTION_AT: usize = 8;

/// Bytes of a CM message that are kept: start, end, and mask of each byte. Clears reserved bits,
/// and flow labels, traffic classes and hop limits of paths.
type KeepMask = &'static [(usize, usize, u8)];
const REQ: KeepMask = &[
    (0, 4, 0xFF),
    (8, 24, 0xFF),
    (28, 88, 0xFF),
    (91, 92, 0x3F),
    (94, 96, 0xF8),
    (96, 132, 0xFF),
    (135, 136, 0x3F),
    (138, 140, 0xF8),
];
const MRA: KeepMask = &[(0, 8, 0xFF), (8, 9, 0xC0), (9, 10, 0xF8)];
const REJ: KeepMask = &[(0, 8, 0xFF), (8, 9, 0xC0), (9, 10, 0xFE), (10, 12, 0xFF)];
const REP: KeepMask = &[(0, 15, 0xFF), (16, 19, 0xFF), (20, 23, 0xFF), (24, 27, 0xFF), (27, 28, 0xF0), (28, 36, 0xFF)];
const DREQ: KeepMask = &[(0, 11, 0xFF)];
/// The two communication ids; the other fields of a LAP describe a path.
const NUMBERS: KeepMask = &[(0, 8, 0xFF)];
const SIDR_REQ: KeepMask = &[(0, 6, 0xFF), (8, 16, 0xFF)];
const SIDR_REP: KeepMask = &[(0, 6, 0xFF), (8, 11, 0xFF), (12, 24, 0xFF)];

/// Offsets of the paths in a REQ, each with two LIDs and two GIDs.
const PATHS: [usize; 2] = [52, 96];
const REQ_PARTITION_AT: usize = 48;
const SIDR_PARTITION_AT: usize = 4;
const REQ_PRIVATE_AT: usize = 140;
const REP_PRIVATE_AT: usize = 36;
/// Content of `rdma_cm` before the private data of a REQ: versions, and addresses after a port.
const IP_VERSION_BYTES: usize = 2;
const IP_ADDRESSES: [usize; 2] = [4, 20];
/// Length of the data that Open MPI adds after the `rdma_cm` header, or to a REP.
const PEER_BYTES: usize = 15;

/// Rewrites the captured part of a datagram. Returns false if at most its header was kept.
pub(super) fn rewrite(mad: &mut [u8], names: &mut Pseudonyms) -> bool {
    let old = mad.to_vec();
    let Some(old_body) = old.get(MadHeader::LEN..) else {
        // Not even the header was captured, so the kind of datagram is unknown.
        mad.fill(0);
        return false;
    };
    keep(mad, 0, &HEADER);
    replace_bytes(mad, TRANSACTION_AT, |id| names.transaction(u64::from_be_bytes(id)).to_be_bytes());
    let body = &mut mad[MadHeader::LEN..];
    body.fill(0);
    let Ok(message) = CmMessage::parse(&old) else { return false };
    // Private data is cleared, except addresses of `rdma_cm` and Open MPI's data for its peer.
    let (kept, peer) = match &message {
        CmMessage::Req(req) => {
            let is_peer = rdmacm::request(req.private_data).is_some();
            (REQ, is_peer.then_some(REQ_PRIVATE_AT + rdmacm::IP_HEADER_BYTES))
        }
        CmMessage::Rep(rep) => (REP, rdmacm::reply(rep.private_data).is_some().then_some(REP_PRIVATE_AT)),
        CmMessage::Mra(_) => (MRA, None),
        CmMessage::Rej(_) => (REJ, None),
        CmMessage::Dreq(_) => (DREQ, None),
        CmMessage::Rtu(_) | CmMessage::Drep(_) | CmMessage::Lap(_) | CmMessage::Apr(_) => (NUMBERS, None),
        CmMessage::SidrReq(_) => (SIDR_REQ, None),
        CmMessage::SidrRep(_) => (SIDR_REP, None),
    };
    let peer = peer.map(|at| (at, at + PEER_BYTES, 0xFF));
    for (from, until, mask) in kept.iter().copied().chain(peer) {
        let there = body.iter_mut().zip(old_body).take(until).skip(from);
        there.for_each(|(new, old)| *new = old & mask);
    }
    match &message {
        CmMessage::Req(req) => {
            guid(body, 16, names);
            partition(body, REQ_PARTITION_AT, names);
            for path in PATHS {
                lid(body, path, names);
                lid(body, path + 2, names);
                gid(body, path + 4, names);
                gid(body, path + 20, names);
            }
            if matches!(req.private_data, [0, 0x40 | 0x60, ..]) {
                ip_addresses(&mut body[REQ_PRIVATE_AT..], req.private_data, names);
            }
        }
        CmMessage::Rep(_) => guid(body, 28, names),
        CmMessage::SidrReq(_) => partition(body, SIDR_PARTITION_AT, names),
        _ => {}
    }
    true
}

/// Replaces the addresses that `rdma_cm` adds before the private data of a REQ.
fn ip_addresses(body: &mut [u8], old: &[u8], names: &mut Pseudonyms) {
    body[..IP_VERSION_BYTES].copy_from_slice(&old[..IP_VERSION_BYTES]);
    for at in IP_ADDRESSES {
        // An IPv4 address is in the last four bytes, after zeros.
        let Some(address) = old.get(at..).and_then(<[u8]>::first_chunk::<16>) else { continue };
        let new = match address {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ip @ ..] => {
                let mut new = [0; 16];
                new[12..].copy_from_slice(&names.ipv4(*ip));
                new
            }
            _ => names.gid(*address),
        };
        body[at..at + 16].copy_from_slice(&new);
    }
}

/// Replaces a LID, if it was captured whole.
pub(super) fn lid(bytes: &mut [u8], at: usize, names: &mut Pseudonyms) {
    replace_bytes(bytes, at, |old| names.lid(Lid(u16::from_be_bytes(old))).0.to_be_bytes());
}

/// Replaces a GID or IPv6 address, if it was captured whole.
pub(super) fn gid(bytes: &mut [u8], at: usize, names: &mut Pseudonyms) {
    replace_bytes(bytes, at, |old| names.gid(old));
}

fn partition(bytes: &mut [u8], at: usize, names: &mut Pseudonyms) {
    replace_bytes(bytes, at, |old| names.partition(u16::from_be_bytes(old)).to_be_bytes());
}

fn guid(bytes: &mut [u8], at: usize, names: &mut Pseudonyms) {
    replace_bytes(bytes, at, |old| names.guid(u64::from_be_bytes(old)).to_be_bytes());
}
