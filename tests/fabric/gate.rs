//! A gate in front of every program that a hook runs: the ssh servers of the lab run each command of
//! a client through it, and the stand-ins of local tools ask it first. A test stops one call there,
//! causes a fault at exactly this step, and decides how the call goes on.
//!
//! The folder `gate` of the lab has the calls so far (`calls`, one name a line), the call to stop
//! (`armed`, a name and its number), `reached` once this call waits, and the decision (`decision`).

use crate::container::until;
use crate::lab::{HookLab, NODES};
use crate::simulated;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

pub(crate) const NAME: &str = "gate";

/// How a call goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateDecision {
    Go,
    /// It fails and changes nothing.
    Fail,
    /// It succeeds, changes nothing, and prints nothing or the opposite of the truth.
    Lie,
}

const DECISIONS: [(&str, GateDecision); 3] =
    [("go", GateDecision::Go), ("fail", GateDecision::Fail), ("lie", GateDecision::Lie)];

impl HookLab {
    /// Puts the gate in front of all commands on nodes, and of the local tools.
    pub(crate) fn build_gate(&self) {
        let folder = self.path().join("gate");
        fs::create_dir(&folder).expect("folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("permissions");
        for name in ["lock", "calls", "armed", "decision"] {
            fs::write(folder.join(name), "").expect("file");
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o666)).expect("permissions");
        }
        let gate = self.path().join("bin").join(NAME).display().to_string();
        for node in NODES {
            self.stop_ssh_server(node);
            let config = self.path().join("ssh").join(node).join("config");
            let text = fs::read_to_string(&config).expect("configuration");
            fs::write(&config, format!("{text}ForceCommand {gate}\n")).expect("configuration");
            self.start_ssh_server(node);
        }
    }

    /// Forgets all calls, and stops the call of this name and number, from 1.
    pub(crate) fn arm_gate(&self, call: Option<(&str, usize)>) {
        let at = |name: &str| self.path().join("gate").join(name);
        fs::write(at("decision"), "").expect("file");
        _ = fs::remove_file(at("reached"));
        fs::write(at("calls"), "").expect("file");
        fs::write(at("armed"), call.map(|(name, number)| format!("{name} {number}")).unwrap_or_default())
            .expect("file");
    }

    /// True if the call waits.
    pub(crate) fn is_at_gate(&self) -> bool {
        self.path().join("gate/reached").exists()
    }

    /// Lets the call go on, and all others after it.
    pub(crate) fn open_gate(&self, decision: GateDecision) {
        let (word, _) = DECISIONS.iter().find(|(_, of)| *of == decision).expect("a word");
        fs::write(self.path().join("gate/armed"), "").expect("file");
        fs::write(self.path().join("gate/decision"), word).expect("file");
    }

    /// Calls so far, in order.
    pub(crate) fn gate_calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path().join("gate/calls")).expect("calls");
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until no call waits any more.
    pub(crate) fn leave_gate(&self) {
        until(Duration::from_secs(20), "an empty gate", || {
            (!self.container.processes().values().any(|line| line.contains("/bin/gate"))).then_some(())
        });
    }
}

/// Counts a call, and waits if it is the one to stop. Without a gate every call goes on.
pub(crate) fn pass(lab: &Path, call: &str) -> GateDecision {
    let folder = lab.join("gate");
    let Ok(lock) = OpenOptions::new().append(true).open(folder.join("lock")) else { return GateDecision::Go };
    lock.lock().expect("lock");
    let mut calls = OpenOptions::new().append(true).open(folder.join("calls")).expect("calls");
    calls.write_all(format!("{call}\n").as_bytes()).expect("calls");
    let number = fs::read_to_string(folder.join("calls")).expect("calls").lines().filter(|of| *of == call).count();
    let armed = fs::read_to_string(folder.join("armed")).expect("armed");
    drop(lock);
    if armed != format!("{call} {number}") {
        return GateDecision::Go;
    }
    File::create(folder.join("reached")).expect("reached");
    loop {
        let word = fs::read_to_string(folder.join("decision")).unwrap_or_else(|_| "go".to_owned());
        if let Some((_, decision)) = DECISIONS.iter().find(|(of, _)| *of == word) {
            return *decision;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Name of a command on a node: that of the script, or of the program.
fn name_of(command: &str) -> String {
    // After the script that limits the time of a command come its name and the two limits.
    let rest = command.split_once("\"$t\" \"$@\"' 'sh' ").map_or(command, |(_, rest)| rest);
    let words: Vec<&str> = rest.split_whitespace().map(|word| word.trim_matches(['\'', ';'])).collect();
    let program = match words[..] {
        [_, _, "/bin/sh", "-c", ":", script, ..] => script,
        [_, _, program, ..] => program,
        _ => rest,
    };
    let name = program.rsplit('/').next().unwrap_or(program);
    name.strip_prefix("ibscope-").unwrap_or(name).to_owned()
}

/// The program that the ssh servers run.
pub(crate) fn main() -> ExitCode {
    let command = std::env::var_os("SSH_ORIGINAL_COMMAND").unwrap_or_default();
    let name = name_of(&command.to_string_lossy());
    // These tools ask for themselves.
    let is_tool = simulated::TOOLS.contains(&name.as_str());
    match if is_tool { GateDecision::Go } else { pass(&super::standin::folder(), &name) } {
        GateDecision::Go => {
            panic!("{}", Command::new("/bin/sh").arg("-c").arg(command).exec());
        }
        GateDecision::Lie => ExitCode::SUCCESS,
        GateDecision::Fail => {
            eprintln!("the test lets this fail");
            ExitCode::from(9)
        }
    }
}
