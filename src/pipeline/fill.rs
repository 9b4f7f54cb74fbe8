//! Settled sums, and what is believed of them -> the tables of the profile.

use crate::model::profile::{CollectiveRow, ConnectionRow, HealthRow, LatencyRow, Repeats, TimelineRow, Traffic};
use crate::model::traffic::{ConnectionTotals, MpiClass, MpiSums};
use crate::model::{Claim, ConnectionKey, Health, Histogram, Kind, Profile, QueuePair, TimingKey};
use crate::ranks::{Belief, Pairs};
use ibscope_parsers::mpi::{Form, Operation, TagLayout};
use std::collections::BTreeMap;

/// Writes the tables of connections, time and collective operations.
pub(super) fn fill(profile: &mut Profile, connections: &mut [ConnectionTotals], belief: &Belief, paired: &Pairs) {
    for (index, connection) in connections.iter_mut().enumerate() {
        let key = &connection.key;
        let mpi = |sums: &mut dyn Iterator<Item = (MpiClass, MpiSums)>| mpi(sums, belief, key);
        let receiver = QueuePair { endpoint: key.dst, qpn: key.dest_qp };
        let sender = if key.is_datagram() {
            Some((key.src_qp, "deth"))
        } else {
            paired.partner(receiver).map(|(end, evidence)| (end.qpn, evidence.name()))
        };
        let mut traffic = connection.traffic;
        traffic += mpi(&mut connection.mpi.iter().map(|(class, sums)| (*class, *sums)));
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
            stack: belief.stack(key),
        });
        let healthy = connection.health == Health::default() && connection.repeats == Repeats::default();
        if key.kind == Kind::Data && !healthy {
            profile.health.push(HealthRow { connection: index as u32, health: connection.health });
        }
        let operations = by_operation(&mut connection.mpi.iter().map(|(class, sums)| (*class, *sums)), belief, key);
        for (operation, sums) in operations.into_iter().filter(|(operation, _)| *operation != Operation::PointToPoint) {
            let MpiSums { messages, mpi_bytes } = sums;
            let operation = operation.name().to_owned();
            profile.collectives.push(CollectiveRow { connection: index as u32, operation, messages, mpi_bytes });
        }
        let timings = timings(std::mem::take(&mut connection.timings), belief.reading(key));
        profile.latencies.extend(timings.into_iter().map(|(timing, histogram)| LatencyRow {
            connection: index as u32,
            timing,
            histogram,
        }));
        // Given up as they are written: both are most of what an analysis holds.
        for bin in std::mem::take(&mut connection.bins) {
            let mut traffic = bin.traffic;
            traffic += mpi(&mut bin.mpi.iter().copied());
            if traffic != Traffic::default() {
                let time_ns = bin.bin.saturating_mul(profile.bin_ns);
                profile.timeline.push(TimelineRow { time_ns, connection: index as u32, traffic });
            }
        }
    }
    profile.timeline.sort_by_key(|row| (row.time_ns, row.connection));
}

/// The times of a connection: those of MPI messages where that is what is believed of them.
fn timings(
    measured: BTreeMap<(Option<Claim>, TimingKey), Histogram>,
    reading: Option<(Form, TagLayout)>,
) -> BTreeMap<TimingKey, Histogram> {
    let mut timings: BTreeMap<TimingKey, Histogram> = BTreeMap::new();
    for ((claim, key), histogram) in measured {
        if claim.is_none_or(|claim| reading.is_some_and(|reading| claim.holds(reading))) {
            timings.entry(key).and_modify(|timing| timing.merge(&histogram)).or_insert(histogram);
        }
    }
    timings
}

/// The MPI columns of a connection: its messages of the form that is believed of it.
fn mpi(sums: &mut dyn Iterator<Item = (MpiClass, MpiSums)>, belief: &Belief, key: &ConnectionKey) -> Traffic {
    let mut traffic = Traffic::default();
    for (operation, sums) in by_operation(sums, belief, key) {
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
    belief: &Belief,
    key: &ConnectionKey,
) -> BTreeMap<Operation, MpiSums> {
    let mut operations = BTreeMap::new();
    let Some((form, layout)) = belief.reading(key) else { return operations };
    for (class, sums) in sums.filter(|(class, _)| class.form == form) {
        if let Some(operation) = class.operation[layout as usize] {
            *operations.entry(operation).or_default() += sums;
        }
    }
    operations
}
