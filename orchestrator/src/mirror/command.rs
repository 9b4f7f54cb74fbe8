//! The mirror backend `command`: a command of the site that runs once per port, for example
//! ibmirror or a script that calls UFM.

use super::{MirrorRequest, command_on_node, step_without_commands};
use crate::config::{CommandTemplate, Config, TemplateError, TemplateValues};
use crate::fabric::NodePort;
use crate::step::{CommandCheck, Expectation, MirrorStep, StepCommand};

pub(super) fn step(config: &Config, request: &MirrorRequest) -> Result<MirrorStep, TemplateError> {
    let mut step = step_without_commands(request);
    let Some(templates) = &config.mirror.command else { return Ok(step) };
    for source in request.sources {
        let values = values(request, source);
        let filled = |template: &CommandTemplate| -> Result<StepCommand, TemplateError> {
            Ok(command_on_node(config, request, template.fill(&values)?))
        };
        step.on.push(filled(&templates.on)?);
        step.off.push(filled(&templates.off)?);
        let Some(check) = &templates.check else { continue };
        for (expected, checks) in [(&templates.check_on, &mut step.check), (&templates.check_off, &mut step.check_off)]
        {
            if let Some(text) = expected {
                checks.push(CommandCheck {
                    command: filled(check)?,
                    expect: vec![Expectation::Text(text.fill(&values)?)],
                });
            }
        }
    }
    Ok(step)
}

fn values<'a>(request: &MirrorRequest<'a>, source: &'a NodePort) -> TemplateValues<'a> {
    TemplateValues {
        leaf_guid: request.sink.leaf_guid,
        leaf_lid: request.sink.leaf_lid,
        port: source.leaf_port,
        sink_port: request.sink.leaf_port,
        node: &source.node,
        sink: &request.sink.node,
        job: request.job,
    }
}
