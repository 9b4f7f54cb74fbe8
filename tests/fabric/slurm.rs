//! Slurm on the lab's machine: munge, a controller, and a slurmd for each of the eight compute
//! nodes.

use crate::container::until;
use crate::lab::{HookLab, log};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::time::{Duration, Instant};

/// Compute nodes, the first of the lab's nodes.
const NODES: usize = 8;

/// Hooks of Slurm.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hooks<'a> {
    /// Lines of `slurm.conf`.
    pub(crate) lines: &'a str,
    /// `PrologEpilogTimeout`
    pub(crate) timeout_s: u32,
}

impl HookLab {
    /// Starts Slurm and waits until all nodes are idle.
    pub(crate) fn slurm(&self, hooks: Hooks) {
        let folder = self.path().join("slurm");
        for name in ["", "munge", "state", "spool", "jobs"] {
            fs::create_dir(folder.join(name)).expect("folder");
        }
        // munged requires that others can pass its folders.
        for name in ["", "slurm", "slurm/munge"] {
            fs::set_permissions(self.path().join(name), fs::Permissions::from_mode(0o755)).expect("permissions");
        }
        for name in ["", "state"] {
            let user = self.uid(self.user);
            chown(folder.join(name), Some(user), Some(user)).expect("owner");
        }
        fs::write(folder.join("slurm.conf"), configuration(self, hooks)).expect("configuration");
        if !self.container.succeeds(["slurmd", "-V"]).contains(" 22.") {
            // Newer versions of slurmd look for the control groups of systemd; 22.05 has no such value.
            fs::write(folder.join("cgroup.conf"), "CgroupPlugin=disabled\n").expect("configuration");
        }
        let key = folder.join("munge/key");
        fs::write(&key, [7; 1024]).expect("key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("permissions");
        let at = |name: &str| folder.join("munge").join(name).display().to_string();
        self.container.succeeds([
            "munged".to_owned(),
            "--force".to_owned(),
            format!("--key-file={}", at("key")),
            format!("--socket={}", at("socket")),
            format!("--pid-file={}", at("pid")),
            format!("--log-file={}", at("log")),
            format!("--seed-file={}", at("seed")),
        ]);
        self.daemon(&["slurmctld", "-c"], "slurmctld.up");
        for node in 1..=NODES {
            let node = format!("n{node:03}");
            fs::create_dir(folder.join("spool").join(&node)).expect("folder");
            self.daemon(&["slurmd", "-N", &node], "slurmd.up");
        }
        until(Duration::from_secs(30), "eight idle nodes", || {
            (self.slurm_tool(&["sinfo", "-h", "-t", "idle", "-o", "%D"]).trim() == NODES.to_string()).then_some(())
        });
    }

    /// Ends slurmctld, which saves its state, and starts it again. Under load, slurmctld sometimes
    /// does not end while a prolog of its own runs. It is killed then, as systemd does.
    pub(crate) fn restart_controller(&self) {
        let pid = fs::read_to_string(self.path().join("slurm/slurmctld.pid")).expect("its process id");
        let number = pid.trim().parse().expect("a number");
        let is_running = || self.container.processes().contains_key(&number);
        self.container.succeeds(["kill", "-TERM", pid.trim()]);
        let start = Instant::now();
        while is_running() && start.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(100));
        }
        if is_running() {
            let (log, processes) = (self.log_of_controller(), self.container.processes());
            println!("slurmctld does not end, and is killed: {log}\n{processes:#?}");
            self.container.succeeds(["kill", "-KILL", pid.trim()]);
        }
        until(Duration::from_secs(30), "the end of the controller", || (!is_running()).then_some(()));
        self.start_controller();
        until(Duration::from_mins(2), "a controller that answers", || {
            self.slurm_tool(&["scontrol", "ping"]).contains("is UP").then_some(())
        });
    }

    pub(crate) fn log_of_controller(&self) -> String {
        fs::read_to_string(self.path().join("log/slurmctld")).unwrap_or_default()
    }

    /// Starts slurmctld, which continues with its saved state.
    pub(crate) fn start_controller(&self) {
        self.daemon(&["slurmctld"], "slurmctld.again");
    }

    fn daemon(&self, words: &[&str], name: &str) {
        let configuration = format!("SLURM_CONF={}", self.path().join("slurm/slurm.conf").display());
        let status = self
            .container
            .command(&self.path().join("slurm"), [configuration.as_str()].iter().chain(words))
            .stdout(log(self.path(), name))
            .stderr(log(self.path(), &format!("{name}.err")))
            .status();
        assert!(status.is_ok_and(|status| status.success()), "{words:?}");
    }

    /// Standard output of a Slurm tool.
    pub(crate) fn slurm_tool(&self, words: &[&str]) -> String {
        let configuration = format!("SLURM_CONF={}", self.path().join("slurm/slurm.conf").display());
        let words = ["timeout", "10"].iter().chain(words);
        let output = self
            .container
            .command(&self.path().join("slurm"), ["env", configuration.as_str()].iter().chain(words))
            .output()
            .expect("nsenter");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Submits a job that runs `script`, and returns its id. The output goes to `slurm/jobs/ID`.
    pub(crate) fn submit(&self, options: &[&str], script: &str) -> u32 {
        let file = tempfile::NamedTempFile::new_in(self.path().join("slurm")).expect("file");
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("script");
        let output = format!("--output={}/slurm/jobs/%j", self.path().display());
        let path = file.path().to_str().expect("path");
        let words: Vec<&str> =
            ["sbatch", "--parsable", &output].iter().chain(options).chain([&path]).copied().collect();
        let id = self.slurm_tool(&words);
        id.trim().parse().unwrap_or_else(|_| panic!("{words:?}: {id}"))
    }

    /// State of a job (`COMPLETED`, `RUNNING` ...) and its exit code.
    pub(crate) fn job(&self, id: u32) -> (String, String) {
        let text = self.slurm_tool(&["scontrol", "show", "job", &id.to_string()]);
        let value = |name: &str| {
            let found = text.split_whitespace().find_map(|word| word.strip_prefix(name));
            found.unwrap_or_default().to_owned()
        };
        (value("JobState="), value("ExitCode="))
    }

    /// Waits until a job and its epilog have ended.
    pub(crate) fn ended(&self, id: u32) -> (String, String) {
        until(Duration::from_mins(2), "end of the job", || (!self.is_active(id)).then(|| self.job(id)))
    }

    /// True until a job and its epilog have ended.
    pub(crate) fn is_active(&self, id: u32) -> bool {
        ["PENDING", "CONFIGURING", "RUNNING", "COMPLETING"].contains(&self.job(id).0.as_str())
    }

    /// Output of a job.
    pub(crate) fn printed(&self, id: u32) -> String {
        fs::read_to_string(self.path().join("slurm/jobs").join(id.to_string())).unwrap_or_default()
    }

    /// Nodes that Slurm no longer uses.
    pub(crate) fn drained(&self) -> String {
        self.slurm_tool(&["sinfo", "-h", "-t", "drain,down,fail", "-o", "%N %E"])
    }
}

/// Name of this machine, without its domain.
pub(crate) fn host_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("host name");
    host.trim().split('.').next().expect("a name").to_owned()
}

fn configuration(lab: &HookLab, hooks: Hooks) -> String {
    let (user, lab) = (lab.user, lab.path());
    let host = host_name();
    let (slurm, log) = (lab.join("slurm").display().to_string(), lab.join("log").display().to_string());
    format!(
        "ClusterName=lab
SlurmctldHost={host}(10.77.0.1)
SlurmctldPort=16817
SlurmUser={user}
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={slurm}/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
SelectType=select/linear
ReturnToService=2
SlurmctldTimeout=300
SlurmdTimeout=300
InactiveLimit=0
KillWait=5
MinJobAge=300
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0
SlurmdParameters=config_overrides
StateSaveLocation={slurm}/state
SlurmdSpoolDir={slurm}/spool/%n
SlurmctldPidFile={slurm}/slurmctld.pid
SlurmdPidFile={slurm}/slurmd.%n.pid
SlurmctldLogFile={log}/slurmctld
SlurmdLogFile={log}/slurmd.%n
SlurmctldDebug=info
SlurmdDebug=info
PrologFlags=Alloc
PrologEpilogTimeout={}
BatchStartTimeout=30
{}
NodeName=n[001-00{NODES}] NodeHostname={host} NodeAddr=10.77.0.1 Port=[17001-1700{NODES}] CPUs=2 RealMemory=500 State=UNKNOWN
PartitionName=ib Nodes=n[001-00{NODES}] Default=YES State=UP OverSubscribe=EXCLUSIVE MaxTime=INFINITE
",
        hooks.timeout_s, hooks.lines
    )
}
