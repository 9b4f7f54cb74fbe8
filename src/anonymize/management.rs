//! Management datagrams: the fields of connection management that are understood stay, with other addresses; of all else only the header.

use super::names::Names;
use ibscope_parsers::Lid;
use ibscope_parsers::ib::{CmMessage, MadHeader};
use ibscope_parsers::mpi::rdmacm;

/// Addresses of a path in a REQ: two LIDs, two GIDs.
const PATHS: [usize; 2] = [52, 96];
/// Port of `rdma_cm` and its addresses, in the private data of a REQ.
const IP_ADDRESSES: [usize; 2] = [4, 20];
/// What Open MPI puts behind them, or into a REP.
const PEER_BYTES: usize = 15;

/// Rewrites a datagram, as far as it was captured. False where nothing but its header could stay.
pub(super) fn rewrite(mad: &mut [u8], names: &mut Names) -> bool {
    let (is_understood, ranges) = match CmMessage::parse(mad) {
        // Two numbers of the connection, then fields; private data and what is reserved goes.
        Ok(CmMessage::Req(req)) => {
            (true, vec![0..140, kept_peer(140, rdmacm::request(req.private_data).is_some(), true)])
        }
        Ok(CmMessage::Rep(rep)) => (true, vec![0..36, kept_peer(36, rdmacm::reply(rep.private_data).is_some(), false)]),
        Ok(CmMessage::Mra(_)) => (true, vec![0..10]),
        Ok(CmMessage::Rej(_) | CmMessage::Dreq(_)) => (true, vec![0..12]),
        Ok(CmMessage::Rtu(_) | CmMessage::Drep(_)) => (true, vec![0..8]),
        Ok(CmMessage::SidrReq(_)) => (true, vec![0..16]),
        Ok(CmMessage::SidrRep(_)) => (true, vec![0..24]),
        // The numbers of the connection; the rest are paths.
        Ok(CmMessage::Lap(_) | CmMessage::Apr(_)) => (true, vec![0..8]),
        Err(_) => (false, Vec::new()),
    };
    let is_request = matches!(CmMessage::parse(mad), Ok(CmMessage::Req(_)));
    let is_reply = matches!(CmMessage::parse(mad), Ok(CmMessage::Rep(_)));
    let Some(body) = mad.get_mut(MadHeader::LEN..) else {
        // Not even the header was captured: nobody knows what this is.
        mad.fill(0);
        return false;
    };
    let has_addresses = is_request && body.get(140..142).is_some_and(|start| matches!(start, [0, 0x40 | 0x60]));
    let old = body.to_vec();
    body.fill(0);
    for range in ranges {
        let end = range.end.min(body.len());
        if let (Some(to), Some(from)) = (body.get_mut(range.start..end), old.get(range.start..end)) {
            to.copy_from_slice(from);
        }
    }
    if is_reply {
        guid(body, 28, names);
    }
    if is_request {
        guid(body, 16, names);
        for path in PATHS {
            lid(body, path, names);
            lid(body, path + 2, names);
            gid(body, path + 4, names);
            gid(body, path + 20, names);
        }
    }
    if has_addresses {
        body[140..144.min(old.len())].copy_from_slice(&old[140..144.min(old.len())]);
        for at in IP_ADDRESSES {
            // An IPv4 address stands in the last four bytes, behind zeros.
            let Some(address) = old.get(140 + at..).and_then(|rest| rest.first_chunk::<16>()) else { continue };
            let new = match address {
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ip @ ..] => {
                    let mut new = [0; 16];
                    new[12..].copy_from_slice(&names.ipv4(*ip));
                    new
                }
                _ => names.gid(*address),
            };
            body[140 + at..140 + at + 16].copy_from_slice(&new);
        }
    }
    is_understood
}

/// Where Open MPI's words to its peer stand, if that is what the private data are.
fn kept_peer(at: usize, is_peer: bool, has_addresses: bool) -> std::ops::Range<usize> {
    let start = at + if has_addresses { rdmacm::IP_HEADER_BYTES } else { 0 };
    start..start + if is_peer { PEER_BYTES } else { 0 }
}

/// Exchanges a LID that was captured whole.
pub(super) fn lid(bytes: &mut [u8], at: usize, names: &mut Names) {
    exchange(bytes, at, |old| names.lid(Lid(u16::from_be_bytes(old))).0.to_be_bytes());
}

/// The same of a GID or IPv6 address.
pub(super) fn gid(bytes: &mut [u8], at: usize, names: &mut Names) {
    exchange(bytes, at, |old| names.gid(old));
}

fn guid(bytes: &mut [u8], at: usize, names: &mut Names) {
    exchange(bytes, at, |old| names.guid(u64::from_be_bytes(old)).to_be_bytes());
}

/// Exchanges what stands at `at`; what was cut off in its middle is cleared.
pub(super) fn exchange<const N: usize>(bytes: &mut [u8], at: usize, new: impl FnOnce([u8; N]) -> [u8; N]) {
    let Some(rest) = bytes.get_mut(at..) else { return };
    match rest.first_chunk_mut::<N>() {
        Some(place) => *place = new(*place),
        None => rest.fill(0),
    }
}
