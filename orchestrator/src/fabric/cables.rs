//! The cables of the fabric, as `ibnetdiscover -p` lists them.

use super::nodes::ActivePort;
use super::tool;
use crate::config::{Config, RunLocation};
use crate::guid;
use crate::remote::Runner;
use ibscope_parsers::tools::NodeKind;
use ibscope_parsers::tools::ibnetdiscover::{self, FabricPort};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

/// Number of subnets to sweep in addition to the first one, for rails that are not connected to
/// each other.
const MORE_SUBNETS: usize = 8;

/// Cables of host ports, by port GUID.
#[derive(Debug, Default)]
pub(super) struct Cables {
    hosts: HashMap<u64, Cable>,
    /// Number of ports whose node description starts with this name.
    ports_by_name: HashMap<String, usize>,
    /// Names of the nodes that the configuration names, and of those that reported ports.
    known_nodes: BTreeSet<String>,
    /// Nodes that reported a port that the fabric names after them.
    confirmed_nodes: BTreeSet<String>,
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
        let known = config.nodes.keys().chain(&config.sinks.nodes).cloned();
        let mut cables = Self { known_nodes: known.collect(), ..Self::default() };
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

    /// Sweeps the subnets of ports that are not known yet, starting at these ports. `ports` are all ports
    /// that the nodes reported.
    pub(super) fn sweep_other_subnets(&mut self, config: &Config, ports: &[&ActivePort], runner: &dyn Runner) {
        self.sweep_from(config, ports, runner);
        self.confirm(ports);
    }

    /// Records which nodes reported ports, and which of them the fabric confirms.
    fn confirm(&mut self, ports: &[&ActivePort]) {
        for port in ports {
            self.known_nodes.insert(port.node.clone());
            if self.get(port).is_some_and(|cable| cable.name.as_ref() == Some(&port.node)) {
                self.confirmed_nodes.insert(port.node.clone());
            }
        }
    }

    /// Reason why a port is probably that of another node than the one that should have reported it: its
    /// name in the fabric contradicts the address of the node.
    ///
    /// A name that is not that of a known node proves nothing, and neither does one that the fabric has
    /// twice: then the description of this port is an old one.
    pub(super) fn name_conflict(&self, port: &ActivePort) -> Option<String> {
        let node = &port.node;
        let named = self.get(port)?.name.as_ref().filter(|_| !self.confirmed_nodes.contains(node))?;
        let elsewhere = || self.hosts.iter().filter(|(_, cable)| cable.name.as_ref() == Some(node));
        let evidence = if let Some(place) = elsewhere().map(|(guid, _)| *guid).min() {
            format!("and shows {node} at port {}", guid::text(place))
        } else if self.known_nodes.contains(named) && !self.confirmed_nodes.contains(named) {
            "which is another node".to_owned()
        } else {
            return None;
        };
        Some(format!(
            "the fabric names port {} {}, {evidence}: another machine answers for {node}; check nodes.{node}.address in the \
             configuration, and the node descriptions of both machines",
            guid::text(port.state.port_guid),
            named.escape_default()
        ))
    }

    fn sweep_from(&mut self, config: &Config, ports: &[&ActivePort], runner: &dyn Runner) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::{CommandOutput, RemoteError};
    use ibscope_parsers::tools::ibstat::{CaPort, LinkLayer, PortState};
    use std::path::Path;
    use std::time::Duration;

    const GUID: u64 = 0x1070_fd03_0000_0000;

    /// A sweep that lists these ports: GUID and node description.
    struct NamedPorts<'a>(&'a [(u64, &'a str)]);

    impl Runner for NamedPorts<'_> {
        fn run(&self, _: Option<&str>, _: &[String], _: Duration) -> Result<CommandOutput, RemoteError> {
            let line = |&(guid, name): &(u64, &str)| {
                let port = guid & 0xff;
                format!(
                    "CA {port} 1 {:#018x} 4x HDR - SW 2 {port} 0xb8599f0300001000 ( '{name}' - 'leaf1' )\n",
                    GUID + guid
                )
            };
            let stdout = self.0.iter().map(line).collect::<String>().into_bytes();
            Ok(CommandOutput { status: 0, stdout, stderr: Vec::new() })
        }
    }

    fn port(&(node, guid): &(&str, u64)) -> ActivePort {
        let state = CaPort {
            number: 1,
            state: PortState::Active,
            physical_state: String::new(),
            rate_gbits_tenths: 1040,
            base_lid: guid as u16,
            lmc: 0,
            sm_lid: 0,
            port_guid: GUID + guid,
            link_layer: LinkLayer::InfiniBand,
        };
        ActivePort { node: node.to_owned(), ca: "mlx5_0".to_owned(), node_guid: GUID, state }
    }

    /// The conflicts of reported ports (node and GUID) in a fabric with these names; the configuration names
    /// n005.
    fn conflicts(named: &[(u64, &str)], reported: &[(&str, u64)]) -> Vec<Option<String>> {
        let text = "[ssh]\nkey = \"/k\"\nknown_hosts = \"/h\"\n[mirror]\nbackend = \"none\"\n[capture]\nbackend = \"ibdump\"\n\
                    directory = \"/c\"\n[collect]\ndirectory = \"/r\"\n[nodes.n005]\naddress = \"10.0.0.5\"\n";
        let config = Config::parse(text, Path::new("x")).unwrap();
        let runner = NamedPorts(named);
        let mut cables = Cables::read(&config, "n001", &runner);
        let ports: Vec<ActivePort> = reported.iter().map(port).collect();
        cables.sweep_other_subnets(&config, &ports.iter().collect::<Vec<_>>(), &runner);
        ports.iter().map(|port| cables.name_conflict(port)).collect()
    }

    fn is_refused(named: &[(u64, &str)], reported: &[(&str, u64)]) -> Vec<bool> {
        conflicts(named, reported).iter().map(Option::is_some).collect()
    }

    #[test]
    fn a_port_of_another_node_is_refused_with_both_names() {
        // The address of n001 is that of n005.
        let named = [(0x11, "n001 mlx5_0"), (0x21, "n002 mlx5_0"), (0x31, "n005 mlx5_0")];
        let found = conflicts(&named, &[("n001", 0x31), ("n002", 0x21)]);
        let expected = "the fabric names port 0x1070fd0300000031 n005, and shows n001 at port 0x1070fd0300000011: another machine \
                        answers for n001; check nodes.n001.address in the configuration, and the node descriptions of both machines";
        assert_eq!(found, [Some(expected.to_owned()), None]);
        // The port of n001 is down, and n005 is in the configuration.
        assert_eq!(is_refused(&named[1..], &[("n001", 0x31), ("n002", 0x21)]), [true, false]);
        // Two addresses were exchanged.
        assert_eq!(is_refused(&named, &[("n001", 0x21), ("n002", 0x11)]), [true, true]);
        // The machine that answers has no name that the configuration knows.
        assert_eq!(is_refused(&[(0x11, "n001 x"), (0x71, "login1 x")], &[("n001", 0x71)]), [true]);
    }

    #[test]
    fn descriptions_that_name_no_known_node_prove_nothing() {
        for name in ["MT4123 ConnectX6   Mellanox Technologies", "", "n009 mlx5_0", "N001"] {
            assert_eq!(is_refused(&[(0x11, name), (0x21, "n002 x")], &[("n001", 0x11)]), [false], "{name:?}");
        }
        // One adapter of n001 has the description of the node, the other one that of its manufacturer, or of
        // the node in which it was before.
        let named = [(0x11, "n001 a"), (0x12, "MT4123 b"), (0x13, "n005 c")];
        assert_eq!(is_refused(&named, &[("n001", 0x11), ("n001", 0x12), ("n001", 0x13)]), [false; 3]);
        // n010 is where its name is, so the same name of the port of n009 is an old one.
        assert_eq!(is_refused(&[(0x11, "n010 x"), (0x21, "n010 x")], &[("n009", 0x11), ("n010", 0x21)]), [false; 2]);
    }
}
