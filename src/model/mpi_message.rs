//! An MPI message, as soon as its length is known.

use ibscope_parsers::mpi::{Envelope, Form};

/// An MPI message whose envelope was read and whose length is known.
#[derive(Clone, Copy, Debug)]
pub struct MpiMessage {
    /// Layout of the message.
    pub form: Form,
    /// Sender and tag.
    pub envelope: Envelope,
    /// MPI length in bytes.
    pub mpi_bytes: u64,
    /// Time of the packet that carried the envelope.
    pub time_ns: i64,
}
