//! Management datagrams: the fields of connection management that are understood stay, with other addresses; of all else only the header.

use super::bits::{exchange, keep};
use super::names::Names;
use ibscope_parsers::Lid;
use ibscope_parsers::ib::{CmMessage, MadHeader};
use ibscope_parsers::mpi::rdmacm;

/// Of the header of a datagram: no class specific bytes (of directed routes, hops), no modifier of the attribute. The transaction is exchanged.
const HEADER: [u8; MadHeader::LEN] = [
    0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0,
    0, 0,
];
const TRANSACTION_AT: usize = 8;

/// Bytes of a message of connection management that stay: from, until, and which of their bits. Reserved ones go, and so do flow labels,
/// traffic classes and hop limits of paths.
type Kept = &'static [(usize, usize, u8)];
const REQ: Kept = &[
    (0, 4, 0xFF),
    (8, 24, 0xFF),
    (28, 88, 0xFF),
    (91, 92, 0x3F),
    (94, 96, 0xF8),
    (96, 132, 0xFF),
    (135, 136, 0x3F),
    (138, 140, 0xF8),
];
const MRA: Kept = &[(0, 8, 0xFF), (8, 9, 0xC0), (9, 10, 0xF8)];
const REJ: Kept = &[(0, 8, 0xFF), (8, 9, 0xC0), (9, 10, 0xFE), (10, 12, 0xFF)];
const REP: Kept = &[(0, 15, 0xFF), (16, 19, 0xFF), (20, 23, 0xFF), (24, 27, 0xFF), (27, 28, 0xF0), (28, 36, 0xFF)];
const DREQ: Kept = &[(0, 11, 0xFF)];
/// The two numbers of the connection; what else a LAP has is a path.
const NUMBERS: Kept = &[(0, 8, 0xFF)];
const SIDR_REQ: Kept = &[(0, 6, 0xFF), (8, 16, 0xFF)];
const SIDR_REP: Kept = &[(0, 6, 0xFF), (8, 11, 0xFF), (12, 24, 0xFF)];

/// Addresses of a path in a REQ: two LIDs, two GIDs.
const PATHS: [usize; 2] = [52, 96];
const REQ_PARTITION_AT: usize = 48;
const SIDR_PARTITION_AT: usize = 4;
const REQ_PRIVATE_AT: usize = 140;
const REP_PRIVATE_AT: usize = 36;
/// What `rdma_cm` puts before the private data of a REQ: its versions, and behind a port the addresses.
const IP_VERSION_BYTES: usize = 2;
const IP_ADDRESSES: [usize; 2] = [4, 20];
/// What Open MPI puts behind them, or into a REP.
const PEER_BYTES: usize = 15;

/// Rewrites a datagram, as far as it was captured. False where nothing but its header could stay.
pub(super) fn rewrite(mad: &mut [u8], names: &mut Names) -> bool {
    let old = mad.to_vec();
    let Some(old_body) = old.get(MadHeader::LEN..) else {
        // Not even the header was captured: nobody knows what this is.
        mad.fill(0);
        return false;
    };
    keep(mad, 0, &HEADER);
    exchange(mad, TRANSACTION_AT, |id| names.transaction(u64::from_be_bytes(id)).to_be_bytes());
    let body = &mut mad[MadHeader::LEN..];
    body.fill(0);
    let Ok(message) = CmMessage::parse(&old) else { return false };
    // Private data go, but for addresses of `rdma_cm` and what Open MPI tells its peer there.
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

/// Addresses that `rdma_cm` has put before the private data of a REQ.
fn ip_addresses(body: &mut [u8], old: &[u8], names: &mut Names) {
    body[..IP_VERSION_BYTES].copy_from_slice(&old[..IP_VERSION_BYTES]);
    for at in IP_ADDRESSES {
        // An IPv4 address stands in the last four bytes, behind zeros.
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

/// Exchanges a LID that was captured whole.
pub(super) fn lid(bytes: &mut [u8], at: usize, names: &mut Names) {
    exchange(bytes, at, |old| names.lid(Lid(u16::from_be_bytes(old))).0.to_be_bytes());
}

/// The same of a GID or IPv6 address.
pub(super) fn gid(bytes: &mut [u8], at: usize, names: &mut Names) {
    exchange(bytes, at, |old| names.gid(old));
}

fn partition(bytes: &mut [u8], at: usize, names: &mut Names) {
    exchange(bytes, at, |old| names.partition(u16::from_be_bytes(old)).to_be_bytes());
}

fn guid(bytes: &mut [u8], at: usize, names: &mut Names) {
    exchange(bytes, at, |old| names.guid(u64::from_be_bytes(old)).to_be_bytes());
}
