//! Consecutive whole records of one capture file, with their position in the file.

use ibscope_parsers::frame::Framing;

/// Whole records (or pcapng blocks) of one input; its first and last byte are record boundaries.
#[derive(Debug)]
pub struct Batch {
    /// Index of the input among those that are read together.
    pub input: u32,
    /// The records as in the (decompressed) file.
    pub bytes: Vec<u8>,
    /// State of the framing before the first byte: byte order, interfaces.
    pub framing: Framing,
    /// Number of packet records before this batch.
    pub first_record: u64,
    /// Offset of the first byte in the (decompressed) file.
    pub offset_bytes: u64,
}
