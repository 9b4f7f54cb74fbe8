//! What stands in a journal, and what it says together.

use crate::capture::Counted;
use crate::manifest::{CommandRun, Exchange};
use crate::plan::Plan;
use crate::remote::process::{Process, Signal};
use crate::step::Step;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

/// Version of the format.
pub const VERSION: u32 = 1;

/// How a capture ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// Exit status of the program, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// The last signal that was needed; none where the program had ended before, or had never run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
    /// What the program says it has captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// Size of the capture; none where there is no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What went wrong, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// A capture that was fetched whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fetched {
    /// Where it is now; where it was on the sink when it stays there.
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 in hex, the same on both ends.
    pub sha256: String,
}

/// One line of a journal. Times are nanoseconds since the epoch, by the clock of where the orchestrator runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case", deny_unknown_fields)]
pub enum Entry {
    /// The first: all that will be done. Nothing has been done yet.
    Opened {
        /// [`VERSION`].
        version: u32,
        /// When.
        at_ns: i64,
        /// What will be done.
        plan: Box<Plan>,
    },
    /// These steps will be done now.
    Doing {
        /// When.
        at_ns: i64,
        /// Their places in the plan.
        steps: Vec<usize>,
    },
    /// A step is done.
    Done {
        /// When.
        at_ns: i64,
        /// Its place in the plan.
        step: usize,
        /// The capture's process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<Process>,
        /// Commands that were run for it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ran: Vec<CommandRun>,
    },
    /// A step could not be done. Part of it may be.
    Failed {
        /// When.
        at_ns: i64,
        /// Its place in the plan.
        step: usize,
        /// Why.
        what: String,
        /// Commands that were run for it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ran: Vec<CommandRun>,
    },
    /// A capture's node was asked for the time.
    Clock {
        /// When.
        at_ns: i64,
        /// The capture's place in the plan.
        step: usize,
        /// Its answers.
        exchanges: Vec<Exchange>,
    },
    /// All steps are done.
    Started {
        /// When.
        at_ns: i64,
    },
    /// Everything will be undone now.
    Undoing {
        /// When.
        at_ns: i64,
    },
    /// A step is undone.
    Undone {
        /// When.
        at_ns: i64,
        /// Its place in the plan.
        step: usize,
        /// How the capture ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Ended>,
        /// Commands that were run for it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ran: Vec<CommandRun>,
    },
    /// A capture is where it is to stay.
    Fetched {
        /// When.
        at_ns: i64,
        /// The capture's place in the plan.
        step: usize,
        /// What was fetched.
        fetched: Fetched,
    },
    /// Undoing has come to its end, but not everything could be undone.
    Left {
        /// When.
        at_ns: i64,
        /// What is left, a sentence each.
        what: Vec<String>,
    },
    /// The last: nothing is left to do.
    Closed {
        /// When.
        at_ns: i64,
        /// The manifest, where there is something to tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        manifest: Option<PathBuf>,
    },
}

/// How far a step is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Nothing was done.
    #[default]
    Planned,
    /// It was begun, and may be done in part or as a whole.
    Begun,
    /// It is done; a capture runs as this process.
    Done(Option<Process>),
    /// It was begun and is undone.
    Undone(Option<Ended>),
}

/// What a capture's node answered when it was asked for the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Before the capture.
    pub before: Vec<Exchange>,
    /// After it was started.
    pub after: Vec<Exchange>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing has been done, or only part of it.
    Starting,
    /// Everything is done.
    Running,
    /// It is being undone, or was and something is left.
    Undoing,
    /// Nothing is left to do.
    Closed,
}

/// What a journal says as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The plan.
    pub plan: Plan,
    /// When the journal was opened, in nanoseconds since the epoch.
    pub opened_ns: i64,
    /// When the last step was begun.
    pub changed_ns: i64,
    /// How far the run is.
    pub phase: Phase,
    /// All of its steps were done once.
    pub has_started: bool,
    /// How far each step of the plan is.
    pub progress: Vec<Progress>,
    /// Why steps could not be done, by their places.
    pub failed: BTreeMap<usize, String>,
    /// Captures that are where they are to stay, by their places.
    pub fetched: BTreeMap<usize, Fetched>,
    /// Clocks of captures, by their places.
    pub clocks: BTreeMap<usize, Clock>,
    /// Commands that were run, in the order in which their steps were done.
    pub commands: Vec<CommandRun>,
    /// What was left by the last attempt to undo.
    pub left: Vec<String>,
    /// The manifest.
    pub manifest: Option<PathBuf>,
}

impl Record {
    /// What the first entry says; none where it is another entry.
    pub(super) fn opened(entry: Entry) -> Option<(Self, u32)> {
        let Entry::Opened { version, at_ns, plan } = entry else { return None };
        let progress = vec![Progress::Planned; plan.steps.len()];
        let record = Self {
            plan: *plan,
            opened_ns: at_ns,
            changed_ns: at_ns,
            phase: Phase::Starting,
            has_started: false,
            progress,
            failed: BTreeMap::new(),
            fetched: BTreeMap::new(),
            clocks: BTreeMap::new(),
            commands: Vec::new(),
            left: Vec::new(),
            manifest: None,
        };
        Some((record, version))
    }

    /// Takes one more entry in; false where it does not fit to those before.
    pub(super) fn apply(&mut self, entry: &Entry) -> bool {
        match entry {
            Entry::Opened { .. } => false,
            Entry::Doing { at_ns, steps } => {
                self.changed_ns = *at_ns;
                steps.iter().all(|&step| self.set(step, Progress::Begun, &[]))
            }
            Entry::Done { step, process, ran, .. } => self.set(*step, Progress::Done(process.clone()), ran),
            Entry::Undone { step, ended, ran, .. } => self.set(*step, Progress::Undone(ended.clone()), ran),
            Entry::Failed { step, what, ran, .. } => {
                self.failed.insert(*step, what.clone());
                self.commands.extend_from_slice(ran);
                *step < self.progress.len()
            }
            Entry::Clock { step, exchanges, .. } => {
                let Some(progress) = self.progress.get(*step) else { return false };
                let clock = self.clocks.entry(*step).or_default();
                if *progress == Progress::Planned { &mut clock.before } else { &mut clock.after }.clone_from(exchanges);
                true
            }
            Entry::Fetched { step, fetched, .. } => {
                self.fetched.insert(*step, fetched.clone());
                *step < self.progress.len()
            }
            Entry::Started { .. } => {
                self.has_started = true;
                self.reach(Phase::Running)
            }
            Entry::Undoing { .. } => self.reach(Phase::Undoing),
            Entry::Left { what, .. } => {
                self.left.clone_from(what);
                self.reach(Phase::Undoing)
            }
            Entry::Closed { manifest, .. } => {
                self.manifest.clone_from(manifest);
                self.left.clear();
                self.reach(Phase::Closed)
            }
        }
    }

    fn set(&mut self, step: usize, progress: Progress, ran: &[CommandRun]) -> bool {
        self.commands.extend_from_slice(ran);
        self.progress.get_mut(step).map(|place| *place = progress).is_some()
    }

    fn reach(&mut self, phase: Phase) -> bool {
        self.phase = phase;
        true
    }

    /// Steps whose sinks and switch resources are taken: those that are done, and those that will be.
    pub fn taken(&self) -> impl Iterator<Item = &Step> {
        let open = self.phase != Phase::Closed;
        let given_up = self.phase == Phase::Undoing;
        self.plan.steps.iter().zip(&self.progress).filter_map(move |(step, progress)| {
            let free = matches!(progress, Progress::Undone(_)) || given_up && *progress == Progress::Planned;
            (open && !free).then_some(step)
        })
    }
}

/// Now, in nanoseconds since the epoch.
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
