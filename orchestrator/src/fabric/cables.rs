//! The cables of the fabric, as `ibnetdiscover -p` lists them.

use super::nodes::ActivePort;
use super::tool;
use crate::config::{Config, RunLocation};
use crate::remote::Runner;
use ibscope_parsers::tools::NodeKind;
use ibscope_parsers::tools::ibnetdiscover::{self, FabricPort};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Number of subnets to sweep in addition to the first one, for rails that are not connected to
/// each other.
const MORE_SUBNETS: usize = 8;

/// Cables of host ports, by port GUID.
#[derive(Debug, Default)]
pub(super) struct Cables {
    hosts: HashMap<u64, Cable>,
    /// Number of ports whose node description starts with this name.
    ports_by_name: HashMap<String, usize>,
    /// Failed sweeps: where the tool ran, and why it failed.
    faults: Vec<String>,
}

/// A port of a host and the port at the other end of its cable.
#[derive(Clone, Debug)]
pub(super) struct Cable {
    pub(super) host: FabricPort,
    pub(super) far: Option<FabricPort>,
    /// Name in the host's node description, which may be any text: it can contradict another
    /// source but confirms nothing.
    pub(super) name: Option<String>,
}

impl Cables {
    /// Sweeps the subnet that ibnetdiscover finds by default, from the node that the configuration
    /// names.
    pub(super) fn read(config: &Config, first: &str, runner: &dyn Runner) -> Self {
        let mut cables = Self::default();
        let node = match &config.fabric.run_on {
            RunLocation::Here | RunLocation::Sink => None,
            RunLocation::First => Some(first),
            RunLocation::Node(node) => Some(node.as_str()),
        };
        if let Err(why) = cables.add(config, node, None, runner) {
            let place = node.map_or_else(|| "here".to_owned(), |node| format!("on {node}"));
            cables
                .faults
                .push(format!("ibnetdiscover -p failed {place}: {why}; set fabric.run_on to a node that can run it"));
        }
        cables
    }

    /// Sweeps the subnets of ports that are not known yet, starting at these ports.
    pub(super) fn sweep_other_subnets(&mut self, config: &Config, ports: &[&ActivePort], runner: &dyn Runner) {
        let mut from = ports.iter();
        for _ in 0..MORE_SUBNETS {
            let Some(port) = from.find(|port| port.is_infiniband() && self.get(port).is_none()) else { return };
            if let Err(why) = self.add(config, Some(&port.node), Some(port), runner) {
                self.faults.push(format!("ibnetdiscover -p failed from {port}: {why}"));
                // Each failure may take the whole time limit of a tool. ibtracert can still find
                // the leaves of the other ports.
                return;
            }
        }
    }

    /// Cable of a port.
    pub(super) fn get(&self, port: &ActivePort) -> Option<&Cable> {
        self.by_guid(port.state.port_guid)
    }

    /// Cable of the port with this GUID.
    pub(super) fn by_guid(&self, port_guid: u64) -> Option<&Cable> {
        self.hosts.get(&port_guid)
    }

    /// Number of ports whose node description starts with this name.
    pub(super) fn port_count(&self, node: &str) -> usize {
        self.ports_by_name.get(node).copied().unwrap_or(0)
    }

    /// True if no sweep listed a host port.
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
        through: Option<&ActivePort>,
        runner: &dyn Runner,
    ) -> Result<(), String> {
        let number = through.map(|port| port.state.number.to_string());
        let port = through.zip(number.as_deref()).map(|(port, number)| ["-C", &port.ca, "-P", number]);
        let arguments: Vec<&str> = port.iter().flatten().copied().chain(["-p"]).collect();
        let output = tool::run(config, runner, node, &config.tools.ibnetdiscover, &arguments)
            .map_err(|error| error.to_string())?;
        if !output.is_success() {
            return Err(tool::failure_reason(&output));
        }
        let lines = ibnetdiscover::parse_ports(&tool::text(&output)).map_err(|error| error.to_string())?;
        let hosts = lines.into_iter().filter(|line| line.port.kind == NodeKind::Ca);
        for line in hosts {
            // Keep the first entry: a second sweep of the same subnet lists the same cable.
            if let Entry::Vacant(place) = self.hosts.entry(line.port.guid) {
                let name = name(&line.descriptions);
                if let Some(name) = &name {
                    *self.ports_by_name.entry(name.clone()).or_default() += 1;
                }
                place.insert(Cable { host: line.port, far: line.remote, name });
            }
        }
        Ok(())
    }
}

/// First word of the first description: `n015` of `( 'n015 mlx5_0' - 'leaf3' )`.
fn name(descriptions: &str) -> Option<String> {
    let word = descriptions.split('\'').nth(1)?.split_whitespace().next()?;
    Some(word.to_owned())
}
