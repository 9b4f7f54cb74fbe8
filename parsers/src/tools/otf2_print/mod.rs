//! Parses the output of `otf2-print` line by line: global definitions (`-G`), events, and the
//! archive's creator (`-I`).
//!
//! Names come from the traced program and may contain quotes, which `otf2-print` does not escape.
//! So attributes are parsed from the end of the line that contains no names, and a name ends where
//! a reference and the next attribute follow.

mod collective;
mod definitions;
mod events;
mod words;

pub use collective::Collective;
pub use definitions::definition;
pub use events::event;

use alloc::vec::Vec;

/// A global definition: clock, system tree, ranks, communicators, or a counted name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Otf2Definition<'a> {
    /// `CLOCK_PROPERTIES`.
    Clock {
        /// Ticks per second of all timestamps.
        ticks_per_second: u64,
        /// First possible timestamp, in ticks.
        offset: u64,
    },
    /// `SYSTEM_TREE_NODE`: a machine, a node, a board ...
    SystemTreeNode {
        /// Reference of the node.
        id: u32,
        /// Name of the node.
        name: &'a str,
        /// Class of the node: `machine`, `node` ...
        class: &'a str,
        /// Reference of the parent node.
        parent: Option<u32>,
    },
    /// `LOCATION_GROUP`: a process.
    LocationGroup {
        /// Reference of the location group.
        id: u64,
        /// Name of the process.
        name: &'a str,
        /// System tree node that the process runs on.
        parent: Option<u32>,
    },
    /// `LOCATION`: a thread, a stream of an accelerator ...
    Location {
        /// Reference of the location.
        id: u64,
        /// Name of the location.
        name: &'a str,
        /// Number of events that the definition states.
        events: u64,
        /// Reference of the process (location group).
        group: u64,
    },
    /// `GROUP` of locations, or of ranks of a communicator.
    Group {
        /// Reference of the group.
        id: u64,
        /// Meaning of the members.
        kind: GroupKind,
        /// True if the paradigm is MPI.
        is_mpi: bool,
        /// Locations, or indices into the group of locations.
        members: Vec<u64>,
    },
    /// `COMM` or `INTER_COMM`.
    Communicator {
        /// Reference of the communicator.
        id: u64,
        /// Name of the communicator, often empty.
        name: &'a str,
        /// Its group; both groups of an intercommunicator.
        groups: (u64, Option<u64>),
    },
    /// `RMA_WIN`.
    Window {
        /// Reference of the window.
        id: u64,
        /// Reference of the window's communicator.
        communicator: u64,
    },
    /// `STRING`: a name that other definitions refer to.
    String {
        /// Reference of the string.
        id: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// `REGION`: a function of the program or of MPI.
    Region {
        /// Reference of the region.
        id: u64,
    },
    /// `ATTRIBUTE` of events.
    Attribute {
        /// Reference of the attribute.
        id: u64,
    },
}

/// Meaning of the members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// Locations, in the order of their rank in the paradigm.
    Locations,
    /// Indices into the group of locations.
    Ranks,
    /// Each process alone (`MPI_COMM_SELF`); no members are read.
    Own,
}

/// An event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Otf2Event {
    /// Reference of the location.
    pub location: u64,
    /// Time in ticks; clock offsets are already applied.
    pub time: u64,
    /// Kind of the event.
    pub what: Otf2EventKind,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otf2EventKind {
    /// `MPI_SEND` or `MPI_ISEND`: the program called the send.
    Send(Otf2Message),
    /// `MPI_RECV` or `MPI_IRECV`: the receive completed.
    Receive(Otf2Message),
    /// `MPI_COLLECTIVE_BEGIN` or `NON_BLOCKING_COLLECTIVE_REQUEST`: the program called the operation.
    CollectiveBegin {
        /// Request of a nonblocking operation.
        request: Option<u64>,
    },
    /// `MPI_COLLECTIVE_END` or `NON_BLOCKING_COLLECTIVE_COMPLETE`.
    Collective {
        /// Collective operation.
        operation: Collective,
        /// Reference of the communicator.
        communicator: u64,
        /// Rank of the root in the communicator, if the operation has one.
        root: Option<u32>,
        /// Bytes that this rank sent, as the tracer counts them.
        sent: u64,
        /// Bytes that this rank received.
        received: u64,
        /// Request of a nonblocking operation.
        request: Option<u64>,
    },
    /// `RMA_PUT`, `RMA_GET` or `RMA_ATOMIC`.
    Rma {
        /// Reference of the window.
        window: u64,
        /// Rank in the window's communicator.
        remote: u32,
        /// Bytes sent to the remote rank.
        sent: u64,
        /// Bytes received from the remote rank.
        received: u64,
    },
    /// `BUFFER_FLUSH`: the tracer wrote its buffer; the program was not running.
    Flush,
    /// Any other event.
    Other,
}

/// Peer, communicator, tag and length of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Otf2Message {
    /// Rank of the peer in the communicator (in the other group of an intercommunicator).
    pub peer: u32,
    /// Reference of the communicator.
    pub communicator: u64,
    /// Tag.
    pub tag: u32,
    /// Length of the MPI message in bytes.
    pub bytes: u64,
}

/// Error: the line begins like a definition or event of interest, but cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedLine;

/// The `Creator` of the archive, from its line in the output of `otf2-print -I`.
#[must_use]
pub fn creator(line: &str) -> Option<&str> {
    line.strip_prefix("Creator ").map(str::trim)
}
