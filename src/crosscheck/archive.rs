//! Definitions of an OTF2 archive.
//!
//! In: definition records, in any order. Out: the rank and host of each location, the members of
//! each communicator, and the tracer that wrote the archive.

use super::eztrace::{self, EztraceSums};
use super::trace::{TraceCommunicator, Tracer};
use ibscope_parsers::tools::otf2_print::{GroupKind, Otf2Definition};
use std::collections::BTreeMap;

/// The definitions read so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Archive {
    /// The tracer that wrote the archive, as recorded in it; empty if the archive does not record
    /// it.
    pub(super) creator: String,
    /// Ticks per second, and the time of the first tick.
    pub(super) clock: Option<(u64, u64)>,
    /// Name, class and parent of each node of the system tree.
    nodes: BTreeMap<u32, (String, String, Option<u32>)>,
    /// Name and system tree node of each process.
    processes: BTreeMap<u64, (String, Option<u32>)>,
    /// Name, process and defined number of events of each location.
    locations: BTreeMap<u64, (String, u64, u64)>,
    /// The MPI locations, in rank order.
    mpi_locations: Vec<u64>,
    groups: BTreeMap<u64, (GroupKind, Vec<u64>)>,
    communicators: BTreeMap<u64, (String, (u64, Option<u64>))>,
    windows: BTreeMap<u64, u64>,
    /// Definitions that eztrace sends and that no other field holds, with their reference.
    eztrace_definitions: Vec<(u64, eztrace::EztraceDefinition)>,
}

/// Maps the references in events to ranks and communicators.
#[derive(Clone, Debug, Default)]
pub(super) struct References {
    /// Rank by location.
    pub(super) ranks: BTreeMap<u64, u32>,
    /// Index of each communicator by its reference.
    pub(super) communicators: BTreeMap<u64, u32>,
    /// Index of the communicator of each window.
    pub(super) windows: BTreeMap<u64, u32>,
    /// Number of events of each location, as its definition states.
    pub(super) events: BTreeMap<u64, u64>,
}

impl Archive {
    /// Adds a definition.
    pub(super) fn add(&mut self, definition: Otf2Definition<'_>) {
        match definition {
            Otf2Definition::Clock { ticks_per_second, offset } => self.clock = Some((ticks_per_second, offset)),
            Otf2Definition::SystemTreeNode { id, name, class, parent } => {
                self.nodes.insert(id, (name.to_owned(), class.to_owned(), parent));
            }
            Otf2Definition::LocationGroup { id, name, parent } => {
                self.processes.insert(id, (name.to_owned(), parent));
            }
            Otf2Definition::Location { id, name, events, group } => {
                self.locations.insert(id, (name.to_owned(), group, events));
            }
            Otf2Definition::Group { kind: GroupKind::Locations, is_mpi, members, .. } => {
                // Each paradigm has its own group: groups of threads and of the tracer contain
                // no MPI ranks.
                if is_mpi {
                    self.mpi_locations = members;
                }
            }
            // eztrace uses one reference for a group of ranks and a group of locations: keep the
            // two apart.
            Otf2Definition::Group { id, kind, members, .. } => {
                self.groups.insert(id, (kind, members));
            }
            Otf2Definition::Communicator { id, name, groups } => {
                self.communicators.insert(id, (name.to_owned(), groups));
            }
            Otf2Definition::Window { id, communicator } => {
                self.windows.insert(id, communicator);
            }
            Otf2Definition::String { id, bytes } => self.count(id, eztrace::EztraceDefinition::String { bytes }),
            Otf2Definition::Region { id } => self.count(id, eztrace::EztraceDefinition::Function),
            Otf2Definition::Attribute { id } => self.count(id, eztrace::EztraceDefinition::Attribute),
        }
    }

    fn count(&mut self, id: u64, definition: eztrace::EztraceDefinition) {
        // Only eztrace leaves the creator empty; archives of other tracers may have very many
        // definitions.
        if self.creator.is_empty() {
            self.eztrace_definitions.push((id, definition));
        }
    }

    /// The messages that the tracer itself sent, by the rank of the sender.
    pub(super) fn own_messages(&self) -> BTreeMap<u32, EztraceSums> {
        if self.tracer() != Tracer::Eztrace {
            return BTreeMap::new();
        }
        let mut first_ids: BTreeMap<u32, u64> = BTreeMap::new();
        for (id, (name, ..)) in &self.locations {
            first_ids.extend(numbered(name, "P#").filter(|rank| !first_ids.contains_key(rank)).map(|rank| (rank, *id)));
        }
        let processes: BTreeMap<u64, u32> = first_ids.into_iter().map(|(rank, id)| (id, rank)).collect();
        // Rank 0 defines the first thread of each process.
        let threads = self.locations.keys().filter(|id| !processes.contains_key(id));
        let threads = threads.map(|id| (*id, eztrace::EztraceDefinition::Thread));
        let communicators = self.communicators.iter().map(|(id, (_, (group, _)))| {
            let members = self.groups.get(group).map_or(0, |(_, members)| members.len() as u64);
            (*id, eztrace::EztraceDefinition::Communicator { members })
        });
        eztrace::own_messages(&processes, self.eztrace_definitions.iter().copied().chain(threads).chain(communicators))
    }

    /// The tracer that wrote the archive. eztrace does not record its name, but has its own way of
    /// naming locations.
    pub(super) fn tracer(&self) -> Tracer {
        let is_eztrace = || {
            self.locations
                .values()
                .next()
                .is_some_and(|(name, ..)| numbered(name, "P#").is_some() && name.contains("T#"))
        };
        if self.creator.starts_with("Score-P") {
            Tracer::ScoreP(self.creator.clone())
        } else if self.creator.is_empty() && is_eztrace() {
            Tracer::Eztrace
        } else {
            let name = if self.creator.is_empty() { "an unnamed tracer" } else { &self.creator };
            Tracer::Other(name.to_owned())
        }
    }

    /// Resolves the definitions: hosts by rank, communicators, and the references of events.
    pub(super) fn resolve(&self) -> (BTreeMap<u32, Option<String>>, Vec<TraceCommunicator>, References) {
        let mut references = References::default();
        let mut hosts = BTreeMap::new();
        let by_process = self.ranks_of_processes();
        for (location, (_, process, events)) in &self.locations {
            references.events.insert(*location, *events);
            let Some(&rank) = by_process.get(process) else { continue };
            references.ranks.insert(*location, rank);
            hosts.insert(rank, self.host(*process));
        }
        let world = |place: &u64| {
            let location = self.mpi_locations.get(usize::try_from(*place).ok()?)?;
            references.ranks.get(location).copied()
        };
        let members = |group: u64| -> (bool, Vec<u32>) {
            match self.groups.get(&group) {
                Some((GroupKind::Own, _)) => (true, Vec::new()),
                // A member without a rank keeps its place, so that later members keep theirs.
                Some((_, places)) => (false, places.iter().map(|place| world(place).unwrap_or(u32::MAX)).collect()),
                None => (false, Vec::new()),
            }
        };
        let mut communicators = Vec::new();
        for (id, (name, (group, remote))) in &self.communicators {
            references.communicators.insert(*id, communicators.len() as u32);
            let (is_self, own) = members(*group);
            let remote = remote.map(|remote| members(remote).1);
            communicators.push(TraceCommunicator { name: name.clone(), members: own, remote, is_self });
        }
        for (window, communicator) in &self.windows {
            let index = references.communicators.get(communicator).copied();
            references.windows.extend(index.map(|index| (*window, index)));
        }
        (hosts, communicators, references)
    }

    /// The rank of each process: the number in its name, otherwise its index among the MPI
    /// locations.
    fn ranks_of_processes(&self) -> BTreeMap<u64, u32> {
        let mut ranks = BTreeMap::new();
        for (place, location) in self.mpi_locations.iter().enumerate() {
            if let Some((_, process, _)) = self.locations.get(location) {
                ranks.entry(*process).or_insert(place as u32);
            }
        }
        for (process, (name, _)) in &self.processes {
            if let Some(rank) = numbered(name, "MPI Rank ").or_else(|| numbered(name, "P#")) {
                ranks.insert(*process, rank);
            }
        }
        ranks
    }

    /// The node that a process runs on; `None` if the system tree has no element of class node or
    /// host.
    fn host(&self, process: u64) -> Option<String> {
        let mut at = self.processes.get(&process)?.1;
        // The loop ends even if damaged definitions form a cycle.
        for _ in 0..=self.nodes.len() {
            let (name, class, parent) = self.nodes.get(&at?)?;
            if ["node", "host"].iter().any(|known| class.eq_ignore_ascii_case(known)) {
                return Some(name.clone());
            }
            at = *parent;
        }
        None
    }
}

/// The number that follows `prefix`.
fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let rest = name.strip_prefix(prefix)?;
    let end = rest.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}
