//! The partner of each queue pair: the other end of its connection.

use crate::model::{HashMap, QueuePair};

/// Kind of evidence for a pair of queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairEvidence {
    /// CM REQ and REP.
    Cm,
    /// Connection messages of both sides.
    ConnectionMessage,
    /// UCX wire-up request and reply.
    Wireup,
    /// Responses that return the number of a request.
    Echo,
    /// Responses with the PSNs of requests.
    Responses,
    /// The only connection in each direction.
    OnlyConnection,
}

impl PairEvidence {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cm => "cm",
            Self::ConnectionMessage => "connection_message",
            Self::Wireup => "wireup",
            Self::Echo => "echo",
            Self::Responses => "responses",
            Self::OnlyConnection => "only_connection",
        }
    }
}

/// Partners of queue pairs, in both directions.
#[derive(Clone, Debug, Default)]
pub struct QueuePairPartners {
    pub(super) partners: HashMap<QueuePair, (QueuePair, PairEvidence)>,
}

impl QueuePairPartners {
    /// The other end of a queue pair's connection, and the evidence.
    #[must_use]
    pub fn partner(&self, end: QueuePair) -> Option<(QueuePair, PairEvidence)> {
        self.partners.get(&end).copied()
    }

    /// Makes room for so many more pairs.
    pub(super) fn reserve(&mut self, pairs: usize) {
        self.partners.reserve(2 * pairs);
    }

    pub(super) fn pair(&mut self, a: QueuePair, b: QueuePair, evidence: PairEvidence) {
        if !self.partners.contains_key(&a) && !self.partners.contains_key(&b) {
            self.partners.insert(a, (b, evidence));
            self.partners.insert(b, (a, evidence));
        }
    }
}
