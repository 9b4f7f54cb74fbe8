//! Parses the unicast forwarding tables of switches, as `dump_fts` and `ibroute` print them
//! (infiniband-diags, `src/ibroute.c` and `src/dump_fts.c`): which port a switch sends the packets
//! to a LID through.
//!
//! ```text
//! Unicast lids [0x0-0x1f] of switch Lid 1 guid 0xb8599f0300001000 (leaf1):
//!   Lid  Out   Destination
//!        Port     Info
//! 0x0012 006 : (Channel Adapter portguid 0x1070fd0300000061: 'n006 mlx5_0')
//! ```

use super::{LineError, ParseResult, TextLine, Tool, ToolError, guid, lines, next, number};
use alloc::vec::Vec;
use nom::Parser;
use nom::bytes::complete::{tag, take_until, take_while1};
use nom::combinator::{map_opt, opt};
use nom::error::context;
use nom::sequence::preceded;

/// The unicast forwarding table of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardingTable {
    /// GUID of the switch.
    pub switch_guid: u64,
    /// Entries in the order of the text.
    pub entries: Vec<ForwardingEntry>,
}

/// An entry of a forwarding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardingEntry {
    /// Destination.
    pub lid: u16,
    /// Port of the switch; 0 for the switch itself.
    pub port: u8,
    /// GUID of the port that has the LID, if the tool found it.
    pub port_guid: Option<u64>,
}

/// Parses the tables of one or more switches. Tables of multicast LIDs are skipped, and so are lines
/// that neither begin a table nor are an entry.
pub fn parse_tables(text: &str) -> Result<Vec<ForwardingTable>, ToolError> {
    let mut tables: Vec<ForwardingTable> = Vec::new();
    let mut in_multicast = false;
    for line in lines(text) {
        if line.text.starts_with("Unicast lids") {
            let switch_guid = line.read(Tool::ForwardingTables, switch)?;
            tables.push(ForwardingTable { switch_guid, entries: Vec::new() });
            in_multicast = false;
        } else if line.text.starts_with("Multicast mlids") {
            in_multicast = true;
        } else if line.text.starts_with("0x") && !in_multicast {
            let entry = line.read(Tool::ForwardingTables, entry)?;
            let table = tables.last_mut().ok_or_else(|| before_any_table(line))?;
            table.entries.push(entry);
        }
    }
    Ok(tables)
}

fn before_any_table(line: TextLine<'_>) -> ToolError {
    line.error(Tool::ForwardingTables, 0, "a line 'Unicast lids ... of switch ...'")
}

/// `Unicast lids [0x0-0x1f] of switch Lid 1 guid 0xb8599f0300001000`.
fn switch(input: &str) -> ParseResult<'_, u64> {
    let before = context("' guid '", take_until(" guid "));
    preceded((before, tag(" guid ")), guid).parse(input)
}

/// `0x0012 006`, and the destination if the line has one.
fn entry(input: &str) -> ParseResult<'_, ForwardingEntry> {
    let entry = (lid, next("a port", number("a port")), opt(destination));
    entry.map(|(lid, port, port_guid)| ForwardingEntry { lid, port, port_guid }).parse(input)
}

/// `0x0012`.
fn lid(input: &str) -> ParseResult<'_, u16> {
    let digits = take_while1(|c: char| c.is_ascii_hexdigit());
    context("a LID", preceded(tag("0x"), map_opt(digits, |digits: &str| u16::from_str_radix(digits, 16).ok())))
        .parse(input)
}

/// ` : (Channel Adapter portguid 0x1070fd0300000061`. The description after it is free text.
fn destination(input: &str) -> Result<(&str, u64), nom::Err<LineError<'_>>> {
    preceded((take_until(" portguid "), tag(" portguid ")), guid).parse(input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::ToolErrorKind;
    use std::borrow::ToOwned;
    use std::format;

    const TABLES: &str = include_str!("../../../samples/fabric/dump_fts.txt");

    /// The recorded fabric has 15 hosts and 5 switches, each with a LID and a route from everywhere.
    #[test]
    fn every_switch_knows_every_lid() {
        let tables = parse_tables(TABLES).unwrap();
        assert_eq!(tables.len(), 5);
        for table in &tables {
            let mut lids: Vec<u16> = table.entries.iter().map(|entry| entry.lid).collect();
            lids.sort_unstable();
            assert_eq!(lids, (1..=5).chain(17..=31).collect::<Vec<u16>>());
            // A switch reaches itself through port 0, and no other LID.
            let own: Vec<_> = table.entries.iter().filter(|entry| entry.port == 0).collect();
            assert_eq!(own.len(), 1);
            assert_eq!(own[0].port_guid, Some(table.switch_guid));
        }
        // Leaf 1 has its hosts at ports 1 to 5 (LIDs 17, 20, 23, 26, 29).
        let leaf = tables.iter().find(|table| table.switch_guid == 0xb859_9f03_0000_1000).unwrap();
        let ports =
            leaf.entries.iter().filter(|entry| (1..=5).contains(&entry.port)).map(|entry| (entry.lid, entry.port));
        assert_eq!(ports.collect::<Vec<_>>(), [(17, 1), (20, 2), (23, 3), (26, 4), (29, 5)]);
    }

    #[test]
    fn ibroute_prints_the_same_entries() {
        let table = parse_tables(include_str!("fixtures/ibroute_leaf1.txt")).unwrap();
        assert_eq!(table.len(), 1);
        let dumped = parse_tables(TABLES).unwrap();
        assert!(dumped.contains(&table[0]));
    }

    #[test]
    fn entries_without_destinations_and_multicast_tables() {
        let text = "Unicast lids [0x0-0x1f] of switch DR path slid 0; dlid 0; 0,1 guid 0x5 (a guid 0x6):\n\
                    0x0001 006 \n0xffff 255 : (' portguid x')\n\
                    Multicast mlids [0xc000-0xc3ff] of switch Lid 1 guid 0x5 (a):\n0xc000  x  x\n";
        let entry = |lid, port| ForwardingEntry { lid, port, port_guid: None };
        let entries = [entry(1, 6), entry(0xffff, 255)].into();
        assert_eq!(parse_tables(text).unwrap(), [ForwardingTable { switch_guid: 5, entries }]);
        assert_eq!(parse_tables("dump_fts: failed\n").unwrap(), []);
    }

    #[test]
    fn errors_name_the_line() {
        let head = "Unicast lids [0x0-0x1f] of switch Lid 1 guid 0x5 (a):";
        for (text, line, what) in [
            ("0x0001 006".to_owned(), 1, "a line 'Unicast lids ... of switch ...'"),
            (format!("{head}\n0x10001 006"), 2, "a LID"),
            (format!("{head}\n0x0001 256"), 2, "a port"),
            ("Unicast lids of switch".to_owned(), 1, "' guid '"),
        ] {
            let error = parse_tables(&text).unwrap_err();
            assert_eq!((error.line, error.kind), (line, ToolErrorKind::Expected(what)), "{text}");
        }
    }
}
