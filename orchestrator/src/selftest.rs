//! A look at everything that a capture needs, before the first one: nothing is started, mirrored or changed, except that files are created and deleted
//! again in the folders that must take them.

use crate::config::{CaptureBackend, Config, MirrorBackend, Owner, Place, Values};
use crate::fabric::{self, Inventory};
use crate::folder::{self, Folder};
use crate::install;
use crate::journal::State;
use crate::remote::process::Node;
use crate::remote::{Output, RemoteError, Runner, parallel};
use crate::sink;
use crate::text::printable;
use serde::Serialize;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
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
        // Each node of a job may be a sink.
        _ if config.sinks.from_job => config.sinks.nodes.iter().chain(nodes).cloned().collect(),
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
/// Bits of a mode for group and others.
const OTHERS: u32 = 0o077;

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
    rows.extend(config.run.log.as_ref().map(|log| row(HERE, format!("log {}", log.display()), log_folder(log))));
    rows.extend(
        config.capture.owner.as_ref().map(|owner| row(HERE, format!("owner of captures {owner}"), gives(owner))),
    );
    rows.extend(of_ssh(config));
    rows
}

/// A file is made in a folder, as the hooks do.
fn writable(folder: &Path) -> Result<(), String> {
    let probe = format!(".ibscope-selftest-{}", std::process::id());
    let tried = Folder::open(folder).and_then(|folder| {
        folder.create(&probe, 0o600)?;
        folder.remove(&probe)
    });
    tried.map_err(|error| {
        format!("no file can be made in it: {error}; create the folder, or let this user alone write there")
    })
}

/// The folder of the log, which hooks add to or leave out.
fn log_folder(log: &Path) -> Result<(), String> {
    let folder = log.parent().unwrap_or(Path::new("/"));
    Folder::open(folder)
        .map(drop)
        .map_err(|error| format!("hooks do not write there: {error}; or give run.log another folder"))
}

/// Captures can be given to their owner.
fn gives(owner: &Owner) -> Result<(), String> {
    let own = folder::own_id().map_err(|error| error.to_string())?;
    install::cannot_give(owner, own).map_or(Ok(()), Err)
}

/// What ssh reads: the key, which nobody else may read, and the keys of nodes, which nobody else may write.
fn of_ssh(config: &Config) -> Vec<Row> {
    let open = |path: &Path, others: u32| {
        let file = fs::File::open(path).map_err(|error| format!("cannot be read: {error}; see [ssh]"))?;
        let mode = file.metadata().map_err(|error| error.to_string())?.mode() & 0o777;
        let remedy = if others == OTHERS { "chmod go=" } else { "chmod go-w" };
        if mode & others == 0 { Ok(()) } else { Err(format!("has mode {mode:04o}; run `{remedy} {}`", path.display())) }
    };
    [("key of ssh", &config.ssh.key, OTHERS), ("host keys", &config.ssh.known_hosts, OTHERS & 0o022)]
        .into_iter()
        .map(|(what, path, others)| row(HERE, format!("{what} {}", path.display()), open(path, others)))
        .collect()
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
        let folder = &config.capture.directory;
        let asked = Node { runner, name: Some(node), timeout: ANSWER };
        rows.push(row(node, format!("folder for captures {}", folder.display()), sink::inspect(&asked, node, folder)));
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
