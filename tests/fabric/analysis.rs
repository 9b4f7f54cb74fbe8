//! Checks of fetched captures: they are private, and the analysis finds the numbers that the
//! recorded program counted.

use crate::jobs::SAMPLE;
use crate::lab::{FIRST_LID, HookLab};
use crate::tools;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Checks that manifest and captures of a run belong to this user and group only, and that their
/// analysis gives the numbers that the recorded program counted.
pub(crate) fn check_run(lab: &HookLab, run: &Path, captures: usize, owner: (u32, u32)) {
    let manifest = run.join("manifest.json");
    let text = fs::read_to_string(&manifest).expect("manifest");
    let value: serde_json::Value = serde_json::from_str(&text).expect("json");
    let files = files(run);
    assert_eq!(files.len(), captures, "{text}");
    for file in files.iter().chain([&manifest]) {
        check_private(file, owner);
    }
    let lids: Vec<u64> =
        value["ports"].as_array().expect("ports").iter().map(|port| port["lid"].as_u64().expect("lid")).collect();
    assert_eq!(lids, (u64::from(FIRST_LID)..u64::from(FIRST_LID) + 4).collect::<Vec<u64>>());

    let profile = lab.path().join("job.ibp");
    let manifest = manifest.display().to_string();
    tools::result(&["analyze", "--manifest", &manifest, "-o", profile.to_str().expect("path")], &files);
    check_counts(&profile);
}

/// Paths of the captures in the manifest of a run, which are in the folder of the manifest.
pub(crate) fn files(run: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(run.join("manifest.json")).expect("manifest");
    let value: serde_json::Value = serde_json::from_str(&text).expect("json");
    let captures = value["captures"].as_array().expect("captures");
    captures.iter().map(|capture| run.join(capture["file"].as_str().expect("file"))).collect()
}

/// Checks that only its owner can read a file.
pub(crate) fn check_private(file: &Path, owner: (u32, u32)) {
    let metadata = fs::metadata(file).expect("file");
    let found = (metadata.permissions().mode() & 0o777, metadata.uid(), metadata.gid());
    assert_eq!(found, (0o600, owner.0, owner.1), "{}", file.display());
}

/// Checks that only root can enter a folder.
pub(crate) fn check_private_folder(folder: &Path) {
    let metadata = fs::metadata(folder).expect("folder");
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.uid()), (0o700, 0), "{}", folder.display());
}

/// Checks that the profile of a whole job has the numbers that the recorded program counted.
pub(crate) fn check_counts(profile: &Path) {
    let truth = fs::read_to_string(tools::samples_folder().join(format!("{SAMPLE}.truth.csv"))).expect("truth");
    let mut truth: Vec<String> = truth.lines().skip(1).map(str::to_owned).collect();
    truth.sort();
    assert_eq!(by_rank(profile), truth);
}

/// `SRC,DST,MESSAGES,BYTES` of the pairs of ranks that have messages.
pub(crate) fn by_rank(input: &Path) -> Vec<String> {
    let matrix = tools::result(&["matrix", "--by", "rank", "--format", "csv"], &[input]);
    let mut counted: Vec<String> = matrix
        .lines()
        .skip(1)
        .map(|line| line.split(',').take(4).collect::<Vec<_>>().join(","))
        .filter(|line| !line.ends_with(",0,0"))
        .collect();
    counted.sort();
    counted
}
