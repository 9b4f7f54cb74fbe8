//! Commands that write files, with a fault at every change to the file system, and with too few
//! threads.

use super::fault;
use crate::writing::{SLURM_TASK, WRITERS, WriteSite, is_usual};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SIGTERM: i32 = 15;

/// The changes that the command makes to the file system, one per line (`faults/fault.c`).
fn changes(mut command: Command, log: &Path) -> Vec<String> {
    let output = command.env("LD_PRELOAD", fault()).env("FAULT_LOG", log).output().expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = fs::read_to_string(log).expect("log").lines().map(str::to_owned).collect();
    fs::remove_file(log).expect("removed");
    lines
}

/// The signal comes twice, so that commands that finish with a partial result end at once too. Such
/// a command may handle the first signal and end before the second one arrives; its exit code then
/// names the signal, like a shell's.
#[test]
fn a_command_ended_at_any_change_leaves_old_results_intact() {
    let site = WriteSite::new();
    let log = tempfile::tempdir().expect("folder");
    let log = log.path().join("log");
    for writer in WRITERS {
        for replaces in [false, true] {
            if replaces && writer == SLURM_TASK {
                continue;
            }
            site.clear(writer);
            let mut lines = changes(site.command(writer), &log);
            let whole = site.results();
            if replaces {
                lines = changes(site.command(writer), &log);
            }
            let count = lines.iter().filter(|line| !line.starts_with("fsync ")).count();
            assert!(count > 1, "{writer:?}: {count} changes");
            let mut ended = 0;
            for at in 1..=count {
                if !replaces {
                    site.clear(writer);
                }
                let mut command = site.command(writer);
                command.env("LD_PRELOAD", fault()).env("FAULT_WRITE", at.to_string());
                let output = command.env("FAULT_SIGNAL", SIGTERM.to_string()).output().expect("started");
                let what = format!("{writer:?} at change {at}: {}", String::from_utf8_lossy(&output.stderr));
                assert!(is_usual(output.status, SIGTERM), "{}: {what}", output.status);
                ended += u32::from(!output.status.success());
                site.assert_whole(&whole, &what);
                if replaces {
                    assert_eq!(site.results().len(), whole.len(), "{what}: the old result is still there");
                }
            }
            assert!(ended > 0, "{writer:?} was never ended");
        }
    }
}

/// The content and the name of each file are synced before the profile gets its name, and the name
/// is synced before the command ends.
#[test]
fn a_profile_is_synced_before_it_gets_its_name() {
    let site = WriteSite::new();
    site.clear(WRITERS[0]);
    let log = tempfile::tempdir().expect("folder");
    let lines = changes(site.command(WRITERS[0]), &log.path().join("log"));
    let of = |what: &str, ending: &str| lines.iter().position(|line| line.starts_with(what) && line.ends_with(ending));
    let renamed = of("rename ", "/OUT/job.ibp").unwrap_or_else(|| panic!("{lines:#?}"));
    let scratch = lines[renamed].split(' ').nth(1).expect("a path").to_owned();
    let profile = site.results().into_keys().find(|path| path.ends_with("job.ibp")).expect("the profile");
    let mut files: Vec<PathBuf> =
        fs::read_dir(&profile).expect("profile").map(|entry| entry.expect("entry").path()).collect();
    assert_eq!(files.len(), 13);
    // The folder itself.
    files.push(PathBuf::new());
    for path in files {
        let name = path.file_name().map(|name| format!("/{}", name.to_string_lossy())).unwrap_or_default();
        let synced = of("fsync ", &format!("{scratch}{name}")).unwrap_or_else(|| panic!("{name}: {lines:#?}"));
        let is_written = |line: &String| line.starts_with("write ") && line.ends_with(&format!("{scratch}{name}"));
        assert!(synced < renamed && !lines[synced..].iter().any(is_written), "{name}: {lines:#?}");
    }
    let parent = of("fsync ", "/OUT").unwrap_or_else(|| panic!("{lines:#?}"));
    assert!(parent > renamed, "{lines:#?}");
}

#[test]
fn threads_that_cannot_be_started_are_an_error() {
    const READERS: [&[&str]; 3] =
        [&["matrix", "IN/part.ibp"], &["inspect", "IN/capture.pcap"], &["health", "IN/capture.pcap"]];
    let site = WriteSite::new();
    for arguments in WRITERS.iter().chain(&READERS) {
        site.clear(arguments);
        let mut refused = 0;
        for threads in 0.. {
            let mut command = site.command(arguments);
            command.env("LD_PRELOAD", fault()).env("FAULT_THREADS", threads.to_string());
            // The same number of threads on every machine.
            command.env("RAYON_NUM_THREADS", "2").env("POLARS_MAX_THREADS", "2");
            let output = command.output().expect("started");
            let printed = String::from_utf8_lossy(&output.stderr);
            if output.status.success() {
                break;
            }
            assert_eq!(output.status.code(), Some(1), "{arguments:?} with {threads} threads: {printed}");
            assert!(
                printed.contains("start") && printed.contains("ulimit -u"),
                "{arguments:?} with {threads} threads: {printed}"
            );
            site.results();
            refused += 1;
        }
        assert!(refused > 0, "{arguments:?} needs threads");
    }
}
