//! What the fabric says of its cables: `ibnetdiscover -p`.

use super::nodes::Port;
use super::tool;
use crate::config::{Config, Place};
use crate::remote::Runner;
use ibscope_parsers::tools::NodeKind;
use ibscope_parsers::tools::ibnetdiscover::{self, FabricPort};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Subnets that a job's ports may be in beyond the first one: rails that are not connected to each other.
const MORE_SUBNETS: usize = 8;

/// What is connected to the ports of hosts, by their GUID.
#[derive(Debug, Default)]
pub(super) struct Cables {
    hosts: HashMap<u64, Cable>,
    /// How many of the ports are of a node that is called so.
    named: HashMap<String, usize>,
    /// Where the tool ran and failed, and why.
    faults: Vec<String>,
}

/// A port of a host and the port at the other end.
#[derive(Clone, Debug)]
pub(super) struct Cable {
    pub(super) host: FabricPort,
    pub(super) far: Option<FabricPort>,
    /// The host as the fabric describes it, which may be anything: no reason to believe, but one to doubt.
    pub(super) name: Option<String>,
}

impl Cables {
    /// Reads the subnet that the tool finds by itself, from where the configuration says.
    pub(super) fn read(config: &Config, first: &str, runner: &dyn Runner) -> Self {
        let mut cables = Self::default();
        let node = match &config.fabric.run_on {
            Place::Here | Place::Sink => None,
            Place::First => Some(first),
            Place::Node(node) => Some(node.as_str()),
        };
        if let Err(why) = cables.add(config, node, None, runner) {
            let place = node.map_or_else(|| "here".to_owned(), |node| format!("on {node}"));
            cables
                .faults
                .push(format!("ibnetdiscover -p failed {place}: {why}; set fabric.run_on to a node that can run it"));
        }
        cables
    }

    /// Reads the subnets of ports that are not known yet, from those ports.
    pub(super) fn look_further(&mut self, config: &Config, ports: &[&Port], runner: &dyn Runner) {
        let mut from = ports.iter();
        for _ in 0..MORE_SUBNETS {
            let Some(port) = from.find(|port| port.is_infiniband() && self.get(port).is_none()) else { return };
            if let Err(why) = self.add(config, Some(&port.node), Some(port), runner) {
                self.faults.push(format!("ibnetdiscover -p failed from {port}: {why}"));
                // Each failure may take all the time that a tool has, and traces remain.
                return;
            }
        }
    }

    /// The cable of a port.
    pub(super) fn get(&self, port: &Port) -> Option<&Cable> {
        self.by_guid(port.state.port_guid)
    }

    /// The cable of the port with this GUID.
    pub(super) fn by_guid(&self, port_guid: u64) -> Option<&Cable> {
        self.hosts.get(&port_guid)
    }

    /// Ports whose node the fabric calls by this name.
    pub(super) fn named(&self, node: &str) -> usize {
        self.named.get(node).copied().unwrap_or(0)
    }

    /// Whether the tool has told anything.
    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    pub(super) fn into_faults(self) -> Vec<String> {
        self.faults
    }

    fn add(
        &mut self,
        config: &Config,
        node: Option<&str>,
        through: Option<&Port>,
        runner: &dyn Runner,
    ) -> Result<(), String> {
        let number = through.map(|port| port.state.number.to_string());
        let port = through.zip(number.as_deref()).map(|(port, number)| ["-C", &port.ca, "-P", number]);
        let arguments: Vec<&str> = port.iter().flatten().copied().chain(["-p"]).collect();
        let output = tool::run(config, runner, node, &config.tools.ibnetdiscover, &arguments)
            .map_err(|error| error.to_string())?;
        if !output.is_success() {
            return Err(tool::said(&output));
        }
        let lines = ibnetdiscover::parse_ports(&tool::text(&output)).map_err(|error| error.to_string())?;
        let hosts = lines.into_iter().filter(|line| line.port.kind == NodeKind::Ca);
        for line in hosts {
            // Who was found first stays: a subnet that is read twice says the same.
            if let Entry::Vacant(place) = self.hosts.entry(line.port.guid) {
                let name = name(&line.descriptions);
                if let Some(name) = &name {
                    *self.named.entry(name.clone()).or_default() += 1;
                }
                place.insert(Cable { host: line.port, far: line.remote, name });
            }
        }
        Ok(())
    }
}

/// The first word of the first description: `n015` of `( 'n015 mlx5_0' - 'leaf3' )`.
fn name(descriptions: &str) -> Option<String> {
    let word = descriptions.split('\'').nth(1)?.split_whitespace().next()?;
    Some(word.to_owned())
}
