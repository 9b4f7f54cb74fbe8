//! What a generated capture holds, known while it is written.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::Framing;

/// Traffic of one ordered pair of endpoints, source to destination. Mirror copies count once; there are no management packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairTotals {
    /// Transport messages started by the source: SENDs, RDMA WRITEs and datagrams, counted by their Last or Only packet. What introduces
    /// connections is counted too.
    pub messages: u64,
    /// Bytes after BTH and extension headers, without pad and ICRC; of what was sent again, once.
    pub payload_bytes: u64,
    /// Native: LRH through VCRC. RoCEv2: the whole Ethernet frame (without its FCS, which no capture holds).
    pub wire_bytes: u64,
    /// Requests, ACKs and NAKs that went from the source to the destination, each as often as it was sent.
    pub packets: u64,
    /// Those of the packets that had been sent before.
    pub repeats: u64,
    /// MPI messages from the rank on the source to that on the destination.
    pub mpi_messages: u64,
    /// Their length without envelopes.
    pub mpi_bytes: u64,
}

/// Everything that is known of a generated capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// How endpoints are written.
    pub framing: Framing,
    /// Records in all files, mirror copies included.
    pub records: u64,
    /// Size of all files in bytes.
    pub file_bytes: u64,
    /// Per (source, destination), both as node numbers from 1: the LID, or the low 16 bits of the IPv4 address. Pairs
    /// without traffic are left out.
    pub pairs: BTreeMap<(u16, u16), PairTotals>,
}

impl Totals {
    /// The endpoint as it is written in tables: the LID in decimal, or the IPv4 address.
    pub fn endpoint(&self, node: u16) -> String {
        match self.framing {
            Framing::Native => node.to_string(),
            Framing::Roce => format!("10.77.{}.{}", node >> 8, node & 0xFF),
        }
    }

    /// Writes `src,dst,messages,payload_bytes,wire_bytes,packets,repeats`, sorted by source and destination as numbers.
    pub fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "src,dst,messages,payload_bytes,wire_bytes,packets,repeats")?;
        for (&(src, dst), pair) in &self.pairs {
            let (src, dst) = (self.endpoint(src), self.endpoint(dst));
            let PairTotals { messages, payload_bytes, wire_bytes, packets, repeats, .. } = pair;
            writeln!(out, "{src},{dst},{messages},{payload_bytes},{wire_bytes},{packets},{repeats}")?;
        }
        out.flush()
    }

    /// Writes `src,dst,messages,bytes`: the MPI messages from rank to rank, sorted as numbers. Rank r is on node r + 1; a pair without
    /// messages is left out.
    pub fn write_ranks_csv(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "src,dst,messages,bytes")?;
        for (&(src, dst), pair) in self.pairs.iter().filter(|(_, pair)| pair.mpi_messages > 0) {
            writeln!(out, "{},{},{},{}", src - 1, dst - 1, pair.mpi_messages, pair.mpi_bytes)?;
        }
        out.flush()
    }
}
