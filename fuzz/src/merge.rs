//! A capture in two parts: merged in either order it is what one analysis of both gives.

use crate::capture::chosen;
use crate::events::Sent;
use crate::{base, pipeline, scratch};
use ibscope::model::Profile;
use ibscope::pipeline::{Mismatch, Options, load, merge};
use std::path::{Path, PathBuf};

/// The first byte says how the packets are dealt to the two files, the rest is choices for them.
///
/// # Panics
/// Where the order matters, or the merge is not the whole.
pub fn run(bytes: &[u8]) {
    let Some((&how, choices)) = bytes.split_first() else { return };
    let Some((form, packets)) = chosen(choices) else { return };
    let total = packets.len();
    let mut dealt: [Vec<Sent>; 2] = Default::default();
    for (index, sent) in packets.into_iter().enumerate() {
        // By time, in turns, by direction, or some of the packets in both.
        let is_second = match how & 3 {
            0 => index * 256 / total >= usize::from(how),
            1 => index % 2 == 1,
            2 => sent.bytes.len() % 8 < 4,
            _ => {
                if index % 3 != 0 {
                    dealt[0].push(Sent { time_us: sent.time_us, bytes: sent.bytes.clone() });
                }
                true
            }
        };
        dealt[usize::from(is_second)].push(sent);
    }
    let paths: [PathBuf; 2] = ["a.pcap", "b.pcap"].map(scratch::place);
    for (path, packets) in paths.iter().zip(&dealt) {
        std::fs::write(path, form.bytes(packets)).expect("room for a file");
    }
    let options = Options { threads: 1, keep_parts: true, ..Options::default() };
    let [one, other] = [&paths[0], &paths[1]].map(|path| pipeline::profile(&[path], &options));
    let whole = pipeline::profile(&[&paths[0], &paths[1]], &options);
    let (Some(one), Some(other), Some(whole)) = (one, other, whole) else { return };
    let [one, other] = [base::written("a.ibp", &one), base::written("b.ibp", &other)];
    let merged = |order: [&Path; 2]| match merge(&order.map(Path::to_owned), &options) {
        Ok(merged) => Some(merged),
        // Both were corrected by no clock, and together they find one.
        Err(Mismatch::Clocks { .. }) => None,
        Err(error) => panic!("{error}"),
    };
    let [there, back] = [merged([&one, &other]), merged([&other, &one])];
    assert!(there == back, "the order matters");
    if let Some(merged) = there {
        let as_written = |profile: &Profile, name| load(&base::written(name, profile)).expect("a profile");
        assert!(as_written(&merged, "merged.ibp") == as_written(&whole, "whole.ibp"), "the merge is not the whole");
    }
}
