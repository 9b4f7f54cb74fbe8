//! Target `merge`: a capture in two parts. Merging their profiles in either order must equal one
//! analysis of both parts, in which neither continues the other.

use crate::capture::format_and_packets;
use crate::events::SentPacket;
use crate::{pipeline, sample_profiles, scratch};
use ibscope::model::Profile;
use ibscope::pipeline::{AnalysisOptions, MergeError, load, merge};
use std::path::{Path, PathBuf};

/// The first byte selects how the packets are distributed over the two files, the rest are choices
/// for the packets.
///
/// # Panics
/// If the order matters, or the merge differs from the analysis of both parts.
pub fn run(bytes: &[u8]) {
    let Some((&how, choices)) = bytes.split_first() else { return };
    let Some((form, packets)) = format_and_packets(choices) else { return };
    let total = packets.len();
    let mut dealt: [Vec<SentPacket>; 2] = Default::default();
    for (index, sent) in packets.into_iter().enumerate() {
        // By time, alternately, by length, or some of the packets in both.
        let is_second = match how & 3 {
            0 => index * 256 / total >= usize::from(how),
            1 => index % 2 == 1,
            2 => sent.bytes.len() % 8 < 4,
            _ => {
                if index % 3 != 0 {
                    dealt[0].push(SentPacket { time_us: sent.time_us, bytes: sent.bytes.clone() });
                }
                true
            }
        };
        dealt[usize::from(is_second)].push(sent);
    }
    let paths: [PathBuf; 2] = ["a.pcap", "b.pcap"].map(scratch::path);
    for (path, packets) in paths.iter().zip(&dealt) {
        std::fs::write(path, form.bytes(packets)).expect("room for a file");
    }
    let streams = paths.iter().map(|path| (path.clone(), path.display().to_string())).collect();
    let options = AnalysisOptions { threads: 1, keep_parts: true, streams, ..AnalysisOptions::default() };
    let [one, other] = [&paths[0], &paths[1]].map(|path| pipeline::profile(&[path], &options));
    let whole = pipeline::profile(&[&paths[0], &paths[1]], &options);
    let (Some(one), Some(other), Some(whole)) = (one, other, whole) else { return };
    let [one, other] = [sample_profiles::write_profile("a.ibp", &one), sample_profiles::write_profile("b.ibp", &other)];
    let merged = |order: [&Path; 2]| match merge(&order.map(Path::to_owned), &options) {
        Ok(merged) => Some(merged),
        // Neither profile has corrected clocks, but together they would have.
        Err(MergeError::UnalignedClocks { .. }) => None,
        Err(error) => panic!("{error}"),
    };
    let [there, back] = [merged([&one, &other]), merged([&other, &one])];
    assert!(there == back, "the order matters");
    if let Some(merged) = there {
        let as_written =
            |profile: &Profile, name| load(&sample_profiles::write_profile(name, profile)).expect("a profile");
        assert!(as_written(&merged, "merged.ibp") == as_written(&whole, "whole.ibp"), "the merge is not the whole");
    }
}
