//! MVAPICH2's on-demand connection messages: datagrams with `Q_Key` 0 that name both world ranks and all queue pairs.
//!
//! Host byte order (`common/src/cm/cm.c`; N rails are compiled in, 40 in 2.3 and 16 in 2.2):
//!
//! ```text
//! P+0 request u32  P+4 server's rank u32  P+8 client's rank u32  P+12 type u8  P+13 rails u8  P+14 LIDs u16[N]
//! then GIDs [16][N] from the next multiple of 8 on 2.3 (P+96), P+48 on 2.2; then queue pairs u32[N]
//! ```
//! A request carries the addresses of the client, a reply those of the server. Jobs of up to 64 ranks connect through the
//! process manager instead, invisibly.

use super::bytes;
use crate::{Lid, Qpn};

/// `Q_Key` of the datagrams.
pub const Q_KEY: u32 = 0;
const RANK_LIMIT: u32 = 1 << 20;
const TYPE_LAST: u8 = 5;
const LIDS: usize = 14;

/// Sizes that depend on the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    rails: usize,
    gids: usize,
    qpns: usize,
}

const RELEASE_2_3: Layout = Layout { rails: 40, gids: 96, qpns: 736 };
const RELEASE_2_2: Layout = Layout { rails: 16, gids: 48, qpns: 304 };

/// A connection message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionMessage<'a> {
    /// The client's number of the request, which the reply repeats.
    pub request: u32,
    /// World rank of the process that is connected to.
    pub server_rank: u32,
    /// World rank of the process that connects.
    pub client_rank: u32,
    /// Type: 0 request, 1 reply, 2 and 3 the same for connections without MPI's state, 4 and 5 for XRC.
    pub kind: u8,
    /// Number of rails.
    pub rail_count: u8,
    layout: Layout,
    payload: &'a [u8],
}

/// One queue pair of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rail {
    /// LID of the port; 0 on `RoCE`.
    pub lid: Lid,
    /// GID of the port, where it was captured.
    pub gid: Option<[u8; 16]>,
    /// Queue pair, where it was captured.
    pub qpn: Option<Qpn>,
}

impl ConnectionMessage<'_> {
    /// World rank of the process that sent the message and that the rails belong to.
    #[must_use]
    pub const fn sender_rank(&self) -> u32 {
        if self.kind & 1 == 0 { self.client_rank } else { self.server_rank }
    }

    /// World rank of the process that receives the message.
    #[must_use]
    pub const fn receiver_rank(&self) -> u32 {
        if self.kind & 1 == 0 { self.server_rank } else { self.client_rank }
    }

    /// The sender's rails whose LIDs were captured.
    pub fn rails(&self) -> impl Iterator<Item = Rail> + '_ {
        (0..usize::from(self.rail_count)).map_while(|rail| {
            let lid = Lid(u16::from_le_bytes(bytes(self.payload, LIDS + 2 * rail)?));
            let gid = bytes(self.payload, self.layout.gids + 16 * rail);
            let qpn = bytes(self.payload, self.layout.qpns + 4 * rail).map(|qpn| Qpn::new(u32::from_le_bytes(qpn)));
            Some(Rail { lid, gid, qpn })
        })
    }
}

/// A datagram with [`Q_KEY`] and `message_bytes` of payload on the wire, of which `payload` was captured.
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
        // Queue pair numbers have 24 bits; 0 and 1 are the fabric's own.
        && (0..usize::from(rail_count)).all(|rail| {
            bytes(payload, layout.qpns + 4 * rail).is_none_or(|qpn| (2..1 << 24).contains(&u32::from_le_bytes(qpn)))
        });
    plausible.then_some(message)
}
