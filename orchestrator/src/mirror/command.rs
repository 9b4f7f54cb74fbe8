//! A command of the site's, run once per port: ibmirror, a script that asks UFM, whatever there is.

use super::{Asked, empty, run};
use crate::config::{Config, Template, TemplateError, Values};
use crate::fabric::NodePort;
use crate::step::{Check, Command, Expect, MirrorStep};

pub(super) fn step(config: &Config, asked: &Asked) -> Result<MirrorStep, TemplateError> {
    let mut step = empty(asked);
    let Some(templates) = &config.mirror.command else { return Ok(step) };
    for source in asked.sources {
        let values = values(asked, source);
        let filled =
            |template: &Template| -> Result<Command, TemplateError> { Ok(run(config, asked, template.fill(&values)?)) };
        step.on.push(filled(&templates.on)?);
        step.off.push(filled(&templates.off)?);
        let Some(check) = &templates.check else { continue };
        for (expected, checks) in [(&templates.check_on, &mut step.check), (&templates.check_off, &mut step.check_off)]
        {
            if let Some(text) = expected {
                checks.push(Check { command: filled(check)?, expect: vec![Expect::Text(text.fill(&values)?)] });
            }
        }
    }
    Ok(step)
}

fn values<'a>(asked: &Asked<'a>, source: &'a NodePort) -> Values<'a> {
    Values {
        leaf_guid: asked.sink.leaf_guid,
        leaf_lid: asked.sink.leaf_lid,
        port: source.leaf_port,
        sink_port: asked.sink.leaf_port,
        node: &source.node,
        sink: &asked.sink.node,
        job: asked.job,
    }
}
