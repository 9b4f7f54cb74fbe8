//! Faults that the fault matrix causes at a step: what happens to the machines of the lab.
//!
//! Two file systems of their own can become full or read-only: that of the controller (state folder,
//! runs and hostfiles) and that of the sinks (captures). A read-only file system is put over the
//! folders, so files that are open stay writable, and everything that is opened later is read-only.

use crate::container::until;
use crate::lab::HookLab;
use std::fs;
use std::time::Duration;

/// Folders on the file system of the controller.
const FOLDERS: [&str; 3] = ["state", "runs", "hosts"];
/// Size of the file systems, in bytes. The state folder has copies of the program.
const SIZE_BYTES: u64 = 2 << 30;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A fault that is there from a step on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InjectedFault {
    /// The program of this step hangs until after the epilog, and then does its work.
    Hang,
    /// The program of this step fails and changes nothing.
    Fail,
    /// The program of this step changes nothing, and reports success.
    Lie,
    ControllerDiskFull,
    SinkDiskFull,
    ControllerReadOnly,
    SinkReadOnly,
    /// All processes of ibscope are killed; during the job, the captures.
    Killed,
    /// The sinks and nodes are rebooted: connections break, and their processes are gone.
    NodesRebooted,
    /// slurmctld ends its hook, and begins the hook again with the same job id.
    ControllerRestarted,
    ConfigBroken,
    /// The configuration has another key, which no node accepts.
    ConfigChanged,
    ProgramRemoved,
    /// Another file with the same name, as after an upgrade.
    ProgramReplaced,
}

use InjectedFault as Fault;

impl InjectedFault {
    pub(crate) const ALL: [Self; 14] = [
        Self::Hang,
        Self::Fail,
        Self::Lie,
        Self::ControllerDiskFull,
        Self::SinkDiskFull,
        Self::ControllerReadOnly,
        Self::SinkReadOnly,
        Self::Killed,
        Self::NodesRebooted,
        Self::ControllerRestarted,
        Self::ConfigBroken,
        Self::ConfigChanged,
        Self::ProgramRemoved,
        Self::ProgramReplaced,
    ];

    /// Name in the documents.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hang => "hangs",
            Self::Fail => "fails",
            Self::Lie => "lies",
            Self::ControllerDiskFull => "controller's disk full",
            Self::SinkDiskFull => "sinks' disk full",
            Self::ControllerReadOnly => "controller read-only",
            Self::SinkReadOnly => "sinks read-only",
            Self::Killed => "killed",
            Self::NodesRebooted => "nodes rebooted",
            Self::ControllerRestarted => "controller restarted",
            Self::ConfigBroken => "configuration broken",
            Self::ConfigChanged => "configuration changed",
            Self::ProgramRemoved => "program removed",
            Self::ProgramReplaced => "program replaced",
        }
    }
}

/// True for a line of arguments of a process that ibscope started, or of ibscope itself.
pub(crate) fn is_own_process(arguments: &str) -> bool {
    [" hook ", ": ibscope-", "/captures/", "/bin/switchctl", "/bin/gate"].iter().any(|part| arguments.contains(part))
}

impl HookLab {
    fn at(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }

    /// Mounts the file systems, and a boot id that a reboot changes.
    pub(crate) fn mount_disks(&self) {
        let (disk, captures, user) = (self.at("disk"), self.at("captures"), format!("{0}:{0}", self.user));
        fs::create_dir(&disk).expect("folder");
        let options = |mode: &str| format!("size={SIZE_BYTES},mode={mode}");
        self.container.succeeds(["mount", "-t", "tmpfs", "-o", &options("0755"), "none", &disk]);
        self.container.succeeds(["mount", "-t", "tmpfs", "-o", &options("0700"), "none", &captures]);
        for name in FOLDERS {
            let folder = format!("{disk}/{name}");
            let mode = if name == "state" { "0700" } else { "0755" };
            self.container.succeeds(["mkdir", "-m", mode, &folder]);
            self.container.succeeds(["chown", &user, &folder]);
            self.container.succeeds(["mount", "--bind", &folder, &self.at(name)]);
        }
        for name in FOLDERS.iter().chain(&["captures"]) {
            let view = self.read_only(name);
            fs::create_dir_all(&view).expect("folder");
            self.container.succeeds(["mount", "--bind", &self.at(name), &view]);
            self.container.succeeds(["mount", "-o", "remount,bind,ro", &view]);
        }
        fs::copy(BOOT_ID, self.at("boot_id")).expect("boot id");
        self.container.succeeds(["mount", "--bind", &self.at("boot_id"), BOOT_ID]);
    }

    /// Files on the file systems, without the copies of the program and the closed journals.
    pub(crate) fn files_on_disks(&self) -> Vec<String> {
        let mut words = vec!["find".to_owned()];
        words.extend(FOLDERS.iter().chain(&["captures"]).map(|name| self.at(name)));
        words.extend(["-type", "f", "-printf", "%p\\n"].map(str::to_owned));
        let found = self.container.succeeds(words);
        let lab = format!("{}/", self.path().display());
        found.lines().map(|line| line.replace(&lab, "")).filter(|name| !name.starts_with("state/closed/")).collect()
    }

    /// Removes the captures of a run, so that the file systems do not become full by themselves.
    pub(crate) fn remove_runs(&self) {
        self.container.succeeds(["find", &self.at("runs"), &self.at("captures"), "-mindepth", "1", "-delete"]);
    }

    /// Causes a fault that does not depend on the program of the step. `are_mirrors_at_sinks` means
    /// that sinks run the mirroring command.
    pub(crate) fn inject(&self, fault: Fault, are_mirrors_at_sinks: bool) {
        let program = self.path().join("bin/.ibscope");
        match fault {
            Fault::Hang | Fault::Fail | Fault::Lie => {}
            Fault::ControllerDiskFull => self.fill("disk"),
            Fault::SinkDiskFull => self.fill("captures"),
            Fault::ControllerReadOnly => FOLDERS.iter().for_each(|name| self.cover(name)),
            Fault::SinkReadOnly => self.cover("captures"),
            Fault::Killed => _ = self.container.run(["pkill", "-KILL", "-x", "ibscope"]),
            Fault::NodesRebooted => self.reboot_nodes(are_mirrors_at_sinks),
            Fault::ControllerRestarted => {
                self.kill(|line| line.contains(" hook ") && !line.contains("--work") && !line.contains("--config"));
                self.kill(|line| {
                    (line.contains(" hook prolog") || line.contains(" hook epilog")) && !line.contains("--work")
                });
            }
            Fault::ConfigBroken => fs::write(self.at("capture.toml"), "[ssh\n").expect("configuration"),
            Fault::ConfigChanged => {
                let text = fs::read_to_string(self.at("capture.toml")).expect("configuration");
                let changed = text.replace("/ssh/id\"", "/ssh/sink1a/key\"");
                assert_ne!(text, changed);
                fs::write(self.at("capture.toml"), changed).expect("configuration");
            }
            Fault::ProgramRemoved => fs::rename(&program, self.at("bin/.away")).expect("program"),
            Fault::ProgramReplaced => {
                fs::copy(&program, self.at("bin/.new")).expect("program");
                fs::rename(self.at("bin/.new"), &program).expect("program");
            }
        }
    }

    /// Ends a fault.
    pub(crate) fn repair(&self, fault: Fault, config: &str) {
        let resize = |name: &str| {
            self.container.succeeds(["mount", "-o", &format!("remount,size={SIZE_BYTES}"), &self.at(name)]);
        };
        match fault {
            Fault::ControllerDiskFull => resize("disk"),
            Fault::SinkDiskFull => resize("captures"),
            Fault::ControllerReadOnly => FOLDERS.iter().for_each(|name| self.uncover(name)),
            Fault::SinkReadOnly => self.uncover("captures"),
            Fault::ConfigBroken | Fault::ConfigChanged => {
                fs::write(self.at("capture.toml"), config).expect("configuration");
            }
            Fault::ProgramRemoved => {
                fs::rename(self.at("bin/.away"), self.path().join("bin/.ibscope")).expect("program");
            }
            _ => {}
        }
    }

    /// Shrinks a file system to what is on it.
    fn fill(&self, name: &str) {
        // Somebody may write between the two commands.
        until(Duration::from_secs(20), "a full file system", || {
            let used = self.container.succeeds(["df", "--output=used", "-B1", &self.at(name)]);
            let used = used.lines().last().expect("a number").trim().to_owned();
            // A size of 0 would be no limit.
            let size = used.parse::<u64>().expect("a number").max(4096);
            let resize = ["mount", "-o", &format!("remount,size={size}"), &self.at(name)];
            self.container.run(resize).status.success().then_some(())
        });
    }

    /// Path of a read-only view of a folder.
    fn read_only(&self, name: &str) -> String {
        self.at(&format!("read-only/{name}"))
    }

    fn cover(&self, name: &str) {
        self.container.succeeds(["mount", "--bind", &self.read_only(name), &self.at(name)]);
    }

    fn uncover(&self, name: &str) {
        until(Duration::from_secs(20), "a file system that nobody uses", || {
            self.container.run(["umount", &self.at(name)]).status.success().then_some(())
        });
    }

    /// Kills processes by their arguments.
    pub(crate) fn kill(&self, is_chosen: impl Fn(&str) -> bool) {
        let pids = self.container.processes().into_iter().filter(|(_, line)| is_chosen(line));
        let pids: Vec<String> = pids.map(|(pid, _)| pid.to_string()).collect();
        if !pids.is_empty() {
            // Some end by themselves in between.
            self.container.run(["kill", "-KILL"].into_iter().chain(pids.iter().map(String::as_str)));
        }
    }

    /// Ends the processes of all nodes with their connections, and changes the boot id. The controller
    /// goes on.
    fn reboot_nodes(&self, are_mirrors_at_sinks: bool) {
        let is_local = |line: &str| {
            line.contains("/bin/switchctl") && !are_mirrors_at_sinks || line.contains("/bin/ibnetdiscover")
        };
        self.kill(|line| {
            line.starts_with("sshd: ") && !line.contains("[listener]")
                || [": ibscope-", "/captures/", "/bin/gate", "/bin/switchctl"].iter().any(|part| line.contains(part))
                    && !is_local(line)
        });
        let id = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("a random id");
        fs::write(self.at("boot_id"), id).expect("boot id");
    }
}
