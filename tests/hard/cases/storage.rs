//! Classes in which other protocols run at the same time as a job.

use super::partial::windowed;
use crate::library::{Library, LibraryRun, RecordingSetup};
use crate::scene::{Scene, SceneJobs, cast};
use ibscope_parsers::Endpoint;
use ibscope_parsers::frame::LinkType;
use ibscope_samples::Random;
use ibscope_samples::hard::frame::PacketFrame;
use ibscope_samples::hard::protocols::{ALL, Conversation, mirrored};
use ibscope_samples::hard::{Recording, combine, partial};
use std::collections::BTreeSet;

/// First queue pair number that no recorded run has.
const FIRST_QP: u64 = 0x4000;

/// Adds traffic, in which every packet appears once, to captures as they would have recorded it.
fn add(cast: &mut SceneJobs, traffic: &Recording) {
    match cast.form {
        RecordingSetup::Sink => cast.files[0] = combine::merge(&[cast.files[0].clone(), mirrored(traffic)]),
        RecordingSetup::Nodes => {
            for index in 0..cast.files.len() {
                let ports = ports_of(&cast.files[index]);
                let passing = partial::keep(traffic, |_, record| {
                    PacketFrame::read(traffic.link_type, record)
                        .is_some_and(|frame| ports == Some(frame.src) || ports == Some(frame.dst))
                });
                cast.files[index] = combine::merge(&[cast.files[index].clone(), passing]);
            }
        }
    }
}

/// The port at which a file was recorded: the endpoint that all its packets share.
fn ports_of(file: &Recording) -> Option<Endpoint> {
    let mut common: Option<BTreeSet<Endpoint>> = None;
    for frame in file.records.iter().filter_map(|record| PacketFrame::read(file.link_type, record)) {
        let own = BTreeSet::from([frame.src, frame.dst]);
        let both = common.map_or(own.clone(), |common| &common & &own);
        if both.len() == 1 {
            return both.into_iter().next();
        }
        common = Some(both);
    }
    None
}

/// Adds one to four connections of a protocol between ports of the cast.
fn talks(cast: &mut SceneJobs, random: &mut Random) -> String {
    let mut ports: Vec<Endpoint> = cast.owners.keys().map(|end| end.0).collect::<BTreeSet<_>>().into_iter().collect();
    ports.sort();
    let (name, protocol) = ALL[random.below(ALL.len() as u64) as usize];
    let (start_ns, end_ns) = cast.span_ns();
    let connections = 1 + random.below(4);
    let link_type = if cast.form == RecordingSetup::Sink { LinkType::ERF } else { LinkType::ETHERNET };
    for connection in 0..connections {
        let client = random.below(ports.len() as u64) as usize;
        let server = (client + 1 + random.below(ports.len() as u64 - 1) as usize) % ports.len();
        let operations = 5 + random.below(100);
        let qp = |side: u64| (FIRST_QP + 2 * connection + side) as u32;
        let talk = Conversation {
            client: (ports[client], qp(0)),
            server: (ports[server], qp(1)),
            start_ns: start_ns + random.below((end_ns - start_ns) / 4),
            step_ns: (end_ns - start_ns) / 2 / operations,
            operations,
        };
        add(cast, &protocol(&talk, link_type, random));
    }
    format!("{connections} connections of {name}")
}

fn is_plain(run: &LibraryRun) -> bool {
    !run.name.contains("nfs") && !run.name.contains("multirail")
}

pub(super) fn constructed(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (mut cast, about) = cast(library, random, is_plain);
    let beside = talks(&mut cast, random);
    cast.scene(format!("{about} beside {beside}"))
}

/// Other protocols without any job.
pub(super) fn alone(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (mut cast, _) = cast(library, random, is_plain);
    cast.files = cast
        .files
        .iter()
        .map(|file| partial::keep(file, |_, record| PacketFrame::read(file.link_type, record).is_none()))
        .collect();
    // The port of a file is known only from the packets of the job. A sink does not need it.
    let mut sink = SceneJobs { form: RecordingSetup::Sink, files: vec![Recording::default()], ..cast };
    sink.files[0].link_type = LinkType::ERF;
    sink.files[0].nanoseconds = false;
    sink.owners = sink.owners.into_iter().collect();
    let about = alone_talks(&mut sink, random);
    Scene { about, files: sink.files, ..Scene::default() }
}

fn alone_talks(sink: &mut SceneJobs, random: &mut Random) -> String {
    use ibscope_samples::hard::rewrite::lid;
    const START_NS: u64 = 1_700_000_000_000_000_000;
    let (name, protocol) = ALL[random.below(ALL.len() as u64) as usize];
    let connections = 1 + random.below(6);
    for connection in 0..connections {
        let client = 1 + random.below(4) as u16;
        let server = 5 + random.below(2) as u16;
        let qp = |side: u64| (FIRST_QP + 2 * connection + side) as u32;
        let operations = 5 + random.below(200);
        let talk = Conversation {
            client: (lid(client), qp(0)),
            server: (lid(server), qp(1)),
            start_ns: START_NS + random.below(1_000_000_000),
            step_ns: 100_000 + random.below(10_000_000),
            operations,
        };
        add(sink, &protocol(&talk, LinkType::ERF, random));
    }
    format!("{connections} connections of {name} alone")
}

/// A job and, at the same time, recorded NFS or `NVMe` over Fabrics on other queue pairs.
pub(super) fn recorded(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (cast, about) = cast(library, random, is_plain);
    let storage = &library.storage[random.below(library.storage.len() as u64) as usize];
    let other = SceneJobs::of(storage, cast.form);
    let rewrite = super::names::renumber(&other, random);
    let (start_ns, end_ns) = cast.span_ns();
    let other = other.renamed(&rewrite).starting_at(start_ns + random.below(end_ns - start_ns));
    let name = &storage.name;
    cast.with(other).scene(format!("{about} beside {name}"))
}

/// A part of a job, with storage traffic at the same time.
pub(super) fn in_a_window(library: &Library, random: &mut Random, _: usize) -> Scene {
    let (mut cast, about) = cast(library, random, is_plain);
    let beside = talks(&mut cast, random);
    let kind = random.below(3);
    windowed(cast, &format!("{about} beside {beside}"), kind, random)
}
