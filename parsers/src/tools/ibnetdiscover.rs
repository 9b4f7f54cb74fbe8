//! Parses `ibnetdiscover -p`: every port of a subnet with the port that it is connected to, one per
//! line.
//!
//! ```text
//! CA    20  1 0x1070fd03000000f1 4x HDR - SW     6  5 0xb8599f0300001002 ( 'n015 mlx5_0' - 'leaf3'
//! ) SW     6 36 0xb8599f0300001002 4x SDR                                    'leaf3'
//! ```

use super::{NodeKind, ParseResult, Tool, ToolError, guid, lines, next, number};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use nom::Parser;
use nom::branch::alt;
use nom::bytes::complete::{tag, take_till1};
use nom::character::complete::space1;
use nom::combinator::{opt, peek, rest, value};
use nom::error::context;
use nom::sequence::{preceded, terminated};

/// A port and its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLine {
    /// Local port.
    pub port: FabricPort,
    /// Width and speed as printed, such as `4x HDR`.
    pub link: String,
    /// Port at the other end of the cable, if connected.
    pub remote: Option<FabricPort>,
    /// Descriptions of the nodes as printed, for display only.
    pub descriptions: String,
}

impl PortLine {
    /// Description of the node, and that of the node at the other end of the cable. `None` if the
    /// descriptions contain characters that leave open where one ends.
    #[must_use]
    pub fn names(&self) -> Option<(&str, Option<&str>)> {
        if self.remote.is_none() {
            let name = self.descriptions.strip_prefix('\'')?.strip_suffix('\'')?;
            return Some((name, None));
        }
        let both = self.descriptions.strip_prefix("( '")?.strip_suffix("' )")?;
        let (near, far) = both.split_once("' - '")?;
        (!far.contains("' - '")).then_some((near, Some(far)))
    }
}

/// A port of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricPort {
    /// Kind of the node that the port belongs to.
    pub kind: NodeKind,
    /// LID; for a port of a switch, the LID of the switch.
    pub lid: u16,
    /// Port number.
    pub number: u8,
    /// GUID of the port; all ports of a switch share one.
    pub guid: u64,
}

/// Parses the output of `ibnetdiscover -p`. Lines that do not begin with a node kind are skipped.
pub fn parse_ports(text: &str) -> Result<Vec<PortLine>, ToolError> {
    lines(text)
        .filter(|line| terminated(kind, peek(space1)).parse(line.text).is_ok())
        .map(|line| line.read(Tool::Ibnetdiscover, port_line))
        .collect()
}

fn port_line(input: &str) -> ParseResult<'_, PortLine> {
    let word = || take_till1(char::is_whitespace);
    let link = (next("a width", word()), next("a speed", word()));
    let connected = preceded((space1, tag("-"), space1), port);
    let (left, (port, (width, speed), remote, descriptions)) = (port, link, opt(connected), rest).parse(input)?;
    let link = [width, speed].join(" ");
    Ok((left, PortLine { port, link, remote, descriptions: descriptions.trim().to_owned() }))
}

/// `CA    20  1 0x1070fd03000000f1`.
fn port(input: &str) -> ParseResult<'_, FabricPort> {
    let fields = (kind, next("a LID", number("a LID")), next("a port", number("a port")), next("a GUID", guid));
    fields.map(|(kind, lid, number, guid)| FabricPort { kind, lid, number, guid }).parse(input)
}

fn kind(input: &str) -> ParseResult<'_, NodeKind> {
    let known = alt((
        value(NodeKind::Ca, tag("CA")),
        value(NodeKind::Switch, tag("SW")),
        value(NodeKind::Router, tag("RT")),
        value(NodeKind::Other, tag("??")),
    ));
    context("a kind of node", known).parse(input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::ToolErrorKind;
    use std::collections::BTreeMap;
    use std::format;

    /// Hosts of a recorded fabric of 3 leaves with 5 hosts each: port GUID -> LID, leaf, port of
    /// the leaf.
    fn hosts(text: &str) -> BTreeMap<u64, (u16, u64, u8)> {
        let lines = parse_ports(text).unwrap();
        let hosts = lines.iter().filter(|line| line.port.kind == NodeKind::Ca);
        hosts
            .map(|line| {
                let remote = line.remote.unwrap();
                assert_eq!((line.port.number, remote.kind, line.link.as_str()), (1, NodeKind::Switch, "4x HDR"));
                (line.port.guid, (line.port.lid, remote.guid, remote.number))
            })
            .collect()
    }

    #[test]
    fn every_host_is_where_the_topology_puts_it() {
        for (text, lids) in
            [(include_str!("fixtures/ibnetdiscover_p.txt"), 1), (include_str!("fixtures/ibnetdiscover_p_lmc2.txt"), 4)]
        {
            let found = hosts(text);
            assert_eq!(found.len(), 15);
            for host in 0..15_u64 {
                let (lid, leaf, port) = found[&(0x1070_fd03_0000_0001 + 16 * (host + 1))];
                assert_eq!((leaf, u64::from(port)), (0xb859_9f03_0000_1000 + host / 5, host % 5 + 1));
                assert_eq!(u64::from(lid) % lids, 0);
            }
        }
        // The same LIDs as in the output of `ibtracert` and `ibstat`.
        assert_eq!(hosts(include_str!("fixtures/ibnetdiscover_p.txt"))[&0x1070_fd03_0000_0031].0, 8);
        assert_eq!(hosts(include_str!("fixtures/ibnetdiscover_p_lmc2.txt"))[&0x1070_fd03_0000_0031].0, 24);
    }

    #[test]
    fn both_ends_of_a_cable_are_listed() {
        let lines = parse_ports(include_str!("fixtures/ibnetdiscover_p.txt")).unwrap();
        // 15 hosts with one port each, 5 switches with 36 ports each.
        assert_eq!(lines.len(), 15 + 5 * 36);
        let ends = lines.iter().filter_map(|line| Some((line.port, line.remote?)));
        let cables: BTreeMap<_, _> = ends.map(|(a, b)| ((a.guid, a.number), (b.guid, b.number))).collect();
        // Each leaf is connected to 5 hosts and 2 spines.
        assert_eq!(cables.len(), 2 * 3 * (5 + 2));
        assert!(cables.iter().all(|(near, far)| cables[far] == *near));
    }

    #[test]
    fn several_ports_and_odd_names() {
        let text = include_str!("fixtures/ibnetdiscover_p_odd_names.txt");
        let lines = parse_ports(text).unwrap();
        let hosts: Vec<_> = lines
            .iter()
            .filter(|line| line.port.kind == NodeKind::Ca)
            .map(|line| (line.port.guid & 0xff, line.port.number, line.port.lid, line.remote.unwrap()))
            .collect();
        let leaf = |guid, lid, number| FabricPort { kind: NodeKind::Switch, lid, number, guid };
        let (a, b) = (0xb859_9f03_0000_1000, 0xb859_9f03_0000_1001);
        assert_eq!(hosts, [(0x21, 1, 1, leaf(a, 2, 2)), (0x12, 2, 5, leaf(b, 3, 1)), (0x11, 1, 4, leaf(a, 2, 1))]);
        for name in ["' - 'x' )", " - SW 1 1 0x1 (", ";:\"'"] {
            let odd = text.replace("a1 HCA-1", name);
            let fields = |lines: &[PortLine]| -> Vec<_> { lines.iter().map(|line| (line.port, line.remote)).collect() };
            assert_eq!(fields(&parse_ports(&odd).unwrap()), fields(&lines), "{name}");
        }
    }

    #[test]
    fn names_are_known_only_if_their_ends_are() {
        let line = |remote, descriptions: &str| PortLine {
            port: FabricPort { kind: NodeKind::Switch, lid: 1, number: 1, guid: 1 },
            link: String::new(),
            remote,
            descriptions: descriptions.to_owned(),
        };
        let remote = Some(FabricPort { kind: NodeKind::Ca, lid: 2, number: 1, guid: 2 });
        assert_eq!(line(None, "'leaf3'").names(), Some(("leaf3", None)));
        assert_eq!(line(remote, "( 'leaf \\' - 'a1 HCA-1' )").names(), Some(("leaf \\", Some("a1 HCA-1"))));
        for odd in ["( 'a' - 'b' - 'c' )", "( 'a' 'b' )", "'a'", ""] {
            assert_eq!(line(remote, odd).names(), None, "{odd}");
        }
    }

    #[test]
    fn a_port_without_a_cable() {
        let lines = parse_ports(include_str!("fixtures/ibnetdiscover_p_down.txt")).unwrap();
        let port = FabricPort { kind: NodeKind::Ca, lid: 28, number: 1, guid: 0x1070_fd03_0000_0041 };
        let descriptions = "'n004 mlx5_0'".to_owned();
        assert_eq!(lines, [PortLine { port, link: "4x HDR".to_owned(), remote: None, descriptions }]);
    }

    #[test]
    fn other_kinds_and_speeds() {
        let text = "RT     7  1 0x05 12x NDR - ??     9  2 0x06 ( 'r' - 'x' )\nCA 1 1 0x7 ?? ??? 'a'\n";
        let lines = parse_ports(text).unwrap();
        assert_eq!((lines[0].port.kind, lines[0].remote.unwrap().kind), (NodeKind::Router, NodeKind::Other));
        assert_eq!((lines[1].link.as_str(), lines[1].remote), ("?? ???", None));
    }

    #[test]
    fn errors_name_the_line() {
        for (line, what, at) in [
            ("CA 65536 1 0x1 4x HDR", "a LID", "65536"),
            ("CA 1 256 0x1 4x HDR", "a port", "256"),
            ("CA 1 1 1 4x HDR", "a GUID", "1 4x HDR"),
            ("CA 1 1 0x1 4x", "a speed", ""),
        ] {
            let text = format!("\nSW 1 1 0x1 4x HDR\n{line}");
            let error = parse_ports(&text).unwrap_err();
            assert_eq!((error.line, error.kind), (3, ToolErrorKind::Expected(what)), "{line}");
            assert!(text[error.offset..].starts_with(at), "{line}: {error}");
        }
    }

    #[test]
    fn other_lines_are_skipped() {
        assert_eq!(parse_ports("").unwrap(), []);
        assert_eq!(
            parse_ports("/usr/sbin/ibnetdiscover: iberror: failed: discover failed\nCAVE 1\nSWAP\n").unwrap(),
            []
        );
    }
}
