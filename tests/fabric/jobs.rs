//! Jobs without faults: from the prolog to a manifest that `ibscope analyze` reads.

use crate::analysis::check_run;
use crate::container::until;
use crate::lab::{HookLab, LabSetting};
use crate::site::SiteConfig;
use crate::slurm::Hooks;
use crate::switch::{LeafPort, SwitchMirror};
use crate::tools;
use crate::topology::leaf_guid;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The sinks capture the traffic of this job, whose four ranks ran on LIDs 17 to 20.
pub(crate) const SAMPLE: &str = "openib-mixed-4x1";

/// Expected mirrors of a job's nodes: each to a sink of its leaf.
pub(crate) fn expected(lab: &HookLab, nodes: &[&str], sinks: [&str; 2], job: u32) -> BTreeMap<LeafPort, SwitchMirror> {
    let mirror = |node: &&str| {
        let (leaf, port, _) = lab.topology.place(node);
        let (_, sink, _) = lab.topology.place(sinks[leaf]);
        (LeafPort { leaf: leaf_guid(leaf), number: port as u8 }, SwitchMirror { sink: sink as u8, job })
    };
    nodes.iter().map(mirror).collect()
}

/// `sbatch -N4` with the hooks that `hook install` installs: plan, mirrors, captures, their order,
/// manifest, analysis.
pub(crate) fn a_job_is_captured_from_its_prolog_to_its_analysis(setting: LabSetting) {
    let lab = HookLab::start_in(setting);
    lab.traffic(&tools::sample(SAMPLE));
    let config = lab.configure(SiteConfig::default());
    let config = config.to_str().expect("path");
    let slurm = install(&lab, config);
    lab.slurm(Hooks { lines: &slurm, timeout_s: 70 });
    let tested = lab.capture(&["selftest", "--nodelist", "n[001-004]"]);
    println!("{}", tested.stdout);
    assert_eq!(tested.code, 0, "{}{}", tested.stdout, tested.stderr);

    planned(&lab);

    // The job itself checks the switches: its ports must be mirrored and captures must run when it
    // starts.
    let script = format!("cat {0}/switch/state; sleep 1; cat {0}/hosts/*; date +%s%N", lab.path().display());
    let asked = Instant::now();
    let id = lab.submit(&["-N4", "--comment=please ibscope=on"], &script);
    until(Duration::from_secs(20), "captures", || (lab.captures_running().len() >= 2).then_some(()));
    println!("captures run {:?} after sbatch", asked.elapsed());
    assert_eq!(lab.ended(id), ("COMPLETED".to_owned(), "0:0".to_owned()));
    let nodes = ["n001", "n002", "n003", "n004"];
    let mirrored = expected(&lab, &nodes, ["sink1a", "sink2a"], id);
    let printed = lab.printed(id);
    for (port, mirror) in &mirrored {
        let line = format!("{:#018x} {} {} {id}", port.leaf, port.number, mirror.sink);
        assert!(printed.lines().any(|found| found == line), "{line} is not in\n{printed}");
    }
    for node in nodes {
        assert!(printed.lines().any(|line| line == node), "{node} is not in the hostfile:\n{printed}");
    }

    clean(&lab);
    let calls = lab.switch_calls();
    let (on, off) = calls.split_at(mirrored.len());
    let as_map = |calls: &[crate::switch::SwitchCall]| -> BTreeMap<LeafPort, SwitchMirror> {
        calls.iter().map(|call| (call.port, call.mirror)).collect()
    };
    assert!(on.iter().all(|call| call.on) && off.iter().all(|call| !call.on), "{calls:?}");
    assert_eq!((as_map(on), as_map(off), off.len()), (mirrored.clone(), mirrored, nodes.len()));
    assert_eq!(lab.drained().trim(), "");

    let run = only_folder(&lab.path().join("runs"));
    let owner = lab.uid(lab.user);
    check_run(&lab, &run, 2, (owner, owner));

    // A job that does not request a capture is not captured.
    let id = lab.submit(&["-N2", "--comment=nothing"], "true");
    assert_eq!(lab.ended(id).0, "COMPLETED");
    assert_eq!(lab.switch_calls().len(), calls.len());
    assert!(!lab.log_text().contains(&format!("job {id}:")), "{}", lab.log_text());

    // All eight nodes, to show how long the prolog takes.
    let id = lab.submit(&["-N8", "--comment=ibscope=on"], "true");
    assert_eq!(lab.ended(id).0, "COMPLETED");
    clean(&lab);
    let log_text = lab.log_text();
    println!("{log_text}");
    assert!(log_text.contains(&format!("job {id}: capturing: 2 captures, 8 ports mirrored")), "{log_text}");

    by_hand(&lab);
    crate::slurm_failures::running_jobs_are_canceled_and_requeued(&lab);
}

/// The steps of `docs/slurm.md` for a capture by hand on idle nodes: start, look, stop.
fn by_hand(lab: &HookLab) {
    let succeeds = |words: &[&str]| {
        let ran = lab.capture(words);
        assert_eq!(ran.code, 0, "{words:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    };
    let job = "77";
    let before = lab.switch_calls().len();
    succeeds(&["start", "--job", job, "--nodelist", "n[001-004]"]);
    assert!(lab.captures_running().len() >= 2);
    assert_eq!(lab.switch_calls().len() - before, 4);
    assert!(succeeds(&["list"]).contains(job) && succeeds(&["status", "--job", job]).contains(job));
    succeeds(&["stop", "--job", job]);
    assert_eq!((lab.captures_running().len(), lab.switch_calls().len() - before), (0, 8));
    clean(lab);
}

/// The plan of a job has its ports where `ibnetdiscover` has them, and planning changes nothing.
fn planned(lab: &HookLab) {
    let arguments = ["plan", "--job", "7", "--nodelist", "n[001-004]"];
    let shown = lab.capture(&arguments);
    println!("{}", shown.stdout);
    let ran = lab.capture(&[&arguments[..], &["--format", "json"]].concat());
    assert_eq!((shown.code, ran.code), (0, 0), "{}{}", shown.stderr, ran.stderr);
    let plan: serde_json::Value = serde_json::from_str(&ran.stdout).expect("json");
    let discovered = lab.tool("mgmt", &["ibnetdiscover", "-p"]);
    let ports = plan["compute"].as_array().expect("ports");
    assert_eq!(ports.len(), 4, "{}", ran.stdout);
    for port in ports {
        let guid = port["port_guid"].as_str().expect("guid");
        let line = discovered
            .lines()
            .find(|line| line.starts_with("CA") && line.contains(guid))
            .expect("the port is in the fabric");
        // CA, LID, port, GUID, width, rate, -, SW, LID, port, GUID, ( 'description' ...
        let words: Vec<&str> = line.split_whitespace().collect();
        let found = [&port["lid"], &port["leaf_lid"], &port["leaf_port"]].map(ToString::to_string);
        assert_eq!(
            (found, port["leaf_guid"].as_str()),
            ([words[1], words[8], words[9]].map(str::to_owned), Some(words[10])),
            "{line}"
        );
        assert!(line.contains(&format!("'{} mlx5_0'", port["node"].as_str().expect("node"))), "{line}");
    }
    assert_eq!((lab.switch_calls().len(), lab.captures_running().len()), (0, 0));
    clean(lab);
}

/// Installs the hooks as an administrator would. Returns the lines for `slurm.conf`.
pub(crate) fn install(lab: &HookLab, config: &str) -> String {
    let slurm = lab.path().join("before.conf");
    fs::write(&slurm, format!("SlurmUser={}\nPrologEpilogTimeout=70\n", lab.user)).expect("slurm.conf");
    let scripts = lab.path().join("scripts").display().to_string();
    let slurm = slurm.display().to_string();
    lab.copy_programs();
    // An administrator does this as root, whatever user the hooks run as.
    let ran = lab.ibscope_as(
        "root",
        &[],
        &["hook", "install", "--write", "--config", config, "--slurm-conf", &slurm, "--scripts", &scripts],
    );
    println!("{}", ran.stdout);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let lines: Vec<&str> = ran
        .stdout
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("PrologSlurmctld=") || line.starts_with("EpilogSlurmctld="))
        .collect();
    assert_eq!(lines.len(), 2, "{}", ran.stdout);
    lines.join("\n")
}

/// Checks that nothing is left: no mirrored port, no running capture, no open journal, no hostfile.
pub(crate) fn clean(lab: &HookLab) {
    assert_eq!(lab.mirrored(), BTreeMap::new(), "{}", lab.log_text());
    // Commands on nodes whose caller was killed end by themselves.
    until(Duration::from_secs(15), "a lab without captures", || lab.captures_running().is_empty().then_some(()));
    let listed = lab.capture(&["list"]);
    assert_eq!((listed.code, listed.stdout.as_str()), (0, "no runs\n"), "{}{}", listed.stderr, lab.log_text());
    let hosts = fs::read_dir(lab.path().join("hosts")).expect("folder").map(|entry| entry.expect("entry").file_name());
    assert_eq!(hosts.collect::<Vec<_>>(), [""; 0], "hostfiles");
}

/// Folder of the run of a job.
pub(crate) fn folder_of(lab: &HookLab, job: u32) -> PathBuf {
    let mut folders = fs::read_dir(lab.path().join("runs")).expect("runs").map(|entry| entry.expect("entry").path());
    let prefix = format!("ibscope-{job}-");
    let is_of_job =
        |folder: &PathBuf| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    folders.find(is_of_job).unwrap_or_else(|| panic!("job {job} has no run: {}", lab.log_text()))
}

/// Manifest of the run of a job.
pub(crate) fn manifest_of(lab: &HookLab, job: u32) -> serde_json::Value {
    let text = fs::read_to_string(folder_of(lab, job).join("manifest.json")).expect("manifest");
    serde_json::from_str(&text).expect("json")
}

pub(crate) fn only_folder(folder: &Path) -> PathBuf {
    let folders: Vec<PathBuf> = fs::read_dir(folder).expect("runs").map(|entry| entry.expect("entry").path()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    folders[0].clone()
}
