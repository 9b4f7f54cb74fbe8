//! Profiles that other versions of ibscope wrote (`tests/compat`, `docs/stability.md`): profiles of
//! the current format version are read with the right numbers; others are rejected with advice.

use crate::tools::{ibscope, samples_folder};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The version of the format of the newest profile in `tests/compat`.
const NEWEST: u64 = 4;

/// The profile of this version of the format.
fn of_version(version: u64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/compat/version-{version}"))
}

fn document(profile: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(profile.join("profile.json")).expect("profile")).expect("JSON")
}

/// The current format version.
fn today(folder: &Path) -> u64 {
    let place = folder.join("today.ibp");
    let ran = ibscope([Path::new("analyze"), &samples_folder().join("ucx-ud-ring2.pcap.zst"), Path::new("-o"), &place]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    document(&place)["version"].as_u64().expect("version")
}

/// A copy of the old profile with a changed document.
fn copy(folder: &Path, version: u64, change: impl FnOnce(&mut Value)) -> PathBuf {
    let place = folder.join("copy.ibp");
    fs::create_dir_all(&place).expect("folder");
    for entry in fs::read_dir(of_version(version)).expect("profile") {
        let path = entry.expect("entry").path();
        fs::copy(&path, place.join(path.file_name().expect("name"))).expect("copy");
    }
    let mut document = document(&place);
    change(&mut document);
    fs::write(place.join("profile.json"), document.to_string()).expect("profile");
    place
}

/// Messages and bytes from these columns, by `src,dst`.
fn sums(csv: &str) -> BTreeMap<(String, String), (u64, u64)> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<u64>().expect("number");
        ((fields[0].to_owned(), fields[1].to_owned()), (number(2), number(3)))
    };
    csv.lines().skip(1).map(row).filter(|(_, (messages, _))| *messages > 0).collect()
}

/// Every command that reads profiles accepts this one, and the matrix equals the truth.
fn reads(profile: &Path) {
    let place = profile.to_str().expect("path");
    let ran = ibscope(["matrix", place, "--by", "rank", "--format", "csv"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let truth = fs::read_to_string(samples_folder().join("openib-mixed-4x1.truth.csv")).expect("truth");
    assert_eq!(sums(&ran.stdout), sums(&truth));
    for command in ["summary", "timeline", "ranks", "collectives", "health", "latency", "rates", "phases"] {
        let ran = ibscope([command, place, "--format", "csv"]);
        assert_eq!(ran.code, 0, "{command}: {}", ran.stderr);
        assert!(ran.stdout.lines().count() > 1 || command == "health", "{command}: {}", ran.stdout);
    }
    let ran = ibscope(["compare", place, place]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

fn is_refused(profile: &Path, version: &str, writer: &str) {
    let place = profile.to_str().expect("path");
    for command in ["matrix", "report", "merge"] {
        let output = profile.with_extension("out");
        let output = output.to_str().expect("path");
        let more: &[&str] = if command == "matrix" { &[] } else { &["-o", output] };
        let ran = ibscope([&[command, place], more].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{command}");
        for part in [place, version, writer, "analyze the captures again"] {
            assert!(ran.stderr.contains(part), "{command}: {part} is not in {}", ran.stderr);
        }
        assert!(!Path::new(output).exists(), "{command}");
    }
}

#[test]
fn an_old_profile_is_read_or_rejected() {
    let folder = tempfile::tempdir().expect("folder");
    let today = today(folder.path());
    for version in 3..=NEWEST {
        if today == version {
            reads(&of_version(version));
        } else {
            let folder = tempfile::tempdir().expect("folder");
            is_refused(&copy(folder.path(), version, |_| ()), &format!("profile version {version}"), "0.1.0");
        }
    }
}

#[test]
fn a_profile_of_a_newer_version_is_rejected() {
    let folder = tempfile::tempdir().expect("folder");
    let newer = today(folder.path()) + 1;
    let profile = copy(folder.path(), NEWEST, |document| {
        document["version"] = json!(newer);
        document["ibscope"] = json!("9.8.7");
        // Only the header of the document must have the current form.
        document["inputs"] = json!("something else");
    });
    is_refused(&profile, &format!("profile version {newer}"), "9.8.7");
}

/// Additions of later versions under the same format version are ignored.
#[test]
fn later_additions_are_ignored() {
    let folder = tempfile::tempdir().expect("folder");
    if today(folder.path()) == NEWEST {
        let profile = copy(folder.path(), NEWEST, |document| {
            document["added_later"] = json!({ "a": [1] });
            document["coverage"]["added_later"] = json!(1);
        });
        reads(&profile);
    }
}
