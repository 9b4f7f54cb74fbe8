//! An analysis that has not ended: what it has counted so far.

use super::profile::{Repeats, Traffic};
use super::{Coverage, SizeClass, SizeOf, SizeSums};
use ibscope_parsers::Endpoint;

/// Sums so far, of one input. MPI messages are not in it: which library sent them is weighed at the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    /// What was read, and what of it was understood.
    pub coverage: Coverage,
    /// Connections that carry data.
    pub connections: u64,
    /// Sums by pair of endpoints, sorted by them.
    pub pairs: Vec<LivePair>,
    /// Sizes of packets and of messages of the transport, sorted by what they are of and by class.
    pub sizes: Vec<((SizeOf, SizeClass), SizeSums)>,
}

/// What one endpoint has sent to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivePair {
    /// Sender.
    pub src: Endpoint,
    /// Receiver.
    pub dst: Endpoint,
    /// The sums.
    pub traffic: Traffic,
    /// What of them was sent again.
    pub repeats: Repeats,
}

impl Live {
    /// All pairs together.
    #[must_use]
    pub fn total(&self) -> (Traffic, Repeats) {
        let mut total = (Traffic::default(), Repeats::default());
        for pair in &self.pairs {
            total.0 += pair.traffic;
            total.1 += pair.repeats;
        }
        total
    }
}
