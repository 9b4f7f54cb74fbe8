//! A capture -> the same capture without what it tells of people and places.
//!
//! Records keep their order, times and lengths. Packets keep of their headers what analyses read (`headers`), but for
//! addresses (`names`), which are exchanged for others by a key. Of payload (`payload`) nothing stays but the bytes that an MPI
//! envelope is read from, on connections that are known to carry such envelopes; management datagrams (`management`) keep what
//! is understood of them. Check sums (`record`) are computed anew, and those that did not fit do not fit afterwards. What is not
//! understood is dropped and counted; `file` does the same for what stands around the records.
//!
//! Which connections carry envelopes, of which library, is not decided here: the caller has analysed the capture before.

mod bits;
mod file;
mod headers;
mod management;
mod names;
mod payload;
mod record;

pub use names::Key;

use crate::input::InputError;
use crate::model::ConnectionKey;
use ibscope_parsers::mpi::Form;
use ibscope_parsers::{Endpoint, Qpn};
use names::Names;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::PathBuf;

/// What is known of the traffic beforehand.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Connections that carry MPI envelopes, and in which form.
    pub forms: HashMap<ConnectionKey, Form>,
    /// Forms of the connections between two endpoints, in either direction.
    pub between: HashMap<(Endpoint, Endpoint), HashSet<Form>>,
    /// Queue pairs of each endpoint.
    pub queue_pairs: HashMap<Endpoint, HashSet<Qpn>>,
}

/// What became of the records of one capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records read.
    pub records: u64,
    /// Records that are not in the result, by what they were.
    pub dropped: BTreeMap<String, u64>,
    /// Management datagrams of which the header stayed, and nothing else.
    pub cleared_management: u64,
    /// Messages of several packets that hold several envelopes: of those behind the first packet nothing stayed.
    pub cut_envelopes: u64,
    /// Blocks of a pcapng file that hold no packet and are not in the result: comments, names of hosts, keys ...
    pub dropped_blocks: u64,
    /// Why the capture ended early, where it did.
    pub ended_early: Option<String>,
}

/// A capture that could not be anonymized.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The result could not be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Output {
        /// Where it was to stand.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Anonymizes captures by one key: what is one address in two of them is one address in the results.
pub struct Anonymizer {
    names: Names,
    known: Known,
    tally: Tally,
}

impl Anonymizer {
    /// One that has seen nothing.
    #[must_use]
    pub fn new(key: &Key, known: Known) -> Self {
        Self { names: Names::new(key), known, tally: Tally::default() }
    }

    /// What an endpoint is called in the results.
    #[must_use]
    pub fn endpoint(&mut self, endpoint: Endpoint) -> Endpoint {
        self.names.endpoint(endpoint)
    }
}
