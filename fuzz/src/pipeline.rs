//! Bytes as a capture, from the file to the page.

use crate::{render, scratch};
use ibscope::model::{InspectedPacket, Profile};
use ibscope::pipeline::{self, Options};
use ibscope::render::messages::Lines;
use ibscope::render::packets::Form;
use std::io;
use std::path::{Path, PathBuf};

/// Analysed, shown in every form, its messages and packets listed.
///
/// # Panics
/// Where the ways differ in what they have counted.
pub fn run(bytes: &[u8]) {
    scratch::file("fuzz.pcap", bytes, |path| drop(whole(&[path.to_owned()], bytes.len().is_multiple_of(8))));
}

/// Everything that can be done with captures; `figures` are drawn where wanted.
pub(crate) fn whole(paths: &[PathBuf], figures: bool) -> Option<Profile> {
    let options = Options { threads: 1, ..Options::default() };
    let profile = pipeline::analyze(paths, &options, &|_| {}).ok()?;
    consistent(&profile);
    render::all(&profile, figures);
    let stream = pipeline::messages(paths, &options, true, &|_| {}).expect("messages where there are sums");
    let totals = stream.profile().clone();
    assert_eq!(totals.connections.len(), profile.connections.len());
    let out = &mut io::sink();
    let mut lines = Lines::begin(Form::Csv, &totals, out).expect("written to nowhere");
    for row in stream {
        lines.message(&row.expect("a message"), &totals).expect("written to nowhere");
    }
    let mut packets = 0;
    let mut count = |_: &InspectedPacket| {
        packets += 1;
        true
    };
    let (coverage, _) = pipeline::inspect(paths, &options, &mut count).expect("packets where there are sums");
    let whole = &profile.coverage;
    assert_eq!((coverage.infiniband, coverage.records), (whole.infiniband, whole.records));
    // Those that contradict themselves are shown too.
    assert!(packets >= whole.infiniband && packets <= whole.records);
    Some(profile)
}

/// What sums of one profile have to do with each other.
fn consistent(profile: &Profile) {
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

/// The profile of captures; `None` where nothing in them can be analysed.
pub(crate) fn profile(paths: &[&Path], options: &Options) -> Option<Profile> {
    let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).to_owned()).collect();
    pipeline::analyze(&paths, options, &|_| {}).ok()
}
