//! The state of the fabric and the sinks at the end of a job, compared with that of its start: ports that
//! are no longer mirrored, LIDs that changed, sinks with another address. The results are entries in the
//! journal, remarks in the log and notes in the manifest.

use super::RunUndo;
use super::stop::FetchedCopy;
use crate::config::Config;
use crate::context::RunContext;
use crate::fabric::NodePort;
use crate::fabric::present;
use crate::guid;
use crate::journal::{CaptureEnd, JournalEntry, LidChange, RunPhase, RunRecord, StepProgress, now_ns};
use crate::remote::parallel;
use crate::step::{CaptureStep, Expectation, MirrorStep, PlanStep};
use std::fmt::Write as _;
use std::fs;

/// Names in a remark. A subnet manager that begins anew changes all LIDs.
const SHOWN: usize = 8;

impl RunUndo<'_> {
    /// True if this is the first attempt to undo a run that captured: the job has just ended. Later
    /// attempts find a state that an earlier one changed.
    pub(super) fn is_end_of_job(&self) -> bool {
        self.record.phase == RunPhase::Running
    }

    /// Records the ports of a step that are no longer mirrored. A check that cannot be run shows nothing.
    pub(super) fn note_unmirrored(&self, place: usize, step: &MirrorStep) {
        let ports = unmirrored(self.context, step);
        if !ports.is_empty() && self.has_captured_until_now(&step.sink) {
            self.note(&JournalEntry::Unmirrored { at_ns: now_ns(), step: place, ports });
        }
    }

    /// True if the capture on a sink runs, or was running when this attempt stopped it. An earlier attempt
    /// that could not write the journal has stopped it, and has ended the mirrors too.
    fn has_captured_until_now(&self, sink: &str) -> bool {
        let now = self.journal.record();
        let mut steps = self.record.plan.steps.iter().zip(&self.record.progress).zip(&now.progress);
        steps.any(|((step, before), now)| match (step, before, now) {
            (PlanStep::Capture(step), StepProgress::Done(_), StepProgress::Undone(Some(ended))) => {
                step.node == sink && ended.signal.is_some()
            }
            (PlanStep::Capture(step), StepProgress::Done(Some(process)), _) if step.node == sink => {
                self.context.node(sink).is_ok_and(|node| node.is_alive(process).unwrap_or(false))
            }
            _ => false,
        })
    }

    /// Records the ports of the job whose LIDs differ from those of the plan.
    pub(super) fn note_lids(&self) {
        let plan = &self.record.plan;
        let ports: Vec<&NodePort> = plan.compute.iter().chain(plan.sinks.iter().map(|sink| &sink.port)).collect();
        if !self.is_end_of_job() || ports.iter().all(|port| port.lid == 0) {
            return;
        }
        let entry = match self.lids() {
            Err(why) => JournalEntry::LidsAtEnd { at_ns: now_ns(), changes: Vec::new(), unknown: vec![why.clone()] },
            Ok(lids) => {
                let compared = present::compare(self.context.config, &ports, lids, self.context.runner);
                let change = |moved: &present::MovedPort| LidChange {
                    port_guid: moved.port_guid,
                    lid: moved.lid,
                    is_ambiguous: moved.is_ambiguous,
                };
                let changes: Vec<LidChange> = compared.moved.iter().map(change).collect();
                if changes.is_empty() && compared.unknown.is_empty() {
                    return;
                }
                JournalEntry::LidsAtEnd { at_ns: now_ns(), changes, unknown: compared.unknown }
            }
        };
        self.note(&entry);
    }

    /// Clause on another address of a node than at the start of the run: another machine may answer there.
    pub(super) fn address_change(&self, node: &str) -> Option<String> {
        let origin = self.record.origin.as_ref()?.config().ok()?;
        let [before, now] = [&origin, self.context.config].map(|config| address(config, node));
        (before != now).then(|| format!("the address of {node} was {before} at the start of the run and is {now} now"))
    }

    /// The copy of a capture that an earlier attempt fetched without an entry in the journal.
    pub(super) fn fetched_copy(&self, step: &CaptureStep) -> Option<FetchedCopy> {
        let collect = &self.context.config.collect;
        let path = collect.directory.join(self.record.plan.run_name()).join(step.file.file_name()?);
        let found = fs::symlink_metadata(&path).ok().filter(|found| collect.fetch && found.is_file())?;
        Some(FetchedCopy { path, bytes: found.len() })
    }
}

/// Host and port of a node's ssh server.
fn address(config: &Config, node: &str) -> String {
    let special = config.nodes.get(node);
    let host = special.and_then(|special| special.address.as_deref()).unwrap_or(node);
    let port = special.and_then(|special| special.port).unwrap_or(config.ssh.port);
    format!("{host}:{port}")
}

/// Ports of a step whose checks do not show that they are mirrored.
fn unmirrored(context: RunContext<'_>, step: &MirrorStep) -> Vec<u8> {
    let checks: Vec<(usize, _)> = step.check.iter().enumerate().collect();
    let found = parallel(&checks, context.parallelism_of(step), |&(index, check)| {
        let output = context.command(&check.command).ok()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_unmet = |expect: &Expectation| !expect.is_met(&printed);
        let unmet: Vec<usize> =
            check.expect.iter().enumerate().filter(|(_, expect)| is_unmet(expect)).map(|(place, _)| place).collect();
        (!unmet.is_empty()).then(|| ports_of_check(step, index, &unmet))
    });
    let mut ports: Vec<u8> = found.into_iter().flatten().flatten().collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Ports that a check is about. `unmet` are the places of expectations that the output does not meet.
fn ports_of_check(step: &MirrorStep, index: usize, unmet: &[usize]) -> Vec<u8> {
    let MirrorStep { ports, check, analyzer, .. } = step;
    if analyzer.is_some() {
        // The analyzer of all ports, then each port once per direction.
        let directions = ((check.len().saturating_sub(1)) / ports.len().max(1)).max(1);
        return match index.checked_sub(1) {
            None => ports.clone(),
            Some(of_port) => ports.get(of_port / directions).copied().into_iter().collect(),
        };
    }
    if check.len() == ports.len() {
        return vec![ports[index]];
    }
    if check.len() == 1 && check[0].expect.len() == ports.len() {
        return unmet.iter().map(|&place| ports[place]).collect();
    }
    ports.clone()
}

/// Notes of a run on its whole fabric, for the manifest: changed and unknown LIDs.
pub(super) fn notes_on_lids(record: &RunRecord) -> Vec<String> {
    let unknown = (!record.unknown_lids.is_empty()).then(|| {
        format!(
            "whether LIDs changed during the capture is unknown: {}; if they did, names of nodes are wrong",
            shown(&record.unknown_lids, "; ")
        )
    });
    change_text(record).into_iter().chain(unknown).collect()
}

/// Ports of the plan, each once.
fn ports_of(record: &RunRecord) -> impl Iterator<Item = &NodePort> {
    record.plan.compute.iter().chain(record.plan.sinks.iter().map(|sink| &sink.port))
}

fn change_text(record: &RunRecord) -> Option<String> {
    let port = |change: &LidChange| ports_of(record).find(|port| port.port_guid == change.port_guid);
    let known: Vec<(&NodePort, &LidChange)> =
        record.lid_changes.iter().filter_map(|change| Some((port(change)?, change))).collect();
    if known.is_empty() {
        return None;
    }
    let change = |(port, change): &(&NodePort, &LidChange)| match change.lid {
        Some(lid) if lid != port.lid => format!("{} from {} to {lid}", port.node, port.lid),
        _ => format!("{} had {}, which another port has now", port.node, port.lid),
    };
    let changes: Vec<String> = known.iter().map(change).collect();
    let ambiguous: Vec<String> =
        known.iter().filter(|(_, change)| change.is_ambiguous).map(|(port, _)| port.lid.to_string()).collect();
    let unnamed: Vec<String> = known
        .iter()
        .filter(|(_, change)| !change.is_ambiguous)
        .filter_map(|(_, change)| change.lid.map(|lid| lid.to_string()))
        .collect();
    let mut text = format!("LIDs changed during the capture: {}", shown(&changes, ", "));
    if !ambiguous.is_empty() {
        _ = write!(
            text,
            "; packets do not show when, so the manifest has no node names for the old LIDs that other ports have now ({})",
            shown(&ambiguous, ", ")
        );
    }
    if !unnamed.is_empty() {
        _ = write!(text, "; packets with the new LIDs {} have no node name", shown(&unnamed, ", "));
    }
    Some(text)
}

/// The first texts, and how many more there are.
fn shown(texts: &[String], separator: &str) -> String {
    let mut text = texts.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(separator);
    if let Some(more) = texts.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        _ = write!(text, "{separator}and {more} more");
    }
    text
}

/// Notes on the ports of a sink that were no longer mirrored at the end of the job.
pub(super) fn notes_on_mirrors(record: &RunRecord, sink: &str) -> Vec<String> {
    let mut notes = Vec::new();
    for (place, ports) in &record.unmirrored {
        let Some(PlanStep::Mirror(step)) = record.plan.steps.get(*place) else { continue };
        if step.sink != sink {
            continue;
        }
        let leaf = guid::text(step.leaf_guid);
        for number in ports {
            let is_port = |port: &&NodePort| port.leaf_guid == step.leaf_guid && port.leaf_port == *number;
            let node = record.plan.compute.iter().find(is_port).map(|port| format!(" ({})", port.node));
            let node = node.unwrap_or_default();
            notes.push(format!(
                "port {number} of leaf {leaf}{node} was no longer mirrored at the end of the job: the capture misses its packets from an unknown \
                 time on; check whether the switch was rebooted"
            ));
        }
    }
    notes
}

/// The end of a capture with the remarks on the fabric at the end of the job, for the report. Remarks on
/// the whole fabric are those of the first capture.
pub(super) fn with_remarks(mut ended: CaptureEnd, record: &RunRecord, step: &CaptureStep) -> CaptureEnd {
    ended.remarks.extend(notes_on_mirrors(record, &step.node));
    let first = record.plan.steps.iter().find_map(|step| match step {
        PlanStep::Capture(step) => Some(&step.file),
        _ => None,
    });
    if first == Some(&step.file) {
        ended.remarks.extend(change_text(record));
    }
    ended
}
