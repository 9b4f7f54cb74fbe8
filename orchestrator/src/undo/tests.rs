//! Which runs are undone if journals changed since they were read, are unreadable, or lost lines.

use super::*;
use crate::capture::CaptureLimits;
use crate::config::CaptureBackend;
use crate::job::SlurmJob;
use crate::journal::StoredJournal;
use crate::log::Log;
use crate::plan::CapturePlan;
use crate::remote::LocalRunner;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A site that mirrors nothing, with its state folder.
struct Site {
    folder: tempfile::TempDir,
    config: Config,
    state: State,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let text = format!(
            "[ssh]\nkey = \"/k\"\nknown_hosts = \"/h\"\n[mirror]\nbackend = \"none\"\n[capture]\nbackend = \"ibdump\"\n\
             directory = \"{at}/captures\"\n[collect]\ndirectory = \"{at}/runs\"\n[run]\nstate_dir = \"{at}/state\"\nsyslog = false\n"
        );
        let config = Config::parse(&text, Path::new("x")).unwrap();
        let state = State::open(&config.run.state_dir).unwrap();
        Self { folder, config, state }
    }

    /// The journal of a run that begins.
    fn begin(&self, job_id: u32, steps: Vec<PlanStep>) -> Journal {
        let plan = CapturePlan {
            job: SlurmJob { id: job_id, ..SlurmJob::default() },
            started_s: 1,
            compute: Vec::new(),
            sinks: Vec::new(),
            steps,
            warnings: Vec::new(),
            hostfile: Vec::new(),
        };
        let lock = self.state.lock_job(job_id, soon()).unwrap();
        self.state.lock_plan(soon()).unwrap().create(plan, None, lock).unwrap()
    }

    fn open_runs(&self) -> Vec<StoredJournal> {
        self.state.journals().unwrap()
    }

    fn undo(&self, job_id: u32) -> Result<Vec<UndoReport>, JournalError> {
        job(&self.config, job_id, &LocalRunner::default(), soon())
    }

    fn stored(&self, read: &StoredJournal, is_stale: &dyn Fn(&RunRecord) -> bool) -> StoredOutcome {
        stored(&self.config, &self.state, read, &LocalRunner::default(), FetchTiming::Now, is_stale).unwrap()
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// A prolog ends between the reading of its journal and its turn in a sweep: the run is judged by its
/// new record, and its capture goes on.
#[test]
fn a_run_that_started_since_it_was_read_is_not_undone() {
    let site = Site::new();
    let journal = site.begin(7, Vec::new());
    let read = site.open_runs().remove(0);
    assert_eq!(read.phase(), Some(RunPhase::Starting));
    assert!(matches!(site.stored(&read, &|_| true), StoredOutcome::Busy), "its prolog works on it");
    journal.write(&JournalEntry::Started { at_ns: 1 }).unwrap();
    drop(journal);
    // Its job is live.
    let is_stale = |record: &RunRecord| record.phase != RunPhase::Running;
    assert!(is_stale(read.record.as_ref().unwrap()), "stale by the old record");
    assert!(matches!(site.stored(&read, &is_stale), StoredOutcome::InUse));
    assert_eq!(site.open_runs().remove(0).phase(), Some(RunPhase::Running));
    // Its job has ended.
    assert!(matches!(site.stored(&read, &|_| true), StoredOutcome::Undone(report) if report.left.is_empty()));
    assert!(site.open_runs().is_empty());
}

/// A job that was started again under its id has a run that is left and one that is running.
#[test]
fn stale_runs_of_a_job_are_undone_without_its_running_one() {
    let site = Site::new();
    let first = site.begin(7, Vec::new());
    first.write(&JournalEntry::Started { at_ns: 1 }).unwrap();
    first.write(&JournalEntry::Left { at_ns: 2, what: vec!["work".to_owned()], is_fetching: false }).unwrap();
    drop(first);
    let second = site.begin(7, Vec::new());
    second.write(&JournalEntry::Started { at_ns: 3 }).unwrap();
    let second_path = second.path().to_owned();
    drop(second);
    let undone = stale(&site.config, &LocalRunner::default(), soon(), |_| false).unwrap();
    assert_eq!(undone.len(), 1);
    let open = site.open_runs();
    assert_eq!(open.iter().map(|run| &run.path).collect::<Vec<_>>(), [&second_path]);
    assert_eq!(open[0].phase(), Some(RunPhase::Running));
    assert_eq!(stale(&site.config, &LocalRunner::default(), soon(), |job_id| job_id == 7).unwrap().len(), 1);
    assert!(site.open_runs().is_empty());
}

#[test]
fn an_unreadable_journal_does_not_hide_the_run_that_is_undone() {
    let site = Site::new();
    fs::write(site.config.run.state_dir.join("job-7-1000.journal"), "{\"entry\":\"opened\",\"ver").unwrap();
    let alone = site.undo(7).unwrap_err().to_string();
    assert!(alone.contains("line 1: it is missing or truncated"), "{alone}");
    let journal = site.begin(7, Vec::new());
    journal.write(&JournalEntry::Started { at_ns: 1 }).unwrap();
    drop(journal);
    let reports = site.undo(7).unwrap();
    assert_eq!(reports.iter().map(|report| report.left.len()).collect::<Vec<_>>(), [0, 1], "{reports:?}");
    assert_eq!(reports[1].left, [alone]);
    assert!(reports[1].has_failed());
    let file = site.folder.path().join("log");
    let log = Log::open(Some(&file), false, "job 7");
    reports.iter().for_each(|report| report.log(&log));
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("job 7: undone\n") && text.contains("undo the run by hand"), "{text}");
    assert!(!text.contains("tries again"), "{text}");
}

/// A journal that lost all lines but its plan: the capture is found by its file, and named.
#[test]
fn a_capture_without_an_entry_in_the_journal_is_found() {
    let site = Site::new();
    let file = site.folder.path().join("captures/ibscope-7-n1.pcap");
    let path = file.display().to_string();
    let step = CaptureStep {
        node: "n1".to_owned(),
        argv: ["/usr/bin/ibdump", "-w", &path].map(str::to_owned).to_vec(),
        log: file.with_extension("log"),
        file,
        backend: CaptureBackend::Ibdump,
        limits: CaptureLimits::default(),
        ring_files: None,
        is_profile: false,
    };
    drop(site.begin(7, vec![PlanStep::Capture(step)]));
    // It has the arguments of the capture, and waits for its input.
    let mut command = Command::new("/bin/sh");
    let mut capture = command.args(["-c", "read -r line", "sh", "-w", &path]).stdin(Stdio::piped()).spawn().unwrap();
    let report = site.undo(7).unwrap().remove(0);
    let expected = format!(
        "n1: lines of the journal are missing: it has no entry for the capture {path}, but ibdump runs there; end it with \
         `kill -INT {}`, which keeps its file",
        capture.id()
    );
    assert_eq!((report.is_restored, &report.left[..]), (false, &[expected][..]));
    assert!(capture.try_wait().unwrap().is_none(), "it goes on");
    drop(capture.stdin.take());
    capture.wait().unwrap();
    assert_eq!(site.undo(7).unwrap().remove(0).left, [""; 0]);
    assert!(site.open_runs().is_empty());
}
