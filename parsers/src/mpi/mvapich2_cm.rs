//! MVAPICH2's on-demand connection messages: datagrams with `Q_Key` 0 that name both world ranks
//! and the sender's queue pairs.
//!
//! Host byte order (`common/src/cm/cm.c`; N rails are compiled in: 40 in 2.3, 16 in 2.2):
//!
//! ```text
//! P+0 request u32  P+4 server's rank u32  P+8 client's rank u32  P+12 type u8  P+13 rails u8  P+14 LIDs u16[N]
//! then GIDs [16][N] from the next multiple of 8 on 2.3 (P+96), P+48 on 2.2; then queue pairs u32[N]
//! ```
//! A request carries the addresses of the client, a reply those of the server. Jobs of up to 64
//! ranks connect through the process manager instead, which no capture shows.

use super::bytes;
use crate::{Lid, Qpn};

/// `Q_Key` of the datagrams.
pub const Q_KEY: u32 = 0;
const RANK_LIMIT: u32 = 1 << 20;
const TYPE_LAST: u8 = 5;
const LIDS: usize = 14;

/// Sizes that depend on the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RailLayout {
    rails: usize,
    gids: usize,
    qpns: usize,
}

const RELEASE_2_3: RailLayout = RailLayout { rails: 40, gids: 96, qpns: 736 };
const RELEASE_2_2: RailLayout = RailLayout { rails: 16, gids: 48, qpns: 304 };

/// A connection message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionMessage<'a> {
    /// The client's id of the request, which the reply returns.
    pub request: u32,
    /// World rank of the process that accepts the connection.
    pub server_rank: u32,
    /// World rank of the process that requests the connection.
    pub client_rank: u32,
    /// Type: 0 request, 1 reply, 2 and 3 the same for connections without MPI state, 4 and 5 for
    /// XRC.
    pub kind: u8,
    /// Number of rails.
    pub rail_count: u8,
    layout: RailLayout,
    payload: &'a [u8],
}

/// A queue pair of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rail {
    /// LID of the port; 0 on `RoCE`.
    pub lid: Lid,
    /// GID of the port, if captured.
    pub gid: Option<[u8; 16]>,
    /// Queue pair number, if captured.
    pub qpn: Option<Qpn>,
}

impl ConnectionMessage<'_> {
    /// World rank of the process that sent the message and owns the rails.
    #[must_use]
    pub const fn sender_rank(&self) -> u32 {
        if self.kind & 1 == 0 { self.client_rank } else { self.server_rank }
    }

    /// World rank of the process that receives the message.
    #[must_use]
    pub const fn receiver_rank(&self) -> u32 {
        if self.kind & 1 == 0 { self.server_rank } else { self.client_rank }
    }

    /// The sender's rails, up to the last one whose LID was captured.
    pub fn rails(&self) -> impl Iterator<Item = Rail> + '_ {
        (0..usize::from(self.rail_count)).map_while(|rail| {
            let lid = Lid(u16::from_le_bytes(bytes(self.payload, LIDS + 2 * rail)?));
            let gid = bytes(self.payload, self.layout.gids + 16 * rail);
            let qpn = bytes(self.payload, self.layout.qpns + 4 * rail).map(|qpn| Qpn::new(u32::from_le_bytes(qpn)));
            Some(Rail { lid, gid, qpn })
        })
    }
}

/// Parses a datagram with [`Q_KEY`] and `message_bytes` of payload on the wire; `payload` is its
/// captured part.
#[must_use]
pub fn datagram(payload: &[u8], message_bytes: u32) -> Option<ConnectionMessage<'_>> {
    let layout = match message_bytes {
        1296 | 1496 => RELEASE_2_3,
        768 => RELEASE_2_2,
        _ => return None,
    };
    let [kind, rail_count] = bytes(payload, 12)?;
    let message = ConnectionMessage {
        request: u32::from_le_bytes(bytes(payload, 0)?),
        server_rank: u32::from_le_bytes(bytes(payload, 4)?),
        client_rank: u32::from_le_bytes(bytes(payload, 8)?),
        kind,
        rail_count,
        layout,
        payload,
    };
    let plausible = kind <= TYPE_LAST
        && (1..=layout.rails).contains(&usize::from(rail_count))
        && message.server_rank < RANK_LIMIT
        && message.client_rank < RANK_LIMIT
        && message.server_rank != message.client_rank
        // Queue pair numbers have 24 bits; 0 and 1 are management queue pairs.
        && (0..usize::from(rail_count)).all(|rail| {
            bytes(payload, layout.qpns + 4 * rail).is_none_or(|qpn| (2..1 << 24).contains(&u32::from_le_bytes(qpn)))
        });
    plausible.then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::noise;
    use alloc::vec::Vec;

    /// Constructed from the layout: two rails, queue pairs 0x4a01 and 0x4a02, LIDs 17 and 18.
    fn message(layout: RailLayout, length_bytes: usize, kind: u8) -> Vec<u8> {
        let mut payload = alloc::vec![0; length_bytes];
        let mut put = |at: usize, value: &[u8]| payload[at..at + value.len()].copy_from_slice(value);
        put(0, &99u32.to_le_bytes());
        put(4, &70u32.to_le_bytes());
        put(8, &3u32.to_le_bytes());
        put(12, &[kind, 2]);
        put(14, &[17, 0, 18, 0]);
        put(layout.gids + 16, &[0xFE; 16]);
        put(layout.qpns, &[1, 0x4A, 0, 0, 2, 0x4A, 0, 0]);
        payload
    }

    #[test]
    fn both_releases_name_ranks_and_queue_pairs() {
        // Offsets by arithmetic: 14 + 2N, rounded up to a multiple of 8, then 16N.
        for (layout, length_bytes) in [(RELEASE_2_3, 1296), (RELEASE_2_3, 1496), (RELEASE_2_2, 768)] {
            assert_eq!(layout.gids, (14 + 2 * layout.rails).next_multiple_of(8));
            assert_eq!(layout.qpns, layout.gids + 16 * layout.rails);
            let payload = message(layout, length_bytes, 0);
            let found = datagram(&payload, length_bytes as u32).unwrap();
            assert_eq!((found.request, found.sender_rank(), found.receiver_rank()), (99, 3, 70));
            let rails: Vec<Rail> = found.rails().collect();
            assert_eq!(rails[0], Rail { lid: Lid(17), gid: Some([0; 16]), qpn: Some(Qpn::new(0x4A01)) });
            assert_eq!(rails[1], Rail { lid: Lid(18), gid: Some([0xFE; 16]), qpn: Some(Qpn::new(0x4A02)) });
            assert_eq!(rails.len(), 2);
        }
        let reply = message(RELEASE_2_3, 1296, 1);
        let reply = datagram(&reply, 1296).unwrap();
        assert_eq!((reply.sender_rank(), reply.receiver_rank()), (70, 3));
    }

    #[test]
    fn truncated_messages_yield_the_captured_part() {
        let payload = message(RELEASE_2_3, 1296, 0);
        for cut in 0..payload.len() {
            let found = datagram(&payload[..cut], 1296);
            assert_eq!(found.is_some(), cut >= 14, "{cut}");
            let rails: Vec<Rail> = found.iter().flat_map(ConnectionMessage::rails).collect();
            assert_eq!(rails.len(), cut.saturating_sub(14).div_euclid(2).min(2), "{cut}");
            assert!(rails.iter().all(|rail| rail.qpn.is_some() == (cut >= 740) || cut < 744), "{cut}");
        }
    }

    #[test]
    fn implausible_messages_are_not_taken() {
        let good = message(RELEASE_2_3, 1296, 0);
        assert!(datagram(&good, 1296).is_some());
        assert!(datagram(&good, 1295).is_none());
        for (at, byte) in [(12, 6), (13, 0), (13, 41), (7, 1), (11, 1), (739, 1)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(datagram(&bad, 1296).is_none(), "{at}");
        }
        assert!(datagram(&[0; 1296], 1296).is_none());
    }

    #[test]
    fn noise_is_not_taken() {
        // The weakest case: the capture ends before the queue pairs.
        let forced = [(7, 0), (11, 0)];
        let rate = noise::rate(96, &forced, 2f64.powi(-16), 400_000, |payload, _| datagram(payload, 1296).is_some());
        assert!(rate < 1e-8, "{rate}");
    }
}
