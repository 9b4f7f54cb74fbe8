//! An OTF2 archive of 50 million events, compared with the time that `otf2-print` alone takes for
//! it.

use crate::memory::{self, MAX_BYTES, MIB};
use crate::tools::sample;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Three events for each of these messages.
const MESSAGES_PER_RANK: u64 = 4_166_667;
const RANKS: u64 = 4;

#[test]
fn fifty_million_events_are_added_up_in_bounded_memory() {
    let folder = tempfile::tempdir().expect("folder");
    let (generator, archive) = (folder.path().join("large"), folder.path().join("archive"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/otf2/large.c");
    let compiled =
        Command::new("cc").arg("-O2").arg(source).arg("-o").arg(&generator).arg("-lopen-trace-format2").status();
    assert!(compiled.expect("cc").success(), "`make soak` installs libotf2-trace-dev");
    let numbers = [RANKS, MESSAGES_PER_RANK].map(|number| number.to_string());
    assert!(Command::new(generator).arg(&archive).args(numbers).status().expect("generator").success());
    let anchor = archive.join("traces.otf2");
    let events = 3 * RANKS * MESSAGES_PER_RANK;

    let start = Instant::now();
    let printed = Command::new("otf2-print").arg("-A").arg(&anchor).stdout(Stdio::null()).status();
    assert!(printed.expect("otf2-print").success());
    let alone_s = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let (peak_bytes, result) = memory::crosscheck(&sample("ucx-rc-mixed-4x1"), &anchor);
    let own_s = start.elapsed().as_secs_f64();
    // The library adds an event of its own (BUFFER_FLUSH) when it empties the buffer of a location:
    // here once, at its end.
    let flushes = result["events"].as_u64().map(|read| read - events);
    assert_eq!(flushes, Some(RANKS));
    let pairs = result["pairs"].as_array().expect("pairs");
    let bytes: u64 = pairs.iter().filter_map(|pair| pair["trace_bytes"].as_u64()).sum();
    assert_eq!(bytes, RANKS * MESSAGES_PER_RANK.div_ceil(2) * 1024);
    println!(
        "{events} events: {:.2} million/s, otf2-print alone {:.2} million/s; {} MiB",
        events as f64 / own_s / 1e6,
        events as f64 / alone_s / 1e6,
        peak_bytes / MIB
    );
    assert!(peak_bytes < MAX_BYTES, "{} MiB", peak_bytes / MIB);
}
