//! What came of a run, for its manifest.

use crate::journal::{Ended, Progress, Record, now_ns};
use crate::manifest::{self, CaptureClock, Manifest};
use crate::remote::process::Signal;
use crate::step::{CaptureStep, Step};

/// The manifest of a run that was undone.
pub(super) fn manifest(record: &Record) -> Manifest {
    let mut manifest = Manifest::planned(&record.plan);
    manifest.started_ns = record.opened_ns;
    manifest.ended_ns = Some(now_ns());
    manifest.commands.clone_from(&record.commands);
    manifest.commands.sort_by_key(|run| run.at_ns);
    manifest.notes.extend(record.failed.values().cloned());
    for (place, step) in record.plan.steps.iter().enumerate() {
        let Step::Capture(step) = step else { continue };
        let Some(capture) = manifest.captures.iter_mut().find(|capture| capture.file == step.file) else { continue };
        if let Some(fetched) = record.fetched.get(&place) {
            capture.on_sink = fetched.file == step.file;
            if !capture.on_sink {
                // Beside the manifest.
                capture.file = fetched.file.file_name().map_or_else(|| fetched.file.clone(), Into::into);
            }
            capture.bytes = Some(fetched.bytes);
            capture.sha256 = Some(fetched.sha256.clone());
        }
        if let Progress::Undone(Some(ended)) = &record.progress[place] {
            capture.ended = Some(told(ended));
            manifest.notes.extend(ended.remarks.iter().map(|remark| of_sink(step, remark)));
        }
        if let Some(clock) = record.clocks.get(&place) {
            capture.clock = CaptureClock::measured(&clock.before, &clock.after);
        }
    }
    manifest
}

fn told(ended: &Ended) -> manifest::Ended {
    manifest::Ended {
        signal: ended.signal.map(|signal| Signal::name(signal).to_owned()),
        status: ended.exit_status,
        counted: ended.counted,
    }
}

fn of_sink(step: &CaptureStep, remark: &str) -> String {
    format!("{}: {remark}", step.node)
}
