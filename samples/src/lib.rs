//! Synthetic captures of any size, of which it is known what they hold.
//!
//! [`generate`] streams a capture file into a writer and returns the totals per pair of endpoints. Memory does not grow
//! with the file: packets are rendered from templates whose CRCs are corrected for the fields that change. The same
//! [`Options`] give the same bytes.
//!
//! Two framings (native InfiniBand as ibdump writes it, and RoCEv2), two kinds of traffic over reliable connections,
//! once per packet or twice as at a mirror sink. Payloads carry no MPI envelope.

mod layout;
mod pattern;
mod random;
mod recorder;
mod template;
mod totals;
mod traffic;

use std::io::{self, Write};

pub use pattern::Pattern;
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
    /// Size of the file in bytes. No message is begun once those under way reach it, and every message is completed:
    /// the file is never shorter and less than 450 KB longer.
    pub bytes: u64,
    /// Number of endpoints, 2 to [`Options::MAX_LIDS`]. Native: LIDs 1 to N. RoCEv2: node n is 10.77.0.0 + n.
    pub lids: u16,
    /// How often each packet stands in the file: 1 (at its sender's port) or 2 (also at its receiver's port, after the
    /// transit time, so that packets of other connections come between).
    pub mirror: u8,
    /// Who sends to whom; without one, anyone to anyone.
    pub pattern: Option<Pattern>,
    /// Start of the random numbers.
    pub seed: u64,
}

impl Options {
    /// The last unicast LID is 0xBFFF.
    pub const MAX_LIDS: u16 = 0xBFFF;
    /// With a pattern every two nodes may be connected, so that memory grows with the square of their number.
    pub const MAX_LIDS_OF_A_PATTERN: u16 = 1024;

    /// Who sends to whom, where there is a pattern.
    fn directions(&self) -> io::Result<Option<Vec<(u16, u16)>>> {
        let Some(pattern) = self.pattern else { return Ok(None) };
        let refuse = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
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
        let refuse = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if !(2..=Self::MAX_LIDS).contains(&self.lids) {
            return refuse(format!("{} LIDs: 2 to {} are possible", self.lids, Self::MAX_LIDS));
        }
        if !(1..=2).contains(&self.mirror) {
            return refuse(format!("mirror {}: a packet can stand in the file 1 or 2 times", self.mirror));
        }
        self.directions()?;
        Ok(())
    }
}

/// Writes a capture to `out` and returns what it holds.
///
/// # Errors
///
/// `InvalidInput` for options out of range (nothing is written then), and whatever `out` returns.
pub fn generate(options: &Options, out: &mut impl Write) -> io::Result<Totals> {
    options.check()?;
    let layout = layout::Layout::new(options.framing, options.kind, options.seed)?;
    let mut recorder = recorder::Recorder::new(&layout, out);
    recorder.file_header();
    let traffic = traffic::Traffic::new(options, &layout)?;
    let pairs = traffic.run(|time_ns, packet| recorder.record(time_ns, packet))?;
    let (records, file_bytes) = recorder.finish()?;
    Ok(Totals { framing: options.framing, records, file_bytes, pairs })
}

#[cfg(test)]
mod tests;
