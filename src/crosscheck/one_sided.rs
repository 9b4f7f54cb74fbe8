//! One-sided operations: what the trace has beside what RDMA moved.
//!
//! READs, WRITEs and atomics have no envelope, and a library may send small operations as messages of its own instead. So the two are shown side by side
//! and not judged.

use super::message_sums::Sums;
use super::placement::Placement;
use super::singles::JobSingles;
use super::trace::Trace;
use serde::Serialize;

/// One-sided operations between two ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OneSided {
    /// World rank that the bytes come from.
    pub src: u32,
    /// World rank that they go to.
    pub dst: u32,
    /// Operations and bytes in the trace.
    pub trace: Sums,
    /// What RDMA moved that belongs to no message; `None` where it was not looked for.
    pub wire: Option<Sums>,
    /// What that says.
    pub result: OneSidedResult,
}

/// What operations of the trace and RDMA on the wire have to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OneSidedResult {
    /// As many bytes.
    Equal,
    /// The wire has fewer bytes.
    Fewer,
    /// The wire has more bytes.
    More,
    /// The wire has fewer bytes between these ranks, and enough of a rank that is not identified.
    NotIdentified,
    /// Both ranks run on one node.
    SameNode,
    /// A profile keeps no single operations.
    NotLookedFor,
}

impl OneSidedResult {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Fewer => "fewer bytes by RDMA: the rest went as messages of the library, or was not captured",
            Self::NotIdentified => "fewer bytes by RDMA: the rest may be on queue pairs whose rank is not identified",
            Self::More => "more bytes by RDMA: some of it is the library's own",
            Self::SameNode => super::verdict::NOT_ON_WIRE,
            Self::NotLookedFor => "not compared: a profile keeps no single operations, give the captures",
        }
    }
}

/// All of the trace.
pub(super) fn pairs(trace: &Trace, singles: JobSingles<'_>, placement: &Placement) -> Vec<OneSided> {
    let row = |(&(src, dst), &sums): (&(u32, u32), &Sums)| {
        let wire = singles.rdma((Some(src), Some(dst)));
        let mut unidentified = Sums::default();
        for ends in [(Some(src), None), (None, Some(dst)), (None, None)] {
            unidentified += singles.rdma(ends).unwrap_or_default();
        }
        let result = match wire {
            _ if placement.is_same_node(src, dst) => OneSidedResult::SameNode,
            None => OneSidedResult::NotLookedFor,
            Some(wire) if wire.bytes == sums.bytes => OneSidedResult::Equal,
            Some(wire) if wire.bytes > sums.bytes => OneSidedResult::More,
            Some(wire) if wire.bytes.saturating_add(unidentified.bytes) < sums.bytes => OneSidedResult::Fewer,
            Some(_) => OneSidedResult::NotIdentified,
        };
        OneSided { src, dst, trace: sums, wire, result }
    };
    trace.rma.iter().map(row).collect()
}
