//! Connection messages of Open MPI's `openib` BTL: datagrams with `Q_Key` 0
//! (`btl_openib_connect_udcm.c`).
//!
//! ```text
//! 2.0 - 4.1:  P+0 type u8  P+8 context u64  P+16 sender's endpoint u64  P+24 receiver's endpoint u64
//!             P+32 job id u32  P+36 vpid u32  P+40 endpoint index i32 (big-endian)  P+44 port u8
//!             P+56 {queue pair u32, PSN u32}, both big-endian, for each receive queue (in CONNECT)
//! 1.8, 1.10:  no job id and vpid: P+32 endpoint index, P+36 port, P+48 queue pairs
//! ```
//! "vpid" is the sender's rank in `MPI_COMM_WORLD`. Both sides send CONNECT, with their own queue
//! pairs and the PSNs of their first packets.

use super::bytes;
use crate::{Psn, Qpn};

/// `Q_Key` of the datagrams.
pub const Q_KEY: u32 = 0;
const RANK_LIMIT: u32 = 1 << 20;
/// Limit of the number of receive queues; the default configuration has four.
const QUEUES_LIMIT: u32 = 16;

/// Type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UdcmKind {
    /// 100: queue pairs of the sender.
    Connect,
    /// 101: the connection is established.
    Complete,
    /// 102: the connection is rejected.
    Reject,
    /// 103 to 106: connections with XRC.
    Xrc,
    /// 107: acknowledges a message; `context` is that of the message.
    Ack,
}

/// Layout of a message, by release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UdcmLayout {
    /// Open MPI 1.8 and 1.10.
    From1_8,
    /// Open MPI 2.0 to 4.1.
    From2_0,
}

impl UdcmLayout {
    const fn queues_at(self) -> usize {
        match self {
            Self::From1_8 => 48,
            Self::From2_0 => 56,
        }
    }

    const fn index_at(self) -> usize {
        match self {
            Self::From1_8 => 32,
            Self::From2_0 => 40,
        }
    }
}

/// A connection message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udcm<'a> {
    /// Type.
    pub kind: UdcmKind,
    /// Layout of the message.
    pub layout: UdcmLayout,
    /// The sender's id of the message, which an acknowledgement returns.
    pub context: u64,
    /// The sender's endpoint, a pointer.
    pub sender_endpoint: u64,
    /// The receiver's endpoint; 0 if the sender does not know it.
    pub receiver_endpoint: u64,
    /// Job id of the sender, with the family in the upper 16 bits; from 2.0 on.
    pub job: Option<u32>,
    /// Rank of the sender in `MPI_COMM_WORLD`; from 2.0 on.
    pub world_rank: Option<u32>,
    /// Index that peers put into the immediate data of SENDs to the sender; valid in
    /// [`UdcmKind::Connect`].
    pub endpoint_index: u32,
    /// Port of the sender's device, from 1; valid in [`UdcmKind::Connect`].
    pub port: u8,
    queue_count: u32,
    payload: &'a [u8],
}

/// A queue pair of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdcmQueuePair {
    /// Queue pair number.
    pub qpn: Qpn,
    /// PSN of the first packet that the **sender** of the message will send on the queue pair (CM
    /// messages name the peer's PSN).
    pub psn: Psn,
}

impl Udcm<'_> {
    /// The captured queue pairs of the sender, in the order of the receive queues, which is the
    /// same on both sides.
    pub fn queues(&self) -> impl Iterator<Item = UdcmQueuePair> + '_ {
        let entries = self.payload.get(self.layout.queues_at()..).unwrap_or_default();
        entries.chunks_exact(8).take(self.queue_count as usize).filter_map(|entry| {
            let qpn = Qpn::new(u32::from_be_bytes(bytes(entry, 0)?));
            Some(UdcmQueuePair { qpn, psn: Psn::new(u32::from_be_bytes(bytes(entry, 4)?)) })
        })
    }

    /// Number of queue pairs in the message on the wire.
    #[must_use]
    pub const fn queue_count(&self) -> u32 {
        self.queue_count
    }
}

/// Parses a datagram with [`Q_KEY`] and `message_bytes` of payload on the wire; `payload` is its
/// captured part.
#[must_use]
pub fn datagram(payload: &[u8], message_bytes: u32) -> Option<Udcm<'_>> {
    // Try 2.0 first: its job id, at the position of 1.8's endpoint index, is far larger than any
    // index.
    [UdcmLayout::From2_0, UdcmLayout::From1_8].into_iter().find_map(|layout| message(layout, payload, message_bytes))
}

fn message(layout: UdcmLayout, payload: &[u8], message_bytes: u32) -> Option<Udcm<'_>> {
    let [kind, pad @ ..]: [u8; 8] = bytes(payload, 0)?;
    let kind = match kind {
        100 => UdcmKind::Connect,
        101 => UdcmKind::Complete,
        102 => UdcmKind::Reject,
        103..=106 => UdcmKind::Xrc,
        107 => UdcmKind::Ack,
        _ => return None,
    };
    let queues_bytes = message_bytes.checked_sub(layout.queues_at() as u32)?;
    let queue_count = queues_bytes / 8;
    let length_fits = queues_bytes % 8 == 0
        && match kind {
            UdcmKind::Connect => (1..=QUEUES_LIMIT).contains(&queue_count),
            UdcmKind::Xrc => queue_count <= QUEUES_LIMIT,
            UdcmKind::Complete | UdcmKind::Reject | UdcmKind::Ack => queue_count == 0,
        };
    // An acknowledgement reuses the buffer of the message that it acknowledges, so its pad may hold
    // old bytes.
    if !length_fits || kind != UdcmKind::Ack && pad != [0; 7] {
        return None;
    }
    let (job, world_rank) = match layout {
        UdcmLayout::From1_8 => (None, None),
        UdcmLayout::From2_0 => {
            let job = u32::from_le_bytes(bytes(payload, 32)?);
            let world_rank = u32::from_le_bytes(bytes(payload, 36)?);
            if world_rank >= RANK_LIMIT || kind == UdcmKind::Connect && job == 0 {
                return None;
            }
            (Some(job), Some(world_rank))
        }
    };
    let endpoint_index = u32::from_be_bytes(bytes(payload, layout.index_at())?);
    let [port] = bytes(payload, layout.index_at() + 4)?;
    let message = Udcm {
        kind,
        layout,
        context: u64::from_le_bytes(bytes(payload, 8)?),
        sender_endpoint: u64::from_le_bytes(bytes(payload, 16)?),
        receiver_endpoint: u64::from_le_bytes(bytes(payload, 24)?),
        job,
        world_rank,
        endpoint_index,
        port,
        queue_count,
        payload,
    };
    let pointers = [message.context, message.sender_endpoint, message.receiver_endpoint];
    let connect = kind != UdcmKind::Connect
        || endpoint_index < RANK_LIMIT && port != 0 && message.sender_endpoint != 0 && entries_are_plausible(&message);
    (connect && pointers.iter().all(|&pointer| pointer < 1 << 48)).then_some(message)
}

/// True if all queue pair numbers and PSNs fit in 24 bits and no queue pair is a management one.
fn entries_are_plausible(message: &Udcm<'_>) -> bool {
    let entries = message.payload.get(message.layout.queues_at()..).unwrap_or_default();
    entries.chunks_exact(8).take(message.queue_count as usize).all(|entry| {
        let qpn = bytes(entry, 0).map(u32::from_be_bytes);
        let psn = bytes(entry, 4).map(u32::from_be_bytes);
        qpn.is_some_and(|qpn| (2..1 << 24).contains(&qpn)) && psn.is_some_and(|psn| psn < 1 << 24)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::noise;
    use alloc::vec::Vec;

    /// Constructed from the layout: rank 6 of job [19476,1], index 11, queue pairs 0x101 ..., PSNs
    /// 0xABC001 ...
    fn connect(layout: UdcmLayout, queues: u32) -> Vec<u8> {
        let mut payload = Vec::from([100, 0, 0, 0, 0, 0, 0, 0]);
        for pointer in [0x5566_0000_1000u64, 0x5566_0000_2000, 0] {
            payload.extend(pointer.to_le_bytes());
        }
        if layout == UdcmLayout::From2_0 {
            payload.extend((19476u32 << 16 | 1).to_le_bytes());
            payload.extend(6u32.to_le_bytes());
        }
        payload.extend(11u32.to_be_bytes());
        payload.push(1);
        payload.resize(layout.queues_at(), 0);
        for queue in 1..=queues {
            payload.extend((0x100 + queue).to_be_bytes());
            payload.extend((0xAB_C000 + queue).to_be_bytes());
        }
        payload
    }

    #[test]
    fn connect_of_both_layouts() {
        for queues in [1, 2, 4, 5, 16] {
            for layout in [UdcmLayout::From2_0, UdcmLayout::From1_8] {
                let payload = connect(layout, queues);
                let found = datagram(&payload, payload.len() as u32).unwrap();
                assert_eq!((found.kind, found.layout), (UdcmKind::Connect, layout), "{queues}");
                let new = layout == UdcmLayout::From2_0;
                assert_eq!((found.job, found.world_rank), (new.then_some(19476 << 16 | 1), new.then_some(6)));
                assert_eq!((found.endpoint_index, found.port, found.queue_count()), (11, 1, queues));
                let entries: Vec<UdcmQueuePair> = found.queues().collect();
                assert_eq!(entries.len(), queues as usize);
                assert_eq!(entries[0], UdcmQueuePair { qpn: Qpn::new(0x101), psn: Psn::new(0xAB_C001) });
            }
        }
        // 56 + 8 n with the default of four queues.
        assert_eq!(connect(UdcmLayout::From2_0, 4).len(), 88);
    }

    #[test]
    fn acknowledgements_may_keep_the_pad_of_the_original_message() {
        let mut payload = connect(UdcmLayout::From2_0, 0);
        payload[..8].copy_from_slice(&[107, 1, 2, 3, 4, 5, 6, 7]);
        let found = datagram(&payload, 56).unwrap();
        assert_eq!((found.kind, found.context, found.queues().count()), (UdcmKind::Ack, 0x5566_0000_1000, 0));
        payload[0] = 101;
        assert!(datagram(&payload, 56).is_none());
    }

    #[test]
    fn implausible_messages_are_not_taken() {
        let good = connect(UdcmLayout::From2_0, 4);
        for (at, byte) in [(0, 99), (0, 108), (1, 1), (15, 1), (39, 1), (40, 1), (44, 0), (56, 1), (60, 1)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(datagram(&bad, 88).is_none(), "{at}");
        }
        assert!(datagram(&good, 87).is_none());
        assert!(datagram(&[0; 88], 88).is_none());
    }

    #[test]
    fn truncated_messages_yield_the_captured_part() {
        for layout in [UdcmLayout::From2_0, UdcmLayout::From1_8] {
            let payload = connect(layout, 4);
            let header_bytes = layout.index_at() + 5;
            for cut in 0..payload.len() {
                let found = datagram(&payload[..cut], payload.len() as u32);
                assert_eq!(found.is_some(), cut >= header_bytes, "{layout:?} {cut}");
                let queues = found.map_or(0, |found| found.queues().count());
                assert_eq!(queues, cut.saturating_sub(layout.queues_at()) / 8, "{layout:?} {cut}");
            }
        }
    }

    #[test]
    fn noise_is_not_taken() {
        for (length_bytes, kind) in [(88, 100), (48, 107), (56, 107), (56, 102)] {
            let forced = [(0, kind), (14, 0), (15, 0)];
            let rate = noise::rate(88, &forced, 2f64.powi(-24), 200_000, |payload, _| {
                datagram(payload, length_bytes).is_some()
            });
            assert!(rate < 1e-9, "{rate}");
        }
    }
}
