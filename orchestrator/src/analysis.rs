//! Starts `ibscope analyze` after the captures have ended: on each sink, or as a Slurm batch job. Merges
//! the partial profiles of captures that keep only a profile.
//!
//! The input is the report of an undone run; the output is a line for the log. The caller waits
//! only for the start of an analysis, never for its end, and for a merge only a few seconds. A run whose
//! analysis has not ended is listed in the state folder, so that retention keeps it.

use crate::config::{AnalysisLocation, CaptureMode, Config, NOT_CAPTURED};
use crate::folder::Folder;
use crate::log::{self, Level, Log};
use crate::quote;
use crate::remote::{LocalRunner, RemoteError, Runner};
use crate::status::{self, JobState};
use crate::text::printable;
use crate::timestamp::now_s;
use crate::undo::UndoReport;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::{Condvar, Mutex, Once, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// Time limit for starting an analysis.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a merge of partial profiles.
const MERGE_TIMEOUT: Duration = Duration::from_hours(1);
/// A hook waits this long for a merge. Then the merge goes on in the background.
const MERGE_PATIENCE: Duration = Duration::from_secs(5);

/// Shell script that starts its arguments detached from the ssh connection.
const DETACHED_SCRIPT: &str = r#": ibscope-analyze; umask 077; exec setsid -f "$@" >/dev/null 2>&1 </dev/null"#;

/// Words before a command that run it so that others cannot read the files that it creates.
const PRIVATE_SHELL: [&str; 4] = ["/bin/sh", "-c", r#": ibscope-merge; umask 077; exec "$@""#, "sh"];

/// Reason why an analysis was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartAnalysisError {
    /// A program could not be run.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// A program ran and failed.
    #[error("{program} ended with status {status}: {printed}")]
    Program {
        /// Program that failed.
        program: String,
        /// Exit status of the program.
        status: i32,
        /// Standard error of the program.
        printed: String,
    },
    /// The profiles of the sinks were not merged.
    #[error("the profiles of the sinks are not merged: {source}; to merge them by hand, run `{command}`")]
    Merge {
        /// Reason.
        source: Box<StartAnalysisError>,
        /// Command that merges them.
        command: String,
    },
}

/// Starts the analysis that the configuration requests. Returns a line for the log, or `None` if
/// there is nothing to analyze.
pub fn start_analysis(
    config: &Config,
    undone: &UndoReport,
    runner: &dyn Runner,
) -> Result<Option<String>, StartAnalysisError> {
    let config = &config.for_user(undone.user_id);
    // A run that is not closed is undone again, and analyzed then.
    if !undone.left.is_empty() {
        return Ok(None);
    }
    let Some(manifest) = &undone.manifest else { return Ok(None) };
    if config.capture.mode == CaptureMode::Profile {
        let merge = ProfileMerge::new(config, undone, manifest, runner)?;
        let run = |merge: ProfileMerge| {
            let unprotected = merge.protect().map_or(String::new(), |warning| format!("; {warning}"));
            merge.run(runner).map(|text| text + &unprotected)
        };
        return merge.map(run).transpose();
    }
    match config.analyze.after {
        AnalysisLocation::None => Ok(None),
        AnalysisLocation::Sink => on_sinks(config, undone, runner),
        AnalysisLocation::Sbatch => in_batch(config, undone, manifest, runner),
    }
}

/// Starts the analysis that the configuration requests, and logs the result. Waits only a few seconds for
/// a merge: see [`wait_for_merges`].
pub(crate) fn start_and_log(config: &Config, undone: &UndoReport, runner: &dyn Runner, log: &Log) {
    let merged = match &undone.manifest {
        Some(manifest) if undone.left.is_empty() && config.capture.mode == CaptureMode::Profile => {
            ProfileMerge::new(&config.for_user(undone.user_id), undone, manifest, runner)
        }
        _ => Ok(None),
    };
    match merged {
        Ok(Some(merge)) => merge.run_in_background(log),
        Ok(None) => log_result(log, start_analysis(config, undone, runner)),
        Err(error) => log_result(log, Err(error)),
    }
}

fn log_result(log: &Log, result: Result<Option<String>, StartAnalysisError>) {
    match result {
        Ok(None) => {}
        Ok(Some(text)) => log.write(Level::Info, &text),
        // A line of the log has 600 characters, which must not truncate the command.
        Err(StartAnalysisError::Merge { source, command }) => {
            log.write(Level::Error, &format!("the profiles of the sinks are not merged: {source}"));
            log.write(Level::Error, &format!("to merge them by hand, run `{command}`"));
        }
        Err(error) => log.write(Level::Error, &format!("the captures are not analyzed: {error}")),
    }
}

/// Number of merges that run in the background of this process.
static RUNNING_MERGES: Mutex<usize> = Mutex::new(0);
static MERGE_ENDED: Condvar = Condvar::new();

/// A merge that runs in the background, until it is dropped.
struct RunningMerge;

impl RunningMerge {
    fn begin() -> Self {
        *RUNNING_MERGES.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for RunningMerge {
    fn drop(&mut self) {
        *RUNNING_MERGES.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        MERGE_ENDED.notify_all();
    }
}

/// Waits until no merge runs in the background of this process, at most this long. True if none runs. A
/// process that ends earlier ends its merges.
pub fn wait_for_merges(time_limit: Duration) -> bool {
    let running = RUNNING_MERGES.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = MERGE_ENDED.wait_timeout_while(running, time_limit, |running| *running > 0);
    *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
}

/// A merge of the partial profiles of the sinks.
struct ProfileMerge {
    /// The command, without [`PRIVATE_SHELL`].
    argv: Vec<String>,
    /// The command as a user types it.
    command: String,
    /// Path of the merged profile.
    merged: String,
    pending: PendingFile,
}

impl ProfileMerge {
    /// The merge of the profiles of a run; `None` if there are none. It runs as the owner of the run: the
    /// folder belongs to the owner, who could put a link there.
    fn new(
        config: &Config,
        undone: &UndoReport,
        manifest: &Path,
        runner: &dyn Runner,
    ) -> Result<Option<Self>, StartAnalysisError> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let profiles: Vec<String> =
            undone.captures.iter().filter_map(|capture| Some(text(&capture.fetched.as_ref()?.file))).collect();
        if profiles.is_empty() {
            return Ok(None);
        }
        let merged = text(&manifest.with_file_name("job.ibp"));
        let mut argv = Vec::new();
        if let Some(owner) = &config.capture.owner {
            let group = match &owner.group {
                Some(group) => group.clone(),
                None => require_success(
                    runner,
                    None,
                    &["/usr/bin/id", "-g", "--", &owner.user].map(str::to_owned),
                    ANSWER_TIMEOUT,
                )?,
            };
            argv.extend(["/usr/bin/setpriv".to_owned(), format!("--reuid={}", owner.user)]);
            argv.extend([format!("--regid={}", group.trim()), "--clear-groups".to_owned(), "--".to_owned()]);
        }
        argv.extend([text(&config.tools.ibscope), "merge".to_owned()]);
        let last = ["--manifest".to_owned(), text(manifest), "-o".to_owned(), merged.clone()];
        // Hundreds of sinks do not fit into a line of the log.
        let folder = quote::argv_text(&[text(manifest.parent().unwrap_or(Path::new("/")))]);
        let command = format!("{} {folder}/*.ibp.tar {}", quote::argv_text(&argv), quote::argv_text(&last));
        argv.extend(profiles);
        argv.extend(last);
        Ok(Some(Self { argv, command, merged, pending: PendingFile::of(config, manifest) }))
    }

    /// Keeps retention from deleting the oldest run while it is merged. Returns a warning if this fails.
    fn protect(&self) -> Option<String> {
        let noted = self.pending.write(PendingAnalysis::UntilS(now_s() + MERGE_TIMEOUT.as_secs()));
        noted.err().map(|error| format!("the profiles are merged, but {}", unprotected_text(&error)))
    }

    /// Merges the profiles. Returns a line for the log.
    fn run(&self, runner: &dyn Runner) -> Result<String, StartAnalysisError> {
        let words = PRIVATE_SHELL.iter().map(|&word| word.to_owned());
        let argv: Vec<String> = words.chain(self.argv.iter().cloned()).collect();
        let merged = require_success(runner, None, &argv, MERGE_TIMEOUT);
        self.pending.remove();
        merged.map(|_| format!("profiles merged into {}", self.merged)).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: StartAnalysisError) -> StartAnalysisError {
        StartAnalysisError::Merge { source: Box::new(source), command: self.command.clone() }
    }

    /// Merges the profiles in a thread, which logs the result, and waits a few seconds for it.
    fn run_in_background(self, log: &Log) {
        let (send, ended) = mpsc::channel();
        let (running, own_log, command) = (RunningMerge::begin(), log.clone(), self.command.clone());
        let spawned = thread::Builder::new().spawn(move || {
            self.protect().iter().for_each(|warning| own_log.write(Level::Warning, warning));
            log_result(&own_log, self.run(&LocalRunner::default()).map(Some));
            // The receiver no longer waits after a while.
            let _ = send.send(());
            drop(running);
        });
        match spawned {
            Err(error) => log.write(
                Level::Error,
                &format!(
                    "the profiles of the sinks are not merged: no thread can be started: {error}; run `{command}`"
                ),
            ),
            Ok(_) if ended.recv_timeout(MERGE_PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) => {
                let minutes = MERGE_TIMEOUT.as_secs() / 60;
                log.write(
                    Level::Info,
                    &format!("the profiles of the sinks are merged in the background, for at most {minutes} minutes"),
                );
            }
            Ok(_) => {}
        }
    }
}

/// An analysis that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PendingAnalysis {
    /// A batch job.
    Job(u32),
    /// A merge, which ends by this time in seconds since the epoch.
    UntilS(u64),
}

/// End of the names of files in the state folder that list analyses that have not ended. The name begins
/// with that of the run.
const PENDING: &str = ".analysis";

/// The file in the state folder that lists the analysis of a run.
struct PendingFile {
    /// State folder; `None` if nothing is ever deleted.
    folder: Option<Folder>,
    name: OsString,
}

impl PendingFile {
    fn of(config: &Config, manifest: &Path) -> Self {
        let is_limited = config.collect.keep_days.is_some() || config.collect.disk_limit_bytes.is_some();
        let folder = is_limited.then(|| Folder::open(&config.run.state_dir).ok()).flatten();
        let mut name = manifest.parent().and_then(Path::file_name).unwrap_or_default().to_owned();
        name.push(PENDING);
        Self { folder, name }
    }

    fn write(&self, pending: PendingAnalysis) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        folder.replace(&self.name, &serde_json::to_vec(&pending)?, 0o600, None)
    }

    /// A file that cannot be removed keeps its run until the time in it.
    fn remove(&self) {
        drop(self.folder.as_ref().map(|folder| folder.remove(&self.name)));
    }
}

/// The analyses that have not ended, as the state folder lists them.
pub(crate) struct PendingAnalyses<'a> {
    config: &'a Config,
    runner: &'a dyn Runner,
    folder: Folder,
    /// False once Slurm did not answer: it is not asked again.
    answers: Cell<bool>,
}

impl<'a> PendingAnalyses<'a> {
    /// Opens the state folder; `None` if it cannot be used.
    pub(crate) fn open(config: &'a Config, runner: &'a dyn Runner) -> Option<Self> {
        let folder = Folder::open(&config.run.state_dir).ok()?;
        Some(Self { config, runner, folder, answers: Cell::new(true) })
    }

    /// True if the analysis of a run has not ended. If Slurm does not answer, its jobs count as running.
    pub(crate) fn contains(&self, run: &str) -> bool {
        let name = format!("{run}{PENDING}");
        let is_pending = match pending_in(&self.folder, name.as_ref()) {
            Ok(None) => return false,
            Err(what) => {
                self.warn_once(&name, &what);
                return true;
            }
            Ok(Some(PendingAnalysis::UntilS(until_s))) => now_s() < until_s,
            Ok(Some(PendingAnalysis::Job(_))) if !self.answers.get() => true,
            Ok(Some(PendingAnalysis::Job(job_id))) => match status::job_state(self.config, self.runner, job_id) {
                JobState::Live => true,
                JobState::Ended | JobState::Unknown => false,
                JobState::NoAnswer(..) => {
                    self.answers.set(false);
                    true
                }
            },
        };
        if !is_pending {
            self.forget(name.as_ref());
        }
        is_pending
    }

    /// Warns that a run is kept because of a damaged file.
    fn warn_once(&self, name: &str, what: &str) {
        static WARNED: Once = Once::new();
        let log = (self.config.run.log.as_deref(), self.config.run.syslog);
        log::warn_once(&WARNED, log, "retention", || {
            format!(
                "{}: {what}; the run is kept, because its analysis may not have ended; delete this file once it has",
                self.folder.path().join(name).display()
            )
        });
    }

    /// Forgets the analyses of runs that do not exist.
    pub(crate) fn forget_except(&self, exists: impl Fn(&str) -> bool) {
        for name in self.folder.names().unwrap_or_default() {
            if name.to_str().and_then(|name| name.strip_suffix(PENDING)).is_some_and(|run| !exists(run)) {
                self.forget(&name);
            }
        }
    }

    /// A file that cannot be removed only takes space.
    fn forget(&self, name: &OsStr) {
        let _ = self.folder.remove(name);
    }
}

/// The analysis that a file lists; `None` if there is no such file. The error is the fault of the file.
fn pending_in(folder: &Folder, name: &OsStr) -> Result<Option<PendingAnalysis>, String> {
    match folder.bytes(name) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| error.to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn unprotected_text(error: &io::Error) -> String {
    format!("retention may delete the run before its analysis ends: {error}")
}

fn on_sinks(config: &Config, undone: &UndoReport, runner: &dyn Runner) -> Result<Option<String>, StartAnalysisError> {
    let mut nodes = Vec::new();
    for capture in undone.captures.iter().filter(|capture| capture.fetched.is_some()) {
        let profile = capture.file.with_extension("ibp");
        let words = ["/bin/sh", "-c", DETACHED_SCRIPT, "sh"].map(str::to_owned).into_iter().chain(analyze(
            config,
            &[&capture.file],
            None,
            &profile,
        ));
        require_success(runner, Some(&capture.node), &words.collect::<Vec<_>>(), ANSWER_TIMEOUT)?;
        nodes.push(capture.node.as_str());
    }
    Ok((!nodes.is_empty()).then(|| format!("analysis started on {}", nodes.join(", "))))
}

fn in_batch(
    config: &Config,
    undone: &UndoReport,
    manifest: &Path,
    runner: &dyn Runner,
) -> Result<Option<String>, StartAnalysisError> {
    let folder = manifest.parent().unwrap_or(Path::new("/"));
    let files: Vec<&Path> =
        undone.captures.iter().filter_map(|capture| Some(capture.fetched.as_ref()?.file.as_path())).collect();
    if files.is_empty() {
        return Ok(None);
    }
    let words = analyze(config, &files, Some(manifest), &folder.join("job.ibp"));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut argv = vec![
        text(&config.tools.sbatch),
        "--parsable".to_owned(),
        format!("--output={}", text(&folder.join("analyze.log"))),
    ];
    // The folder belongs to its owner, who could put a link there: root must not write in it.
    if let Some(owner) = &config.capture.owner {
        argv.push(format!("--uid={}", owner.user));
        argv.extend(owner.group.iter().map(|group| format!("--gid={group}")));
    }
    argv.extend(config.analyze.sbatch.iter().cloned());
    // A site that captures all jobs must not capture this one.
    argv.push(format!("--comment={NOT_CAPTURED}"));
    // The call is passed inline: the owner of the folder could replace a script file before it is
    // read.
    argv.push(format!("--wrap=exec {}", quote::join(words.iter().map(String::as_str))));
    let printed = require_success(runner, None, &argv, ANSWER_TIMEOUT)?;
    // `ID`, or `ID;CLUSTER`.
    let job_id = printed.split(';').next().and_then(|id| id.trim().parse().ok());
    let pending = PendingFile::of(config, manifest);
    let noted = match job_id {
        Some(id) => pending.write(PendingAnalysis::Job(id)),
        None if pending.folder.is_none() => Ok(()),
        None => Err(io::Error::other("sbatch printed no job id")),
    };
    let unprotected = noted.err().map(|error| format!("; {}", unprotected_text(&error)));
    Ok(Some(format!("analysis submitted as job {printed}{}", unprotected.unwrap_or_default())))
}

fn analyze(config: &Config, files: &[&Path], manifest: Option<&Path>, profile: &Path) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut words = vec![text(&config.tools.ibscope), "analyze".to_owned()];
    words.extend(files.iter().map(|file| text(file)));
    words.extend(manifest.into_iter().flat_map(|manifest| ["--manifest".to_owned(), text(manifest)]));
    words.extend(["-o".to_owned(), text(profile)]);
    words
}

fn require_success(
    runner: &dyn Runner,
    node: Option<&str>,
    argv: &[String],
    time_limit: Duration,
) -> Result<String, StartAnalysisError> {
    let output = runner.run(node, argv, time_limit)?;
    if output.is_success() {
        return Ok(printable(&output.stdout));
    }
    Err(StartAnalysisError::Program {
        program: argv[0].clone(),
        status: output.status,
        printed: printable(&output.stderr),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::FetchedFile;
    use crate::remote::CommandOutput;
    use crate::undo::StoppedCapture;
    use std::fs;
    use std::time::Instant;

    /// Records the commands instead of running them.
    #[derive(Default)]
    struct RecordingRunner(Mutex<Vec<(Option<String>, Vec<String>)>>);

    impl Runner for RecordingRunner {
        fn run(&self, node: Option<&str>, argv: &[String], _: Duration) -> Result<CommandOutput, RemoteError> {
            self.0.lock().unwrap().push((node.map(str::to_owned), argv.to_vec()));
            Ok(CommandOutput { status: 0, stdout: b"77\n".to_vec(), stderr: Vec::new() })
        }
    }

    fn site(after: &str) -> Config {
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/capture.toml")).unwrap();
        let text =
            text.replace("after = \"sbatch\"", after).replace("sbatch = [\"--partition=post\", \"--time=60\"]", "");
        let text = text.replace("# state_dir = \"/var/lib/ibscope\"", "state_dir = \"/no/such/state\"");
        assert!(text.contains("/no/such/state"));
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, text).unwrap();
        Config::read(file.path()).unwrap()
    }

    fn undone(folder: &Path) -> UndoReport {
        let file = folder.join("it's a sink.pcap");
        let fetched = Some(FetchedFile { file, bytes: 1, sha256: String::new() });
        let capture = StoppedCapture { node: "sink1".to_owned(), file: "/var/tmp/c.pcap".into(), ended: None, fetched };
        let manifest = Some(folder.join("manifest.json"));
        UndoReport {
            job_id: 7,
            user_id: Some(1000),
            is_restored: true,
            left: Vec::new(),
            unverified_ports: 0,
            captures: vec![capture],
            manifest,
            is_fetching: false,
            can_retry: true,
        }
    }

    #[test]
    fn sinks_and_batch_jobs_get_the_captures_and_no_shell_splits_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let (recorded, undone) = (RecordingRunner::default(), undone(folder.path()));
        let printed = start_analysis(&site("after = \"sink\""), &undone, &recorded).unwrap();
        assert_eq!(printed.as_deref(), Some("analysis started on sink1"));
        let printed = start_analysis(&site("after = \"sbatch\""), &undone, &recorded).unwrap();
        assert_eq!(printed.as_deref(), Some("analysis submitted as job 77"));
        assert_eq!(start_analysis(&site("after = \"none\""), &undone, &recorded).unwrap(), None);
        let calls = recorded.0.into_inner().unwrap();
        assert_eq!(calls.len(), 2);
        let (node, argv) = &calls[0];
        let ends = ["/usr/bin/ibscope", "analyze", "/var/tmp/c.pcap", "-o", "/var/tmp/c.ibp"];
        assert!(node.as_deref() == Some("sink1") && argv.ends_with(&ends.map(str::to_owned)), "{argv:?}");
        let at = |name: &str| format!("'{}'", folder.path().join(name).display());
        let capture = at("it's a sink.pcap").replace("it's", r"it'\''s");
        let line = format!(
            "exec '/usr/bin/ibscope' 'analyze' {capture} '--manifest' {} '-o' {}",
            at("manifest.json"),
            at("job.ibp")
        );
        assert_eq!(calls[1].1.last(), Some(&format!("--wrap={line}")));
    }

    const RUN: &str = "ibscope-7-20261101T000000Z";

    fn is_pending(config: &Config) -> bool {
        PendingAnalyses::open(config, &LocalRunner::default()).is_some_and(|pending| pending.contains(RUN))
    }

    /// A site that keeps only profiles. Its program for the merge is this one.
    fn profile_site(state: &Path, program: &str) -> Config {
        let text = format!(
            "[ssh]\nkey = \"/k\"\nknown_hosts = \"/h\"\n[tools]\nibscope = \"{program}\"\n[mirror]\nbackend = \"none\"\n\
             [capture]\nbackend = \"ibdump\"\ndirectory = \"/c\"\nmode = \"profile\"\n\
             [collect]\ndirectory = \"/r\"\nfetch = true\nkeep_days = 1\n[run]\nsyslog = false\nstate_dir = \"{}\"\n",
            state.display()
        );
        Config::parse(&text, Path::new("x")).unwrap()
    }

    /// A merge that fails names the command that repeats it, as its owner can type it.
    #[test]
    fn a_failed_merge_names_the_command_to_run_by_hand() {
        let home = tempfile::tempdir().unwrap();
        let run = home.path().join(RUN);
        let config = profile_site(home.path(), "/bin/false");
        let error = start_analysis(&config, &undone(&run), &LocalRunner::default()).unwrap_err();
        let at = |name: &str| run.join(name).display().to_string();
        let command =
            format!("/bin/false merge {} --manifest {} -o {}", at("*.ibp.tar"), at("manifest.json"), at("job.ibp"));
        let StartAnalysisError::Merge { source, command: named } = &error else { panic!("{error}") };
        assert_eq!((&source.to_string(), named), (&"/bin/sh ended with status 1: ".to_owned(), &command));
        let log = home.path().join("log");
        start_and_log(&config, &undone(&run), &LocalRunner::default(), &Log::open(Some(&log), false, "job 7"));
        assert!(wait_for_merges(Duration::from_mins(1)));
        let text = fs::read_to_string(log).unwrap();
        assert!(
            text.contains("error: the profiles of the sinks are not merged: /bin/sh ended with status 1"),
            "{text}"
        );
        assert!(text.contains(&format!("error: to merge them by hand, run `{command}`")), "{text}");
        assert!(!is_pending(&config));
    }

    /// A hook waits only a few seconds for a merge; until its end, retention keeps the run.
    #[test]
    fn a_long_merge_goes_on_in_the_background_and_keeps_its_run() {
        let home = tempfile::tempdir().unwrap();
        let run = home.path().join(RUN);
        let (program, log) = (home.path().join("ibscope"), home.path().join("log"));
        fs::write(&program, "#!/bin/sh\nsleep 7\n").unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let config = profile_site(home.path(), &program.display().to_string());
        let began = Instant::now();
        start_and_log(&config, &undone(&run), &LocalRunner::default(), &Log::open(Some(&log), false, "job 7"));
        assert!(began.elapsed() < Duration::from_millis(6500), "{:?}", began.elapsed());
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.contains("merged in the background, for at most 60 minutes"), "{text}");
        assert!(is_pending(&config));
        assert!(wait_for_merges(Duration::from_mins(1)));
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.contains("profiles merged into"), "{text}");
        assert!(!is_pending(&config));
    }

    #[test]
    fn a_damaged_note_keeps_its_run() {
        let home = tempfile::tempdir().unwrap();
        let config = profile_site(home.path(), "/bin/false");
        assert!(!is_pending(&config), "no note");
        let note = home.path().join(format!("{RUN}.analysis"));
        for damaged in ["", "{\"job\": ", "{\"job\":-1}", "[]"] {
            fs::write(&note, damaged).unwrap();
            assert!(is_pending(&config), "{damaged:?}");
            assert!(note.exists());
        }
        fs::write(&note, "{\"until_s\":1}").unwrap();
        assert!(!is_pending(&config), "its time has passed");
    }

    #[test]
    fn an_analysis_without_protection_from_retention_is_reported() {
        struct NoJobId;
        impl Runner for NoJobId {
            fn run(&self, _: Option<&str>, _: &[String], _: Duration) -> Result<CommandOutput, RemoteError> {
                Ok(CommandOutput { status: 0, stdout: b"Submitted\n".to_vec(), stderr: Vec::new() })
            }
        }
        let home = tempfile::tempdir().unwrap();
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/capture.toml")).unwrap();
        let state = format!("state_dir = \"{}\"", home.path().display());
        let config =
            Config::parse(&text.replace("# state_dir = \"/var/lib/ibscope\"", &state), Path::new("x")).unwrap();
        let printed = start_analysis(&config, &undone(&home.path().join(RUN)), &NoJobId).unwrap().unwrap();
        assert_eq!(
            printed,
            "analysis submitted as job Submitted; retention may delete the run before its analysis ends: sbatch printed no \
             job id"
        );
        // A folder in the place of the note.
        let config = profile_site(home.path(), "/bin/true");
        let note = home.path().join(format!("{RUN}.analysis"));
        fs::create_dir(&note).unwrap();
        fs::write(note.join("x"), "").unwrap();
        let log = home.path().join("log");
        start_and_log(
            &config,
            &undone(&home.path().join(RUN)),
            &LocalRunner::default(),
            &Log::open(Some(&log), false, "job 7"),
        );
        assert!(wait_for_merges(Duration::from_mins(1)));
        let text = fs::read_to_string(log).unwrap();
        assert!(
            text.contains(
                "warning: the profiles are merged, but retention may delete the run before its analysis ends: "
            ),
            "{text}"
        );
    }

    /// A batch job that waits or runs keeps its run, and so does one about which Slurm does not answer.
    #[test]
    fn a_batch_job_keeps_its_run_until_it_ends() {
        let home = tempfile::tempdir().unwrap();
        let squeue = home.path().join("squeue");
        let answers = |script: &str| {
            fs::write(&squeue, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&squeue, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/capture.toml")).unwrap();
        let home_path = home.path().display();
        let text = text
            .replace("# state_dir = \"/var/lib/ibscope\"", &format!("state_dir = \"{home_path}\""))
            .replace("# sbatch = \"/usr/bin/sbatch\"", &format!("sbatch = \"{home_path}/sbatch\""));
        let config = Config::parse(&text, Path::new("x")).unwrap();
        let begin = || {
            let printed = start_analysis(&config, &undone(&home.path().join(RUN)), &RecordingRunner::default());
            assert_eq!(printed.unwrap().as_deref(), Some("analysis submitted as job 77"));
        };
        begin();
        // squeue is asked for job 77.
        for script in ["echo 77 PENDING", "echo 77 RUNNING", "echo unable to contact >&2; exit 1"] {
            answers(script);
            assert!(is_pending(&config), "{script}");
        }
        for script in ["true", "echo Invalid job id specified >&2; exit 1"] {
            begin();
            answers(script);
            assert!(!is_pending(&config), "{script}");
            assert!(!home.path().join(format!("{RUN}.analysis")).exists());
        }
    }
}
