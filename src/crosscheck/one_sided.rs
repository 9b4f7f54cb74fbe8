//! One-sided operations: the operations in the trace, and the data that RDMA transferred.
//!
//! READs, WRITEs and atomics have no envelope, and a library may send small operations as messages
//! of its own. So the two are listed side by side, without a verdict.

use super::message_sums::MessageSums;
use super::placement::Placement;
use super::single_messages::JobMessages;
use super::trace::AppTrace;
use serde::Serialize;

/// One-sided operations between two ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OneSidedPair {
    /// World rank that the bytes come from.
    pub src: u32,
    /// World rank that the bytes go to.
    pub dst: u32,
    /// Operations and bytes in the trace.
    pub trace: MessageSums,
    /// RDMA operations on the wire that belong to no message; `None` if they were not collected.
    pub wire: Option<MessageSums>,
    /// The relation of the two.
    pub result: OneSidedResult,
}

/// Comparison of the bytes of one-sided operations in the trace with RDMA on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OneSidedResult {
    /// The bytes are equal.
    Equal,
    /// The wire has fewer bytes.
    Fewer,
    /// The wire has more bytes.
    More,
    /// The wire has fewer bytes between these ranks, but RDMA of unidentified ranks covers the
    /// rest.
    NotIdentified,
    /// Both ranks run on one node.
    SameNode,
    /// A profile was given, which contains no individual operations.
    NotCompared,
}

impl OneSidedResult {
    /// Description for outputs.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Fewer => "fewer bytes by RDMA: the rest was sent as messages of the library, or was not captured",
            Self::NotIdentified => "fewer bytes by RDMA: the rest may be on queue pairs whose rank is not identified",
            Self::More => "more bytes by RDMA: some of them belong to the library itself",
            Self::SameNode => super::verdict::NOT_ON_WIRE,
            Self::NotCompared => "not compared: a profile contains no individual operations; give the captures",
        }
    }
}

/// Compares all one-sided operations of the trace.
pub(super) fn pairs(trace: &AppTrace, singles: JobMessages<'_>, placement: &Placement) -> Vec<OneSidedPair> {
    let row = |(&(src, dst), &sums): (&(u32, u32), &MessageSums)| {
        let wire = singles.rdma((Some(src), Some(dst)));
        let mut unidentified = MessageSums::default();
        for ends in [(Some(src), None), (None, Some(dst)), (None, None)] {
            unidentified += singles.rdma(ends).unwrap_or_default();
        }
        let result = match wire {
            _ if placement.is_same_node(src, dst) => OneSidedResult::SameNode,
            None => OneSidedResult::NotCompared,
            Some(wire) if wire.bytes == sums.bytes => OneSidedResult::Equal,
            Some(wire) if wire.bytes > sums.bytes => OneSidedResult::More,
            Some(wire) if wire.bytes.saturating_add(unidentified.bytes) < sums.bytes => OneSidedResult::Fewer,
            Some(_) => OneSidedResult::NotIdentified,
        };
        OneSidedPair { src, dst, trace: sums, wire, result }
    };
    trace.rma.iter().map(row).collect()
}
