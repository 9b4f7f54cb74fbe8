//! A look at everything that a capture needs, before the first one: nothing is started, mirrored or changed, except that files are created and deleted
//! again in the folders that must take them.

use crate::capture::CaptureBackend;
use crate::config::{Config, MirrorBackend, Place, Values};
use crate::fabric::{self, Inventory};
use crate::journal::State;
use crate::remote::{Output, RemoteError, Runner, parallel, printable};
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A node that needs longer for a question does not do.
const ANSWER: Duration = Duration::from_secs(10);

/// Programs on a sink that captures are started and ended with, beside a POSIX shell.
const ON_SINKS: [&str; 4] = ["/usr/bin/setsid", "/usr/bin/timeout", "/usr/bin/sha256sum", "/usr/bin/stat"];

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Where: a node, or `here`.
    pub place: String,
    /// What.
    pub what: String,
    /// Nothing, or what is wrong and what to do about it.
    pub fault: Option<String>,
}

/// Tries everything. `nodes` are compute nodes to try as well.
pub fn run(config: &Config, nodes: &[String], runner: &dyn Runner) -> Vec<Row> {
    let mut rows = here(config);
    let sinks = match config.mirror.backend {
        MirrorBackend::None => nodes.to_vec(),
        _ => config.sinks.nodes.clone(),
    };
    let mut all = sinks.clone();
    all.extend(nodes.iter().filter(|node| !sinks.contains(node)).cloned());
    let tried =
        parallel(&all, config.ssh.parallel as usize, |node| on_node(config, node, sinks.contains(node), runner));
    let reached = |rows: &[Row]| rows.first().is_some_and(|row| row.fault.is_none());
    let there: Vec<String> =
        all.iter().zip(&tried).filter(|(_, rows)| reached(rows)).map(|(node, _)| node.clone()).collect();
    rows.extend(tried.into_iter().flatten());
    rows.extend(mirroring(config, &sinks, runner));
    rows.push(in_fabric(config, &there, runner));
    rows
}

fn row(place: &str, what: impl Into<String>, tried: Result<(), String>) -> Row {
    Row { place: place.to_owned(), what: what.into(), fault: tried.err() }
}

const HERE: &str = "here";

fn here(config: &Config) -> Vec<Row> {
    let mut rows = vec![row(
        HERE,
        format!("state folder {}", config.run.state_dir.display()),
        State::open(&config.run.state_dir)
            .map(drop)
            .map_err(|error| error.to_string())
            .and_then(|()| writable(&config.run.state_dir)),
    )];
    let folders = [
        ("folder for manifests and captures", Some(&config.collect.directory)),
        ("folder for hostfiles", config.sinks.hostfile_directory.as_ref()),
    ];
    for (what, folder) in folders {
        rows.extend(folder.map(|folder| row(HERE, format!("{what} {}", folder.display()), writable(folder))));
    }
    rows
}

fn writable(folder: &Path) -> Result<(), String> {
    let probe = folder.join(format!(".ibscope-selftest-{}", std::process::id()));
    let tried = fs::File::options().write(true).create_new(true).open(&probe).and_then(|_| fs::remove_file(&probe));
    tried
        .map_err(|error| format!("no file can be made in it: {error}; create the folder, or let this user write there"))
}

/// What a program that must succeed left.
fn succeeded(output: Result<Output, RemoteError>, otherwise: &str) -> Result<(), String> {
    match output {
        Ok(output) if output.is_success() => Ok(()),
        Ok(output) => Err(format!("{otherwise} {}", printable(&output.stderr)).trim_end().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn on_node(config: &Config, node: &str, is_sink: bool, runner: &dyn Runner) -> Vec<Row> {
    let run = |argv: &[&str]| {
        let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        runner.run(Some(node), &argv, ANSWER)
    };
    let mut rows =
        vec![row(node, "ssh, with the host key that is known", succeeded(run(&["/bin/true"]), "/bin/true fails"))];
    if rows[0].fault.is_some() {
        return rows;
    }
    let program = |path: &Path| {
        let path = path.to_string_lossy();
        row(
            node,
            format!("program {path}"),
            succeeded(run(&["/usr/bin/test", "-x", &path]), "not there; install it, or correct [tools]"),
        )
    };
    rows.push(program(&config.tools.ibstat));
    if is_sink {
        rows.push(program(match config.capture.backend {
            CaptureBackend::Ibdump => &config.tools.ibdump,
            CaptureBackend::Tcpdump => &config.tools.tcpdump,
        }));
        rows.extend(ON_SINKS.map(Path::new).map(program).into_iter().filter(|row| row.fault.is_some()));
        let folder = config.capture.directory.to_string_lossy();
        let there = succeeded(
            run(&["/usr/bin/test", "-d", &folder, "-a", "-w", &folder]),
            "not there, or not writable; create it",
        );
        rows.push(row(node, format!("folder for captures {folder}"), there));
    }
    rows
}

/// The program that switches mirroring. It is looked for, not run.
fn mirroring(config: &Config, sinks: &[String], runner: &dyn Runner) -> Option<Row> {
    let program = match config.mirror.backend {
        MirrorBackend::None => return None,
        MirrorBackend::Mstreg => config.tools.mstreg.to_string_lossy().into_owned(),
        MirrorBackend::Command => {
            let values =
                Values { leaf_guid: 0, leaf_lid: 1, port: 1, sink_port: 2, node: "node", sink: "sink", job: 1 };
            config.mirror.command.as_ref()?.on.fill(&values).ok()?.swap_remove(0)
        }
    };
    let node = match &config.mirror.run_on {
        Place::Here => None,
        Place::Node(node) => Some(node.as_str()),
        Place::Sink | Place::First => sinks.first().map(String::as_str),
    };
    let argv = ["/usr/bin/test", "-x", &program].map(str::to_owned);
    let tried = succeeded(runner.run(node, &argv, ANSWER), "not there; install it, or correct [mirror]");
    Some(row(node.unwrap_or(HERE), format!("mirroring by {program} (not tried)"), tried))
}

fn in_fabric(config: &Config, nodes: &[String], runner: &dyn Runner) -> Row {
    let found = fabric::discover(config, nodes, &mut Inventory::default(), runner);
    let what = match &found {
        Ok(fabric) => format!("{} ports of {} nodes found in the fabric", fabric.ports.len(), nodes.len()),
        Err(_) => "the nodes in the fabric".to_owned(),
    };
    let tried = match found {
        Ok(fabric) if fabric.disagreements.is_empty() => Ok(()),
        Ok(fabric) => Err(fabric.disagreements.join("; ")),
        Err(error) => Err(error.to_string()),
    };
    row(HERE, what, tried)
}
