//! Target `pipeline`: the bytes are a capture, processed from the file to the HTML page.

use crate::{render, scratch};
use ibscope::model::{InspectedPacket, Profile};
use ibscope::pipeline::{self, AnalysisOptions};
use ibscope::render::messages::MessageLines;
use ibscope::render::packets::LineFormat;
use std::io;
use std::path::{Path, PathBuf};

/// Analyzes the capture, renders the profile in every format, and lists messages and packets.
///
/// # Panics
/// If these ways of reading the capture count differently.
pub fn run(bytes: &[u8]) {
    scratch::file("fuzz.pcap", bytes, |path| {
        drop(analyze_and_render(&[path.to_owned()], bytes.len().is_multiple_of(8)));
    });
}

/// Runs every operation on captures; draws the figures only if `figures` is true.
pub(crate) fn analyze_and_render(paths: &[PathBuf], figures: bool) -> Option<Profile> {
    let options = AnalysisOptions { threads: 1, ..AnalysisOptions::default() };
    let profile = pipeline::analyze(paths, &options, &|_| {}).ok()?;
    assert_consistent(&profile);
    render::all(&profile, figures);
    let stream = pipeline::messages(paths, &options, true, &|_| {}).expect("messages where there are sums");
    let totals = stream.profile().clone();
    assert_eq!(totals.connections.len(), profile.connections.len());
    let out = &mut io::sink();
    let mut lines = MessageLines::begin(LineFormat::Csv, &totals, Some(80), out).expect("written to nowhere");
    for row in stream {
        lines.message(&row.expect("a message"), &totals).expect("written to nowhere");
    }
    let mut packets = 0;
    let mut count = |_: &InspectedPacket, _: Option<i64>| {
        packets += 1;
        true
    };
    let (coverage, _) = pipeline::inspect(paths, &options, &mut count).expect("packets where there are sums");
    let whole = &profile.coverage;
    assert_eq!((coverage.infiniband, coverage.records), (whole.infiniband, whole.records));
    // Packets whose lengths contradict each other are listed, too.
    assert!(packets >= whole.infiniband && packets <= whole.records);
    Some(profile)
}

/// Asserts relations between the sums of a profile.
fn assert_consistent(profile: &Profile) {
    let coverage = &profile.coverage;
    let others = coverage.other_frames.values().chain(coverage.undecoded.values()).sum::<u64>();
    assert_eq!(coverage.records, coverage.infiniband + others);
    if coverage.without_time == 0 {
        let packets: u64 = profile.connections.iter().map(|row| row.traffic.packets).sum();
        let over_time: u64 = profile.timeline.iter().map(|row| row.traffic.packets).sum();
        assert_eq!(packets, over_time, "packets of connections and of bins");
    }
    for row in &profile.connections {
        assert!(row.traffic.wire_bytes >= row.traffic.payload_bytes);
        assert!(row.first_time_ns <= row.last_time_ns || row.traffic.packets == 0);
    }
}

/// The profile of captures; `None` if they cannot be analyzed.
pub(crate) fn profile(paths: &[&Path], options: &AnalysisOptions) -> Option<Profile> {
    let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).to_owned()).collect();
    pipeline::analyze(&paths, options, &|_| {}).ok()
}
