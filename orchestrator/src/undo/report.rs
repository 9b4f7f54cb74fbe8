//! The report of an undone run, and its lines in the log.

use crate::journal::{CaptureEnd, FetchedFile, JournalError};
use crate::log::{Level, Log};
use crate::text::plural;
use serde::Serialize;
use std::path::PathBuf;

/// Result of undoing a run.
#[derive(Clone, Debug, Serialize)]
pub struct UndoReport {
    /// Job id.
    pub job_id: u32,
    /// Number of the job's user, if Slurm passed it.
    pub user_id: Option<u32>,
    /// True if no port is mirrored and no capture runs for this run.
    pub is_restored: bool,
    /// Work that is left, one sentence each. If there is none, the run is closed.
    pub left: Vec<String>,
    /// Ports whose mirrors were switched off by commands that succeeded, but that no check verified.
    pub unverified_ports: usize,
    /// Captures of the run.
    pub captures: Vec<StoppedCapture>,
    /// Path of the manifest, if one was written.
    pub manifest: Option<PathBuf>,
    /// True if only captures are left to be fetched, and no transfer has failed.
    pub is_fetching: bool,
    /// True if another attempt may do the work that is left. Without a readable plan, none does.
    #[serde(skip)]
    pub can_retry: bool,
}

impl UndoReport {
    /// Report of a run whose journal cannot be read or opened, beside the reports of other runs.
    pub(super) fn of_failure(job_id: u32, error: &JournalError) -> Self {
        Self {
            job_id,
            user_id: None,
            is_restored: false,
            left: vec![error.to_string()],
            unverified_ports: 0,
            captures: Vec::new(),
            manifest: None,
            is_fetching: false,
            can_retry: !matches!(error, JournalError::Broken { .. }),
        }
    }

    /// True if work is left that did not succeed. A transfer that goes on later is no failure.
    pub fn has_failed(&self) -> bool {
        !self.left.is_empty() && !self.is_fetching
    }

    /// Warning about ports that were switched off without a check.
    pub fn unverified_text(&self) -> Option<String> {
        (self.unverified_ports > 0).then(|| {
            format!(
                "NOT VERIFIED: the commands that end the mirroring of {} succeeded, but no check shows that it ended; set check_off in \
                 [mirror.command], or mirror.mstreg.read_back = true",
                plural(self.unverified_ports, "port")
            )
        })
    }

    /// Logs the report.
    pub(crate) fn log(&self, log: &Log) {
        for capture in &self.captures {
            let file = capture.fetched.as_ref().map_or(&capture.file, |fetched| &fetched.file);
            let packets = capture.ended.as_ref().and_then(|ended| ended.counted);
            let packets =
                packets.map_or("an unknown number of packets".to_owned(), |counted| plural(counted.packets, "packet"));
            let part = capture.part_text();
            log.write(Level::Info, &format!("{}: {part}{packets} in {}", capture.node, file.display()));
            if capture.ended.as_ref().is_some_and(|ended| ended.counted.is_none() && ended.remarks.is_empty()) {
                let text = format!(
                    "{}: the capture program printed no packet count at its end; check its file, and whether the disk is full",
                    capture.node
                );
                log.write(Level::Warning, &text);
            }
            for remark in capture.ended.iter().flat_map(|ended| &ended.remarks) {
                log.write(Level::Warning, &format!("{}: {remark}", capture.node));
            }
        }
        if self.left.is_empty() {
            let manifest =
                self.manifest.as_ref().map_or(String::new(), |manifest| format!("; manifest {}", manifest.display()));
            log.write(Level::Info, &format!("undone{manifest}"));
        }
        if let Some(text) = self.unverified_text() {
            log.write(Level::Warning, &text);
        }
        for left in &self.left {
            if self.is_fetching {
                log.write(Level::Info, &format!("undone, except that {left}; the sweeper continues"));
                continue;
            }
            let retry = || format!("; `ibscope capture undo --job {}` tries again", self.job_id);
            let next = self.can_retry.then(retry).unwrap_or_default();
            log.write(Level::Error, &format!("not undone: {left}{next}"));
        }
    }
}

/// A capture after it was stopped.
#[derive(Clone, Debug, Serialize)]
pub struct StoppedCapture {
    /// Name of the node.
    pub node: String,
    /// Path of the capture on the node.
    pub file: PathBuf,
    /// End of the capture; `None` if it could not be stopped.
    pub ended: Option<CaptureEnd>,
    /// The file at its final place, if it was collected.
    pub fetched: Option<FetchedFile>,
}

impl StoppedCapture {
    /// Text before the number of packets that the capture program printed, if the file may have only the
    /// last ones.
    pub fn part_text(&self) -> &'static str {
        let ring = self.ended.as_ref().and_then(|ended| ended.ring);
        if ring.is_some_and(|ring| ring.is_full) { "the newest of " } else { "" }
    }
}
