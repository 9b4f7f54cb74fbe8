//! The summary lines about storage, rates, the busiest pairs, response times and health.

use super::lines::SummaryLines;
use crate::analysis::health::column_totals;
use crate::analysis::latency::{LatencyGrouping, latencies};
use crate::analysis::matrix::{Matrix, MatrixCell, Selection, matrix};
use crate::analysis::paths::findings;
use crate::analysis::rates::{DEFAULT_WINDOW_NS, WIRE_BYTES, rates};
use crate::analysis::storage::{StorageTotals, storage};
use crate::analysis::{GroupBy, Label};
use crate::model::{ClassSet, ConnectionClass, Histogram, Interval, Profile, count_either};
use crate::render::units::time;
use crate::render::units::{bytes, bytes_per_second, count_of, duration, group, seconds_since, span};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Number of pairs that are named.
const TOP_PAIRS: usize = 3;

/// The mean and the peak rate on the wire.
pub(super) fn rate(lines: &mut SummaryLines, profile: &Profile) {
    let Ok(rates) = rates(profile, None, None, DEFAULT_WINDOW_NS) else { return };
    let (sum, peak) = (rates.total.sums[WIRE_BYTES], rates.total.peaks[WIRE_BYTES]);
    if sum == 0 {
        return;
    }
    // The line `time` has the time of all packets.
    let over = rates
        .own_length_ns()
        .map_or_else(String::new, |ns| format!(" over {} of data traffic", span(ns.unsigned_abs())));
    lines.put(
        "rate",
        &format!(
            "mean {} on the wire{over}; peak {} over {}, at {} s",
            bytes_per_second(rates.mean(sum)),
            bytes_per_second(rates.peak(peak)),
            duration(rates.window_ns),
            seconds_since(rates.origin_ns, peak.start_ns)
        ),
    );
}

/// The busiest pairs: by MPI bytes between ranks, or by payload if no MPI library was detected.
/// `endpoints` is the matrix of the endpoints.
pub(super) fn busiest(lines: &mut SummaryLines, profile: &Profile, endpoints: Matrix, classes: ClassSet) {
    let has_ranks =
        profile.connections.iter().any(|connection| connection.stack.is_some()) && !profile.ranks.is_empty();
    let matrix = if has_ranks { matrix(profile, GroupBy::Rank, Selection::All) } else { endpoints };
    let value = |cell: &MatrixCell| if has_ranks { cell.mpi_bytes.unwrap_or(0) } else { cell.payload_bytes };
    // The tuple order is the order of the output.
    let sent = |(src, dst, cell)| (Reverse(value(cell)), src, dst);
    let mut pairs: Vec<(Reverse<u64>, &Label, &Label)> =
        matrix.rows().map(sent).filter(|(Reverse(bytes), ..)| *bytes > 0).collect();
    let all: u64 = pairs.iter().fold(0, |sum, (Reverse(bytes), ..)| sum.saturating_add(*bytes));
    let count = pairs.len();
    if count > TOP_PAIRS {
        pairs.select_nth_unstable(TOP_PAIRS);
        pairs.truncate(TOP_PAIRS);
    }
    pairs.sort_unstable();
    let name = |label: &Label| match label {
        Label::Rank(..) => format!("rank {label}"),
        _ => label.name(),
    };
    let named = pairs.into_iter().map(|(Reverse(sent), src, dst)| {
        let share = sent as f64 * 100.0 / all.max(1) as f64;
        format!("{} → {}: {} ({share:.0} %)", name(src), name(dst), bytes(sent))
    });
    let named: Vec<String> = named.collect();
    if !named.is_empty() {
        let what = if has_ranks { format!("{} bytes", classes.library()) } else { "payload".to_owned() };
        lines.put("busiest", &format!("{}; {} with {what}", named.join(", "), count_of(count as u64, "pair")));
    }
}

/// The commands of each class of storage.
pub(super) fn storage_line(lines: &mut SummaryLines, profile: &Profile) {
    let Some(storage) = storage(profile) else { return };
    let part = |(class, totals): (ConnectionClass, StorageTotals)| {
        let number =
            |number: Option<u64>, show: &dyn Fn(u64) -> String| number.map_or_else(|| "unknown".to_owned(), show);
        let median = match totals.times.samples() {
            0 => String::new(),
            _ => format!(", median {}", time(totals.times.quantile(0.5) as f64)),
        };
        format!(
            "{}: {} ({} read, {} written, {}{median})",
            class.name(),
            totals.commands.map_or_else(|| "unknown commands".to_owned(), |commands| count_of(commands, "command")),
            number(totals.read_bytes, &bytes),
            number(totals.written_bytes, &bytes),
            totals.errors.map_or_else(|| "unknown errors".to_owned(), |errors| count_of(errors, "error")),
        )
    };
    let parts: Vec<String> = storage.by_class().into_iter().map(part).collect();
    if !parts.is_empty() {
        let limits = match storage.notes.len() as u64 {
            0 => String::new(),
            1 => "; 1 note limits these numbers".to_owned(),
            notes => format!("; {notes} notes limit these numbers"),
        };
        lines.put("storage", &format!("{}{limits}; `ibscope storage` shows who serves whom", parts.join(", ")));
    } else if profile.connections.iter().any(|connection| connection.class.is_storage()) {
        lines.put("storage", "commands are unknown; `ibscope storage` shows why");
    }
}

/// The median and 99th percentile of response times and of the durations of MPI messages.
pub(super) fn latency_line(lines: &mut SummaryLines, profile: &Profile, classes: ClassSet) {
    if !profile.times_read {
        return;
    }
    let mut by_interval: BTreeMap<&str, Histogram> = BTreeMap::new();
    for (key, times) in latencies(profile, LatencyGrouping { by: None, sizes: false }) {
        by_interval.entry(key.interval).or_default().merge(&times);
    }
    let message = format!("{} message duration", classes.library());
    let shown = [
        (Interval::Acknowledged, "request to acknowledgement"),
        (Interval::LastResponse, "request to last response"),
        (Interval::MpiMessage, &message),
    ];
    let of = |(interval, name): (Interval, &str)| {
        let times = by_interval.get(interval.name())?;
        let quantile = |share| time(times.quantile(share) as f64);
        Some(format!("{name}: median {}, 99 % within {}", quantile(0.5), quantile(0.99)))
    };
    let found: Vec<String> = shown.into_iter().filter_map(of).collect();
    if !found.is_empty() {
        lines.put("times", &found.join("; "));
    }
}

/// All problems in one line.
pub(super) fn health(lines: &mut SummaryLines, profile: &Profile) {
    let total: BTreeMap<&str, u64> =
        column_totals(profile).into_iter().filter_map(|(column, count)| Some((column.name, count?))).collect();
    let of = |name: &str| total.get(name).copied().unwrap_or(0);
    let coverage = &profile.coverage;
    let naks: u64 = total.iter().filter(|(name, _)| name.starts_with("nak_")).map(|(_, count)| count).sum();
    let congested = of("fecn_packets") + of("becn_packets") + of("ecn_ce_packets");
    let lost = of("lost_requests") + of("lost_responses");
    let mut found = Vec::new();
    let mut add = |count: u64, what: String| {
        if count > 0 {
            found.push(what);
        }
    };
    let longest = match of("longest_episode_ns") {
        0 => String::new(),
        ns => format!(", the longest {}", span(ns)),
    };
    add(of("episodes"), format!("{}{longest}", count_of(of("episodes"), "go-back-N episode")));
    add(naks, count_of(naks, "NAK"));
    add(of("rnr_naks"), count_of(of("rnr_naks"), "RNR NAK"));
    add(of("cnp_packets"), count_of(of("cnp_packets"), "congestion notification"));
    add(congested, format!("{} with FECN, BECN or ECN", count_of(congested, "packet")));
    add(coverage.icrc_bad, count_of(coverage.icrc_bad, "wrong ICRC"));
    let reordered = of("reordered_packets");
    add(reordered, format!("{} reordered without a loss", count_of(reordered, "packet")));
    let wrong = of("wrong_msn_packets");
    add(wrong, format!("{} with a wrong MSN", count_either(wrong, "ACK or response", "ACKs or responses")));
    let reused = of("reused_psn_packets");
    add(reused, format!("{} that reuse PSNs of a READ", count_of(reused, "request")));
    add(of("stalled_transmissions"), "a connection without progress".to_owned());
    let paths = findings(profile).len() as u64;
    add(paths, format!("{} on traffic classes, partitions or paths", count_of(paths, "finding")));
    add(lost, format!("{} missed by the capture", count_of(lost, "packet")));
    add(coverage.interface_drops, format!("{} dropped by the capturing interface", group(coverage.interface_drops)));
    let text = if found.is_empty() {
        "the packets show no problem".to_owned()
    } else {
        format!("{}; `ibscope health` shows where", found.join("; "))
    };
    lines.put("health", &text);
}
