//! What `otf2-print` of the OTF2 tools prints: global definitions (`-G`), mapping tables (`-M`) and events, line by line.
//!
//! Names in it are whatever the program that was traced called things: quotes in them are printed as they are. So attributes are read from the
//! end of the line that holds no names, and names end where a reference and the next attribute follow.

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

macro_rules! collectives {
    ($($variant:ident $text:literal $name:literal,)*) => {
        /// A collective operation of OTF2.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Collective {
            $(
                #[doc = concat!("`", $text, "`.")]
                $variant,
            )*
        }

        impl Collective {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name used in outputs: MPI's, in lower case and without `MPI_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            fn parse(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)*
                    _ => Self::Unknown,
                }
            }
        }
    };
}

collectives! {
    Barrier "BARRIER" "barrier",
    Bcast "BCAST" "bcast",
    Gather "GATHER" "gather",
    Gatherv "GATHERV" "gatherv",
    Scatter "SCATTER" "scatter",
    Scatterv "SCATTERV" "scatterv",
    Allgather "ALLGATHER" "allgather",
    Allgatherv "ALLGATHERV" "allgatherv",
    Alltoall "ALLTOALL" "alltoall",
    Alltoallv "ALLTOALLV" "alltoallv",
    Alltoallw "ALLTOALLW" "alltoallw",
    Allreduce "ALLREDUCE" "allreduce",
    Reduce "REDUCE" "reduce",
    ReduceScatter "REDUCE_SCATTER" "reduce_scatter",
    ReduceScatterBlock "REDUCE_SCATTER_BLOCK" "reduce_scatter_block",
    Scan "SCAN" "scan",
    Exscan "EXSCAN" "exscan",
    CreateHandle "CREATE_HANDLE" "create_handle",
    DestroyHandle "DESTROY_HANDLE" "destroy_handle",
    Allocate "ALLOCATE" "allocate",
    Deallocate "DEALLOCATE" "deallocate",
    CreateHandleAndAllocate "CREATE_HANDLE_AND_ALLOCATE" "create_handle_and_allocate",
    DestroyHandleAndDeallocate "DESTROY_HANDLE_AND_DEALLOCATE" "destroy_handle_and_deallocate",
    Unknown "" "collective",
}

impl Collective {
    /// True for operations that make or free something: MPI sends nothing on their behalf that belongs to the program.
    #[must_use]
    pub const fn is_handle(self) -> bool {
        matches!(
            self,
            Self::CreateHandle
                | Self::DestroyHandle
                | Self::Allocate
                | Self::Deallocate
                | Self::CreateHandleAndAllocate
                | Self::DestroyHandleAndDeallocate
        )
    }
}

/// A line that begins as one of those above and does not go on as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Reads a line of `otf2-print -G`; `None` for lines that are no definition of interest.
pub fn definition(line: &str) -> Result<Option<Definition<'_>>, Malformed> {
    let (kind, rest) = word(line);
    let read = match kind {
        "CLOCK_PROPERTIES" => clock(rest),
        "SYSTEM_TREE_NODE" => system_tree_node(rest),
        "LOCATION_GROUP" => location_group(rest),
        "LOCATION" => location(rest),
        "GROUP" => group(rest),
        "COMM" | "INTER_COMM" => communicator(rest),
        "RMA_WIN" => window(rest),
        _ => return Ok(None),
    };
    read.map(Some).ok_or(Malformed)
}

/// The `Creator` of the archive, from a line of `otf2-print -I`.
#[must_use]
pub fn creator(line: &str) -> Option<&str> {
    line.strip_prefix("Creator ").map(str::trim)
}

/// Reads a line of events; `None` for lines that are none: headings, and attributes of the event before.
pub fn event(line: &str) -> Result<Option<Event>, Malformed> {
    let (kind, rest) = word(line);
    if kind.is_empty()
        || kind.len() == line.len()
        || !kind.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    {
        return Ok(None);
    }
    let (location, rest) = word(rest);
    let (time, attributes) = word(rest);
    let (Ok(location), Ok(time)) = (location.parse(), time.parse()) else {
        // Headings and attributes of the event before look like that too.
        return if is_of_interest(kind) { Err(Malformed) } else { Ok(None) };
    };
    let what = match kind {
        "MPI_SEND" | "MPI_ISEND" => message(attributes, "Receiver: ").map(What::Send),
        "MPI_RECV" | "MPI_IRECV" => message(attributes, "Sender: ").map(What::Receive),
        "MPI_COLLECTIVE_END" | "NON_BLOCKING_COLLECTIVE_COMPLETE" => collective(attributes),
        "RMA_PUT" => {
            rma(attributes).map(|(window, remote, bytes)| What::Rma { window, remote, sent: bytes, received: 0 })
        }
        "RMA_GET" => {
            rma(attributes).map(|(window, remote, bytes)| What::Rma { window, remote, sent: 0, received: bytes })
        }
        "RMA_ATOMIC" => atomic(attributes),
        "BUFFER_FLUSH" => Some(What::Flush),
        _ => Some(What::Other),
    };
    what.map(|what| Some(Event { location, time, what })).ok_or(Malformed)
}

fn is_of_interest(kind: &str) -> bool {
    ["MPI_SEND", "MPI_ISEND", "MPI_RECV", "MPI_IRECV", "MPI_COLLECTIVE_END", "NON_BLOCKING_COLLECTIVE_COMPLETE"]
        .contains(&kind)
        || ["RMA_PUT", "RMA_GET", "RMA_ATOMIC"].contains(&kind)
}

/// The first word and what follows it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(' ');
    let end = text.find(' ').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start_matches(' '))
}

/// A number at the start, and what follows it.
fn number<N: core::str::FromStr>(text: &str) -> Option<(N, &str)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// `NAME: NUMBER` at the end: what stands before it, and the number.
fn last<'a, N: core::str::FromStr>(text: &'a str, name: &str) -> Option<(&'a str, N)> {
    let at = text.rfind(name)?;
    Some((&text[..at], text[at + name.len()..].trim_end().parse().ok()?))
}

/// `" <REFERENCE>` at the end.
fn last_reference(text: &str) -> Option<u64> {
    let at = text.rfind("\" <")?;
    text[at + 3..].trim_end().strip_suffix('>')?.parse().ok()
}

/// `"NAME" <REFERENCE>` and then `next`: the name, the reference, and what follows `next`.
fn named<'a>(text: &'a str, next: &str) -> Option<(&'a str, u64, &'a str)> {
    let text = text.strip_prefix('"')?;
    let mut from = 0;
    loop {
        let end = from + text[from..].find("\" <")?;
        if let Some((reference, rest)) = number(&text[end + 3..])
            && let Some(rest) = rest.strip_prefix('>').and_then(|rest| rest.strip_prefix(next))
        {
            return Some((&text[..end], reference, rest));
        }
        from = end + 3;
    }
}

/// What a definition says of its parent.
#[derive(Clone, Copy)]
enum Parent {
    None,
    Is(u64),
}

impl Parent {
    /// `UNDEFINED`, or `"NAME" <REFERENCE>` up to the end or the next attribute.
    fn read(text: &str, next: &str) -> Option<Self> {
        if text.starts_with("UNDEFINED") {
            return Some(Self::None);
        }
        let found =
            if next.is_empty() { last_reference(text) } else { named(text, next).map(|(_, reference, _)| reference) };
        found.map(Self::Is)
    }

    fn reference<N: TryFrom<u64>>(self) -> Option<N> {
        match self {
            Self::None => None,
            Self::Is(reference) => reference.try_into().ok(),
        }
    }
}

fn clock(rest: &str) -> Option<Definition<'_>> {
    let (ticks_per_second, rest) = number(rest.strip_prefix("Ticks per Seconds: ")?)?;
    let (offset, _) = number(rest.strip_prefix(", Global Offset: ")?)?;
    Some(Definition::Clock { ticks_per_second, offset })
}

fn system_tree_node(rest: &str) -> Option<Definition<'_>> {
    let (id, rest) = number(rest)?;
    let (name, _, rest) = named(rest.trim_start().strip_prefix("Name: ")?, ", Class: ")?;
    let (class, _, rest) = named(rest, ", Parent: ")?;
    let parent = Parent::read(rest, "")?.reference();
    Some(Definition::SystemTreeNode { id, name, class, parent })
}

fn location_group(rest: &str) -> Option<Definition<'_>> {
    let (id, rest) = number(rest)?;
    let (name, _, rest) = named(rest.trim_start().strip_prefix("Name: ")?, ", Type: ")?;
    let (_, rest) = rest.split_once(", Parent: ")?;
    let parent = Parent::read(rest, ", Creator: ").or_else(|| Parent::read(rest, ""))?;
    Some(Definition::LocationGroup { id, name, parent: parent.reference() })
}

fn location(rest: &str) -> Option<Definition<'_>> {
    let (id, rest) = number(rest)?;
    let (name, _, rest) = named(rest.trim_start().strip_prefix("Name: ")?, ", Type: ")?;
    let (_, rest) = rest.split_once(", # Events: ")?;
    let (events, rest) = number(rest)?;
    let group = last_reference(rest.strip_prefix(", Group: ")?)?;
    Some(Definition::Location { id, name, events, group })
}

fn group(rest: &str) -> Option<Definition<'_>> {
    let (id, rest) = number(rest)?;
    let (_, _, rest) = named(rest.trim_start().strip_prefix("Name: ")?, ", Type: ")?;
    let (kind, rest) = rest.split_once(", Paradigm: ")?;
    let is_mpi = rest.starts_with("MPI,") || rest.starts_with("\"MPI\" <");
    let (_, rest) = rest.split_once(", Flags: ")?;
    let (_, rest) = rest.split_once(" Member").unwrap_or((rest, ""));
    let list = rest.strip_prefix("s: ").or_else(|| rest.strip_prefix(": ")).unwrap_or_default();
    let (kind, members) = match kind {
        "COMM_LOCATIONS" => (GroupKind::Locations, locations(list)?),
        "COMM_GROUP" => (GroupKind::Ranks, places(list)?),
        // COMM_SELF, and those of regions, metrics ...
        _ => (GroupKind::Own, Vec::new()),
    };
    Some(Definition::Group { id, kind, is_mpi, members })
}

/// `"NAME" <REFERENCE>, "NAME" <REFERENCE> ...`
fn locations(mut list: &str) -> Option<Vec<u64>> {
    let mut members = Vec::new();
    while !list.trim_end().is_empty() {
        if let Some((_, reference, rest)) = named(list, ", ") {
            members.push(reference);
            list = rest;
        } else {
            members.push(last_reference(list)?);
            break;
        }
    }
    Some(members)
}

/// `PLACE ("NAME" <REFERENCE>), PLACE ("NAME" <REFERENCE>) ...`
fn places(mut list: &str) -> Option<Vec<u64>> {
    let mut members = Vec::new();
    while !list.trim_end().is_empty() {
        let (place, rest) = number(list)?;
        members.push(place);
        list = match rest.strip_prefix(" (") {
            Some(rest) => match named(rest, "), ") {
                Some((_, _, rest)) => rest,
                None => break,
            },
            // A place that no location stands for.
            None => rest.strip_prefix(", ").unwrap_or_default(),
        };
    }
    Some(members)
}

fn communicator(rest: &str) -> Option<Definition<'_>> {
    let (id, rest) = number(rest)?;
    let rest = rest.trim_start();
    // Intercommunicators are printed with a small `n`.
    if let Some(rest) = rest.strip_prefix("name: ") {
        let (name, _, rest) = named(rest, ", Group A: ")?;
        let (_, first, rest) = named(rest, ", Group B: ")?;
        let (_, second, _) = named(rest, ", Common Communicator: ")?;
        return Some(Definition::Communicator { id, name, groups: (first, Some(second)) });
    }
    let (name, _, rest) = named(rest.strip_prefix("Name: ")?, ", Group: ")?;
    let (_, group, _) = named(rest, ", Parent: ")?;
    Some(Definition::Communicator { id, name, groups: (group, None) })
}

fn window(rest: &str) -> Option<Definition<'_>> {
    let (id, rest) = number(rest)?;
    let (_, _, rest) = named(rest.trim_start().strip_prefix("Name: ")?, ", Communicator: ")?;
    // Archives before 3.0 have no flags.
    let communicator = named(rest, ", Flags: ").map(|(_, reference, _)| reference).or_else(|| last_reference(rest))?;
    Some(Definition::Window { id, communicator })
}

fn message(attributes: &str, peer: &str) -> Option<Message> {
    let (peer, _) = number(attributes.strip_prefix(peer)?)?;
    let attributes = match last::<u64>(attributes, ", Request: ") {
        Some((attributes, _)) => attributes,
        None => attributes,
    };
    let (attributes, bytes) = last(attributes, ", Length: ")?;
    let (attributes, tag) = last(attributes, ", Tag: ")?;
    Some(Message { peer, communicator: last_reference(attributes)?, tag, bytes })
}

fn collective(attributes: &str) -> Option<What> {
    let attributes = last::<u64>(attributes, ", Request: ").map_or(attributes, |(attributes, _)| attributes);
    let (attributes, received) = last(attributes, ", Received: ")?;
    let (attributes, sent) = last(attributes, ", Sent: ")?;
    let at = attributes.rfind(", Root: ")?;
    let root = number(&attributes[at + ", Root: ".len()..]).map(|(root, _)| root);
    let (operation, communicator) = attributes[..at].strip_prefix("Operation: ")?.split_once(", Communicator: ")?;
    Some(What::Collective {
        operation: Collective::parse(operation),
        communicator: last_reference(communicator)?,
        root,
        sent,
        received,
    })
}

/// `Window: "NAME" <REFERENCE>, Remote: RANK ..., Bytes: BYTES, Matching: ID`.
fn rma(attributes: &str) -> Option<(u64, u32, u64)> {
    let (attributes, _) = last::<u64>(attributes, ", Matching: ")?;
    let (attributes, bytes) = last(attributes, ", Bytes: ")?;
    let (window, remote) = target(attributes)?;
    Some((window, remote, bytes))
}

fn atomic(attributes: &str) -> Option<What> {
    let (attributes, _) = last::<u64>(attributes, ", Matching: ")?;
    let (attributes, received) = last(attributes, ", Received: ")?;
    let (attributes, sent) = last(attributes, ", Sent: ")?;
    let (window, remote) = target(attributes)?;
    Some(What::Rma { window, remote, sent, received })
}

fn target(attributes: &str) -> Option<(u64, u32)> {
    let (_, window, rest) = named(attributes.strip_prefix("Window: ")?, ", Remote: ")?;
    Some((window, number(rest)?.0))
}
