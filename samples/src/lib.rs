//! Synthetic captures of any size, of which it is known what they hold.
//!
//! [`generate`] streams a capture file into a writer ([`generate_at_sinks`]: several) and returns the totals per pair of endpoints. Memory
//! does not grow with the file: packets are rendered from templates whose CRCs are corrected for the fields that change. The same
//! [`Options`] give the same bytes.
//!
//! Two framings (native InfiniBand as ibdump writes it, and RoCEv2), two kinds of traffic over reliable connections with or without the
//! envelopes of an MPI library, once per packet or twice as at a mirror sink, with or without loss.

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

use std::io::{self, Write};

pub use pattern::Pattern;
pub use random::Random;
pub use stack::Stack;
pub use totals::{PairTotals, Totals};

/// How packets are framed in the capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Framing {
    /// Native InfiniBand in ibdump's layout: classic pcap in microseconds, link type 197, ERF type 21, LRH to VCRC.
    Native,
    /// RoCEv2 over IPv4: classic pcap in nanoseconds, Ethernet, UDP port 4791.
    Roce,
}

/// What kind of traffic the capture holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Kind {
    /// SEND Only messages of 66 to 126 bytes on the wire, acknowledged in groups of one to four (an ACK has 30 bytes on
    /// native InfiniBand and 62 on RoCEv2).
    Small,
    /// RDMA WRITE messages of 6 to 48 packets of 4 KiB, one ACK for every three packets.
    Big,
}

/// What to generate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How packets are framed.
    pub framing: Framing,
    /// What traffic.
    pub kind: Kind,
    /// Size of the file in bytes, or of all files together. No message is begun once those under way reach it, and every message is
    /// completed: the file is never shorter, and without loss less than 450 KB longer.
    pub bytes: u64,
    /// Number of endpoints, 2 to [`Options::MAX_LIDS`]. Native: LIDs 1 to N. RoCEv2: node n is 10.77.0.0 + n.
    pub lids: u16,
    /// How often each packet stands in the file: 1 (at its sender's port) or 2 (also at its receiver's port, after the
    /// transit time, so that packets of other connections come between).
    pub mirror: u8,
    /// Who sends to whom; without one, anyone to anyone.
    pub pattern: Option<Pattern>,
    /// Whose envelopes the messages carry. Rank r is on node r + 1.
    pub stack: Stack,
    /// Requests that the receiver loses, of a million.
    pub loss_ppm: u32,
    /// Captures: node n is at sink (n - 1) S / N of S, so that each has a block of nodes as a leaf switch has.
    pub sinks: u16,
    /// Bytes of a packet that are captured, at most; on native InfiniBand 16 of them are the ERF header.
    pub snaplen: u32,
    /// Queue pairs that each two connected nodes have at either end.
    pub qps: u32,
    /// Start of the random numbers.
    pub seed: u64,
}

impl Default for Options {
    /// Four LIDs, SENDs on native InfiniBand without envelopes, everything once and whole, nothing lost. The size is 0.
    fn default() -> Self {
        Self {
            framing: Framing::Native,
            kind: Kind::Small,
            bytes: 0,
            lids: 4,
            mirror: 1,
            pattern: None,
            stack: Stack::None,
            loss_ppm: 0,
            sinks: 1,
            snaplen: 0xFFFF,
            qps: 3,
            seed: 0,
        }
    }
}

impl Options {
    /// The last unicast LID is 0xBFFF.
    pub const MAX_LIDS: u16 = 0xBFFF;
    /// With a pattern every two nodes may be connected, so that memory grows with the square of their number.
    pub const MAX_LIDS_OF_A_PATTERN: u16 = 1024;
    /// Connections take 24 bytes of memory each, 400 MB of so many; every two connected nodes take up to 400 bytes besides, totals included.
    pub const MAX_CONNECTIONS: u64 = 1 << 24;
    /// A process of an MPI library has no more queue pairs for one peer.
    pub const MAX_QPS_OF_A_STACK: u32 = 16;
    /// Half of all requests: at more than that go-back-N hardly advances.
    pub const MAX_LOSS_PPM: u32 = 500_000;
    /// What a record keeps at least: the headers through BTH.
    pub const MIN_SNAPLEN: u32 = 64;

    /// Who sends to whom, where there is a pattern.
    fn directions(&self) -> io::Result<Option<Vec<(u16, u16)>>> {
        let Some(pattern) = self.pattern else { return Ok(None) };
        if self.lids > Self::MAX_LIDS_OF_A_PATTERN {
            return Err(refuse(format!(
                "{} LIDs: a pattern can have at most {}",
                self.lids,
                Self::MAX_LIDS_OF_A_PATTERN
            )));
        }
        let directions = pattern.directions(self.lids, self.seed);
        directions.map(Some).ok_or_else(|| {
            refuse(format!("{} LIDs make no {pattern:?}: choose a number with more divisors", self.lids))
        })
    }

    fn check(&self) -> io::Result<()> {
        let refuse = |text: String| Err(refuse(text));
        if !(2..=Self::MAX_LIDS).contains(&self.lids) {
            return refuse(format!("{} LIDs: 2 to {} are possible", self.lids, Self::MAX_LIDS));
        }
        if !(1..=2).contains(&self.mirror) {
            return refuse(format!("mirror {}: a packet can stand in the file 1 or 2 times", self.mirror));
        }
        if self.loss_ppm > Self::MAX_LOSS_PPM {
            return refuse(format!(
                "loss of {} in a million: at most {} are possible",
                self.loss_ppm,
                Self::MAX_LOSS_PPM
            ));
        }
        if self.sinks == 0 || self.sinks > self.lids {
            return refuse(format!("{} sinks: 1 to {} are possible, one per endpoint", self.sinks, self.lids));
        }
        if self.snaplen < Self::MIN_SNAPLEN {
            return refuse(format!("snaplen {}: at least {}", self.snaplen, Self::MIN_SNAPLEN));
        }
        if self.qps == 0 || self.stack != Stack::None && self.qps > Self::MAX_QPS_OF_A_STACK {
            let most = Self::MAX_QPS_OF_A_STACK;
            return refuse(format!(
                "{} queue pairs per pair of ports: at least 1, at most {most} with a stack",
                self.qps
            ));
        }
        Ok(())
    }

    /// Which sink captures the packets that pass the node's port.
    fn sink(&self, node: u16) -> u16 {
        (u32::from(node - 1) * u32::from(self.sinks) / u32::from(self.lids)) as u16
    }
}

fn refuse(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Writes a capture to `out` and returns what it holds.
///
/// # Errors
///
/// `InvalidInput` for options out of range (nothing is written then), and whatever `out` returns.
pub fn generate(options: &Options, out: &mut impl Write) -> io::Result<Totals> {
    generate_at_sinks(options, std::slice::from_mut(out))
}

/// Writes the capture of each sink to one of `outs` and returns what they hold together.
///
/// A packet stands in the capture of its sender's port, and in that of its receiver's port if this is another sink or if mirror is 2.
///
/// # Errors
///
/// `InvalidInput` for options out of range or another number of writers than of sinks (nothing is written then), and whatever a writer
/// returns.
pub fn generate_at_sinks<W: Write>(options: &Options, outs: &mut [W]) -> io::Result<Totals> {
    options.check()?;
    if outs.len() != usize::from(options.sinks) {
        return Err(refuse(format!("{} sinks, but {} files", options.sinks, outs.len())));
    }
    let layout = layout::Layout::new(options)?;
    let traffic = traffic::Traffic::new(options, &layout)?;
    let mut recorders: Vec<_> = outs.iter_mut().map(|out| recorder::Recorder::new(&layout, out)).collect();
    recorders.iter_mut().for_each(recorder::Recorder::file_header);
    let pairs = traffic.run(|time_ns, sink, packet| recorders[usize::from(sink)].record(time_ns, packet))?;
    let (mut records, mut file_bytes) = (0, 0);
    for recorder in recorders {
        let (written, bytes) = recorder.finish()?;
        records += written;
        file_bytes += bytes;
    }
    Ok(Totals { framing: options.framing, records, file_bytes, pairs })
}

#[cfg(test)]
mod tests;
