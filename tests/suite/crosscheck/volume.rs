//! Archives of many events are added up as they come. The one of 50 million events is in `make soak`.

use super::Description;
use crate::memory::{MIB, MOST_BYTES, watch};
use crate::runs;
use serde_json::json;
use std::process::{Command, Stdio};

#[test]
fn an_archive_is_not_held_in_memory() {
    /// 100 thousand sends over 4096 tags, each within a call.
    const SENDS: i64 = 100_000;
    let folder = tempfile::tempdir().expect("folder");
    let mut description = Description::new(4, 1);
    for index in 0..SENDS {
        let (rank, tag) = (index % 4, index / 4 % 4096);
        description.events.push(json!([rank, 0, "work", 10 * index]));
        description.events.push(json!([rank, 0, "send", 10 * index + 1, (rank + 1) % 4, 0, tag, 100]));
    }
    let archive = description.write(folder.path());
    let run = runs::named("ompi-rc-notrace-mixed-4x1");
    let out = folder.path().join("out.json");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ibscope"))
        .arg("crosscheck")
        .arg(run.sink())
        .arg(&archive)
        .args(["--format", "json", "--threads", "2"])
        .stdout(std::fs::File::create(&out).expect("out"))
        .stderr(Stdio::null())
        .spawn()
        .expect("spawn");
    let peak_bytes = watch(&mut child);
    // It is not the trace of this run.
    assert_eq!(child.wait().expect("wait").code(), Some(4));
    assert!(peak_bytes < MOST_BYTES / 2, "{} MiB", peak_bytes / MIB);
    let json: serde_json::Value = serde_json::from_reader(std::fs::File::open(out).expect("out")).expect("json");
    assert_eq!(json["crosscheck"]["events"], json!(3 * SENDS));
    let pairs = json["crosscheck"]["pairs"].as_array().expect("pairs");
    let sums = |what: &str| pairs.iter().map(|pair| pair["trace"][what].as_i64().expect("number")).sum::<i64>();
    assert_eq!((sums("messages"), sums("bytes")), (SENDS, 100 * SENDS));
}
