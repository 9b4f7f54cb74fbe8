//! Lines of definitions (`otf2-print -G`).

use super::words::{last_reference, named, number, word};
use super::{Definition, GroupKind, Malformed};
use alloc::vec::Vec;

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
        // Only counted, so what is odd about them is no reason to refuse the archive: a string may hold line breaks.
        "STRING" => return Ok(string(rest)),
        "REGION" => return Ok(number(rest).map(|(id, _)| Definition::Region { id })),
        "ATTRIBUTE" => return Ok(number(rest).map(|(id, _)| Definition::Attribute { id })),
        _ => return Ok(None),
    };
    read.map(Some).ok_or(Malformed)
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

fn string(rest: &str) -> Option<Definition<'_>> {
    let (id, rest) = number(rest)?;
    let text = rest.trim_start().strip_prefix('"')?.strip_suffix('"')?;
    Some(Definition::String { id, bytes: text.len() as u64 })
}

fn window(rest: &str) -> Option<Definition<'_>> {
    let (id, rest) = number(rest)?;
    let (_, _, rest) = named(rest.trim_start().strip_prefix("Name: ")?, ", Communicator: ")?;
    // Archives before 3.0 have no flags.
    let communicator = named(rest, ", Flags: ").map(|(_, reference, _)| reference).or_else(|| last_reference(rest))?;
    Some(Definition::Window { id, communicator })
}
