//! An MPI message with a known length.

use ibscope_parsers::mpi::{Envelope, LibraryStack};

/// An MPI message whose envelope was parsed and whose length is known.
#[derive(Clone, Copy, Debug)]
pub struct MpiMessage {
    /// Library stack that sent it.
    pub stack: LibraryStack,
    /// Sender, tag and length field.
    pub envelope: Envelope,
    /// MPI length in bytes.
    pub mpi_bytes: u64,
    /// Time of the packet that carried the envelope.
    pub time_ns: i64,
}
