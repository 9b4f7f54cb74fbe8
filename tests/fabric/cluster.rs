//! Captures that are analyzed on the cluster: `slurm-analyze` submits to a real Slurm two tasks for each
//! capture, tasks fail and run again, and the merge reports missing parts and then merges all.

use crate::analysis::by_rank;
use crate::container::until;
use crate::lab::HookLab;
use crate::slurm::Hooks;
use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A recorded run of four ranks on four nodes, with no other messages on the wire.
const RUN: &str = "runs/ompi-rc-notrace-mixed-4x1";
/// Its second capture, and the tasks that share it.
const BROKEN: &str = "node2.pcap.zst";
const BROKEN_TASKS: [usize; 2] = [2, 3];

/// One capture is damaged at first: its tasks fail, the others succeed, and the merge names the
/// missing one. When it is submitted again with the whole capture, two tasks have work to do, and the
/// merge gives the same profile as one analysis of all captures. A task that Slurm runs again finds
/// nothing to do.
pub(crate) fn captures_are_analyzed_by_an_array_of_tasks() {
    let lab = HookLab::start();
    lab.slurm(Hooks { lines: "", timeout_s: 10 });
    let folder = lab.path().join("many captures");
    fs::create_dir(&folder).expect("folder");
    let captures: Vec<PathBuf> = (1..=4).map(|node| folder.join(format!("node{node}.pcap.zst"))).collect();
    for capture in &captures {
        let name = capture.file_name().expect("name");
        fs::copy(tools::samples_folder().join(RUN).join(name), capture).expect("copy");
    }
    let whole = fs::read(folder.join(BROKEN)).expect("capture");
    fs::write(folder.join(BROKEN), [0x28, 0xB5, 0x2F, 0xFD, 0, 0, 0, 0]).expect("damaged");

    let (_, merge) = submit(&lab, &folder, &captures);
    assert_eq!(lab.ended(merge), ("FAILED".to_owned(), "1:0".to_owned()), "{}", log(&lab, "merge"));
    let log_text = log(&lab, "merge");
    assert!(log_text.contains("1 of 4 captures are not analyzed"), "{log_text}");
    assert!(log_text.contains(&format!("{BROKEN} (tasks 2, 3)")), "{log_text}");
    for task in BROKEN_TASKS {
        let log_text = log(&lab, &format!("analyze-{task}"));
        assert!(log_text.contains(BROKEN), "{log_text}");
    }
    assert!(!lab.path().join("job.ibp").exists());

    fs::write(folder.join(BROKEN), &whole).expect("capture");
    let (array, merge) = submit(&lab, &folder, &captures);
    assert_eq!(lab.ended(merge), ("COMPLETED".to_owned(), "0:0".to_owned()), "{}", log(&lab, "merge"));
    for task in 0..8 {
        let log_text = log(&lab, &format!("analyze-{task}"));
        assert_eq!(log_text.contains("is already analyzed"), !BROKEN_TASKS.contains(&task), "task {task}: {log_text}");
    }
    let job = lab.path().join("job.ibp");
    let truth = fs::read_to_string(tools::samples_folder().join(RUN).join("wire.csv")).expect("truth");
    let mut truth: Vec<String> = truth.lines().skip(1).map(str::to_owned).collect();
    truth.sort();
    assert_eq!(by_rank(&job), truth);
    let at_once = lab.path().join("at-once.ibp");
    tools::result(&["analyze", "--partial", "--bin", "1ms", "-o", at_once.to_str().expect("path")], &captures);
    assert_eq!(files(&job), files(&at_once));

    // Slurm runs a task again, as after the failure of a node.
    let task = format!("{array}_2");
    lab.slurm_tool(&["scontrol", "requeue", &task]);
    until(Duration::from_secs(20), "a task that waits again", || {
        lab.slurm_tool(&["scontrol", "show", "job", &task]).contains("JobState=PENDING").then_some(())
    });
    // Without this it would begin again only after two minutes.
    lab.slurm_tool(&["scontrol", "update", &format!("JobId={task}"), "StartTime=now"]);
    until(Duration::from_mins(1), "a task that runs again", || {
        log(&lab, "analyze-2").contains("is already analyzed").then_some(())
    });
    assert_eq!(files(&job), files(&at_once));
}

/// Submits the jobs. Returns the ids of the array and of the merge.
fn submit(lab: &HookLab, folder: &Path, captures: &[PathBuf]) -> (u32, u32) {
    assert_eq!(captures.len(), 4);
    let [program, folder, output] = [lab.path().join("bin/ibscope"), folder.to_owned(), lab.path().join("job.ibp")]
        .map(|path| path.display().to_string());
    let options = ["--submit", "--shares", "2", "--sbatch=--partition=ib", "--", "--bin", "1ms"];
    let printed =
        lab.slurm_tool(&[&[program.as_str(), "slurm-analyze", &folder, "-o", &output], &options[..]].concat());
    let ids: Vec<u32> = printed.lines().map(|line| line.parse().expect("the id of a job")).collect();
    let [array, merge] = ids[..] else { panic!("{printed}") };
    (array, merge)
}

/// Log of a job.
fn log(lab: &HookLab, name: &str) -> String {
    fs::read_to_string(lab.path().join("job.ibp.slurm").join(format!("{name}.log"))).unwrap_or_default()
}

/// All files of a profile with their bytes.
fn files(place: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(place).expect("profile").map(|entry| entry.expect("entry").path());
    let mut files: Vec<_> =
        entries.map(|path| (path.file_name().expect("name").into(), fs::read(&path).expect("file"))).collect();
    files.sort();
    files
}
