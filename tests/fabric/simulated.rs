//! Fabric tools on a simulated fabric: the real `ibstat` and others, with ibsim instead of the
//! kernel's driver.

use crate::gate::{self, GateDecision};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

const PRELOAD: &str = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so";

/// Maximum number of simultaneous clients. ibsim serves ten programs at a time, refuses further
/// ones permanently, and opensm is one of them.
const MAX_CLIENTS: usize = 8;

/// Host whose view of the fabric a program has by default.
const DEFAULT_HOST: &str = "mgmt mlx5_0";

/// Programs that this module wraps.
pub(crate) const TOOLS: [&str; 6] = ["ibstat", "iblinkinfo", "ibtracert", "ibnetdiscover", "sminfo", "smpquery"];

/// Runs the tool of this name with the arguments of the process. Each client of ibsim leaves
/// sockets in its folder, so each gets a folder of its own. Lock files limit the number of clients.
pub(crate) fn main(tool: &str) -> ExitCode {
    let lab = super::standin::folder();
    match gate::pass(&lab, tool) {
        GateDecision::Go => {}
        GateDecision::Lie => return ExitCode::SUCCESS,
        GateDecision::Fail => return ExitCode::from(255),
    }
    let _slot = slot(&lab.join("slots"));
    let folder = tempfile::Builder::new().tempdir_in(lab.join("run")).expect("folder");
    let host = std::env::var_os("SIM_HOST").unwrap_or_else(|| DEFAULT_HOST.into());
    let output = Command::new(format!("/usr/sbin/{tool}"))
        .args(std::env::args_os().skip(1))
        .env("LD_PRELOAD", PRELOAD)
        .env("SIM_HOST", host)
        .current_dir(folder.path())
        .output()
        .expect("the tool is installed");
    // The wrapper prints the output, not the tool: without a reader the tool would die, and ibsim
    // never forgets a client that was killed.
    let written =
        std::io::stdout().write_all(&output.stdout).and_then(|()| std::io::stderr().write_all(&output.stderr));
    match output.status.code() {
        Some(code) if written.is_ok() => ExitCode::from(code as u8),
        _ => ExitCode::from(255),
    }
}

/// Lets other users than root run the tools.
pub(crate) fn let_users_in(lab: &Path) {
    let open = || fs::Permissions::from_mode(0o777);
    fs::set_permissions(lab.join("run"), open()).expect("permissions");
    for slot in 0..MAX_CLIENTS {
        let file = File::create(lab.join("slots").join(slot.to_string())).expect("slot");
        file.set_permissions(open()).expect("permissions");
    }
}

fn slot(folder: &Path) -> File {
    loop {
        for slot in 0..MAX_CLIENTS {
            let file = File::create(folder.join(slot.to_string())).expect("slot");
            if file.try_lock().is_ok() {
                return file;
            }
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Environment of a daemon at this host of the fabric.
pub(crate) fn at(host: &str) -> [String; 2] {
    [format!("LD_PRELOAD={PRELOAD}"), format!("SIM_HOST={}", super::topology::description(host))]
}
