//! The place of nodes in the fabric, from what the tools print: recorded texts of a simulated fabric, and such as follow from them for its other nodes.
//! No program is run.

use ibscope_orchestrator::config::Config;
use ibscope_orchestrator::fabric::{self, Fabric, FabricError, NodePort};
use ibscope_orchestrator::remote::{Output, RemoteError, Runner};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// A text that was recorded, without the warnings of the simulator.
macro_rules! recorded {
    ($name:literal) => {
        plain(include_str!(concat!("../../parsers/src/tools/fixtures/", $name, ".txt")))
    };
}

fn plain(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.starts_with("ibwarn: ")).collect()
}

const HOST: u64 = 0x1070_fd03_0000_0000;
const LEAF: u64 = 0xb859_9f03_0000_1000;

/// A host of the recorded fabric: 3 leaves with 5 hosts each, numbered from 1.
#[derive(Clone)]
struct Host {
    name: String,
    number: u64,
    lid: u16,
    leaf_lid: u16,
}

impl Host {
    fn leaf(&self) -> u64 {
        LEAF + (self.number - 1) / 5
    }

    fn leaf_port(&self) -> u8 {
        ((self.number - 1) % 5 + 1) as u8
    }

    /// What is to come out.
    fn port(&self) -> NodePort {
        NodePort {
            node: self.name.clone(),
            ca: "ibsim0".to_owned(),
            port: 1,
            port_guid: HOST + 16 * self.number + 1,
            lid: self.lid,
            lmc: 0,
            rate_gbits: 104.0,
            leaf_guid: self.leaf(),
            leaf_lid: self.leaf_lid,
            leaf_port: self.leaf_port(),
        }
    }

    fn ibstat(&self) -> String {
        recorded!("ibstat_n003")
            .replace("Base lid: 8", &format!("Base lid: {}", self.lid))
            .replace("0x1070fd0300000030", &format!("{:#018x}", HOST + 16 * self.number))
            .replace("0x1070fd0300000031", &format!("{:#018x}", HOST + 16 * self.number + 1))
    }

    /// `ibtracert` to another host, or to the own leaf.
    fn trace(&self, to: u16, hosts: &[Host]) -> String {
        let end = |word: &str, host: &Host| {
            let (lid, name) = (host.lid, &host.name);
            format!("{word} ca {{{:#018x}}} portnum 1 lid {lid}-{lid} \"{name} mlx5_0\"\n", HOST + 16 * host.number)
        };
        let switch = |out: u8, guid: u64, port: u8, lid: u16, name: &str| {
            format!("[{out}] -> switch port {{{guid:#018x}}}[{port}] lid {lid}-{lid} \"{name}\"\n")
        };
        let number = |host: &Host| (host.leaf() - LEAF + 1) as u8;
        let from = end("From", self);
        let leaf_name = format!("leaf{}", number(self));
        let mut hops = switch(1, self.leaf(), self.leaf_port(), self.leaf_lid, &leaf_name);
        if to == self.leaf_lid {
            return format!(
                "{from}{hops}To switch {{{:#018x}}} portnum 0 lid {to}-{to} \"{leaf_name}\"\n",
                self.leaf()
            );
        }
        let other = hosts.iter().find(|host| host.lid == to).expect("a LID of a host");
        if other.lid == self.lid {
            return from + &end("To", other);
        }
        if other.leaf() != self.leaf() {
            hops += &switch(7, LEAF + 0x1001, number(self), 5, "spine2");
            hops += &switch(number(other), other.leaf(), 7, other.leaf_lid, &format!("leaf{}", number(other)));
        }
        let (port, guid, name) = (other.leaf_port(), HOST + 16 * other.number + 1, &other.name);
        let last = format!("[{port}] -> ca port {{{guid:#018x}}}[1] lid {to}-{to} \"{name} mlx5_0\"\n");
        from + &hops + &last + &end("To", other)
    }
}

/// The hosts of a recorded sweep, by the columns of its lines.
fn hosts(sweep: &str) -> Vec<Host> {
    let mut hosts: Vec<Host> = sweep
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words[0] == "CA")
        .map(|words| Host {
            name: words[12].trim_start_matches('\'').to_owned(),
            number: (u64::from_str_radix(&words[3][2..], 16).expect("a number") - HOST) / 16,
            lid: words[1].parse().expect("a number"),
            leaf_lid: words[8].parse().expect("a number"),
        })
        .collect();
    hosts.sort_by_key(|host| host.number);
    hosts
}

/// What `ibnetdiscover` prints, by where it runs and through which adapter.
type Sweep = (Option<&'static str>, Option<&'static str>, Output);

/// Answers as the programs would, and keeps what was asked.
struct Lab {
    /// The first one that fits counts.
    sweeps: Vec<Sweep>,
    ibstat: BTreeMap<String, Output>,
    hosts: Vec<Host>,
    /// Traces that come out otherwise, by node.
    traces: BTreeMap<String, Output>,
    asked: Mutex<Vec<(Option<String>, String)>>,
}

fn good(text: impl Into<String>) -> Output {
    Output { status: 0, stdout: text.into().into_bytes(), stderr: Vec::new() }
}

fn bad(stdout: &str, stderr: &str) -> Output {
    Output { status: 255, stdout: stdout.as_bytes().to_vec(), stderr: stderr.as_bytes().to_vec() }
}

impl Lab {
    fn new() -> Self {
        let sweep = recorded!("ibnetdiscover_p");
        let hosts = hosts(&sweep);
        assert_eq!(hosts.len(), 15);
        let ibstat = hosts.iter().map(|host| (host.name.clone(), good(host.ibstat()))).collect();
        let sweeps = vec![(None, None, good(sweep))];
        Self { sweeps, ibstat, hosts, traces: BTreeMap::new(), asked: Mutex::new(Vec::new()) }
    }

    fn with_sweep(sweep: String) -> Self {
        Self { sweeps: vec![(None, None, good(sweep))], ..Self::new() }
    }

    /// n003 with the adapters of `ibstat_rails`.
    fn with_rails(sweeps: Vec<Sweep>) -> Self {
        let mut lab = Self { sweeps, ..Self::new() };
        lab.ibstat.insert("n003".to_owned(), good(recorded!("ibstat_rails")));
        lab
    }

    fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).expect("host")
    }

    fn ports(&self, names: &[&str]) -> Vec<NodePort> {
        names.iter().map(|name| self.host(name).port()).collect()
    }

    /// What a node's `ibstat` shows instead.
    fn edit(&mut self, node: &str, from: &str, to: &str) {
        let text = self.host(node).ibstat();
        assert!(text.contains(from), "{from}");
        self.ibstat.insert(node.to_owned(), good(text.replace(from, to)));
    }

    fn trace(&mut self, node: &str, output: Output) {
        self.traces.insert(node.to_owned(), output);
    }

    /// What was asked of a program since the last time, sorted.
    fn asked(&self, program: &str) -> Vec<String> {
        let mut calls: Vec<String> = Vec::new();
        self.asked.lock().expect("no panic").retain(|(node, call)| {
            let Some(call) = call.strip_prefix("/usr/sbin/").filter(|call| call.starts_with(program)) else {
                return true;
            };
            calls.push(format!("{}: {call}", node.as_deref().unwrap_or("here")));
            false
        });
        calls.sort();
        calls
    }
}

impl Runner for Lab {
    fn run(&self, node: Option<&str>, argv: &[String], timeout: Duration) -> Result<Output, RemoteError> {
        assert_eq!(timeout, Duration::from_secs(7));
        self.asked.lock().expect("no panic").push((node.map(str::to_owned), argv.join(" ")));
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        Ok(match (node, argv.as_slice()) {
            (_, ["/usr/sbin/ibnetdiscover", options @ .., "-p"]) => {
                let through = options.get(1).copied();
                let fits = |(place, ca, _): &&Sweep| {
                    place.is_none_or(|place| place == node.unwrap_or("here")) && (ca.is_none() || *ca == through)
                };
                self.sweeps.iter().find(fits).map_or_else(|| bad("", "ibwarn: [3] no port\n"), |sweep| sweep.2.clone())
            }
            (Some(node), ["/usr/sbin/ibstat"]) => {
                let away = || {
                    let (address, what) = (format!("{node}:22"), "No route to host".to_owned());
                    RemoteError::Connect { node: node.to_owned(), address, what }
                };
                self.ibstat.get(node).ok_or_else(away)?.clone()
            }
            (Some(node), ["/usr/sbin/ibtracert", "-C", _, "-P", _, _, to]) => match self.traces.get(node) {
                Some(output) => output.clone(),
                None => good(self.host(node).trace(to.parse().expect("a LID"), &self.hosts)),
            },
            other => panic!("nobody asks for {other:?}"),
        })
    }
}

const MIRRORED: &str = "[mirror]\nbackend = \"mstreg\"\n[sinks]\nfrom_job = true\n[capture]\nbackend = \"ibdump\"\n";
const NOT_MIRRORED: &str = "[mirror]\nbackend = \"none\"\n[capture]\nbackend = \"ibdump\"\n";

fn config(fabric: &str, rest: &str) -> Config {
    let text = format!(
        "[ssh]\nkey = \"/etc/ibscope/id\"\nknown_hosts = \"/etc/ibscope/known_hosts\"\nparallel = 4\n\
         [fabric]\ntimeout_s = 7\n{fabric}\n{rest}directory = \"/scratch\"\n[collect]\ndirectory = \"/scratch\"\n"
    );
    Config::parse(&text, Path::new("ibscope.toml")).expect("a configuration")
}

fn discover(lab: &Lab, nodes: &[&str]) -> Result<Fabric, FabricError> {
    discover_with(&config("", MIRRORED), lab, nodes)
}

fn discover_with(config: &Config, lab: &Lab, nodes: &[&str]) -> Result<Fabric, FabricError> {
    let nodes: Vec<String> = nodes.iter().map(|&node| node.to_owned()).collect();
    fabric::discover(config, &nodes, lab)
}

/// A fabric of these ports without a word more.
fn only(ports: Vec<NodePort>) -> Fabric {
    Fabric { ports, ..Fabric::default() }
}

/// The error of nodes, as shown.
fn fault(lab: &Lab, nodes: &[&str]) -> String {
    discover(lab, nodes).expect_err("a fault").to_string()
}

#[test]
fn the_lab_prints_what_was_recorded() {
    let lab = Lab::new();
    let n003 = lab.host("n003");
    assert_eq!(n003.ibstat(), recorded!("ibstat_n003"));
    assert_eq!(n003.trace(20, &lab.hosts), recorded!("ibtracert_cross_leaf"));
    assert_eq!(n003.trace(1, &lab.hosts), recorded!("ibtracert_same_leaf"));
    assert_eq!(n003.trace(8, &lab.hosts), recorded!("ibtracert_self"));
    assert_eq!(lab.host("n001").trace(20, &lab.hosts), recorded!("ibtracert_third_party"));
    // Recorded with other LIDs.
    let to_leaf = recorded!("ibtracert_to_leaf").replace("lid 8-8", "lid 2-2").replace("lid 24-27", "lid 8-8");
    assert_eq!(n003.trace(2, &lab.hosts), to_leaf);
}

#[test]
fn nodes_are_where_the_topology_puts_them() {
    let lab = Lab::new();
    let names = ["n003", "n001", "n007", "n015", "n008"];
    let fabric = discover(&lab, &names).unwrap();
    assert_eq!(fabric, only(lab.ports(&names)));
    // n003 by hand: LID 8, third port of the first leaf, whose LID is 2.
    let n003 = &fabric.ports[0];
    assert_eq!((n003.lid, n003.leaf_guid, n003.leaf_lid, n003.leaf_port), (8, 0xb859_9f03_0000_1000, 2, 3));
    assert_eq!(lab.asked("ibnetdiscover"), ["here: ibnetdiscover -p"]);
    assert_eq!(lab.asked("ibstat"), ["n001: ibstat", "n003: ibstat", "n007: ibstat", "n008: ibstat", "n015: ibstat"]);
    // To the subnet manager, LID 1; from its own node to the leaf.
    let traces = [
        "n001: ibtracert -C ibsim0 -P 1 1 2",
        "n003: ibtracert -C ibsim0 -P 1 8 1",
        "n007: ibtracert -C ibsim0 -P 1 12 1",
        "n008: ibtracert -C ibsim0 -P 1 13 1",
        "n015: ibtracert -C ibsim0 -P 1 20 1",
    ];
    assert_eq!(lab.asked("ibtracert"), traces);
}

#[test]
fn a_job_of_one_node() {
    for name in ["n001", "n009"] {
        let lab = Lab::new();
        assert_eq!(discover(&lab, &[name, name]).unwrap(), only(lab.ports(&[name])));
        assert_eq!(lab.asked("ibtracert").len(), 1);
    }
    // The subnet manager's own node, where no sweep can be made, has nobody to trace to.
    let lab = Lab { sweeps: Vec::new(), ..Lab::new() };
    assert_eq!(
        fault(&lab, &["n001"]),
        "n001: the leaf switch is not known: n001 ibsim0 port 1: ibnetdiscover told nothing, and ibtracert failed: no other LID is \
         known to trace to; run ibnetdiscover -p and ibtracert by hand, and check fabric.run_on in the configuration"
    );
    // With a neighbour it has.
    assert_eq!(discover(&lab, &["n001", "n004"]).unwrap().ports, lab.ports(&["n001", "n004"]));
    assert_eq!(lab.asked("ibtracert")[0], "n001: ibtracert -C ibsim0 -P 1 1 9");
}

#[test]
fn only_so_many_nodes_are_traced() {
    let names: Vec<String> = (1..=15).map(|number| format!("n{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let lab = Lab::new();
    let fabric = discover_with(&config("trace_nodes = 2", MIRRORED), &lab, &names).unwrap();
    assert_eq!(fabric, only(lab.ports(&names)));
    assert_eq!(lab.asked("ibtracert").len(), 2);
    // One that the sweep does not know is traced all the same.
    let sweep = recorded!("ibnetdiscover_p");
    let lab =
        Lab::with_sweep(sweep.split_inclusive('\n').filter(|line| !line.contains("0x1070fd0300000091")).collect());
    let fabric = discover_with(&config("trace_nodes = 0", MIRRORED), &lab, &names).unwrap();
    assert_eq!(fabric.ports, lab.ports(&names));
    assert_eq!(lab.asked("ibtracert"), ["n009: ibtracert -C ibsim0 -P 1 14 1"]);
    let told = "n009 ibsim0 port 1: ibnetdiscover does not list it; ibtracert alone is believed: switch 0xb8599f0300001001 (LID 4) port 4";
    assert_eq!(fabric.disagreements, [told]);
}

#[test]
fn disagreements_are_told() {
    let sweep = recorded!("ibnetdiscover_p")
        .replace("0x1070fd0300000031 4x HDR - SW     2  3 ", "0x1070fd0300000031 4x HDR - SW     2 30 ")
        .replace("CA     9  1 0x1070fd0300000041 4x", "CA    99  1 0x1070fd0300000041 4x");
    let lab = Lab::with_sweep(sweep);
    let fabric = discover(&lab, &["n002", "n003", "n004"]).unwrap();
    assert_eq!(fabric.ports, lab.ports(&["n002", "n003", "n004"]));
    assert_eq!(
        fabric.disagreements,
        [
            "n003 ibsim0 port 1: ibnetdiscover says switch 0xb8599f0300001000 (LID 2) port 30, ibtracert says switch 0xb8599f0300001000 \
             (LID 2) port 3; ibtracert is believed. Check the cable, and plan again if one was moved",
            "n004 ibsim0 port 1: ibstat says LID 9 and port 1, ibnetdiscover says LID 99 and port 1; ibstat is believed",
        ]
    );
}

#[test]
fn a_sweep_that_fails_here_is_made_from_a_node() {
    let failed = bad(
        "ibnetdiscover: iberror: failed: discover failed\n",
        "ibwarn: [7] mad_rpc_open_port: can't open UMAD port ((null):0)\n",
    );
    let mut lab = Lab::new();
    lab.sweeps.insert(0, (Some("here"), None, failed));
    let fabric = discover(&lab, &["n002", "n003"]).unwrap();
    assert_eq!(fabric.ports, lab.ports(&["n002", "n003"]));
    assert_eq!(lab.asked("ibnetdiscover"), ["here: ibnetdiscover -p", "n002: ibnetdiscover -C ibsim0 -P 1 -p"]);
    assert_eq!(
        fabric.disagreements,
        [
            "ibnetdiscover -p failed here: mad_rpc_open_port: can't open UMAD port ((null):0); ibnetdiscover: iberror: failed: discover \
          failed; set fabric.run_on to a node that can run it"
        ]
    );
    // Where it is to run is a setting.
    for (place, node) in [("first", "n002"), ("n014", "n014")] {
        let config = config(&format!("run_on = \"{place}\""), MIRRORED);
        assert_eq!(discover_with(&config, &lab, &["n002", "n003"]).unwrap(), only(lab.ports(&["n002", "n003"])));
        assert_eq!(lab.asked("ibnetdiscover"), [format!("{node}: ibnetdiscover -p")]);
    }
}

#[test]
fn traces_alone_are_enough() {
    let lab = Lab { sweeps: Vec::new(), ..Lab::new() };
    let fabric = discover_with(&config("trace_nodes = 1", MIRRORED), &lab, &["n002", "n003", "n013"]).unwrap();
    assert_eq!(fabric.ports, lab.ports(&["n002", "n003", "n013"]));
    assert_eq!(
        fabric.disagreements,
        [
            "ibnetdiscover -p failed here: no port; set fabric.run_on to a node that can run it",
            "ibnetdiscover -p failed from n002 ibsim0 port 1: no port",
        ]
    );
    // One that fails further on has told the leaf before.
    let mut lab = Lab::new();
    let begun: String = lab.host("n003").trace(20, &lab.hosts).split_inclusive('\n').take(2).collect();
    lab.trace("n003", bad(&begun, "ibwarn: [9] find_route: can't reach port at DR path\n"));
    assert_eq!(discover(&lab, &["n003"]).unwrap(), only(lab.ports(&["n003"])));
}

#[test]
fn the_sweep_alone_is_enough() {
    let mut lab = Lab::new();
    let failed = bad(
        "ibtracert: iberror: failed: Failed to get route information\n",
        "ibwarn: [9] sim_connect: attached as client 0\nibwarn: [9] find_route: can't reach to/from ports\n",
    );
    lab.trace("n003", failed);
    let fabric = discover(&lab, &["n002", "n003"]).unwrap();
    assert_eq!(fabric.ports, lab.ports(&["n002", "n003"]));
    assert_eq!(
        fabric.disagreements,
        [
            "n003 ibsim0 port 1: ibtracert does not tell the leaf (find_route: can't reach to/from ports; ibtracert: iberror: failed: Failed \
          to get route information); ibnetdiscover alone is believed: switch 0xb8599f0300001000 (LID 2) port 3"
        ]
    );
}

#[test]
fn nobody_knows_the_leaf() {
    let mut lab = Lab { sweeps: Vec::new(), ..Lab::new() };
    lab.trace("n003", bad("", ""));
    lab.trace("n004", bad("", ""));
    let message = fault(&lab, &["n002", "n003", "n004"]);
    assert!(message.starts_with("n003: the leaf switch is not known: n003 ibsim0 port 1: "), "{message}");
    assert!(message.contains("ibtracert failed: it ended with status 255"), "{message}");
    assert!(message.ends_with(" (there is something wrong with n004 too)"), "{message}");
    // Nothing needs it where nothing is mirrored.
    let fabric = discover_with(&config("", NOT_MIRRORED), &lab, &["n003"]).unwrap();
    assert_eq!(fabric.ports, [NodePort { leaf_guid: 0, leaf_lid: 0, leaf_port: 0, ..lab.host("n003").port() }]);
    let told = fabric.disagreements.last().unwrap();
    assert!(told.starts_with("n003 ibsim0 port 1: the leaf switch is not known: "), "{told}");
}

#[test]
fn a_trace_that_begins_elsewhere_is_not_believed() {
    let mut lab = Lab::new();
    let elsewhere = lab.host("n007").trace(1, &lab.hosts);
    lab.trace("n003", good(elsewhere));
    let fabric = discover(&lab, &["n003"]).unwrap();
    assert_eq!(fabric.ports, lab.ports(&["n003"]));
    assert_eq!(fabric.disagreements.len(), 1);
    assert!(fabric.disagreements[0].contains("LID 8 leads to node 0x1070fd0300000070, not to this one"), "{fabric:?}");
}

/// A line of a sweep.
fn cable(lid: u16, guid: u64, leaf: u64, port: u8) -> String {
    format!("CA {lid:5}  1 {guid:#018x} 4x HDR - SW     2 {port:2} {leaf:#018x} ( 'x' - 'y' )\n")
}

/// LID and GUID of the ports of `ibstat_rails` that are in use.
const RAILS: [(u16, u64); 3] =
    [(1031, 0xb8ce_f603_00a1_b2c0), (49151, 0xb8ce_f603_00a1_b2c5), (7, 0x0002_c903_0031_fdc1)];

#[test]
fn several_adapters_and_ports() {
    // n004 has the same with other GUIDs.
    let other = |guid: u64| guid ^ 0x0000_0001_0000_0000;
    let guids = RAILS.iter().copied().chain(RAILS.iter().map(|&(lid, guid)| (lid, other(guid))));
    let sweep = guids.zip(1..).map(|((lid, guid), port)| cable(lid, guid, u64::from(port % 3), port)).collect();
    let mut lab = Lab::with_rails(Lab::with_sweep(sweep).sweeps);
    let mut text = recorded!("ibstat_rails");
    for (_, guid) in RAILS {
        text = text.replace(&format!("Port GUID: {guid:#018x}"), &format!("Port GUID: {:#018x}", other(guid)));
    }
    lab.ibstat.insert("n004".to_owned(), good(text));
    let fabric = discover_with(&config("trace_nodes = 0", MIRRORED), &lab, &["n003", "n004"]).unwrap();
    let found: Vec<_> = fabric
        .ports
        .iter()
        .map(|port| {
            (port.node.as_str(), port.ca.as_str(), port.lid, port.lmc, port.rate_gbits, port.leaf_guid, port.leaf_port)
        })
        .collect();
    let expected = [
        ("n003", "mlx5_0", 1031, 0, 200.0, 1, 1),
        ("n003", "mlx5_1", 49151, 3, 400.0, 2, 2),
        ("n003", "mlx4_0", 7, 1, 40.0, 0, 3),
        ("n004", "mlx5_0", 1031, 0, 200.0, 1, 4),
        ("n004", "mlx5_1", 49151, 3, 400.0, 2, 5),
        ("n004", "mlx4_0", 7, 1, 40.0, 0, 6),
    ];
    assert_eq!(found, expected);
    assert_eq!(
        fabric.left_out,
        [
            "mlx5_bond_0 port 1 of n003, n004 is left out: Ethernet",
            "mlx4_0 port 2 of n003, n004 is left out: Initializing (LinkUp), though it still shows a LID",
        ]
    );
    assert_eq!(fabric.disagreements, Vec::<String>::new());
}

#[test]
fn rails_in_subnets_of_their_own() {
    let [a, b, c] = RAILS;
    let sweeps = vec![
        (None, Some("mlx5_1"), good(cable(b.0, b.1, 1, 5))),
        (None, Some("mlx4_0"), good(cable(c.0, c.1, 1, 6))),
        (None, None, good(cable(a.0, a.1, 1, 4))),
    ];
    let lab = Lab::with_rails(sweeps);
    let fabric = discover_with(&config("trace_nodes = 0", MIRRORED), &lab, &["n003"]).unwrap();
    assert_eq!(fabric.ports.iter().map(|port| port.leaf_port).collect::<Vec<_>>(), [4, 5, 6]);
    let sweeps =
        ["here: ibnetdiscover -p", "n003: ibnetdiscover -C mlx4_0 -P 1 -p", "n003: ibnetdiscover -C mlx5_1 -P 1 -p"];
    assert_eq!(lab.asked("ibnetdiscover"), sweeps);
}

#[test]
fn a_rail_that_leads_nowhere_is_left_out() {
    let [a, b, c] = RAILS;
    let to_ca = cable(b.0, b.1, 7, 1).replace("- SW", "- CA");
    let sweep = cable(a.0, a.1, 1, 4) + &to_ca + &format!("CA {} 1 {:#018x} 4x HDR 'x'\n", c.0, c.1);
    let mut lab = Lab::with_rails(Lab::with_sweep(sweep).sweeps);
    lab.trace("n003", bad("", "ibwarn: [1] get_route: no way\n"));
    let fabric = discover(&lab, &["n003"]).unwrap();
    assert_eq!(fabric.ports.iter().map(|port| (port.ca.as_str(), port.leaf_port)).collect::<Vec<_>>(), [("mlx5_0", 4)]);
    assert_eq!(
        fabric.left_out[2..],
        [
            "n003 mlx5_1 port 1: ibnetdiscover shows no switch at the other end of its cable, and ibtracert failed: get_route: no way; the \
             port is left out",
            "n003 mlx4_0 port 1: ibnetdiscover shows nothing at the other end of its cable, and ibtracert failed: get_route: no way; the \
             port is left out",
        ]
    );
}

#[test]
fn lid_mask_control() {
    let mut lab = Lab::with_sweep(recorded!("ibnetdiscover_p_lmc2"));
    lab.ibstat.insert("n003".to_owned(), good(recorded!("ibstat_lmc2")));
    lab.trace("n003", good(recorded!("ibtracert_lmc2")));
    let expected = only(vec![NodePort { lid: 24, lmc: 2, leaf_lid: 8, ..lab.host("n003").port() }]);
    assert_eq!(discover(&lab, &["n003"]).unwrap(), expected);
    assert_eq!(lab.asked("ibtracert"), ["n003: ibtracert -C ibsim0 -P 1 24 4"]);
    // A subnet manager at one of the port's other LIDs is the port itself.
    let text = recorded!("ibstat_lmc2").replace("SM lid: 4", "SM lid: 27");
    lab.ibstat.insert("n003".to_owned(), good(text));
    lab.trace("n003", good(recorded!("ibtracert_to_leaf")));
    assert_eq!(discover(&lab, &["n003"]).unwrap(), expected);
    assert_eq!(lab.asked("ibtracert"), ["n003: ibtracert -C ibsim0 -P 1 24 8"]);
}

#[test]
fn nodes_without_a_port_are_named() {
    let mut lab = Lab::new();
    let down = recorded!("ibstat_down");
    let physical = down.lines().find_map(|line| line.trim().strip_prefix("Physical state: ")).unwrap();
    lab.ibstat.insert("n004".to_owned(), good(down.as_str()));
    lab.ibstat.insert("n005".to_owned(), good(""));
    assert_eq!(
        fault(&lab, &["n003", "n004"]),
        format!(
            "n004: no InfiniBand port is active (ibsim0 port 1: Down ({physical}), though it still shows a LID); check the cable and the \
             subnet manager, or take the node out of the job"
        )
    );
    let message = fault(&lab, &["n005", "n003", "n004"]);
    assert!(message.starts_with("n005: no InfiniBand port is active (ibstat lists none); check"), "{message}");
    assert!(message.ends_with(" (there is something wrong with n004 too)"), "{message}");
    for state in ["Initializing", "Armed", "???"] {
        lab.edit("n004", "State: Active", &format!("State: {state}"));
        assert!(matches!(discover(&lab, &["n004"]), Err(FabricError::NoPort { node, .. }) if node == "n004"));
    }
    lab.edit("n004", "Base lid: 9", "Base lid: 0");
    assert!(fault(&lab, &["n004"]).contains("active without a LID or GUID"));
}

#[test]
fn nodes_that_do_not_answer_are_named() {
    let mut lab = Lab::new();
    let message = fault(&lab, &["n003", "gone", "away"]);
    assert!(message.starts_with("gone: no connection to gone:22: No route to host; check that"), "{message}");
    assert!(message.ends_with(" (there is something wrong with away too)"), "{message}");
    let failed = bad("", "ibpanic: [5] main: can't list IB device names: No such file or directory\n\x1b[31m");
    lab.ibstat.insert("n004".to_owned(), failed);
    let message = fault(&lab, &["n004"]);
    let expected = "n004: /usr/sbin/ibstat failed: main: can't list IB device names: No such file or directory";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("check tools.ibstat") && !message.contains('\x1b'), "{message}");
    lab.edit("n004", "LMC: 0", "LMC: many");
    let message = fault(&lab, &["n004"]);
    assert!(message.starts_with("n004: output of ibstat, line 13: an LMC expected at byte "), "{message}");
    assert!(matches!(discover(&lab, &[]), Err(FabricError::NoNodes)));
}

#[test]
fn two_names_of_one_machine() {
    let mut lab = Lab::new();
    lab.ibstat.insert("n004".to_owned(), lab.ibstat["n003"].clone());
    let expected =
        "n003 and n004 show the same port 0x1070fd0300000031: two names lead to one machine; check the addresses";
    assert!(fault(&lab, &["n003", "n004"]).starts_with(expected));
}

#[test]
fn hostile_names_reach_no_command() {
    for name in ["-x", "a b", "$(reboot)", "a;b", "../a", "", "\u{1b}[2J"] {
        let mut lab = Lab::new();
        let text = lab.host("n003").ibstat();
        let device = text.replace("ibsim0", name).replace("00000031", "00000099");
        lab.ibstat.insert("n003".to_owned(), good(text + &device));
        let fabric = discover(&lab, &["n003"]).unwrap();
        assert_eq!(fabric.ports, lab.ports(&["n003"]), "{name}");
        assert_eq!(fabric.left_out.len(), 1);
        assert!(
            fabric.left_out[0].ends_with("port 1 of n003 is left out: its name is none that a device has"),
            "{fabric:?}"
        );
        assert!(!fabric.left_out[0].contains('\u{1b}'));
        let calls = lab.asked("").join("\n");
        assert_eq!(calls, "here: ibnetdiscover -p\nn003: ibstat\nn003: ibtracert -C ibsim0 -P 1 8 1");
    }
}

#[test]
fn ports_of_ethernet_are_captured_where_they_are() {
    let mut lab = Lab { sweeps: Vec::new(), ..Lab::new() };
    lab.edit("n003", "Link layer: IB", "Link layer: Ethernet");
    let roce = config("", "[mirror]\nbackend = \"none\"\n[capture]\nbackend = \"tcpdump\"\n");
    let unknown = NodePort { leaf_guid: 0, leaf_lid: 0, leaf_port: 0, ..lab.host("n003").port() };
    assert_eq!(discover_with(&roce, &lab, &["n003"]).unwrap(), only(vec![unknown]));
    assert!(lab.asked("ibtracert").is_empty());
    let message = discover_with(&config("", NOT_MIRRORED), &lab, &["n003"]).unwrap_err().to_string();
    assert!(message.starts_with("n003: no InfiniBand port is active (ibsim0 port 1: Ethernet); check"), "{message}");
}

/// 2000 hosts on 100 leaves below 16 spines, with LIDs as they come; what is found does not depend on how many are asked at a time.
#[test]
fn a_large_fabric() {
    const LEAVES: u64 = 100;
    const HOSTS: u64 = 20;
    const SPINES: u64 = 16;
    let lid = |number: u64| (number * 7 % 40_000 + 1) as u16;
    let leaf_lid = |leaf: u64| (40_001 + leaf) as u16;
    let lines = |(leaf, port): (u64, u64)| {
        let near = format!("SW {:5} {port:2} {:#018x} 4x HDR", leaf_lid(leaf), LEAF + leaf);
        let number = leaf * HOSTS + port;
        let (lid, guid) = (lid(number), HOST + 16 * number + 1);
        if port <= HOSTS {
            let host = cable(lid, guid, LEAF + leaf, port as u8);
            let host = host.replace("SW     2", &format!("SW {:5}", leaf_lid(leaf)));
            return format!("{near} - CA {lid:5}  1 {guid:#018x} ( 'leaf' - 'n{number:05} mlx5_0' )\n{host}");
        }
        let (lid, spine, back) = (45_000 + port, LEAF + 0x1000 + port, leaf + 1);
        format!("{near} - SW {lid:5} {back:2} {spine:#018x} ( 'leaf' - 'spine' )\n")
    };
    let ports = (0..LEAVES).flat_map(|leaf| (1..=HOSTS + SPINES).map(move |port| (leaf, port)));
    let sweep = ports.map(lines).collect::<Vec<_>>().concat();
    let numbers = (0..256).map(|index| index * 7 % (LEAVES * HOSTS) + 1);
    let hosts: Vec<Host> =
        numbers.map(|number| Host { name: format!("n{number:05}"), number, lid: lid(number), leaf_lid: 0 }).collect();
    let ibstat = hosts.iter().map(|host| (host.name.clone(), good(host.ibstat()))).collect();
    let lab = Lab { ibstat, hosts, ..Lab::with_sweep(sweep) };
    let place = |host: &Host| {
        let (leaf, port) = ((host.number - 1) / HOSTS, (host.number - 1) % HOSTS + 1);
        NodePort { leaf_guid: LEAF + leaf, leaf_lid: leaf_lid(leaf), leaf_port: port as u8, ..host.port() }
    };
    let expected = only(lab.hosts.iter().map(place).collect());
    let names: Vec<&str> = lab.hosts.iter().map(|host| host.name.as_str()).collect();
    for parallel in [1, 4, 32] {
        let mut config = config("trace_nodes = 0", MIRRORED);
        config.ssh.parallel = parallel;
        assert_eq!(discover_with(&config, &lab, &names).unwrap(), expected);
    }
}
