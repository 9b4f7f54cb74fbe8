//! `ibtracert`: the way from one port to another through the switches.
//!
//! ```text
//! From ca {0x1070fd0300000030} portnum 1 lid 8-8 "n003 mlx5_0"
//! [1] -> switch port {0xb8599f0300001000}[3] lid 2-2 "leaf1"
//! [1] -> ca port {0x1070fd0300000011}[1] lid 1-1 "n001 mlx5_0"
//! To ca {0x1070fd0300000010} portnum 1 lid 1-1 "n001 mlx5_0"
//! ```
//!
//! Each hop is printed when it is reached, so a trace that fails leaves the part of the way that it came. The ends are named by the
//! GUID of the node, the hops by that of the port. With `-n` only GUIDs and ports are printed.

use super::{NodeKind, Parsed, Tool, ToolError, braced_guid, bracketed_port, description, lid_range, lines, number};
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

/// A way through the fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Where it begins.
    pub from: Option<End>,
    /// The ports that it comes in by, in order, with the destination as the last one.
    pub hops: Vec<Hop>,
    /// Where it ends; none if it did not get there.
    pub to: Option<End>,
    /// What the tool said of a failure.
    pub failure: Option<String>,
}

/// One end of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Which kind of node; none with `-n`.
    pub kind: Option<NodeKind>,
    /// GUID of the node (not of its port).
    pub node_guid: u64,
    /// Port; 0 for a switch.
    pub port: u8,
    /// First and last LID; none with `-n`.
    pub lids: Option<(u16, u16)>,
}

/// A step of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Port by which the way leaves the node before.
    pub out_port: u8,
    /// Kind of the node that is reached; none with `-n`.
    pub kind: Option<NodeKind>,
    /// GUID of the port that is reached; all ports of a switch share one.
    pub port_guid: u64,
    /// Port by which the way comes in.
    pub in_port: u8,
    /// First and last LID; none with `-n`.
    pub lids: Option<(u16, u16)>,
}

/// A port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchPort {
    /// GUID of the switch.
    pub guid: u64,
    /// LID of the switch; none with `-n`.
    pub lid: Option<u16>,
    /// Port.
    pub port: u8,
}

impl Trace {
    /// The switch that the source is connected to, and the port of that switch. None where the way has no hop (a trace to
    /// oneself), begins at a switch, or comes to something else first; a part of a way is enough.
    #[must_use]
    pub fn leaf(&self) -> Option<SwitchPort> {
        let from = self.from?;
        if from.port == 0 || from.kind.is_some_and(|kind| kind == NodeKind::Switch) {
            return None;
        }
        let first = self.hops.first()?;
        // `-n` does not say what a hop is: only a switch is passed on the way, and only a switch has a port 0.
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

/// Reads the output of `ibtracert`, whether or not it came to its end.
pub fn parse(text: &str) -> Result<Trace, ToolError> {
    let mut trace = Trace::default();
    for line in lines(text) {
        if line.text.starts_with("From ") {
            trace = Trace { from: Some(line.read(Tool::Ibtracert, end("From"))?), ..Trace::default() };
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
fn end<'a>(word: &'static str) -> impl Parser<&'a str, Output = End, Error = super::Stop<'a>> {
    let full = (terminated(kind, space1), braced_guid, preceded((space1, tag("portnum"), space1), number("a port")));
    let full = (full, preceded(space1, lid_range), description('"'));
    let full =
        map(full, |((kind, node_guid, port), lids, _)| End { kind: Some(kind), node_guid, port, lids: Some(lids) });
    let simple =
        map((braced_guid, bracketed_port), |(node_guid, port)| End { kind: None, node_guid, port, lids: None });
    preceded((tag(word), space1), alt((all_consuming(simple), full)))
}

/// `[OUT] -> switch port {GUID}[IN] lid A-B "..."`, `[OUT] -> {GUID}[IN]`.
fn hop(input: &str) -> Parsed<'_, Hop> {
    let arrow = (space1, context("'->'", tag("->")), space1);
    let (input, out_port) = terminated(bracketed_port, arrow).parse(input)?;
    let kind = opt(terminated(kind, (space1, tag("port"), space1)));
    let (input, (kind, port_guid, in_port)) = (kind, braced_guid, bracketed_port).parse(input)?;
    let lids = if kind.is_some() { map(preceded(space1, lid_range), Some).parse(input)? } else { (input, None) };
    let (left, _) = description('"')(lids.0)?;
    Ok((left, Hop { out_port, kind, port_guid, in_port, lids: lids.1 }))
}

fn kind(input: &str) -> Parsed<'_, NodeKind> {
    let known = alt((
        value(NodeKind::Ca, tag("ca")),
        value(NodeKind::Switch, tag("switch")),
        value(NodeKind::Router, tag("router")),
        value(NodeKind::Other, alt((tag("iwarp rnic"), tag("???")))),
    ));
    context("a kind of node", known).parse(input)
}
