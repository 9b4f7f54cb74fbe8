//! RoCE frames in the tunnels of the Linux kernel's own devices: `samples/encap/kernel`. The layouts
//! there come neither from the parsers nor from the writer of the other tests.

use crate::encapsulation::{analyzed, assert_equal, last};
use crate::runs;
use crate::tools::{in_parallel, samples_folder};
use ibscope::model::TrustVerdict;
use ibscope_parsers::ib::Packet;
use ibscope_parsers::ib::crc::verify_icrc;
use ibscope_parsers::link::{LinkContent, Location, MirrorHeader, TunnelPath, locate, locate_in_tunnels};

use ibscope_samples::hard::{RecordedPacket, Recording};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

const ETHERNET_BYTES: usize = 14;
/// MTU of the devices that truncate, and the Ethernet header, which it does not count.
const TRUNCATED_BYTES: usize = 100 + ETHERNET_BYTES;
/// MTU of the network that fragments.
const FRAGMENT_MTU: usize = 1500;

/// What a recorded packet holds of the frame that entered the tunnel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carried {
    Frame,
    /// The frame without its Ethernet header.
    Packet,
    /// The first bytes of the frame.
    Truncated,
    /// The frame with so many bytes of tags after its Ethernet addresses.
    Tagged(usize),
}

impl Carried {
    fn of(self, frame: &[u8]) -> &[u8] {
        match self {
            Self::Frame => frame,
            Self::Packet | Self::Tagged(_) => &frame[ETHERNET_BYTES..],
            Self::Truncated => &frame[..frame.len().min(TRUNCATED_BYTES)],
        }
    }

    fn tag_bytes(self) -> usize {
        if let Self::Tagged(bytes) = self { bytes } else { 0 }
    }
}

use Carried::{Frame, Tagged, Truncated};

/// The captures that hold every frame: name, outermost tunnel, and what follows the outer headers.
/// `ipv6-*`: the frames hold IPv6.
const WHOLE: [(&str, Option<&str>, Carried); 41] = [
    ("gretap", Some("GRE"), Frame),
    ("gretap-options", Some("GRE"), Frame),
    ("nvgre", Some("GRE"), Frame),
    ("ip6gretap", Some("GRE"), Frame),
    ("gre", Some("GRE"), Carried::Packet),
    ("gre-options", Some("GRE"), Carried::Packet),
    ("ip6gre", Some("GRE"), Carried::Packet),
    ("gre-mpls", Some("GRE"), Carried::Packet),
    ("erspan1", Some("ERSPAN I"), Frame),
    ("erspan2", Some("ERSPAN II"), Frame),
    ("erspan2-any", Some("ERSPAN II"), Frame),
    ("erspan2-truncated", Some("ERSPAN II"), Truncated),
    ("erspan3", Some("ERSPAN III"), Frame),
    ("erspan3-truncated", Some("ERSPAN III"), Truncated),
    ("ip6erspan2", Some("ERSPAN II"), Frame),
    ("ip6erspan3", Some("ERSPAN III"), Frame),
    ("vxlan", Some("VXLAN"), Frame),
    ("vxlan-8472", Some("VXLAN"), Frame),
    ("vxlan6", Some("VXLAN"), Frame),
    ("vxlan-gpe", Some("VXLAN-GPE"), Carried::Packet),
    ("geneve", Some("GENEVE"), Frame),
    ("geneve6", Some("GENEVE"), Frame),
    ("geneve-options", Some("GENEVE"), Frame),
    ("geneve-ip", Some("GENEVE"), Carried::Packet),
    ("ipip", Some("IP in IP"), Carried::Packet),
    ("ip6tnl", Some("IP in IP"), Carried::Packet),
    ("mpls-udp", Some("MPLS in UDP"), Carried::Packet),
    ("pseudowire", Some("pseudowire"), Frame),
    ("vxlan-in-erspan2", Some("ERSPAN II"), Frame),
    ("geneve6-in-erspan2", Some("ERSPAN II"), Frame),
    ("pseudowire-in-erspan3", Some("ERSPAN III"), Frame),
    ("mpls", None, Tagged(4)),
    ("qinq", None, Tagged(8)),
    ("qinq-in-erspan3", Some("ERSPAN III"), Tagged(8)),
    ("ipv6-sit", Some("IP in IP"), Carried::Packet),
    ("ipv6-ip6tnl", Some("IP in IP"), Carried::Packet),
    ("ipv6-ip6gre", Some("GRE"), Carried::Packet),
    ("ipv6-erspan3", Some("ERSPAN III"), Frame),
    ("ipv6-vxlan-gpe", Some("VXLAN-GPE"), Carried::Packet),
    ("ipv6-geneve-ip", Some("GENEVE"), Carried::Packet),
    ("gretap-fragments", Some("GRE"), Frame),
];
/// Mirrors on a network that lost frames, and the name of their session.
const LOSSY: [(&str, &str); 2] = [
    ("erspan2-loss", "ERSPAN II from 10.9.0.1, session 30"),
    ("erspan3-loss", "ERSPAN III from 10.9.0.1, session 30, hardware 17"),
];

fn path(name: &str) -> PathBuf {
    samples_folder().join("encap/kernel").join(name).with_extension("pcap.zst")
}

fn read(name: &str) -> Recording {
    Recording::read(&path(name)).expect("a recording")
}

/// The run whose frames entered the tunnels.
fn run() -> Recording {
    Recording::read(&runs::named("ompi-rc-mw-2x2").node(1)).expect("a recording")
}

/// The frames that entered the tunnel of this capture.
fn bare(name: &str) -> Recording {
    if name.starts_with("ipv6-") { read("ipv6-bare") } else { run() }
}

fn roce_frames(recording: &Recording) -> u64 {
    recording.records.iter().filter(|record| runs::is_roce(&record.data)).count() as u64
}

/// For each record of a sink, the frame in it, in their order.
fn frames<'a>(bare: &'a Recording, sink: &Recording, carried: Carried) -> Vec<&'a RecordedPacket> {
    let mut left = bare.records.iter();
    let frame = |(number, record): (usize, &RecordedPacket)| {
        left.find(|frame| record.data.ends_with(carried.of(&frame.data)))
            .unwrap_or_else(|| panic!("record {} holds none of the frames that are left", number + 1))
    };
    sink.records.iter().enumerate().map(frame).collect()
}

fn location(recording: &Recording, record: &RecordedPacket) -> Option<(Location, Option<MirrorHeader>)> {
    let mut path = TunnelPath::default();
    match locate_in_tunnels(recording.link_type, &record.data, record.original_bytes, &mut path) {
        Ok(LinkContent::Infiniband(location)) => Some((location, path.mirror())),
        Ok(LinkContent::Other(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The captures are those of this list, and the frames that entered are those of the run.
#[test]
fn the_frames_that_entered_are_those_of_the_run() {
    let entries = std::fs::read_dir(samples_folder().join("encap/kernel")).expect("folder");
    let mut found: Vec<String> =
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().replace(".pcap.zst", "")).collect();
    found.sort();
    let names = WHOLE.iter().map(|(name, ..)| *name).chain(LOSSY.iter().map(|(name, _)| *name));
    let mut expected: Vec<_> = names.chain(["bare", "ipv6-bare", "README.md"]).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let data = |recording: Recording| recording.records.into_iter().map(|record| record.data).collect::<Vec<_>>();
    assert!(data(read("bare")) == data(run()));
    // The run's 79 other frames are ssh and its own connections.
    assert_eq!((run().records.len(), roce_frames(&run())), (708, 629));
    assert_eq!(read("ipv6-bare").records.len(), 629);
}

#[test]
fn every_packet_is_the_one_of_the_bare_frame() {
    in_parallel(&WHOLE, |_, &(name, kind, carried)| {
        if name == "gretap-fragments" {
            return;
        }
        let (bare, sink) = (bare(name), read(name));
        let frames = frames(&bare, &sink, carried);
        assert_eq!(frames.len(), bare.records.len(), "{name}");
        let mut packets = 0;
        for (number, (frame, record)) in frames.into_iter().zip(&sink.records).enumerate() {
            let place = format!("{name}, frame {}", number + 1);
            let expected = location(&bare, frame);
            let found = location(&sink, record);
            let (Some((expected, _)), Some((found, _))) = (expected, found) else {
                assert_eq!(found, expected, "{place}");
                continue;
            };
            packets += 1;
            // The bytes of the frame that the tunnel dropped, and the headers before the rest.
            let ethernet = if matches!(carried, Frame | Truncated) { 0 } else { ETHERNET_BYTES };
            let shift = record.data.len() - carried.of(&frame.data).len();
            let expected = Location {
                start: expected.start - ethernet + shift,
                network: expected.network - ethernet + shift,
                wire_bytes: expected.wire_bytes + carried.tag_bytes() as u32,
                tunnels: found.tunnels,
                ..expected
            };
            assert_eq!(found, expected, "{place}");
            assert_eq!(found.tunnels.is_empty(), kind.is_none(), "{place}");
            if carried != Truncated {
                let bare = locate(bare.link_type, &frame.data, frame.original_bytes);
                let Ok(LinkContent::Infiniband(bare)) = bare else { panic!("{place}: {bare:?}") };
                assert_eq!(verify_icrc(&record.data, &found), verify_icrc(&frame.data, &bare), "{place}");
            }
        }
        assert_eq!(packets, roce_frames(&bare), "{name}");
    });
}

/// The times of the replay are those of an emulated machine: each record gets the time of its frame
/// in the run.
#[test]
fn every_capture_has_the_profile_of_the_bare_run() {
    let folder = tempfile::tempdir().expect("folder");
    in_parallel(&WHOLE, |_, &(name, kind, carried)| {
        // Tags belong to the frame: its bytes on the wire are more.
        if carried.tag_bytes() > 0 || name == "gretap-fragments" {
            return;
        }
        let (bare, sink) = (bare(name), read(name));
        let entered = |record: &RecordedPacket| {
            let data = if carried == Truncated { carried.of(&record.data).into() } else { record.data.clone() };
            RecordedPacket { data, ..record.clone() }
        };
        let place = folder.path().join(format!("{name}.pcap"));
        bare.with(bare.records.iter().map(entered).collect()).write(&place).expect("written");
        let found = assert_equal(name, &[place], |_, _| {
            let frames = frames(&bare, &sink, carried);
            let retimed =
                |(record, frame): (&RecordedPacket, &RecordedPacket)| record.at(sink.link_type, frame.time_ns);
            sink.with(sink.records.iter().zip(frames).map(retimed).collect())
        });
        let expected = kind.map(|kind| (kind.to_owned(), roce_frames(&bare)));
        assert_eq!(found.coverage.encapsulated, expected.into_iter().collect(), "{name}");
        assert_eq!((found.coverage.failed(), found.coverage.lost_mirrored_frames()), (0, 0), "{name}");
    });
}

/// What the commands gave the mirrors: session 30 (`key 30`), hardware 17, the direction; and the
/// frames that the kernel truncated.
#[test]
fn headers_of_mirrors_say_what_the_devices_were_told() {
    for (name, engine, is_egress) in [
        ("erspan2", 0, None),
        ("erspan2-any", 0, None),
        ("erspan2-truncated", 0, None),
        ("ip6erspan2", 0, None),
        ("erspan3", 17, Some(true)),
        ("erspan3-truncated", 17, Some(false)),
        ("ip6erspan3", 17, Some(false)),
        ("ipv6-erspan3", 17, Some(true)),
    ] {
        let (bare, sink) = (bare(name), read(name));
        let mut truncated = 0;
        let mut first = None;
        for (number, (frame, record)) in bare.records.iter().zip(&sink.records).enumerate() {
            let Some((_, mirror)) = location(&sink, record) else { continue };
            let mirror = mirror.expect("a mirror");
            assert_eq!((mirror.session.session, mirror.session.engine), (30, engine), "{name}");
            assert_eq!((mirror.is_egress, mirror.vlan), (is_egress, Some(0)), "{name}");
            let sequence = mirror.sequence.expect("a sequence number") as usize;
            let first = *first.get_or_insert(sequence - number);
            assert_eq!(sequence, first + number, "{name}");
            let is_truncated = name.ends_with("truncated") && frame.data.len() > TRUNCATED_BYTES;
            assert_eq!(mirror.is_truncated, is_truncated, "{name}, frame {}", number + 1);
            truncated += u32::from(is_truncated);
        }
        assert_eq!(truncated > 100, name.ends_with("truncated"), "{name}: {truncated}");
    }
}

/// `tc ... netem loss 5%` behind the mirror: the frames that are missing are counted exactly.
#[test]
fn frames_that_the_network_lost_are_counted() {
    for (name, session) in LOSSY {
        let (run, sink) = (run(), read(name));
        let received = frames(&run, &sink, Frame);
        // The first and the last frame arrived, so the numbers of the frames enclose every loss.
        assert!(received[0].data == run.records[0].data);
        let last = sink.records.last().expect("a record");
        assert!(last.data.ends_with(&run.records.last().expect("a frame").data));
        let lost = (run.records.len() - sink.records.len()) as u64;
        assert!(lost > 20, "{name}: {lost}");
        let profile = analyzed(&[path(name)], 2);
        let losses: Vec<_> =
            profile.coverage.mirror_losses.iter().map(|(name, loss)| (name.as_str(), loss.lost_frames)).collect();
        assert_eq!(losses, [(session, lost)], "{name}");
        assert_ne!(profile.trust.verdict, TrustVerdict::Complete, "{name}");
    }
}

/// A network with an MTU of 1500 bytes between mirror and sink: the frames that fit are read, and
/// the fragments of the others are counted and named.
#[test]
fn fragments_of_a_tunnel_are_counted() {
    let name = "gretap-fragments";
    let run = run();
    // GRE has 4 bytes, IPv4 20; the data of a fragment is a multiple of 8 bytes.
    let (gre, ip) = (4, 20);
    let fits = |record: &&RecordedPacket| record.data.len() + gre + ip <= FRAGMENT_MTU;
    let read = run.records.iter().filter(fits).filter(|record| runs::is_roce(&record.data)).count() as u64;
    let fragment_bytes = (FRAGMENT_MTU - ip) / 8 * 8;
    let fragments: usize = run
        .records
        .iter()
        .filter(|record| !fits(record))
        .map(|record| (record.data.len() + gre).div_ceil(fragment_bytes))
        .sum();
    assert!(fragments > 100);
    let profile = analyzed(&[path(name)], 2);
    let coverage = &profile.coverage;
    assert_eq!(coverage.encapsulated, BTreeMap::from([("GRE".to_owned(), read)]));
    assert_eq!((coverage.infiniband, coverage.failed()), (read, fragments as u64));
    let note = profile.notes.iter().find(|note| note.contains("IP fragment")).expect("a note");
    assert!(note.contains(&fragments.to_string()) && note.contains("raise the MTU"), "{note}");
    // Nothing was sampled: the packets are in fragments.
    assert!(![TrustVerdict::Complete, TrustVerdict::Sampled].contains(&profile.trust.verdict));
}

/// Opcode, queue pair, PSN and ends of the innermost packet of each record, as tshark shows them.
fn shown(name: &str) -> Vec<Option<[String; 5]>> {
    let (src, dst) = if name.starts_with("ipv6-") { ("ipv6.src", "ipv6.dst") } else { ("ip.src", "ip.dst") };
    let plain = tempfile::NamedTempFile::new().expect("file");
    read(name).write(plain.path()).expect("written");
    let mut command = Command::new("tshark");
    command.arg("-r").arg(plain.path()).args(["-T", "fields", "-E", "occurrence=a", "-E", "separator=|"]);
    command.args(["-o", "tcp.relative_sequence_numbers:FALSE", "-d", "udp.port==8472,vxlan"]);
    // A label does not tell whether an Ethernet frame follows it.
    if name.starts_with("pseudowire") {
        command.args(["-d", "mpls.label==100,pwethnocw"]);
    }
    for field in ["infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", src, dst] {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let row = |line: &str| {
        let fields: Vec<_> = line.split('|').map(last).collect();
        let fields: [String; 5] = fields.try_into().expect("five fields");
        (!fields[0].is_empty()).then_some(fields)
    };
    String::from_utf8(output.stdout).expect("text").lines().map(row).collect()
}

#[test]
fn the_packets_are_those_that_tshark_shows() {
    in_parallel(&WHOLE, |_, &(name, ..)| {
        if name == "gretap-fragments" {
            return;
        }
        let (sink, shown) = (read(name), shown(name));
        assert_eq!(sink.records.len(), shown.len(), "{name}");
        let mut compared = 0;
        for (number, (record, shown)) in sink.records.iter().zip(shown).enumerate() {
            let found = location(&sink, record).map(|(location, _)| {
                let packet = Packet::parse_lax(&record.data, &location).expect("a packet");
                let number = |value: u32| value.to_string();
                let qp = format!("{:#08x}", packet.bth.dest_qp.value());
                [
                    number(u32::from(packet.bth.opcode.0)),
                    qp,
                    number(packet.bth.psn.value()),
                    location.src.to_string(),
                    location.dst.to_string(),
                ]
            });
            assert_eq!(found, shown, "{name}, frame {}", number + 1);
            compared += u64::from(found.is_some());
        }
        assert_eq!(compared, roce_frames(&bare(name)), "{name}");
    });
}
