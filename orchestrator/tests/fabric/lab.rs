//! A simulated fabric that prints what the tools would print.

use crate::plain;
use ibscope_orchestrator::config::Config;
use ibscope_orchestrator::fabric::{self, Fabric, FabricError, Inventory, NodePort};
use ibscope_orchestrator::remote::{CommandOutput, RemoteError, Runner};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

pub(crate) const HOST: u64 = 0x1070_fd03_0000_0000;
pub(crate) const LEAF: u64 = 0xb859_9f03_0000_1000;

/// A host of the recorded fabric, which has 3 leaves with 5 hosts each, numbered from 1.
#[derive(Clone)]
pub(crate) struct LabHost {
    pub(crate) name: String,
    pub(crate) number: u64,
    pub(crate) lid: u16,
    pub(crate) leaf_lid: u16,
}

impl LabHost {
    pub(crate) fn leaf(&self) -> u64 {
        LEAF + (self.number - 1) / 5
    }

    pub(crate) fn leaf_port(&self) -> u8 {
        ((self.number - 1) % 5 + 1) as u8
    }

    /// The port that discovery must find.
    pub(crate) fn port(&self) -> NodePort {
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

    pub(crate) fn ibstat(&self) -> String {
        recorded!("ibstat_n003")
            .replace("Base lid: 8", &format!("Base lid: {}", self.lid))
            .replace("0x1070fd0300000030", &format!("{:#018x}", HOST + 16 * self.number))
            .replace("0x1070fd0300000031", &format!("{:#018x}", HOST + 16 * self.number + 1))
    }

    /// Output of `ibtracert` to another host, or to the host's leaf.
    pub(crate) fn trace(&self, to: u16, hosts: &[LabHost]) -> String {
        let end = |word: &str, host: &LabHost| {
            let (lid, name) = (host.lid, &host.name);
            format!("{word} ca {{{:#018x}}} portnum 1 lid {lid}-{lid} \"{name} mlx5_0\"\n", HOST + 16 * host.number)
        };
        let switch = |out: u8, guid: u64, port: u8, lid: u16, name: &str| {
            format!("[{out}] -> switch port {{{guid:#018x}}}[{port}] lid {lid}-{lid} \"{name}\"\n")
        };
        let number = |host: &LabHost| (host.leaf() - LEAF + 1) as u8;
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

/// The hosts of a recorded sweep, from the columns of its lines.
pub(crate) fn hosts(sweep: &str) -> Vec<LabHost> {
    let mut hosts: Vec<LabHost> = sweep
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words[0] == "CA")
        .map(|words| LabHost {
            name: words[12].trim_start_matches('\'').to_owned(),
            number: (u64::from_str_radix(&words[3][2..], 16).expect("a number") - HOST) / 16,
            lid: words[1].parse().expect("a number"),
            leaf_lid: words[8].parse().expect("a number"),
        })
        .collect();
    hosts.sort_by_key(|host| host.number);
    hosts
}

/// Output of `ibnetdiscover` on a node and through an adapter; `None` matches any.
pub(crate) type Sweep = (Option<&'static str>, Option<&'static str>, CommandOutput);

/// Runs the programs of the fabric tools, and records the calls.
pub(crate) struct FabricLab {
    /// The first one that matches counts.
    pub(crate) sweeps: Vec<Sweep>,
    pub(crate) ibstat: BTreeMap<String, CommandOutput>,
    pub(crate) hosts: Vec<LabHost>,
    /// Outputs of ibtracert that replace the normal ones, by node.
    pub(crate) traces: BTreeMap<String, CommandOutput>,
    pub(crate) asked: Mutex<Vec<(Option<String>, String)>>,
}

pub(crate) fn good(text: impl Into<String>) -> CommandOutput {
    CommandOutput { status: 0, stdout: text.into().into_bytes(), stderr: Vec::new() }
}

pub(crate) fn bad(stdout: &str, stderr: &str) -> CommandOutput {
    CommandOutput { status: 255, stdout: stdout.as_bytes().to_vec(), stderr: stderr.as_bytes().to_vec() }
}

impl FabricLab {
    pub(crate) fn new() -> Self {
        let sweep = recorded!("ibnetdiscover_p");
        let hosts = hosts(&sweep);
        assert_eq!(hosts.len(), 15);
        let ibstat = hosts.iter().map(|host| (host.name.clone(), good(host.ibstat()))).collect();
        let sweeps = vec![(None, None, good(sweep))];
        Self { sweeps, ibstat, hosts, traces: BTreeMap::new(), asked: Mutex::new(Vec::new()) }
    }

    pub(crate) fn with_sweep(sweep: String) -> Self {
        Self { sweeps: vec![(None, None, good(sweep))], ..Self::new() }
    }

    /// A lab whose n003 has the adapters of `ibstat_rails`.
    pub(crate) fn with_rails(sweeps: Vec<Sweep>) -> Self {
        let mut lab = Self { sweeps, ..Self::new() };
        lab.ibstat.insert("n003".to_owned(), good(recorded!("ibstat_rails")));
        lab
    }

    pub(crate) fn host(&self, name: &str) -> &LabHost {
        self.hosts.iter().find(|host| host.name == name).expect("host")
    }

    pub(crate) fn ports(&self, names: &[&str]) -> Vec<NodePort> {
        names.iter().map(|name| self.host(name).port()).collect()
    }

    /// Changes the output of a node's `ibstat`.
    pub(crate) fn edit(&mut self, node: &str, from: &str, to: &str) {
        let text = self.host(node).ibstat();
        assert!(text.contains(from), "{from}");
        self.ibstat.insert(node.to_owned(), good(text.replace(from, to)));
    }

    pub(crate) fn trace(&mut self, node: &str, output: CommandOutput) {
        self.traces.insert(node.to_owned(), output);
    }

    /// Calls of a program since the last query, sorted.
    pub(crate) fn asked(&self, program: &str) -> Vec<String> {
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

impl Runner for FabricLab {
    fn run(&self, node: Option<&str>, argv: &[String], timeout: Duration) -> Result<CommandOutput, RemoteError> {
        assert_eq!(timeout, Duration::from_secs(7));
        self.asked.lock().expect("no panic").push((node.map(str::to_owned), argv.join(" ")));
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        Ok(match (node, argv.as_slice()) {
            (_, ["/usr/sbin/ibnetdiscover", options @ .., "-p"]) => {
                let through = options.get(1).copied();
                let matches = |(place, ca, _): &&Sweep| {
                    place.is_none_or(|place| place == node.unwrap_or("here")) && (ca.is_none() || *ca == through)
                };
                self.sweeps
                    .iter()
                    .find(matches)
                    .map_or_else(|| bad("", "ibwarn: [3] no port\n"), |sweep| sweep.2.clone())
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
            other => panic!("unexpected call {other:?}"),
        })
    }
}

pub(crate) const MIRRORED: &str =
    "[mirror]\nbackend = \"mstreg\"\n[sinks]\nfrom_job = true\n[capture]\nbackend = \"ibdump\"\n";
pub(crate) const NOT_MIRRORED: &str = "[mirror]\nbackend = \"none\"\n[capture]\nbackend = \"ibdump\"\n";

pub(crate) fn config(fabric: &str, rest: &str) -> Config {
    let text = format!(
        "[ssh]\nkey = \"/etc/ibscope/id\"\nknown_hosts = \"/etc/ibscope/known_hosts\"\nparallel = 4\n\
         [fabric]\ntimeout_s = 7\n{fabric}\n{rest}directory = \"/scratch\"\n[collect]\ndirectory = \"/scratch\"\n"
    );
    Config::parse(&text, Path::new("ibscope.toml")).expect("a configuration")
}

pub(crate) fn discover(lab: &FabricLab, nodes: &[&str]) -> Result<Fabric, FabricError> {
    discover_with(&config("", MIRRORED), lab, nodes)
}

pub(crate) fn discover_with(config: &Config, lab: &FabricLab, nodes: &[&str]) -> Result<Fabric, FabricError> {
    discover_again(config, lab, nodes, &mut Inventory::default())
}

pub(crate) fn discover_again(
    config: &Config,
    lab: &FabricLab,
    nodes: &[&str],
    inventory: &mut Inventory,
) -> Result<Fabric, FabricError> {
    let nodes: Vec<String> = nodes.iter().map(|&node| node.to_owned()).collect();
    fabric::discover(config, &nodes, inventory, lab)
}

/// The ports of nodes and reserved sinks, and the faults of sinks as text.
pub(crate) fn discover_with_sinks(
    lab: &FabricLab,
    nodes: &[&str],
    sinks: &[&str],
) -> Result<(Fabric, Vec<String>), FabricError> {
    let owned = |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
    let (config, mut inventory) = (config("", MIRRORED), Inventory::default());
    let found = fabric::discover_with_sinks(&config, &owned(nodes), &owned(sinks), &mut inventory, lab)?;
    Ok((found.0, found.1.iter().map(ToString::to_string).collect()))
}

/// A fabric with these ports and no warnings.
pub(crate) fn only(ports: Vec<NodePort>) -> Fabric {
    Fabric { ports, ..Fabric::default() }
}

/// The error of these nodes, as text.
pub(crate) fn fault(lab: &FabricLab, nodes: &[&str]) -> String {
    discover(lab, nodes).expect_err("a fault").to_string()
}

/// A line of a sweep.
pub(crate) fn cable(lid: u16, guid: u64, leaf: u64, port: u8) -> String {
    format!("CA {lid:5}  1 {guid:#018x} 4x HDR - SW     2 {port:2} {leaf:#018x} ( 'x' - 'y' )\n")
}
