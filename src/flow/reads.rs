//! READ requests and their responses: which request a response belongs to, and when all of its data have come.
//!
//! Responses name neither the request nor its connection; they are numbered from the request's PSN on.

use super::assembly::join_times;
use crate::model::{HashMap, Packet, PacketRecord, RawMessage};
use ibscope_parsers::{Endpoint, Psn};
use std::collections::VecDeque;

/// Smallest path MTU there is.
const SMALLEST_MTU_BYTES: u64 = 256;

/// Sender and receiver of data.
pub(super) type Pair = (Endpoint, Endpoint);

/// A READ whose responses are on their way.
#[derive(Debug)]
pub(super) struct Read {
    /// Connection of the request.
    connection: u32,
    first: Psn,
    /// Data that have come.
    pub(super) data_bytes: u64,
    /// The MPI message whose data it fetches.
    pub(super) message: Option<u64>,
    /// Connection of the responses, from the first of them on.
    answered_by: Option<u32>,
    /// Time of the first and last of the responses.
    pub(super) data_ns: (i64, i64),
    /// What was seen of it, with the length that it asks for.
    pub(super) seen: RawMessage,
}

impl Read {
    /// One that is asked for by this packet.
    pub(super) fn new(connection: u32, packet: Packet<'_>, message: Option<u64>, seen: RawMessage) -> Self {
        let data_ns = (PacketRecord::NO_TIME, PacketRecord::NO_TIME);
        Self { connection, first: packet.psn(), data_bytes: 0, message, answered_by: None, data_ns, seen }
    }

    fn length_bytes(&self) -> u64 {
        self.seen.length_bytes.unwrap_or(0)
    }
}

/// READs between some pairs of endpoints, in the order of their requests.
#[derive(Debug, Default)]
pub(super) struct Reads {
    open: HashMap<Pair, VecDeque<Read>>,
    most_of_pair: usize,
}

impl Reads {
    /// None yet. So many of a pair are open at most.
    pub(super) fn new(most_of_pair: usize) -> Self {
        Self { open: HashMap::default(), most_of_pair }
    }

    /// True while there are some whose responses go from the one to the other.
    pub(super) fn awaits(&self, pair: Pair) -> bool {
        !self.open.is_empty() && self.open.get(&pair).is_some_and(|reads| !reads.is_empty())
    }

    /// Adds one whose responses go from the one to the other. Gives the oldest of these where they are too many.
    pub(super) fn add(&mut self, pair: Pair, read: Read) -> Option<Read> {
        let reads = self.open.entry(pair).or_default();
        reads.push_back(read);
        if reads.len() > self.most_of_pair { reads.pop_front() } else { None }
    }

    /// A response that has not been seen before. `likely` is the connection whose requests its connection answers. Gives the READ that is complete with it.
    pub(super) fn response(&mut self, connection: u32, packet: Packet<'_>, likely: Option<u32>) -> Option<Read> {
        let reads = self.open.get_mut(&packet.pair())?;
        let mine = |read: &Read| read.answered_by.is_none_or(|answered_by| answered_by == connection);
        // The request that began last before this number is the one.
        let distance = |read: &Read| {
            let since = packet.psn().since(read.first);
            let most = read.length_bytes().div_ceil(SMALLEST_MTU_BYTES).max(1);
            u64::try_from(since).ok().filter(|&since| since < most)
        };
        let candidates = reads.iter().enumerate().filter(|(_, read)| mine(read));
        let candidates = candidates.filter_map(|(at, read)| {
            let is_first = read.answered_by.is_none();
            Some((is_first && likely != Some(read.connection), distance(read)?, at))
        });
        let (_, _, at) = candidates.min()?;
        let read = &mut reads[at];
        read.answered_by = Some(connection);
        read.data_bytes += u64::from(packet.payload_bytes);
        read.seen.packets += 1;
        read.seen.wire_bytes += u64::from(packet.wire_bytes);
        read.seen.times_ns = join_times(read.seen.times_ns, (packet.time_ns, packet.time_ns));
        read.data_ns = join_times(read.data_ns, (packet.time_ns, packet.time_ns));
        if read.data_bytes < read.length_bytes() {
            return None;
        }
        read.seen.complete = true;
        reads.remove(at)
    }

    /// Takes all that are still open.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Read> + use<> {
        let mut reads: Vec<(Pair, VecDeque<Read>)> = self.open.drain().collect();
        reads.sort_by_key(|(pair, _)| *pair);
        reads.into_iter().flat_map(|(_, reads)| reads)
    }
}
