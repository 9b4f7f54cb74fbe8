//! Collective operations, one by one, as terminal table, csv and JSON.

use super::table::{Table, write_document};
use super::units::{bytes, count_of, wrap};
use crate::analysis::collective_instances::{CollectiveInstance, Confidence};
use crate::analysis::instances::InstanceList;
use crate::model::column::ColumnUnit::{Bytes, BytesPerSecond, Count, Name, Nanoseconds, Number, Timestamp};
use ibscope_parsers::mpi::MpiOperation;
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, Write};

/// The columns of `collectives --view instances` in csv and JSON.
pub(super) fn instances_table() -> Table<CollectiveInstance> {
    Table::new("ibscope collectives --view instances --format csv")
        .column("job", Number, "number of the job, from 1", |row: &CollectiveInstance| row.job)
        .column(
            "communicator",
            Name,
            "`world`, or the context id and the lowest world rank of the communicator, as in `3/1`",
            |row| row.communicator.clone(),
        )
        .column("instance", Number, "number of the operation on this communicator in the order of time, from 1", |row| row.number)
        .column(
            "operation",
            Name,
            "`barrier`, `bcast`, `allreduce` ...; `nonblocking` or `collective` where the messages do not show it",
            |row| row.operation.name(),
        )
        .column(
            "algorithm",
            Name,
            "algorithm whose schedule has these messages: `recursive_doubling`, `ring`, `binomial` ...; several, joined by vertical bars, if they send the same messages; of NCCL `ring`, `tree` or `direct`, or the operations that send the same messages; `unknown` if none does",
            algorithm,
        )
        .column(
            "confidence",
            Name,
            "`high`: one schedule matches, with all its messages; `medium`: several algorithms send the same messages, or ranks share a node; `low`: several calls could send them, or some of the communicator's messages may be missing; `unknown`: no schedule matches, so the messages until the next pause count as one operation",
            |row| row.confidence.name(),
        )
        .column("ranks", Count, "ranks of the communicator, as far as they are known; empty if only the leaders of its nodes are known", |row| row.ranks)
        .column(
            "bytes",
            Bytes,
            "bytes per rank, as in the arguments of the call: the vector of an allreduce, reduce, bcast or scan, one block of other operations; empty if the messages do not show it",
            |row| row.bytes,
        )
        .column("start_ns", Timestamp, "time of the first packet", |row| row.start_ns)
        .column("end_ns", Timestamp, "time of the last packet", |row| row.end_ns)
        .column("duration_ns", Nanoseconds, "`end_ns` - `start_ns`", CollectiveInstance::duration_ns)
        .column(
            "last_rank",
            Number,
            "world rank of the rank that entered last; empty if the wire does not show it or its skew is within the margin",
            |row| row.last_rank,
        )
        .column(
            "skew_ns",
            Nanoseconds,
            "time from the entry of the next-to-last rank to the entry of `last_rank`; empty if the wire does not show the next-to-last entry",
            |row| row.skew_ns,
        )
        .column(
            "algbw_bytes_per_s",
            BytesPerSecond,
            "bytes per `duration_ns` as in nccl-tests: the blocks of all ranks of an allgather, alltoall, gather, scatter or reduce_scatter_block, `bytes` of others",
            CollectiveInstance::algbw_bytes_per_s,
        )
        .decimals(0)
        .column(
            "busbw_bytes_per_s",
            BytesPerSecond,
            "`algbw_bytes_per_s` times the factor of nccl-tests: 2(n-1)/n of an allreduce of n ranks, 1 of a bcast or reduce, (n-1)/n of others; empty for scans and barriers",
            CollectiveInstance::busbw_bytes_per_s,
        )
        .decimals(0)
}

/// Names of the algorithms, or `unknown`.
pub(super) fn algorithm(row: &CollectiveInstance) -> String {
    if row.algorithms.is_empty() { "unknown".to_owned() } else { row.algorithms.join("|") }
}

/// Widest terminal table, in characters.
const MAX_WIDTH: usize = 80;

/// Longest name of an algorithm in a shortened table, in characters.
const SHORT_NAME: usize = 12;

/// Columns and text that a terminal table shows. Each level leaves out more than the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TableDetail {
    Full,
    /// `reduce_scatter_block` is abbreviated.
    ShortOperation,
    /// Algorithms have at most [`SHORT_NAME`] characters.
    ShortAlgorithm,
    /// The column `bytes` is missing.
    WithoutBytes,
    /// The column `start s` is missing.
    WithoutStart,
}

impl TableDetail {
    const ALL: [Self; 5] =
        [Self::Full, Self::ShortOperation, Self::ShortAlgorithm, Self::WithoutBytes, Self::WithoutStart];
}

/// Symbol before the algorithm of an operation with low confidence.
const LOW: &str = "?";

/// The first of the algorithms, a mark if there are more, and a symbol if the confidence is low.
fn short_algorithm(row: &CollectiveInstance) -> String {
    let name = match row.algorithms[..] {
        [] => "unknown".to_owned(),
        [name] => name.to_owned(),
        [name, ..] => format!("{name}|…"),
    };
    if row.confidence == Confidence::Low { format!("{LOW} {name}") } else { name }
}

/// The meaning of [`LOW`]; empty if no operation has low confidence.
fn legend(instances: &[CollectiveInstance]) -> String {
    if instances.iter().all(|row| row.confidence != Confidence::Low) {
        return String::new();
    }
    let meaning = "several calls could send these messages, or some messages of the communicator may be missing";
    format!("\n{}\n", wrap(&format!("{LOW} low confidence: {meaning}"), MAX_WIDTH))
}

/// A name of at most [`SHORT_NAME`] characters.
fn shortened(name: String) -> String {
    if name.chars().count() <= SHORT_NAME {
        return name;
    }
    name.chars().take(SHORT_NAME - 1).chain(['…']).collect()
}

/// The rank that entered last and its skew.
fn last(row: &CollectiveInstance) -> String {
    match (row.last_rank, row.skew_ns) {
        (None, _) => "-".to_owned(),
        (Some(rank), None) => rank.to_string(),
        (Some(rank), Some(skew_ns)) => format!("{rank} +{:.3}", skew_ns as f64 / 1e6),
    }
}

/// The columns of the terminal table; with `has_jobs`, the job too. Times count from `origin_ns`.
fn shown_table(origin_ns: Option<i64>, has_jobs: bool, detail: TableDetail) -> Table<CollectiveInstance> {
    let start = move |row: &CollectiveInstance| {
        let since_ns = row.start_ns.saturating_sub(origin_ns.unwrap_or(row.start_ns));
        format!("{:.3}", since_ns as f64 / 1e9)
    };
    let operation = move |row: &CollectiveInstance| match row.operation {
        MpiOperation::ReduceScatterBlock if detail >= TableDetail::ShortOperation => "red_scat_block".to_owned(),
        operation => operation.name().to_owned(),
    };
    let algorithm = move |row: &CollectiveInstance| {
        let name = short_algorithm(row);
        if detail >= TableDetail::ShortAlgorithm { shortened(name) } else { name }
    };
    let job = |row: &CollectiveInstance| row.job.to_string();
    let size = |row: &CollectiveInstance| row.bytes.map_or_else(|| "-".to_owned(), bytes);
    Table::new("ibscope collectives --view instances")
        .with(|table| if has_jobs { table.shown_left("job", job) } else { table })
        .shown_left("comm", |row| row.communicator.clone())
        .with(|table| if detail < TableDetail::WithoutStart { table.shown("start s", start) } else { table })
        .shown_left("operation", operation)
        .shown_left("algorithm", algorithm)
        .with(|table| if detail < TableDetail::WithoutBytes { table.shown("bytes", size) } else { table })
        .shown("ms", |row| format!("{:.3}", row.duration_ns() as f64 / 1e6))
        .shown("last +ms", last)
}

/// The terminal table. `origin_ns` is the time of the first packet of the captures. If the table is
/// wider than 80 characters, names are shortened and columns are left out until it is not.
#[must_use]
pub fn table(found: &InstanceList, origin_ns: Option<i64>) -> String {
    if let Some(reason) = found.unknown_because {
        return format!("{}\n", wrap(&format!("collective operations unknown, because {reason}"), MAX_WIDTH));
    }
    let Some(first) = found.instances.first() else {
        return "no message of a collective operation was detected\n".to_owned();
    };
    let has_jobs = found.instances.iter().any(|instance| instance.job != first.job);
    let (mut text, mut shortened) = (String::new(), false);
    for detail in TableDetail::ALL {
        text = shown_table(origin_ns, has_jobs, detail).text(&found.instances);
        if text.lines().all(|line| line.chars().count() <= MAX_WIDTH) {
            shortened = detail != TableDetail::Full;
            break;
        }
    }
    _ = write!(text, "\n{}", legend(&found.instances));
    if shortened {
        _ = writeln!(text, "\nshortened to {MAX_WIDTH} columns; --format csv has all names and columns in full");
    }
    text
}

/// Notes on messages that belong to no row.
#[must_use]
pub fn notes(found: &InstanceList) -> Vec<String> {
    let collective = "collective message";
    let notes = [
        left_out(found.without_ranks, collective, "their ranks are unknown"),
        left_out(found.beyond_bound, collective, TOO_MANY),
    ];
    notes.into_iter().flatten().chain(nccl_notes(found.nccl_left_out, found.nccl_beyond_bound)).collect()
}

/// Notes on messages of NCCL that are in no row: `incomplete` ones, and those beyond the limit.
#[must_use]
pub fn nccl_notes(incomplete: u64, beyond_bound: u64) -> Vec<String> {
    let why = "some of their packets, or the clear-to-send of their receive, were not captured";
    let notes = [left_out(incomplete, "NCCL message", why), left_out(beyond_bound, "NCCL message", TOO_MANY)];
    notes.into_iter().flatten().collect()
}

fn left_out(count: u64, noun: &str, why: &str) -> Option<String> {
    (count > 0).then(|| format!("{} left out: {why}", count_of(count, noun)))
}

/// Reason why messages beyond the limit are left out.
const TOO_MANY: &str = "there are too many; choose a window with --from and --to";

/// Writes one csv row per operation.
pub fn csv(found: &InstanceList, out: &mut dyn Write) -> io::Result<()> {
    instances_table().csv(&found.instances, out)
}

/// Writes one JSON object with the csv rows.
pub fn json(found: &InstanceList, out: &mut dyn Write) -> io::Result<()> {
    let document = json!({
        "instances": instances_table().objects(&found.instances),
        "unknown_because": found.unknown_because,
        "messages_without_ranks": found.without_ranks,
        "messages_beyond_bound": found.beyond_bound,
    });
    write_document(out, "ibscope collective instances", 1, document)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(operation: MpiOperation, algorithms: &[&'static str], communicator: &str) -> CollectiveInstance {
        CollectiveInstance {
            job: 1,
            is_nccl: false,
            communicator: communicator.to_owned(),
            number: 1,
            operation,
            algorithms: algorithms.to_vec(),
            confidence: Confidence::High,
            misses_messages: false,
            ranks: Some(4),
            bytes: Some(1023 << 10),
            start_ns: 4_321_123_000_000,
            end_ns: 4_331_123_000_000,
            last_rank: Some(100),
            skew_ns: Some(1_234_567_000),
            activity: Vec::new(),
        }
    }

    #[test]
    fn tables_fit_80_columns_with_the_longest_names() {
        let cases = [
            instance(MpiOperation::ReduceScatterBlock, &["recursive_halving"], "world"),
            instance(MpiOperation::Bcast, &["scatter_ring_allgather", "linear"], "65535/1023"),
            instance(MpiOperation::ReduceScatter, &["recursive_halving", "ring"], "497/0"),
        ];
        for (jobs, instance) in [1, 2].into_iter().flat_map(|jobs| cases.iter().map(move |own| (jobs, own))) {
            let mut instances = vec![instance.clone(), cases[0].clone()];
            instances[1].job = jobs;
            let found = InstanceList { instances, ..InstanceList::default() };
            let text = table(&found, Some(0));
            assert!(text.lines().all(|line| line.chars().count() <= MAX_WIDTH), "{text}");
            assert!(text.contains("red_scat_block") && text.contains("--format csv has all"), "{text}");
        }
    }

    #[test]
    fn narrow_tables_have_names_and_columns_in_full() {
        let mut own = instance(MpiOperation::ReduceScatterBlock, &["butterfly"], "world");
        (own.last_rank, own.skew_ns) = (None, None);
        let found = InstanceList { instances: vec![own], ..InstanceList::default() };
        let text = table(&found, Some(4_321_000_000_000));
        assert!(text.contains("reduce_scatter_block  butterfly") && !text.contains("csv"), "{text}");
    }

    #[test]
    fn unknown_operations_have_a_reason() {
        let found = InstanceList { unknown_because: Some("the mirror sampled"), ..InstanceList::default() };
        assert_eq!(table(&found, None), "collective operations unknown, because the mirror sampled\n");
    }
}
