//! Fabrics of hundreds and thousands of hosts: a plan for a job of 256 nodes, from one
//! `ibnetdiscover -p`. And a job that has all ports of eight leaves.

use crate::jobs::{SAMPLE, clean};
use crate::lab::HookLab;
use crate::site::{DEADLINE_S, SiteConfig};
use crate::sweeper::sweep;
use crate::switch::SwitchFault;
use crate::tools;
use crate::topology::{Topology, leaf_guid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

/// Hosts of a leaf; the last one is a sink.
const HOSTS: usize = 36;

/// Nodes of the job.
const NODES: usize = 256;

pub(crate) fn a_job_of_256_nodes_is_planned_on_500_hosts() {
    planned(14);
}

pub(crate) fn a_job_of_256_nodes_is_planned_on_2000_hosts() {
    planned(56);
}

/// Every node has its leaf, its port and a sink on its leaf, as in the topology.
fn planned(leaves: usize) {
    let began = Instant::now();
    let name = |leaf: usize, host: usize| match host {
        0 if leaf + 1 == leaves => "mgmt".to_owned(),
        host if host + 1 == HOSTS => format!("sink{leaf:02}"),
        host => format!("n{:04}", leaf * HOSTS + host),
    };
    let topology = Topology {
        leaves: (0..leaves).map(|leaf| (0..HOSTS).map(|host| name(leaf, host)).collect()).collect(),
        spines: 16,
    };
    let lab = HookLab::fabric(topology);
    let places: BTreeMap<String, (usize, usize, u64)> =
        lab.topology.hosts().map(|(host, leaf, port, guid)| (host.to_owned(), (leaf, port, guid + 1))).collect();
    println!("{} hosts: fabric active after {:?}", places.len(), began.elapsed());

    // The nodes of the job are on all leaves, in no order.
    let computes: Vec<&String> = places.keys().filter(|name| name.starts_with('n')).collect();
    let chosen: Vec<&String> = (0..NODES).map(|index| computes[index * 7 % NODES * computes.len() / NODES]).collect();
    assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), NODES);
    let sinks: Vec<String> = (0..leaves).map(|leaf| format!("sink{leaf:02}")).collect();
    let addresses = addresses_of(chosen.iter().copied().chain(&sinks));
    lab.one_ssh_server(&addresses);
    let sinks: Vec<&str> = sinks.iter().map(String::as_str).collect();
    let list: Vec<&str> = chosen.iter().map(|node| node.as_str()).collect();
    let plan = |check_nodes: usize| {
        let run = format!("[fabric]\ncheck_nodes = {check_nodes}\ntimeout_s = 60");
        lab.configure_for(SiteConfig { run: &run, ..SiteConfig::PLAIN }, &sinks, &addresses);
        let began = Instant::now();
        let ran = lab.capture(&["plan", "--job", "1", "--nodelist", &list.join(","), "--format", "json"]);
        let (count, took) = (places.len(), began.elapsed());
        println!(
            "{count} hosts: a plan for {NODES} nodes, {check_nodes} of them traced, and {leaves} sinks after {took:?}"
        );
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let mut plan: serde_json::Value = serde_json::from_str(&ran.stdout).expect("json");
        // File names contain the time.
        for value in ["started_s", "steps"] {
            plan.as_object_mut().expect("a plan").remove(value);
        }
        for sink in plan["sinks"].as_array_mut().expect("sinks") {
            sink.as_object_mut().expect("a sink").remove("file");
        }
        plan
    };
    let all_traced = plan(NODES);
    let plan = plan(16);
    assert_eq!(plan, all_traced);
    let warnings = plan["warnings"].as_array().expect("warnings");
    let is_load = |warning: &serde_json::Value| warning.as_str().is_some_and(|text| text.contains(" onto a link of "));
    assert!(warnings.len() == leaves && warnings.iter().all(is_load), "{warnings:?}");
    let ports = plan["compute"].as_array().expect("ports");
    let planned: Vec<&str> = ports.iter().map(|port| port["node"].as_str().expect("node")).collect();
    assert_eq!(planned, list, "every node, in the job's order");
    let text = |guid: u64| format!("{guid:#018x}");
    for port in ports {
        let (leaf, number, guid) = places[port["node"].as_str().expect("node")];
        let found = (port["port_guid"].as_str(), port["leaf_guid"].as_str(), port["leaf_port"].as_u64());
        assert_eq!(
            found,
            (Some(text(guid).as_str()), Some(text(leaf_guid(leaf)).as_str()), Some(number as u64)),
            "{port}"
        );
    }
    let mut expected: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for node in &list {
        let (leaf, number, _) = places[*node];
        expected.entry(format!("sink{leaf:02}")).or_default().insert(number as u64);
    }
    let sources = |sink: &serde_json::Value| {
        let ports = sink["sources"].as_array().expect("ports").iter().map(|port| port.as_u64().expect("port"));
        (sink["node"].as_str().expect("node").to_owned(), ports.collect())
    };
    let found: BTreeMap<String, BTreeSet<u64>> = plan["sinks"].as_array().expect("sinks").iter().map(sources).collect();
    assert_eq!(found, expected);
}

/// Processor time of all programs of the lab that have ended or run, and of the lab itself.
fn processor_s(lab: &HookLab) -> f64 {
    const TICKS_PER_S: f64 = 100.0;
    let ticks = |stat: &str, fields: std::ops::Range<usize>| -> u64 {
        let fields_of = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let times = fields_of.split(' ').skip(fields.start).take(fields.len());
        times.filter_map(|time| time.parse::<u64>().ok()).sum()
    };
    let inside = lab.container.succeeds(["sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null; exit 0"]);
    // utime, stime, and those of children that were waited for.
    let inside: u64 = inside.lines().map(|stat| ticks(stat, 11..15)).sum();
    let own = fs::read_to_string("/proc/self/stat").expect("times");
    (inside + ticks(&own, 13..15)) as f64 / TICKS_PER_S
}

/// An address of its own for each node.
fn addresses_of<'a>(nodes: impl Iterator<Item = &'a String>) -> Vec<(String, String)> {
    let address = |index: usize| format!("127.1.{}.{}", index / 250, index % 250 + 1);
    nodes.enumerate().map(|(index, node)| (node.clone(), address(index))).collect()
}

/// Leaves of the job that has all of their ports, and ports of each besides that of its sink.
const FULL_LEAVES: usize = 8;
const FULL_PORTS: usize = 36;
/// `run.deadline_s` by default.
const DEFAULT_DEADLINE_S: f64 = 30.0;

/// All ports of eight leaves are mirrored in time. If one leaf does not respond at the epilog, the
/// others are restored and all captures are stopped within the default deadline.
pub(crate) fn all_ports_of_eight_leaves_are_mirrored_and_undone_in_time() {
    let nodes: Vec<String> = (0..FULL_LEAVES * FULL_PORTS).map(|index| format!("n{index:04}")).collect();
    let sinks: Vec<String> = (0..FULL_LEAVES).map(|leaf| format!("sink{leaf:02}")).collect();
    let leaf = |(nodes, sink): (&[String], &String)| [nodes, std::slice::from_ref(sink)].concat();
    let mut leaves: Vec<Vec<String>> = nodes.chunks(FULL_PORTS).zip(&sinks).map(leaf).collect();
    leaves.push(vec!["sm".to_owned(), "mgmt".to_owned()]);
    let lab = HookLab::fabric(Topology { leaves, spines: 8 });
    lab.traffic_of_sinks(&tools::sample(SAMPLE));
    let addresses = addresses_of(nodes.iter().chain(&sinks));
    lab.one_ssh_server(&addresses);
    let names: Vec<&str> = sinks.iter().map(String::as_str).collect();
    let list = nodes.join(",");
    let configure = |mirrors_once_per_leaf: bool| {
        let site = SiteConfig { mirrors_once_per_leaf, run: "[fabric]\ntimeout_s = 60", ..SiteConfig::PLAIN };
        let path = lab.configure_for(site, &names, &addresses);
        let text = fs::read_to_string(&path).expect("configuration");
        let deadline = format!("deadline_s = {DEADLINE_S}");
        assert!(text.contains(&deadline));
        let text = text.replace(&deadline, &format!("deadline_s = {DEFAULT_DEADLINE_S}"));
        fs::write(&path, text).expect("configuration");
    };
    let timed = |which: &str, job: u32| {
        let (began, cpu_s) = (Instant::now(), processor_s(&lab));
        let ran = lab.hook(which, job, &list);
        assert_eq!(ran.code, 0, "{}{}", ran.stderr, lab.log_text());
        let took_s = began.elapsed().as_secs_f64();
        assert!(took_s < DEFAULT_DEADLINE_S, "{took_s:.1} s");
        let cpu_s = processor_s(&lab) - cpu_s;
        println!("{which} of {} ports on {FULL_LEAVES} leaves: {took_s:.1} s, {cpu_s:.1} s of processors", nodes.len());
    };
    // How long this takes depends on the other work of the machine. Three commands for each port, then
    // three for each leaf.
    for (job, mirrors_once_per_leaf) in [(1, false), (2, true)] {
        configure(mirrors_once_per_leaf);
        println!("mirrors {}", if mirrors_once_per_leaf { "once per leaf" } else { "once per port" });
        // As after earlier jobs, the ports of all nodes are known.
        assert_eq!(lab.capture(&["plan", "--job", "1", "--nodelist", &list]).code, 0);
        timed("prolog", job);
        assert!(
            lab.log_text().contains(&format!("job {job}: capturing: 8 captures, 288 ports mirrored")),
            "{}",
            lab.log_text()
        );
        assert_eq!(lab.mirrored().len(), FULL_LEAVES * FULL_PORTS);
        println!("{}", lab.log_text().lines().last().expect("a line"));

        let deaf = leaf_guid(3);
        lab.switch_fault(Some(SwitchFault::HangAt(deaf)));
        timed("epilog", job);
        let left = lab.mirrored();
        assert!(left.len() == FULL_PORTS && left.keys().all(|port| port.leaf == deaf), "{left:?}");
        assert_eq!(lab.captures_running(), [""; 0]);
        lab.switch_fault(None);
        let swept = sweep(&lab);
        assert_eq!(swept.code, 0, "{}{}", swept.stdout, swept.stderr);
        clean(&lab);
    }
}
