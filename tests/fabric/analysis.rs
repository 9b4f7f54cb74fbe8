//! What becomes of captures: private files, and numbers that are those which the recorded program counted.

use crate::jobs::SAMPLE;
use crate::lab::{FIRST_LID, Lab};
use crate::tools;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Manifest and captures of a run belong to this user and group and to nobody else, and together they give what the recorded program counted.
pub(crate) fn analysed(lab: &Lab, run: &Path, captures: usize, owner: (u32, u32)) {
    let manifest = run.join("manifest.json");
    let text = fs::read_to_string(&manifest).expect("manifest");
    let value: serde_json::Value = serde_json::from_str(&text).expect("json");
    let files = files(run);
    assert_eq!(files.len(), captures, "{text}");
    for file in files.iter().chain([&manifest]) {
        private(file, owner);
    }
    let lids: Vec<u64> =
        value["ports"].as_array().expect("ports").iter().map(|port| port["lid"].as_u64().expect("lid")).collect();
    assert_eq!(lids, (u64::from(FIRST_LID)..u64::from(FIRST_LID) + 4).collect::<Vec<u64>>());

    let profile = lab.path().join("job.ibp");
    let manifest = manifest.display().to_string();
    tools::result(&["analyze", "--manifest", &manifest, "-o", profile.to_str().expect("path")], &files);
    counted(&profile);
}

/// Captures that the manifest of a run names, which lie beside it.
pub(crate) fn files(run: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(run.join("manifest.json")).expect("manifest");
    let value: serde_json::Value = serde_json::from_str(&text).expect("json");
    let captures = value["captures"].as_array().expect("captures");
    captures.iter().map(|capture| run.join(capture["file"].as_str().expect("file"))).collect()
}

/// Only its owner may read the file.
pub(crate) fn private(file: &Path, owner: (u32, u32)) {
    let metadata = fs::metadata(file).expect("file");
    let found = (metadata.permissions().mode() & 0o777, metadata.uid(), metadata.gid());
    assert_eq!(found, (0o600, owner.0, owner.1), "{}", file.display());
}

/// A profile of the whole job has what the recorded program counted.
pub(crate) fn counted(profile: &Path) {
    let truth = fs::read_to_string(tools::samples_folder().join(format!("{SAMPLE}.truth.csv"))).expect("truth");
    let mut truth: Vec<String> = truth.lines().skip(1).map(str::to_owned).collect();
    truth.sort();
    assert_eq!(by_rank(profile), truth);
}

/// `SRC,DST,MESSAGES,BYTES` of pairs of ranks that have any.
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
