//! Shared parts of the tests: a folder with everything that a run touches, hand-made plans, and
//! checks of the final state.

use ibscope_orchestrator::capture::{CaptureBackend, CaptureLimits};
use ibscope_orchestrator::config::Config;
use ibscope_orchestrator::fabric::NodePort;
use ibscope_orchestrator::job::SlurmJob;
use ibscope_orchestrator::journal::Journal;
use ibscope_orchestrator::plan::{CapturePlan, Sink};
use ibscope_orchestrator::remote::{Files, LocalRunner};
use ibscope_orchestrator::run::{self, RunError, StartSummary};
use ibscope_orchestrator::step::{
    CaptureStep, CommandCheck, Expectation, HostfileStep, MirrorStep, PlanStep, StepCommand,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// GUID of the first leaf; the second leaf has the next number.
pub(crate) const LEAF: u64 = 0xb859_9f03_0000_1000;

/// The stand-in for ibdump, which cargo builds together with the tests.
pub(crate) fn standin() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples/ibdump-standin");
    assert!(
        path.exists(),
        "{} does not exist: run `cargo build --release -p ibscope-orchestrator --examples`",
        path.display()
    );
    path
}

/// A folder with everything that a run touches.
pub(crate) struct SinkLab {
    pub(crate) folder: PathBuf,
    /// Deletes the folder; `None` in a child process that shares the folder.
    guard: Option<TempDir>,
}

impl Drop for SinkLab {
    /// Kills captures that a failed test leaves behind.
    fn drop(&mut self) {
        if self.guard.is_some() {
            for (pid, _) in self.processes() {
                let _ = process::Command::new("kill").args(["-KILL", &pid]).stderr(process::Stdio::null()).status();
            }
        }
    }
}

impl SinkLab {
    pub(crate) fn new() -> Self {
        let guard = tempfile::tempdir().unwrap();
        let lab = Self { folder: guard.path().to_owned(), guard: Some(guard) };
        for folder in ["captures", "switch", "hosts", "ssh"] {
            fs::create_dir(lab.folder.join(folder)).unwrap();
        }
        fs::write(lab.mode_file(), "").unwrap();
        fs::write(lab.folder.join("ssh/known_hosts"), "").unwrap();
        fs::write(lab.folder.join("ssh/id"), "").unwrap();
        fs::set_permissions(lab.folder.join("ssh/id"), fs::Permissions::from_mode(0o600)).unwrap();
        lab
    }

    pub(crate) fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), guard: None }
    }

    /// File with the faults that the stand-in simulates.
    pub(crate) fn mode_file(&self) -> PathBuf {
        self.folder.join("mode")
    }

    pub(crate) fn misbehave(&self, mode: &str) {
        fs::write(self.mode_file(), mode).unwrap();
    }

    /// Runs everything on this machine, whatever the node.
    pub(crate) fn runner(&self) -> LocalRunner {
        LocalRunner {
            environment: vec![("IBDUMP_STANDIN_MODE_FILE".to_owned(), self.mode_file().display().to_string())],
        }
    }

    pub(crate) fn config(&self, more: &str) -> Config {
        self.config_with("", more)
    }

    pub(crate) fn config_with(&self, ssh: &str, more: &str) -> Config {
        let path = self.folder.join("ibscope.toml");
        let text = format!(
            "[ssh]\nkey = \"{0}/ssh/id\"\nknown_hosts = \"{0}/ssh/known_hosts\"\n{ssh}\n[mirror]\nbackend = \"none\"\n\
             [capture]\nbackend = \"ibdump\"\ndirectory = \"{0}/captures\"\nstop_s = 1\n{more}\n[collect]\ndirectory = \"{0}/collected\"\n\
             [run]\nstate_dir = \"{0}/state\"\n",
            self.folder.display()
        );
        fs::write(&path, text).unwrap();
        Config::read(&path).unwrap()
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// The switch is a folder: a mirrored port is a folder in it, which can be created once.
    fn mirror(&self, leaf: u64, ports: &[u8], node: Option<&str>) -> MirrorStep {
        let place = |port: u8| self.folder.join(format!("switch/{leaf:x}-{port}")).display().to_string();
        let command =
            |words: &[&str]| StepCommand { node: node.map(str::to_owned), argv: Self::words(words), timeout_s: 5 };
        let switch = self.folder.join("switch").display().to_string();
        MirrorStep {
            leaf_guid: leaf,
            leaf_lid: 2,
            ports: ports.to_vec(),
            sink: "n4".to_owned(),
            sink_port: 9,
            analyzer: None,
            on: ports.iter().map(|&port| command(&["/bin/mkdir", "--", &place(port)])).collect(),
            off: ports.iter().map(|&port| command(&["/bin/rm", "-rf", "--", &place(port)])).collect(),
            check: ports
                .iter()
                .map(|port| CommandCheck {
                    command: command(&["/bin/ls", &switch]),
                    expect: vec![Expectation::Text(format!("{leaf:x}-{port}"))],
                })
                .collect(),
            check_off: Vec::new(),
        }
    }

    pub(crate) fn capture(&self, run: &str, node: &str) -> CaptureStep {
        let file = self.folder.join(format!("captures/{run}-{node}.pcap"));
        CaptureStep {
            node: node.to_owned(),
            argv: Self::words(&[
                &standin().display().to_string(),
                "-d",
                "mlx5_0",
                "-i",
                "1",
                "-w",
                &file.display().to_string(),
            ]),
            log: file.with_extension("log"),
            file,
            backend: CaptureBackend::Ibdump,
            limits: CaptureLimits::default(),
            ring_files: None,
            is_profile: false,
        }
    }

    fn port(node: &str, leaf: u64, leaf_port: u8) -> NodePort {
        NodePort {
            node: node.to_owned(),
            ca: "mlx5_0".to_owned(),
            port: 1,
            port_guid: 0x1070_fd03_0000_0000 + (leaf << 8 & 0xff00) + u64::from(leaf_port),
            lid: 10 + u16::from(leaf_port),
            lmc: 0,
            rate_gbits: 200.0,
            leaf_guid: leaf,
            leaf_lid: 2,
            leaf_port,
        }
    }

    /// Two leaves with a sink and two mirrored ports each, and a hostfile: five steps. `nodes` are
    /// the sinks.
    pub(crate) fn plan(&self, job_id: u32, run: &str, nodes: [&str; 2], over_ssh: bool) -> CapturePlan {
        let leaves = [LEAF, LEAF + 1];
        let captures = nodes.map(|node| self.capture(run, node));
        let on = |node| if over_ssh { Some(node) } else { None };
        let mirrors = [0, 1].map(|which| PlanStep::Mirror(self.mirror(leaves[which], &[1, 2], on(nodes[which]))));
        let sinks = [0, 1].map(|which| Sink {
            node: nodes[which].to_owned(),
            port: Self::port(nodes[which], leaves[which], 9),
            leaf_guid: leaves[which],
            sources: vec![1, 2],
            mirrored_gbits: 800.0,
            file: captures[which].file.clone(),
        });
        let hostfile = HostfileStep { path: self.hostfile(job_id), lines: vec!["n1".to_owned(), "n2".to_owned()] };
        CapturePlan {
            job: SlurmJob { id: job_id, nodes: vec!["n1".to_owned(), "n2".to_owned()], ..SlurmJob::default() },
            started_s: 1_795_291_222,
            compute: vec![Self::port("n1", LEAF, 1), Self::port("n2", LEAF, 2), Self::port("n3", LEAF + 1, 1)],
            sinks: sinks.to_vec(),
            steps: captures
                .map(PlanStep::Capture)
                .into_iter()
                .chain(mirrors)
                .chain([PlanStep::Hostfile(hostfile)])
                .collect(),
            warnings: Vec::new(),
            hostfile: Vec::new(),
        }
    }

    /// Makes the switch take two seconds before it mirrors a port.
    pub(crate) fn slow_down(&self, plan: &mut CapturePlan) {
        let program = self.folder.join("slow-mkdir");
        fs::write(&program, "#!/bin/sh\nsleep 2\nexec mkdir \"$@\"\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        for step in &mut plan.steps {
            let PlanStep::Mirror(step) = step else { continue };
            for command in &mut step.on {
                command.argv[0] = program.display().to_string();
            }
        }
    }

    pub(crate) fn hostfile(&self, job_id: u32) -> PathBuf {
        self.folder.join(format!("hosts/ibscope-{job_id}.hosts"))
    }

    /// Mirrored ports.
    pub(crate) fn mirrored(&self) -> Vec<String> {
        names(&self.folder.join("switch"))
    }

    /// Processes of this lab's captures, their launchers and supervisors: ids and arguments of all
    /// processes with a capture's path among their arguments.
    pub(crate) fn processes(&self) -> Vec<(String, String)> {
        let ours = format!("{}/captures/", self.folder.display());
        let mut found = Vec::new();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(arguments) = fs::read(process.path().join("cmdline")) else { continue };
            let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
            if arguments.contains(&ours) {
                found.push((process.file_name().into_string().unwrap(), arguments));
            }
        }
        found
    }

    /// Checks that nothing is mirrored, nothing runs, no hostfile exists and no run is open.
    pub(crate) fn assert_restored(&self, when: &str) {
        // A supervisor may be about to write the exit status.
        wait_until(&format!("the captures' processes end ({when})"), || self.processes().is_empty());
        assert_eq!(self.mirrored(), [""; 0], "{when}");
        assert_eq!(names(&self.folder.join("hosts")), [""; 0], "{when}");
        let open: Vec<String> =
            names(&self.folder.join("state")).into_iter().filter(|name| name.ends_with(".journal")).collect();
        assert_eq!(open, [""; 0], "{when}");
    }
}

/// Claims a job, plans and starts.
pub(crate) fn start(
    config: &Config,
    runner: &dyn Files,
    plan: CapturePlan,
    deadline: Duration,
) -> Result<StartSummary, RunError> {
    let deadline = Instant::now() + deadline;
    let journal = open(config, runner, plan, deadline)?;
    run::start(config, runner, journal, deadline)
}

/// Creates the journal of a plan.
pub(crate) fn open(
    config: &Config,
    runner: &dyn Files,
    plan: CapturePlan,
    deadline: Instant,
) -> Result<Journal, RunError> {
    let claim = run::claim_job(config, plan.job.id, runner, deadline)?;
    Ok(claim.lock_plan(deadline)?.open(plan, config)?)
}

pub(crate) fn in_seconds(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

/// Names in a folder, sorted; empty if the folder does not exist.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let Ok(items) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = items.map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Waits for a condition; long, because the machine may be busy.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = in_seconds(30);
    while !is_so() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
