//! Retention: deletes captures on the sinks and folders of runs that are older than a site keeps
//! them, or that exceed its quota, the oldest first.
//!
//! Only names of ibscope's own runs count. The age of a run counts from its end: a long job would
//! otherwise lose its capture when it ends. Files of a run whose journal is open or whose analysis has not
//! ended stay, whatever their age and size, and so does a file that a process has as an argument, such as
//! an analysis. A run that cannot be deleted does not keep the others.

use crate::analysis::PendingAnalyses;
use crate::config::Config;
use crate::context::{FailureText, RunContext};
use crate::folder::Folder;
use crate::journal::State;
use crate::log::{Level, Log};
use crate::manifest;
use crate::remote::process::RemoteNode;
use crate::remote::{Files, parallel};
use crate::sink;
use crate::step::PlanStep;
use crate::timestamp::{now_s, timestamp};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Time limit of the work on a sink.
const SINK_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for deleting the folder of a run, which may have many large files.
const DELETE_TIMEOUT: Duration = Duration::from_mins(10);
const SECONDS_PER_DAY: u64 = 86_400;

/// Limits of a folder.
struct RetentionLimits {
    /// Runs that ended before this timestamp are deleted.
    oldest: Option<String>,
    /// Largest number of bytes that remain.
    most_bytes: Option<u64>,
}

/// Files of a run in a folder.
#[derive(Debug, Default, PartialEq, Eq)]
struct StoredRun {
    names: Vec<OsString>,
    bytes: u64,
    /// Time in seconds since the epoch at which the last file was changed; `None` if it proves nothing,
    /// because somebody else could have set it.
    changed_s: Option<u64>,
    /// True if a process uses one of the files.
    is_used: bool,
}

/// Runs in a folder, by name.
type StoredRuns = BTreeMap<String, StoredRun>;

/// What the state folder shows about runs.
#[derive(Default)]
struct KnownRuns<'a> {
    /// Names of the runs whose journals are open, and `ibscope-JOB-` for a job whose journal cannot be read.
    open: BTreeSet<String>,
    /// Closed journals by job id, the oldest first: timestamp of the opening, and time of the end in seconds
    /// since the epoch.
    closed: BTreeMap<String, Vec<(String, u64)>>,
    /// Runs whose analysis has not ended.
    pending: Option<PendingAnalyses<'a>>,
}

impl<'a> KnownRuns<'a> {
    fn read(config: &'a Config, runner: &'a dyn Files) -> Result<Self, FailureText> {
        let state = State::open(&config.run.state_dir).map_err(|error| error.to_string())?;
        let open = state.journals().map_err(|error| error.to_string())?.into_iter().map(|stored| match stored.record {
            Ok(record) => record.plan.run_name(),
            Err(_) => format!("ibscope-{}-", stored.job_id),
        });
        let pending = PendingAnalyses::open(config, runner);
        Ok(Self { open: open.collect(), closed: closed(&config.run.state_dir), pending })
    }

    /// True if a run is not deleted, whatever its age. Asks Slurm only about runs with an analysis.
    fn keeps(&self, name: &str) -> bool {
        self.open.iter().any(|open| name == open || open.ends_with('-') && name.starts_with(open.as_str()))
            || self.pending.as_ref().is_some_and(|pending| pending.contains(name))
    }

    /// Timestamp of the end of a run: by its journal, or else by its files, or else of its start.
    fn age_key(&self, name: &str, run: &StoredRun) -> String {
        let mut words = name.split('-').skip(1);
        let (job, started) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        // The next run of the job is planned only after the journal of this one was opened.
        let is_own = |journal: &&(String, u64)| journal.0.as_str() >= started;
        let ended = self.closed.get(job).and_then(|journals| journals.iter().find(is_own));
        let ended_s = ended.map(|journal| journal.1).or(run.changed_s).unwrap_or(0);
        // A clock that was wrong keeps no run for years.
        timestamp(ended_s.min(now_s())).max(started.to_owned())
    }
}

/// Closed journals by job id. Their plans, which may be long, are not read: the name has job and opening,
/// and the last change is the last line, which ends the run.
fn closed(state_dir: &Path) -> BTreeMap<String, Vec<(String, u64)>> {
    let mut journals: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
    // Without the folder, the files of the runs show their end.
    let Ok(folder) = Folder::open(&state_dir.join("closed")) else { return journals };
    for name in folder.names().unwrap_or_default() {
        let ended = fs::symlink_metadata(folder.path().join(&name)).ok().and_then(|found| modified_s(&found));
        let name = name.to_string_lossy();
        let parts = || name.strip_prefix("job-")?.strip_suffix(".journal")?.split_once('-');
        if let (Some(ended_s), Some((job, opened_ns))) = (ended, parts())
            && let Ok(opened_ns) = opened_ns.parse::<u64>()
        {
            let opened = timestamp(opened_ns / 1_000_000_000);
            journals.entry(job.to_owned()).or_default().push((opened, ended_s));
        }
    }
    journals.values_mut().for_each(|journals| journals.sort());
    journals
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

/// Deletes what exceeds the limits of sinks and of the collect folder. Returns the faults.
pub(crate) fn retain(config: &Config, runner: &dyn Files, log: &Log) -> Result<(), Vec<String>> {
    let (capture, collect) = (&config.capture, &config.collect);
    let mut faults = Vec::new();
    if collect.keep_days.is_some() || collect.disk_limit_bytes.is_some() {
        faults.extend(retain_collected(config, runner, log));
    }
    if capture.keep_days.is_some() || capture.disk_limit_bytes.is_some() {
        let deadline = Instant::now() + SINK_TIMEOUT;
        let context = RunContext { config, runner, deadline, command_log: None };
        let nodes = sinks(config).unwrap_or_else(|fault| {
            faults.push(fault);
            BTreeSet::new()
        });
        let nodes: Vec<String> = nodes.into_iter().collect();
        let reports = parallel(&nodes, context.parallelism(), |node| trim(context, node, &capture.directory));
        for (node, report) in nodes.iter().zip(reports) {
            match report {
                Ok(report) => {
                    let deleted = |name: &String| log.write(Level::Info, &format!("{node}: deleted {name}"));
                    report.deleted.iter().for_each(deleted);
                    faults.extend(report.faults);
                }
                Err(fault) => faults.push(fault),
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Deletes captures on a node until there is room for one more. An error if files of open runs leave
/// no room.
pub(crate) fn make_room(context: RunContext<'_>, node: &str, folder: &Path) -> Result<(), FailureText> {
    let capture = &context.config.capture;
    let Some(limit_bytes) = capture.disk_limit_bytes else { return Ok(()) };
    let report = trim(context, node, folder)?;
    let new_bytes = capture.needed_bytes().unwrap_or(0);
    if report.left_bytes.saturating_add(new_bytes) > limit_bytes {
        let faults: String = report.faults.iter().flat_map(|fault| ["; ", fault]).collect();
        return Err(format!(
            "{node}: captures that are in use or cannot be deleted have {} bytes in {}, so a new one of {new_bytes} bytes \
             (capture.max_bytes) would exceed {limit_bytes} bytes (capture.disk_limit_bytes){faults}",
            report.left_bytes,
            folder.display()
        ));
    }
    Ok(())
}

/// Result of the retention in a folder.
#[derive(Debug, Default, PartialEq, Eq)]
struct TrimReport {
    /// Names of the runs that were deleted.
    deleted: Vec<String>,
    /// Runs that could not be deleted, one sentence each.
    faults: Vec<FailureText>,
    /// Bytes that remain.
    left_bytes: u64,
}

impl TrimReport {
    /// Deletes each of these runs.
    fn delete(
        runs: Vec<(String, &StoredRun)>,
        left_bytes: u64,
        delete: impl Fn(&StoredRun) -> Result<(), FailureText>,
    ) -> Self {
        let mut report = Self { left_bytes, ..Self::default() };
        for (name, run) in runs {
            match delete(run) {
                Ok(()) => report.deleted.push(name),
                Err(fault) => {
                    report.faults.push(fault);
                    report.left_bytes = report.left_bytes.saturating_add(run.bytes);
                }
            }
        }
        report
    }
}

/// Removes files and folders. Links in them are removed, not followed.
fn remove(node: &RemoteNode<'_>, folder: &Path, run: &StoredRun) -> Result<(), FailureText> {
    let paths: Vec<String> = run.names.iter().map(|name| folder.join(name).to_string_lossy().into_owned()).collect();
    let argv: Vec<&str> = ["/bin/rm", "-rf", "--"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    let first = paths.first().map_or("", String::as_str);
    node.query(&argv).map(drop).map_err(|error| format!("{first} cannot be deleted: {error}"))
}

/// Deletes captures on a node that exceed the limits.
fn trim(context: RunContext<'_>, node: &str, folder: &Path) -> Result<TrimReport, FailureText> {
    let capture = &context.config.capture;
    let on_node = context.node(node)?;
    sink::inspect(&on_node, node, folder)?;
    let printed = on_node.list_captures(folder).map_err(|error| error.to_string())?;
    let runs = listed(&printed);
    // Read after the files: a run that began in between has none of them.
    let known = KnownRuns::read(context.config, context.runner)?;
    let most_bytes = capture.disk_limit_bytes.map(|limit| limit.saturating_sub(capture.needed_bytes().unwrap_or(0)));
    let limits = RetentionLimits { oldest: oldest(capture.keep_days), most_bytes };
    let (delete, left_bytes) = choose(&runs, &known, &limits);
    Ok(TrimReport::delete(delete, left_bytes, |run| remove(&on_node, folder, run)))
}

/// Deletes folders of runs in the collect folder that exceed the limits. Returns the faults.
fn retain_collected(config: &Config, runner: &dyn Files, log: &Log) -> Vec<FailureText> {
    let directory = &config.collect.directory;
    if !directory.exists() {
        return Vec::new();
    }
    let failed = |error: io::Error| format!("{}: {error}; check collect.directory", directory.display());
    let report = (|| {
        // Nobody else can rename or replace the folders in it.
        let folder = Folder::open(directory).map_err(failed)?;
        let mut runs = StoredRuns::new();
        for name in folder.names().map_err(failed)? {
            if let Some(run) = name.to_str().and_then(run_of) {
                runs.insert(run, collected(&folder, name));
            }
        }
        let known = KnownRuns::read(config, runner)?;
        known.pending.iter().for_each(|pending| pending.forget_except(|run| directory.join(run).exists()));
        let limits =
            RetentionLimits { oldest: oldest(config.collect.keep_days), most_bytes: config.collect.disk_limit_bytes };
        let (delete, left_bytes) = choose(&runs, &known, &limits);
        let here = RemoteNode { runner, name: None, timeout: DELETE_TIMEOUT };
        // A tree of a user may be deeper than this process may open folders; rm has no such limit.
        Ok(TrimReport::delete(delete, left_bytes, |run| remove(&here, directory, run)))
    })();
    match report {
        Ok(report) => {
            let deleted = |name| log.write(Level::Info, &format!("deleted {}", directory.join(name).display()));
            report.deleted.iter().for_each(deleted);
            report.faults
        }
        Err(fault) => vec![fault],
    }
}

/// The folder of a run in the collect folder.
fn collected(directory: &Folder, name: OsString) -> StoredRun {
    let path = directory.path().join(&name);
    let sums = FolderSums::below(&path);
    let changed_s = match directory.inside(&name, 0o700, None) {
        Ok(folder) => manifest_end_s(&folder).or(sums.newest_s),
        // The owner of a folder can set the times in it, and would keep it forever. Its own creation is the
        // time at which the captures were fetched, after the job.
        Err(_) => fs::symlink_metadata(&path).ok().and_then(|found| seconds(found.created())),
    };
    StoredRun { names: vec![name], bytes: sums.bytes, changed_s, is_used: false }
}

/// End of a run by its manifest.
fn manifest_end_s(folder: &Folder) -> Option<u64> {
    /// The only key that counts here.
    #[derive(Deserialize)]
    struct ManifestEnd {
        ended_ns: Option<i64>,
    }
    let end: ManifestEnd = serde_json::from_slice(&folder.bytes(OsStr::new(manifest::FILE_NAME)).ok()?).ok()?;
    let ended_ns = end.ended_ns.filter(|ended_ns| *ended_ns > 0)?;
    u64::try_from(ended_ns / 1_000_000_000).ok()
}

/// Sums of a folder and everything below it. Links are not followed.
#[derive(Default)]
struct FolderSums {
    bytes: u64,
    /// Newest modification time, in seconds since the epoch.
    newest_s: Option<u64>,
}

impl FolderSums {
    fn below(path: &Path) -> Self {
        let mut sums = Self::default();
        let mut folders: Vec<PathBuf> = Vec::new();
        sums.add(path.to_owned(), fs::symlink_metadata(path), &mut folders);
        // Users make trees of any depth, so this is no recursion.
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                sums.add(entry.path(), entry.metadata(), &mut folders);
            }
        }
        sums
    }

    fn add(&mut self, path: PathBuf, found: io::Result<Metadata>, folders: &mut Vec<PathBuf>) {
        let Ok(found) = found else { return };
        self.newest_s = self.newest_s.max(modified_s(&found));
        if found.is_dir() {
            folders.push(path);
        } else {
            self.bytes = self.bytes.saturating_add(found.len());
        }
    }
}

fn modified_s(found: &Metadata) -> Option<u64> {
    seconds(found.modified())
}

fn seconds(time: io::Result<SystemTime>) -> Option<u64> {
    time.ok()?.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// Timestamp of the oldest end of a run to keep.
fn oldest(keep_days: Option<u64>) -> Option<String> {
    keep_days.map(|days| timestamp(now_s().saturating_sub(days.saturating_mul(SECONDS_PER_DAY))))
}

/// Name of the run that a file name begins with: `ibscope-JOB-TIMESTAMP`.
fn run_of(file: &str) -> Option<String> {
    let (job, rest) = file.strip_prefix("ibscope-")?.split_once('-')?;
    let time = rest.split('-').next()?;
    let is_time = time.len() == timestamp(0).len()
        && time.bytes().enumerate().all(|(place, byte)| match place {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    let is_job = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit());
    (is_job && is_time).then(|| format!("ibscope-{job}-{time}"))
}

/// Parses lines `bytes used changed name`, as the script that lists captures prints them.
fn listed(printed: &str) -> StoredRuns {
    let mut runs = StoredRuns::new();
    for line in printed.lines() {
        let mut words = line.splitn(4, ' ');
        let (Some(Ok(bytes)), Some(used), Some(Ok(changed_s)), Some(name)) =
            (words.next().map(str::parse::<u64>), words.next(), words.next().map(str::parse::<u64>), words.next())
        else {
            continue;
        };
        let Some(run) = run_of(name) else { continue };
        let run = runs.entry(run).or_default();
        run.names.push(name.into());
        run.bytes = run.bytes.saturating_add(bytes);
        // 0 stands for a time that another user could have set.
        run.changed_s = run.changed_s.max(Some(changed_s).filter(|changed_s| *changed_s > 0));
        run.is_used |= used != "0";
    }
    runs
}

/// The runs to delete, the one that ended first at the front, with the name of each; and the bytes that
/// remain.
fn choose<'a>(
    runs: &'a StoredRuns,
    known: &KnownRuns<'_>,
    limits: &RetentionLimits,
) -> (Vec<(String, &'a StoredRun)>, u64) {
    let mut bytes: u64 = runs.values().map(|run| run.bytes).sum();
    let mut by_age: Vec<(String, &String, &StoredRun)> =
        runs.iter().map(|(name, run)| (known.age_key(name, run), name, run)).collect();
    by_age.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let mut delete = Vec::new();
    for (ended, name, run) in by_age {
        let is_old = limits.oldest.as_ref().is_some_and(|oldest| ended < *oldest);
        let is_over = limits.most_bytes.is_some_and(|most| bytes > most);
        if (is_old || is_over) && !run.is_used && !known.keeps(name) {
            bytes -= run.bytes;
            delete.push((name.clone(), run));
        }
    }
    (delete, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::JournalEntry;
    use crate::remote::LocalRunner;
    use std::fs::{File, FileTimes};
    use std::os::unix::fs::{PermissionsExt as _, chown};
    use std::process::Command;

    const LISTED: &str = "100 0 0 ibscope-7-20211101T000000Z-sink1-mlx5_0-1.pcap\n\
                          10 0 0 ibscope-7-20211101T000000Z-sink1-mlx5_0-1.log\n\
                          200 0 0 ibscope-3-20211102T000000Z-sink1-mlx5_0-1.pcap\n\
                          300 1 0 ibscope-4-20211103T000000Z-sink1-mlx5_0-1.pcap\n\
                          400 0 0 ibscope-5-20211104T000000Z-sink1-mlx5_0-1.pcap\n\
                          999 0 0 ibscope-notes.txt\n999 0 0 ibscope-5-2021-sink1.pcap\n";
    const FIRST: &str = "ibscope-7-20211101T000000Z";
    const SECOND: &str = "ibscope-3-20211102T000000Z";
    const FOURTH: &str = "ibscope-5-20211104T000000Z";

    /// Open runs, and the ends of closed ones, whose journals were opened with their starts.
    fn known(open: &[&str], ended_s: &[(&str, u64)]) -> KnownRuns<'static> {
        let closed = ended_s.iter().map(|&(name, ended_s)| {
            let words: Vec<&str> = name.split('-').collect();
            (words[1].to_owned(), vec![("20200101T000000Z".to_owned(), 1), (words[2].to_owned(), ended_s)])
        });
        KnownRuns { open: open.iter().map(|&name| name.to_owned()).collect(), closed: closed.collect(), pending: None }
    }

    fn chosen_of(
        printed: &str,
        known: &KnownRuns<'_>,
        oldest: Option<&str>,
        most_bytes: Option<u64>,
    ) -> (Vec<String>, u64) {
        let limits = RetentionLimits { oldest: oldest.map(str::to_owned), most_bytes };
        let runs = listed(printed);
        let (delete, left) = choose(&runs, known, &limits);
        (delete.into_iter().map(|(name, _)| name).collect(), left)
    }

    fn chosen(open: &[&str], oldest: Option<&str>, most_bytes: Option<u64>) -> (Vec<String>, u64) {
        chosen_of(LISTED, &known(open, &[]), oldest, most_bytes)
    }

    #[test]
    fn the_oldest_runs_are_deleted_and_neither_open_ones_nor_used_ones() {
        let [first, second, fourth] = [FIRST, SECOND, FOURTH].map(str::to_owned);
        // 1010 bytes in all; the other two names are not those of runs.
        assert_eq!(chosen(&[], None, None), (vec![], 1010));
        assert_eq!(chosen(&[], None, Some(1010)), (vec![], 1010));
        assert_eq!(chosen(&[], None, Some(900)), (vec![first.clone()], 900));
        assert_eq!(chosen(&[], None, Some(899)), (vec![first.clone(), second.clone()], 700));
        // A process uses the third one.
        assert_eq!(chosen(&[], None, Some(0)), (vec![first.clone(), second.clone(), fourth.clone()], 300));
        assert_eq!(chosen(&[FIRST], None, Some(0)), (vec![second.clone(), fourth], 410));
        // A journal that cannot be read keeps all runs of its job.
        assert_eq!(chosen(&["ibscope-7-"], None, Some(900)), (vec![second], 810));
        assert_eq!(chosen(&[], Some("20211102T000000Z"), None), (vec![first], 900));
        assert_eq!(chosen(&[], Some("20220101T000000Z"), None).1, 300);
    }

    /// 2021-11-05, 2021-11-06 and 2021-11-07, each at midnight.
    const ENDS_S: [u64; 3] = [1_636_070_400, 1_636_156_800, 1_636_243_200];

    /// A job that began first and ends last is the newest, by its journal or by its files.
    #[test]
    fn age_counts_from_the_end_of_a_run() {
        assert_eq!(ENDS_S.map(timestamp), ["20211105T000000Z", "20211106T000000Z", "20211107T000000Z"]);
        let [first, second, fourth] = [FIRST, SECOND, FOURTH].map(str::to_owned);
        let by_journal = known(&[], &[(FIRST, ENDS_S[1])]);
        assert_eq!(
            chosen_of(LISTED, &by_journal, Some("20211104T120000Z"), None),
            (vec![second.clone(), fourth.clone()], 410)
        );
        assert_eq!(chosen_of(LISTED, &by_journal, None, Some(900)), (vec![second.clone()], 810));
        assert_eq!(chosen_of(LISTED, &by_journal, None, Some(300)), (vec![second, fourth, first], 300));
        // The newest file of a run counts.
        let printed = format!(
            "1 0 {} {FIRST}-a.pcap\n1 0 {} {FIRST}-a.log\n1 0 0 {FIRST}-a.ibp\n1 0 {} {SECOND}-a.pcap\n",
            ENDS_S[0], ENDS_S[2], ENDS_S[1]
        );
        let oldest_first = |known: &KnownRuns<'_>| chosen_of(&printed, known, None, Some(0)).0;
        assert_eq!(oldest_first(&known(&[], &[])), [SECOND, FIRST]);
        // The journal counts more than the files, which a user may have touched.
        assert_eq!(oldest_first(&known(&[], &[(FIRST, ENDS_S[0])])), [FIRST, SECOND]);
        // An end before the start, or in the future, is wrong.
        assert_eq!(known(&[], &[(FIRST, 0)]).age_key(FIRST, &StoredRun::default()), "20211101T000000Z");
        let future = known(&[], &[(FIRST, u64::MAX)]).age_key(FIRST, &StoredRun::default());
        assert!(future <= timestamp(now_s()).max("20211101T000000Z".to_owned()), "{future}");
    }

    fn site(home: &Path, limits: &str) -> Config {
        let text = format!(
            "[ssh]\nkey = \"/k\"\nknown_hosts = \"/h\"\n[mirror]\nbackend = \"none\"\n[capture]\nbackend = \"ibdump\"\n\
             directory = \"/c\"\n[collect]\ndirectory = \"{0}/runs\"\n{limits}\n[run]\nsyslog = false\nstate_dir = \"{0}/state\"\n",
            home.display()
        );
        Config::parse(&text, Path::new("x")).unwrap()
    }

    /// A folder of a run that began on a day of January 2020, whose files were changed a day later.
    fn begin(home: &Path, day: u64) -> OsString {
        let name = format!("ibscope-{day}-202001{day:02}T000000Z");
        let folder = home.join("runs").join(&name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.pcap"), "packets").unwrap();
        for path in [home.join("runs"), folder.clone()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800 + day * SECONDS_PER_DAY);
        for path in [folder.join("a.pcap"), folder] {
            set_changed(&path, changed);
        }
        name.into()
    }

    fn set_changed(path: &Path, changed: SystemTime) {
        File::open(path).unwrap().set_times(FileTimes::new().set_modified(changed)).unwrap();
    }

    fn left(home: &Path) -> Vec<String> {
        let names = fs::read_dir(home.join("runs")).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The folder of a run in the collect folder shows its end by the manifest, or else by its newest file,
    /// unless it belongs to another user.
    #[test]
    fn the_end_of_a_collected_run_is_that_of_its_manifest() {
        let home = tempfile::tempdir().unwrap();
        let name = begin(home.path(), 3);
        let path = home.path().join("runs").join(&name);
        let runs = Folder::open(&home.path().join("runs")).unwrap();
        let run = || collected(&runs, name.clone());
        assert_eq!((run().bytes, run().changed_s), (7, Some(1_577_836_800 + 3 * SECONDS_PER_DAY)));
        let write = |text: &str| fs::write(path.join(manifest::FILE_NAME), text).unwrap();
        write(&format!("{{\"version\":1,\"job_id\":3,\"ended_ns\":{}000000007}}", ENDS_S[0]));
        assert_eq!(run().changed_s, Some(ENDS_S[0]));
        for unknown in ["{}", "{\"ended_ns\":null}", "{\"ended_ns\":-7}", "no manifest"] {
            write(unknown);
            assert!(run().changed_s > Some(ENDS_S[0]), "{unknown}: the file was written now");
        }
        // The owner of the folder sets the end to the far future.
        if chown(&path, Some(65_534), None).is_ok() {
            write(&format!("{{\"ended_ns\":{}000000000}}", 2 * ENDS_S[0]));
            assert!(run().changed_s.is_none_or(|changed_s| changed_s <= now_s()));
        } else {
            eprintln!("SKIPPED: only root can give folders to others");
        }
    }

    /// A run that cannot be deleted is a fault with its path, and the others are deleted.
    #[test]
    fn a_run_that_cannot_be_deleted_keeps_no_others() {
        let run = |name: &str, bytes| StoredRun { names: vec![name.into()], bytes, ..StoredRun::default() };
        let runs = [("a", 1), ("b", 10), ("c", 100)].map(|(name, bytes)| (name.to_owned(), run(name, bytes)));
        let delete = runs.iter().map(|(name, run)| (name.clone(), run)).collect();
        let report = TrimReport::delete(delete, 1000, |run| {
            if run.names == ["b"] { Err("b cannot be deleted".to_owned()) } else { Ok(()) }
        });
        let expected = TrimReport {
            deleted: vec!["a".to_owned(), "c".to_owned()],
            faults: vec!["b cannot be deleted".to_owned()],
            left_bytes: 1010,
        };
        assert_eq!(report, expected);
        // The error names the path. Nobody can delete files of /proc.
        let runner = LocalRunner::default();
        let node = RemoteNode { runner: &runner, name: None, timeout: DELETE_TIMEOUT };
        let fault = remove(&node, Path::new("/proc/self"), &run("stat", 1)).unwrap_err();
        assert!(fault.starts_with("/proc/self/stat cannot be deleted: "), "{fault}");
    }

    /// A tree that is deeper than a process may open folders is deleted, and so are the runs after it. A run
    /// whose analysis has not ended stays.
    #[test]
    fn deep_trees_are_deleted_and_pending_analyses_stay() {
        let home = tempfile::tempdir().unwrap();
        let [deep, pending, other] = [1, 2, 3].map(|day| begin(home.path(), day));
        let made = Command::new("/bin/sh")
            .args(["-c", "i=0; while [ $i -lt 1500 ]; do mkdir d && cd d || exit 1; i=$((i+1)); done"])
            .current_dir(home.path().join("runs").join(&deep))
            .status();
        assert!(made.unwrap().success());
        // The folders in it are new, but the run is not.
        let manifest = home.path().join("runs").join(&deep).join(manifest::FILE_NAME);
        fs::write(manifest, "{\"ended_ns\":1577836800000000000}").unwrap();
        let config = site(home.path(), "keep_days = 30");
        drop(State::open(&config.run.state_dir).unwrap());
        let note = config.run.state_dir.join(format!("{}.analysis", pending.to_string_lossy()));
        fs::write(&note, format!("{{\"until_s\":{}}}", now_s() + 3600)).unwrap();
        let log = home.path().join("log");
        let log_to = Log::open(Some(&log), false, "retention");
        assert_eq!(retain(&config, &LocalRunner::default(), &log_to), Ok(()));
        assert_eq!(left(home.path()), [pending.to_string_lossy()]);
        let text = fs::read_to_string(&log).unwrap();
        assert!([&deep, &other].iter().all(|name| text.contains(&*name.to_string_lossy())), "{text}");
        // The analysis has ended.
        fs::write(&note, "{\"until_s\":1}").unwrap();
        assert_eq!(retain(&config, &LocalRunner::default(), &log_to), Ok(()));
        assert!(left(home.path()).is_empty() && !note.exists());
    }

    /// The journal of a run that has just ended shows its end, whatever its start and its files say.
    #[test]
    fn a_run_that_has_just_ended_stays() {
        let home = tempfile::tempdir().unwrap();
        let [long, short] = [1, 2].map(|day| begin(home.path(), day));
        let config = site(home.path(), "keep_days = 30");
        let state = State::open(&config.run.state_dir).unwrap();
        let plan = crate::plan::CapturePlan {
            job: crate::job::SlurmJob { id: 1, ..crate::job::SlurmJob::default() },
            started_s: 1_577_836_800,
            compute: Vec::new(),
            sinks: Vec::new(),
            steps: Vec::new(),
            warnings: Vec::new(),
            hostfile: Vec::new(),
        };
        assert_eq!(OsString::from(plan.run_name()), long);
        let deadline = Instant::now() + SINK_TIMEOUT;
        let lock = state.lock_job(1, deadline).unwrap();
        let journal = state.lock_plan(deadline).unwrap().create(plan, None, lock).unwrap();
        journal.write(&JournalEntry::Closed { at_ns: 0, manifest: None }).unwrap();
        state.move_to_closed(journal.path()).unwrap();
        assert_eq!(retain(&config, &LocalRunner::default(), &Log::open(None, false, "")), Ok(()));
        assert_eq!(left(home.path()), [long.to_string_lossy()], "{short:?} ended long ago");
    }
}
