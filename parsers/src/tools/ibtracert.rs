//! Parses `ibtracert`: the route from one port to another through the switches.
//!
//! ```text
//! From ca {0x1070fd0300000030} portnum 1 lid 8-8 "n003 mlx5_0"
//! [1] -> switch port {0xb8599f0300001000}[3] lid 2-2 "leaf1"
//! [1] -> ca port {0x1070fd0300000011}[1] lid 1-1 "n001 mlx5_0"
//! To ca {0x1070fd0300000010} portnum 1 lid 1-1 "n001 mlx5_0"
//! ```
//!
//! The tool prints each hop when it reaches it, so a failed trace leaves the first part of the
//! route. The ends are identified by the GUID of the node, the hops by that of the port. `-n`
//! prints GUIDs and ports only.

use super::{
    NodeKind, ParseResult, Tool, ToolError, braced_guid, bracketed_port, description, lid_range, lines, next, number,
};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use nom::Parser;
use nom::branch::alt;
use nom::bytes::complete::tag;
use nom::character::complete::space1;
use nom::combinator::{all_consuming, map, opt, value};
use nom::error::context;
use nom::sequence::{preceded, terminated};

/// A route through the fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FabricRoute {
    /// Source of the route.
    pub from: Option<RouteEnd>,
    /// Ports at which the route enters each node, in order; the last one is the destination.
    pub hops: Vec<Hop>,
    /// Destination of the route; `None` if the trace did not reach it.
    pub to: Option<RouteEnd>,
    /// Error message of the tool.
    pub failure: Option<String>,
}

/// One end of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteEnd {
    /// Kind of the node; `None` with `-n`.
    pub kind: Option<NodeKind>,
    /// GUID of the node (not of its port).
    pub node_guid: u64,
    /// Port number; 0 for a switch.
    pub port: u8,
    /// First and last LID; `None` with `-n`.
    pub lids: Option<(u16, u16)>,
}

/// A hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Port at which the route leaves the previous node.
    pub out_port: u8,
    /// Kind of the node that the hop reaches; `None` with `-n`.
    pub kind: Option<NodeKind>,
    /// GUID of the port that the hop reaches; all ports of a switch share one.
    pub port_guid: u64,
    /// Port at which the route enters the node.
    pub in_port: u8,
    /// First and last LID; `None` with `-n`.
    pub lids: Option<(u16, u16)>,
}

/// A port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchPort {
    /// GUID of the switch.
    pub guid: u64,
    /// LID of the switch; `None` with `-n`.
    pub lid: Option<u16>,
    /// Port number.
    pub port: u8,
}

impl FabricRoute {
    /// The switch that the source is connected to, with the port.
    ///
    /// `None` if the route has no hop (a trace to oneself), begins at a switch, or reaches another
    /// kind of node first. A partial route is sufficient.
    #[must_use]
    pub fn leaf(&self) -> Option<SwitchPort> {
        let from = self.from?;
        if from.port == 0 || from.kind.is_some_and(|kind| kind == NodeKind::Switch) {
            return None;
        }
        let first = self.hops.first()?;
        // `-n` does not print node kinds: only a switch forwards to a next hop, and only a switch
        // has a port 0.
        let is_switch = match first.kind {
            Some(kind) => kind == NodeKind::Switch,
            None => self.hops.len() > 1 || self.to.is_some_and(|to| to.port == 0),
        };
        is_switch.then(|| SwitchPort {
            guid: first.port_guid,
            lid: first.lids.map(|(lid, _)| lid),
            port: first.in_port,
        })
    }
}

/// Parses the output of `ibtracert`, complete or not.
pub fn parse(text: &str) -> Result<FabricRoute, ToolError> {
    let mut trace = FabricRoute::default();
    for line in lines(text) {
        if line.text.starts_with("From ") {
            trace = FabricRoute { from: Some(line.read(Tool::Ibtracert, end("From"))?), ..FabricRoute::default() };
        } else if line.text.starts_with('[') {
            trace.hops.push(line.read(Tool::Ibtracert, hop)?);
        } else if line.text.starts_with("To ") {
            trace.to = Some(line.read(Tool::Ibtracert, end("To"))?);
        } else if let Some((_, reason)) = line.text.split_once("iberror: ") {
            trace.failure = Some(reason.strip_prefix("failed: ").unwrap_or(reason).to_owned());
        }
    }
    Ok(trace)
}

/// `From ca {GUID} portnum N lid A-B "..."`, `From {GUID}[N]`.
fn end<'a>(word: &'static str) -> impl Parser<&'a str, Output = RouteEnd, Error = super::LineError<'a>> {
    let port = preceded(next("portnum", tag("portnum")), next("a port", number("a port")));
    let full = (kind, next("'{'", braced_guid), port, lid_range, description('"'));
    let full =
        map(full, |(kind, node_guid, port, lids, _)| RouteEnd { kind: Some(kind), node_guid, port, lids: Some(lids) });
    let simple =
        map((braced_guid, bracketed_port), |(node_guid, port)| RouteEnd { kind: None, node_guid, port, lids: None });
    preceded((tag(word), space1), alt((all_consuming(simple), full)))
}

/// `[OUT] -> switch port {GUID}[IN] lid A-B "..."`, `[OUT] -> {GUID}[IN]`.
fn hop(input: &str) -> ParseResult<'_, Hop> {
    let arrow = (next("'->'", tag("->")), context("a kind of node or '{'", space1));
    let (input, out_port) = terminated(bracketed_port, arrow).parse(input)?;
    let kind = opt(terminated(kind, (space1, tag("port"), space1)));
    let (input, (kind, port_guid, in_port)) = (kind, braced_guid, bracketed_port).parse(input)?;
    let (input, lids) = if kind.is_some() { map(lid_range, Some).parse(input)? } else { (input, None) };
    let (left, _) = description('"')(input)?;
    Ok((left, Hop { out_port, kind, port_guid, in_port, lids }))
}

fn kind(input: &str) -> ParseResult<'_, NodeKind> {
    let known = alt((
        value(NodeKind::Ca, tag("ca")),
        value(NodeKind::Switch, tag("switch")),
        value(NodeKind::Router, tag("router")),
        value(NodeKind::Other, alt((tag("iwarp rnic"), tag("???")))),
    ));
    context("a kind of node", known).parse(input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::ToolErrorKind;

    const HOST: u64 = 0x1070_fd03_0000_0000;
    const LEAF1: SwitchPort = SwitchPort { guid: 0xb859_9f03_0000_1000, lid: Some(2), port: 3 };
    const LEAF1_LMC: SwitchPort = SwitchPort { lid: Some(8), ..LEAF1 };

    #[test]
    fn across_leaves() {
        let trace = parse(include_str!("fixtures/ibtracert_cross_leaf.txt")).unwrap();
        let end =
            |node_guid, lid| Some(RouteEnd { kind: Some(NodeKind::Ca), node_guid, port: 1, lids: Some((lid, lid)) });
        assert_eq!((trace.from, trace.to), (end(HOST + 0x30, 8), end(HOST + 0xf0, 20)));
        let hops: Vec<_> = trace.hops.iter().map(|hop| (hop.out_port, hop.port_guid, hop.in_port, hop.lids)).collect();
        let expected = [
            (1, 0xb859_9f03_0000_1000, 3, Some((2, 2))),
            (7, 0xb859_9f03_0000_2001, 1, Some((5, 5))),
            (3, 0xb859_9f03_0000_1002, 7, Some((6, 6))),
            (5, HOST + 0xf1, 1, Some((20, 20))),
        ];
        assert_eq!(hops, expected);
        assert_eq!(trace.failure, None);
    }

    #[test]
    fn the_leaf() {
        let simple = SwitchPort { lid: None, ..LEAF1 };
        for (text, leaf) in [
            (include_str!("fixtures/ibtracert_cross_leaf.txt"), Some(LEAF1)),
            (include_str!("fixtures/ibtracert_same_leaf.txt"), Some(LEAF1)),
            (include_str!("fixtures/ibtracert_third_party.txt"), Some(SwitchPort { port: 1, ..LEAF1 })),
            (include_str!("fixtures/ibtracert_n.txt"), Some(simple)),
            (include_str!("fixtures/ibtracert_lmc2.txt"), Some(LEAF1_LMC)),
            (include_str!("fixtures/ibtracert_to_leaf.txt"), Some(LEAF1_LMC)),
            (include_str!("fixtures/ibtracert_to_leaf_n.txt"), Some(simple)),
            (include_str!("fixtures/ibtracert_odd_names.txt"), Some(SwitchPort { port: 1, ..LEAF1 })),
            (include_str!("fixtures/ibtracert_odd_names_n.txt"), Some(SwitchPort { port: 1, ..simple })),
            (include_str!("fixtures/ibtracert_self.txt"), None),
            (include_str!("fixtures/ibtracert_from_leaf.txt"), None),
            (include_str!("fixtures/ibtracert_down.txt"), None),
            (include_str!("fixtures/ibtracert_badlid_dst.txt"), None),
            ("", None),
        ] {
            assert_eq!(parse(text).unwrap().leaf(), leaf, "{text}");
        }
    }

    #[test]
    fn lid_mask_control() {
        let trace = parse(include_str!("fixtures/ibtracert_lmc2.txt")).unwrap();
        assert_eq!(trace.from.and_then(|end| end.lids), Some((24, 27)));
        assert_eq!(trace.to.and_then(|end| end.lids), Some((4, 7)));
    }

    #[test]
    fn descriptions_decide_nothing() {
        let text = include_str!("fixtures/ibtracert_cross_leaf.txt");
        let plain = parse(text).unwrap();
        for name in
            ["MF0;leafA:MQM8700/U1", "leaf \\", "leaf \"B\"", "", "-> ca port {0x1}[9] lid 1-1", "a 'b' \"", "ü"]
        {
            let odd = text.replace("\"leaf1\"", &std::format!("\"{name}\"")).replace("n003 mlx5_0", name);
            assert_ne!(odd, text);
            assert_eq!(parse(&odd).unwrap(), plain, "{name}");
        }
    }

    #[test]
    fn a_failed_trace_keeps_its_first_hops() {
        let failed = parse(include_str!("fixtures/ibtracert_badlid_dst.txt")).unwrap();
        assert_eq!(failed.failure.as_deref(), Some("Failed to get route information"));
        // The tool prints each hop when it reaches it, so a later failure leaves the lines before
        // it.
        let whole = include_str!("fixtures/ibtracert_cross_leaf.txt");
        let two_hops = whole.split_inclusive('\n').take(4).collect::<String>();
        let partial = parse(&(two_hops + "ibtracert: iberror: failed: Failed to get route information\n")).unwrap();
        assert_eq!((partial.leaf(), partial.hops.len(), partial.to), (Some(LEAF1), 2, None));
        assert_eq!(partial.failure, failed.failure);
    }

    #[test]
    fn only_a_switch_is_a_leaf() {
        let text = include_str!("fixtures/ibtracert_same_leaf.txt");
        for kind in ["router", "ca", "iwarp rnic", "???"] {
            let trace = parse(&text.replace("switch port", &std::format!("{kind} port"))).unwrap();
            assert_eq!((trace.hops.len(), trace.leaf()), (2, None), "{kind}");
        }
        // Two adapters connected by a cable: with `-n`, only the port shows that the single hop is
        // no switch.
        let cabled = "From {0x1}[1]\n[1] -> {0x12}[1]\nTo {0x11}[1]\n";
        assert_eq!(parse(cabled).unwrap().leaf(), None);
        // A router after the leaf changes nothing.
        let routed = "From ca {0x1} portnum 2 lid 4-4 \"a\"\n[2] -> switch port {0x5}[9] lid 7-7 \"s\"\n[3] -> router port {0x6}[1] lid 8-8 \"r\"\n";
        assert_eq!(parse(routed).unwrap().leaf(), Some(SwitchPort { guid: 5, lid: Some(7), port: 9 }));
    }

    #[test]
    fn errors_name_the_line() {
        let good = "From ca {0x1} portnum 1 lid 8-8 \"n\"\n";
        for (line, what, at) in [
            ("[1] -> switch port {0xg}[3] lid 2-2 \"leaf1\"", "a GUID", "g}"),
            ("[1] -> switch port {0x1}[256] lid 2-2 \"leaf1\"", "a port", "256"),
            ("[1] -> switch port {0x1}[3] lid 2-65536 \"leaf1\"", "a LID", "65536"),
            ("[1] => switch port {0x1}[3] lid 2-2 \"leaf1\"", "'->'", "=>"),
            ("[1] -> switch port {0x1}[3]", "lid", ""),
            ("To ca {0x1} portnum 1", "lid", ""),
            ("To whom {0x1} portnum 1 lid 1-1", "a kind of node", "whom"),
        ] {
            let text = std::format!("{good}{line}");
            let error = parse(&text).unwrap_err();
            assert_eq!((error.line, error.kind), (2, ToolErrorKind::Expected(what)), "{line}");
            assert_eq!(text[error.offset..].trim_start_matches("0x"), &line[line.rfind(at).unwrap()..], "{line}");
        }
    }
}
