//! Classes of captures that miss their beginning, their end, or packets in between.

use crate::library::{Library, QueuePairOwner, RecordingSetup};
use crate::scene::{Scene, SceneJobs, cast, cast_in};
use ibscope_samples::Random;
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::partial::{self, SamplingScheme, SamplingUnit};
use ibscope_samples::hard::{RecordedPacket, Recording};
use std::collections::BTreeSet;

/// Every run as it was recorded, in both forms.
pub(super) fn complete(library: &Library, _: &mut Random, number: usize) -> Scene {
    let run = &library.jobs[number / 2 % library.jobs.len()];
    let form = if number.is_multiple_of(2) { RecordingSetup::Sink } else { RecordingSetup::Nodes };
    SceneJobs::of(run, form).scene(format!("{} {form:?}", run.name))
}

/// A time inside a cast: mostly the time of a random record, so that busy times are more likely.
fn moment(cast: &SceneJobs, random: &mut Random) -> u64 {
    let (start_ns, end_ns) = cast.span_ns();
    if random.below(3) == 0 {
        return start_ns + random.below(end_ns - start_ns);
    }
    let records = &cast.files[random.below(cast.files.len() as u64) as usize].records;
    records[random.below(records.len() as u64) as usize].time_ns
}

/// The part of a cast that was captured between two times.
pub(super) fn between(cast: SceneJobs, about: &str, start_ns: u64, end_ns: u64) -> Scene {
    let captured = cast.sent_between(start_ns, end_ns);
    let (first_ns, _) = cast.span_ns();
    let seconds = |time_ns: u64| time_ns.saturating_sub(first_ns) as f64 / 1e9;
    let about = format!("{about} from {:.6} s to {:.6} s", seconds(start_ns), seconds(end_ns));
    let mut scene = cast.scene(about);
    scene.files = scene.files.iter().map(|file| partial::between(file, start_ns..end_ns)).collect();
    scene.captured = Some(captured);
    scene.complete = false;
    scene
}

/// A random window: 0 late start, 1 early end, 2 both.
pub(super) fn windowed(cast: SceneJobs, about: &str, kind: u64, random: &mut Random) -> Scene {
    let (first_ns, last_ns) = cast.span_ns();
    let times = [moment(&cast, random), moment(&cast, random)];
    let (start_ns, end_ns) = match kind {
        0 => (times[0], last_ns + 1),
        1 => (first_ns, times[0].max(first_ns + 1)),
        _ => (times[0].min(times[1]), times[0].max(times[1]) + 1),
    };
    between(cast, about, start_ns, end_ns)
}

pub(super) fn late_start(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    windowed(cast, &about, 0, random)
}

pub(super) fn early_end(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    windowed(cast, &about, 1, random)
}

pub(super) fn window(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    windowed(cast, &about, 2, random)
}

/// The capture of one port: the packets that its node sent and received.
fn port(library: &Library, random: &mut Random) -> (SceneJobs, String) {
    let (mut cast, about) = cast_in(library, random, RecordingSetup::Nodes, |run| !run.name.contains("multirail"));
    let index = random.below(cast.files.len() as u64) as usize;
    let file = cast.files.swap_remove(index);
    let frames = || file.records.iter().filter_map(|record| PacketFrame::read(file.link_type, record));
    let port = frames().map(|frame| frame.src).find(|port| frames().all(|frame| [frame.src, frame.dst].contains(port)));
    let here: BTreeSet<QueuePairOwner> =
        cast.owners.iter().filter(|(end, _)| Some(end.0) == port).flat_map(|(_, owners)| owners.clone()).collect();
    let is_here = |job: usize, rank: u32| here.contains(&QueuePairOwner { job, rank });
    let passes = |job: usize, pair: (u32, u32)| is_here(job, pair.0) || is_here(job, pair.1);
    for (job, truth) in cast.truths.iter_mut().enumerate() {
        truth.retain(|pair, _| passes(job, *pair));
    }
    cast.sent.retain(|sent| passes(sent.job, sent.pair));
    cast.packets.retain(|(from, to), _| [from.0, to.0].iter().any(|end| Some(*end) == port));
    cast.files = vec![file];
    (cast, format!("{about}, port {} alone", index + 1))
}

pub(super) fn one_port(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = port(library, random);
    cast.scene(about)
}

pub(super) fn one_port_window(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = port(library, random);
    let kind = random.below(3);
    windowed(cast, &about, kind, random)
}

/// The first packets of a sink, in steps of 2 %: every run in turn.
pub(super) fn prefix(library: &Library, _: &mut Random, number: usize) -> Scene {
    let run = &library.jobs[number % library.jobs.len()];
    let cast = SceneJobs::of(run, RecordingSetup::Sink);
    let percent = 2 + number / library.jobs.len() * 2 % 98;
    let records = cast.files[0].records.len() * percent / 100;
    let end_ns = cast.files[0].records[records.saturating_sub(1)].time_ns;
    let start_ns = cast.span_ns().0;
    between(cast, &format!("{} Sink, {percent} %", run.name), start_ns, end_ns)
}

/// A part of a sampled capture.
pub(super) fn thin_window(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    let one_in = [2, 10][random.below(2) as usize];
    let copies = cast.form.copies();
    let kind = random.below(3);
    let scene = windowed(cast, &format!("{about}, 1 in {one_in}"), kind, random);
    let files =
        partial::subsample(&scene.files, copies, one_in, (SamplingUnit::Transmission, SamplingScheme::Random), random);
    Scene { files, ..scene }
}

/// Keeps 1 in k packets of both forms.
fn thin(library: &Library, random: &mut Random, unit: SamplingUnit, choice: SamplingScheme) -> Scene {
    const ONE_IN: [u64; 7] = [2, 3, 5, 10, 20, 50, 100];
    let (cast, about) = cast(library, random, |_| true);
    let one_in = ONE_IN[random.below(ONE_IN.len() as u64) as usize];
    let files = partial::subsample(&cast.files, cast.form.copies(), one_in, (unit, choice), random);
    Scene { files, complete: false, ..cast.scene(format!("{about}, 1 in {one_in}")) }
}

pub(super) fn thin_periodic_together(library: &Library, random: &mut Random, _: usize) -> Scene {
    thin(library, random, SamplingUnit::Transmission, SamplingScheme::Periodic)
}

pub(super) fn thin_periodic_records(library: &Library, random: &mut Random, _: usize) -> Scene {
    thin(library, random, SamplingUnit::Record, SamplingScheme::Periodic)
}

pub(super) fn thin_random_together(library: &Library, random: &mut Random, _: usize) -> Scene {
    thin(library, random, SamplingUnit::Transmission, SamplingScheme::Random)
}

pub(super) fn thin_random_records(library: &Library, random: &mut Random, _: usize) -> Scene {
    thin(library, random, SamplingUnit::Record, SamplingScheme::Random)
}

/// A sink that drops records, one by one or in bursts.
pub(super) fn loss(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    lossy(cast, &about, random)
}

fn lossy(cast: SceneJobs, about: &str, random: &mut Random) -> Scene {
    let per_mille = [1, 10, 50, 100, 300][random.below(5) as usize];
    let burst = [1, 1, 10, 100][random.below(4) as usize];
    let files: Vec<_> = cast.files.iter().map(|file| partial::lose(file, per_mille, burst, random)).collect();
    let about = format!("{about}, {per_mille} per mille lost in bursts of {burst}");
    // A burst at the end is a capture that ended early.
    let last_ns = files.iter().filter_map(|file| file.records.last()).map(|record| record.time_ns).max();
    let captured = Some(cast.sent_between(0, last_ns.unwrap_or(0).saturating_add(1)));
    Scene { files, captured, complete: false, ..cast.scene(about) }
}

/// Loss of datagrams, at ports that mirror once.
pub(super) fn ud_loss(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |run| run.name.contains("-ud-"));
    lossy(cast, &about, random)
}

/// A snap length of 48 to 256 bytes.
pub(super) fn snap_length(library: &Library, random: &mut Random, _: usize) -> Scene {
    let form = if random.below(2) == 0 { RecordingSetup::Sink } else { RecordingSetup::Nodes };
    let (cast, about) = cast_in(library, random, form, |_| true);
    let bytes = 48 + random.below(209) as usize;
    let files = cast.files.iter().map(|file| partial::truncate(file, bytes)).collect();
    // Truncated messages of the connection manager and of the library may not show the type of a
    // message.
    Scene { files, complete: false, ..cast.scene(format!("{about}, {bytes} bytes")) }
}

/// Drops some connections, one or both directions, in one file.
pub(super) fn connections_missing(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    let one_in = 2 + random.below(4);
    let mut is_missing = std::collections::HashMap::new();
    let mut keeps = |file: &Recording, record: &RecordedPacket| {
        let frame = PacketFrame::read(file.link_type, record);
        let drawn = |frame: PacketFrame| {
            let direction = (frame.src, frame.dst, frame.dest_qp);
            *is_missing.entry(direction).or_insert_with(|| random.below(one_in) == 0)
        };
        !frame.is_some_and(drawn)
    };
    let files = cast.files.iter().map(|file| partial::keep(file, |_, record| keeps(file, record))).collect();
    Scene { files, complete: false, ..cast.scene(format!("{about}, 1 in {one_in} directions of connections missing")) }
}

/// A capture filter that passes small or large frames only.
pub(super) fn frames_by_size(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, |_| true);
    let bytes = [64, 100, 150, 200, 500, 1500][random.below(6) as usize];
    let is_small = random.below(2) == 0;
    let keeps = |record: &RecordedPacket| (record.original_bytes < bytes) == is_small;
    let files = cast.files.iter().map(|file| partial::keep(file, |_, record| keeps(record))).collect();
    let size = if is_small { "below" } else { "from" };
    Scene { files, complete: false, ..cast.scene(format!("{about}, frames {size} {bytes} bytes")) }
}
