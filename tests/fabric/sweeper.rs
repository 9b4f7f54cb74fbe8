//! The sweeper on real Slurm: whatever keeps an epilog from undoing a capture, nothing is left
//! after a sweep, and a live job keeps its capture.

use crate::container::until;
use crate::jobs::{SAMPLE, clean, install};
use crate::lab::{HookLab, LabSetting};
use crate::site::SiteConfig;
use crate::slurm::Hooks;
use crate::switch::SwitchFault;
use crate::tools::{self, ProgramResult};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An action on the lab.
type Action = fn(&HookLab);

/// A fault during a job.
struct LeftCapture {
    name: &'static str,
    /// What happens while the job runs.
    meanwhile: Action,
    /// What the epilog must have achieved, checked before the repair.
    after: Action,
    /// Ends the fault.
    repair: Action,
}

const fn nothing(_: &HookLab) {}

/// The epilog restored the fabric.
fn restored(lab: &HookLab) {
    until(Duration::from_secs(40), "an epilog that restores the fabric", || {
        (lab.mirrored().is_empty() && lab.captures_running().is_empty()).then_some(())
    });
}

/// The epilog could not end the mirrors, but ended the captures. The sweeper says so, and waits
/// before it tries again.
fn mirrored_without_captures(lab: &HookLab) {
    until(Duration::from_secs(40), "an epilog that reports what is left", || {
        lab.log_text().contains("not undone: ").then_some(())
    });
    assert_eq!(lab.captures_running(), [""; 0], "captures end although the switch hangs");
    assert_eq!(lab.mirrored().len(), 4);
    // Only the third attempt is followed by a pause.
    for attempt in 1..=3 {
        let swept = sweep(lab);
        let waits = swept.stdout.contains("next attempt in");
        assert_eq!((swept.code, waits), (1, attempt == 3), "{attempt}: {}{}", swept.stdout, swept.stderr);
    }
}

/// No epilog ran.
fn untouched(lab: &HookLab) {
    assert_eq!(lab.mirrored().len(), 4);
}

const FAULTS: [LeftCapture; 9] = [
    LeftCapture { name: "none", meanwhile: nothing, after: restored, repair: nothing },
    LeftCapture {
        name: "the configuration is broken at the epilog",
        meanwhile: |lab| fs::write(lab.path().join("capture.toml"), "[ssh\n").expect("configuration"),
        after: |lab| {
            restored(lab);
            let log_text = lab.log_text();
            assert!(log_text.contains("the capture is undone with the configuration that began it"), "{log_text}");
        },
        repair: |lab| _ = lab.configure(site()),
    },
    LeftCapture {
        name: "the program is missing at the epilog",
        meanwhile: |lab| fs::rename(program(lab), lab.path().join("bin/away")).expect("program"),
        after: restored,
        repair: |lab| fs::rename(lab.path().join("bin/away"), program(lab)).expect("program"),
    },
    LeftCapture {
        name: "no epilog, and the configuration was moved",
        meanwhile: |lab| {
            fs::rename(lab.path().join("scripts/epilog"), lab.path().join("scripts/away")).expect("script");
            fs::remove_file(lab.path().join("capture.toml")).expect("configuration");
        },
        after: untouched,
        repair: |lab| fs::rename(lab.path().join("scripts/away"), lab.path().join("scripts/epilog")).expect("script"),
    },
    LeftCapture {
        name: "a switch hangs",
        meanwhile: |lab| lab.switch_fault(Some(SwitchFault::Hang)),
        after: mirrored_without_captures,
        repair: |lab| lab.switch_fault(None),
    },
    LeftCapture {
        name: "a sink is dead",
        meanwhile: |lab| lab.stop_ssh_server("sink1a"),
        after: |lab| {
            until(Duration::from_secs(40), "an epilog that ends the mirrors", || {
                lab.mirrored().is_empty().then_some(())
            });
            until(Duration::from_secs(40), "an epilog that reports what is left", || {
                lab.log_text().contains("sink1a: no connection").then_some(())
            });
            assert_eq!(sweep(lab).code, 1);
        },
        repair: |lab| lab.start_ssh_server("sink1a"),
    },
    LeftCapture {
        name: "the state folder is read-only",
        meanwhile: |lab| {
            let state = lab.path().join("state").display().to_string();
            lab.container.succeeds(["mount", "--bind", &state, &state]);
            lab.container.succeeds(["mount", "-o", "remount,bind,ro", &state]);
        },
        after: |lab| {
            restored(lab);
            until(Duration::from_secs(20), "an epilog that reports the folder", || {
                lab.log_text().contains("the journal cannot be written").then_some(())
            });
            let swept = sweep(lab);
            assert_eq!(swept.code, 1, "{}{}", swept.stdout, swept.stderr);
        },
        repair: |lab| _ = lab.container.succeeds(["umount", &lab.path().join("state").display().to_string()]),
    },
    LeftCapture {
        name: "a line of the journal is damaged",
        meanwhile: |lab| {
            let mut text = fs::read(journal(lab)).expect("journal");
            let second = text.iter().position(|byte| *byte == b'\n').expect("a line") + 3;
            text[second] ^= 1;
            fs::write(journal(lab), text).expect("journal");
        },
        after: restored,
        repair: nothing,
    },
    LeftCapture {
        name: "the first line of the journal is truncated",
        meanwhile: |lab| {
            let text = fs::read(journal(lab)).expect("journal");
            fs::write(lab.path().join("whole"), &text).expect("copy");
            fs::write(journal(lab), &text[..100]).expect("journal");
        },
        after: |lab| {
            untouched(lab);
            let swept = sweep(lab);
            let printed = swept.stdout + &swept.stderr;
            assert!(swept.code == 1 && printed.contains("line 1: it is missing or truncated"), "{printed}");
            assert!(journal(lab).exists());
        },
        repair: |lab| fs::write(journal(lab), fs::read(lab.path().join("whole")).expect("copy")).expect("journal"),
    },
];

/// The configuration of the cases: a short time limit of the switch.
fn site() -> SiteConfig<'static> {
    SiteConfig { mirror: "timeout_s = 2", ..SiteConfig::PLAIN }
}

/// The program that the hooks' scripts call.
fn program(lab: &HookLab) -> PathBuf {
    fs::read_link(lab.path().join("bin/ibscope")).expect("a link")
}

/// The only open journal.
fn journal(lab: &HookLab) -> PathBuf {
    let mut names = fs::read_dir(lab.path().join("state")).expect("folder").map(|entry| entry.expect("entry").path());
    names.find(|path| path.extension().is_some_and(|extension| extension == "journal")).expect("a journal")
}

/// Sweeps with the command of the systemd unit, with the paths of the lab. Hooks sweep too, so this
/// waits until none runs.
pub(crate) fn sweep(lab: &HookLab) -> ProgramResult {
    until(Duration::from_mins(1), "the end of all hooks", || {
        let is_hook = |line: &String| line.contains("hook prolog") || line.contains("hook epilog");
        (!lab.container.processes().values().any(is_hook)).then_some(())
    });
    let unit = fs::read_to_string(unit("ibscope-sweep.service")).expect("unit");
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/bin/sh -c '")).expect("a command");
    let [config, state] = ["capture.toml", "state"].map(|name| lab.path().join(name).display().to_string());
    let command = command
        .trim_end_matches('\'')
        .replace("$$", "$")
        .replace("/usr/bin/ibscope", &lab.path().join("bin/ibscope").display().to_string())
        .replace("/var/lib/ibscope", &state)
        .replace("hook sweep", &format!("hook sweep --config {config} --state-dir {state}"));
    let (reuid, regid) = (format!("--reuid={}", lab.user), format!("--regid={}", lab.user));
    lab.container.run(["setpriv", &reuid, &regid, "--clear-groups", "/bin/sh", "-c", &command]).into()
}

/// Path of a packaged unit.
fn unit(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd").join(name)
}

/// systemd accepts the packaged units.
pub(crate) fn the_units_are_valid() {
    if !Path::new("/usr/bin/systemd-analyze").exists() {
        println!("SKIPPED: systemd-analyze is not installed");
        return;
    }
    for name in ["ibscope-sweep.service", "ibscope-sweep.timer"] {
        let ran = Command::new("/usr/bin/systemd-analyze").args(["verify", "--man=no"]).arg(unit(name)).output();
        let ran = ran.expect("systemd-analyze");
        assert!(ran.status.success() && ran.stderr.is_empty(), "{name}: {ran:?}");
    }
}

/// Each fault during a job, one after the other.
pub(crate) fn what_an_epilog_leaves_is_swept(setting: LabSetting) {
    let lab = HookLab::start_in(setting);
    lab.traffic(&tools::sample(SAMPLE));
    let config = lab.configure(site());
    let run = format!("slurm_conf = \"{}/slurm/slurm.conf\"", lab.path().display());
    let text = fs::read_to_string(&config).expect("configuration");
    fs::write(&config, text.replace("syslog = false", &format!("syslog = false\n{run}"))).expect("configuration");
    let whole = fs::read(&config).expect("configuration");
    let lines = install(&lab, config.to_str().expect("path"));
    lab.slurm(Hooks { lines: &lines, timeout_s: 70 });
    let go = lab.path().join("go");
    for case in &FAULTS {
        println!("{}", case.name);
        _ = fs::remove_file(&go);
        let id = lab
            .submit(&["-N4", "--comment=ibscope=on"], &format!("while [ ! -e {} ]; do sleep 0.1; done", go.display()));
        until(Duration::from_mins(1), "a captured job", || {
            (lab.mirrored().len() == 4 && lab.job(id).0 == "RUNNING").then_some(())
        });
        let swept = sweep(&lab);
        assert_eq!((swept.code, swept.stdout), (0, format!("job {id}: running\n")), "{}", swept.stderr);
        assert_eq!(lab.mirrored().len(), 4, "{}: a live job keeps its capture", case.name);
        (case.meanwhile)(&lab);
        fs::write(&go, "").expect("file");
        assert_eq!(lab.ended(id).0, "COMPLETED", "{}: {}", case.name, lab.log_text());
        (case.after)(&lab);
        (case.repair)(&lab);
        until(Duration::from_secs(75), "a sweep that leaves nothing", || {
            let swept = sweep(&lab);
            let is_open = fs::read_dir(lab.path().join("state"))
                .expect("folder")
                .any(|entry| entry.expect("entry").path().extension().is_some_and(|of| of == "journal"));
            std::thread::sleep(Duration::from_millis(300));
            (swept.code == 0 && !is_open).then_some(())
        });
        fs::write(&config, &whole).expect("configuration");
        lab.hand_over();
        fs::write(lab.path().join("log/ibscope"), "").expect("log");
        clean(&lab);
        assert_eq!(lab.drained().trim(), "", "{}", case.name);
    }
}
