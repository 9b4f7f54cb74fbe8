//! Captures that are analysed on the cluster: `slurm-analyze` submits to a real Slurm, tasks fail and run again, the merge tells and then has all.

use crate::analysis::by_rank;
use crate::container::until;
use crate::lab::Lab;
use crate::slurm::Hooks;
use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A recorded run of four ranks, each on a node of its own, and nothing on the wire but its own messages.
const RUN: &str = "runs/ompi-rc-notrace-mixed-4x1";
/// Its second capture.
const BROKEN: &str = "node2.pcap.zst";

/// One capture is damaged at first: its task fails, the others are done, the merge says which lacks. Submitted again when it is whole, one task has work to
/// do, and the merge gives what one analysis of all gives. A task that Slurm runs again finds nothing to do.
pub(crate) fn captures_are_analysed_by_an_array_of_tasks() {
    let lab = Lab::start();
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
    let told = log(&lab, "merge");
    assert!(told.contains("1 of 4 captures are not analysed") && told.contains(BROKEN), "{told}");
    let told = log(&lab, "analyze-1");
    assert!(told.contains(BROKEN), "{told}");
    assert!(!lab.path().join("job.ibp").exists());

    fs::write(folder.join(BROKEN), &whole).expect("capture");
    let (array, merge) = submit(&lab, &folder, &captures);
    assert_eq!(lab.ended(merge), ("COMPLETED".to_owned(), "0:0".to_owned()), "{}", log(&lab, "merge"));
    for task in 0..4 {
        let told = log(&lab, &format!("analyze-{task}"));
        assert_eq!(told.contains("is analysed already"), task != 1, "task {task}: {told}");
    }
    let job = lab.path().join("job.ibp");
    let truth = fs::read_to_string(tools::samples_folder().join(RUN).join("wire.csv")).expect("truth");
    let mut truth: Vec<String> = truth.lines().skip(1).map(str::to_owned).collect();
    truth.sort();
    assert_eq!(by_rank(&job), truth);
    let at_once = lab.path().join("at-once.ibp");
    tools::result(&["analyze", "--partial", "--bin", "1ms", "-o", at_once.to_str().expect("path")], &captures);
    assert_eq!(files(&job), files(&at_once));

    // Slurm runs a task again, as it does where a node has failed.
    let task = format!("{array}_1");
    lab.slurm_tool(&["scontrol", "requeue", &task]);
    until(Duration::from_secs(20), "a task that waits again", || {
        lab.slurm_tool(&["scontrol", "show", "job", &task]).contains("JobState=PENDING").then_some(())
    });
    // By itself it would begin again after two minutes.
    lab.slurm_tool(&["scontrol", "update", &format!("JobId={task}"), "StartTime=now"]);
    until(Duration::from_mins(1), "a task that runs again", || {
        log(&lab, "analyze-1").contains("is analysed already").then_some(())
    });
    assert_eq!(files(&job), files(&at_once));
}

/// Submits the jobs, and gives their ids: that of the array and that of the merge.
fn submit(lab: &Lab, folder: &Path, captures: &[PathBuf]) -> (u32, u32) {
    assert_eq!(captures.len(), 4);
    let [program, folder, output] = [lab.path().join("bin/ibscope"), folder.to_owned(), lab.path().join("job.ibp")]
        .map(|path| path.display().to_string());
    let options = ["--submit", "--sbatch=--partition=ib", "--", "--bin", "1ms"];
    let said = lab.slurm_tool(&[&[program.as_str(), "slurm-analyze", &folder, "-o", &output], &options[..]].concat());
    let ids: Vec<u32> = said.lines().map(|line| line.parse().expect("the id of a job")).collect();
    let [array, merge] = ids[..] else { panic!("{said}") };
    (array, merge)
}

/// What a job printed.
fn log(lab: &Lab, name: &str) -> String {
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
