//! Anonymizes captures: the result contains no data that identify people or places.
//!
//! In: a capture, and the library stacks of its connections, which the caller finds by analyzing the
//! capture first. Out: the rewritten capture, and a tally of dropped and cleared content.
//!
//! - Records keep their order, times and lengths.
//! - Headers keep the fields that analyses read (`headers`). Addresses are replaced by pseudonyms
//!   that depend on a key (`names`).
//! - Payload is cleared, except the bytes of MPI envelopes on connections that are known to carry
//!   them (`payload`), and the lengths of messages that NCCL sends together (`lengths`). Management
//!   datagrams keep the fields that are understood (`management`).
//! - Checksums are recomputed (`record`). A wrong checksum stays wrong.
//! - Records and blocks of unknown kinds are dropped and counted (`record`, `file`).

mod bits;
mod file;
mod headers;
mod lengths;
mod management;
mod names;
mod payload;
mod record;

pub use names::AnonymizeKey;

use crate::input::InputError;
use crate::model::ConnectionKey;
use ibscope_parsers::mpi::LibraryStack;
use ibscope_parsers::{Endpoint, Qpn};
use lengths::NcclWrites;
use names::Pseudonyms;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::PathBuf;

/// Facts about the connections of a capture that its analysis found.
#[derive(Clone, Debug, Default)]
pub struct ConnectionStacks {
    /// Connections that carry MPI envelopes, and the stack of these.
    pub stacks: HashMap<ConnectionKey, LibraryStack>,
    /// Stacks of the connections between two endpoints, in either direction.
    pub between: HashMap<(Endpoint, Endpoint), HashSet<LibraryStack>>,
    /// Queue pairs of each endpoint.
    pub queue_pairs: HashMap<Endpoint, HashSet<Qpn>>,
}

/// Number of records and blocks of one capture by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnonymizeTally {
    /// Records read.
    pub records: u64,
    /// Dropped records by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Management datagrams that were reduced to their headers.
    pub cleared_management: u64,
    /// Messages of several packets with several envelopes: their payload after the first packet was
    /// cleared.
    pub cleared_envelopes: u64,
    /// Dropped blocks of a pcapng file without a packet: comments, host names, keys ...
    pub dropped_blocks: u64,
    /// The reason why the capture ended early, if it did.
    pub ended_early: Option<String>,
}

/// A capture could not be anonymized.
#[derive(Debug, thiserror::Error)]
pub enum AnonymizeError {
    /// The capture could not be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The result could not be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Output {
        /// Path of the result.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Anonymizes captures with one key. An address has the same pseudonym in all of them.
pub struct Anonymizer {
    names: Pseudonyms,
    known: ConnectionStacks,
    tally: AnonymizeTally,
    writes: NcclWrites,
}

impl Anonymizer {
    /// Creates an anonymizer for captures with these connections.
    #[must_use]
    pub fn new(key: &AnonymizeKey, known: ConnectionStacks) -> Self {
        Self { names: Pseudonyms::new(key), known, tally: AnonymizeTally::default(), writes: NcclWrites::default() }
    }

    /// The pseudonym of an endpoint.
    #[must_use]
    pub fn endpoint(&mut self, endpoint: Endpoint) -> Endpoint {
        self.names.endpoint(endpoint)
    }
}
