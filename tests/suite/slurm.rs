//! The output of `slurm-analyze` for Slurm, run by hand: the scripts, a task for each capture,
//! tasks that fail or run again, the merge. The fabric tests submit the same to a real Slurm.

use crate::align::{ClockSetting, set};
use crate::merge::cut;
use crate::runs;
use crate::tools::{ProgramResult, ibscope, samples_folder};
use std::fs;
use std::path::{Path, PathBuf};

struct SlurmSite {
    folder: tempfile::TempDir,
}

impl SlurmSite {
    /// A folder with captures, and a file that is not a capture.
    fn new(captures: &[PathBuf]) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let own = folder.path().join("captures");
        fs::create_dir(&own).expect("folder");
        for capture in captures {
            fs::copy(capture, own.join(capture.file_name().expect("name"))).expect("copy");
        }
        fs::write(own.join("notes.txt"), "no capture").expect("text");
        Self { folder }
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("path").to_owned()
    }

    fn plan(&self, more: &[&str]) -> ProgramResult {
        let (captures, output) = (self.at("captures"), self.at("job.ibp"));
        ibscope([&["slurm-analyze", &captures, "-o", &output][..], more].concat())
    }

    fn task(&self, task: usize) -> ProgramResult {
        ibscope(["slurm-task", &self.at("job.ibp.slurm"), &task.to_string()])
    }

    fn merge(&self, more: &[&str]) -> ProgramResult {
        ibscope([&["slurm-merge", &self.at("job.ibp.slurm")][..], more].concat())
    }

    /// Tables of the merged profile, and of one analysis of all captures.
    fn both(&self, captures: usize) -> [ibscope::model::Profile; 2] {
        let mut paths: Vec<String> = fs::read_dir(self.at("captures"))
            .expect("captures")
            .map(|entry| entry.expect("entry").path().to_str().expect("path").to_owned())
            .filter(|path| path.contains(".pcap"))
            .collect();
        paths.sort();
        assert_eq!(paths.len(), captures);
        let whole = self.at("whole.ibp");
        let words = ["analyze", "-o", &whole, "--bin", "1ms"].map(str::to_owned);
        let ran = ibscope(words.into_iter().chain(paths));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        [self.at("job.ibp"), whole].map(|place| ibscope::pipeline::load(Path::new(&place)).expect("profile"))
    }
}

fn succeeds(ran: &ProgramResult) {
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn tasks_and_their_merge_equal_one_analysis() {
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let site = SlurmSite::new(&run.every_node());
    let planned = site.plan(&["--sbatch=--partition=ib", "--at-once", "3", "--", "--bin", "1ms"]);
    succeeds(&planned);
    assert_eq!(planned.stdout.lines().count(), 2, "{}", planned.stdout);
    assert!(
        planned.stderr.contains("notes.txt: skipped, because its first bytes are not those of a capture"),
        "{}",
        planned.stderr
    );
    assert!(planned.stdout.contains("--dependency=afterany"), "{}", planned.stdout);
    let script = fs::read_to_string(site.at("job.ibp.slurm/analyze.sbatch")).expect("script");
    for line in ["#!/bin/sh", "#SBATCH --array=0-3%3", "#SBATCH --requeue", "#SBATCH --partition=ib"] {
        assert!(script.lines().any(|own| own == line), "{script}");
    }
    // No task has run yet.
    let merged = site.merge(&[]);
    assert!(merged.code == 1 && merged.stderr.contains("4 of 4 captures are not analyzed"), "{}", merged.stderr);
    assert_eq!(site.merge(&["--allow-missing"]).code, 1, "no part is no result");
    // One capture is damaged, one task was killed.
    let damaged = site.at("captures/node3.pcap.zst");
    fs::write(&damaged, [0x28, 0xB5, 0x2F, 0xFD, 0, 0, 0, 0]).expect("damaged");
    let names: Vec<String> = fs::read_dir(site.at("job.ibp.slurm"))
        .expect("folder")
        .map(|entry| entry.expect("entry").file_name().to_str().expect("name").to_owned())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for task in [0, 1, 3] {
        succeeds(&site.task(task));
    }
    assert_eq!(site.task(2).code, 1);
    assert_eq!(site.task(4).code, 1);
    let merged = site.merge(&[]);
    let expected = "1 of 4 captures are not analyzed: ";
    assert!(merged.code == 1 && merged.stderr.contains(expected), "{}", merged.stderr);
    assert!(merged.stderr.contains("node3.pcap.zst (task 2)"), "{}", merged.stderr);
    assert!(!Path::new(&site.at("job.ibp")).exists());
    let merged = site.merge(&["--allow-missing"]);
    succeeds(&merged);
    let few = ibscope::pipeline::load(Path::new(&site.at("job.ibp"))).expect("profile");
    assert!(few.inputs.len() == 3 && few.notes.iter().any(|note| note.contains(expected)), "{:?}", few.notes);
    // Existing parts stay; changed captures run again.
    fs::copy(run.node(3), &damaged).expect("copy");
    succeeds(&site.plan(&["--", "--bin", "1ms"]));
    for (task, is_done) in [(0, true), (1, true), (2, false), (3, true), (2, true)] {
        let ran = site.task(task);
        succeeds(&ran);
        assert_eq!(ran.stderr.contains("is already analyzed"), is_done, "task {task}: {}", ran.stderr);
    }
    succeeds(&site.merge(&[]));
    let [merged, whole] = site.both(4);
    assert_eq!(merged, whole);
    // Other options: no part is done.
    succeeds(&site.plan(&["--", "--bin", "2ms"]));
    let merged = site.merge(&[]);
    assert!(merged.code == 1 && merged.stderr.contains("4 of 4"), "{}", merged.stderr);
}

/// A table of an option that was corrected between two calls: its tasks run again, and the merged profile
/// has the corrected names. A table that was removed changes nothing.
#[test]
fn a_corrected_table_is_analyzed_again() {
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let site = SlurmSite::new(&[run.node(1), run.node(2)]);
    let hosts = site.at("hosts.csv");
    let correct = fs::read_to_string(samples_folder().join("hosts-roce.csv")).expect("hosts");
    let wrong = correct.replace("node1", "wrong");
    assert!(wrong != correct && wrong.len() == correct.len());
    let analyze_with = |table: &str, is_done: bool| {
        fs::write(&hosts, table).expect("hosts");
        succeeds(&site.plan(&["--", "--bin", "1ms", "--hosts", &hosts]));
        for task in 0..2 {
            let ran = site.task(task);
            succeeds(&ran);
            assert_eq!(ran.stderr.contains("is already analyzed"), is_done, "{}", ran.stderr);
        }
        succeeds(&site.merge(&[]));
        let profile = ibscope::pipeline::load(Path::new(&site.at("job.ibp"))).expect("profile");
        fs::remove_dir_all(site.at("job.ibp")).expect("removed");
        format!("{:?}", profile.names)
    };
    let before = analyze_with(&wrong, false);
    assert!(before.contains("wrong") && !before.contains("node1"), "{before}");
    // Only the content changes: neither the length nor the options do.
    fs::write(&hosts, &correct).expect("hosts");
    let merged = site.merge(&[]);
    assert!(merged.code == 1 && merged.stderr.contains("2 of 2 captures are not analyzed"), "{}", merged.stderr);
    let after = analyze_with(&correct, false);
    assert!(after.contains("node1") && !after.contains("wrong"), "{after}");
    assert_eq!(analyze_with(&correct, true), after);
    fs::remove_file(&hosts).expect("removed");
    assert!(site.task(0).stderr.contains("is already analyzed"));
    succeeds(&site.merge(&[]));
}

/// The files of a rotated capture are one task, which reads them as one stream: the merged numbers are
/// those of the capture in one file. A share of it is a task too.
#[test]
fn the_files_of_a_rotated_capture_are_one_task() {
    let run = runs::named("ompi-rc-halo-2x2");
    let folder = tempfile::tempdir().expect("folder");
    let rename = |(file, name): (PathBuf, &str)| {
        let name = folder.path().join(name);
        fs::rename(&file, &name).expect("renamed");
        name
    };
    let files = cut(&run.sink(), 3, folder.path()).into_iter();
    let captures: Vec<PathBuf> = files.zip(["sink.pcap", "sink.pcap1", "sink.pcap2"]).map(rename).collect();
    for shares in ["1", "2"] {
        let site = SlurmSite::new(&captures);
        let planned = site.plan(&["--shares", shares, "--", "--bin", "1ms"]);
        succeeds(&planned);
        assert!(planned.stderr.contains("1 capture in 3 files"), "{}", planned.stderr);
        let merged = site.merge(&[]);
        let expected = "1 of 1 captures are not analyzed: ";
        assert!(merged.code == 1 && merged.stderr.contains(expected), "{}", merged.stderr);
        assert!(merged.stderr.contains("sink.pcap and 2 more files (task"), "{}", merged.stderr);
        let tasks = shares.parse::<usize>().expect("number");
        (0..tasks).for_each(|task| succeeds(&site.task(task)));
        assert!(site.task(0).stderr.contains("is already analyzed"));
        assert_eq!(site.task(tasks).code, 1);
        succeeds(&site.merge(&[]));
        let [merged, whole] = site.both(3);
        assert!(merged == whole, "{:?} {:?}", merged.notes, whole.notes);
        let rows = |profile: &ibscope::model::Profile| -> Vec<_> {
            profile.connections.iter().map(|row| (row.src_qp, row.dest_qp, row.traffic, row.coverage.state)).collect()
        };
        let options = ibscope::pipeline::AnalysisOptions::default();
        let uncut = ibscope::pipeline::analyze(&[run.sink()], &options, &|_| {}).expect("profile");
        assert_eq!(rows(&merged), rows(&uncut));
        // A further file changes the capture.
        fs::copy(&captures[0], site.at("captures/sink.pcap3")).expect("copy");
        succeeds(&site.plan(&["--shares", shares, "--", "--bin", "1ms"]));
        let merged = site.merge(&[]);
        assert!(merged.code == 1 && merged.stderr.contains("and 3 more files"), "{}", merged.stderr);
    }
    let refused = SlurmSite::new(&captures).plan(&["--", "--streams", "streams.csv"]);
    assert!(refused.code == 2 && refused.stderr.contains("--streams does not apply"), "{}", refused.stderr);
}

/// The leftovers of a killed task are removed, and never count as a part.
#[test]
fn leftovers_of_a_killed_task_are_not_a_part() {
    let run = runs::named("ompi-rc-halo-2x2");
    let site = SlurmSite::new(&run.every_node());
    succeeds(&site.plan(&["--", "--bin", "1ms"]));
    succeeds(&site.task(0));
    succeeds(&site.task(1));
    let profile = |ending: &str| {
        let entries = fs::read_dir(site.at("job.ibp.slurm")).expect("folder").map(|entry| entry.expect("entry").path());
        let mut found: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
        found.sort();
        found
    };
    let (parts, fingerprints) = (profile(".ibp"), profile(".json"));
    assert_eq!((parts.len(), fingerprints.len()), (2, 3), "two fingerprints and the plan");
    // Killed while it wrote: no fingerprint, and a folder that was not renamed.
    fs::remove_file(&fingerprints[0]).expect("fingerprint");
    let begun = parts[0].with_extension("ibp.part-1234");
    fs::rename(&parts[0], &begun).expect("renamed");
    let merged = site.merge(&[]);
    assert!(merged.code == 1 && merged.stderr.contains("1 of 2 captures"), "{}", merged.stderr);
    succeeds(&site.task(0));
    assert!(parts[0].exists() && !begun.exists());
    succeeds(&site.merge(&[]));
    let [merged, whole] = site.both(2);
    assert_eq!(merged, whole);
}

/// The merge finds the clocks, the tasks of these captures run again, and the result equals one
/// analysis.
#[test]
fn different_clocks_need_a_second_run() {
    let run = runs::named("ompi-rc-ring2");
    let folder = tempfile::tempdir().expect("folder");
    let (moved, _) =
        set(&run.node(2), ClockSetting { ahead_ns: 2_000_000_000, ppm: 15.0, resolution_ns: 1 }, folder.path());
    let site = SlurmSite::new(&[run.node(1), moved]);
    succeeds(&site.plan(&["--", "--bin", "1ms"]));
    succeeds(&site.task(0));
    succeeds(&site.task(1));
    let merged = site.merge(&[]);
    assert!(merged.code == 1 && merged.stderr.contains("clocks.csv: submit the jobs again"), "{}", merged.stderr);
    let redone = [0, 1].map(|task| {
        let ran = site.task(task);
        succeeds(&ran);
        !ran.stderr.contains("is already analyzed")
    });
    // One of the two is the reference.
    assert_eq!(redone.iter().filter(|redone| **redone).count(), 1);
    succeeds(&site.merge(&[]));
    let [merged, whole] = site.both(2);
    assert_eq!(merged, whole);
}

#[test]
fn invalid_plans_are_errors() {
    let run = runs::named("ompi-rc-halo-2x2");
    let site = SlurmSite::new(&run.every_node());
    for (options, code, expected) in [
        (&["--", "--from", "1"][..], 2, "--partial"),
        (&["--", "--color"], 2, "--color"),
        (&["--", "other.pcap"], 2, "only options may follow"),
    ] {
        let ran = site.plan(options);
        assert!(ran.code == code && ran.stderr.contains(expected), "{options:?}: {} {}", ran.code, ran.stderr);
    }
    assert!(!Path::new(&site.at("job.ibp.slurm")).exists());
    let output = site.at("a%b.ibp");
    let ran = ibscope(["slurm-analyze", &site.at("captures"), "-o", &output]);
    assert!(ran.code == 1 && ran.stderr.contains("job script"), "{}", ran.stderr);
    let empty = site.at("empty");
    fs::create_dir(&empty).expect("folder");
    let ran = ibscope(["slurm-analyze", &empty, "-o", &site.at("job.ibp")]);
    assert!(ran.code == 1 && ran.stderr.contains("no capture"), "{}", ran.stderr);
}
