//! The mirror backend `command`: a command of the site, for example ibmirror or a script that calls
//! UFM. It runs once per port, or once per leaf if it has the placeholder `{ports}`.

use super::{MirrorRequest, command_on_node, step_without_commands};
use crate::config::{CommandTemplate, Config, TemplateError, TemplateValues};
use crate::fabric::NodePort;
use crate::step::{CommandCheck, Expectation, MirrorStep, StepCommand};

pub(super) fn step(config: &Config, request: &MirrorRequest) -> Result<MirrorStep, TemplateError> {
    let mut step = step_without_commands(request);
    let Some(templates) = &config.mirror.command else { return Ok(step) };
    let filled = |template: &CommandTemplate, source: &NodePort| -> Result<StepCommand, TemplateError> {
        Ok(command_on_node(config, request, template.fill(&values(request, &step.ports, source))?))
    };
    let all = |template: &CommandTemplate| -> Result<Vec<StepCommand>, TemplateError> {
        runs(template, request).map(|sources| filled(template, sources[0])).collect()
    };
    let (on, off) = (all(&templates.on)?, all(&templates.off)?);
    let (mut check_on, mut check_off) = (Vec::new(), Vec::new());
    if let Some(check) = &templates.check {
        for (expected, checks) in [(&templates.check_on, &mut check_on), (&templates.check_off, &mut check_off)] {
            let Some(text) = expected else { continue };
            for sources in runs(check, request) {
                let expect = sources.iter().map(|source| text.fill(&values(request, &step.ports, source)));
                let expect = expect.map(|text| text.map(Expectation::Text)).collect::<Result<_, _>>()?;
                checks.push(CommandCheck { command: filled(check, sources[0])?, expect });
            }
        }
    }
    (step.on, step.off, step.check, step.check_off) = (on, off, check_on, check_off);
    Ok(step)
}

/// The ports of each run of a command; no run without ports.
fn runs<'a>(template: &CommandTemplate, request: &MirrorRequest<'a>) -> impl Iterator<Item = &'a [&'a NodePort]> {
    let ports_per_run = if template.runs_once_per_leaf() { request.sources.len().max(1) } else { 1 };
    request.sources.chunks(ports_per_run)
}

fn values<'a>(request: &MirrorRequest<'a>, ports: &'a [u8], source: &'a NodePort) -> TemplateValues<'a> {
    TemplateValues {
        leaf_guid: request.sink.leaf_guid,
        leaf_lid: request.sink.leaf_lid,
        port: source.leaf_port,
        ports,
        sink_port: request.sink.leaf_port,
        node: &source.node,
        sink: &request.sink.node,
        job: request.job,
    }
}
