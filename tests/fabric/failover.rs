//! Two controllers of Slurm, which share the folders of Slurm and of ibscope: one takes over from the
//! other while a job is captured. Both run on the lab's machine, with an address and a host name each,
//! so the shared folders are local.

use crate::container::until;
use crate::jobs::{SAMPLE, install};
use crate::lab::{HookLab, LabSetting, log};
use crate::site::SiteConfig;
use crate::slurm::{Hooks, host_name};
use crate::slurm_failures::restored;
use crate::sweeper::sweep;
use crate::switch::SwitchFault;
use crate::tools;
use std::fs;
use std::time::Duration;

/// Host name of the second controller.
const BACKUP: &str = "backup";

/// Settings of two controllers on one machine. Each listens at its own address only, and has a
/// configuration with file names of its own.
const TWO_CONTROLLERS: &str = "SlurmctldHost=backup(10.77.0.2)
DebugFlags=NO_CONF_HASH
CommunicationParameters=NoCtldInAddrAny
SlurmctldTimeout=10";

impl HookLab {
    /// Gives the machine a second address, and both addresses a name.
    fn add_host(&self) {
        self.container.succeeds(["ip", "addr", "add", "10.77.0.2/24", "dev", "ve0"]);
        let hosts = self.path().join("etc-hosts");
        let text = format!("127.0.0.1 localhost\n10.77.0.1 {}\n10.77.0.2 {BACKUP}\n", host_name());
        fs::write(&hosts, text).expect("file");
        self.container.succeeds(["mount", "--bind", &hosts.display().to_string(), "/etc/hosts"]);
    }

    /// Starts the second controller, which waits for the failure of the first one.
    fn start_backup(&self) {
        let folder = self.path().join("slurm");
        let text = fs::read_to_string(folder.join("slurm.conf")).expect("configuration");
        let text = text.replace("slurmctld.pid", "backup.pid").replace("log/slurmctld\n", "log/backup\n");
        fs::write(folder.join("backup.conf"), text).expect("configuration");
        let configuration = format!("SLURM_CONF={}", folder.join("backup.conf").display());
        let script = format!("hostname {BACKUP} && exec slurmctld");
        let status = self
            .container
            .command(&folder, [&configuration, "unshare", "--uts", "sh", "-c", &script])
            .stdout(log(self.path(), "backup.up"))
            .stderr(log(self.path(), "backup.up.err"))
            .status();
        assert!(status.is_ok_and(|status| status.success()), "the second controller");
        self.wait_for_controllers(["UP", "UP"]);
    }

    /// Ends the first controller as a crash of its host does: with all processes of its hooks.
    fn crash_primary(&self) {
        let pid = fs::read_to_string(self.path().join("slurm/slurmctld.pid")).expect("its process id");
        self.container.succeeds(["kill", "-KILL", pid.trim()]);
        for program in ["ibscope hook", "bin/switchctl"] {
            self.container.run(["pkill", "-KILL", "-f", program]);
        }
        self.wait_for_controllers(["DOWN", "UP"]);
    }

    /// Waits for the states that Slurm reports of the first and the second controller, and for an
    /// answer of the one that is in control.
    fn wait_for_controllers(&self, states: [&str; 2]) {
        until(Duration::from_mins(1), &format!("controllers that are {states:?}"), || {
            let ping = self.slurm_tool(&["scontrol", "ping"]);
            let is_as_expected =
                ping.lines().zip(states).filter(|(line, state)| line.ends_with(&format!(" is {state}"))).count() == 2;
            (is_as_expected && self.slurm_tool(&["sinfo", "-h"]).contains("ib")).then_some(())
        });
    }

    /// Waits until a running job is captured.
    fn is_captured(&self, id: u32) {
        until(Duration::from_mins(2), "a captured job", || {
            (self.mirrored().len() == 4 && self.job(id).0 == "RUNNING").then_some(())
        });
    }

    /// Submits a job that runs until the file `go` exists.
    fn submit_waiting(&self) -> u32 {
        let go = self.path().join("go");
        _ = fs::remove_file(&go);
        let script = format!("while [ ! -e {} ]; do sleep 0.1; done", go.display());
        self.submit(&["-N4", "--comment=ibscope=on", "--requeue"], &script)
    }

    /// Lets the job end. It completes, and the epilog or the sweeper leaves nothing: Slurm 22.05 kills
    /// all hooks of a controller that was in control before and returned it.
    fn completes(&self, id: u32) {
        fs::write(self.path().join("go"), "").expect("file");
        assert_eq!(self.ended(id), ("COMPLETED".to_owned(), "0:0".to_owned()), "{}", self.log_text());
        until(Duration::from_secs(75), "a sweep that leaves nothing", || {
            (sweep(self).code == 0 && self.mirrored().is_empty()).then_some(())
        });
        restored(self);
        assert!(self.log_text().contains(&format!("job {id}: undone; manifest")), "{}", self.log_text());
        assert_eq!(self.drained().trim(), "");
    }
}

/// The second controller begins a prolog again that ended with the first one, and ends captures that
/// the first one began; and the reverse.
pub(crate) fn a_second_controller_takes_over(setting: LabSetting) {
    let lab = HookLab::start_in(setting);
    lab.traffic(&tools::sample(SAMPLE));
    let run = format!("slurm_conf = \"{}/slurm/slurm.conf\"", lab.path().display());
    let config = lab.configure(SiteConfig { mirror: "timeout_s = 10", run: &run, ..SiteConfig::PLAIN });
    let hooks = install(&lab, config.to_str().expect("path"));
    lab.add_host();
    lab.slurm(Hooks { lines: &format!("{hooks}\n{TWO_CONTROLLERS}"), timeout_s: 70 });
    lab.start_backup();

    println!("the first controller crashes during a prolog");
    lab.switch_fault(Some(SwitchFault::Hang));
    let id = lab.submit_waiting();
    until(Duration::from_secs(40), "a prolog that waits for the switch", || {
        (!lab.switch_calls().is_empty()).then_some(())
    });
    lab.crash_primary();
    lab.switch_fault(None);
    // Slurm starts it a minute after the second controller took over.
    lab.is_captured(id);
    lab.completes(id);

    println!("the first controller takes over again during a job");
    let id = lab.submit_waiting();
    lab.is_captured(id);
    lab.start_controller();
    lab.wait_for_controllers(["UP", "UP"]);
    assert_eq!(lab.mirrored().len(), 4, "a live job keeps its capture");
    lab.completes(id);

    println!("the first controller crashes during a job");
    let id = lab.submit_waiting();
    lab.is_captured(id);
    // Slurm requeues a job that it did not save as running. A change makes slurmctld save its state,
    // every five seconds.
    lab.slurm_tool(&["scontrol", "update", &format!("JobId={id}"), "AdminComment=saved"]);
    std::thread::sleep(Duration::from_secs(6));
    lab.crash_primary();
    assert_eq!(lab.mirrored().len(), 4, "a live job keeps its capture");
    lab.completes(id);
}
