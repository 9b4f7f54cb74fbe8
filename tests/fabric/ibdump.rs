//! The traffic of the lab: that of a recorded job on the LIDs of n001 to n004. What stands for ibdump captures at a node what comes by there: its own packets, and
//! those of ports that are mirrored to it.

use crate::lab::{FIRST_LID, Lab, NODES};
use crate::{mstreg, switch};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

pub(crate) const NAME: &str = "ibdump";

/// The one stand-in, which the orchestrator's own tests use too.
#[path = "../../orchestrator/examples/ibdump-standin.rs"]
mod program;

pub(crate) use program::main;

/// What goes wrong at a node, from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The adapter refuses. An empty file is left, as by ibdump.
    Start,
    /// It ends by itself.
    Die,
    /// SIGINT is ignored.
    DeafToInt,
    /// SIGINT and SIGTERM are ignored.
    Deaf,
}

impl Lab {
    /// Lays out the traffic of the sample, and who is at which port.
    pub(crate) fn traffic(&self, sample: &Path) {
        let packed = fs::read(sample).expect("sample");
        fs::write(self.path().join("traffic.pcap"), zstd::decode_all(&packed[..]).expect("zstd")).expect("traffic");
        let mut ports = String::new();
        for (index, node) in NODES.iter().enumerate() {
            let (leaf, port, _) = self.topology.place(node);
            let leaf = crate::topology::leaf_guid(leaf);
            writeln!(ports, "{node} {leaf:#018x} {port} {}", FIRST_LID + index as u16).expect("a string takes all");
        }
        fs::write(self.path().join("ports"), ports).expect("ports");
        deliver(self.path());
    }

    /// Lets something go wrong at a node, or nothing any more.
    pub(crate) fn ibdump_fault(&self, node: &str, fault: Option<Fault>) {
        let words = match fault {
            None => "",
            Some(Fault::Start) => "fail",
            Some(Fault::Die) => "die",
            Some(Fault::DeafToInt) => "deaf-int",
            Some(Fault::Deaf) => "deaf-int,deaf-term",
        };
        fs::write(self.path().join(format!("fault-{node}")), words).expect("fault");
    }
}

/// Variables by which the stand-in knows where it is, for the ssh server of a node.
pub(crate) fn variables(lab: &Path, node: &str) -> String {
    let lab = lab.display();
    format!(
        "IBDUMP_STANDIN_DEVICES=ibsim0 IBDUMP_STANDIN_PACKETS={lab}/traffic.pcap IBDUMP_STANDIN_SEEN={lab}/seen/{node} \
         IBDUMP_STANDIN_MODE_FILE={lab}/fault-{node}"
    )
}

/// Writes down which packets come by at each node: the switches call it after each change.
pub(crate) fn deliver(lab: &Path) {
    let rows = fs::read_to_string(lab.join("ports")).unwrap_or_default();
    let rows: Vec<Vec<&str>> = rows.lines().map(|row| row.split(' ').collect()).collect();
    let mut copies = mstreg::copies(lab);
    for (port, mirror) in switch::state(lab) {
        copies.extend(["sent", "received"].map(|way| switch::Copy { port, sink: mirror.sink, way }));
    }
    for own in &rows {
        let mut lines = format!("sent {0}\nreceived {0}\n", own[3]);
        for copy in &copies {
            let is_at = |row: &[&str], number: u8| {
                row[1] == format!("{:#018x}", copy.port.leaf) && row[2] == number.to_string()
            };
            let source = rows.iter().find(|row| is_at(row, copy.port.number));
            if let Some(source) = source.filter(|_| is_at(own, copy.sink)) {
                writeln!(lines, "{} {}", copy.way, source[3]).expect("a string takes all");
            }
        }
        // In one step, because captures read it all the time.
        let (new, file) = (lab.join(format!("seen/{}.new", own[0])), lab.join("seen").join(own[0]));
        fs::write(&new, lines).and_then(|()| fs::rename(&new, &file)).expect("what comes by");
    }
}
