//! Checks everything that a capture needs before the first one. Nothing is started or mirrored; the
//! only changes are files that are created and deleted again in the folders in question, and
//! missing state folders.

use crate::config::{CaptureBackend, Config, MirrorBackend, Owner, RunLocation, TemplateValues};
use crate::fabric::{self, Inventory};
use crate::folder::{self, Folder};
use crate::install;
use crate::journal::State;
use crate::remote::process::RemoteNode;
use crate::remote::{CommandOutput, RemoteError, Runner, parallel};
use crate::sink;
use crate::text::{plural, printable};
use serde::Serialize;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

/// Time limit of a command on a node.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Programs on a sink that start and end captures, besides a POSIX shell.
const SINK_PROGRAMS: [&str; 4] = ["/usr/bin/setsid", "/usr/bin/timeout", "/usr/bin/sha256sum", "/usr/bin/stat"];

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// Name of the node, or `here`.
    pub place: String,
    /// Subject of the check.
    pub what: String,
    /// Fault and remedy; `None` if the check passed.
    pub fault: Option<String>,
}

/// Runs all checks. `nodes` are compute nodes to check besides the sinks.
pub fn run(config: &Config, nodes: &[String], runner: &dyn Runner) -> Vec<CheckResult> {
    let mut rows = check_here(config);
    let sinks = match config.mirror.backend {
        MirrorBackend::None => nodes.to_vec(),
        // Each node of a job may be a sink.
        _ if config.sinks.from_job => config.sinks.nodes.iter().chain(nodes).cloned().collect(),
        _ => config.sinks.nodes.clone(),
    };
    let mut all = sinks.clone();
    all.extend(nodes.iter().filter(|node| !sinks.contains(node)).cloned());
    let tried =
        parallel(&all, config.ssh.parallel as usize, |node| check_node(config, node, sinks.contains(node), runner));
    let reached = |rows: &[CheckResult]| rows.first().is_some_and(|row| row.fault.is_none());
    let there: Vec<String> =
        all.iter().zip(&tried).filter(|(_, rows)| reached(rows)).map(|(node, _)| node.clone()).collect();
    rows.extend(tried.into_iter().flatten());
    rows.extend(check_mirroring(config, &sinks, runner));
    rows.push(check_squeue(config, runner));
    rows.push(check_fabric(config, &there, runner));
    rows
}

fn row(place: &str, what: impl Into<String>, tried: Result<(), String>) -> CheckResult {
    CheckResult { place: place.to_owned(), what: what.into(), fault: tried.err() }
}

const HERE: &str = "here";
/// Mode bits of group and others.
const GROUP_AND_OTHER_BITS: u32 = 0o077;

fn check_here(config: &Config) -> Vec<CheckResult> {
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
        config.capture.owner.as_ref().map(|owner| row(HERE, format!("owner of captures {owner}"), check_owner(owner))),
    );
    rows.extend(check_ssh_files(config));
    rows
}

/// Creates a file in the folder, as the hooks do, and deletes it.
fn writable(folder: &Path) -> Result<(), String> {
    let probe = format!(".ibscope-selftest-{}", std::process::id());
    let tried = Folder::open(folder).and_then(|folder| {
        folder.create(&probe, 0o600)?;
        folder.remove(&probe)
    });
    tried.map_err(|error| {
        format!("no file can be created in it: {error}; create the folder, or correct its owner and permissions")
    })
}

/// Checks the folder of the log. Hooks that cannot write the log go on without it.
fn log_folder(log: &Path) -> Result<(), String> {
    let folder = log.parent().unwrap_or(Path::new("/"));
    Folder::open(folder).map(drop).map_err(|error| {
        format!("hooks cannot write there: {error}; correct the folder, or choose another one for run.log")
    })
}

/// Checks that captures can be given to their owner.
fn check_owner(owner: &Owner) -> Result<(), String> {
    let own = folder::own_id().map_err(|error| error.to_string())?;
    install::chown_fault(owner, own).map_or(Ok(()), Err)
}

/// Checks the permissions of the key, which only its owner may read, and of `known_hosts`, which
/// only its owner may write.
fn check_ssh_files(config: &Config) -> Vec<CheckResult> {
    let open = |path: &Path, others: u32| {
        let file = fs::File::open(path).map_err(|error| format!("cannot be read: {error}; see [ssh]"))?;
        let mode = file.metadata().map_err(|error| error.to_string())?.mode() & 0o777;
        let remedy = if others == GROUP_AND_OTHER_BITS { "chmod go=" } else { "chmod go-w" };
        if mode & others == 0 { Ok(()) } else { Err(format!("has mode {mode:04o}; run `{remedy} {}`", path.display())) }
    };
    [
        ("ssh key", &config.ssh.key, GROUP_AND_OTHER_BITS),
        ("host keys", &config.ssh.known_hosts, GROUP_AND_OTHER_BITS & 0o022),
    ]
    .into_iter()
    .map(|(what, path, others)| row(HERE, format!("{what} {}", path.display()), open(path, others)))
    .collect()
}

/// An error with the text `otherwise` if a program failed.
fn require_success(output: Result<CommandOutput, RemoteError>, otherwise: &str) -> Result<(), String> {
    match output {
        Ok(output) if output.is_success() => Ok(()),
        Ok(output) => Err(format!("{otherwise} {}", printable(&output.stderr)).trim_end().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn check_node(config: &Config, node: &str, is_sink: bool, runner: &dyn Runner) -> Vec<CheckResult> {
    let run = |argv: &[&str]| {
        let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        runner.run(Some(node), &argv, ANSWER_TIMEOUT)
    };
    let mut rows = vec![row(
        node,
        "ssh, with a known host key",
        require_success(
            run(&["/bin/true"]),
            "/bin/true fails; check the user's login shell there (`getent passwd`), which must run commands;",
        ),
    )];
    if rows[0].fault.is_some() {
        return rows;
    }
    let program = |path: &Path| {
        let path = path.to_string_lossy();
        row(
            node,
            format!("program {path}"),
            require_success(
                run(&["/usr/bin/test", "-x", &path]),
                "not found; install it, or correct its path in [tools]",
            ),
        )
    };
    rows.push(program(&config.tools.ibstat));
    if is_sink {
        rows.push(program(match config.capture.backend {
            CaptureBackend::Ibdump => &config.tools.ibdump,
            CaptureBackend::Tcpdump => &config.tools.tcpdump,
        }));
        rows.extend(SINK_PROGRAMS.map(Path::new).map(program).into_iter().filter(|row| row.fault.is_some()));
        let folder = &config.capture.directory;
        let remote = RemoteNode { runner, name: Some(node), timeout: ANSWER_TIMEOUT };
        rows.push(row(node, format!("folder for captures {}", folder.display()), sink::inspect(&remote, node, folder)));
    }
    rows
}

/// Checks that the program that switches mirroring exists. Does not run it.
fn check_mirroring(config: &Config, sinks: &[String], runner: &dyn Runner) -> Option<CheckResult> {
    let program = match config.mirror.backend {
        MirrorBackend::None => return None,
        MirrorBackend::Mstreg => config.tools.mstreg.to_string_lossy().into_owned(),
        MirrorBackend::Command => {
            let (port, ports) = (1, &[1]);
            let values = TemplateValues {
                leaf_guid: 0,
                leaf_lid: 1,
                port,
                ports,
                sink_port: 2,
                node: "node",
                sink: "sink",
                job: 1,
            };
            config.mirror.command.as_ref()?.on.fill(&values).ok()?.swap_remove(0)
        }
    };
    let node = match &config.mirror.run_on {
        RunLocation::Here => None,
        RunLocation::Node(node) => Some(node.as_str()),
        RunLocation::Sink | RunLocation::First => sinks.first().map(String::as_str),
    };
    let argv = ["/usr/bin/test", "-x", &program].map(str::to_owned);
    let tried = require_success(
        runner.run(node, &argv, ANSWER_TIMEOUT),
        "not found; install it, or correct its path in [tools] or [mirror]",
    );
    Some(row(node.unwrap_or(HERE), format!("mirroring with {program} (not run)"), tried))
}

/// Checks that squeue exists. Slurm need not run yet.
fn check_squeue(config: &Config, runner: &dyn Runner) -> CheckResult {
    let program = config.tools.squeue.to_string_lossy();
    let argv = ["/usr/bin/test", "-x", &program].map(str::to_owned);
    let tried = require_success(
        runner.run(None, &argv, ANSWER_TIMEOUT),
        "not found, so runs whose epilog is lost are never undone; install Slurm's programs here, or set tools.squeue",
    );
    row(HERE, format!("program {program}, which shows whether a job has ended"), tried)
}

fn check_fabric(config: &Config, nodes: &[String], runner: &dyn Runner) -> CheckResult {
    let (reserved, others): (Vec<String>, Vec<String>) =
        nodes.iter().cloned().partition(|node| config.sinks.nodes.contains(node));
    let found = fabric::discover_with_sinks(config, &others, &reserved, &mut Inventory::default(), runner);
    let what = match &found {
        Ok((fabric, _)) => {
            format!("{} in the fabric, on {}", plural(fabric.ports.len(), "port"), plural(nodes.len(), "node"))
        }
        Err(_) => "the nodes in the fabric".to_owned(),
    };
    let tried = match found {
        Ok((fabric, faults)) if fabric.disagreements.is_empty() && faults.is_empty() => Ok(()),
        Ok((fabric, faults)) => {
            let faults = faults.iter().map(ToString::to_string);
            Err(faults.chain(fabric.disagreements).collect::<Vec<_>>().join("; "))
        }
        Err(error) => Err(error.to_string()),
    };
    row(HERE, what, tried)
}
