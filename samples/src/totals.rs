//! Contents of a generated capture, counted while it is written.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::SampleFraming;

/// Traffic of one ordered pair of endpoints, source to destination. Mirror copies count once; there
/// are no management packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairTotals {
    /// Transport messages started by the source: SENDs, RDMA WRITEs and datagrams, counted by their
    /// Last or Only packet, connection messages included.
    pub messages: u64,
    /// Bytes after BTH and extension headers, without pad, ICRC and retransmissions.
    pub payload_bytes: u64,
    /// Native: LRH through VCRC. RoCEv2: the whole Ethernet frame without FCS, which no capture
    /// holds.
    pub wire_bytes: u64,
    /// Requests, ACKs and NAKs from the source to the destination, retransmissions included.
    pub packets: u64,
    /// Retransmitted packets.
    pub retransmissions: u64,
    /// MPI messages from the source's rank to the destination's rank.
    pub mpi_messages: u64,
    /// Length of these MPI messages in bytes, without envelopes.
    pub mpi_bytes: u64,
}

/// Contents of a generated capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleTotals {
    /// Framing of the capture; determines how endpoints are printed.
    pub framing: SampleFraming,
    /// Records in all files, mirror copies included.
    pub records: u64,
    /// Size of all files in bytes.
    pub file_bytes: u64,
    /// Totals per (source, destination). Both are node numbers from 1: the LID, or the low 16 bits
    /// of the IPv4 address. Pairs without traffic are left out.
    pub pairs: BTreeMap<(u16, u16), PairTotals>,
}

impl SampleTotals {
    /// Endpoint as printed in tables: the LID in decimal, or the IPv4 address.
    pub fn endpoint(&self, node: u16) -> String {
        match self.framing {
            SampleFraming::Native => node.to_string(),
            SampleFraming::Roce => format!("10.77.{}.{}", node >> 8, node & 0xFF),
        }
    }

    /// Writes `src,dst,messages,payload_bytes,wire_bytes,packets,retransmitted_packets`, sorted by
    /// source and destination as numbers.
    pub fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "src,dst,messages,payload_bytes,wire_bytes,packets,retransmitted_packets")?;
        for (&(src, dst), pair) in &self.pairs {
            let (src, dst) = (self.endpoint(src), self.endpoint(dst));
            let PairTotals { messages, payload_bytes, wire_bytes, packets, retransmissions, .. } = pair;
            writeln!(out, "{src},{dst},{messages},{payload_bytes},{wire_bytes},{packets},{retransmissions}")?;
        }
        out.flush()
    }

    /// Writes `src,dst,messages,bytes`: the MPI messages per pair of ranks, sorted as numbers. Rank
    /// r is on node r + 1; pairs without messages are left out.
    pub fn write_ranks_csv(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "src,dst,messages,bytes")?;
        for (&(src, dst), pair) in self.pairs.iter().filter(|(_, pair)| pair.mpi_messages > 0) {
            writeln!(out, "{},{},{},{}", src - 1, dst - 1, pair.mpi_messages, pair.mpi_bytes)?;
        }
        out.flush()
    }
}
