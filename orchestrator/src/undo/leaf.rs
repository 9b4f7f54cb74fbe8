//! The LID of a leaf, checked before its registers are read or written. A subnet manager may assign
//! other LIDs while a job runs: then the LID of the plan is that of another switch, or of none. A step
//! that depends on the LID is done with the LID that the leaf's GUID has now, or not at all.

use super::RunUndo;
use crate::config::{Config, MirrorBackend};
use crate::context::FailureText;
use crate::fabric::NodePort;
use crate::fabric::present::{PresentLids, leaf_lid_from_sink};
use crate::guid;
use crate::mirror::{self, MirrorRequest};
use crate::plan::CapturePlan;
use crate::step::MirrorStep;
use std::borrow::Cow;

impl RunUndo<'_> {
    /// The LIDs of the fabric, read once.
    pub(super) fn lids(&self) -> Result<&PresentLids, &FailureText> {
        let read = || {
            let first = self.record.plan.job.nodes.first().map(String::as_str);
            PresentLids::read(self.context.config, first, self.context.runner)
        };
        self.lids.get_or_init(read).as_ref()
    }

    /// The step with the LID that its leaf has now.
    pub(super) fn with_present_lid<'s>(&self, step: &'s MirrorStep) -> Result<Cow<'s, MirrorStep>, FailureText> {
        // The commands were made from the configuration of the run, which may have changed since.
        let own = self.record.origin.as_ref().and_then(|origin| origin.config().ok());
        let config = own.as_ref().unwrap_or(self.context.config);
        if !depends_on_lid(config, &self.record.plan, step) {
            return Ok(Cow::Borrowed(step));
        }
        let (leaf, lid) = (guid::text(step.leaf_guid), step.leaf_lid);
        let ports: Vec<String> = step.ports.iter().map(u8::to_string).collect();
        let left = format!("nothing was written, and its ports {} may still be mirrored", ports.join(", "));
        let now = match self.leaf_lid(config, step) {
            Ok(Some(now)) => now,
            Ok(None) => {
                return Err(format!(
                    "leaf {leaf} was LID {lid} and is not there now: {left}; check that the switch is up and that ibnetdiscover lists it"
                ));
            }
            Err(why) => {
                return Err(format!(
                    "leaf {leaf}: the fabric does not show whether LID {lid} is still this switch ({why}): {left}; run ibnetdiscover -p by hand, \
                     and check fabric.run_on"
                ));
            }
        };
        if now == lid {
            return Ok(Cow::Borrowed(step));
        }
        step_at_lid(config, &self.record.plan, step, now).map(Cow::Owned).ok_or_else(|| {
            format!(
                "leaf {leaf} was LID {lid} and has LID {now} now, and the configuration no longer yields the commands of the run: {left}; restore \
                 the section [mirror], or end the mirroring by hand with LID {now}"
            )
        })
    }

    /// LID of the leaf now, as the machine where the step runs shows it, then as the machine that plans
    /// use, then as the sink. `Ok(None)` if the fabric was read and has no such switch.
    fn leaf_lid(&self, config: &Config, step: &MirrorStep) -> Result<Option<u16>, FailureText> {
        self.context.remaining(std::time::Duration::MAX)?;
        let runner = self.context.runner;
        let place = step.off.first().and_then(|command| command.node.as_deref());
        let is_mstreg = config.mirror.backend == MirrorBackend::Mstreg;
        let adapter = config.mirror.mstreg.adapter.as_deref().filter(|_| is_mstreg);
        let mut failures = Vec::new();
        let mut is_read = false;
        if place.is_some() || adapter.is_some() {
            match PresentLids::read_at(self.context.config, place, adapter, runner) {
                Ok(lids) => {
                    // mstreg reaches no switch of another subnet, where the LID may be that of another one.
                    if let found @ Some(_) = lids.switches.get(&step.leaf_guid).copied() {
                        return Ok(found);
                    }
                    if is_mstreg {
                        return Ok(None);
                    }
                    is_read = true;
                }
                Err(why) => failures.push(why),
            }
        }
        match self.lids() {
            Ok(lids) => match lids.switches.get(&step.leaf_guid) {
                Some(lid) => return Ok(Some(*lid)),
                None => is_read = true,
            },
            Err(why) => failures.push(why.clone()),
        }
        match leaf_lid_from_sink(self.context.config, &step.sink, step.leaf_guid, runner) {
            Ok(Some(lid)) => return Ok(Some(lid)),
            Ok(None) => is_read = true,
            Err(why) => failures.push(why),
        }
        if is_read { Ok(None) } else { Err(failures.join("; ")) }
    }
}

/// The step of a plan with another LID of its leaf. `None` if the configuration does not yield the step
/// itself: then its commands cannot be made for another LID.
fn step_at_lid(config: &Config, plan: &CapturePlan, planned: &MirrorStep, leaf_lid: u16) -> Option<MirrorStep> {
    let is_source = |port: &&NodePort, number: u8| port.leaf_guid == planned.leaf_guid && port.leaf_port == number;
    let source = |number: &u8| plan.compute.iter().find(|port| is_source(port, *number));
    let sources = planned.ports.iter().map(source).collect::<Option<Vec<&NodePort>>>()?;
    let is_sink = |port: &&NodePort| {
        port.node == planned.sink && port.leaf_guid == planned.leaf_guid && port.leaf_port == planned.sink_port
    };
    let sink = plan.sinks.iter().map(|sink| &sink.port).find(is_sink)?;
    let made = |leaf_lid: u16| {
        let sink = NodePort { leaf_lid, ..sink.clone() };
        let request = MirrorRequest { sources: &sources, sink: &sink, job: plan.job.id, analyzer: planned.analyzer };
        mirror::step(config, &request).ok().flatten()
    };
    made(planned.leaf_lid).filter(|made| made == planned).and_then(|_| made(leaf_lid))
}

/// True if a command of the step depends on the LID of the leaf: with another LID, it would change
/// another switch.
fn depends_on_lid(config: &Config, plan: &CapturePlan, planned: &MirrorStep) -> bool {
    // mstreg reaches every switch by its LID.
    planned.analyzer.is_some()
        || step_at_lid(config, plan, planned, planned.leaf_lid ^ 1)
            .is_some_and(|other| MirrorStep { leaf_lid: planned.leaf_lid, ..other } != *planned)
}
