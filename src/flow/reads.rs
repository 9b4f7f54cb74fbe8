//! Matches READ responses to their READ requests and finds when all data of a READ have arrived.
//!
//! Responses name neither the request nor its connection; their PSNs count up from the PSN of the
//! request.

use super::assembly::join_times;
use crate::model::{HashMap, PacketRecord, PacketRef, RawMessage};
use ibscope_parsers::{Endpoint, Psn};
use std::collections::VecDeque;

/// Smallest path MTU.
pub(super) const SMALLEST_MTU_BYTES: u64 = 256;

/// Sender and receiver of data.
pub(super) type EndpointPair = (Endpoint, Endpoint);

/// A READ whose responses are not complete yet.
#[derive(Debug)]
pub(super) struct RdmaRead {
    /// Connection of the request.
    connection: u32,
    first: Psn,
    /// Received data in bytes.
    pub(super) data_bytes: u64,
    /// The MPI message that it fetches.
    pub(super) message: Option<u64>,
    /// Connection of the responses, once one was observed.
    responder: Option<u32>,
    /// Times of the first and the last response.
    pub(super) data_ns: (i64, i64),
    /// The READ as a message, with the length that the request asks for.
    pub(super) request: RawMessage,
}

impl RdmaRead {
    /// A READ that this request packet starts.
    pub(super) fn new(connection: u32, packet: PacketRef<'_>, message: Option<u64>, seen: RawMessage) -> Self {
        let data_ns = (PacketRecord::NO_TIME, PacketRecord::NO_TIME);
        Self { connection, first: packet.psn(), data_bytes: 0, message, responder: None, data_ns, request: seen }
    }

    fn length_bytes(&self) -> u64 {
        self.request.length_bytes.unwrap_or(0)
    }
}

/// READs between some pairs of endpoints, in the order of their requests.
#[derive(Debug, Default)]
pub(super) struct RdmaReads {
    open: HashMap<EndpointPair, VecDeque<RdmaRead>>,
    max_per_pair: usize,
}

impl RdmaReads {
    /// No READs yet; at most `most_of_pair` may be open per pair of endpoints.
    pub(super) fn new(most_of_pair: usize) -> Self {
        Self { open: HashMap::default(), max_per_pair: most_of_pair }
    }

    /// True while a READ is open whose responses go from the first endpoint to the second.
    pub(super) fn awaits(&self, pair: EndpointPair) -> bool {
        !self.open.is_empty() && self.open.get(&pair).is_some_and(|reads| !reads.is_empty())
    }

    /// Adds a READ whose responses go from the first endpoint to the second. Returns the oldest one
    /// if there are too many.
    pub(super) fn add(&mut self, pair: EndpointPair, read: RdmaRead) -> Option<RdmaRead> {
        let reads = self.open.entry(pair).or_default();
        reads.push_back(read);
        if reads.len() > self.max_per_pair { reads.pop_front() } else { None }
    }

    /// Takes the first observation of a response. `likely` is the connection whose requests its
    /// connection responds to. Returns the READ that the response completes.
    pub(super) fn response(&mut self, connection: u32, packet: PacketRef<'_>, likely: Option<u32>) -> Option<RdmaRead> {
        let reads = self.open.get_mut(&packet.pair())?;
        let mine = |read: &RdmaRead| read.responder.is_none_or(|responder| responder == connection);
        // The response belongs to the READ that started last at or before its PSN.
        let distance = |read: &RdmaRead| {
            let since = packet.psn().since(read.first);
            let most = read.length_bytes().div_ceil(SMALLEST_MTU_BYTES).max(1);
            u64::try_from(since).ok().filter(|&since| since < most)
        };
        let candidates = reads.iter().enumerate().filter(|(_, read)| mine(read));
        let candidates = candidates.filter_map(|(at, read)| {
            let is_first = read.responder.is_none();
            Some((is_first && likely != Some(read.connection), distance(read)?, at))
        });
        let (_, _, at) = candidates.min()?;
        let read = &mut reads[at];
        read.responder = Some(connection);
        read.data_bytes += u64::from(packet.payload_bytes);
        read.request.packets += 1;
        read.request.wire_bytes += u64::from(packet.wire_bytes);
        read.request.times_ns = join_times(read.request.times_ns, (packet.time_ns, packet.time_ns));
        read.data_ns = join_times(read.data_ns, (packet.time_ns, packet.time_ns));
        if read.data_bytes < read.length_bytes() {
            return None;
        }
        read.request.complete = true;
        reads.remove(at)
    }

    /// Takes all READs that are still open.
    pub(super) fn take(&mut self) -> impl Iterator<Item = RdmaRead> + use<> {
        let mut reads: Vec<(EndpointPair, VecDeque<RdmaRead>)> = self.open.drain().collect();
        reads.sort_by_key(|(pair, _)| *pair);
        reads.into_iter().flat_map(|(_, reads)| reads)
    }
}
