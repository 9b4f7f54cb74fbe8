//! What an administrator sees of a run that is left: exit codes, metrics, and the analysis after an undo
//! by hand. Packaged files for the log and the state folder.

use crate::analysis::check_counts;
use crate::cases::{hook, lab, starts};
use crate::jobs::{clean, folder_of};
use crate::lab::HookLab;
use crate::site::SiteConfig;
use crate::sweeper::sweep;
use crate::switch::SwitchFault;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Value of a metric in the textfile.
fn metric(lab: &HookLab, name: &str) -> u64 {
    let text = fs::read_to_string(lab.path().join("ibscope.prom")).expect("metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name} is missing in {text}")).parse().expect("a number")
}

/// Exit codes of `capture list` and `capture status`.
fn codes(lab: &HookLab, job: &str) -> [i32; 2] {
    [lab.capture(&["list"]).code, lab.capture(&["status", "--job", job]).code]
}

/// A run is captured, then left because a switch keeps a port mirrored, then undone by hand, and only
/// then merged into the job's profile.
pub(crate) fn a_run_that_is_left_is_shown_and_analyzed_once_it_is_undone() {
    let lab = lab(SiteConfig::PLAIN);
    let metrics = format!("metrics = \"{}/ibscope.prom\"", lab.path().display());
    lab.configure(SiteConfig { capture: "mode = \"profile\"", run: &metrics, ..SiteConfig::PLAIN });
    starts(&lab, 770);
    assert_eq!(codes(&lab, "770"), [0, 0], "a run of a live job is fine");
    let (_, port, _) = lab.topology.place("n001");
    lab.switch_fault(Some(SwitchFault::Keep(port as u8)));
    hook(&lab, "epilog", 770);
    assert_eq!(codes(&lab, "770"), [1, 1], "{}", lab.log_text());
    assert_eq!(codes(&lab, "771"), [1, 0], "no run of this job is left");
    assert_eq!(sweep(&lab).code, 1);
    let values = ["ibscope_runs_left", "ibscope_mirrored_ports", "ibscope_captures"].map(|name| metric(&lab, name));
    assert_eq!((values[0], values[2]), (1, 0));
    assert!(values[1] >= 1, "{values:?}");
    let run = folder_of(&lab, 770);
    assert!(!run.join("job.ibp").exists(), "the run is not complete yet");

    lab.switch_fault(None);
    let undone = lab.capture(&["undo", "--job", "770"]);
    assert_eq!(undone.code, 0, "{}{}", undone.stdout, undone.stderr);
    assert!(undone.stderr.contains("profiles merged into"), "{}", undone.stderr);
    check_counts(&run.join("job.ibp"));
    assert_eq!((codes(&lab, "770"), sweep(&lab).code), ([0, 0], 0));
    assert_eq!(["ibscope_runs_left", "ibscope_mirrored_ports"].map(|name| metric(&lab, name)), [0, 0]);
    let age_s = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("time").as_secs()
        - metric(&lab, "ibscope_sweep_timestamp_seconds");
    assert!(age_s < 60, "{age_s} s");
    clean(&lab);
}

/// Path of a packaged file.
fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name)
}

/// logrotate rotates the log with the packaged file, and systemd-tmpfiles creates the state folder.
pub(crate) fn the_log_is_rotated_and_the_state_folder_is_created() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    if Path::new("/usr/sbin/logrotate").exists() {
        fs::write(at("ibscope.log"), "a line\n").expect("log");
        let text = fs::read_to_string(packaged("logrotate/ibscope")).expect("file");
        let text = text.replace("/var/log/ibscope.log", &at("ibscope.log").display().to_string());
        fs::write(at("rotate"), text).expect("file");
        let mut command = Command::new("/usr/sbin/logrotate");
        let ran = command.arg("--force").arg("--state").arg(at("status")).arg(at("rotate")).output();
        let ran = ran.expect("logrotate");
        assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
        assert_eq!(fs::read_to_string(at("ibscope.log.1")).expect("the old log"), "a line\n");
        assert_eq!(fs::read_to_string(at("ibscope.log")).expect("the new log"), "");
    } else {
        println!("SKIPPED: logrotate is not installed");
    }
    if Path::new("/usr/bin/systemd-tmpfiles").exists() {
        let mut command = Command::new("/usr/bin/systemd-tmpfiles");
        command.arg("--create").arg(format!("--root={}", folder.path().display()));
        let ran = command.arg(packaged("tmpfiles/ibscope.conf")).output().expect("systemd-tmpfiles");
        assert!(ran.status.success(), "{ran:?}");
        crate::analysis::check_private_folder(&at("var/lib/ibscope"));
    } else {
        println!("SKIPPED: systemd-tmpfiles is not installed");
    }
}
