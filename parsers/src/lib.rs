//! Parsers without I/O: capture framing, InfiniBand headers, MPI envelopes and the output of fabric
//! tools.
//!
//! In: byte slices and text. Out: typed values, or a [`ParseError`] with layer and offset. A packet
//! passes through the crate in four steps: [`frame`] splits a capture file into records, [`link`]
//! finds the first InfiniBand byte of a record, [`ib`] reads headers, payload and checksums, and
//! [`mpi`] reads the envelope that an MPI library put at the start of a message; [`ulp`] recognizes
//! other protocols. [`packet_summary`]
//! combines `link` and `ib` for the fields that flow analysis needs. [`tools`] reads the text
//! output of fabric tools.
//!
//! Invariant: no input makes this crate panic; it opens no files, prints nothing and starts no
//! threads.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod error;
pub mod field;
pub mod frame;
pub mod ib;
pub mod layer;
pub mod link;
pub mod location;
pub mod mpi;
pub mod packet_summary;
pub mod path_fields;
pub mod sampled;
pub mod time;
pub mod tools;
pub mod tunnel;
pub mod ulp;

pub use error::{ErrorKind, ParseError};
pub use field::{Endpoint, Lid, Psn, Qpn};
pub use layer::Layer;
pub use packet_summary::{PacketSummary, RecordContent};
pub use path_fields::PathFields;
