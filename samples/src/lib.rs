//! Synthetic captures of any size with exactly known contents.
//!
//! [`generate`] streams a capture file into a writer ([`generate_at_sinks`]: into several) and
//! returns the totals per pair of endpoints. Packets are rendered from templates whose CRCs are
//! corrected for the fields that change, so memory does not grow with the file. Invariant: the same
//! [`SampleOptions`] give the same bytes.
//!
//! The options choose the framing (native InfiniBand in ibdump's format, or RoCEv2), the kind of
//! traffic over reliable connections, the envelopes of an MPI library, one or two mirror copies per
//! packet, and the loss.

mod connections;
pub mod crafted;
mod delivery;
mod events;
pub mod hard;
mod layout;
mod pattern;
mod random;
mod recorder;
mod request;
mod stack;
mod template;
mod totals;
mod traffic;
pub mod wrap;

use std::io::{self, Write};

pub use pattern::TrafficPattern;
pub use random::Random;
pub use stack::SampleStack;
pub use totals::{PairTotals, SampleTotals};

/// Framing of the packets in the capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum SampleFraming {
    /// Native InfiniBand in ibdump's format: classic pcap in microseconds, link type 197, ERF type
    /// 21, LRH to VCRC.
    Native,
    /// RoCEv2 over IPv4: classic pcap in nanoseconds, Ethernet, UDP port 4791.
    Roce,
}

/// Kind of traffic in the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum SampleKind {
    /// SEND Only messages of 66 to 126 bytes on the wire, acknowledged in groups of one to four (an
    /// ACK has 30 bytes on native InfiniBand and 62 on RoCEv2).
    Small,
    /// RDMA WRITE messages of 6 to 48 packets of 4 KiB, one ACK per three packets.
    Big,
}

/// Options of a synthetic capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleOptions {
    /// Framing of the packets.
    pub framing: SampleFraming,
    /// Kind of traffic.
    pub kind: SampleKind,
    /// Size of the file, or of all files together, in bytes. No message starts once the messages in
    /// flight reach this size, and every message is completed: the file is never shorter and,
    /// without loss, less than 450 KB longer.
    pub bytes: u64,
    /// Number of endpoints, 2 to [`SampleOptions::MAX_LIDS`]. Native: LIDs 1 to N. RoCEv2: node n
    /// is 10.77.0.0 + n.
    pub lids: u16,
    /// Records per packet: 1 (at its sender's port) or 2 (also at its receiver's port, after the
    /// transit time, so that packets of other connections come in between).
    pub mirror: u8,
    /// Senders and receivers; without a pattern, any node sends to any other.
    pub pattern: Option<TrafficPattern>,
    /// MPI library whose envelopes the messages carry. Rank r is on node r + 1.
    pub stack: SampleStack,
    /// Requests per million that the receiver loses.
    pub loss_ppm: u32,
    /// Number of captures. Node n is at sink (n - 1) S / N of S, so each sink has a block of nodes,
    /// like a leaf switch.
    pub sinks: u16,
    /// Snap length in bytes; on native InfiniBand it includes the 16 bytes of ERF header.
    pub snaplen: u32,
    /// Queue pairs per pair of connected nodes, at either end.
    pub qps: u32,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for SampleOptions {
    /// Four LIDs, SENDs on native InfiniBand without envelopes, no mirror copies, no truncation, no
    /// loss. The size is 0.
    fn default() -> Self {
        Self {
            framing: SampleFraming::Native,
            kind: SampleKind::Small,
            bytes: 0,
            lids: 4,
            mirror: 1,
            pattern: None,
            stack: SampleStack::None,
            loss_ppm: 0,
            sinks: 1,
            snaplen: 0xFFFF,
            qps: 3,
            seed: 0,
        }
    }
}

impl SampleOptions {
    /// Last unicast LID: 0xBFFF.
    pub const MAX_LIDS: u16 = 0xBFFF;
    /// Limit with a pattern, which may connect every two nodes: memory grows with the square of
    /// their number.
    pub const MAX_LIDS_OF_A_PATTERN: u16 = 1024;
    /// Limit of connections. Each takes 24 bytes of memory, 400 MB at the limit; each pair of
    /// connected nodes takes up to 400 bytes more, totals included.
    pub const MAX_CONNECTIONS: u64 = 1 << 24;
    /// Limit of queue pairs per peer with a stack, as in a process of an MPI library.
    pub const MAX_QPS_OF_A_STACK: u32 = 16;
    /// Limit of the loss, half of all requests: above it go-back-N hardly advances.
    pub const MAX_LOSS_PPM: u32 = 500_000;
    /// Minimum snap length: the headers through BTH.
    pub const MIN_SNAPLEN: u32 = 64;

    /// Pairs of sender and receiver; `None` without a pattern.
    fn directions(&self) -> io::Result<Option<Vec<(u16, u16)>>> {
        let Some(pattern) = self.pattern else { return Ok(None) };
        if self.lids > Self::MAX_LIDS_OF_A_PATTERN {
            return Err(invalid_option(format!(
                "{} LIDs: a pattern supports at most {}",
                self.lids,
                Self::MAX_LIDS_OF_A_PATTERN
            )));
        }
        let directions = pattern.directions(self.lids, self.seed);
        directions.map(Some).ok_or_else(|| {
            invalid_option(format!(
                "{} LIDs do not form a {pattern:?} grid: choose a number with more divisors",
                self.lids
            ))
        })
    }

    fn check(&self) -> io::Result<()> {
        let refuse = |text: String| Err(invalid_option(text));
        if !(2..=Self::MAX_LIDS).contains(&self.lids) {
            return refuse(format!("{} LIDs: expected 2 to {}", self.lids, Self::MAX_LIDS));
        }
        if !(1..=2).contains(&self.mirror) {
            return refuse(format!("mirror {}: expected 1 or 2 records per packet", self.mirror));
        }
        if self.loss_ppm > Self::MAX_LOSS_PPM {
            return refuse(format!("loss of {} per million: expected at most {}", self.loss_ppm, Self::MAX_LOSS_PPM));
        }
        if self.sinks == 0 || self.sinks > self.lids {
            return refuse(format!("{} sinks: expected 1 to {}, at most one per endpoint", self.sinks, self.lids));
        }
        if self.snaplen < Self::MIN_SNAPLEN {
            return refuse(format!("snaplen {}: expected at least {}", self.snaplen, Self::MIN_SNAPLEN));
        }
        if self.qps == 0 || self.stack != SampleStack::None && self.qps > Self::MAX_QPS_OF_A_STACK {
            let most = Self::MAX_QPS_OF_A_STACK;
            return refuse(format!(
                "{} queue pairs per pair of ports: expected at least 1, and at most {most} with a stack",
                self.qps
            ));
        }
        Ok(())
    }

    /// Sink that captures the packets at the node's port.
    fn sink(&self, node: u16) -> u16 {
        (u32::from(node - 1) * u32::from(self.sinks) / u32::from(self.lids)) as u16
    }
}

fn invalid_option(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Writes a capture to `out` and returns its totals.
///
/// # Errors
///
/// `InvalidInput` for options out of range (before anything is written), and any error of `out`.
pub fn generate(options: &SampleOptions, out: &mut impl Write) -> io::Result<SampleTotals> {
    generate_at_sinks(options, std::slice::from_mut(out))
}

/// Writes the capture of each sink to one of `outs` and returns their joint totals.
///
/// A packet is recorded at its sender's sink, and at its receiver's sink if that is a different one
/// or if `mirror` is 2.
///
/// # Errors
///
/// `InvalidInput` for options out of range or if `outs` does not have one writer per sink (before
/// anything is written), and any error of a writer.
pub fn generate_at_sinks<W: Write>(options: &SampleOptions, outs: &mut [W]) -> io::Result<SampleTotals> {
    options.check()?;
    if outs.len() != usize::from(options.sinks) {
        return Err(invalid_option(format!("{} sinks need as many files, got {}", options.sinks, outs.len())));
    }
    let layout = layout::SampleLayout::new(options)?;
    let traffic = traffic::TrafficGenerator::new(options, &layout)?;
    let mut recorders: Vec<_> = outs.iter_mut().map(|out| recorder::PcapWriter::new(&layout, out)).collect();
    recorders.iter_mut().for_each(recorder::PcapWriter::file_header);
    let pairs = traffic.run(|time_ns, sink, packet| recorders[usize::from(sink)].record(time_ns, packet))?;
    let (mut records, mut file_bytes) = (0, 0);
    for recorder in recorders {
        let (written, bytes) = recorder.finish()?;
        records += written;
        file_bytes += bytes;
    }
    Ok(SampleTotals { framing: options.framing, records, file_bytes, pairs })
}

#[cfg(test)]
mod tests;
