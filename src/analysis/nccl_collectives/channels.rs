//! The distribution of NCCL's data between two ranks over its channels and over ports (rails).
//!
//! In: messages whose receives were captured, and the connections of a profile. Out: a row per
//! connection of NCCL, which is one direction of one channel, and per pair of ports, with its bytes
//! relative to the mean of the rows of these ranks. A channel has no number on the wire: channels
//! are numbered by the address of their receives in the sender's memory. Sends and receives
//! (`ncclSend`) use connections of their own, which are counted like channels.

use super::NcclTransfer;
use super::connections::{NcclConnection, communicators};
use crate::analysis::endpoint_label::{EndpointLabels, GroupBy, Label};
use crate::model::profile::ConnectionRow;
use crate::model::{ConnectionClass, Profile, TrafficKind};
use std::collections::BTreeMap;

/// Bytes of the longest WRITE of clear-to-send elements: 8 of 64 bytes.
const CTS_BYTES_LIMIT: u64 = 512;

/// A job, and two of its ranks: sender and receiver.
pub(super) type Ranks = (u32, u32, u32);

/// Kind of a row of [`NcclPathShare`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NcclDataPath {
    /// A connection of NCCL: one direction of one channel.
    Channel {
        /// Number of the channel among those of these ranks, from 1.
        number: u64,
        /// Messages.
        messages: u64,
        /// Length of the longest message, in bytes: a slice of a chunk.
        message_bytes: u64,
        /// Length of a chunk, in bytes: its slices together; `None` if the addresses of the buffers do
        /// not show their number.
        chunk_bytes: Option<u64>,
    },
    /// Messages whose channel is not known, because their receive was not captured, or posted through
    /// another port than that of their first share.
    NoChannel {
        /// Messages.
        messages: u64,
    },
    /// A pair of ports.
    Rail {
        /// Ports of the sender and the receiver.
        ports: (Label, Label),
        /// Directed queue pair connections that carry data.
        queue_pairs: u64,
    },
}

/// The part of the data between two ranks that one channel or rail carries.
#[derive(Clone, Debug, PartialEq)]
pub struct NcclPathShare {
    /// Number of the job.
    pub job: u32,
    /// Rank of the sender.
    pub src: u32,
    /// Rank of the receiver.
    pub dst: u32,
    /// The channel or rail.
    pub path: NcclDataPath,
    /// Bytes of the data; of a rail with the lengths of messages that are received together, 4 bytes
    /// each.
    pub bytes: u64,
    /// Bytes in relation to the mean of all channels, or of all rails, of these ranks; 1 if all
    /// carry the same. `None` for channels if the channel of some messages is not known.
    pub of_mean: Option<f64>,
}

/// Messages of known length without a channel, and their bytes, by ranks.
pub(super) type UnassignedSums = BTreeMap<Ranks, (u64, u64)>;

/// The channels of these messages and the messages without one, and then the rails of the profile,
/// by ranks.
pub(super) fn shares(
    transfers: Vec<NcclTransfer>,
    unassigned: UnassignedSums,
    profile: &Profile,
) -> Vec<NcclPathShare> {
    let mut channels: BTreeMap<Ranks, Vec<(NcclDataPath, u64)>> = BTreeMap::new();
    let mut connections: Vec<NcclConnection> =
        communicators(transfers).into_iter().flat_map(|own| own.connections).collect();
    connections.sort_by_key(|own| (own.job, own.src, own.dst, ring(own)));
    for connection in &connections {
        let of_ranks = channels.entry((connection.job, connection.src, connection.dst)).or_default();
        let bytes = connection.transfers.iter().map(|transfer| transfer.bytes).sum();
        of_ranks.push((channel(connection, of_ranks.len() as u64 + 1), bytes));
    }
    for (ranks, (messages, bytes)) in unassigned {
        channels.entry(ranks).or_default().push((NcclDataPath::NoChannel { messages }, bytes));
    }
    let mut shares: Vec<NcclPathShare> = Vec::new();
    for parts in [channels, rails(profile)] {
        shares.extend(parts.into_iter().flat_map(|(ranks, own)| relative(ranks, own)));
    }
    shares.sort_by_key(|share| (share.job, share.src, share.dst));
    shares
}

fn ring(connection: &NcclConnection) -> Option<u64> {
    connection.transfers.first().map(|transfer| transfer.receive.ring)
}

fn channel(connection: &NcclConnection, number: u64) -> NcclDataPath {
    let longest = connection.transfers.iter().max_by_key(|transfer| transfer.bytes);
    let message_bytes = longest.map_or(0, |longest| longest.bytes);
    let slices = longest.and_then(|longest| *connection.slices.get(&longest.receive.buffer_bytes)?);
    NcclDataPath::Channel {
        number,
        messages: connection.transfers.len() as u64,
        message_bytes,
        chunk_bytes: slices.map(|slices| message_bytes.saturating_mul(slices.into())),
    }
}

/// The data by pair of ports.
fn rails(profile: &Profile) -> BTreeMap<Ranks, Vec<(NcclDataPath, u64)>> {
    let ranks = EndpointLabels::new(profile, GroupBy::Rank);
    let ports = EndpointLabels::new(profile, GroupBy::Endpoint);
    let mut rails: BTreeMap<(Ranks, (Label, Label)), (u64, u64)> = BTreeMap::new();
    for row in profile.connections.iter().filter(|row| carries_data(row)) {
        let (Some(src), Some(dst)) = (ranks.sender(row).process(), ranks.receiver(row).process()) else { continue };
        let of_ranks = (src.job, src.rank, dst.rank);
        let sums = rails.entry((of_ranks, (ports.sender(row), ports.receiver(row)))).or_default();
        *sums = (sums.0 + 1, sums.1.saturating_add(row.traffic.payload_bytes));
    }
    let mut by_ranks: BTreeMap<Ranks, Vec<(NcclDataPath, u64)>> = BTreeMap::new();
    for ((of_ranks, ports), (queue_pairs, bytes)) in rails {
        by_ranks.entry(of_ranks).or_default().push((NcclDataPath::Rail { ports, queue_pairs }, bytes));
    }
    by_ranks
}

/// False for queue pairs with clear-to-send elements, which flow against the data.
fn carries_data(row: &ConnectionRow) -> bool {
    let traffic = &row.traffic;
    let is_longer = traffic.payload_bytes > traffic.messages.saturating_mul(CTS_BYTES_LIMIT);
    row.class == ConnectionClass::Nccl && row.kind == TrafficKind::Data && (traffic.p2p_messages > 0 || is_longer)
}

fn relative((job, src, dst): Ranks, parts: Vec<(NcclDataPath, u64)>) -> impl Iterator<Item = NcclPathShare> {
    let all: u128 = parts.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
    let mean = all as f64 / parts.len().max(1) as f64;
    let is_whole = !parts.iter().any(|(path, _)| matches!(path, NcclDataPath::NoChannel { .. }));
    parts.into_iter().map(move |(path, bytes)| {
        let of_mean = is_whole.then_some(if mean > 0.0 { bytes as f64 / mean } else { 1.0 });
        NcclPathShare { job, src, dst, path, bytes, of_mean }
    })
}
