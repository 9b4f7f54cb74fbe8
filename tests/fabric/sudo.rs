//! Sinks to which the controller logs in as a user without root's rights, who may call only the helper
//! with sudo.

use crate::analysis::check_run;
use crate::container::until;
use crate::failures::killed;
use crate::first_steps::fresh_machine;
use crate::jobs::{SAMPLE, clean, folder_of};
use crate::lab::{HookLab, LabSetting};
use crate::site::SiteConfig;
use crate::switch::SwitchFault;
use crate::{simulated, tools};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

const USER: &str = "ibscope";
/// Variables by which the stand-in for ibdump finds the lab; sudo removes all others.
const VARIABLES: &str = "IBDUMP_STANDIN_DEVICES IBDUMP_STANDIN_PACKETS IBDUMP_STANDIN_SEEN IBDUMP_STANDIN_MODE_FILE";

/// A packaged file with the folders of the lab.
fn packaged(lab: &HookLab, name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/sudo").join(name);
    let text = fs::read_to_string(path).expect("file");
    let captures = lab.path().join("captures").display().to_string();
    text.replace("/usr/bin/ibscope", "/usr/local/bin/ibscope").replace("/var/tmp/ibscope", &captures)
}

/// Creates the user, and installs the rule and the rules of the helper, as the documents say.
fn install(lab: &HookLab) {
    lab.let_users_in();
    fresh_machine(lab);
    simulated::let_users_in(lab.path());
    lab.container.succeeds(["useradd", "--no-create-home", "--shell", "/bin/sh", USER]);
    // Without a password, but not locked: sshd refuses locked users.
    lab.container.succeeds(["usermod", "--password", "*", USER]);
    let etc = lab.path().join("etc");
    let rule = format!("{}Defaults env_keep += \"{VARIABLES}\"\n", packaged(lab, "ibscope"));
    fs::write(etc.join("sudoers.d/ibscope"), rule).expect("rule");
    fs::set_permissions(etc.join("sudoers.d/ibscope"), fs::Permissions::from_mode(0o440)).expect("permissions");
    let checked = lab.container.succeeds(["visudo", "--check"]);
    assert!(checked.contains("/etc/sudoers.d/ibscope: parsed OK"), "{checked}");
    let ibdump = lab.path().join("bin/ibdump").display().to_string();
    fs::create_dir_all(etc.join("ibscope")).expect("folder");
    let rules = format!("{}ibdump = {ibdump:?}\n", packaged(lab, "node.toml"));
    fs::write(etc.join("ibscope/node.toml"), rules).expect("rules");
}

/// Captures start, stop and are undone after a kill; the user cannot use the rule for anything else.
pub(crate) fn a_user_with_a_sudo_rule_captures_and_can_do_nothing_else(setting: LabSetting) {
    let lab = HookLab::start_in(setting);
    lab.traffic(&tools::sample(SAMPLE));
    install(&lab);
    let limits = "disk_limit_bytes = 1_000_000_000\nmax_bytes = 100_000_000";
    // Only root can give the captures to another user.
    let (capture, owner) = match setting.user {
        "root" => (format!("{limits}\nowner = \"daemon\""), (1, 0)),
        user => (limits.to_owned(), (lab.uid(user), lab.uid(user))),
    };
    lab.configure(SiteConfig {
        ssh: "user = \"ibscope\"\nhelper = \"/usr/local/bin/ibscope\"",
        capture: &capture,
        ..SiteConfig::PLAIN
    });
    let tested = lab.capture(&["selftest", "--nodelist", "n[001-004]"]);
    assert_eq!(tested.code, 0, "{}{}", tested.stdout, tested.stderr);

    let nodes = "n[001-004]";
    assert_eq!(lab.hook("prolog", 730, nodes).code, 0);
    assert_eq!(lab.mirrored().len(), 4, "{}", lab.log_text());
    let users = lab.container.succeeds(["ps", "-eo", "user:20=,args="]);
    let captures = users.lines().filter(|line| line.contains("bin/ibdump -d")).collect::<Vec<_>>();
    assert!(captures.len() >= 2 && captures.iter().all(|line| line.starts_with("root ")), "{users}");
    refused(&lab);
    assert_eq!(lab.hook("epilog", 730, nodes).code, 0);
    clean(&lab);
    check_run(&lab, &folder_of(&lab, 730), 2, owner);

    // A prolog is killed while captures run and some ports are mirrored.
    lab.switch_fault(Some(SwitchFault::Kill(3)));
    killed(&lab, 731);
    lab.switch_fault(None);
    assert!(!lab.captures_running().is_empty(), "{}", lab.log_text());
    until(Duration::from_secs(30), "an aborted run", || {
        lab.capture(&["list"]).stdout.contains("aborted").then_some(())
    });
    let undone = lab.capture(&["undo", "--job", "731"]);
    assert_eq!(undone.code, 0, "{}{}", undone.stdout, undone.stderr);
    clean(&lab);
    let left = fs::read_dir(lab.path().join("captures")).expect("captures").count();
    assert_eq!(left, 0, "files of captures that never started, or were fetched");
    planted(&lab);
}

/// The user creates the folder of captures, after somebody removed it, with a link to a file of root: the
/// helper reads nothing there.
fn planted(lab: &HookLab) {
    let captures = lab.path().join("captures");
    fs::remove_dir(&captures).expect("an empty folder");
    let name = captures.join("ibscope-7-20261101T000000Z-n1-ibsim0-1.log");
    let (folder, name) = (captures.display().to_string(), name.display().to_string());
    lab.container.succeeds(["install", "-d", "-o", USER, &folder]);
    lab.container.succeeds(["ln", "-s", "/etc/shadow", &name]);
    for words in [
        &["status", "1", "2", &name, &name][..],
        &["fetch", &name, "1", "9"],
        &["chown", USER, &name],
        &["list", &folder],
    ] {
        let request = serde_json::Value::from([&["5"], words].concat()).to_string();
        let user = ["setpriv", "--reuid=ibscope", "--regid=ibscope", "--clear-groups", "sudo", "-n", "--"];
        let ran = lab.container.run(user.iter().chain(&["/usr/local/bin/ibscope", "capture", "helper", &request]));
        let printed = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(
            ran.stdout.is_empty() && printed.contains("the folder of node.toml cannot be used"),
            "{words:?}: {printed}"
        );
    }
}

/// What the user must not be able to do while captures run.
fn refused(lab: &HookLab) {
    let sudo = |words: &[&str]| {
        let user = ["setpriv", "--reuid=ibscope", "--regid=ibscope", "--clear-groups", "sudo", "-n", "--"];
        lab.container.run(user.iter().chain(words))
    };
    let helper = |words: &[&str]| {
        let request = serde_json::Value::from([&["5"], words].concat()).to_string();
        sudo(&["/usr/local/bin/ibscope", "capture", "helper", &request])
    };
    let captures = lab.path().join("captures").display().to_string();
    // The helper itself works.
    let listed = helper(&["list", &captures]);
    assert!(listed.status.success() && !listed.stdout.is_empty(), "{listed:?}");
    let file = format!("{captures}/ibscope-7-20261101T000000Z-n1-ibsim0-1.pcap");
    let log = file.replace(".pcap", ".log");
    let ibdump = lab.path().join("bin/ibdump").display().to_string();
    let first = lab.container.succeeds(["cat", "/proc/1/stat"]);
    let start = first.rsplit_once(") ").expect("stat").1.split(' ').nth(19).expect("start").to_owned();
    for words in [
        &["launch", &log, &file, "0", "0", "/bin/sh", "-d", "ibsim0", "-i", "1", "-w", &file][..],
        &["launch", &log, &file, "0", "0", &ibdump, "-d", "ibsim0", "-i", "1", "-w", "/etc/cron.d/x"],
        &["launch", "/etc/x", &file, "0", "0", &ibdump, "-d", "ibsim0", "-i", "1", "-w", &file],
        &[
            "launch",
            &log,
            &file,
            "0",
            "0",
            "/usr/bin/tcpdump",
            "--time-stamp-precision=nano",
            "-n",
            "-Z",
            "root",
            "-i",
            "lo",
            "-w",
            &file,
            "-z",
            "/tmp/x",
        ],
        &["signal", "1", &start, "KILL", "1"],
        &["remove", "/etc/passwd"],
        &["remove", &format!("{captures}/../etc/passwd")],
        &["fetch", "/etc/shadow", "1", "1"],
        &["chown", USER, "/etc/shadow"],
        &["make", "/etc/ibscope-1"],
        &["list", "/root"],
        &["sh", "-c", "id"],
    ] {
        let ran = helper(words);
        let printed = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(!ran.status.success() && ran.stdout.is_empty(), "{words:?}: {ran:?}");
        assert!(printed.contains("ibscope capture helper refuses this: "), "{words:?}: {printed}");
    }
    for words in [
        &["/bin/sh", "-c", "id"][..],
        &["/usr/local/bin/ibscope", "capture", "undo", "--all-stale"],
        &["/usr/local/bin/ibscope", "hook", "sweep"],
    ] {
        let ran = sudo(words);
        let printed = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(!ran.status.success() && printed.contains("sudo: a password is required"), "{words:?}: {printed}");
    }
}
