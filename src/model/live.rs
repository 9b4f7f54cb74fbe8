//! Intermediate sums of a running analysis.

use super::profile::{RetransmissionSums, Traffic};
use super::{Coverage, SizeCategory, SizeClass, SizeSums};
use ibscope_parsers::Endpoint;

/// Sums of one input so far, without MPI messages: their library is decided at the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveSums {
    /// Counts of the records read so far.
    pub coverage: Coverage,
    /// Connections that carry data.
    pub connections: u64,
    /// Sums by pair of endpoints, sorted.
    pub pairs: Vec<LivePair>,
    /// Sizes of packets and transport messages, sorted by category and class.
    pub sizes: Vec<((SizeCategory, SizeClass), SizeSums)>,
}

/// Traffic from one endpoint to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivePair {
    /// Sender.
    pub src: Endpoint,
    /// Receiver.
    pub dst: Endpoint,
    /// All traffic.
    pub traffic: Traffic,
    /// Its retransmissions.
    pub retransmissions: RetransmissionSums,
}

impl LiveSums {
    /// Sum over all pairs.
    #[must_use]
    pub fn total(&self) -> (Traffic, RetransmissionSums) {
        let mut total = (Traffic::default(), RetransmissionSums::default());
        for pair in &self.pairs {
            total.0 += pair.traffic;
            total.1 += pair.retransmissions;
        }
        total
    }
}
