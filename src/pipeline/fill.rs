//! The tables of the profile, from combined sums and the detected libraries.
//!
//! Invariant: an MPI number counts only if the connection's detected library made it.

use super::series::{self, SeriesPlan};
use crate::model::profile::{
    BinRetransmissions, CollectiveRow, ConnectionRow, HealthRow, LatencyBin, LatencyRow, RetransmissionSums, SizeRow,
    StreamEnvelope, StreamRow, TimelineRow, Traffic,
};
use crate::model::{
    BinClass, BinCongestion, BinSums, ConnectionClass, ConnectionKey, ConnectionTotals, Health, Histogram, Interval,
    MpiClass, MpiSums, Profile, QueuePair, Recorder, RequiredDetection, SampledConnection, SizeCategory, StreamSums,
    Streams, TimeBin, TimingKey, TrafficKind, VecMap,
};
use crate::ranks::{Detection, QueuePairPartners, ResolvedRanks};
use ibscope_parsers::mpi::{Identity, LibraryStack, MpiOperation, TagLayout};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::mem::take;

/// Connections that one thread fills in at a time. Results do not depend on the number.
const BLOCK: usize = 1 << 11;

/// A block joins its rows of senders when the unjoined rows exceed the joined ones by this number.
/// Results do not depend on the number.
const UNJOINED_ROWS: usize = 1 << 15;

/// Fills the tables of connections, bins, latencies, sizes, streams and collective operations.
/// Drops each connection after use: connections and tables are most of the memory of an analysis.
#[expect(clippy::vec_box, reason = "each connection is dropped after use")]
pub(super) fn fill(
    profile: &mut Profile,
    connections: Vec<Box<ConnectionTotals>>,
    identified: &ResolvedRanks,
    paired: &QueuePairPartners,
    max_rows: usize,
) -> SeriesPlan {
    let plan = SeriesPlan::new(profile, &connections, (identified, paired), max_rows);
    let first_ns = profile.bin_ns;
    profile.bin_ns = first_ns.saturating_mul(1 << plan.connections);
    profile.sender_bin_ns = plan.senders.map_or(0, |shift| first_ns.saturating_mul(1 << shift));
    // There may be a million of each, so reserve exactly.
    let count = |of: &dyn Fn(&ConnectionTotals) -> usize| connections.iter().map(|connection| of(connection)).sum();
    profile.latency_timeline.reserve_exact(count(&|connection| connection.time_bins.len()));
    profile.timeline.reserve_exact(plan.rows);
    profile.connections.reserve_exact(connections.len());
    (profile.streams, profile.storage) = (Some(Vec::new()), Some(Vec::new()));
    let Profile { bin_ns, sender_bin_ns, latency_bin_ns, .. } = *profile;
    let part = || Profile { bin_ns, sender_bin_ns, latency_bin_ns, ..Profile::default() };
    let fill_block = |(block, mut part): (Vec<(usize, Box<ConnectionTotals>)>, Profile)| {
        let mut joined_rows = 0;
        for own in block {
            add(&mut part, own, identified, paired, &plan);
            // The connections of a sender have the same rows.
            if part.senders.len() > 2 * joined_rows + UNJOINED_ROWS {
                series::join(&mut part.senders);
                joined_rows = part.senders.len();
            }
        }
        series::join(&mut part.senders);
        part
    };
    let mut connections = connections.into_iter().enumerate();
    let mut filled: Vec<Profile> = Vec::new();
    // Parts that were appended and whose tables are reused, so that they need no new memory.
    let mut empty: Vec<Profile> = Vec::new();
    loop {
        // Few blocks at a time, so that their tables exist twice for a short time only.
        let blocks = (0..rayon::current_num_threads()).map(|_| connections.by_ref().take(BLOCK).collect::<Vec<_>>());
        let blocks: Vec<Vec<_>> = blocks.take_while(|block| !block.is_empty()).collect();
        if blocks.is_empty() && filled.is_empty() {
            break;
        }
        empty.resize_with(blocks.len(), part);
        let blocks: Vec<_> = blocks.into_iter().zip(empty).collect();
        // One thread appends blocks while the others fill the next ones.
        (empty, filled) = rayon::join(
            || {
                filled.iter_mut().for_each(|part| append(profile, part));
                filled
            },
            || blocks.into_par_iter().map(fill_block).collect(),
        );
    }
    profile.timeline.par_sort_unstable_by_key(|row| (row.time_ns, row.connection));
    series::join(&mut profile.senders);
    let places = |row: &LatencyBin| (row.time_ns, row.latency, row.bucket);
    profile.latency_timeline.par_sort_unstable_by_key(places);
    // Files of a rotated capture share the bin in which one file ends and the next one starts.
    profile.latency_timeline.dedup_by(|row, kept| {
        let is_same = places(row) == places(kept);
        if is_same {
            kept.count = kept.count.saturating_add(row.count);
        }
        is_same
    });
    plan
}

/// Moves the tables of the next connections to the end of the profile's.
fn append(profile: &mut Profile, part: &mut Profile) {
    let latencies = profile.latencies.len() as u32;
    let renumbered = part.latency_timeline.drain(..).map(|row| LatencyBin { latency: latencies + row.latency, ..row });
    profile.latency_timeline.extend(renumbered);
    profile.connections.append(&mut part.connections);
    profile.timeline.append(&mut part.timeline);
    profile.senders.append(&mut part.senders);
    profile.collectives.append(&mut part.collectives);
    profile.latencies.append(take(&mut part.latencies));
    profile.sizes.append(take(&mut part.sizes));
    profile.health.append(take(&mut part.health));
    profile.streams.get_or_insert_default().extend(part.streams.iter_mut().flat_map(|rows| rows.drain(..)));
    profile.storage.get_or_insert_default().extend(part.storage.iter_mut().flat_map(|rows| rows.drain(..)));
}

/// Adds the rows of a connection to the tables.
fn add(
    profile: &mut Profile,
    (index, connection): (usize, Box<ConnectionTotals>),
    identified: &ResolvedRanks,
    paired: &QueuePairPartners,
    plan: &SeriesPlan,
) {
    let detection = &identified.detection;
    let key = &connection.key;
    let is_at_both_ports = connection.is_at_both_ports();
    let mpi_sums = connection.mpi.map(|sums| *sums).unwrap_or_default();
    let receiver = QueuePair { endpoint: key.dst, qpn: key.dest_qp };
    let sender = if key.is_datagram() {
        Some((key.src_qp, "deth"))
    } else {
        paired.partner(receiver).map(|(end, evidence)| (end.qpn, evidence.name()))
    };
    let mut traffic = connection.traffic;
    traffic += mpi_columns(&mut mpi_sums.sums.iter().map(|(class, sums)| (*class, *sums)), detection, key);
    profile.connections.push(ConnectionRow {
        src: key.src,
        dst: key.dst,
        kind: key.kind,
        service: key.service,
        dest_qp: key.dest_qp,
        src_qp: sender.map(|(qpn, _)| qpn),
        src_qp_evidence: sender.map(|(_, evidence)| evidence.into()),
        first_time_ns: connection.times_ns.0,
        last_time_ns: connection.times_ns.1,
        traffic,
        retransmissions: connection.retransmissions,
        stack: detection.stack_name(key),
        class: identified.classes.get(index).copied().unwrap_or_default(),
        job: identified.job_of.get(index).copied().flatten(),
        one_sided: identified.one_sided.get(index).and_then(|flag| flag.then_some(connection.rdma)),
        coverage: identified.coverage.get(index).copied().unwrap_or_default(),
        sampled: identified.sampling.sampling.map(|sampling| {
            Box::new(SampledConnection {
                sums: connection.sampled,
                weight: identified.sampling.weights.get(index).copied().flatten(),
                quality: sampling.quality(),
            })
        }),
        paths: connection.paths,
        is_at_both_ports: Some(is_at_both_ports),
    });
    let class = identified.classes.get(index).copied().unwrap_or_default();
    // Other messages may look like commands: the class has the evidence of the whole connection.
    let storage = connection.storage.filter(|sums| ConnectionClass::from(sums.protocol) == class);
    profile.storage.get_or_insert_default().extend(storage.iter().flat_map(|sums| sums.rows(index as u32)));
    let health = connection.health.whole();
    let healthy = health == Health::default() && connection.retransmissions == RetransmissionSums::default();
    if key.kind == TrafficKind::Data && !healthy {
        profile.health.push(&HealthRow { connection: index as u32, health });
    }
    let operations = by_operation(&mut mpi_sums.sums.iter().map(|(class, sums)| (*class, *sums)), detection, key);
    for (operation, sums) in operations.iter().filter(|(operation, _)| **operation != MpiOperation::PointToPoint) {
        let MpiSums { messages, mpi_bytes } = *sums;
        let operation = operation.name().to_owned();
        profile.collectives.push(CollectiveRow { connection: index as u32, operation, messages, mpi_bytes });
    }
    profile.streams.get_or_insert_default().extend(streams(
        index as u32,
        &mpi_sums.streams,
        &operations,
        detection.stack_and_layout(key),
    ));
    let mut timings = timings(connection.latencies, detection.stack_and_layout(key));
    timings.retain(|timing| match timing.interval {
        Interval::StorageCommand => storage.is_some(),
        // Responses that were not assigned to these requests in the end may be those of another connection.
        interval => sender.is_some() || !interval.ends_with_response(),
    });
    add_times(profile, index, timings, &connection.time_bins);
    let mut sizes = connection.sizes;
    for ((class, size), sums) in mpi_sums.sizes.into_sorted() {
        let of = operation(class, detection, key).map(|operation| size_category(class.stack, operation));
        of.into_iter().for_each(|of| sizes.join((of, size), sums, |held, sums| *held += sums));
    }
    let row = |((of, size), sums)| SizeRow { connection: index as u32, category: of, size, sums };
    profile.sizes.extend(sizes.into_iter().map(row));
    let bins: Vec<(i64, BinSums)> = connection.bins.iter().collect();
    let rows = |(shift, bin_ns): (u32, i64), connection: u32| {
        timeline_rows(&bins, (shift, bin_ns), connection, |sums| mpi_columns(sums, detection, key))
    };
    profile.timeline.extend(rows((plan.connections, profile.bin_ns), index as u32));
    if let (Some(shift), Some(group)) = (plan.senders, plan.group_of.get(index).copied().flatten()) {
        profile.senders.extend(rows((shift, profile.sender_bin_ns), group));
    }
}

/// Adds the times of a connection, in all and by bin.
fn add_times(profile: &mut Profile, connection: usize, timings: VecMap<TimingKey, Histogram>, time_bins: &[TimeBin]) {
    for bin in time_bins {
        // Every latency of a bin is also in the totals if its library was detected.
        let Some(row) = timings.iter().position(|(key, _)| *key == bin.key) else { continue };
        profile.latency_timeline.push(LatencyBin {
            time_ns: bin.bin.saturating_mul(profile.latency_bin_ns),
            latency: (profile.latencies.len() + row) as u32,
            bucket: bin.bucket,
            count: bin.count,
        });
    }
    let row = |(timing, histogram)| LatencyRow { connection: connection as u32, timing, histogram };
    profile.latencies.extend(timings.into_iter().map(row));
}

/// The traffic of a connection in bins of `bin_ns`: those of its sums, doubled `shift` times.
fn timeline_rows(
    bins: &[(i64, BinSums)],
    (shift, bin_ns): (u32, i64),
    connection: u32,
    mpi_columns: impl Fn(&mut dyn Iterator<Item = (MpiClass, MpiSums)>) -> Traffic,
) -> impl Iterator<Item = TimelineRow> {
    let row = move |bin: &[(i64, BinSums)]| {
        let (mut traffic, retransmissions, congestion) = bin_traffic(bin);
        let mut mpi = bin.iter().filter_map(|(_, sums)| match sums.class {
            BinClass::Mpi(class) => {
                Some((class, MpiSums { messages: sums.messages, mpi_bytes: sums.sums.payload_bytes }))
            }
            BinClass::Sent | BinClass::Retransmitted | BinClass::Congestion(_) => None,
        });
        traffic += mpi_columns(&mut mpi);
        let time_ns = (bin[0].0 >> shift).saturating_mul(bin_ns);
        let has_packets = traffic != Traffic::default() || congestion != BinCongestion::default();
        has_packets.then_some(TimelineRow { time_ns, connection, traffic, retransmissions, congestion })
    };
    bins.chunk_by(move |(a, _), (b, _)| a >> shift == b >> shift).filter_map(row)
}

/// Traffic of a bin, and the retransmissions and the congestion in it.
fn bin_traffic(bin: &[(i64, BinSums)]) -> (Traffic, BinRetransmissions, BinCongestion) {
    let (mut traffic, mut retransmitted) = (Traffic::default(), BinRetransmissions::default());
    let mut congestion = BinCongestion::default();
    for (_, BinSums { class: of, sums, messages }) in bin {
        match of {
            BinClass::Sent => {
                traffic.payload_bytes += sums.payload_bytes;
                traffic.messages += messages;
            }
            BinClass::Retransmitted => {
                retransmitted += BinRetransmissions { packets: sums.packets, wire_bytes: sums.wire_bytes }
            }
            BinClass::Congestion(event) => {
                congestion.add(*event, sums.packets);
                continue;
            }
            BinClass::Mpi(_) => continue,
        }
        traffic.packets += sums.packets;
        traffic.wire_bytes += sums.wire_bytes;
    }
    (traffic, retransmitted, congestion)
}

/// The messages of a connection by envelope, and per operation the rest without envelopes.
fn streams(
    index: u32,
    envelopes: &Streams,
    operations: &BTreeMap<MpiOperation, MpiSums>,
    reading: Option<(LibraryStack, TagLayout)>,
) -> Vec<StreamRow> {
    let Some((detected, layout)) = reading else { return Vec::new() };
    let mut streams: BTreeMap<(StreamEnvelope, MpiOperation), StreamSums> = BTreeMap::new();
    let mut left = operations.clone();
    for (_, matching, sums) in envelopes.iter().filter(|(stack, ..)| *stack == detected) {
        let Some(identity) = matching.identity(layout) else { continue };
        let Identity { rank, context, tag, world, .. } = identity;
        let key = (StreamEnvelope { context, world, rank, tag }, identity.operation());
        if let Some(left) = left.get_mut(&key.1) {
            left.messages = left.messages.saturating_sub(sums.messages);
            left.mpi_bytes = left.mpi_bytes.saturating_sub(sums.mpi_bytes);
        }
        streams.entry(key).and_modify(|stream| stream.merge(sums)).or_insert(sums);
    }
    let named = streams.into_iter().map(|((envelope, operation), sums)| (Some(envelope), operation, sums));
    let unnamed = left.into_iter().filter(|(_, left)| left.messages > 0).map(|(operation, left)| {
        let MpiSums { messages, mpi_bytes } = left;
        (None, operation, StreamSums { messages, mpi_bytes, times_ns: None })
    });
    let row = |(envelope, operation, sums)| StreamRow { connection: index, envelope, operation, sums };
    named.chain(unnamed).map(row).collect()
}

/// The latencies of a connection; those of MPI messages only if their library was detected.
fn timings(
    measured: VecMap<(Option<RequiredDetection>, TimingKey), Recorder>,
    reading: Option<(LibraryStack, TagLayout)>,
) -> VecMap<TimingKey, Histogram> {
    let mut timings: VecMap<TimingKey, Histogram> = VecMap::new();
    for ((required, key), recorder) in measured {
        if required.is_none_or(|required| reading.is_some_and(|reading| required.is_met_by(reading))) {
            timings.join(key, recorder.finish(), |held, timing| held.merge(&timing));
        }
    }
    timings
}

/// The MPI columns of a connection: its messages of the detected library.
fn mpi_columns(
    sums: &mut dyn Iterator<Item = (MpiClass, MpiSums)>,
    detection: &Detection,
    key: &ConnectionKey,
) -> Traffic {
    let mut traffic = Traffic::default();
    for (operation, sums) in by_operation(sums, detection, key) {
        if operation == MpiOperation::PointToPoint {
            traffic.p2p_messages = sums.messages;
            traffic.p2p_mpi_bytes = sums.mpi_bytes;
        } else {
            traffic.collective_messages += sums.messages;
            traffic.collective_mpi_bytes = traffic.collective_mpi_bytes.saturating_add(sums.mpi_bytes);
        }
    }
    traffic
}

/// The messages of the connection's detected library, by operation.
fn by_operation(
    sums: &mut dyn Iterator<Item = (MpiClass, MpiSums)>,
    detection: &Detection,
    key: &ConnectionKey,
) -> BTreeMap<MpiOperation, MpiSums> {
    let mut operations = BTreeMap::new();
    for (class, sums) in sums {
        if let Some(operation) = operation(class, detection, key) {
            *operations.entry(operation).or_default() += sums;
        }
    }
    operations
}

/// The operation of a message class, if the class is of the connection's detected library.
fn operation(class: MpiClass, detection: &Detection, key: &ConnectionKey) -> Option<MpiOperation> {
    let (stack, layout) = detection.stack_and_layout(key)?;
    class.operation[layout as usize].filter(|_| class.stack == stack)
}

const fn size_category(stack: LibraryStack, operation: MpiOperation) -> SizeCategory {
    match (stack, operation) {
        (LibraryStack::Nccl, _) => SizeCategory::Nccl,
        (_, MpiOperation::PointToPoint) => SizeCategory::PointToPoint,
        _ => SizeCategory::Collective,
    }
}
