//! Settled sums, and what is believed of them -> the tables of the profile.

use crate::model::profile::{
    CollectiveRow, ConnectionRow, HealthRow, LatencyBin, LatencyRow, Repeated, Repeats, SizeRow, StreamEnvelope,
    StreamRow, TimelineRow, Traffic,
};
use crate::model::traffic::{BinOf, BinSums, ConnectionTotals, MpiClass, MpiSums};
use crate::model::{
    Claim, ConnectionKey, Few, Health, Histogram, Kind, Profile, QueuePair, Recorder, SizeOf, StreamSums, Streams,
    TimingKey,
};
use crate::ranks::{Detection, Identified, Pairs};
use ibscope_parsers::mpi::{Form, Identity, Operation, TagLayout};
use std::collections::BTreeMap;

/// Writes the tables of connections, time and collective operations. What it takes from is given up on the way: both are most of what an analysis holds.
#[expect(clippy::vec_box, reason = "one by one they are given up")]
pub(super) fn fill(
    profile: &mut Profile,
    connections: Vec<Box<ConnectionTotals>>,
    identified: &Identified,
    paired: &Pairs,
) {
    let detection = &identified.detection;
    // There may be a million of each: no more room than they need.
    let count = |of: &dyn Fn(&ConnectionTotals) -> usize| connections.iter().map(|connection| of(connection)).sum();
    profile.latency_timeline.reserve_exact(count(&|connection| connection.time_bins.len()));
    profile.timeline.reserve_exact(count(&|connection| in_bins(&connection.bins).count()));
    profile.connections.reserve_exact(connections.len());
    let mut all_streams = Vec::new();
    for (index, connection) in connections.into_iter().enumerate() {
        let connection = *connection;
        let key = &connection.key;
        let seen = connection.mpi.map(|seen| *seen).unwrap_or_default();
        let mpi = |sums: &mut dyn Iterator<Item = (MpiClass, MpiSums)>| mpi(sums, detection, key);
        let receiver = QueuePair { endpoint: key.dst, qpn: key.dest_qp };
        let sender = if key.is_datagram() {
            Some((key.src_qp, "deth"))
        } else {
            paired.partner(receiver).map(|(end, evidence)| (end.qpn, evidence.name()))
        };
        let mut traffic = connection.traffic;
        traffic += mpi(&mut seen.sums.iter().map(|(class, sums)| (*class, *sums)));
        profile.connections.push(ConnectionRow {
            src: key.src,
            dst: key.dst,
            kind: key.kind,
            service: key.service,
            dest_qp: key.dest_qp,
            src_qp: sender.map(|(qpn, _)| qpn),
            src_qp_evidence: sender.map(|(_, evidence)| evidence.to_owned()),
            first_time_ns: connection.times_ns.0,
            last_time_ns: connection.times_ns.1,
            traffic,
            repeats: connection.repeats,
            stack: detection.stack(key),
            job: identified.job_of.get(index).copied().flatten(),
            one_sided: identified.one_sided.get(index).and_then(|flag| flag.then_some(connection.rdma)),
            coverage: identified.coverage.get(index).copied().unwrap_or_default(),
        });
        let health = connection.health.whole();
        let healthy = health == Health::default() && connection.repeats == Repeats::default();
        if key.kind == Kind::Data && !healthy {
            profile.health.push(&HealthRow { connection: index as u32, health });
        }
        let operations = by_operation(&mut seen.sums.iter().map(|(class, sums)| (*class, *sums)), detection, key);
        for (operation, sums) in operations.iter().filter(|(operation, _)| **operation != Operation::PointToPoint) {
            let MpiSums { messages, mpi_bytes } = *sums;
            let operation = operation.name().to_owned();
            profile.collectives.push(CollectiveRow { connection: index as u32, operation, messages, mpi_bytes });
        }
        all_streams.extend(streams(index as u32, &seen.streams, &operations, detection.reading(key)));
        let timings = timings(connection.timings, detection.reading(key));
        for bin in connection.time_bins {
            // Every time over time is one of those.
            let Some(row) = timings.keys().position(|key| *key == bin.key) else { continue };
            profile.latency_timeline.push(LatencyBin {
                time_ns: bin.bin.saturating_mul(profile.latency_bin_ns),
                latency: (profile.latencies.len() + row) as u32,
                bucket: bin.bucket,
                count: bin.count,
            });
        }
        profile.latencies.extend(timings.into_iter().map(|(timing, histogram)| LatencyRow {
            connection: index as u32,
            timing,
            histogram,
        }));
        let mut sizes = connection.sizes;
        for ((class, size), sums) in seen.sizes.into_sorted() {
            let of = operation(class, detection, key).map(size_of);
            of.into_iter().for_each(|of| sizes.add((of, size), sums));
        }
        let row = |((of, size), sums)| SizeRow { connection: index as u32, of, size, sums };
        profile.sizes.extend(sizes.into_sorted().into_iter().map(row));
        for bin in in_bins(&connection.bins) {
            let (mut traffic, repeated) = packets(bin);
            traffic += mpi(&mut bin.iter().filter_map(|sums| match sums.of {
                BinOf::Mpi(class) => {
                    Some((class, MpiSums { messages: sums.messages, mpi_bytes: sums.sums.payload_bytes }))
                }
                BinOf::Sent | BinOf::Repeated => None,
            }));
            if traffic != Traffic::default() {
                let time_ns = bin[0].bin.saturating_mul(profile.bin_ns);
                profile.timeline.push(TimelineRow { time_ns, connection: index as u32, traffic, repeated });
            }
        }
    }
    profile.streams = Some(all_streams);
    profile.timeline.sort_unstable_by_key(|row| (row.time_ns, row.connection));
    let places = |row: &LatencyBin| (row.time_ns, row.latency, row.bucket);
    profile.latency_timeline.sort_unstable_by_key(places);
    // Parts of a rotated capture share the bin in which one goes on to the next.
    profile.latency_timeline.dedup_by(|row, kept| {
        let is_same = places(row) == places(kept);
        if is_same {
            kept.count = kept.count.saturating_add(row.count);
        }
        is_same
    });
}

/// The sums of a connection, those of a bin together.
fn in_bins(sums: &[BinSums]) -> impl Iterator<Item = &[BinSums]> {
    sums.chunk_by(|a, b| a.bin == b.bin)
}

/// The packets of a bin, and what of them was sent again.
fn packets(bin: &[BinSums]) -> (Traffic, Repeated) {
    let (mut traffic, mut repeated) = (Traffic::default(), Repeated::default());
    for BinSums { of, sums, messages, .. } in bin {
        match of {
            BinOf::Sent => {
                traffic.payload_bytes += sums.payload_bytes;
                traffic.messages += messages;
            }
            BinOf::Repeated => repeated += Repeated { packets: sums.packets, wire_bytes: sums.wire_bytes },
            BinOf::Mpi(_) => continue,
        }
        traffic.packets += sums.packets;
        traffic.wire_bytes += sums.wire_bytes;
    }
    (traffic, repeated)
}

/// The messages of a connection by envelope, and what is left of its operations without.
fn streams(
    index: u32,
    kept: &Streams,
    operations: &BTreeMap<Operation, MpiSums>,
    reading: Option<(Form, TagLayout)>,
) -> Vec<StreamRow> {
    let Some((believed, layout)) = reading else { return Vec::new() };
    let mut streams: BTreeMap<(StreamEnvelope, Operation), StreamSums> = BTreeMap::new();
    let mut left = operations.clone();
    for (_, matching, sums) in kept.iter().filter(|(form, ..)| *form == believed) {
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

/// The times of a connection: those of MPI messages where that is what is believed of them.
fn timings(
    measured: Few<(Option<Claim>, TimingKey), Recorder>,
    reading: Option<(Form, TagLayout)>,
) -> BTreeMap<TimingKey, Histogram> {
    let mut timings: BTreeMap<TimingKey, Histogram> = BTreeMap::new();
    for ((claim, key), recorder) in measured {
        if claim.is_none_or(|claim| reading.is_some_and(|reading| claim.holds(reading))) {
            let histogram = recorder.finish();
            timings.entry(key).and_modify(|timing| timing.merge(&histogram)).or_insert(histogram);
        }
    }
    timings
}

/// The MPI columns of a connection: its messages of the form that is believed of it.
fn mpi(sums: &mut dyn Iterator<Item = (MpiClass, MpiSums)>, detection: &Detection, key: &ConnectionKey) -> Traffic {
    let mut traffic = Traffic::default();
    for (operation, sums) in by_operation(sums, detection, key) {
        if operation == Operation::PointToPoint {
            traffic.p2p_messages = sums.messages;
            traffic.p2p_mpi_bytes = sums.mpi_bytes;
        } else {
            traffic.collective_messages += sums.messages;
            traffic.collective_mpi_bytes = traffic.collective_mpi_bytes.saturating_add(sums.mpi_bytes);
        }
    }
    traffic
}

/// The messages of the form that is believed of a connection, with what they belong to.
fn by_operation(
    sums: &mut dyn Iterator<Item = (MpiClass, MpiSums)>,
    detection: &Detection,
    key: &ConnectionKey,
) -> BTreeMap<Operation, MpiSums> {
    let mut operations = BTreeMap::new();
    for (class, sums) in sums {
        if let Some(operation) = operation(class, detection, key) {
            *operations.entry(operation).or_default() += sums;
        }
    }
    operations
}

/// What messages of a class belong to, where their form is the one that is believed of the connection.
fn operation(class: MpiClass, detection: &Detection, key: &ConnectionKey) -> Option<Operation> {
    let (form, layout) = detection.reading(key)?;
    class.operation[layout as usize].filter(|_| class.form == form)
}

fn size_of(operation: Operation) -> SizeOf {
    if operation == Operation::PointToPoint { SizeOf::PointToPoint } else { SizeOf::Collective }
}
