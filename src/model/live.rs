//! Intermediate sums of a running analysis.

use super::profile::{RetransmissionSums, Traffic};
use super::sampling::EstimateQuality;
use super::{Coverage, SampledSums, SizeCategory, SizeClass, SizeSums};
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
    /// Parameters that all estimates of a sampled input share.
    pub quality: EstimateQuality,
    /// The datagrams of an sFlow socket.
    pub sflow: Option<DatagramCounts>,
}

/// Datagrams that a socket received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramCounts {
    /// All of them.
    pub datagrams: u64,
    /// The number of these that are not sFlow version 5.
    pub other_datagrams: u64,
    /// Sequence numbers between those of received datagrams that none has.
    pub lost_datagrams: u64,
    /// Datagrams of agents beyond the bound, whose losses are not known.
    pub unnumbered_datagrams: u64,
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
    /// All observations, as the samples of a sampled input.
    pub sampled: SampledSums,
}

impl LivePair {
    /// A pair without traffic.
    #[must_use]
    pub fn new(src: Endpoint, dst: Endpoint) -> Self {
        Self {
            src,
            dst,
            traffic: Traffic::default(),
            retransmissions: RetransmissionSums::default(),
            sampled: SampledSums::default(),
        }
    }
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
