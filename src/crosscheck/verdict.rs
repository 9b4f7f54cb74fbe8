//! What comparisons come to, and what explains differences.

use serde::Serialize;

/// What the comparison of a pair of ranks came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Messages and bytes are the same.
    Equal,
    /// They differ, and why is known.
    Explained,
    /// They differ by no more than the tolerance.
    Tolerated,
    /// They differ.
    Unexplained,
}

impl Verdict {
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

/// What explains a difference, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Both ranks run on one node: their messages never reach the wire.
    SameNode,
    /// The tracer's own messages, which it leaves out of its trace.
    Tracer,
    /// They were sent before the capture began, or after it ended.
    OutsideCapture,
    /// The capture lost packets of the pair: their numbers are missing between others.
    Lost,
    /// Packets were sent again. Those are told from new ones and count in no message, but where so many were lost before that it could not be told.
    Retransmission,
    /// Nothing that went between the two ranks was captured: their ports were not.
    NotCaptured,
    /// They are on the wire, from this sender to a queue pair whose rank is not identified.
    ReceiverNotIdentified,
    /// They are on the wire, to this receiver from a queue pair whose rank is not identified.
    SenderNotIdentified,
    /// Bytes received that a profile of sums does not tell from those of nonblocking collectives.
    Nonblocking,
}

/// What is said of ranks that share a node.
pub(super) const NOT_ON_WIRE: &str = "not on the wire (same node)";

impl Cause {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::SameNode,
        Self::Tracer,
        Self::OutsideCapture,
        Self::Lost,
        Self::Retransmission,
        Self::NotCaptured,
        Self::ReceiverNotIdentified,
        Self::SenderNotIdentified,
        Self::Nonblocking,
    ];

    /// True where a rank of the messages is not identified on the wire.
    #[must_use]
    pub const fn is_not_identified(self) -> bool {
        matches!(self, Self::ReceiverNotIdentified | Self::SenderNotIdentified)
    }

    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::SameNode => NOT_ON_WIRE,
            Self::Tracer => "tracer's own messages",
            Self::OutsideCapture => "before or after the capture",
            Self::Lost => "lost in the capture",
            Self::Retransmission => "retransmission",
            Self::NotCaptured => "not captured",
            Self::ReceiverNotIdentified => "receiver not identified",
            Self::SenderNotIdentified => "sender not identified",
            Self::Nonblocking => "nonblocking collectives",
        }
    }
}

/// What a pair of ranks comes to in one word, where there is room for no more: its verdict, but that the two explanations that need a reader are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// [`Verdict::Equal`].
    Equal,
    /// Explained by both ranks being on one node.
    SameNode,
    /// [`Verdict::Explained`] by anything else.
    Explained,
    /// Explained by messages on the wire whose sender or receiver is not identified.
    NotIdentified,
    /// [`Verdict::Tolerated`].
    Tolerated,
    /// [`Verdict::Unexplained`].
    Unexplained,
}

impl Outcome {
    /// All of them, the best first.
    pub const ALL: [Self; 6] =
        [Self::Equal, Self::SameNode, Self::Explained, Self::NotIdentified, Self::Tolerated, Self::Unexplained];

    /// That of a verdict with its causes.
    #[must_use]
    pub fn of(verdict: Verdict, causes: &[Cause]) -> Self {
        match verdict {
            Verdict::Equal => Self::Equal,
            Verdict::Explained if causes.iter().any(|cause| cause.is_not_identified()) => Self::NotIdentified,
            Verdict::Explained if causes.contains(&Cause::SameNode) => Self::SameNode,
            Verdict::Explained => Self::Explained,
            Verdict::Tolerated => Self::Tolerated,
            Verdict::Unexplained => Self::Unexplained,
        }
    }

    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Equal => Verdict::Equal.name(),
            Self::SameNode => NOT_ON_WIRE,
            Self::Explained => Verdict::Explained.name(),
            Self::NotIdentified => "rank not identified",
            Self::Tolerated => Verdict::Tolerated.name(),
            Self::Unexplained => Verdict::Unexplained.name(),
        }
    }
}
