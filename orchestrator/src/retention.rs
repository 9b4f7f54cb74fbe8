//! Retention: deletes captures on the sinks and folders of runs that are older than a site keeps
//! them, or that exceed its quota, the oldest first.
//!
//! Only names of ibscope's own runs count. Files of a run whose journal is open stay, whatever their
//! age and size, and so does a file that a process has as an argument, such as an analysis.

use crate::config::Config;
use crate::context::{FailureText, RunContext};
use crate::folder::Folder;
use crate::journal::State;
use crate::log::{Level, Log};
use crate::remote::{Files, parallel};
use crate::sink;
use crate::step::PlanStep;
use crate::timestamp::timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Time limit of the work on a sink.
const SINK_TIMEOUT: Duration = Duration::from_secs(30);
const SECONDS_PER_DAY: u64 = 86_400;

/// Limits of a folder.
struct RetentionLimits {
    /// Runs that began before this timestamp are deleted.
    oldest: Option<String>,
    /// Largest number of bytes that remain.
    most_bytes: Option<u64>,
}

/// Files of a run in a folder.
#[derive(Debug, Default, PartialEq, Eq)]
struct StoredRun {
    names: Vec<OsString>,
    bytes: u64,
    /// True if a process uses one of the files.
    is_used: bool,
}

/// Runs in a folder, by timestamp and name.
type StoredRuns = BTreeMap<(String, String), StoredRun>;

/// Deletes what exceeds the limits of sinks and of the collect folder. Returns the faults.
pub(crate) fn retain(config: &Config, runner: &dyn Files, log: &Log) -> Result<(), Vec<String>> {
    let (capture, collect) = (&config.capture, &config.collect);
    let mut faults = Vec::new();
    if collect.keep_days.is_some() || collect.disk_limit_bytes.is_some() {
        faults.extend(retain_collected(config, log).err());
    }
    if capture.keep_days.is_some() || capture.disk_limit_bytes.is_some() {
        let deadline = Instant::now() + SINK_TIMEOUT;
        let context = RunContext { config, runner, deadline, command_log: None };
        let nodes = sinks(config).unwrap_or_else(|fault| {
            faults.push(fault);
            BTreeSet::new()
        });
        let nodes: Vec<String> = nodes.into_iter().collect();
        let deleted = parallel(&nodes, context.parallelism(), |node| trim(context, node, &capture.directory));
        for (node, deleted) in nodes.iter().zip(deleted) {
            match deleted {
                Ok((names, _)) => {
                    names.iter().for_each(|name| log.write(Level::Info, &format!("{node}: deleted {name}")));
                }
                Err(fault) => faults.push(fault),
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Nodes that have captured: the reserved sinks, and those of the closed runs.
fn sinks(config: &Config) -> Result<BTreeSet<String>, FailureText> {
    let state = State::open(&config.run.state_dir).map_err(|error| error.to_string())?;
    let closed = state.closed_journals().map_err(|error| error.to_string())?;
    let of_runs = closed.into_iter().filter_map(|stored| stored.record.ok()).flat_map(|record| record.plan.steps);
    let nodes = of_runs.filter_map(|step| match step {
        PlanStep::Capture(step) => Some(step.node),
        _ => None,
    });
    Ok(nodes.chain(config.sinks.nodes.iter().cloned()).collect())
}

/// Deletes captures on a node until there is room for one more. An error if files of open runs leave
/// no room.
pub(crate) fn make_room(context: RunContext<'_>, node: &str, folder: &Path) -> Result<(), FailureText> {
    let capture = &context.config.capture;
    let Some(limit_bytes) = capture.disk_limit_bytes else { return Ok(()) };
    let (_, left_bytes) = trim(context, node, folder)?;
    let new_bytes = capture.needed_bytes().unwrap_or(0);
    if left_bytes.saturating_add(new_bytes) > limit_bytes {
        return Err(format!(
            "{node}: captures that are still in use have {left_bytes} bytes in {}, so a new one of {new_bytes} bytes \
             (capture.max_bytes) would exceed {limit_bytes} bytes (capture.disk_limit_bytes)",
            folder.display()
        ));
    }
    Ok(())
}

/// Deletes captures on a node that exceed the limits. Returns the names of their runs, and the bytes
/// that remain.
fn trim(context: RunContext<'_>, node: &str, folder: &Path) -> Result<(Vec<String>, u64), FailureText> {
    let capture = &context.config.capture;
    let on_node = context.node(node)?;
    sink::inspect(&on_node, node, folder)?;
    let printed = on_node.list_captures(folder).map_err(|error| error.to_string())?;
    let runs = listed(&printed);
    // Read after the files: a run that began in between has none of them.
    let open = open_runs(context.config)?;
    let most_bytes = capture.disk_limit_bytes.map(|limit| limit.saturating_sub(capture.needed_bytes().unwrap_or(0)));
    let limits = RetentionLimits { oldest: oldest(capture.keep_days), most_bytes };
    let (delete, left_bytes) = choose(&runs, &open, &limits);
    for (_, run) in &delete {
        let paths: Vec<String> =
            run.names.iter().map(|name| folder.join(name).to_string_lossy().into_owned()).collect();
        let argv: Vec<&str> = ["/bin/rm", "-rf", "--"].into_iter().chain(paths.iter().map(String::as_str)).collect();
        on_node.query(&argv).map_err(|error| error.to_string())?;
    }
    Ok((delete.into_iter().map(|(name, _)| name).collect(), left_bytes))
}

/// Deletes folders of runs in the collect folder that exceed the limits.
fn retain_collected(config: &Config, log: &Log) -> Result<(), FailureText> {
    let directory = &config.collect.directory;
    let failed = |error: std::io::Error| format!("{}: {error}; check collect.directory", directory.display());
    if !directory.exists() {
        return Ok(());
    }
    // Nobody else can rename or replace the folders in it.
    let folder = Folder::open(directory).map_err(failed)?;
    let mut runs = StoredRuns::new();
    for name in folder.names().map_err(failed)? {
        if let Some(key) = name.to_str().and_then(run_of) {
            let bytes = bytes_below(&directory.join(&name));
            runs.insert(key, StoredRun { names: vec![name], bytes, is_used: false });
        }
    }
    let open = open_runs(config)?;
    let limits =
        RetentionLimits { oldest: oldest(config.collect.keep_days), most_bytes: config.collect.disk_limit_bytes };
    for (name, _) in choose(&runs, &open, &limits).0 {
        // Links inside a folder are removed, not followed.
        fs::remove_dir_all(directory.join(&name)).map_err(failed)?;
        log.write(Level::Info, &format!("deleted {}", directory.join(&name).display()));
    }
    Ok(())
}

/// Sum of the sizes of all files below a path. Links are not followed.
fn bytes_below(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    if !metadata.is_dir() {
        return metadata.len();
    }
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| bytes_below(&entry.path())).sum()
}

/// Names of the runs whose journals are open, and the ids of jobs whose journals cannot be read.
fn open_runs(config: &Config) -> Result<BTreeSet<String>, FailureText> {
    let journals = State::open(&config.run.state_dir).and_then(|state| state.journals());
    let journals = journals.map_err(|error| error.to_string())?;
    let name = |stored: crate::journal::StoredJournal| match stored.record {
        Ok(record) => record.plan.run_name(),
        Err(_) => format!("ibscope-{}-", stored.job_id),
    };
    Ok(journals.into_iter().map(name).collect())
}

/// Timestamp of the oldest run to keep.
fn oldest(keep_days: Option<u64>) -> Option<String> {
    let now_s = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    keep_days.map(|days| timestamp(now_s.saturating_sub(days.saturating_mul(SECONDS_PER_DAY))))
}

/// Timestamp and name of the run that a file name begins with: `ibscope-JOB-TIMESTAMP`.
fn run_of(file: &str) -> Option<(String, String)> {
    let (job, rest) = file.strip_prefix("ibscope-")?.split_once('-')?;
    let time = rest.split('-').next()?;
    let is_time = time.len() == timestamp(0).len()
        && time.bytes().enumerate().all(|(place, byte)| match place {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    let is_job = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit());
    (is_job && is_time).then(|| (time.to_owned(), format!("ibscope-{job}-{time}")))
}

/// Parses lines `bytes used name`.
fn listed(printed: &str) -> StoredRuns {
    let mut runs = StoredRuns::new();
    for line in printed.lines() {
        let mut words = line.splitn(3, ' ');
        let (Some(Ok(bytes)), Some(used), Some(name)) =
            (words.next().map(str::parse::<u64>), words.next(), words.next())
        else {
            continue;
        };
        let Some(key) = run_of(name) else { continue };
        let run = runs.entry(key).or_default();
        run.names.push(name.into());
        run.bytes = run.bytes.saturating_add(bytes);
        run.is_used |= used != "0";
    }
    runs
}

/// The runs to delete, the oldest first, with the name of each; and the bytes that remain.
fn choose<'a>(
    runs: &'a StoredRuns,
    open: &BTreeSet<String>,
    limits: &RetentionLimits,
) -> (Vec<(String, &'a StoredRun)>, u64) {
    let mut bytes: u64 = runs.values().map(|run| run.bytes).sum();
    let mut delete = Vec::new();
    for ((time, name), run) in runs {
        let is_open = open.iter().any(|open| name == open || open.ends_with('-') && name.starts_with(open.as_str()));
        let is_old = limits.oldest.as_ref().is_some_and(|oldest| time < oldest);
        let is_over = limits.most_bytes.is_some_and(|most| bytes > most);
        if !is_open && !run.is_used && (is_old || is_over) {
            bytes -= run.bytes;
            delete.push((name.clone(), run));
        }
    }
    (delete, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "100 0 ibscope-7-20261101T000000Z-sink1-mlx5_0-1.pcap\n\
                          10 0 ibscope-7-20261101T000000Z-sink1-mlx5_0-1.log\n\
                          200 0 ibscope-3-20261102T000000Z-sink1-mlx5_0-1.pcap\n\
                          300 1 ibscope-4-20261103T000000Z-sink1-mlx5_0-1.pcap\n\
                          400 0 ibscope-5-20261104T000000Z-sink1-mlx5_0-1.pcap\n\
                          999 0 ibscope-notes.txt\n999 0 ibscope-5-2026-sink1.pcap\n";

    fn chosen(open: &[&str], oldest: Option<&str>, most_bytes: Option<u64>) -> (Vec<String>, u64) {
        let open = open.iter().map(|&name| name.to_owned()).collect();
        let limits = RetentionLimits { oldest: oldest.map(str::to_owned), most_bytes };
        let runs = listed(LISTED);
        let (delete, left) = choose(&runs, &open, &limits);
        (delete.into_iter().map(|(name, _)| name).collect(), left)
    }

    #[test]
    fn the_oldest_runs_are_deleted_and_neither_open_ones_nor_used_ones() {
        let [first, second, fourth] =
            ["ibscope-7-20261101T000000Z", "ibscope-3-20261102T000000Z", "ibscope-5-20261104T000000Z"];
        // 1010 bytes in all; the other two names are not those of runs.
        assert_eq!(chosen(&[], None, None), (vec![], 1010));
        assert_eq!(chosen(&[], None, Some(1010)), (vec![], 1010));
        assert_eq!(chosen(&[], None, Some(900)), (vec![first.to_owned()], 900));
        assert_eq!(chosen(&[], None, Some(899)), (vec![first.to_owned(), second.to_owned()], 700));
        // A process uses the third one.
        assert_eq!(chosen(&[], None, Some(0)), (vec![first.to_owned(), second.to_owned(), fourth.to_owned()], 300));
        assert_eq!(chosen(&[first], None, Some(0)), (vec![second.to_owned(), fourth.to_owned()], 410));
        // A journal that cannot be read keeps all runs of its job.
        assert_eq!(chosen(&["ibscope-7-"], None, Some(900)), (vec![second.to_owned()], 810));
        assert_eq!(chosen(&[], Some("20261102T000000Z"), None), (vec![first.to_owned()], 900));
        assert_eq!(chosen(&[], Some("20270101T000000Z"), None).1, 300);
    }
}
