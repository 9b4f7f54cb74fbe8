//! Parses the definitions of `otf2-print -G`.

use super::words::{last_reference, number, split_at_name, word};
use super::{GroupKind, MalformedLine, Otf2Definition};
use alloc::vec::Vec;

/// Parses a line of `otf2-print -G`; `None` if the line is no definition of interest.
pub fn definition(line: &str) -> Result<Option<Otf2Definition<'_>>, MalformedLine> {
    let (kind, rest) = word(line);
    let read = match kind {
        "CLOCK_PROPERTIES" => clock(rest),
        "SYSTEM_TREE_NODE" => system_tree_node(rest),
        "LOCATION_GROUP" => location_group(rest),
        "LOCATION" => location(rest),
        "GROUP" => group(rest),
        "COMM" | "INTER_COMM" => communicator(rest),
        "RMA_WIN" => window(rest),
        // Strings, regions and attributes are only counted, and strings may hold line breaks: a
        // malformed one is no reason to reject the archive.
        "STRING" => return Ok(string(rest)),
        "REGION" => return Ok(number(rest).map(|(id, _)| Otf2Definition::Region { id })),
        "ATTRIBUTE" => return Ok(number(rest).map(|(id, _)| Otf2Definition::Attribute { id })),
        _ => return Ok(None),
    };
    read.map(Some).ok_or(MalformedLine)
}

/// Parent reference of a definition.
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
        let found = if next.is_empty() {
            last_reference(text)
        } else {
            split_at_name(text, next).map(|(_, reference, _)| reference)
        };
        found.map(Self::Is)
    }

    fn reference<N: TryFrom<u64>>(self) -> Option<N> {
        match self {
            Self::None => None,
            Self::Is(reference) => reference.try_into().ok(),
        }
    }
}

fn clock(rest: &str) -> Option<Otf2Definition<'_>> {
    let (ticks_per_second, rest) = number(rest.strip_prefix("Ticks per Seconds: ")?)?;
    let (offset, _) = number(rest.strip_prefix(", Global Offset: ")?)?;
    Some(Otf2Definition::Clock { ticks_per_second, offset })
}

fn system_tree_node(rest: &str) -> Option<Otf2Definition<'_>> {
    let (id, rest) = number(rest)?;
    let (name, _, rest) = split_at_name(rest.trim_start().strip_prefix("Name: ")?, ", Class: ")?;
    let (class, _, rest) = split_at_name(rest, ", Parent: ")?;
    let parent = Parent::read(rest, "")?.reference();
    Some(Otf2Definition::SystemTreeNode { id, name, class, parent })
}

fn location_group(rest: &str) -> Option<Otf2Definition<'_>> {
    let (id, rest) = number(rest)?;
    let (name, _, rest) = split_at_name(rest.trim_start().strip_prefix("Name: ")?, ", Type: ")?;
    let (_, rest) = rest.split_once(", Parent: ")?;
    let parent = Parent::read(rest, ", Creator: ").or_else(|| Parent::read(rest, ""))?;
    Some(Otf2Definition::LocationGroup { id, name, parent: parent.reference() })
}

fn location(rest: &str) -> Option<Otf2Definition<'_>> {
    let (id, rest) = number(rest)?;
    let (name, _, rest) = split_at_name(rest.trim_start().strip_prefix("Name: ")?, ", Type: ")?;
    let (_, rest) = rest.split_once(", # Events: ")?;
    let (events, rest) = number(rest)?;
    let group = last_reference(rest.strip_prefix(", Group: ")?)?;
    Some(Otf2Definition::Location { id, name, events, group })
}

fn group(rest: &str) -> Option<Otf2Definition<'_>> {
    let (id, rest) = number(rest)?;
    let (_, _, rest) = split_at_name(rest.trim_start().strip_prefix("Name: ")?, ", Type: ")?;
    let (kind, rest) = rest.split_once(", Paradigm: ")?;
    let is_mpi = rest.starts_with("MPI,") || rest.starts_with("\"MPI\" <");
    let (_, rest) = rest.split_once(", Flags: ")?;
    let (_, rest) = rest.split_once(" Member").unwrap_or((rest, ""));
    let list = rest.strip_prefix("s: ").or_else(|| rest.strip_prefix(": ")).unwrap_or_default();
    let (kind, members) = match kind {
        "COMM_LOCATIONS" => (GroupKind::Locations, locations(list)?),
        "COMM_GROUP" => (GroupKind::Ranks, rank_list(list)?),
        // COMM_SELF, and groups of regions, metrics ...
        _ => (GroupKind::Own, Vec::new()),
    };
    Some(Otf2Definition::Group { id, kind, is_mpi, members })
}

/// `"NAME" <REFERENCE>, "NAME" <REFERENCE> ...`
fn locations(mut list: &str) -> Option<Vec<u64>> {
    let mut members = Vec::new();
    while !list.trim_end().is_empty() {
        if let Some((_, reference, rest)) = split_at_name(list, ", ") {
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
fn rank_list(mut list: &str) -> Option<Vec<u64>> {
    let mut members = Vec::new();
    while !list.trim_end().is_empty() {
        let (place, rest) = number(list)?;
        members.push(place);
        list = match rest.strip_prefix(" (") {
            Some(rest) => match split_at_name(rest, "), ") {
                Some((_, _, rest)) => rest,
                None => break,
            },
            // The location of this place is not printed.
            None => rest.strip_prefix(", ").unwrap_or_default(),
        };
    }
    Some(members)
}

fn communicator(rest: &str) -> Option<Otf2Definition<'_>> {
    let (id, rest) = number(rest)?;
    let rest = rest.trim_start();
    // `otf2-print` writes "name" in lower case for intercommunicators.
    if let Some(rest) = rest.strip_prefix("name: ") {
        let (name, _, rest) = split_at_name(rest, ", Group A: ")?;
        let (_, first, rest) = split_at_name(rest, ", Group B: ")?;
        let (_, second, _) = split_at_name(rest, ", Common Communicator: ")?;
        return Some(Otf2Definition::Communicator { id, name, groups: (first, Some(second)) });
    }
    let (name, _, rest) = split_at_name(rest.strip_prefix("Name: ")?, ", Group: ")?;
    let (_, group, _) = split_at_name(rest, ", Parent: ")?;
    Some(Otf2Definition::Communicator { id, name, groups: (group, None) })
}

fn string(rest: &str) -> Option<Otf2Definition<'_>> {
    let (id, rest) = number(rest)?;
    let text = rest.trim_start().strip_prefix('"')?.strip_suffix('"')?;
    Some(Otf2Definition::String { id, bytes: text.len() as u64 })
}

fn window(rest: &str) -> Option<Otf2Definition<'_>> {
    let (id, rest) = number(rest)?;
    let (_, _, rest) = split_at_name(rest.trim_start().strip_prefix("Name: ")?, ", Communicator: ")?;
    // Archives before 3.0 have no flags.
    let communicator =
        split_at_name(rest, ", Flags: ").map(|(_, reference, _)| reference).or_else(|| last_reference(rest))?;
    Some(Otf2Definition::Window { id, communicator })
}
