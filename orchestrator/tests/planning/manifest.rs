//! The manifest of a plan, and its file.

use crate::lab::{by_mstreg, planned};
use ibscope_orchestrator::capture::PacketCounts;
use ibscope_orchestrator::folder::Folder;
use ibscope_orchestrator::manifest::{CaptureClock, CommandRun, Manifest, ManifestCaptureEnd};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

#[test]
fn a_plan_fills_most_of_the_manifest() {
    let plan = planned(&by_mstreg("from_job = true"), "n[003-007]").unwrap();
    let manifest = Manifest::from_plan(&plan);
    assert_eq!((manifest.job_id, manifest.run.as_str()), (17, "ibscope-17-20261121T200022Z"));
    assert_eq!(manifest.started_ns, 1_795_291_222_000_000_000);
    assert_eq!((manifest.nodes.len(), manifest.compute_nodes.len()), (5, 3));
    let lids =
        |ports: &[ibscope_orchestrator::manifest::ManifestPort]| ports.iter().map(|port| port.lid).collect::<Vec<_>>();
    assert_eq!((lids(&manifest.ports), lids(&manifest.sinks)), (vec![8, 9, 11], vec![10, 12]));
    let guids: Vec<&[u64]> = manifest.captures.iter().map(|capture| &capture.port_guids[..]).collect();
    assert_eq!(guids, [&[0x1070_fd03_0000_0031, 0x1070_fd03_0000_0041][..], &[0x1070_fd03_0000_0061]]);
    assert!(manifest.captures.iter().all(|capture| capture.on_sink && capture.resolution_ns == Some(1_000)));
    let mirrors: Vec<_> =
        manifest.mirrors.iter().map(|mirror| (mirror.sink.as_str(), &mirror.ports[..], mirror.sink_port)).collect();
    assert_eq!(mirrors, [("n005", &[3, 4][..], 5), ("n007", &[1][..], 2)]);
    assert_eq!(manifest.notes, plan.warnings);
}

#[test]
fn a_written_manifest_reads_back() {
    let mut manifest = Manifest::from_plan(&planned(&by_mstreg("from_job = true"), "n[003-007]").unwrap());
    let folder = tempfile::tempdir().unwrap();
    let capture = &mut manifest.captures[0];
    capture.on_sink = false;
    capture.file = Path::new("n005.pcap").to_owned();
    capture.sha256 = Some("00".repeat(32));
    capture.bytes = Some(24);
    let counted = PacketCounts { packets: 3, bytes: Some(900), dropped: None };
    capture.ended = Some(ManifestCaptureEnd {
        signal: Some("INT".to_owned()),
        status: Some(0),
        counted: Some(counted),
        ring: None,
        limit: None,
        profile: None,
    });
    capture.clock = Some(CaptureClock { at_ns: 5, offset_ns: -7, drift_ppm: 0.25, uncertainty_ns: 90 });
    let argv = vec!["/m".to_owned(), "a b".to_owned()];
    manifest.commands.push(CommandRun {
        argv,
        at_ns: 5,
        took_ns: 9,
        status: Some(1),
        error: Some("no".to_owned()),
        node: None,
    });

    // A file of an earlier attempt that was killed, readable for all, does not disturb.
    fs::write(folder.path().join(format!(".manifest.json.part-{}", std::process::id())), "{").unwrap();
    let path = manifest.write(&Folder::open(folder.path()).unwrap(), None).unwrap();
    let owner = fs::metadata(&path).unwrap();
    assert_eq!((owner.mode() & 0o777, owner.uid()), (0o600, fs::metadata(folder.path()).unwrap().uid()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    manifest.captures[0].file = folder.path().join("n005.pcap");
    assert_eq!(Manifest::read(&path).unwrap(), manifest);

    // Written once more, over the first.
    manifest.captures[0].file = Path::new("n005.pcap").to_owned();
    manifest.notes.clear();
    manifest.write(&Folder::open(folder.path()).unwrap(), None).unwrap();
    assert_eq!(Manifest::read(&path).unwrap().notes.len(), 0);
    // A folder is in the place of the manifest.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = manifest.write(&Folder::open(folder.path()).unwrap(), None).unwrap_err().to_string();
    assert!(error.contains("/manifest.json: the manifest cannot be written"), "{error}");
}

#[test]
fn the_manifest_is_given_to_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    if fs::metadata(folder.path()).unwrap().uid() != 0 {
        eprintln!("SKIPPED: only root can give files away");
        return;
    }
    let manifest = Manifest::from_plan(&planned(&by_mstreg("from_job = true"), "n[003-007]").unwrap());
    let file =
        fs::metadata(manifest.write(&Folder::open(folder.path()).unwrap(), Some((65_534, Some(65_533)))).unwrap())
            .unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o777), (65_534, 65_533, 0o600));
}
