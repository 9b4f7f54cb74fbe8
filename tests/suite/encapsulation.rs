//! RoCE frames in tunnels: the same packets, profiles and anonymized files as from bare frames, and
//! the losses of mirrors.

use crate::runs::{self, RecordedRun};
use crate::tools::{as_pcapng, ibscope, in_parallel, random, result, samples_folder};
use ibscope::model::{Profile, TrustVerdict};
use ibscope::pipeline::{self, AnalysisOptions, ProfileWriter};
use ibscope_parsers::frame::LinkType;
use ibscope_parsers::ib::Packet;
use ibscope_parsers::ib::crc::{CrcVerdict, verify_icrc};
use ibscope_parsers::link::{LinkContent, Location, NotInfiniband, TunnelPath, locate, locate_in_tunnels};
use ibscope_samples::hard::{RecordedPacket, Recording};
use ibscope_samples::wrap::{TUNNEL_FORMATS, TunnelFormat, TunnelPacket, wrapped};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn recording(path: &Path) -> Recording {
    Recording::read(path).expect("a recording")
}

/// A tunnel of this format from a switch.
const fn from(format: TunnelFormat, switch: u8) -> (TunnelFormat, TunnelPacket) {
    (format, TunnelPacket { is_ipv6: switch & 1 == 1, switch, sequence: 0 })
}

fn packet(data: &[u8], original_bytes: u32) -> Location {
    match locate(LinkType::ETHERNET, data, original_bytes) {
        Ok(LinkContent::Infiniband(location)) => location,
        other => panic!("{other:?}"),
    }
}

/// Some RoCE frames of each run.
fn frames() -> Vec<RecordedPacket> {
    let some = |run: RecordedRun| {
        let records = recording(&run.node(1)).records;
        let roce = records.into_iter().filter(|record| runs::is_roce(&record.data));
        roce.step_by(97).take(4).collect::<Vec<_>>()
    };
    runs::all().into_iter().flat_map(some).collect()
}

/// `frame` in tunnels of these formats, the first one inside; `None` if one of them needs an IP
/// packet and gets another frame.
fn nested(frame: &RecordedPacket, formats: &[(TunnelFormat, TunnelPacket)]) -> Option<(Vec<u8>, u32)> {
    let whole = (frame.data.to_vec(), frame.original_bytes);
    formats.iter().try_fold(whole, |(data, bytes), (format, packet)| format.wrap(&data, bytes, *packet))
}

/// Any frame in any tunnels, up to three of them, with anything behind it and truncated anywhere.
#[test]
fn every_tunnel_leads_to_the_packet_of_the_bare_frame() {
    let mut random = random(25);
    let frames = frames();
    assert!(frames.len() > 100);
    let mut wrapped = 0;
    for round in 0..4000 {
        let frame = &frames[random(frames.len())];
        // Each format alone, and then any of them in each other.
        let depth = if round < 500 { 1 } else { 1 + random(3) };
        let mut tunnel = |at: usize| {
            let format = TUNNEL_FORMATS[if round < 500 { round + at } else { random(1000) } % TUNNEL_FORMATS.len()];
            (
                format,
                TunnelPacket { is_ipv6: random(2) == 1, switch: random(9) as u8, sequence: random(1 << 20) as u32 },
            )
        };
        let formats: Vec<_> = (0..depth).map(&mut tunnel).collect();
        let Some((mut data, original_bytes)) = nested(frame, &formats) else { continue };
        wrapped += 1;
        let bare = packet(&frame.data, frame.original_bytes);
        let shift = data.len() - frame.data.len();
        let found = packet(&data, original_bytes);
        let expected =
            Location { start: bare.start + shift, network: bare.network + shift, tunnels: found.tunnels, ..bare };
        assert_eq!(found, expected, "{formats:?}");
        assert!(!found.tunnels.is_empty());
        assert_eq!(verify_icrc(&data, &found), verify_icrc(&frame.data, &bare), "{formats:?}");
        assert_ne!(verify_icrc(&data, &found), CrcVerdict::Bad, "{formats:?}");
        for there in 0..data.len().min(expected.start + 20) {
            match locate(LinkType::ETHERNET, &data[..there], original_bytes) {
                Ok(location) => assert_eq!(location, LinkContent::Infiniband(expected), "{formats:?} at {there}"),
                Err(error) => assert!(error.is_truncated() && there < expected.start + 1, "{formats:?}: {error}"),
            }
        }
        let trailer = [4, 8, 12, 16, 20][random(5)];
        data.extend(vec![0xA5; trailer]);
        assert_eq!(packet(&data, original_bytes + trailer as u32), expected, "{formats:?}");
    }
    assert!(wrapped > 2500, "{wrapped}");
}

#[test]
fn no_change_of_a_tunnel_makes_the_parsers_panic() {
    let mut random = random(26);
    let frames = frames();
    for _ in 0..20_000 {
        let mut tunnel = || {
            (
                TUNNEL_FORMATS[random(TUNNEL_FORMATS.len())],
                TunnelPacket { is_ipv6: random(2) == 1, ..TunnelPacket::default() },
            )
        };
        let formats = [tunnel(), tunnel()];
        let Some((mut data, original_bytes)) = nested(&frames[random(frames.len())], &formats) else { continue };
        for _ in 0..=random(4) {
            let at = random(data.len().min(160));
            data[at] = random(256) as u8;
        }
        data.truncate(random(data.len() + 1));
        let mut path = TunnelPath::default();
        if let Ok(LinkContent::Infiniband(location)) =
            locate_in_tunnels(LinkType::ETHERNET, &data, original_bytes, &mut path)
        {
            assert!(location.start <= data.len() && location.network <= location.start);
            let _ = (Packet::parse_lax(&data, &location), verify_icrc(&data, &location));
        }
    }
}

pub(crate) fn analyzed(paths: &[PathBuf], threads: usize) -> Profile {
    let options = AnalysisOptions { threads, ..AnalysisOptions::default() };
    pipeline::analyze(paths, &options, &|_| {}).expect("profile")
}

/// All files of the profile of these captures; of the document, what does not depend on the outer
/// headers.
fn tables(profile: &Profile, folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let place = folder.join("profile.ibp");
    ProfileWriter::create(&place, &[]).expect("place").finish(profile).expect("written");
    let entries = std::fs::read_dir(&place).expect("profile").map(|entry| entry.expect("entry").path());
    let read = |path: PathBuf| {
        let name = path.file_name().expect("name").to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).expect("file");
        if name != "profile.json" {
            return (name, bytes);
        }
        let mut document: Value = serde_json::from_slice(&bytes).expect("JSON");
        document.as_object_mut().expect("object").remove("inputs");
        document.as_object_mut().expect("object").remove("tables");
        let coverage = document["coverage"].as_object_mut().expect("object");
        // The names of other frames have their tunnels, and bursts count bytes of records.
        for member in ["encapsulated", "other_frames", "same_time_longest_run_bytes"] {
            coverage.remove(member).expect("a member of the coverage");
        }
        (name, serde_json::to_vec_pretty(&document).expect("JSON"))
    };
    let tables: BTreeMap<_, _> = entries.map(read).collect();
    std::fs::remove_dir_all(&place).expect("removed");
    assert!(tables.len() > 8, "{:?}", tables.keys());
    tables
}

/// Compares the profile of the captures in tunnels with that of the bare ones.
pub(crate) fn assert_equal(case: &str, bare: &[PathBuf], wrap: impl Fn(usize, &Recording) -> Recording) -> Profile {
    let folder = tempfile::tempdir().expect("folder");
    let captures = |name: &str, of: &dyn Fn(usize, Recording) -> Recording| -> Vec<PathBuf> {
        let capture = |(index, path): (usize, &PathBuf)| {
            let place = folder.path().join(name).join(format!("{index}.pcap"));
            std::fs::create_dir_all(place.parent().expect("folder")).expect("folder");
            of(index, recording(path)).write(&place).expect("written");
            place
        };
        bare.iter().enumerate().map(capture).collect()
    };
    let plain = analyzed(&captures("bare", &|_, recording| recording), 2);
    let found = analyzed(&captures("wrapped", &|index, recording| wrap(index, &recording)), 2);
    let (one, other) = (tables(&plain, folder.path()), tables(&found, folder.path()));
    for (name, bytes) in &one {
        if name == "profile.json" {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
            let (one, other) = (text(bytes), text(&other[name]));
            let different = one.lines().zip(other.lines()).find(|(one, other)| one != other);
            assert_eq!((different, one.lines().count()), (None, other.lines().count()), "{case}");
        }
        assert!(other[name] == *bytes, "{case}: {name} differs");
    }
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>(), "{case}");
    assert_eq!(plain.coverage.encapsulated_packets(), 0, "{case}");
    found
}

#[test]
fn a_run_in_any_tunnel_has_the_profile_of_the_bare_run() {
    let run = runs::named("ompi-rc-ring2");
    in_parallel(&TUNNEL_FORMATS, |_, format| {
        let found = assert_equal(&format!("{format:?}"), &run.every_node(), |index, recording| {
            wrapped(recording, |_, _| Some(from(*format, index as u8)))
        });
        let coverage = &found.coverage;
        let expected = BTreeMap::from([(format.name().to_owned(), coverage.infiniband)]);
        assert_eq!(coverage.encapsulated, expected, "{format:?}");
        assert_eq!((coverage.failed(), coverage.lost_mirrored_frames()), (0, 0), "{format:?}");
    });
}

#[test]
fn runs_with_bare_and_encapsulated_ports_have_the_profile_of_the_bare_run() {
    in_parallel(&runs::VARIED, |_, name| {
        let captures = runs::named(name).every_node();
        // Half of the ports bare, and half in ERSPAN.
        let found = assert_equal(&format!("{name}: half"), &captures, |index, recording| {
            wrapped(recording, |_, _| (index % 2 == 0).then(|| from(TunnelFormat::ErspanII, 1)))
        });
        let encapsulated = found.coverage.encapsulated_packets();
        assert!(encapsulated > 0 && encapsulated < found.coverage.infiniband, "{name}");
        // Every kind, and bare frames, in one file.
        let found = assert_equal(&format!("{name}: mixed"), &captures, |_, recording| {
            wrapped(recording, |number, _| {
                // A switch per format: each counts its own frames.
                let format = number % (TUNNEL_FORMATS.len() + 3);
                Some(from(*TUNNEL_FORMATS.get(format)?, format as u8))
            })
        });
        assert!(found.coverage.encapsulated.len() > 10, "{name}: {:?}", found.coverage.encapsulated);
        assert_eq!(found.coverage.failed(), 0, "{name}");
    });
}

/// A mirror that truncates frames to 128 bytes, and timestamps behind each frame.
#[test]
fn truncated_frames_and_trailers_have_the_profile_of_a_bare_capture() {
    let run = runs::named("ompi-rc-mixed-2x2");
    let truncated = |recording: &Recording| {
        let cut = |record: &RecordedPacket| {
            let data = record.data[..record.data.len().min(128)].into();
            RecordedPacket { data, ..record.clone() }
        };
        recording.with(recording.records.iter().map(cut).collect())
    };
    let folder = tempfile::tempdir().expect("folder");
    let bare: Vec<PathBuf> = run
        .every_node()
        .iter()
        .enumerate()
        .map(|(index, path)| {
            let place = folder.path().join(format!("{index}.pcap"));
            truncated(&recording(path)).write(&place).expect("written");
            place
        })
        .collect();
    // The outer packet has the truncated length only.
    assert_equal("truncated", &bare, |_, recording| {
        let short =
            |record: &RecordedPacket| RecordedPacket { original_bytes: record.data.len() as u32, ..record.clone() };
        let short = recording.with(recording.records.iter().map(short).collect());
        wrapped(&short, |_, _| Some(from(TunnelFormat::ErspanIII, 2)))
    });
    for trailer in [8, 12, 16] {
        assert_equal(&format!("trailer of {trailer}"), &run.every_node(), |index, recording| {
            let longer = |record: &RecordedPacket| RecordedPacket {
                data: [&record.data[..], &vec![0xA5; trailer]].concat().into(),
                original_bytes: record.original_bytes + trailer as u32,
                ..record.clone()
            };
            let longer = recording.with(recording.records.iter().map(longer).collect());
            if index == 0 { longer } else { wrapped(&longer, |_, _| Some(from(TunnelFormat::Vxlan, 2))) }
        });
    }
}

/// Missing sequence numbers are counted exactly, whatever the threads, the format and the batches.
#[test]
fn frames_that_a_mirror_lost_are_counted() {
    let run = runs::named("ompi-rc-mixed-2x2");
    let folder = tempfile::tempdir().expect("folder");
    let whole = wrapped(&recording(&run.node(1)), |number, _| {
        let format = if number % 2 == 0 { TunnelFormat::ErspanII } else { TunnelFormat::ErspanIII };
        Some(from(format, (number % 2) as u8))
    });
    let last = whole.records.len() - 4;
    let is_kept = |index: usize| index < 4 || index >= last || index % 10 > 1;
    let kept = whole.records.iter().enumerate().filter(|(index, _)| is_kept(*index));
    let lossy = whole.with(kept.map(|(_, record)| record.clone()).collect());
    let lost = (whole.records.len() - lossy.records.len()) as u64;
    let place = folder.path().join("lossy.pcap");
    lossy.write(&place).expect("written");
    let pcapng = folder.path().join("lossy.pcapng");
    std::fs::write(&pcapng, as_pcapng(&std::fs::read(&place).expect("file"))).expect("written");
    for (path, threads) in [(&place, 1), (&place, 3), (&pcapng, 2)] {
        let profile = analyzed(std::slice::from_ref(path), threads);
        let coverage = &profile.coverage;
        assert_eq!(coverage.lost_mirrored_frames(), lost);
        let sessions: Vec<_> = coverage.mirror_losses.keys().map(String::as_str).collect();
        assert_eq!(sessions, ["ERSPAN II from 192.0.2.0, session 5", "ERSPAN III from 2001:db8::1, session 5"]);
        assert_eq!(profile.trust.verdict, TrustVerdict::Incomplete);
        let note = profile.notes.iter().find(|note| note.contains("lost between the mirror")).expect("a note");
        assert!(note.starts_with(&format!("{lost} mirrored frames were lost")), "{note}");
        assert!(note.contains("of ERSPAN III from 2001:db8::1, session 5"), "{note}");
        assert!(profile.trust.reasons.iter().any(|reason| reason.contains("mirrored frames were lost")));
    }
    whole.write(&place).expect("written");
    let profile = analyzed(std::slice::from_ref(&place), 2);
    assert_eq!(profile.coverage.lost_mirrored_frames(), 0);
    assert!(!profile.notes.iter().any(|note| note.contains("mirror")));
}

/// Frames that are lost between two files of a rotated capture count, and records that both files
/// hold do not hide a loss.
#[test]
fn a_session_continues_in_the_next_file() {
    let run = runs::named("ompi-rc-mixed-2x2");
    let folder = tempfile::tempdir().expect("folder");
    let whole = wrapped(&recording(&run.node(1)), |_, _| Some(from(TunnelFormat::ErspanII, 2)));
    let third = whole.records.len() / 3;
    let part = |name: &str, range: std::ops::Range<usize>| {
        let place = folder.path().join(name);
        whole.with(whole.records[range].to_vec()).write(&place).expect("written");
        place
    };
    // Three frames are lost between the first two files, and the last two share ten records.
    let parts = [
        part("sink.pcap0", 0..third),
        part("sink.pcap1", third + 3..2 * third),
        part("sink.pcap2", 2 * third - 10..whole.records.len()),
    ];
    let coverage = analyzed(&parts, 2).coverage;
    let losses: Vec<_> = coverage.mirror_losses.iter().map(|(name, loss)| (name.as_str(), loss.lost_frames)).collect();
    assert_eq!(losses, [("ERSPAN II from 192.0.2.2, session 5", 3)]);
}

#[test]
fn the_first_screen_counts_tunnels_by_kind() {
    let run = runs::named("ompi-rc-ring2");
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("mixed.pcap");
    let mixed = wrapped(&recording(&run.node(1)), |number, _| match number % 3 {
        0 => Some(from(TunnelFormat::ErspanII, 2)),
        1 => Some(from(TunnelFormat::Vxlan, 2)),
        _ => None,
    });
    mixed.write(&place).expect("written");
    let coverage = analyzed(std::slice::from_ref(&place), 2).coverage;
    let count = |kind: &str| coverage.encapsulated[kind];
    let text = result(&["analyze"], &[&place]).replace(',', "");
    let line = text.lines().find(|line| line.starts_with("encapsulated")).expect("a line").to_owned();
    assert!(line.contains(&format!("ERSPAN II {}", count("ERSPAN II"))), "{line}");
    assert!(line.contains(&format!("VXLAN {}", count("VXLAN"))), "{line}");
    let summary: Value = serde_json::from_str(&result(&["summary", "--format", "json"], &[&place])).expect("JSON");
    assert_eq!(summary["coverage"]["encapsulated"]["VXLAN"], count("VXLAN"));
    assert_eq!(summary["facts"]["encapsulated"], count("VXLAN") + count("ERSPAN II"));
}

/// Frames that may hold RoCE and cannot be read count as not decoded, with a remedy.
#[test]
fn what_is_not_read_is_named_with_a_remedy() {
    let run = runs::named("ompi-rc-ring2");
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("refused.pcap");
    let refused = |change: &dyn Fn(&mut Vec<u8>), format: TunnelFormat, every: usize| {
        let mut out = wrapped(&recording(&run.node(1)), |number, _| (number % every == 0).then(|| from(format, 2)));
        for record in out.records.iter_mut().step_by(every) {
            let mut data = record.data.to_vec();
            change(&mut data);
            record.data = data.into();
        }
        out.write(&place).expect("written");
        ibscope(["analyze", "--min-coverage", "90", place.to_str().expect("path")])
    };
    // The frame and its outer headers: fragments, an unknown frame type, an unknown protocol.
    let fragment: &dyn Fn(&mut Vec<u8>) = &|data| data[20] = 0x20;
    let frame_type: &dyn Fn(&mut Vec<u8>) = &|data| data[52] = 7 << 2;
    let protocol: &dyn Fn(&mut Vec<u8>) = &|data| data[36] = 0x99;
    for (change, format, name, remedy) in [
        (fragment, TunnelFormat::Gre, "IP fragment", "raise the MTU"),
        (fragment, TunnelFormat::Vxlan, "IP fragment", "raise the MTU"),
        (frame_type, TunnelFormat::ErspanIII, "ERSPAN III with unknown content 0x0007", "in ERSPAN, GRE or VXLAN"),
        (protocol, TunnelFormat::Gre, "GRE protocol 0x9958", "in ERSPAN, GRE or VXLAN"),
    ] {
        let alone = refused(change, format, 1);
        assert_eq!(alone.code, 1, "{name}: {}", alone.stdout);
        assert!(alone.stderr.contains(name) && alone.stderr.contains(remedy), "{name}: {}", alone.stderr);
        let mixed = refused(change, format, 2);
        assert_eq!(mixed.code, 3, "{name}: {}{}", mixed.stdout, mixed.stderr);
        assert!(mixed.stdout.contains(name) && mixed.stdout.contains(remedy), "{name}: {}", mixed.stdout);
    }
    let deep: Vec<(TunnelFormat, TunnelPacket)> = vec![from(TunnelFormat::Vxlan, 2); 9];
    let frame = frames().swap_remove(0);
    let (data, original_bytes) = nested(&frame, &deep).expect("a frame");
    Recording::default()
        .with(vec![RecordedPacket { data: data.into(), original_bytes, ..frame }])
        .write(&place)
        .expect("written");
    let ran = ibscope(["analyze", place.to_str().expect("path")]);
    assert!(ran.stderr.contains("frame in more than 8 tunnels in VXLAN"), "{}", ran.stderr);
    assert!(ran.stderr.contains("fewer tunnels"), "{}", ran.stderr);
}

/// An anonymized frame has lost its tunnels, and is the same as from the bare capture.
#[test]
fn anonymize_removes_tunnels() {
    let run = runs::named("ompi-rc-ring2");
    let folder = tempfile::tempdir().expect("folder");
    let bare = recording(&run.node(1));
    let bare = bare.with(bare.records.iter().filter(|record| runs::is_roce(&record.data)).cloned().collect());
    let anonymized = |name: &str, bytes: &[u8]| {
        let (place, output) = (folder.path().join(name), folder.path().join(format!("anonymous-{name}")));
        std::fs::write(&place, bytes).expect("written");
        let text = |path: &Path| path.to_str().expect("path").to_owned();
        let ran = ibscope(["anonymize", "--key", "a long enough key of a test", "-o", &text(&output), &text(&place)]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        (std::fs::read(&output).expect("output"), ran.stdout + &ran.stderr)
    };
    let file = |recording: &Recording| {
        let place = folder.path().join("file.pcap");
        recording.write(&place).expect("written");
        std::fs::read(&place).expect("file")
    };
    let plain = file(&bare);
    let (expected, _) = anonymized("bare.pcap", &plain);
    let (expected_pcapng, _) = anonymized("bare.pcapng", &as_pcapng(&plain));
    for format in TUNNEL_FORMATS {
        let name = format!("{format:?}");
        let tunnels = file(&wrapped(&bare, |_, _| Some(from(format, 2))));
        let (found, printed) = anonymized("tunnels.pcap", &tunnels);
        let (found_pcapng, _) = anonymized("tunnels.pcapng", &as_pcapng(&tunnels));
        let keeps_frame = !matches!(
            format,
            TunnelFormat::GreIp
                | TunnelFormat::GreMpls
                | TunnelFormat::GreInUdpIp
                | TunnelFormat::ErspanIIIIp
                | TunnelFormat::VxlanGpeIp
                | TunnelFormat::GeneveIp
                | TunnelFormat::MplsInIp
                | TunnelFormat::MplsInUdp
                | TunnelFormat::IpInIp
                | TunnelFormat::VnTag
                | TunnelFormat::ETag
        );
        if keeps_frame {
            assert!(found == expected && found_pcapng == expected_pcapng, "{name}");
        } else {
            // Without an Ethernet header of their own, the packets are dropped and counted.
            assert_eq!(found.len(), 24, "{name}");
            assert!(printed.contains(&format!("RoCE in {} without an Ethernet header", format.name())), "{printed}");
        }
    }
}

/// The fields that tshark shows, from the outer layers to the inner ones.
fn tshark(path: &Path) -> Vec<BTreeMap<&'static str, String>> {
    const FIELDS: [&str; 8] =
        ["frame.protocols", "eth.type", "vlan.etype", "gre.proto", "ip.src", "ip.proto", "udp.dstport", "ip.dst"];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path).args(["-T", "fields", "-E", "occurrence=a"]);
    FIELDS.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().expect("tshark");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let row = |line: &str| FIELDS.into_iter().zip(line.split('\t').map(str::to_owned)).collect();
    text.lines().map(row).collect()
}

/// The captures of the tcpdump project.
#[test]
fn recorded_tunnels_lead_to_the_frames_that_tshark_shows() {
    let entries =
        std::fs::read_dir(samples_folder().join("encap")).expect("folder").map(|entry| entry.expect("entry").path());
    let mut captures: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|kind| kind == "pcap") && !path.to_string_lossy().contains("sflow"))
        .collect();
    captures.sort();
    assert_eq!(captures.len(), 9);
    let mut compared = 0;
    for path in captures {
        let records = recording(&path).records;
        let shown = tshark(&path);
        assert_eq!(records.len(), shown.len());
        for (number, (record, shown)) in records.iter().zip(shown).enumerate() {
            let place = format!("{} frame {}", path.display(), number + 1);
            let mut path = TunnelPath::default();
            let found = locate_in_tunnels(LinkType::ETHERNET, &record.data, record.original_bytes, &mut path);
            compared += usize::from(path.depth() > 0);
            let Ok(LinkContent::Other(what)) = found else { panic!("{place}: {found:?}") };
            let number = |name: &str| {
                let text = last(&shown[name]);
                text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok())
            };
            let protocols = &shown["frame.protocols"];
            match what {
                NotInfiniband::IpProtocol(protocol) => {
                    assert_eq!(number("ip.proto"), Some(u32::from(protocol)), "{place}: {protocols}");
                    // The packet is the one that tshark shows last.
                    let at = inner_ipv4(&record.data, path.frame_at());
                    assert_eq!(
                        (ipv4(&record.data, at + 12), ipv4(&record.data, at + 16)),
                        (last(&shown["ip.src"]), last(&shown["ip.dst"])),
                        "{place}"
                    );
                }
                NotInfiniband::UdpPort(port) => {
                    assert_eq!(number("udp.dstport"), Some(u32::from(port)), "{place}: {protocols}");
                }
                NotInfiniband::EtherType(kind) if kind >= 0x600 => {
                    let shown = if protocols.contains("vlan") { number("vlan.etype") } else { number("eth.type") };
                    assert_eq!(shown, Some(u32::from(kind)), "{place}: {protocols}");
                }
                NotInfiniband::EtherType(_) => assert!(protocols.contains("llc"), "{place}: {protocols}"),
                NotInfiniband::GreProtocol(kind) => {
                    assert!(shown["gre.proto"].contains(&format!("{kind:#06x}")), "{place}: {protocols}");
                }
                NotInfiniband::TunnelPayload(..) => assert!(protocols.ends_with("erspan:data"), "{place}: {protocols}"),
                other => panic!("{place}: {other:?}"),
            }
        }
    }
    assert!(compared > 150, "{compared}");
}

pub(crate) fn last(values: &str) -> String {
    values.rsplit(',').next().unwrap_or_default().to_owned()
}

/// Offset of the last IPv4 header after the Ethernet header at `at`, past VLAN tags. Tunnels
/// without an Ethernet header: of the last header with a valid checksum.
fn inner_ipv4(data: &[u8], at: usize) -> usize {
    let is_header = |at: &usize| {
        let Some(header) = data.get(*at..*at + 20) else { return false };
        let sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        header[0] == 0x45 && (sum & 0xFFFF) + (sum >> 16) == 0xFFFF
    };
    (at + 14..data.len().min(at + 130)).rev().find(is_header).expect("an IPv4 header")
}

fn ipv4(data: &[u8], at: usize) -> String {
    std::net::Ipv4Addr::from(<[u8; 4]>::try_from(&data[at..at + 4]).expect("four bytes")).to_string()
}
