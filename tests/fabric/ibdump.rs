//! The traffic of the lab: a recorded job on the LIDs of n001 to n004. The stand-in for ibdump
//! captures the packets that pass its node: the node's own, and those of ports that are mirrored to
//! it.

use crate::lab::{FIRST_LID, HookLab, NODES};
use crate::{mstreg, switch};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

pub(crate) const NAME: &str = "ibdump";

/// The same stand-in that the tests of the orchestrator use.
#[path = "../../orchestrator/examples/ibdump-standin.rs"]
mod program;

pub(crate) use program::main;

/// Fault of ibdump at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IbdumpFault {
    /// The adapter refuses. An empty file is left, as by ibdump.
    Start,
    /// ibdump prints that it is ready, and ends at once.
    Flash,
    /// ibdump ends by itself.
    Die,
    /// ibdump ignores SIGINT.
    DeafToInt,
    /// ibdump ignores SIGINT and SIGTERM.
    Deaf,
}

impl HookLab {
    /// Writes the traffic of the sample, of which sinks capture nothing without a table of ports.
    pub(crate) fn traffic_of_sinks(&self, sample: &Path) {
        let packed = fs::read(sample).expect("sample");
        fs::write(self.path().join("traffic.pcap"), zstd::decode_all(&packed[..]).expect("zstd")).expect("traffic");
    }

    /// Writes the traffic of the sample, and the table of nodes and ports.
    pub(crate) fn traffic(&self, sample: &Path) {
        self.traffic_of_sinks(sample);
        let mut ports = String::new();
        for (index, node) in NODES.iter().enumerate() {
            let (leaf, port, _) = self.topology.place(node);
            let leaf = crate::topology::leaf_guid(leaf);
            writeln!(ports, "{node} {leaf:#018x} {port} {}", FIRST_LID + index as u16).expect("a string takes all");
        }
        fs::write(self.path().join("ports"), ports).expect("ports");
        deliver(self.path());
    }

    /// Sets the fault of ibdump at a node; `None` clears it.
    pub(crate) fn ibdump_fault(&self, node: &str, fault: Option<IbdumpFault>) {
        let words = match fault {
            None => "",
            Some(IbdumpFault::Start) => "fail",
            Some(IbdumpFault::Flash) => "flash",
            Some(IbdumpFault::Die) => "die",
            Some(IbdumpFault::DeafToInt) => "deaf-int",
            Some(IbdumpFault::Deaf) => "deaf-int,deaf-term",
        };
        fs::write(self.path().join(format!("fault-{node}")), words).expect("fault");
    }
}

/// Environment variables of the stand-in, for the ssh server of a node.
pub(crate) fn variables(lab: &Path, node: &str) -> String {
    let lab = lab.display();
    format!(
        "IBDUMP_STANDIN_DEVICES=ibsim0 IBDUMP_STANDIN_PACKETS={lab}/traffic.pcap IBDUMP_STANDIN_SEEN={lab}/seen/{node} \
         IBDUMP_STANDIN_MODE_FILE={lab}/fault-{node}"
    )
}

/// Writes for each node which packets pass it. The switches call this function after each change.
pub(crate) fn deliver(lab: &Path) {
    let rows = fs::read_to_string(lab.join("ports")).unwrap_or_default();
    let rows: Vec<Vec<&str>> = rows.lines().map(|row| row.split(' ').collect()).collect();
    let mut mirrored = mstreg::copies(lab);
    for (port, mirror) in switch::state(lab) {
        mirrored.extend(["sent", "received"].map(|way| switch::CopiedTraffic { port, sink: mirror.sink, way }));
    }
    for own in &rows {
        let mut lines = format!("sent {0}\nreceived {0}\n", own[3]);
        for copy in &mirrored {
            let is_at = |row: &[&str], number: u8| {
                row[1] == format!("{:#018x}", copy.port.leaf) && row[2] == number.to_string()
            };
            let source = rows.iter().find(|row| is_at(row, copy.port.number));
            if let Some(source) = source.filter(|_| is_at(own, copy.sink)) {
                writeln!(lines, "{} {}", copy.way, source[3]).expect("a string takes all");
            }
        }
        // Replaced atomically, because captures read it all the time.
        let (new, file) = (lab.join(format!("seen/{}.new", own[0])), lab.join("seen").join(own[0]));
        fs::write(&new, lines).and_then(|()| fs::rename(&new, &file)).expect("the selection of packets");
    }
}
