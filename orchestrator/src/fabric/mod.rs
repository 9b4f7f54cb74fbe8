//! Where the nodes of a job are in the fabric: the adapters, LIDs and states of their ports, and the leaf switch and port that each is connected to.

use serde::{Deserialize, Serialize};

/// A port of a node that is in use, and the switch port that it is connected to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePort {
    /// Name of the node as Slurm has it.
    pub node: String,
    /// Name of the adapter, such as `mlx5_0`.
    pub ca: String,
    /// Number of the adapter's port, from 1.
    pub port: u8,
    /// GUID of the port.
    pub port_guid: u64,
    /// First LID.
    pub lid: u16,
    /// LID mask control: the port answers to `2^lmc` LIDs from the first on.
    pub lmc: u8,
    /// Rate of the port.
    pub rate_gbits: f64,
    /// GUID of the leaf switch.
    pub leaf_guid: u64,
    /// LID of the leaf switch.
    pub leaf_lid: u16,
    /// Port of the leaf switch that the node is connected to.
    pub leaf_port: u8,
}

/// The ports of the nodes that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fabric {
    /// Ports in use, in the order of the nodes, then of adapters and ports.
    pub ports: Vec<NodePort>,
    /// Where `ibnetdiscover`, `ibtracert` and `ibstat` do not say the same, a sentence each.
    pub disagreements: Vec<String>,
    /// Ports that were left out and why, a sentence each: not active, no InfiniBand.
    pub left_out: Vec<String>,
}
