//! The JSON document of a page: everything except the traffic by pair and bin.
//!
//! Times in the document are nanoseconds from the first packet.

use super::cells::PackedTraffic;
use super::exports::{self, ExportBins};
use super::{Page, ReportComparison, crosscheck, estimates, events, groups, lanes, latencies, senders};
use crate::analysis::collectives::{CollectiveTotals, by_operation, collectives};
use crate::analysis::coverage::States;
use crate::analysis::matrix::{Selection, matrix};
use crate::analysis::observed_ports::may_miss_ports;
use crate::analysis::phases::{Phase, PhaseOptions, phases};
use crate::analysis::rates::{self, DEFAULT_WINDOW_NS, WIRE_BYTES};
use crate::analysis::totals::ProfileTotals;
use crate::analysis::{GroupBy, Jobs, Label};
use crate::model::profile::{CoverageState, Traffic};
use crate::model::sampling::EstimatedSum;
use crate::model::{ClockRow, ConnectionClass, Histogram, Interval, Nodes, Profile};
use crate::render::coverage::{meaning, symbol};
use crate::render::matrix_note::mostly_collective;
use crate::render::table::ColumnValue;
use crate::render::table::groups::shown;
use crate::render::text::summary;
use crate::render::units::time;
use crate::render::units::{bytes, count_of, duration, group, span, utc};
use crate::render::{diagnose, figure, health, ranks};
use ibscope_parsers::Endpoint;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Maximum number of connections with findings in the list.
const WORST: usize = 20;

/// Returns the document as text that is safe inside a `<script>` element.
pub(super) fn document(page: &Page<'_>, cells: &PackedTraffic) -> io::Result<String> {
    let Page { profile, name, source, comparison: compared, crosscheck, instances, diagnosis } = *page;
    let endpoints: BTreeSet<Endpoint> = cells.ends.iter().map(|(endpoint, _)| *endpoint).collect();
    let endpoints: Vec<Endpoint> = endpoints.into_iter().collect();
    let endpoint = |endpoint: &Endpoint| {
        json!({
            "id": endpoint.to_string(), "name": profile.names.get(endpoint), "leaf": profile.leaves.get(endpoint),
        })
    };
    let labels: BTreeSet<&Label> = cells.ends.iter().map(|(_, label)| label).collect();
    let labels: Vec<&Label> = labels.into_iter().collect();
    let end = |(endpoint, label): &(Endpoint, Label)| {
        (endpoints.binary_search(endpoint).unwrap_or_default(), labels.binary_search(&label).unwrap_or_default())
    };
    let nodes = Nodes::of(profile);
    let (origin_ns, last_ns) = times_ns(profile, cells);
    let (senders, latencies) = (senders::heat(profile, origin_ns)?, latencies::document(profile, origin_ns));
    let bins =
        ExportBins { senders_ns: senders["bin_ns"].as_i64(), latencies_ns: latencies["over_time"]["bin_ns"].as_i64() };
    let mut document = json!({
        "name": name,
        "source": source.document(),
        "exports": exports::document(page, bins)?,
        "colors": figure::colors(),
        "summary": tiles(profile, cells),
        "lines": summary::lines(profile),
        "diagnosis": diagnosis.map(diagnose::top_json),
        "mpi_read": profile.mpi_read,
        "times_read": profile.times_read,
        "start": utc(origin_ns),
        "span_ns": last_ns.saturating_sub(origin_ns),
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "labels": labels.iter().map(|label| rank(label, &nodes)).collect::<Vec<_>>(),
        "jobs": profile.jobs.iter().map(|job| json!({ "job": job.job, "text": job.describe() })).collect::<Vec<_>>(),
        "coverage": CoverageState::ALL.map(|state| json!({ "name": state.name(), "symbol": symbol(state), "meaning": meaning(state) })),
        "is_partial": may_miss_ports(profile),
        "class_names": ConnectionClass::ALL.map(ConnectionClass::name),
        "ends": cells.ends.iter().map(end).collect::<Vec<_>>(),
        "sampled": profile.sampling.map(|sampling| sampling.describe()),
        "estimates": estimates::document(profile, &endpoints, &labels),
        "bin_ns": cells.bin_ns,
        "profile_bin_ns": profile.bin_ns,
        // Relative to the first packet, like `--from` and `--to`.
        "first_bin_ns": cells.first_ns.saturating_sub(origin_ns),
        "retransmitted": cells.retransmitted.iter().map(|(bin, sums)| (bin, sums.packets, sums.wire_bytes)).collect::<Vec<_>>(),
        "classes": classes(cells),
        "series": senders::totals(profile, origin_ns, cells.bin_ns),
        "senders": senders,
        "events": events::document(profile, origin_ns),
        "phases": phases_value(profile, origin_ns),
        "latencies": latencies,
        "sizes": sizes(profile),
        "collectives": operations(profile),
        "lanes": lanes::document(instances, profile, origin_ns),
        "health": health_value(profile),
        "rank_columns": ranks::COLUMNS,
        "ranks": ranks::lines(profile).collect::<Vec<_>>(),
        "made": provenance(profile, cells),
        "inputs": inputs(profile),
        "notes": profile.sampling.map(|sampling| sampling.describe()).into_iter().chain(profile.notes.iter().cloned()).chain(mostly_collective(&ProfileTotals::of(profile))).collect::<Vec<_>>(),
        "compared": compared.map(ReportComparison::document),
        "crosscheck": crosscheck.map(crosscheck::document),
    });
    // `json!` has a limit of members.
    document["rows"] = groups::document(profile, &endpoints);
    document["pauses"] = events::pauses(profile, origin_ns);
    // `</script>` and `<!--` would end or change the surrounding element.
    Ok(document.to_string().replace('<', r"\u003c"))
}

/// A row or column of the matrix by rank. Ranks on the same node share a node name.
fn rank(label: &Label, nodes: &Nodes) -> Value {
    let [text, full] = match label {
        Label::Rank(..) => [label.to_string(), format!("rank {label}")],
        Label::Unknown(job, Jobs::Several) => [label.to_string(), format!("unknown rank of job {job}")],
        _ => [label.to_string(), if label.is_no_job() { "traffic of no job" } else { "unknown rank" }.to_owned()],
    };
    let nodes: Vec<&str> = label.process().map(|rank| nodes.names(rank).collect()).unwrap_or_default();
    let csv = ColumnValue::from(label).json(None);
    json!({ "text": text, "full": full, "csv": csv, "job": label.job(), "rank": label.rank(), "nodes": nodes })
}

/// Times of the first packet, from which all times count, and of the last packet, in nanoseconds
/// since the epoch.
fn times_ns(profile: &Profile, cells: &PackedTraffic) -> (i64, i64) {
    let origin_ns = crate::analysis::origin_ns(profile, Some(cells.first_ns));
    (origin_ns, profile.coverage.last_time_ns.unwrap_or(origin_ns))
}

/// The tiles of the overview: a label, a value, and a line below; `warn` highlights a tile.
fn tiles(profile: &Profile, cells: &PackedTraffic) -> Vec<Value> {
    let ProfileTotals { traffic: total, retransmissions, stacks, classes, estimators, .. } = ProfileTotals::of(profile);
    let tile = |label: &str, value: String, below: String, warn: bool| json!({ "label": label, "value": value, "below": below, "warn": warn });
    let ports = cells.ends.iter().map(|(endpoint, _)| *endpoint).collect::<BTreeSet<_>>().len() as u64;
    let found = cells.ends.iter().filter_map(|(_, rank)| Some((rank.job()?, rank.rank()?)));
    let known = found.collect::<BTreeSet<_>>().len() as u64;
    let jobs = profile.jobs.len() as u64;
    let of_jobs = if jobs > 1 { format!("; {} together", count_of(jobs, "job")) } else { String::new() };
    let (origin_ns, last_ns) = times_ns(profile, cells);
    let span_ns = last_ns.saturating_sub(origin_ns).unsigned_abs();
    let library = classes.library();
    let mut tiles = vec![
        tile("Captured", span(span_ns), utc(origin_ns).replace('T', " ").replace('Z', " UTC"), false),
        if known > 0 {
            tile(&format!("{library} ranks"), group(known), format!("at {}{of_jobs}", count_of(ports, "port")), false)
        } else {
            tile("Ports", group(ports), "no MPI rank is known".to_owned(), false)
        },
    ];
    let mpi = total.p2p_messages + total.collective_messages;
    let mpi_bytes = total.p2p_mpi_bytes.saturating_add(total.collective_mpi_bytes);
    tiles.push(if stacks.is_empty() {
        let why = if profile.mpi_read { "no MPI library was detected" } else { "MPI was not analyzed" };
        tile("Messages", group(total.messages), format!("{}; {why}", bytes(total.payload_bytes)), false)
    } else {
        let of_collectives = group(total.collective_messages);
        let below = if classes.has_only_nccl() {
            format!("{}{of_jobs}", bytes(mpi_bytes))
        } else {
            format!("{}; {of_collectives} collective{of_jobs}", bytes(mpi_bytes))
        };
        tile(&format!("{library} messages"), group(mpi), below, false)
    });
    let of_sample = if profile.sampling.is_some() { " of the sample" } else { "" };
    let below = format!("{}{of_sample}", count_of(total.packets, "packet"));
    tiles.push(tile("On the wire", bytes(total.wire_bytes), below, false));
    if let (Some(sampling), Some(pair)) = (profile.sampling, &estimators) {
        let wire = shown(EstimatedSum::WIRE_BYTES.estimate(pair), bytes);
        tiles.push(tile("On the wire, estimated total", wire, format!("estimate; {}", sampling.describe()), true));
    }
    // A bin that is wider than the capture has no rate.
    let has_rate = i64::try_from(span_ns).is_ok_and(|span_ns| profile.sender_series().1 <= span_ns);
    if let Some(rates) = rates::rates(profile, None, None, DEFAULT_WINDOW_NS).ok().filter(|_| has_rate) {
        let peak = rates.peak(rates.total.peaks[WIRE_BYTES]);
        let mean = rates.mean(rates.total.sums[WIRE_BYTES]);
        let rate = |value: f64| format!("{}/s", bytes(value.round() as u64));
        let over = rates
            .own_length_ns()
            .map_or_else(String::new, |ns| format!(" over {} of data traffic", span(ns.unsigned_abs())));
        tiles.push(tile(
            "Peak rate",
            rate(peak),
            format!("over {}; mean {}{over}", duration(rates.window_ns), rate(mean)),
            false,
        ));
    }
    let mut acknowledged = Histogram::default();
    profile.latencies.iter().filter(|row| row.timing.interval == Interval::Acknowledged).for_each(|row| {
        acknowledged.merge(&row.histogram);
    });
    if acknowledged.samples() > 0 {
        let of = |share| time(acknowledged.quantile(share) as f64);
        let biased = if profile.sampling.is_some() { "; biased, because the capture is sampled" } else { "" };
        tiles.push(tile("Median time to the ACK", of(0.5), format!("99 % within {}{biased}", of(0.99)), false));
    }
    let (acks, retransmitted) = match profile.sampling {
        Some(_) => (0, retransmissions.packets()),
        None => (retransmissions.acknowledge_packets, retransmissions.packets() - retransmissions.acknowledge_packets),
    };
    let share = retransmitted as f64 * 100.0 / total.packets.max(1) as f64;
    let below = match retransmitted {
        0 => "packets".to_owned(),
        // A sample does not distinguish them.
        _ if profile.sampling.is_some() => "packets, retransmitted or mirrored at both ports".to_owned(),
        _ if acks > 0 => format!("packets, {share:.2} % of all; {}", count_of(acks, "duplicate ACK")),
        _ => format!("packets, {share:.2} % of all"),
    };
    let label = if profile.sampling.is_some() { "Observed again" } else { "Retransmitted" };
    tiles.push(tile(label, group(retransmitted), below, retransmitted > 0));
    // A sample does not distinguish lost packets from those that were not sampled.
    let health = profile.health.iter().filter(|_| profile.sampling.is_none());
    let lost: u64 = health.map(|row| row.health.lost()).sum();
    let decoded = profile.coverage.decoded_percent();
    // The tile shows "all" only if every record was decoded, even if the share rounds to 100 %.
    let failed = profile.coverage.failed() > 0;
    let decoded = if failed { format!("{:.2} %", decoded.min(99.99)) } else { "all".to_owned() };
    let pairs = matrix(profile, if known > 0 { GroupBy::Rank } else { GroupBy::Endpoint }, Selection::All);
    let states = States::of(pairs.cells.values());
    let incomplete: u64 = states.incomplete().map(|(_, count)| count).sum();
    let [shown, which] = coverage_of_pairs(&states, pairs.cells.len() as u64);
    let lost_too = if lost > 0 { format!(", the capture lost {}", count_of(lost, "packet")) } else { String::new() };
    let below = format!("{which}{decoded} of the records decoded{lost_too}");
    tiles.push(tile("Coverage of pairs", shown, below, failed || lost > 0 || incomplete > 0));
    tiles
}

/// The value of the tile on the coverage of the pairs, and the number of pairs by state if there are several.
fn coverage_of_pairs(states: &States, pairs: u64) -> [String; 2] {
    let incomplete: Vec<(CoverageState, u64)> = states.incomplete().collect();
    let of_all = |count: u64, state: &str| format!("{} of {} {state}", group(count), count_of(pairs, "pair"));
    match incomplete[..] {
        [] => ["complete".to_owned(), String::new()],
        [(state, count)] => [of_all(count, state.name()), String::new()],
        ref several => {
            let each = several.iter().map(|(state, count)| format!("{} {}; ", group(*count), state.name()));
            [of_all(several.iter().map(|(_, count)| count).sum(), "not complete"), each.collect()]
        }
    }
}

/// The traffic of each class over time: a row has the number of the bin, the place of the class in
/// `names`, wire bytes, payload bytes, packets and transport messages. Classes with most wire bytes
/// come first.
fn classes(cells: &PackedTraffic) -> Value {
    let mut totals: BTreeMap<ConnectionClass, u64> = BTreeMap::new();
    for ((_, class), sums) in &cells.classes {
        let total = totals.entry(*class).or_default();
        *total = total.saturating_add(sums.wire_bytes);
    }
    let mut names: Vec<ConnectionClass> = totals.keys().copied().collect();
    names.sort_by_key(|class| Reverse(totals.get(class).copied()));
    let row = |((bin, class), sums): (&(u64, ConnectionClass), &Traffic)| {
        let place = names.iter().position(|name| name == class);
        (*bin, place, sums.wire_bytes, sums.payload_bytes, sums.packets, sums.messages)
    };
    json!({
        "names": names.iter().map(|class| class.name()).collect::<Vec<_>>(),
        "rows": cells.classes.iter().map(row).collect::<Vec<_>>(),
    })
}

/// The phases of the run.
fn phases_value(profile: &Profile, origin_ns: i64) -> Value {
    let phases = phases(profile, &PhaseOptions::default());
    let row = |phase: &Phase| {
        let collectives = phase.collectives.iter().filter(|seen| seen.at_least > 0);
        json!({
            "from_ns": phase.from_ns.saturating_sub(origin_ns),
            "to_ns": phase.to_ns.saturating_sub(origin_ns),
            "messages": phase.messages(),
            "bytes": phase.bytes(),
            "of_mpi": phase.has_mpi,
            "wire_rate": phase.wire_rate(),
            "pattern": phase.pattern.name.name(),
            "confidence": phase.pattern.confidence,
            "collectives": collectives.map(|seen| (&seen.operation, seen.at_least)).collect::<Vec<_>>(),
        })
    };
    json!({ "window_ns": phases.window_ns, "phases": phases.phases.iter().map(row).collect::<Vec<_>>() })
}

/// Size distributions by kind and power of two.
fn sizes(profile: &Profile) -> Vec<Value> {
    let Ok(rates) = rates::rates(profile, None, None, DEFAULT_WINDOW_NS) else { return Vec::new() };
    let row = |((of, size), sums): (
        &(crate::model::SizeCategory, crate::model::SizeClass),
        &crate::model::SizeSums,
    )| {
        json!({
            "distribution": of.distribution(), "of": of.name(), "from_bytes": size.from_bytes(), "count": sums.count,
            "bytes": sums.bytes, "smallest_bytes": sums.smallest_bytes, "largest_bytes": sums.largest_bytes,
        })
    };
    rates.total.sizes.iter().map(row).collect()
}

fn operations(profile: &Profile) -> Vec<Value> {
    let table = collectives(profile, GroupBy::Rank);
    let row = |((job, operation), (pairs, sums)): ((Option<u32>, &str), (u64, CollectiveTotals))| json!({ "job": job.filter(|_| profile.jobs.len() > 1), "operation": operation, "pairs": pairs, "messages": sums.messages, "mpi_bytes": sums.mpi_bytes });
    by_operation(&table).into_iter().map(row).collect()
}

fn health_value(profile: &Profile) -> Value {
    let overview = health::overview(profile, None, WORST);
    json!({ "totals": overview.totals, "connections": overview.connections, "worst": overview.worst })
}

fn inputs(profile: &Profile) -> Vec<Value> {
    let inputs = profile.inputs.iter();
    let input = inputs.map(|input| {
        let times = [input.coverage.first_time_ns, input.coverage.last_time_ns].map(|time_ns| time_ns.map(utc));
        json!({
            "name": input.name, "bytes": input.length_bytes, "format": input.format, "xxh3_128": input.xxh3_128,
            "sha256": input.sha256, "records": input.coverage.records,
            "times": times, "clock": input.clock.as_ref().map(clock_text),
        })
    });
    input.collect()
}

/// How far the clock of an input is from the reference, in words.
fn clock_text(clock: &ClockRow) -> String {
    let ClockRow { reference, offset_ns, drift_ppm, .. } = clock;
    let within = time(clock.uncertainty_ns as f64);
    let uneven = if clock.is_even { "" } else { "; its rate varies" };
    if *offset_ns == 0 && *drift_ppm == 0.0 {
        return format!("that of {reference}, to within {within}{uneven}");
    }
    let ahead = if *offset_ns < 0 { "behind" } else { "ahead of" };
    let runs = if *drift_ppm < 0.0 { "slower" } else { "faster" };
    let (offset, drift) = (time(offset_ns.unsigned_abs() as f64), drift_ppm.abs());
    format!("{offset} {ahead} that of {reference}, {drift:.2} ppm {runs}; times corrected to within {within}{uneven}")
}

/// Provenance of the page: labels and texts.
fn provenance(profile: &Profile, cells: &PackedTraffic) -> Vec<(&'static str, String)> {
    let answer = |done: bool| if done { "yes" } else { "no" }.to_owned();
    let bins = match (profile.bin_ns, cells.bin_ns) {
        (0, _) => "none".to_owned(),
        (own, shown) if own == shown => duration(own),
        (own, shown) => format!("{}, of {} in the profile", duration(shown), duration(own)),
    };
    let writer = if profile.ibscope.is_empty() { env!("CARGO_PKG_VERSION") } else { &profile.ibscope };
    vec![
        ("analyzed by", format!("ibscope {writer}")),
        ("shown by", format!("ibscope {}", env!("CARGO_PKG_VERSION"))),
        ("bins of the timeline", bins),
        ("MPI analyzed", answer(profile.mpi_read)),
        ("latencies measured", answer(profile.times_read)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_described_in_words() {
        let same = ClockRow {
            reference: "node1.pcap".to_owned(),
            compared_with: "node1.pcap".to_owned(),
            at_ns: 1_795_399_926_400_205_736,
            offset_ns: 0,
            drift_ppm: 0.0,
            uncertainty_ns: 710,
            is_even: true,
            common_packets: 5701,
        };
        assert_eq!(clock_text(&same), "that of node1.pcap, to within 710 ns");
        let behind =
            ClockRow { offset_ns: -12_300, drift_ppm: 4.256, uncertainty_ns: 1_500, is_even: false, ..same.clone() };
        let words =
            "12.3 µs behind that of node1.pcap, 4.26 ppm faster; times corrected to within 1.50 µs; its rate varies";
        assert_eq!(clock_text(&behind), words);
        let ahead = ClockRow { offset_ns: 2_000_000_000, drift_ppm: -20.0, ..same };
        let words = "2.00 s ahead of that of node1.pcap, 20.00 ppm slower; times corrected to within 710 ns";
        assert_eq!(clock_text(&ahead), words);
    }
}
