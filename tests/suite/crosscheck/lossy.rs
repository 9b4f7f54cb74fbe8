//! Captures that lack packets, or have some twice: what is missing is known, and so is what must be said of it.

use super::{Description, archive, noted, read, with_captures, with_profile};
use crate::health::without;
use crate::recorded::{every_way, node};
use crate::runs::{self, Run, decompressed, is_roce};
use crate::tools::{in_parallel, walk};
use ibscope::crosscheck::{Cause, Crosscheck, Pair, Sums, Verdict};
use ibscope::pipeline::{self, Options, analyze};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

/// A packet of a reliable connection: nodes from and to, the receiver's queue pair, PSN.
type Place = (u8, u8, u32, u32);

/// A data packet of a file, and its bytes from the BTH on without check sums: the same in all files that have it.
fn packet<'a>(frame: &'a [u8], is_sink: bool) -> Option<(Place, &'a [u8])> {
    // ERF 16, LRH 8, VCRC 2; or Ethernet 14, IPv4 20, UDP 8. The ICRC has 4.
    let (src, dst, body) = if is_sink {
        (frame[23], frame[19], &frame[24..frame.len() - 6])
    } else if is_roce(frame) {
        (frame[29], frame[33], &frame[42..frame.len() - 4])
    } else {
        return None;
    };
    let number = |at: usize| u32::from_be_bytes([0, body[at], body[at + 1], body[at + 2]]);
    let is_reliable = body[0] >> 5 == 0 && number(5) > 1;
    is_reliable.then(|| {
        ((if is_sink { src - 16 } else { src }, if is_sink { dst - 16 } else { dst }, number(5), number(9)), body)
    })
}

/// The files without some packets, every copy and every repeat of them, and which those are.
fn lossy(folder: &Path, paths: &[PathBuf], one_in: u64, seed: u64) -> (Vec<PathBuf>, BTreeSet<Place>) {
    let is_lost = |body: &[u8]| {
        let mut hasher = DefaultHasher::new();
        (seed, body).hash(&mut hasher);
        hasher.finish() % one_in == 0
    };
    let mut lost = BTreeSet::new();
    let write = |(index, path): (usize, &PathBuf)| {
        let file = decompressed(path);
        let is_sink = path.ends_with("sink.ib.pcap.zst");
        let mut deleted = BTreeSet::new();
        for (record, raw) in walk(&file).iter().enumerate() {
            if let Some((place, _)) = packet(raw.data(&file), is_sink).filter(|(_, body)| is_lost(body)) {
                deleted.insert(record);
                lost.insert(place);
            }
        }
        let cut = folder.join(format!("{seed}-{index}.pcap"));
        std::fs::write(&cut, without(&file, &deleted)).expect("written");
        cut
    };
    (paths.iter().enumerate().map(write).collect(), lost)
}

/// Messages by pair of ranks: those whose envelope was in a lost packet, and those of which any packet was lost.
#[derive(Debug, Default)]
struct Losses {
    certain: BTreeMap<(u32, u32), u64>,
    possible: BTreeMap<(u32, u32), u64>,
}

/// By the messages of the whole capture and where each has its packets.
fn losses(paths: &[PathBuf], lost: &BTreeSet<Place>) -> Losses {
    let options = Options { bin_ns: None, ..Options::default() };
    let mut stream = pipeline::messages(paths, &options, false, &|_| {}).expect("messages");
    let rows: Vec<_> = stream.by_ref().map(|row| row.expect("row")).collect();
    let profile = stream.profile();
    let mut losses = Losses::default();
    for row in rows.iter().filter(|row| row.identity().is_some_and(|identity| !identity.collective)) {
        let (Some(src), Some(dst)) = (row.src_rank, row.dst_rank) else { continue };
        let connection = &profile.connections[row.connection as usize];
        let is_lost = |step: u64| {
            let psn = (u64::from(row.raw.psn) + step) as u32 & 0xFF_FFFF;
            lost.contains(&(node(connection.src), node(connection.dst), connection.dest_qp.value(), psn))
        };
        if is_lost(0) {
            *losses.certain.entry((src, dst)).or_default() += 1;
        }
        if (0..row.raw.packets).any(is_lost) {
            *losses.possible.entry((src, dst)).or_default() += 1;
        }
    }
    losses
}

fn lacking(pair: &Pair) -> u64 {
    pair.trace.messages.saturating_sub(pair.wire.messages - pair.tracer.messages)
}

/// Reliable connections, all libraries, one and two processes per node.
const RUNS: [&str; 8] = [
    "ompi-rc-ring2",
    "ompi-openib-mixed-2x2",
    "ompi-rc-mixed-2x2",
    "mpich-rc-mixed-2x2",
    "ompi-rc-halo-2x2",
    "scorep-ompi-rc-mixed-2x2",
    "scorep-ompi-rc-halo-4x1",
    "scorep-ompi-rc-comm-4x1",
];

#[test]
fn what_the_capture_lost_is_lost_and_nothing_else_is() {
    in_parallel(&RUNS, |_, name| {
        let run = runs::named(name);
        let trace = read(&archive(&run).expect("archive"));
        for (seed, paths) in every_way(&run).iter().enumerate() {
            let folder = tempfile::tempdir().expect("folder");
            let (cut, lost) = lossy(folder.path(), paths, 25, seed as u64);
            let losses = losses(paths, &lost);
            assert!(lost.len() >= 10, "{name}");
            let profile = analyze(&cut, &Options::default(), &|_| {}).expect("profile");
            for result in [with_profile(&trace, &profile).expect("compared"), with_captures(&trace, &cut)] {
                assert_losses(&format!("{name}, {seed}"), &result, &losses);
            }
        }
    });
}

fn assert_losses(case: &str, result: &Crosscheck, losses: &Losses) {
    for pair in &result.pairs {
        let of = |messages: &BTreeMap<(u32, u32), u64>| messages.get(&(pair.src, pair.dst)).copied().unwrap_or(0);
        let (certain, possible) = (of(&losses.certain), of(&losses.possible));
        let case = format!("{case}: {certain} to {possible} lost: {pair:?}");
        assert_ne!(pair.verdict, Verdict::Unexplained, "{case}");
        assert_eq!(pair.excess(), (0, 0), "{case}");
        let is_lost = pair.causes.contains(&Cause::Lost);
        assert!(!is_lost || possible > 0, "{case}");
        assert!(is_lost || certain == 0, "{case}");
        if pair.causes.contains(&Cause::SameNode) {
            continue;
        }
        // The tracer's own may be among the lost, which are not in the trace.
        assert!(lacking(pair) <= possible, "{case}");
        assert!(
            pair.causes.iter().all(|cause| matches!(cause, Cause::Lost | Cause::Tracer | Cause::Retransmission)),
            "{case}"
        );
    }
}
