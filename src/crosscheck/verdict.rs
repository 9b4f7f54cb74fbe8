//! The verdicts of comparisons, and the causes of differences.

use serde::Serialize;

/// The verdict on a pair of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CrosscheckVerdict {
    /// Messages and bytes are the same.
    Equal,
    /// Messages or bytes differ, for known causes.
    Explained,
    /// Messages and bytes differ by no more than the tolerance.
    Tolerated,
    /// Messages or bytes differ, for no known cause.
    Unexplained,
}

impl CrosscheckVerdict {
    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Explained => "explained",
            Self::Tolerated => "tolerated",
            Self::Unexplained => "unexplained",
        }
    }
}

/// A cause of a difference, or of a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Both ranks run on one node: their messages never reach the wire.
    SameNode,
    /// The tracer's own messages, which are not in its trace.
    Tracer,
    /// The messages were sent before the capture began, or after it ended.
    OutsideCapture,
    /// The capture lost packets of the pair: PSNs are missing between captured ones.
    Lost,
    /// The capture does not show the lengths of the messages, because their headers are truncated or some
    /// of their packets are missing; or the counts in the receiver's ACKs show that it does not hold them.
    Incomplete,
    /// Retransmitted packets. They belong to no message, unless so many packets were lost before
    /// that they could not be distinguished from new ones.
    Retransmission,
    /// No packet between the two ranks was captured, because their ports were not captured.
    NotCaptured,
    /// The messages are on the wire, from this sender to a queue pair whose rank is not identified.
    ReceiverNotIdentified,
    /// The messages are on the wire, to this receiver from a queue pair whose rank is not
    /// identified.
    SenderNotIdentified,
    /// Received bytes that a profile of sums does not distinguish from bytes of nonblocking
    /// collectives.
    Nonblocking,
}

/// Text for pairs of ranks that share a node.
pub(super) const NOT_ON_WIRE: &str = "not on the wire (same node)";

impl Cause {
    /// All causes.
    pub const ALL: [Self; 10] = [
        Self::SameNode,
        Self::Tracer,
        Self::OutsideCapture,
        Self::Lost,
        Self::Incomplete,
        Self::Retransmission,
        Self::NotCaptured,
        Self::ReceiverNotIdentified,
        Self::SenderNotIdentified,
        Self::Nonblocking,
    ];

    /// True if a rank of the messages is not identified on the wire.
    #[must_use]
    pub const fn is_not_identified(self) -> bool {
        matches!(self, Self::ReceiverNotIdentified | Self::SenderNotIdentified)
    }

    /// Description for outputs.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::SameNode => NOT_ON_WIRE,
            Self::Tracer => "tracer's own messages",
            Self::OutsideCapture => "before or after the capture",
            Self::Lost => "lost in the capture",
            Self::Incomplete => "incomplete in the capture",
            Self::Retransmission => "retransmission",
            Self::NotCaptured => "not captured",
            Self::ReceiverNotIdentified => "receiver not identified",
            Self::SenderNotIdentified => "sender not identified",
            Self::Nonblocking => "nonblocking collectives",
        }
    }
}

/// The outcome of a pair as one word: its verdict, with the two most important explanations named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CrosscheckOutcome {
    /// [`CrosscheckVerdict::Equal`].
    Equal,
    /// [`CrosscheckVerdict::Explained`] by both ranks being on one node.
    SameNode,
    /// [`CrosscheckVerdict::Explained`] by any other cause.
    Explained,
    /// [`CrosscheckVerdict::Explained`] by messages whose sender or receiver is not identified.
    NotIdentified,
    /// [`CrosscheckVerdict::Tolerated`].
    Tolerated,
    /// [`CrosscheckVerdict::Unexplained`].
    Unexplained,
}

impl CrosscheckOutcome {
    /// All outcomes, the best first.
    pub const ALL: [Self; 6] =
        [Self::Equal, Self::SameNode, Self::Explained, Self::NotIdentified, Self::Tolerated, Self::Unexplained];

    /// The outcome of a verdict with its causes.
    #[must_use]
    pub fn of(verdict: CrosscheckVerdict, causes: &[Cause]) -> Self {
        match verdict {
            CrosscheckVerdict::Equal => Self::Equal,
            CrosscheckVerdict::Explained if causes.iter().any(|cause| cause.is_not_identified()) => Self::NotIdentified,
            CrosscheckVerdict::Explained if causes.contains(&Cause::SameNode) => Self::SameNode,
            CrosscheckVerdict::Explained => Self::Explained,
            CrosscheckVerdict::Tolerated => Self::Tolerated,
            CrosscheckVerdict::Unexplained => Self::Unexplained,
        }
    }

    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Equal => CrosscheckVerdict::Equal.name(),
            Self::SameNode => NOT_ON_WIRE,
            Self::Explained => CrosscheckVerdict::Explained.name(),
            Self::NotIdentified => "rank not identified",
            Self::Tolerated => CrosscheckVerdict::Tolerated.name(),
            Self::Unexplained => CrosscheckVerdict::Unexplained.name(),
        }
    }
}
