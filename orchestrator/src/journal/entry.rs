//! The entries of a journal, and the state of a run that results from them.

use crate::capture::{CaptureLimit, CaptureRing, PacketCounts, ProfileCounts};
use crate::guid;
use crate::manifest::{ClockExchange, CommandRun};
use crate::plan::CapturePlan;
use crate::remote::process::{RemoteProcess, Signal};
use crate::step::PlanStep;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::SystemTime;

/// Version of the format that this program writes. It reads every version whose first line has a
/// plan that it understands.
pub const VERSION: u32 = 2;

/// The program and the configuration of a run. With them the run can be undone even if either was
/// moved, replaced or broken since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOrigin {
    /// Path of the configuration.
    pub config_path: PathBuf,
    /// Content of the configuration. It holds no secrets, only the paths of keys.
    pub config_text: String,
    /// Copy of the program that began the run, in the state folder; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
}

/// End of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureEnd {
    /// Exit status of the program, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Last signal that was sent. `None` if the program had ended before, or never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
    /// Packet counts that the program printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<PacketCounts>,
    /// Size of the capture file; `None` if there is no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Limit at which the capture was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<CaptureLimit>,
    /// Ring of files of the capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<CaptureRing>,
    /// Counts of an analysis that ran beside the capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileCounts>,
    /// Faults of the capture, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// A capture that was fetched completely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchedFile {
    /// Path of the fetched file, or its path on the sink if it stays there.
    pub file: PathBuf,
    /// Size of the file.
    pub bytes: u64,
    /// SHA-256 in hex, verified to be the same on both machines.
    pub sha256: String,
}

/// A port of the plan whose LID changed during the run, or whose LID another port has now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LidChange {
    /// GUID of the port.
    #[serde(with = "guid")]
    pub port_guid: u64,
    /// Its LID at the end; `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lid: Option<u16>,
    /// True if another port has its old LID: packets with this LID may be of either port.
    pub is_ambiguous: bool,
}

/// One line of a journal. Times are in nanoseconds since the epoch, by the clock of the
/// orchestrator's machine.
///
/// Unknown fields are ignored, because a program of a later version may have written them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum JournalEntry {
    /// First entry, with the whole plan. Nothing has been done yet.
    Opened {
        /// Format version, [`VERSION`].
        version: u32,
        /// Time of the entry.
        at_ns: i64,
        /// The plan.
        plan: Box<CapturePlan>,
        /// Program and configuration of the run. Journals of version 1 have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<Box<RunOrigin>>,
    },
    /// The lines after this one could not be read, so every step may have been begun.
    Damaged {
        /// Time of the entry.
        at_ns: i64,
        /// The first line that could not be read, and its fault.
        what: String,
    },
    /// These steps are about to be done.
    Doing {
        /// Time of the entry.
        at_ns: i64,
        /// Indices of the steps in the plan.
        steps: Vec<usize>,
    },
    /// A step is done.
    Done {
        /// Time of the entry.
        at_ns: i64,
        /// Index of the step in the plan.
        step: usize,
        /// Process of the capture.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<RemoteProcess>,
        /// Commands that were run for the step.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ran: Vec<CommandRun>,
    },
    /// A step failed. Part of it may be done.
    Failed {
        /// Time of the entry.
        at_ns: i64,
        /// Index of the step in the plan.
        step: usize,
        /// Reason for the failure.
        what: String,
        /// Commands that were run for the step.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ran: Vec<CommandRun>,
    },
    /// The clock of a capture's node was read.
    Clock {
        /// Time of the entry.
        at_ns: i64,
        /// Index of the capture in the plan.
        step: usize,
        /// Clock exchanges with the node.
        exchanges: Vec<ClockExchange>,
    },
    /// All steps are done.
    Started {
        /// Time of the entry.
        at_ns: i64,
    },
    /// The run is about to be undone.
    Undoing {
        /// Time of the entry.
        at_ns: i64,
    },
    /// These ports were no longer mirrored when their mirrors were to end.
    Unmirrored {
        /// Time of the entry.
        at_ns: i64,
        /// Index of the mirror step in the plan.
        step: usize,
        /// Ports of the leaf.
        ports: Vec<u8>,
    },
    /// The LIDs at the end of the job differ from those of the plan, or are unknown.
    LidsAtEnd {
        /// Time of the entry.
        at_ns: i64,
        /// Ports whose packets cannot all be assigned by the plan's LIDs.
        changes: Vec<LidChange>,
        /// Reasons why LIDs are unknown, one clause each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unknown: Vec<String>,
    },
    /// A step is undone.
    Undone {
        /// Time of the entry.
        at_ns: i64,
        /// Index of the step in the plan.
        step: usize,
        /// End of the capture.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<CaptureEnd>,
        /// Commands that were run for the step.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ran: Vec<CommandRun>,
    },
    /// A capture file is at its final place.
    Fetched {
        /// Time of the entry.
        at_ns: i64,
        /// Index of the capture in the plan.
        step: usize,
        /// The file.
        fetched: FetchedFile,
    },
    /// An attempt to undo the run ended, but not everything could be undone.
    Left {
        /// Time of the entry.
        at_ns: i64,
        /// Remaining work, one sentence for each item.
        what: Vec<String>,
        /// True if only captures are left to be fetched, and no transfer has failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_fetching: bool,
    },
    /// Last entry: no work is left.
    Closed {
        /// Time of the entry.
        at_ns: i64,
        /// Path of the manifest, if one was written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        manifest: Option<PathBuf>,
    },
}

/// Progress of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StepProgress {
    /// Nothing was done.
    #[default]
    Planned,
    /// The step was begun. All or part of it may be done.
    Started,
    /// The step is done. For a capture, with its process.
    Done(Option<RemoteProcess>),
    /// The step was begun and is undone.
    Undone(Option<CaptureEnd>),
}

/// Clock exchanges with the node of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockExchanges {
    /// Before the capture was started.
    pub before: Vec<ClockExchange>,
    /// After the capture was started.
    pub after: Vec<ClockExchange>,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// Not all steps have been done yet.
    Starting,
    /// All steps are done.
    Running,
    /// The run is being undone, or the last attempt to undo it left work.
    Undoing,
    /// No work is left.
    Closed,
}

/// State of a run, from all entries of its journal.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    /// The plan.
    pub plan: CapturePlan,
    /// Time at which the journal was opened, in nanoseconds since the epoch.
    pub opened_ns: i64,
    /// Time at which the last steps were begun.
    pub changed_ns: i64,
    /// Progress of the run.
    pub phase: RunPhase,
    /// True if there was a time at which all steps were done.
    pub has_started: bool,
    /// Progress of each step of the plan.
    pub progress: Vec<StepProgress>,
    /// Reasons for failures, by step index.
    pub failed: BTreeMap<usize, String>,
    /// Steps whose program answered that it failed. A program that did not answer may still run.
    pub refused: BTreeSet<usize>,
    /// Capture files that are at their final place, by step index.
    pub fetched: BTreeMap<usize, FetchedFile>,
    /// Clock exchanges of captures, by step index.
    pub clocks: BTreeMap<usize, ClockExchanges>,
    /// Ports that were no longer mirrored when their mirrors were to end, by index of the mirror step.
    pub unmirrored: BTreeMap<usize, Vec<u8>>,
    /// Ports whose LIDs at the end differ from those of the plan.
    pub lid_changes: Vec<LidChange>,
    /// Reasons why LIDs at the end are unknown, one clause each.
    pub unknown_lids: Vec<String>,
    /// Commands that were run, in the order of the entries.
    pub commands: Vec<CommandRun>,
    /// Work that the last attempt to undo the run left, one sentence for each item.
    pub left: Vec<String>,
    /// True if only captures are left to be fetched, and no transfer has failed.
    pub is_fetching: bool,
    /// Number of attempts to undo the run that left other work.
    pub attempts: u32,
    /// Time at which the last of these attempts ended, in nanoseconds since the epoch.
    pub left_ns: i64,
    /// Path of the manifest.
    pub manifest: Option<PathBuf>,
    /// Program and configuration of the run.
    pub origin: Option<RunOrigin>,
    /// The first line that cannot be read, and its fault. Every step may have been begun then.
    pub damage: Option<String>,
}

impl RunRecord {
    /// The record after the first entry; `None` if the entry is not the first one.
    pub(crate) fn opened(entry: JournalEntry) -> Option<Self> {
        let JournalEntry::Opened { at_ns, plan, origin, .. } = entry else { return None };
        let progress = vec![StepProgress::Planned; plan.steps.len()];
        Some(Self {
            plan: *plan,
            opened_ns: at_ns,
            changed_ns: at_ns,
            phase: RunPhase::Starting,
            has_started: false,
            progress,
            failed: BTreeMap::new(),
            refused: BTreeSet::new(),
            fetched: BTreeMap::new(),
            clocks: BTreeMap::new(),
            unmirrored: BTreeMap::new(),
            lid_changes: Vec::new(),
            unknown_lids: Vec::new(),
            commands: Vec::new(),
            left: Vec::new(),
            is_fetching: false,
            attempts: 0,
            left_ns: at_ns,
            manifest: None,
            origin: origin.map(|origin| *origin),
            damage: None,
        })
    }

    /// Applies the next entry. False if the entry does not match the plan.
    pub(crate) fn apply(&mut self, entry: &JournalEntry) -> bool {
        match entry {
            JournalEntry::Opened { .. } => false,
            JournalEntry::Damaged { at_ns, what } => {
                self.damaged(*at_ns, what);
                true
            }
            JournalEntry::Doing { at_ns, steps } => {
                self.changed_ns = *at_ns;
                steps.iter().all(|&step| self.set_progress(step, StepProgress::Started, &[]))
            }
            JournalEntry::Done { step, process, ran, .. } => {
                self.set_progress(*step, StepProgress::Done(process.clone()), ran)
            }
            JournalEntry::Unmirrored { step, ports, .. } => {
                self.unmirrored.insert(*step, ports.clone());
                *step < self.progress.len()
            }
            JournalEntry::LidsAtEnd { changes, unknown, .. } => {
                self.lid_changes.clone_from(changes);
                self.unknown_lids.clone_from(unknown);
                true
            }
            JournalEntry::Undone { step, ended, ran, .. } => {
                self.set_progress(*step, StepProgress::Undone(ended.clone()), ran)
            }
            JournalEntry::Failed { step, what, ran, .. } => {
                self.failed.insert(*step, what.clone());
                if ran.last().is_some_and(|run| run.status.is_some()) {
                    self.refused.insert(*step);
                }
                self.commands.extend_from_slice(ran);
                *step < self.progress.len()
            }
            JournalEntry::Clock { step, exchanges, .. } => {
                let Some(progress) = self.progress.get(*step) else { return false };
                let clock = self.clocks.entry(*step).or_default();
                if *progress == StepProgress::Planned { &mut clock.before } else { &mut clock.after }
                    .clone_from(exchanges);
                true
            }
            JournalEntry::Fetched { step, fetched, .. } => {
                self.fetched.insert(*step, fetched.clone());
                *step < self.progress.len()
            }
            JournalEntry::Started { .. } => {
                self.has_started = true;
                self.set_phase(RunPhase::Running)
            }
            JournalEntry::Undoing { .. } => self.set_phase(RunPhase::Undoing),
            JournalEntry::Left { at_ns, what, is_fetching } => {
                self.left.clone_from(what);
                self.is_fetching = *is_fetching;
                self.attempts += u32::from(!is_fetching);
                self.left_ns = *at_ns;
                self.set_phase(RunPhase::Undoing)
            }
            JournalEntry::Closed { manifest, .. } => {
                self.manifest.clone_from(manifest);
                self.left.clear();
                self.set_phase(RunPhase::Closed)
            }
        }
    }

    /// Lines are missing: every step may have been begun, and captures may have packets of the job.
    pub(super) fn damaged(&mut self, at_ns: i64, what: &str) {
        for progress in self.progress.iter_mut().filter(|progress| **progress == StepProgress::Planned) {
            *progress = StepProgress::Started;
        }
        self.changed_ns = at_ns;
        self.has_started = true;
        if self.phase == RunPhase::Starting {
            self.phase = RunPhase::Running;
        }
        self.damage = Some(what.to_owned());
    }

    fn set_progress(&mut self, step: usize, progress: StepProgress, ran: &[CommandRun]) -> bool {
        self.commands.extend_from_slice(ran);
        self.progress.get_mut(step).map(|place| *place = progress).is_some()
    }

    fn set_phase(&mut self, phase: RunPhase) -> bool {
        self.phase = phase;
        true
    }

    /// Steps that occupy sinks or switch resources: steps that are done, or may still be done.
    pub fn occupying_steps(&self) -> impl Iterator<Item = &PlanStep> {
        let open = self.phase != RunPhase::Closed;
        let is_undoing = self.phase == RunPhase::Undoing;
        self.plan.steps.iter().zip(&self.progress).filter_map(move |(step, progress)| {
            let free = matches!(progress, StepProgress::Undone(_)) || is_undoing && *progress == StepProgress::Planned;
            (open && !free).then_some(step)
        })
    }
}

/// Current time, in nanoseconds since the epoch.
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
