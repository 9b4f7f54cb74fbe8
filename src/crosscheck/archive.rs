//! The definitions of an archive: which location is which rank on which host, and who is in which communicator.

use super::eztrace::{self, ByTag};
use super::trace::{Communicator, Tracer};
use ibscope_parsers::tools::otf2_print::{Definition, GroupKind};
use std::collections::BTreeMap;

/// Definitions as they come, and what they come to.
#[derive(Clone, Debug, Default)]
pub(super) struct Archive {
    /// What wrote the archive, as it says.
    pub(super) creator: String,
    /// Ticks per second, and the first time.
    pub(super) clock: Option<(u64, u64)>,
    /// Name, class and parent.
    nodes: BTreeMap<u32, (String, String, Option<u32>)>,
    /// Name and node.
    processes: BTreeMap<u64, (String, Option<u32>)>,
    /// Name, process and events that it is said to have.
    locations: BTreeMap<u64, (String, u64, u64)>,
    /// Locations of MPI, by rank.
    mpi_locations: Vec<u64>,
    groups: BTreeMap<u64, (GroupKind, Vec<u64>)>,
    communicators: BTreeMap<u64, (String, (u64, Option<u64>))>,
    windows: BTreeMap<u64, u64>,
    /// Definitions that eztrace sends and that nothing else here keeps, by reference.
    counted: Vec<(u64, eztrace::Definition)>,
}

/// What events refer to.
#[derive(Clone, Debug, Default)]
pub(super) struct References {
    /// Rank by location.
    pub(super) ranks: BTreeMap<u64, u32>,
    /// Index of the communicator by its reference.
    pub(super) communicators: BTreeMap<u64, u32>,
    /// Index of the communicator of a window.
    pub(super) windows: BTreeMap<u64, u32>,
    /// Events of each location, where its definition tells them.
    pub(super) events: BTreeMap<u64, u64>,
}

impl Archive {
    /// Takes a definition.
    pub(super) fn add(&mut self, definition: Definition<'_>) {
        match definition {
            Definition::Clock { ticks_per_second, offset } => self.clock = Some((ticks_per_second, offset)),
            Definition::SystemTreeNode { id, name, class, parent } => {
                self.nodes.insert(id, (name.to_owned(), class.to_owned(), parent));
            }
            Definition::LocationGroup { id, name, parent } => {
                self.processes.insert(id, (name.to_owned(), parent));
            }
            Definition::Location { id, name, events, group } => {
                self.locations.insert(id, (name.to_owned(), group, events));
            }
            Definition::Group { kind: GroupKind::Locations, is_mpi, members, .. } => {
                // There is one per paradigm: those of threads and of the tracer itself say nothing of MPI ranks.
                if is_mpi {
                    self.mpi_locations = members;
                }
            }
            // eztrace gives a group of ranks the reference that its group of locations has, so these are kept apart.
            Definition::Group { id, kind, members, .. } => {
                self.groups.insert(id, (kind, members));
            }
            Definition::Communicator { id, name, groups } => {
                self.communicators.insert(id, (name.to_owned(), groups));
            }
            Definition::Window { id, communicator } => {
                self.windows.insert(id, communicator);
            }
            Definition::String { id, bytes } => self.count(id, eztrace::Definition::String { bytes }),
            Definition::Region { id } => self.count(id, eztrace::Definition::Function),
            Definition::Attribute { id } => self.count(id, eztrace::Definition::Attribute),
        }
    }

    fn count(&mut self, id: u64, definition: eztrace::Definition) {
        // eztrace leaves the creator empty; archives of others may have a great many.
        if self.creator.is_empty() {
            self.counted.push((id, definition));
        }
    }

    /// The messages that the tracer sent itself, by the sender's rank.
    pub(super) fn own_messages(&self) -> BTreeMap<u32, ByTag> {
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
        let threads = threads.map(|id| (*id, eztrace::Definition::Thread));
        let communicators = self.communicators.iter().map(|(id, (_, (group, _)))| {
            let members = self.groups.get(group).map_or(0, |(_, members)| members.len() as u64);
            (*id, eztrace::Definition::Communicator { members })
        });
        eztrace::own_messages(&processes, self.counted.iter().copied().chain(threads).chain(communicators))
    }

    /// Who wrote it. eztrace does not say, but names locations in its own way.
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

    /// Hosts by rank, communicators, and what events refer to.
    pub(super) fn resolve(&self) -> (BTreeMap<u32, Option<String>>, Vec<Communicator>, References) {
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
                // A place without a rank keeps its place.
                Some((_, places)) => (false, places.iter().map(|place| world(place).unwrap_or(u32::MAX)).collect()),
                None => (false, Vec::new()),
            }
        };
        let mut communicators = Vec::new();
        for (id, (name, (group, remote))) in &self.communicators {
            references.communicators.insert(*id, communicators.len() as u32);
            let (is_self, own) = members(*group);
            let remote = remote.map(|remote| members(remote).1);
            communicators.push(Communicator { name: name.clone(), members: own, remote, is_self });
        }
        for (window, communicator) in &self.windows {
            let index = references.communicators.get(communicator).copied();
            references.windows.extend(index.map(|index| (*window, index)));
        }
        (hosts, communicators, references)
    }

    /// The rank of each process: what its name says, or its place among the locations of MPI.
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

    /// The node that a process runs on, where the system tree tells nodes from larger things.
    fn host(&self, process: u64) -> Option<String> {
        let mut at = self.processes.get(&process)?.1;
        // A tree is no deeper than it has nodes.
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

/// The number behind `prefix`.
fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let rest = name.strip_prefix(prefix)?;
    let end = rest.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}
