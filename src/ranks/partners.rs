//! Queue pairs and their partners at the other end.

use crate::model::{HashMap, QueuePair};

/// How a pair was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// CM REQ and REP.
    Cm,
    /// Introductions of both sides.
    Introduction,
    /// UCX wire-up request and reply.
    Wireup,
    /// Answers that repeat the number of a request.
    Echo,
    /// Answers with the PSN of requests.
    Answers,
    /// It is the only connection each way.
    Alone,
}

impl Evidence {
    /// The name used in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cm => "cm",
            Self::Introduction => "introduction",
            Self::Wireup => "wireup",
            Self::Echo => "echo",
            Self::Answers => "answers",
            Self::Alone => "alone",
        }
    }
}

/// Queue pairs and their partners, both ways round.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    pub(super) partners: HashMap<QueuePair, (QueuePair, Evidence)>,
}

impl Pairs {
    /// The other end of a connection.
    #[must_use]
    pub fn partner(&self, end: QueuePair) -> Option<(QueuePair, Evidence)> {
        self.partners.get(&end).copied()
    }

    pub(super) fn pair(&mut self, a: QueuePair, b: QueuePair, evidence: Evidence) {
        if !self.partners.contains_key(&a) && !self.partners.contains_key(&b) {
            self.partners.insert(a, (b, evidence));
            self.partners.insert(b, (a, evidence));
        }
    }
}
