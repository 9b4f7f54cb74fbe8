//! Archives of many events are summed up as a stream. The archive of 50 million events is in
//! `make soak`.

use super::Description;
use crate::memory::{self, MAX_BYTES, MIB};
use crate::runs;
use serde_json::json;

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
    let (peak_bytes, result) = memory::crosscheck(&run.sink(), &archive);
    assert!(peak_bytes < MAX_BYTES / 2, "{} MiB", peak_bytes / MIB);
    assert_eq!(result["events"], json!(3 * SENDS));
    let pairs = result["pairs"].as_array().expect("pairs");
    let sums =
        |what: &str| pairs.iter().map(|pair| pair[format!("trace_{what}")].as_i64().expect("number")).sum::<i64>();
    assert_eq!((sums("messages"), sums("bytes")), (SENDS, 100 * SENDS));
}
