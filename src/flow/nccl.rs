//! NCCL over verbs: the receiver invites data by "clear to send" elements, the sender writes them and ends with immediate data.
//!
//! ```text
//! B -> A  WRITE            elements {address, size}, and the rank of A       index 1, 2, 3 ...
//! A -> B  WRITE to one of the addresses, once or more
//! A -> B  WRITE with immediate data: to the address, or empty, or with the sizes of several elements
//! ```
//! No packet of the data names anybody, so the invitation gives the sender's rank and the WRITEs give the length. Written for
//! one queue pair per NCCL connection, the default; with more, each counts its share as a message.

use super::assembly::{Transport, join_times};
use foldhash::fast::FixedState;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::{Envelope, Identity, Length, Matching, nccl};
use std::collections::{HashMap, VecDeque};

/// Invitations that may be open between two endpoints in one direction; a connection has 32 (`MAX_REQUESTS`) at most.
const MAX_OPEN: usize = 1 << 8;
/// Invitations that may be open in all.
const MAX_OPEN_IN_ALL: usize = 1 << 14;
/// How far an invitation may be from the latest one of its connection: some may be lost before the capture and sent again.
const WINDOW: u64 = 64;

/// Invitations between some pairs of endpoints.
#[derive(Debug, Default)]
pub(super) struct Nccl {
    /// Highest index of an invitation, by number of the connection that carried it.
    indices: HashMap<u32, u64, FixedState>,
    /// Invitations that are open.
    count: usize,
    /// Those that were given up because too many were.
    pub(super) evicted: u64,
    /// By sender and receiver of the data.
    open: HashMap<(Endpoint, Endpoint), VecDeque<Invitation>, FixedState>,
}

#[derive(Debug)]
struct Invitation {
    rank: Option<u32>,
    elements: Box<[Element]>,
}

#[derive(Debug)]
struct Element {
    address: u64,
    size_bytes: u64,
    written: Option<Written>,
}

/// What was written to one element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// Number of the connection.
    pub(super) connection: u32,
    /// PSN of the first packet.
    pub(super) psn: u32,
    /// Length in bytes.
    pub(super) length_bytes: u64,
    /// LRH to VCRC, or whole Ethernet frames, of the packets.
    pub(super) wire_bytes: u64,
    /// Packets.
    pub(super) packets: u64,
    /// Time of the first and last packet.
    pub(super) times_ns: (i64, i64),
    /// All packets were seen.
    pub(super) complete: bool,
}

/// What an RDMA WRITE is to NCCL.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Nothing that was invited.
    Other,
    /// Data, which a later WRITE will end.
    Data,
    /// The end of these messages. The envelope is missing where the invitation named no rank.
    Ends(Vec<(Option<Envelope>, Written)>),
}

impl Nccl {
    /// An invitation on a connection, from the receiver of the data `src` to its sender `dst`. False where its number is far from those
    /// before it: then it is none, whatever it looks like.
    pub(super) fn invitation(
        &mut self,
        (src, dst): (Endpoint, Endpoint),
        connection: u32,
        payload: &[u8],
        dma_bytes: u32,
    ) -> bool {
        let Some(cts) = nccl::cts(payload, dma_bytes) else { return false };
        let highest = self.indices.entry(connection).or_insert(cts.index);
        if cts.index.abs_diff(*highest) > WINDOW {
            return false;
        }
        *highest = (*highest).max(cts.index);
        let element = |element: nccl::Element| Element {
            address: element.address,
            size_bytes: element.size_bytes,
            written: None,
        };
        let open = self.open.entry((dst, src)).or_default();
        open.push_back(Invitation { rank: cts.rank, elements: cts.elements().map(element).collect() });
        self.count += 1;
        if open.len() > MAX_OPEN || self.count > MAX_OPEN_IN_ALL {
            open.pop_front();
            self.count -= 1;
            self.evicted += 1;
        }
        true
    }

    /// True while an invitation is open for this direction.
    pub(super) fn awaits(&self, pair: (Endpoint, Endpoint)) -> bool {
        !self.open.is_empty() && self.open.get(&pair).is_some_and(|open| !open.is_empty())
    }

    /// A WRITE of the sender of the data.
    pub(super) fn write(&mut self, pair: (Endpoint, Endpoint), connection: u32, message: &Transport) -> Verdict {
        let Some(open) = self.open.get_mut(&pair) else { return Verdict::Other };
        let Some((address, length_bytes)) = message.target else { return Verdict::Other };
        let seen = Written {
            connection,
            psn: message.psn,
            length_bytes: u64::from(length_bytes),
            wire_bytes: message.wire_bytes,
            packets: message.packets,
            times_ns: message.times_ns,
            complete: message.complete,
        };
        let mut hit = None;
        'search: for (index, invitation) in open.iter_mut().enumerate() {
            for element in &mut invitation.elements {
                if (element.address..element.address.saturating_add(element.size_bytes.max(1))).contains(&address) {
                    element.written = Some(element.written.map_or(seen, |before| before.and(seen)));
                    hit = Some(index);
                    break 'search;
                }
            }
        }
        if !message.immediate {
            return if hit.is_some() { Verdict::Data } else { Verdict::Other };
        }
        let ended = hit.or_else(|| {
            let mine = |element: &Element| element.written.is_some_and(|written| written.connection == connection);
            let index = open.iter().position(|invitation| invitation.elements.iter().any(mine))?;
            // Not to an address of the invitation: the end of what was written there. It carries no data, or the sizes.
            let last = open[index].elements.iter_mut().rev().find_map(|element| element.written.as_mut())?;
            *last = last.and(Written { length_bytes: 0, ..seen });
            Some(index)
        });
        let Some(invitation) = ended.and_then(|index| open.remove(index)) else { return Verdict::Other };
        self.count -= 1;
        let envelope = |written: &Written| {
            let rank = invitation.rank?;
            let identity = Identity { rank, context: 0, tag: 0, world: true, collective: false };
            Some(Envelope { matching: Matching::Named(identity), length: Length::Stated(written.length_bytes) })
        };
        let written = invitation.elements.iter().filter_map(|element| element.written);
        Verdict::Ends(written.map(|written| (envelope(&written), written)).collect())
    }
}

impl Written {
    fn and(self, later: Self) -> Self {
        Self {
            length_bytes: self.length_bytes + later.length_bytes,
            wire_bytes: self.wire_bytes + later.wire_bytes,
            packets: self.packets + later.packets,
            times_ns: join_times(self.times_ns, later.times_ns),
            complete: self.complete && later.complete,
            ..self
        }
    }
}
