//! Connections of Open MPI's `openib` BTL by its own datagrams with `Q_Key` 0 (`btl_openib_connect_udcm.c`).
//!
//! ```text
//! 2.0 - 4.1:  P+0 type u8  P+8 context u64  P+16 sender's endpoint u64  P+24 receiver's endpoint u64
//!             P+32 job id u32  P+36 vpid u32  P+40 endpoint index i32 (big-endian)  P+44 port u8
//!             P+56 {queue pair u32, PSN u32}, both big-endian, for each receive queue (in CONNECT)
//! 1.8, 1.10:  no job id and vpid: P+32 endpoint index, P+36 port, P+48 queue pairs
//! ```
//! "vpid" is the sender's rank in `MPI_COMM_WORLD`. Both sides send CONNECT, each with its own queue pairs and the PSNs that it
//! will send first.

use super::bytes;
use crate::{Psn, Qpn};

/// `Q_Key` of the datagrams.
pub const Q_KEY: u32 = 0;
const RANK_LIMIT: u32 = 1 << 20;
/// More receive queues than any configuration has; the default is four.
const QUEUES_LIMIT: u32 = 16;

/// Type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// 100: the sender's queue pairs.
    Connect,
    /// 101: the connection works.
    Complete,
    /// 102: refused.
    Reject,
    /// 103 to 106: connections of XRC.
    Xrc,
    /// 107: a message has arrived; the context is that of the message.
    Ack,
}

/// Which releases lay a message out like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Open MPI 1.8 and 1.10.
    From1_8,
    /// Open MPI 2.0 to 4.1.
    From2_0,
}

impl Layout {
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

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udcm<'a> {
    /// Type.
    pub kind: Kind,
    /// Releases.
    pub layout: Layout,
    /// Names the message to its sender; an acknowledgement repeats it.
    pub context: u64,
    /// The sender's endpoint: a pointer.
    pub sender_endpoint: u64,
    /// The receiver's endpoint, 0 where the sender does not know it.
    pub receiver_endpoint: u64,
    /// Job of the sender, family in the upper 16 bits; from 2.0 on.
    pub job: Option<u32>,
    /// Rank of the sender in `MPI_COMM_WORLD`; from 2.0 on.
    pub world_rank: Option<u32>,
    /// What the peers put into the immediate data of SENDs to the sender; meaningful in [`Kind::Connect`].
    pub endpoint_index: u32,
    /// Port of the sender's device, from 1; meaningful in [`Kind::Connect`].
    pub port: u8,
    queue_count: u32,
    payload: &'a [u8],
}

/// One queue pair of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Queue pair.
    pub qpn: Qpn,
    /// PSN of the first packet that the **sender** of the message will send on it (CM messages name the peer's).
    pub psn: Psn,
}

impl Udcm<'_> {
    /// The sender's queue pairs that were captured, in the order of the receive queues: the same on both sides.
    pub fn queues(&self) -> impl Iterator<Item = Queue> + '_ {
        let entries = self.payload.get(self.layout.queues_at()..).unwrap_or_default();
        entries.chunks_exact(8).take(self.queue_count as usize).filter_map(|entry| {
            let qpn = Qpn::new(u32::from_be_bytes(bytes(entry, 0)?));
            Some(Queue { qpn, psn: Psn::new(u32::from_be_bytes(bytes(entry, 4)?)) })
        })
    }

    /// Queue pairs that the message has on the wire.
    #[must_use]
    pub const fn queue_count(&self) -> u32 {
        self.queue_count
    }
}

/// A datagram with [`Q_KEY`] and `message_bytes` of payload on the wire, of which `payload` was captured.
#[must_use]
pub fn datagram(payload: &[u8], message_bytes: u32) -> Option<Udcm<'_>> {
    // 2.0's first: its job id stands where 1.8 has the endpoint index, and is far larger than any index.
    [Layout::From2_0, Layout::From1_8].into_iter().find_map(|layout| message(layout, payload, message_bytes))
}

fn message(layout: Layout, payload: &[u8], message_bytes: u32) -> Option<Udcm<'_>> {
    let [kind, pad @ ..]: [u8; 8] = bytes(payload, 0)?;
    let kind = match kind {
        100 => Kind::Connect,
        101 => Kind::Complete,
        102 => Kind::Reject,
        103..=106 => Kind::Xrc,
        107 => Kind::Ack,
        _ => return None,
    };
    let queues_bytes = message_bytes.checked_sub(layout.queues_at() as u32)?;
    let queue_count = queues_bytes / 8;
    let length_fits = queues_bytes % 8 == 0
        && match kind {
            Kind::Connect => (1..=QUEUES_LIMIT).contains(&queue_count),
            Kind::Xrc => queue_count <= QUEUES_LIMIT,
            Kind::Complete | Kind::Reject | Kind::Ack => queue_count == 0,
        };
    // Acknowledgements are written over the message that they answer and leave their pad as it was.
    if !length_fits || kind != Kind::Ack && pad != [0; 7] {
        return None;
    }
    let (job, world_rank) = match layout {
        Layout::From1_8 => (None, None),
        Layout::From2_0 => {
            let job = u32::from_le_bytes(bytes(payload, 32)?);
            let world_rank = u32::from_le_bytes(bytes(payload, 36)?);
            if world_rank >= RANK_LIMIT || kind == Kind::Connect && job == 0 {
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
    let connect = kind != Kind::Connect
        || endpoint_index < RANK_LIMIT && port != 0 && message.sender_endpoint != 0 && entries_are_plausible(&message);
    (connect && pointers.iter().all(|&pointer| pointer < 1 << 48)).then_some(message)
}

/// Numbers of 24 bits in words of 32, and no queue pair of the fabric's own.
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

    /// Constructed from the layout: rank 6 of job [19476,1], index 11, queue pairs 0x101 ..., PSNs 0xABC001 ...
    fn connect(layout: Layout, queues: u32) -> Vec<u8> {
        let mut payload = Vec::from([100, 0, 0, 0, 0, 0, 0, 0]);
        for pointer in [0x5566_0000_1000u64, 0x5566_0000_2000, 0] {
            payload.extend(pointer.to_le_bytes());
        }
        if layout == Layout::From2_0 {
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
            for layout in [Layout::From2_0, Layout::From1_8] {
                let payload = connect(layout, queues);
                let found = datagram(&payload, payload.len() as u32).unwrap();
                assert_eq!((found.kind, found.layout), (Kind::Connect, layout), "{queues}");
                let new = layout == Layout::From2_0;
                assert_eq!((found.job, found.world_rank), (new.then_some(19476 << 16 | 1), new.then_some(6)));
                assert_eq!((found.endpoint_index, found.port, found.queue_count()), (11, 1, queues));
                let entries: Vec<Queue> = found.queues().collect();
                assert_eq!(entries.len(), queues as usize);
                assert_eq!(entries[0], Queue { qpn: Qpn::new(0x101), psn: Psn::new(0xAB_C001) });
            }
        }
        // 56 + 8 n: the default of four queues.
        assert_eq!(connect(Layout::From2_0, 4).len(), 88);
    }

    #[test]
    fn acknowledgements_may_keep_the_bytes_of_what_they_answer() {
        let mut payload = connect(Layout::From2_0, 0);
        payload[..8].copy_from_slice(&[107, 1, 2, 3, 4, 5, 6, 7]);
        let found = datagram(&payload, 56).unwrap();
        assert_eq!((found.kind, found.context, found.queues().count()), (Kind::Ack, 0x5566_0000_1000, 0));
        payload[0] = 101;
        assert!(datagram(&payload, 56).is_none());
    }

    #[test]
    fn implausible_messages_are_not_taken() {
        let good = connect(Layout::From2_0, 4);
        for (at, byte) in [(0, 99), (0, 108), (1, 1), (15, 1), (39, 1), (40, 1), (44, 0), (56, 1), (60, 1)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(datagram(&bad, 88).is_none(), "{at}");
        }
        assert!(datagram(&good, 87).is_none());
        assert!(datagram(&[0; 88], 88).is_none());
    }

    #[test]
    fn cut_messages_say_what_they_have() {
        for layout in [Layout::From2_0, Layout::From1_8] {
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
