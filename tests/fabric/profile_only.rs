//! Captures that keep only a profile: sinks analyze packets while they arrive, store none of them,
//! and count what the analysis cannot keep up with.

use crate::analysis::{check_counts, check_private};
use crate::cases::{LONGEST, NODELIST, hook, lab, starts};
use crate::container::until;
use crate::jobs::{clean, folder_of, manifest_of};
use crate::lab::HookLab;
use crate::site::SiteConfig;
use crate::tools;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

/// User and group 1 of Debian, the owner of the runs.
const OWNER: (u32, u32) = (1, 1);

/// Configures profile-only captures. Further lines belong to `[capture.profile]`.
fn configure(lab: &HookLab, profile: &str) {
    let capture = format!("mode = \"profile\"\nowner = \"daemon:daemon\"\n[capture.profile]\n{profile}");
    lab.configure(SiteConfig { capture: &capture, ..SiteConfig::PLAIN });
}

/// Fails if a file below a folder has packets: no capture format begins otherwise than with one of
/// these magic numbers.
fn check_no_packets(folder: &Path) {
    for entry in fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry")) {
        let kind = entry.file_type().expect("type");
        if kind.is_dir() {
            check_no_packets(&entry.path());
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).expect("file");
            let magic: [&[u8]; 3] = [&[0xd4, 0xc3, 0xb2, 0xa1], &[0x4d, 0x3c, 0xb2, 0xa1], &[0x0a, 0x0d, 0x0d, 0x0a]];
            assert!(!magic.iter().any(|magic| bytes.starts_with(magic)), "{} has packets", entry.path().display());
        } else {
            assert!(kind.is_fifo() || kind.is_symlink(), "{}", entry.path().display());
        }
    }
}

/// Process ids of the programs in the lab whose command line has this text.
fn processes(lab: &HookLab, text: &str) -> Vec<String> {
    let all = lab.container.processes().into_iter();
    all.filter(|(_, line)| line.contains(text) && !line.contains("ibscope-launch"))
        .map(|(id, _)| id.to_string())
        .collect()
}

/// The capture programs themselves, without the relays that started them.
fn captures(lab: &HookLab) -> Vec<String> {
    let program = lab.path().join("bin/ibdump").display().to_string();
    lab.container.processes().into_values().filter(|line| line.starts_with(&program)).collect()
}

fn signal(lab: &HookLab, signal: &str, ids: &[String]) {
    let words = ["kill", "-s", signal].into_iter().chain(ids.iter().map(String::as_str));
    lab.container.run(words);
}

const ANALYSIS: &str = "ibscope analyze --partial";

/// Sinks keep profiles only, and the epilog merges them into the job's profile, for its owner. Then
/// the analyses cannot keep up; then they are killed; then the relays are killed.
pub(crate) fn sinks_keep_profiles_only() {
    let lab = lab(SiteConfig::PLAIN);
    lab.let_users_in();
    lab.copy_programs();
    configure(&lab, "");
    fs::set_permissions(lab.path().join("runs"), fs::Permissions::from_mode(0o711)).expect("permissions");
    starts(&lab, 760);
    check_no_packets(&lab.path().join("captures"));
    let log_text = hook(&lab, "epilog", 760);
    assert!(log_text.contains("profiles merged into"), "{log_text}");
    clean(&lab);
    let run = folder_of(&lab, 760);
    for folder in [&lab.path().join("captures"), &run] {
        check_no_packets(folder);
    }
    assert_eq!(fs::read_dir(lab.path().join("captures")).expect("folder").count(), 0, "fetched, and deleted");
    check_counts(&run.join("job.ibp"));
    check_private(&run.join("job.ibp/profile.json"), OWNER);
    let summary = tools::result(&["matrix"], &[&run.join("job.ibp")]);
    assert!(summary.contains("n001"), "names of nodes: {summary}");
    let manifest = manifest_of(&lab, 760);
    for capture in manifest["captures"].as_array().expect("captures") {
        let (profile, counted) = (&capture["ended"]["profile"], &capture["ended"]["counted"]);
        assert_eq!((&profile["packets"], &profile["dropped_packets"]), (&counted["packets"], &0.into()), "{manifest}");
        let limited = profile["limited_by"].as_str().expect("text");
        assert!(limited.starts_with("prlimit and nice: ") || limited.starts_with("systemd-run: "), "{limited}");
    }

    the_analyses_cannot_keep_up(&lab);
    the_analyses_are_limited(&lab);
    the_analyses_run_in_scopes(&lab);

    for (job, killed, said) in [
        (762, ANALYSIS, "ended with status 1"),
        (763, "ibscope capture relay", "ibdump had ended before it was stopped"),
    ] {
        starts(&lab, job);
        signal(&lab, "KILL", &processes(&lab, killed));
        // A capture does not outlive its relay.
        let ends = job == 763;
        until(LONGEST, "the end", || (!ends || captures(&lab).is_empty()).then_some(()));
        let log_text = hook(&lab, "epilog", job);
        assert!(log_text.contains(said), "{killed}: {log_text}");
        clean(&lab);
        check_no_packets(&lab.path().join("captures"));
        let names =
            fs::read_dir(lab.path().join("captures")).expect("captures").map(|entry| entry.expect("entry").path());
        let left: Vec<_> =
            names.filter(|path| path.extension().is_some_and(|extension| extension == "relay")).collect();
        assert!(left.is_empty(), "the folder of a relay that was killed stays: {left:?}");
    }
}

/// The analyses stop reading until their captures have ended: what does not fit into the queue is
/// dropped, counted, and named in manifest, log and profile.
fn the_analyses_cannot_keep_up(lab: &HookLab) {
    configure(lab, "queue_bytes = 65_536");
    starts(lab, 761);
    let analyses = until(LONGEST, "two analyses", || {
        let found = processes(lab, ANALYSIS);
        (found.len() == 2).then_some(found)
    });
    signal(lab, "STOP", &analyses);
    std::thread::scope(|scope| {
        let epilog = scope.spawn(|| lab.hook("epilog", 761, NODELIST));
        until(LONGEST, "the end of both captures", || captures(lab).is_empty().then_some(()));
        signal(lab, "CONT", &analyses);
        assert_eq!(epilog.join().expect("epilog").code, 0);
    });
    clean(lab);
    let manifest = manifest_of(lab, 761);
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    for capture in manifest["captures"].as_array().expect("captures") {
        let (profile, counted) = (&capture["ended"]["profile"], &capture["ended"]["counted"]);
        let (packets, dropped) = (number(&profile["packets"]), number(&profile["dropped_packets"]));
        let all = number(&counted["packets"]);
        assert!(packets > 0 && dropped > 0 && packets + dropped == all, "{manifest}");
        let bytes = number(&profile["bytes"]) + number(&profile["dropped_bytes"]);
        // ibdump does not count the 16 bytes of each ERF header.
        assert_eq!(bytes, number(&counted["bytes"]) + 16 * all);
        let sink = capture["sink"].as_str().expect("sink");
        let said = format!("{sink}: the analysis could not keep up: {dropped} of {all} packets");
        assert!(lab.log_text().contains(&format!("job 761: warning: {said}")), "{}", lab.log_text());
        assert!(manifest["notes"].to_string().contains(&said), "{manifest}");
        // The note groups digits by spaces.
        let text = fs::read_to_string(folder_of(lab, 761).join("job.ibp/profile.json")).expect("profile");
        let note =
            format!("{sink}: the analysis beside the capture could not keep up, so {dropped} packets are missing");
        let plain = |text: &str| text.split_whitespace().collect::<String>();
        assert!(plain(&text).contains(&plain(&note)), "{text}");
    }
}

/// Ends a capture of two sinks, and returns how the analyses were limited.
fn limits_of(lab: &HookLab, job: u32) -> Vec<String> {
    hook(lab, "epilog", job);
    clean(lab);
    let manifest = manifest_of(lab, job);
    let captures = manifest["captures"].as_array().expect("captures").iter();
    captures.map(|capture| capture["ended"]["profile"]["limited_by"].as_str().expect("text").to_owned()).collect()
}

/// Puts an empty folder over that of systemd, and in it what shows that systemd is process 1.
fn cover_systemd(lab: &HookLab, is_process_1: bool) {
    lab.container.succeeds(["mkdir", "-p", "/run/systemd"]);
    lab.container.succeeds(["mount", "-t", "tmpfs", "none", "/run/systemd"]);
    if is_process_1 {
        lab.container.succeeds(["mkdir", "/run/systemd/system"]);
    }
}

/// Without systemd, the kernel limits memory and priority of the analyses. An analysis that reaches
/// its limit ends, the capture goes on, and the log says so.
fn the_analyses_are_limited(lab: &HookLab) {
    cover_systemd(lab, false);
    configure(lab, "memory_bytes = 3_000_000_000");
    starts(lab, 764);
    let analyses = until(LONGEST, "two analyses", || Some(processes(lab, ANALYSIS)).filter(|found| found.len() == 2));
    for id in &analyses {
        let limits = lab.container.succeeds(["cat", &format!("/proc/{id}/limits")]);
        let data = limits.lines().find(|line| line.starts_with("Max data size")).expect("a limit");
        let words: Vec<&str> = data.split_whitespace().collect();
        assert_eq!(words[3..5], ["3000000000"; 2], "{limits}");
        assert_eq!(lab.container.succeeds(["ps", "-o", "ni=", "-p", id]).trim(), "19");
    }
    let expected =
        "prlimit and nice: 3000000000 bytes of data, 1 threads, no limit of CPU time (systemd does not run here)";
    assert_eq!(limits_of(lab, 764), [expected; 2]);

    configure(lab, "memory_bytes = 1_000_000");
    starts(lab, 765);
    let log_text = hook(lab, "epilog", 765);
    assert!(log_text.contains("the analysis wrote no profile"), "{log_text}");
    clean(lab);
    check_no_packets(&lab.path().join("captures"));
    lab.container.succeeds(["umount", "/run/systemd"]);
}

/// A stand-in for `systemd-run`: the real one parses the arguments, and must miss nothing but its bus.
/// Then the program after them runs, or the stand-in fails as for a user who may not create a scope.
const SYSTEMD_RUN: &str = r#"#!/bin/sh
text=$(LAB/systemd-run "$@" 2>&1)
case $text in *"Failed to connect to bus"*) ;; *) echo "$text" >&2; exit 1 ;; esac
[ ! -e LAB/denied ] || { echo "Failed to start transient scope unit: Access denied" >&2; exit 1; }
printf '%s\n' "$*" >>LAB/scopes
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"#;

/// Where systemd is process 1, the analyses run in scopes with limits. If no scope can be created,
/// they have the other limits, and the manifest says why.
fn the_analyses_run_in_scopes(lab: &HookLab) {
    const REAL: &str = "/usr/bin/systemd-run";
    if !Path::new(REAL).exists() || !Path::new("/usr/bin/systemd-analyze").exists() {
        println!("SKIPPED: systemd is not installed");
        return;
    }
    cover_systemd(lab, true);
    let at = |name: &str| lab.path().join(name);
    fs::copy(REAL, at("systemd-run")).expect("systemd-run");
    let standin = at("systemd-run.sh");
    fs::write(&standin, SYSTEMD_RUN.replace("LAB", &lab.path().display().to_string())).expect("stand-in");
    fs::set_permissions(&standin, fs::Permissions::from_mode(0o755)).expect("permissions");
    lab.container.succeeds(["mount", "--bind", standin.to_str().expect("path"), REAL]);

    configure(lab, "memory_bytes = 3_000_000_000\ncpus = 2");
    starts(lab, 766);
    assert_eq!(limits_of(lab, 766), ["systemd-run: 3000000000 bytes of memory, 2 CPUs"; 2]);
    check_counts(&folder_of(lab, 766).join("job.ibp"));
    let scopes = fs::read_to_string(at("scopes")).expect("scopes");
    let options = "--scope --quiet --collect -p MemoryMax=3000000000 -p MemorySwapMax=0 -p CPUQuota=200% --";
    let programs: Vec<&str> = scopes.lines().map(|line| line.strip_prefix(options).expect(line)).collect();
    let analyses = programs.iter().filter(|program| program.contains(ANALYSIS)).count();
    assert_eq!((programs.len(), analyses), (4, 2), "two trials and two analyses: {scopes}");
    // systemd accepts names and values of the limits.
    let limits: Vec<&str> = options.split(' ').filter(|word| word.contains('=')).collect();
    let unit = at("limits.service");
    fs::write(&unit, format!("[Service]\nExecStart=/bin/true\n{}\n", limits.join("\n"))).expect("unit");
    let ran = Command::new("/usr/bin/systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output();
    let ran = ran.expect("systemd-analyze");
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");

    fs::write(at("denied"), "").expect("file");
    starts(lab, 767);
    for limited in limits_of(lab, 767) {
        assert!(limited.starts_with("prlimit and nice: ") && limited.ends_with("Access denied)"), "{limited}");
    }
    check_counts(&folder_of(lab, 767).join("job.ibp"));
    lab.container.succeeds(["umount", REAL]);
    lab.container.succeeds(["umount", "/run/systemd"]);
}
