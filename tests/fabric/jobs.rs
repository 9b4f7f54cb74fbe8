//! Jobs that go well: from the prolog to a manifest that `ibscope analyze` takes.

use crate::analysis::analysed;
use crate::container::until;
use crate::lab::Lab;
use crate::site::Site;
use crate::slurm::Hooks;
use crate::switch::{Mirror, Port};
use crate::tools;
use crate::topology::leaf_guid;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The traffic of this job is what the sinks capture; its four ranks ran on LIDs 17 to 20.
pub(crate) const SAMPLE: &str = "openib-mixed-4x1";

/// What mirroring a job's nodes must come to: each to a sink of its leaf.
pub(crate) fn expected(lab: &Lab, nodes: &[&str], sinks: [&str; 2], job: u32) -> BTreeMap<Port, Mirror> {
    let mirror = |node: &&str| {
        let (leaf, port, _) = lab.topology.place(node);
        let (_, sink, _) = lab.topology.place(sinks[leaf]);
        (Port { leaf: leaf_guid(leaf), number: port as u8 }, Mirror { sink: sink as u8, job })
    };
    nodes.iter().map(mirror).collect()
}

/// `sbatch -N4` with the hooks as `hook install` installs them: plan, mirrors, captures, the order of things, manifest, analysis.
pub(crate) fn a_job_is_captured_from_its_prolog_to_its_analysis() {
    let lab = Lab::start();
    lab.traffic(&tools::sample(SAMPLE));
    let config = lab.configure(Site::default());
    let config = config.to_str().expect("path");
    let slurm = install(&lab, config);
    lab.slurm(Hooks { lines: &slurm, timeout_s: 70 });
    let tested = lab.capture(&["selftest", "--nodelist", "n[001-004]"]);
    println!("{}", tested.stdout);
    assert_eq!(tested.code, 0, "{}{}", tested.stdout, tested.stderr);

    planned(&lab);

    // The job looks at the switches itself: it must find its ports mirrored and captures running when it starts.
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
    let as_map = |calls: &[crate::switch::Call]| -> BTreeMap<Port, Mirror> {
        calls.iter().map(|call| (call.port, call.mirror)).collect()
    };
    assert!(on.iter().all(|call| call.on) && off.iter().all(|call| !call.on), "{calls:?}");
    assert_eq!((as_map(on), as_map(off), off.len()), (mirrored.clone(), mirrored, nodes.len()));
    assert_eq!(lab.drained().trim(), "");

    let run = only_folder(&lab.path().join("runs"));
    analysed(&lab, &run, 2, (0, 0));

    // A job that does not ask for it is left alone.
    let id = lab.submit(&["-N2", "--comment=nothing"], "true");
    assert_eq!(lab.ended(id).0, "COMPLETED");
    assert_eq!(lab.switch_calls().len(), calls.len());
    assert!(!lab.told().contains(&format!("job {id}:")), "{}", lab.told());

    // All eight nodes: how long their prolog takes.
    let id = lab.submit(&["-N8", "--comment=ibscope=on"], "true");
    assert_eq!(lab.ended(id).0, "COMPLETED");
    clean(&lab);
    let told = lab.told();
    println!("{told}");
    assert!(told.contains(&format!("job {id}: capturing: 2 captures, 8 ports mirrored")), "{told}");

    by_hand(&lab);
}

/// What `docs/slurm.md` has a person do on idle nodes: start, look, stop.
fn by_hand(lab: &Lab) {
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
fn planned(lab: &Lab) {
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

/// Installs the hooks as a person would; the lines for `slurm.conf`.
pub(crate) fn install(lab: &Lab, config: &str) -> String {
    let slurm = lab.path().join("before.conf");
    fs::write(&slurm, format!("SlurmUser={}\nPrologEpilogTimeout=70\n", lab.user)).expect("slurm.conf");
    let scripts = lab.path().join("scripts").display().to_string();
    let slurm = slurm.display().to_string();
    lab.copy_programs();
    // A person does it as root, whatever the hooks run as.
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

/// Nothing is left: no port mirrored, no capture running, no journal open, no hostfile.
pub(crate) fn clean(lab: &Lab) {
    assert_eq!(lab.mirrored(), BTreeMap::new(), "{}", lab.told());
    // Questions to nodes that nobody waits for any more, because who asked was killed, end by themselves.
    until(Duration::from_secs(15), "a lab without captures", || lab.captures_running().is_empty().then_some(()));
    let listed = lab.capture(&["list"]);
    assert_eq!((listed.code, listed.stdout.as_str()), (0, "no runs\n"), "{}{}", listed.stderr, lab.told());
    let hosts = fs::read_dir(lab.path().join("hosts")).expect("folder").count();
    assert_eq!(hosts, 0, "hostfiles");
}

pub(crate) fn only_folder(folder: &Path) -> PathBuf {
    let folders: Vec<PathBuf> = fs::read_dir(folder).expect("runs").map(|entry| entry.expect("entry").path()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    folders[0].clone()
}
