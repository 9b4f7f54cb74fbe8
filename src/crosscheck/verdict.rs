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
    /// Bytes received that a profile of sums does not tell from those of nonblocking collectives.
    Nonblocking,
}

impl Cause {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::SameNode => "same node",
            Self::Tracer => "tracer's own messages",
            Self::OutsideCapture => "before or after the capture",
            Self::Lost => "lost in the capture",
            Self::Retransmission => "retransmission",
            Self::NotCaptured => "not captured",
            Self::Nonblocking => "nonblocking collectives",
        }
    }
}
