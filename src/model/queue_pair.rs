//! Queue pairs, and the messages with which processes tell each other theirs.

use ibscope_parsers::mpi::LibraryStack;
use ibscope_parsers::{Endpoint, Qpn};
use serde::{Deserialize, Serialize};

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QueuePair {
    /// The port.
    pub endpoint: Endpoint,
    /// Its queue pair number.
    pub qpn: Qpn,
}

/// A wire-up message of UCX: the queue pairs of a worker (process).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorkerWireup {
    /// Sender.
    pub src: Endpoint,
    /// Receiver.
    pub dst: Endpoint,
    /// Id of the sender's worker.
    pub worker: u64,
    /// The sender's UCX endpoint.
    pub sender_endpoint: u64,
    /// The receiver's UCX endpoint; 0 in a wire-up request.
    pub receiver_endpoint: u64,
    /// The sender's datagram queue pair, if the message came as a datagram.
    pub datagram_qp: Option<Qpn>,
    /// Address of the sender's worker, which contains its queue pair numbers.
    pub address: Vec<u8>,
}

/// A datagram in which an MPI library gives the identity and queue pairs of its process to another
/// one: Open MPI's `udcm` and MVAPICH2's connection messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MpiConnectionMessage {
    /// The library.
    pub stack: LibraryStack,
    /// Datagram queue pair of the sender.
    pub from: QueuePair,
    /// Datagram queue pair of the receiver.
    pub to: QueuePair,
    /// Distinguishes connection messages between the same two processes; equal in both directions
    /// if the library has such a number, else 0.
    pub number: u32,
    /// The sender's rank in `MPI_COMM_WORLD`, if given.
    pub world_rank: Option<u32>,
    /// The library's number of the job, if given.
    pub job: Option<u32>,
    /// The sender's queue pairs for this connection, in the order of those in the reply.
    pub queue_pairs: Vec<Qpn>,
}
