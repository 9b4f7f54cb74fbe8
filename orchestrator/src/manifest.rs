//! The manifest of a run: which nodes and ports were captured where.
//!
//! Types only: nothing writes or reads manifests yet.

/// One port of a compute node whose traffic was mirrored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Host name of the node.
    pub node: String,
    /// GUID of the port.
    pub port_guid: u64,
    /// Base LID of the port.
    pub lid: u16,
    /// LID mask control: the port answers to `2^lmc` LIDs from the base LID on.
    pub lmc: u8,
    /// GUID of the leaf switch.
    pub leaf_guid: u64,
    /// Port of the leaf switch that the node is connected to.
    pub leaf_port: u8,
}

/// One capture that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Host name of the node that captured.
    pub sink: String,
    /// The file, as a path on the machine that analyses.
    pub file: String,
    /// Ports that were mirrored to the sink, by GUID.
    pub port_guids: Vec<u64>,
}

/// A run of the orchestrator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Slurm job id.
    pub job_id: u32,
    /// The job's ports.
    pub ports: Vec<Port>,
    /// The captures of their traffic.
    pub captures: Vec<Capture>,
}
