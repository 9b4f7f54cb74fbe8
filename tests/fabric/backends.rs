//! Other backends than a command of the site and ibdump at a sink: switch registers, capture at
//! every node, tcpdump.

use crate::analysis::{by_rank, check_run, files};
use crate::cases::{LONGEST, hook, lab, starts};
use crate::container::until;
use crate::jobs::{clean, expected, folder_of, manifest_of, only_folder};
use crate::lab::{HookLab, LabSetting, NODES};
use crate::site::SiteConfig;
use crate::sweeper::sweep;
use crate::switch::SwitchFault;
use crate::tools;
use crate::topology::leaf_guid;
use std::collections::BTreeSet;
use std::fs;

/// `mstreg` writes one analyzer per leaf and one register per port and direction. Two jobs on a
/// leaf have an analyzer each. All registers are cleared in the order that a switch requires.
pub(crate) fn registers_are_written_read_back_and_cleared() {
    let lab = lab(SiteConfig { backend: "mstreg", ..SiteConfig::PLAIN });
    lab.switch_lids();
    starts(&lab, 700);
    assert_eq!(lab.mirrored(), expected(&lab, &NODES[..4], ["sink1a", "sink2a"], 0), "{}", lab.registers());
    let mut registers = BTreeSet::new();
    for (leaf, sink) in [(0, "sink1a"), (1, "sink2a")] {
        let port = lab.topology.place(sink).1;
        registers.insert(format!("MPAT {:#018x} 0: be=1,e=1,span_type=4,system_port={port}", leaf_guid(leaf)));
    }
    for node in &NODES[..4] {
        let (leaf, port, _) = lab.topology.place(node);
        registers.extend([0, 1].map(|way| format!("MPAR {:#018x} {port} {way}: enable=1", leaf_guid(leaf))));
    }
    assert_eq!(lab.registers().lines().map(str::to_owned).collect::<BTreeSet<_>>(), registers);

    assert_eq!(lab.hook("prolog", 701, "n[005-006]").code, 0);
    let (leaf, port, _) = lab.topology.place("sink1b");
    let second = format!("MPAT {:#018x} 1: be=1,e=1,span_type=4,system_port={port}", leaf_guid(leaf));
    assert!(lab.registers().lines().any(|line| line == second), "{}{}", lab.registers(), lab.log_text());
    hook(&lab, "epilog", 700);
    assert_eq!(lab.mirrored().len(), 2, "the other job's: {}", lab.registers());
    assert_eq!(lab.hook("epilog", 701, "n[005-006]").code, 0);
    clean(&lab);
    assert!(!lab.registers().contains(",e=1") && !lab.registers().contains("enable=1"), "{}", lab.registers());
    let runs = fs::read_dir(lab.path().join("runs")).expect("runs").map(|run| run.expect("run").path());
    check_run(&lab, &runs.into_iter().find(|run| run.display().to_string().contains("-700-")).expect("run"), 2, (0, 0));

    // Reading back finds a register that does not keep its value.
    lab.switch_fault(Some(SwitchFault::Forget(lab.topology.place("n002").1 as u8)));
    let log_text = hook(&lab, "prolog", 702);
    assert!(
        log_text.contains("mirroring was switched on, but") && log_text.contains("reports that enable is 0, not 1"),
        "{log_text}"
    );
    assert!(log_text.contains("all changes are undone"), "{log_text}");
    clean(&lab);
    // A register that is on already belongs to somebody else.
    lab.switch_fault(None);
    let mstreg = lab.path().join("bin/mstreg").display().to_string();
    let set = |register: &str, index: &str, fields: &str| {
        let words = ["-d", "LID", "--yes", "--reg_name", register, "-i", index, "-o", "mngr_type=1", "--set", fields];
        let lids = fs::read_to_string(lab.path().join("switch-lids")).expect("LIDs");
        let own = format!(" {:#018x}", leaf_guid(0));
        let lid = lids.lines().find_map(|line| line.strip_suffix(&own)).expect("the leaf");
        let device = format!("lid-{lid}");
        let words = words.map(|word| if word == "LID" { device.as_str() } else { word });
        lab.container.run([mstreg.as_str()].iter().chain(&words))
    };
    assert!(set("MPAT", "pa_id=0", "system_port=6,span_type=4,e=1").status.success());
    let log_text = hook(&lab, "prolog", 703);
    assert!(log_text.contains("is mirrored already"), "{log_text}");
    // The stand-in for the switch refuses a wrong order, field or port, as a switch does.
    let refused = |register: &str, index: &str, fields: &str, says: &str| {
        let output = set(register, index, fields);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains(says), "{fields}: {printed}");
    };
    let first = "local_port=1,i_e=1,lp_msb=0";
    refused("MPAR", first, "pa_id=1,enable=1", "is off: MPAT first");
    refused("MPAR", first, "analyzer=1", "not a field of MPAR");
    refused("MPAR", "local_port=1,i_e=1", "enable=1", "indexes are");
    refused("MPAR", "local_port=6,i_e=1,lp_msb=0", "pa_id=0,enable=1", "a sink's port");
    assert!(set("MPAR", first, "pa_id=0,enable=1").status.success());
    refused("MPAT", "pa_id=0", "e=0", "MPAR first");
    assert!(set("MPAR", first, "enable=0").status.success());
    assert!(set("MPAT", "pa_id=0", "e=0").status.success());
    clean(&lab);
}

/// A command that takes all ports of a leaf: ports that it left out are noticed, and one refused port
/// undoes all.
pub(crate) fn a_command_mirrors_all_ports_of_a_leaf_at_once() {
    let lab = lab(SiteConfig { mirrors_once_per_leaf: true, ..SiteConfig::PLAIN });
    starts(&lab, 705);
    assert_eq!(lab.mirrored(), expected(&lab, &NODES[..4], ["sink1a", "sink2a"], 705));
    // Of each leaf, one port cannot be switched off.
    lab.switch_fault(Some(SwitchFault::Keep(lab.topology.place("n002").1 as u8)));
    let log_text = hook(&lab, "epilog", 705);
    assert!(log_text.contains("may still be mirrored"), "{log_text}");
    assert!(!lab.mirrored().is_empty());
    lab.switch_fault(None);
    let swept = sweep(&lab);
    assert_eq!(swept.code, 0, "{}{}", swept.stdout, swept.stderr);
    clean(&lab);
    check_run(&lab, &folder_of(&lab, 705), 2, (0, 0));

    lab.switch_fault(Some(SwitchFault::Refuse(lab.topology.place("n002").1 as u8)));
    let log_text = hook(&lab, "prolog", 706);
    assert!(log_text.contains("refused") && log_text.contains("all changes are undone"), "{log_text}");
    clean(&lab);
}

/// Without mirrors every node captures at its own adapter, and no switch is called.
pub(crate) fn every_node_captures_at_its_own_adapter() {
    let lab = lab(SiteConfig { backend: "none", ..SiteConfig::PLAIN });
    let log_text = hook(&lab, "prolog", 710);
    assert!(log_text.contains("capturing: 4 captures, 0 ports mirrored"), "{log_text}");
    for node in &NODES[..4] {
        let own = format!("-{node}-ibsim0-1.pcap");
        assert!(lab.captures_running().iter().any(|line| line.contains(&own)), "{:?}", lab.captures_running());
    }
    hook(&lab, "epilog", 710);
    assert_eq!(lab.switch_calls().len(), 0);
    clean(&lab);
    check_run(&lab, &only_folder(&lab.path().join("runs")), 4, (0, 0));
}

/// The real tcpdump at an interface where the frames of a recorded job arrive: all of them are in
/// the file, and the filter drops all other frames.
pub(crate) fn tcpdump_captures_roce(setting: LabSetting) {
    let lab = HookLab::start_in(setting);
    for interface in ["ve0", "ve1"] {
        lab.container.succeeds(["ip", "link", "set", interface, "mtu", "9000"]);
    }
    lab.configure(SiteConfig {
        backend: "none",
        program: "tcpdump",
        capture: "[capture.tcpdump]\ninterface = \"ve0\"\nbuffer_kib = 65536\nfilter = \"udp port 4791\"",
        ..SiteConfig::PLAIN
    });
    let tested = lab.capture(&["selftest", "--nodelist", "n001"]);
    assert_eq!(tested.code, 0, "{}{}", tested.stdout, tested.stderr);
    // 1408 frames of RoCE, and 76 of other protocols.
    let folder = tools::samples_folder().join("runs/ompi-rc-ring2");
    let frames = lab.path().join("frames.pcap");
    let packed = fs::read(folder.join("node1.pcap.zst")).expect("frames");
    fs::write(&frames, zstd::decode_all(&packed[..]).expect("zstd")).expect("frames");

    assert_eq!(lab.hook("prolog", 720, "n001").code, 0);
    assert!(lab.log_text().contains("capturing: 1 capture, 0 ports mirrored"), "{}", lab.log_text());
    let frames = frames.display().to_string();
    lab.container.succeeds(["tcpreplay", "--quiet", "--pps=1000", "--intf1=ve1", &frames]);
    assert_eq!(lab.hook("epilog", 720, "n001").code, 0);
    clean(&lab);
    let log_text = lab.log_text();
    assert!(log_text.contains("n001: 1408 packets in "), "{log_text}");
    let run = only_folder(&lab.path().join("runs"));
    let manifest: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(run.join("manifest.json")).expect("manifest")).expect("json");
    let counted = &manifest["captures"][0]["ended"]["counted"];
    assert_eq!((counted["packets"].as_u64(), counted["dropped"].as_u64()), (Some(1408), Some(0)), "{manifest}");
    let files = files(&run);
    let profile = lab.path().join("roce.ibp");
    let manifest = run.join("manifest.json").display().to_string();
    let summary = tools::result(&["analyze", "--manifest", &manifest, "-o", profile.to_str().expect("path")], &files);
    assert!(summary.contains("1 408"), "{summary}");
    let truth = fs::read_to_string(folder.join("wire.csv")).expect("truth");
    let truth: Vec<&str> = truth.lines().skip(1).collect();
    assert_eq!(by_rank(&profile), truth);
    a_capture_ends_at_its_size(&lab, &frames);
    a_ring_keeps_the_newest_packets(&lab, &frames);
}

/// A ring of two files keeps the newest packets of a long job, and neither manifest nor profile calls the
/// capture complete.
fn a_ring_keeps_the_newest_packets(lab: &HookLab, frames: &str) {
    lab.configure(SiteConfig {
        backend: "none",
        program: "tcpdump",
        capture: "max_bytes = 2_000_000\nring_files = 2\n[capture.tcpdump]\ninterface = \"ve0\"\nbuffer_kib = 65536\n\
                  filter = \"udp port 4791\"",
        ..SiteConfig::PLAIN
    });
    let frames_bytes = fs::metadata(frames).expect("frames").len();
    assert!(frames_bytes > 3_000_000);
    assert_eq!(lab.hook("prolog", 722, "n001").code, 0);
    lab.container.succeeds(["tcpreplay", "--quiet", "--pps=2000", "--intf1=ve1", frames]);
    assert_eq!(lab.hook("epilog", 722, "n001").code, 0);
    clean(lab);
    let run = folder_of(lab, 722);
    let manifest = manifest_of(lab, 722);
    let capture = &manifest["captures"][0];
    assert_eq!(capture["ended"]["ring"], serde_json::json!({"files": 2, "is_full": true}), "{manifest}");
    // tcpdump itself reads the joined file: its packets are the last ones that were sent.
    let file = run.join(capture["file"].as_str().expect("file")).display().to_string();
    let read = |file: &str, more: &[&str]| lab.container.succeeds([&["tcpdump", "-nn", "-r", file], more].concat());
    let times = read(&file, &["-tt"]);
    let times: Vec<&str> = times.lines().map(|line| line.split(' ').next().expect("a time")).collect();
    assert!(times.is_sorted());
    let packets = read(&file, &["-t", "-x"]);
    let sent = read(frames, &["-t", "-x", "udp port 4791"]);
    // At least one file is full.
    assert!(sent.ends_with(&packets) && packets.len() > sent.len() / 5, "{} of {}", packets.len(), sent.len());
    let counted = capture["ended"]["counted"]["packets"].as_u64().expect("a count");
    let missing = counted - times.len() as u64;
    assert!(missing > 0 && capture["bytes"].as_u64().expect("bytes") < 2_100_000, "{manifest}");
    assert_eq!(fs::read_dir(lab.path().join("captures")).expect("captures").count(), 0);
    let profile = lab.path().join("ring.ibp");
    let path = run.join("manifest.json").display().to_string();
    tools::result(&["analyze", "--manifest", &path, "-o", profile.to_str().expect("path")], &files(&run));
    let profile = fs::read_to_string(profile.join("profile.json")).expect("profile");
    let profile: serde_json::Value = serde_json::from_str(&profile).expect("json");
    let note = format!(
        "n001: the capture kept its newest 2 files (capture.ring_files): {missing} earlier packets are missing"
    );
    // Digits are grouped by spaces.
    let plain = |text: &str| text.split_whitespace().collect::<String>();
    let has_note = |list: &serde_json::Value| {
        list.as_array().expect("a list").iter().any(|text| plain(text.as_str().expect("text")) == plain(&note))
    };
    assert!(has_note(&profile["notes"]) && has_note(&profile["trust"]["reasons"]), "{profile}");
    assert_ne!(profile["trust"]["verdict"], "complete");
}

/// A capture ends soon after its file has the size of `capture.max_bytes`, and the manifest says so.
fn a_capture_ends_at_its_size(lab: &HookLab, frames: &str) {
    const MAX_BYTES: u64 = 20_000;
    lab.configure(SiteConfig {
        backend: "none",
        program: "tcpdump",
        capture: "max_bytes = 20_000\n[capture.tcpdump]\ninterface = \"ve0\"\nfilter = \"udp port 4791\"",
        ..SiteConfig::PLAIN
    });
    assert_eq!(lab.hook("prolog", 721, "n001").code, 0);
    lab.container.succeeds(["tcpreplay", "--quiet", "--pps=700", "--intf1=ve1", frames]);
    until(LONGEST, "a capture that is stopped", || lab.captures_running().is_empty().then_some(()));
    assert_eq!(lab.hook("epilog", 721, "n001").code, 0);
    clean(lab);
    let manifest = manifest_of(lab, 721);
    let capture = &manifest["captures"][0];
    let all_bytes = fs::metadata(frames).expect("frames").len();
    let bytes = capture["bytes"].as_u64().expect("bytes");
    assert!((MAX_BYTES..all_bytes).contains(&bytes), "{bytes} of {all_bytes}");
    assert_eq!(
        (&capture["ended"]["limit"], &capture["ended"]["status"]),
        (&"max_bytes".into(), &0.into()),
        "{manifest}"
    );
    let note = "n001: tcpdump was stopped at the limit capture.max_bytes: later packets are missing";
    assert!(manifest["notes"].as_array().expect("notes").contains(&note.into()), "{manifest}");
    assert!(lab.log_text().contains(&format!("job 721: warning: {note}")), "{}", lab.log_text());
}
