//! Iterations, stragglers and waits as terminal text, csv and JSON.

use super::table::{Table, write_document};
use super::units::{count_of, group, time, wrap};
use crate::analysis::waits::{Iterations, JobWaits, PairWaits, RankTimes, Straggler};
use crate::model::column::ColumnUnit::{Count, Name, Nanoseconds, Number, Ratio};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Version of the JSON document.
const VERSION: u32 = 1;
/// Pairs that the terminal text lists for each job.
const LISTED_PAIRS: usize = 20;

/// The waits of one pair of ranks.
pub(super) struct WaitRow<'a> {
    job: u32,
    pair: &'a PairWaits,
}

/// The columns of `waits` in csv, and of `waits` in JSON.
pub(super) fn pairs_table<'a>() -> Table<WaitRow<'a>> {
    Table::new("ibscope waits --format csv")
        .column("job", Number, "job of the ranks", |row: &WaitRow<'_>| row.job)
        .column("waiting_rank", Number, "rank that waits, in the `MPI_COMM_WORLD` of the job", |row| {
            row.pair.waiting_rank
        })
        .headed("rank")
        .column("for_rank", Number, "rank whose message ends the wait", |row| row.pair.for_rank)
        .headed("waits for")
        .column("times", Count, "number of waits", |row| row.pair.times)
        .headed("times")
        .column("wait_ns", Nanoseconds, "sum of the waits", |row| row.pair.wait_ns)
        .shown("in all", |row| time(row.pair.wait_ns as f64))
        .column("share", Ratio, "share of the waiting rank's time in all iterations, 0 to 1", |row| row.pair.share())
        .decimals(6)
        .shown("share", |row| percent(row.pair.wait_ns, row.pair.of_ns))
}

/// The columns of `ranks` in JSON and on the terminal.
fn ranks_table() -> Table<(RankTimes, usize)> {
    let sum = |own: &RankTimes| own.before_send_ns + own.wait_ns + own.unclear_ns;
    Table::new("ibscope waits --format json")
        .column("rank", Number, "rank", |row: &(RankTimes, usize)| row.0.rank)
        .headed("rank")
        .column("before_send_ns", Nanoseconds, "time before messages that the rank sends", |row| row.0.before_send_ns)
        .shown("before sends", move |row| percent(row.0.before_send_ns, sum(&row.0)))
        .column("wait_ns", Nanoseconds, "time before messages that arrive after its own", |row| row.0.wait_ns)
        .shown("waits", move |row| percent(row.0.wait_ns, sum(&row.0)))
        .column("unclear_ns", Nanoseconds, "time that may be either", |row| row.0.unclear_ns)
        .shown("unclear", move |row| percent(row.0.unclear_ns, sum(&row.0)))
        .column("times_last", Count, "iterations that the rank began last, of those after the first one", |row| {
            row.0.times_last.map(|times| times as u64)
        })
        .shown("began last", |row| {
            row.0.times_last.map_or_else(|| "not known".to_owned(), |times| format!("{times} of {}", row.1))
        })
}

/// The columns of `stragglers` in JSON.
fn stragglers_table() -> Table<Straggler> {
    Table::new("ibscope waits --format json")
        .column("rank", Number, "rank", |row: &Straggler| row.rank)
        .column("or_ranks", Name, "other ranks of its node that may cause the delay, separated by `|`", |row| {
            row.or_ranks.iter().map(u32::to_string).collect::<Vec<_>>().join("|")
        })
        .column("delay_ns", Nanoseconds, "median delay", |row| row.delay_ns)
        .column("delay_low_ns", Nanoseconds, "lower bound of the median delay", |row| row.delay_low_ns)
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

/// The terminal text.
#[must_use]
pub fn text(jobs: &[JobWaits]) -> String {
    if jobs.is_empty() {
        return "no MPI message with ranks was detected, so waits are unknown\n".to_owned();
    }
    let texts: Vec<String> = jobs.iter().map(of_job).collect();
    texts.join("\n")
}

fn of_job(job: &JobWaits) -> String {
    let ranks = count_of(job.ranks_seen as u64, "rank");
    let name = format!("job {}, {ranks}", job.job);
    let iterations = match &job.iterations {
        Ok(iterations) => iterations,
        Err(reason) => {
            return format!("{}\n", wrap(&format!("{name}: iterations unknown, because {}", reason.because()), 80));
        }
    };
    let mut text = format!(
        "{name}: {}, {} of {} messages\nperiod: median {}, interquartile range {}\n",
        count_of(iterations.count as u64, "iteration"),
        group(iterations.messages as u64),
        group(iterations.of_messages as u64),
        time(iterations.period_ns as f64),
        time(iterations.jitter_ns as f64)
    );
    for straggler in &iterations.stragglers {
        let mut sentence = format!(
            "straggler: rank {} begins iterations {} later than the others, because it needs this time before it sends (median; at least {})",
            straggler.rank,
            time(straggler.delay_ns as f64),
            time(straggler.delay_low_ns as f64)
        );
        if !straggler.or_ranks.is_empty() {
            let ranks: Vec<String> = straggler.or_ranks.iter().map(u32::to_string).collect();
            _ = write!(sentence, "; or it waits inside its node for rank {}", ranks.join(" or "));
        }
        _ = writeln!(text, "{}", wrap(&sentence, 80));
    }
    if iterations.stragglers.is_empty() && iterations.compared == iterations.ranks.len() {
        text.push_str("no straggler: no rank begins most iterations late\n");
    } else if iterations.stragglers.is_empty() {
        let sentence = format!(
            "stragglers not known, because only {} of {} begin iterations with the same message",
            iterations.compared,
            count_of(iterations.ranks.len() as u64, "rank")
        );
        _ = writeln!(text, "{}", wrap(&sentence, 80));
    }
    let rows = iterations.ranks.iter().map(|own| (*own, iterations.whole.saturating_sub(1)));
    _ = writeln!(text, "\nshare of the time of each rank\n{}\n", ranks_table().text(rows));
    let shown = iterations.waits.iter().take(LISTED_PAIRS).map(|pair| WaitRow { job: job.job, pair });
    _ = writeln!(text, "who waits for whom, longest first\n{}", pairs_table().text(shown));
    let more = iterations.waits.len().saturating_sub(LISTED_PAIRS);
    if more > 0 {
        _ = writeln!(text, "{} more; csv and json have all", group(more as u64));
    }
    text
}

fn pairs(job: &JobWaits) -> impl Iterator<Item = WaitRow<'_>> {
    job.waits().iter().map(|pair| WaitRow { job: job.job, pair })
}

/// Writes one csv row per job and pair of ranks.
pub fn csv(jobs: &[JobWaits], out: &mut dyn Write) -> io::Result<()> {
    pairs_table().csv(jobs.iter().flat_map(pairs), out)
}

/// Writes one JSON object with a member per job.
pub fn json(jobs: &[JobWaits], out: &mut dyn Write) -> io::Result<()> {
    let jobs: Vec<Value> = jobs.iter().map(job_object).collect();
    write_document(out, "ibscope waits", VERSION, json!({ "jobs": jobs }))
}

fn job_object(job: &JobWaits) -> Value {
    let found = job.iterations.as_ref();
    let of = |value: fn(&Iterations) -> u64| found.ok().map(value);
    let ranks =
        found.map(|own| ranks_table().objects(own.ranks.iter().map(|times| (*times, own.whole.saturating_sub(1)))));
    let stragglers = found.map(|own| stragglers_table().objects(&own.stragglers));
    json!({
        "job": job.job,
        "ranks_seen": job.ranks_seen,
        "iterations": of(|own| own.count as u64),
        "messages": of(|own| own.messages as u64),
        "of_messages": of(|own| own.of_messages as u64),
        "period_ns": of(|own| own.period_ns),
        "jitter_ns": of(|own| own.jitter_ns),
        "unknown_because": found.err().map(|reason| reason.because()),
        "compared_ranks": of(|own| own.compared as u64),
        "stragglers": stragglers.unwrap_or_default(),
        "ranks": ranks.unwrap_or_default(),
        "waits": pairs_table().objects(pairs(job)),
    })
}
