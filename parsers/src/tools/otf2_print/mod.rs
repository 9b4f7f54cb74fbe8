//! What `otf2-print` of the OTF2 tools prints: global definitions (`-G`), mapping tables (`-M`) and events, line by line.
//!
//! Names in it are whatever the program that was traced called things: quotes in them are printed as they are. So attributes are read from the
//! end of the line that holds no names, and names end where a reference and the next attribute follow.

mod collective;
mod definitions;
mod events;
mod words;

pub use collective::Collective;
pub use definitions::definition;
pub use events::event;

use alloc::vec::Vec;

/// A definition that says who the ranks are and what they talk over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition<'a> {
    /// `CLOCK_PROPERTIES`.
    Clock {
        /// Ticks per second of all times.
        ticks_per_second: u64,
        /// The first time that may occur.
        offset: u64,
    },
    /// `SYSTEM_TREE_NODE`: a machine, a node, a board ...
    SystemTreeNode {
        /// Its reference.
        id: u32,
        /// Its name.
        name: &'a str,
        /// What it is: `machine`, `node` ...
        class: &'a str,
        /// What it is a part of.
        parent: Option<u32>,
    },
    /// `LOCATION_GROUP`: a process.
    LocationGroup {
        /// Its reference.
        id: u64,
        /// Its name.
        name: &'a str,
        /// The node of the system tree that it runs on.
        parent: Option<u32>,
    },
    /// `LOCATION`: a thread, a stream of an accelerator ...
    Location {
        /// Its reference.
        id: u64,
        /// Its name.
        name: &'a str,
        /// Events that it is said to have.
        events: u64,
        /// The process.
        group: u64,
    },
    /// `GROUP` of locations, or of the ranks of a communicator.
    Group {
        /// Its reference.
        id: u64,
        /// What its members are.
        kind: GroupKind,
        /// The paradigm is MPI.
        is_mpi: bool,
        /// Locations, or places in the group of locations.
        members: Vec<u64>,
    },
    /// `COMM` or `INTER_COMM`.
    Communicator {
        /// Its reference.
        id: u64,
        /// Its name, often empty.
        name: &'a str,
        /// Its group, or both of an intercommunicator.
        groups: (u64, Option<u64>),
    },
    /// `RMA_WIN`.
    Window {
        /// Its reference.
        id: u64,
        /// Its communicator.
        communicator: u64,
    },
    /// `STRING`: a name that other definitions refer to.
    String {
        /// Its reference.
        id: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// `REGION`: a function of the program or of MPI.
    Region {
        /// Its reference.
        id: u64,
    },
    /// `ATTRIBUTE` of events.
    Attribute {
        /// Its reference.
        id: u64,
    },
}

/// What the members of a group are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// Locations, in the order of their rank in the paradigm.
    Locations,
    /// Places in the group of locations.
    Ranks,
    /// Each process alone (`MPI_COMM_SELF`): it has no members.
    Own,
}

/// An event of communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Where it happened.
    pub location: u64,
    /// When, in ticks; clock offsets are applied already.
    pub time: u64,
    /// What it is.
    pub what: What,
}

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// `MPI_SEND` and `MPI_ISEND`: the call, blocking or not.
    Send(Message),
    /// `MPI_RECV` and `MPI_IRECV`: the receive was complete.
    Receive(Message),
    /// `MPI_COLLECTIVE_END` and `NON_BLOCKING_COLLECTIVE_COMPLETE`.
    Collective {
        /// The operation.
        operation: Collective,
        /// Reference of the communicator.
        communicator: u64,
        /// The root's rank in it, where there is one.
        root: Option<u32>,
        /// Bytes that this rank sent, as the tracer counts them.
        sent: u64,
        /// Bytes that it received.
        received: u64,
    },
    /// `RMA_PUT`, `RMA_GET` and `RMA_ATOMIC`.
    Rma {
        /// Reference of the window.
        window: u64,
        /// Rank in the window's communicator.
        remote: u32,
        /// Bytes from here to there.
        sent: u64,
        /// Bytes from there to here.
        received: u64,
    },
    /// `BUFFER_FLUSH`: the tracer wrote its buffer, which is no part of the program.
    Flush,
    /// Any other event.
    Other,
}

/// A message of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The other side's rank in the communicator (in the other group of an intercommunicator).
    pub peer: u32,
    /// Reference of the communicator.
    pub communicator: u64,
    /// Tag.
    pub tag: u32,
    /// MPI length in bytes.
    pub bytes: u64,
}

/// A line that begins as one of those above and does not go on as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The `Creator` of the archive, from a line of `otf2-print -I`.
#[must_use]
pub fn creator(line: &str) -> Option<&str> {
    line.strip_prefix("Creator ").map(str::trim)
}
