//! Classes with one capture in several files, and with several sinks.

use crate::library::{Library, RecordingSetup};
use crate::scene::{Scene, SceneJobs, cast, cast_in, one_file, shuffled};
use ibscope_parsers::Endpoint;
use ibscope_samples::Random;
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::{Recording, combine, partial, split, transmissions};

const MANY: [usize; 5] = [2, 3, 5, 9, 20];

/// Splits a capture into parts with `overlap`.
fn rotated(cast: &SceneJobs, about: &str, overlap: usize, random: &mut Random) -> (Vec<Recording>, String) {
    let parts = MANY[random.below(MANY.len() as u64) as usize];
    let file = one_file(cast);
    let points = split::split_points(&file, parts, random);
    (split::rotate(&file, &points, overlap), format!("{about}, {parts} parts, overlap {overlap}, split at {points:?}"))
}

/// The files that contain a packet. An empty file is refused, which the suite checks elsewhere.
fn not_empty(files: Vec<Recording>) -> Vec<Recording> {
    let has_packet =
        |file: &Recording| file.records.iter().any(|record| PacketFrame::read(file.link_type, record).is_some());
    files.into_iter().filter(has_packet).collect()
}

fn in_order_or_not(files: Vec<Recording>, random: &mut Random) -> Vec<Recording> {
    let files = not_empty(files);
    if random.below(2) == 0 { files } else { shuffled(files, random) }
}

pub(super) fn rotation(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    let (files, about) = rotated(&cast, &about, 0, random);
    Scene { files: in_order_or_not(files, random), ..cast.scene(about) }
}

pub(super) fn overlap(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    let records = 2 + random.below(199) as usize;
    let (files, about) = rotated(&cast, &about, records, random);
    Scene { files: in_order_or_not(files, random), ..cast.scene(about) }
}

pub(super) fn disorder(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    let (files, about) = rotated(&cast, &about, 0, random);
    let files = split::disorder(&not_empty(files), 20_000);
    Scene { files: in_order_or_not(files, random), ..cast.scene(about) }
}

/// Rotation of the run with loss on the fabric, or of a capture with loss at the sink.
pub(super) fn lossy(library: &Library, random: &mut Random, _: usize) -> Scene {
    let is_fabric = random.below(2) == 0;
    let (mut cast, about) = cast(library, random, |run| !is_fabric || run.name.contains("loss"));
    if !is_fabric {
        cast.files = cast.files.iter().map(|file| partial::lose(file, 10, 1, random)).collect();
    }
    let (files, about) = rotated(&cast, &about, 0, random);
    Scene { files: not_empty(files), complete: is_fabric, ..cast.scene(about) }
}

/// Leaf of a port: nodes in blocks.
fn leaf(endpoint: Endpoint, leaves: usize) -> usize {
    let node = (endpoint.low_bits() % 16) as usize;
    (node + leaves - 1) % leaves
}

/// The captures of one sink per leaf switch: the mirror copies of one sink, distributed to the
/// leaves, or the merged ports of each leaf.
fn at_leaf_sinks(cast: &SceneJobs, leaves: usize) -> Vec<Recording> {
    match cast.form {
        RecordingSetup::Sink => split::by_leaf(&cast.files[0], leaves, |endpoint| leaf(endpoint, leaves)),
        RecordingSetup::Nodes => {
            let of = |leaf: usize| cast.files.iter().skip(leaf).step_by(leaves).cloned().collect::<Vec<_>>();
            (0..leaves).map(|leaf| combine::merge(&of(leaf))).collect()
        }
    }
}

fn clocks(files: Vec<Recording>, most_s: u64, least_s: u64, random: &mut Random) -> (Vec<Recording>, String) {
    let mut about = String::new();
    let mut moved = Vec::new();
    for (index, file) in files.into_iter().enumerate() {
        if index == 0 {
            moved.push(file);
            continue;
        }
        let size_ns = (least_s * 1_000_000_000 + random.below((most_s - least_s) * 1_000_000_000)).cast_signed();
        let offset_ns = if random.below(2) == 0 { size_ns } else { -size_ns };
        let ppm = random.below(161).cast_signed() - 80;
        about = format!("{about}, clock {index} off by {offset_ns} ns and {ppm} ppm");
        moved.push(combine::shift(&combine::drift(&file, ppm), offset_ns));
    }
    (moved, about)
}

/// Two or three sinks, with clocks off by up to 590 s and 80 ppm, or with exact clocks.
pub(super) fn sinks(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |run| !run.name.contains("multirail"));
    let leaves = if cast.files.len() == 2 { 2 } else { 2 + random.below(2) as usize };
    let files = not_empty(at_leaf_sinks(&cast, leaves));
    let (files, clocks) = if random.below(4) == 0 { (files, String::new()) } else { clocks(files, 590, 0, random) };
    Scene { files, ..cast.scene(format!("{about}, {leaves} sinks{clocks}")) }
}

pub(super) fn far_clocks(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |run| !run.name.contains("multirail"));
    let files = not_empty(at_leaf_sinks(&cast, 2));
    let (files, clocks) = clocks(files, 100_000, 610, random);
    Scene { files, ..cast.scene(format!("{about}, 2 sinks{clocks}")) }
}

/// One of two sinks drops records. The other has a mirror copy of every packet between the leaves.
pub(super) fn one_lossy(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |run| !run.name.contains("multirail"));
    let mut files = not_empty(at_leaf_sinks(&cast, 2));
    let lossy = random.below(files.len() as u64) as usize;
    let per_mille = [10, 100][random.below(2) as usize];
    let burst = [1, 20][random.below(2) as usize];
    files[lossy] = partial::lose(&files[lossy], per_mille, burst, random);
    // On two nodes every packet passes both sinks, so the union misses nothing.
    let complete = cast.owners.keys().map(|end| leaf(end.0, 64)).collect::<std::collections::BTreeSet<_>>().len() == 2;
    let about = format!("{about}, sink {lossy} loses {per_mille} per mille in bursts of {burst}");
    Scene { files, complete, ..cast.scene(about) }
}

/// Each direction of every connection in one of several files.
fn by_connection(library: &Library, random: &mut Random) -> (SceneJobs, Vec<Recording>, String) {
    let (cast, about) = cast(library, random, |_| true);
    let parts = [2, 4, 8][random.below(3) as usize];
    let files = not_empty(split::by_connection(&one_file(&cast), parts, random));
    (cast, files, format!("{about}, split by connection into {parts}"))
}

pub(super) fn connections(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, files, about) = by_connection(library, random);
    Scene { files, ..cast.scene(about) }
}

/// Likewise, and one of the files is missing.
pub(super) fn connections_missing(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, mut files, about) = by_connection(library, random);
    let missing = random.below(files.len() as u64) as usize;
    let is_partial = files.len() > 1;
    if is_partial {
        files.remove(missing);
    }
    Scene { files, complete: !is_partial, ..cast.scene(format!("{about}, file {missing} missing")) }
}

/// The ports of a run one after the other in one file.
pub(super) fn concatenated(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast_in(library, random, RecordingSetup::Nodes, |_| true);
    let files = vec![combine::concatenate(&cast.files)];
    // Times run backwards in the middle of the file: counts may be lower if they are marked.
    Scene { files, complete: false, ..cast.scene(format!("{about}, ports one after the other")) }
}

/// One port of a sink, or one file of several, is delayed by up to a millisecond.
pub(super) fn delayed(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    let delay_ns = random.below(1_000_000).cast_signed();
    let files = match cast.form {
        RecordingSetup::Sink => {
            let ports = split::by_leaf(&cast.files[0], 2, |endpoint| leaf(endpoint, 2));
            vec![combine::merge(&[ports[0].clone(), combine::shift(&ports[1], delay_ns)])]
        }
        RecordingSetup::Nodes => {
            let mut files = cast.files.clone();
            files[0] = combine::shift(&files[0], delay_ns);
            files
        }
    };
    Scene { files, ..cast.scene(format!("{about}, one port late by {delay_ns} ns")) }
}

/// A clock with this resolution.
fn coarse(file: &Recording, resolution_ns: u64) -> Recording {
    file.retimed(|time_ns| time_ns / resolution_ns * resolution_ns)
}

/// Captures of ports or of a sink with this resolution of times, each in several files or in one.
fn with_coarse_clocks(library: &Library, random: &mut Random, resolution_ns: u64) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    let parts = [1, 2, 3, 5][random.below(4) as usize];
    let mut files = Vec::new();
    for file in &cast.files {
        let points = split::split_points(file, parts, random);
        files.extend(split::rotate(&coarse(file, resolution_ns), &points, 0));
    }
    // Both mirror copies of a packet may be the same record, so counts may be lower if they are marked.
    Scene { files: in_order_or_not(files, random), complete: false, ..cast.scene(format!("{about}, {parts} parts")) }
}

pub(super) fn microseconds(library: &Library, random: &mut Random, _: usize) -> Scene {
    with_coarse_clocks(library, random, 1_000)
}

pub(super) fn milliseconds(library: &Library, random: &mut Random, _: usize) -> Scene {
    with_coarse_clocks(library, random, 1_000_000)
}

/// Several distortions at once: other clocks, then losses, a snap length or times in microseconds, of all
/// captures or of one. Then some captures are rotated.
pub(super) fn several_distortions(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, mut about) = cast(library, random, |run| !run.name.contains("multirail"));
    let mut files = if random.below(2) == 0 { cast.files.clone() } else { not_empty(at_leaf_sinks(&cast, 2)) };
    if random.below(4) == 0 {
        let (moved, clocks) = clocks(files, 590, 0, random);
        files = moved;
        about.push_str(&clocks);
    }
    for _ in 0..=random.below(2) {
        let only = Some(random.below(files.len() as u64) as usize).filter(|_| random.below(2) == 0);
        let bytes = 48 + random.below(209) as usize;
        let (kind, burst) = (random.below(3), [1, 10, 100][random.below(3) as usize]);
        for (_, file) in files.iter_mut().enumerate().filter(|(number, _)| only.is_none_or(|only| only == *number)) {
            *file = match kind {
                0 => partial::lose(file, 10, burst, random),
                1 => partial::truncate(file, bytes),
                _ => coarse(file, 1_000),
            };
        }
        let what = match kind {
            0 => format!("10 per mille lost in bursts of {burst}"),
            1 => format!("{bytes} bytes"),
            _ => "microseconds".to_owned(),
        };
        let of = only.map_or_else(String::new, |only| format!(" (file {only})"));
        about = format!("{about}, {what}{of}");
    }
    // A burst at the end is a capture that ended early. If clocks differ, this may be before the first message.
    let last_ns = files.iter().filter_map(|file| file.records.last()).map(|record| record.time_ns).min();
    let captured = Some(cast.sent_between(0, last_ns.unwrap_or(0).saturating_add(1)));
    let mut parts = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let (count, overlap) = (1 + random.below(4) as usize, random.below(2) as usize * 50);
        let points = split::split_points(file, count, random);
        parts.extend(split::rotate(file, &points, overlap));
        about = format!("{about}, file {number} in {count} parts with overlap {overlap}");
    }
    let files = in_order_or_not(parts, random);
    Scene { files, captured, complete: false, ..cast.scene(about) }
}

/// Packets that the fabric lost behind the sender's port: there is no second mirror copy, and the
/// sender's retransmission follows. Here only the second copy of a retransmitted packet's first
/// transmission is missing, which changes no count.
pub(super) fn fabric_loss(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast_in(library, random, RecordingSetup::Sink, |run| run.name.contains("loss"));
    let sink = &cast.files[0];
    let found = transmissions(std::slice::from_ref(sink), 2);
    let mut last: std::collections::HashMap<Vec<u8>, usize> = std::collections::HashMap::new();
    for (index, record) in sink.records.iter().enumerate() {
        last.insert(packet(sink, record), index);
    }
    let keep = |index: usize| {
        let record = &sink.records[index];
        let is_second = found.mirror_copy[0][index] == 1;
        let is_retransmitted =
            PacketFrame::read(sink.link_type, record).is_some() && last[&packet(sink, record)] > index;
        !(is_second && is_retransmitted)
    };
    let share = 1 + random.below(3);
    let mut sampled = |index: usize| keep(index) || random.below(share) != 0;
    let files = vec![partial::keep(sink, |index, _| sampled(index))];
    Scene { files, ..cast.scene(format!("{about}, 1 in {share} lost packets at the sender's port only")) }
}

fn packet(sink: &Recording, record: &ibscope_samples::hard::RecordedPacket) -> Vec<u8> {
    let skipped = if sink.link_type == ibscope_parsers::frame::LinkType::ERF { 16 } else { 0 };
    record.data[skipped..].to_vec()
}
