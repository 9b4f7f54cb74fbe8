//! Prints a plan as text.

use super::{CapturePlan, Sink};
use crate::fabric::NodePort;
use crate::guid;
use crate::quote::argv_text;
use crate::step::{PlanStep, StepCommand};
use crate::text::plural;
use std::fmt;

/// Maximum number of nodes that one line names.
const MAX_NAMED_NODES: usize = 8;

impl fmt::Display for CapturePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.job.user.as_ref().map_or(String::new(), |user| format!(" of {user}"));
        writeln!(f, "Job {}{user}: {}", self.job.id, plural(self.job.nodes.len(), "node"))?;
        writeln!(f, "MPI runs on {}: {}", plural(self.hostfile.len(), "node"), first_nodes(&self.hostfile))?;
        for sink in &self.sinks {
            self.show_sink(f, sink)?;
        }
        writeln!(f, "\nSteps (undone in this order: mirrors, captures, hostfile)")?;
        for (index, step) in self.steps.iter().enumerate() {
            show_step(f, index + 1, step)?;
        }
        if !self.warnings.is_empty() {
            writeln!(f, "\nWarnings")?;
        }
        self.warnings.iter().try_for_each(|warning| writeln!(f, "  - {warning}"))
    }
}

impl CapturePlan {
    fn show_sink(&self, f: &mut fmt::Formatter<'_>, sink: &Sink) -> fmt::Result {
        let leaf = guid::text(sink.leaf_guid);
        let own = self.compute.contains(&sink.port);
        if own {
            return writeln!(
                f,
                "\nNode {} captures at its own port\n{}\n  into {}",
                sink.node,
                row(&sink.port),
                sink.file.display()
            );
        }
        writeln!(
            f,
            "\nLeaf {leaf} (LID {}): {} mirrored to {}",
            sink.port.leaf_lid,
            plural(sink.sources.len(), "port"),
            sink.node
        )?;
        let is_mirrored = |port: &&NodePort| port.leaf_guid == sink.leaf_guid && sink.sources.contains(&port.leaf_port);
        for port in self.compute.iter().filter(is_mirrored) {
            writeln!(f, "{}", row(port))?;
        }
        let load = sink.oversubscription().map_or(String::new(), |factor| {
            format!(" (mirrored ports can send up to {factor:.1} times its link rate)")
        });
        writeln!(f, "{}  <- sink{load}\n  into {}", row(&sink.port), sink.file.display())
    }
}

/// A port as a line of a table.
fn row(port: &NodePort) -> String {
    let NodePort { node, ca, port: number, lid, lmc, rate_gbits, leaf_port, .. } = port;
    let lids = if *lmc == 0 { lid.to_string() } else { format!("{lid}-{}", u32::from(*lid) + (1 << lmc) - 1) };
    format!("  leaf port {leaf_port:<3} {node:<12} {ca} port {number:<3} LID {lids:<7} {rate_gbits:.0} Gb/s")
}

fn show_step(f: &mut fmt::Formatter<'_>, number: usize, step: &PlanStep) -> fmt::Result {
    match step {
        PlanStep::Capture(step) => {
            writeln!(f, "{number:>3}. capture on {}: {}", step.node, argv_text(&step.argv))?;
            writeln!(f, "     undo: SIGINT, then wait until it ends")
        }
        PlanStep::Mirror(step) => {
            let ports = step.ports.len();
            writeln!(
                f,
                "{number:>3}. mirror {} of leaf {} to {}",
                plural(ports, "port"),
                guid::text(step.leaf_guid),
                step.sink
            )?;
            let mut list = |what: &str, commands: &[StepCommand]| {
                let mut line = |command: &StepCommand| {
                    let place = command.node.as_deref().unwrap_or("here");
                    writeln!(f, "     {what} {place}: {}", argv_text(&command.argv))
                };
                commands.iter().try_for_each(&mut line)
            };
            list("on,  ", &step.on)?;
            list("undo,", &step.off)
        }
        PlanStep::Hostfile(step) => {
            writeln!(f, "{number:>3}. write {} ({})", step.path.display(), plural(step.lines.len(), "line"))?;
            writeln!(f, "     undo: remove it")
        }
    }
}

fn first_nodes(nodes: &[String]) -> String {
    let named = nodes.iter().take(MAX_NAMED_NODES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match nodes.len().saturating_sub(MAX_NAMED_NODES) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
