//! The LIDs of switches and nodes as they are now. A subnet manager may assign other LIDs while a job
//! runs, and another port may have an old LID then. The input is what a plan knows (GUIDs), the output
//! the LIDs that `ibnetdiscover -p` and `ibstat` show. Ports are matched by GUID only.

use super::{Inventory, NodePort, discover, nodes, tool};
use crate::config::{Config, RunLocation};
use crate::remote::{self, Runner};
use ibscope_parsers::tools::NodeKind;
use ibscope_parsers::tools::ibnetdiscover;
use std::collections::{BTreeMap, BTreeSet};

/// LIDs of a subnet, by GUID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PresentLids {
    /// LIDs of the switches.
    pub(crate) switches: BTreeMap<u64, u16>,
    /// LIDs of the ports of hosts.
    pub(crate) hosts: BTreeMap<u64, u16>,
}

impl PresentLids {
    /// Sweeps the subnet of the machine that plans sweep: that of `fabric.run_on`. `first` is the job's
    /// first node. The error names the machine and the reason.
    pub(crate) fn read(config: &Config, first: Option<&str>, runner: &dyn Runner) -> Result<Self, String> {
        let node = match &config.fabric.run_on {
            RunLocation::Here | RunLocation::Sink => None,
            RunLocation::First => first,
            RunLocation::Node(node) => Some(node.as_str()),
        };
        Self::read_at(config, node, None, runner)
    }

    /// Sweeps the subnet of a node, or of this machine, through this adapter.
    pub(crate) fn read_at(
        config: &Config,
        node: Option<&str>,
        adapter: Option<&str>,
        runner: &dyn Runner,
    ) -> Result<Self, String> {
        let place = node.map_or_else(|| "here".to_owned(), |node| format!("on {node}"));
        let failed = |why: String| format!("ibnetdiscover -p failed {place}: {why}");
        let adapter = adapter.map(|adapter| ["-C", adapter]);
        let arguments: Vec<&str> = adapter.iter().flatten().copied().chain(["-p"]).collect();
        let output = tool::run(config, runner, node, &config.tools.ibnetdiscover, &arguments)
            .map_err(|error| failed(error.to_string()))?;
        if !output.is_success() {
            return Err(failed(tool::failure_reason(&output)));
        }
        let lines = ibnetdiscover::parse_ports(&tool::text(&output)).map_err(|error| failed(error.to_string()))?;
        let mut lids = Self::default();
        for port in lines.iter().flat_map(|line| [Some(line.port), line.remote]).flatten() {
            match port.kind {
                NodeKind::Switch => _ = lids.switches.insert(port.guid, port.lid),
                NodeKind::Ca => _ = lids.hosts.insert(port.guid, port.lid),
                NodeKind::Router | NodeKind::Other => {}
            }
        }
        if lids.switches.is_empty() && lids.hosts.is_empty() {
            return Err(failed("it lists no ports".to_owned()));
        }
        Ok(lids)
    }

    /// GUID of the port or switch that has this LID. `lmc` is that of the subnet.
    fn owner(&self, lid: u16, lmc: u8) -> Option<u64> {
        let size = 1_u32 << lmc;
        let of_host = |(guid, base): (&u64, &u16)| {
            let first = u32::from(*base);
            (first..first + size).contains(&u32::from(lid)).then_some(*guid)
        };
        let of_switch = |(guid, base): (&u64, &u16)| (*base == lid).then_some(*guid);
        self.hosts.iter().find_map(of_host).or_else(|| self.switches.iter().find_map(of_switch))
    }
}

/// LID of a leaf as its sink shows it, for sites where ibnetdiscover does not run: `ibstat` and
/// `ibtracert` on the sink, as a plan uses them. `None` if the sink is connected to another leaf.
pub(crate) fn leaf_lid_from_sink(
    config: &Config,
    sink: &str,
    leaf_guid: u64,
    runner: &dyn Runner,
) -> Result<Option<u16>, String> {
    let mut inventory = Inventory::default();
    let fabric = discover(config, &[sink.to_owned()], &mut inventory, runner).map_err(|error| error.to_string())?;
    Ok(fabric.ports.iter().find(|port| port.leaf_guid == leaf_guid && port.leaf_lid != 0).map(|port| port.leaf_lid))
}

/// A port whose LID differs from that of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MovedPort {
    /// GUID of the port.
    pub(crate) port_guid: u64,
    /// Its LID now; `None` if it is unknown.
    pub(crate) lid: Option<u16>,
    /// True if another port has a LID of the plan's port now: packets with this LID may be of either.
    pub(crate) is_ambiguous: bool,
}

/// Result of comparing the LIDs of a plan's ports with those of now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LidComparison {
    /// Ports with another LID, and ports whose old LID belongs to another port.
    pub(crate) moved: Vec<MovedPort>,
    /// Ports whose LID is unknown now, with the reason, one clause each.
    pub(crate) unknown: Vec<String>,
}

/// Compares the LIDs of ports with those of now. A port that the sweep does not list is in another
/// subnet or inactive: ibstat on its node shows its LID.
pub(crate) fn compare(config: &Config, ports: &[&NodePort], swept: &PresentLids, runner: &dyn Runner) -> LidComparison {
    let mut seen = BTreeSet::new();
    // Ethernet ports have no LID.
    let ports: Vec<&NodePort> =
        ports.iter().copied().filter(|port| port.lid != 0 && seen.insert(port.port_guid)).collect();
    let missing: BTreeSet<&str> =
        ports.iter().filter(|port| !swept.hosts.contains_key(&port.port_guid)).map(|port| port.node.as_str()).collect();
    let missing: Vec<&str> = missing.into_iter().collect();
    let asked: BTreeMap<&str, Result<BTreeMap<u64, u16>, String>> =
        remote::parallel(&missing, config.ssh.parallel as usize, |&node| {
            let found = nodes::query(config, node, false, runner).map_err(|error| error.to_string());
            let lids =
                found.map(|found| found.ports.iter().map(|port| (port.state.port_guid, port.state.base_lid)).collect());
            (node, lids)
        })
        .into_iter()
        .collect();
    let lid_now = |port: &NodePort| match (swept.hosts.get(&port.port_guid), asked.get(port.node.as_str())) {
        (Some(lid), _) => Some(*lid),
        (None, Some(Ok(lids))) => lids.get(&port.port_guid).copied(),
        (None, _) => None,
    };
    // Ports of other subnets, which may have the same LIDs as ports of the swept one.
    let mut elsewhere = PresentLids::default();
    let is_swept =
        |port: &NodePort| swept.hosts.contains_key(&port.port_guid) || swept.switches.contains_key(&port.leaf_guid);
    for port in ports.iter().filter(|port| !is_swept(port)) {
        elsewhere.hosts.extend(lid_now(port).map(|lid| (port.port_guid, lid)));
    }
    let mut comparison = LidComparison::default();
    for port in ports {
        let lid = lid_now(port);
        if lid == Some(port.lid) {
            continue;
        }
        if lid.is_none() {
            comparison.unknown.push(match asked.get(port.node.as_str()) {
                Some(Err(why)) => why.clone(),
                _ => format!("{} {} port {} is not active", port.node, port.ca, port.port),
            });
        }
        let others = if is_swept(port) { swept } else { &elsewhere };
        let last = port.lid.saturating_add((1 << port.lmc) - 1);
        let is_ambiguous =
            (port.lid..=last).any(|old| others.owner(old, port.lmc).is_some_and(|owner| owner != port.port_guid));
        if lid.is_some() || is_ambiguous {
            comparison.moved.push(MovedPort { port_guid: port.port_guid, lid, is_ambiguous });
        }
    }
    comparison
}
