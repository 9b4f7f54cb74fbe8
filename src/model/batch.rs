//! A run of whole records of one capture file, and where it stands in the file.

use ibscope_parsers::frame::Framing;

/// Whole records (or pcapng blocks) of one input, cut at a record end.
#[derive(Debug)]
pub struct Batch {
    /// Index of the input among those that are read together.
    pub input: u32,
    /// The records as they stand in the (decompressed) file.
    pub bytes: Vec<u8>,
    /// State of the framing in front of the first byte: byte order, interfaces.
    pub framing: Framing,
    /// Packet records before this batch.
    pub first_record: u64,
    /// Offset of the first byte in the (decompressed) file.
    pub offset_bytes: u64,
}
