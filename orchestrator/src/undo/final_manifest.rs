//! Creates the manifest of a run from its journal.

use super::final_state;
use crate::journal::{CaptureEnd, RunRecord, StepProgress, now_ns};
use crate::manifest::{self, CaptureClock, Manifest};
use crate::remote::process::Signal;
use crate::step::{CaptureStep, PlanStep};

/// The manifest of a run that was undone.
pub(super) fn manifest(record: &RunRecord) -> Manifest {
    let mut manifest = Manifest::from_plan(&record.plan);
    manifest.started_ns = record.opened_ns;
    manifest.ended_ns = Some(now_ns());
    manifest.commands.clone_from(&record.commands);
    manifest.commands.sort_by_key(|run| run.at_ns);
    manifest.notes.extend(record.failed.values().cloned());
    manifest.notes.extend(final_state::notes_on_lids(record));
    leave_out_names(&mut manifest, record);
    for (place, ports) in &record.unmirrored {
        let Some(PlanStep::Mirror(step)) = record.plan.steps.get(*place) else { continue };
        let of_step = |mirror: &&mut manifest::ManifestMirror| {
            mirror.leaf_guid == step.leaf_guid && mirror.sink == step.sink && mirror.ports == step.ports
        };
        if let Some(mirror) = manifest.mirrors.iter_mut().find(of_step) {
            mirror.lost_ports.clone_from(ports);
        }
    }
    for (place, step) in record.plan.steps.iter().enumerate() {
        let PlanStep::Capture(step) = step else { continue };
        let Some(capture) = manifest.captures.iter_mut().find(|capture| capture.file == step.file) else { continue };
        if let Some(fetched) = record.fetched.get(&place) {
            capture.on_sink = fetched.file == step.file;
            if !capture.on_sink {
                // The path is relative to the manifest, which is in the same folder.
                capture.file = fetched.file.file_name().map_or_else(|| fetched.file.clone(), Into::into);
            }
            capture.bytes = Some(fetched.bytes);
            capture.sha256 = Some(fetched.sha256.clone());
        }
        if let StepProgress::Undone(Some(ended)) = &record.progress[place] {
            capture.ended = Some(capture_end(ended));
            let of_mirrors = final_state::notes_on_mirrors(record, &step.node);
            manifest.notes.extend(ended.remarks.iter().chain(&of_mirrors).map(|remark| remark_of_node(step, remark)));
        }
        if let Some(clock) = record.clocks.get(&place) {
            capture.clock = CaptureClock::from_exchanges(&clock.before, &clock.after);
        }
    }
    manifest
}

/// Leaves out the ports whose LIDs other ports have now: an analysis would give their packets the names of
/// the wrong nodes.
fn leave_out_names(manifest: &mut Manifest, record: &RunRecord) {
    let is_named = |port: &manifest::ManifestPort| {
        !record.lid_changes.iter().any(|change| change.is_ambiguous && change.port_guid == port.port_guid)
    };
    manifest.ports.retain(is_named);
    manifest.sinks.retain(is_named);
}

fn capture_end(ended: &CaptureEnd) -> manifest::ManifestCaptureEnd {
    manifest::ManifestCaptureEnd {
        signal: ended.signal.map(|signal| Signal::name(signal).to_owned()),
        status: ended.exit_status,
        counted: ended.counted,
        limit: ended.limit,
        ring: ended.ring,
        profile: ended.profile.clone(),
    }
}

fn remark_of_node(step: &CaptureStep, remark: &str) -> String {
    format!("{}: {remark}", step.node)
}
