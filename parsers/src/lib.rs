//! Bytes in, values out: capture framing, InfiniBand headers, MPI envelopes, and the texts of fabric tools.
//!
//! Nothing here reads files, prints or starts threads, and no input makes it panic. The way of a packet through the crate:
//! [`frame`] cuts a capture file into records with a time, [`link`] finds the first InfiniBand byte of a record,
//! [`ib`] reads the headers, payload and check sums from there ([`brief`] does both at once for what flows need), and [`mpi`] the envelope that an MPI library put at the
//! start of a message. [`tools`] reads what the tools of a fabric print.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod brief;
pub mod error;
pub mod field;
pub mod frame;
pub mod ib;
pub mod layer;
pub mod link;
pub mod location;
pub mod mpi;
pub mod time;
pub mod tools;

pub use brief::{Brief, Content};
pub use error::{ErrorKind, ParseError};
pub use field::{Endpoint, Lid, Psn, Qpn};
pub use layer::Layer;
