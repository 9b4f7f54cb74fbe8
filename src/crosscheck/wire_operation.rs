//! A collective operation on the wire, as the comparison with a trace needs it.

use crate::model::RankActivity;
use ibscope_parsers::mpi::MpiOperation;

/// A collective operation on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireOperation {
    /// Number of the job.
    pub job: u32,
    /// Context id of the communicator; `None` for `MPI_COMM_WORLD`.
    pub context: Option<u32>,
    /// Name of the communicator in outputs.
    pub communicator: String,
    /// Number of the operation on this communicator, from 1.
    pub number: u64,
    /// The operation.
    pub operation: MpiOperation,
    /// Time of the first packet, nanoseconds since the epoch.
    pub start_ns: i64,
    /// Time of the last packet.
    pub end_ns: i64,
    /// Times of the packets of each rank.
    pub activity: Vec<RankActivity>,
}
