//! `ibnetdiscover -p`: every port of a subnet and what it is connected to, one per line.
//!
//! ```text
//! CA    20  1 0x1070fd03000000f1 4x HDR - SW     6  5 0xb8599f0300001002 ( 'n015 mlx5_0' - 'leaf3' )
//! SW     6 36 0xb8599f0300001002 4x SDR                                    'leaf3'
//! ```

use super::{NodeKind, Parsed, Tool, ToolError, guid, lines, number};
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

/// A port and what it is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLine {
    /// The port.
    pub port: FabricPort,
    /// Width and speed as printed, such as `4x HDR`.
    pub link: String,
    /// The port at the other end of the cable, if there is one.
    pub remote: Option<FabricPort>,
    /// Descriptions of the nodes, as printed: for people only.
    pub descriptions: String,
}

/// A port of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricPort {
    /// Kind of its node.
    pub kind: NodeKind,
    /// LID; of the switch where the port is one of a switch.
    pub lid: u16,
    /// Number.
    pub number: u8,
    /// GUID of the port; all ports of a switch share one.
    pub guid: u64,
}

/// Reads the output of `ibnetdiscover -p`. Lines that do not begin with a kind of node are passed over.
pub fn parse_ports(text: &str) -> Result<Vec<PortLine>, ToolError> {
    lines(text)
        .filter(|line| terminated(kind, peek(space1)).parse(line.text).is_ok())
        .map(|line| line.read(Tool::Ibnetdiscover, port_line))
        .collect()
}

fn port_line(input: &str) -> Parsed<'_, PortLine> {
    let word = |what| context(what, take_till1(|c: char| c.is_whitespace()));
    let link = (preceded(space1, word("a width")), preceded(space1, word("a speed")));
    let connected = preceded((space1, tag("-"), space1), port);
    let (left, (port, (width, speed), remote, descriptions)) = (port, link, opt(connected), rest).parse(input)?;
    let link = [width, speed].join(" ");
    Ok((left, PortLine { port, link, remote, descriptions: descriptions.trim().to_owned() }))
}

/// `CA    20  1 0x1070fd03000000f1`.
fn port(input: &str) -> Parsed<'_, FabricPort> {
    let fields = (kind, preceded(space1, number("a LID")), preceded(space1, number("a port")), preceded(space1, guid));
    fields.map(|(kind, lid, number, guid)| FabricPort { kind, lid, number, guid }).parse(input)
}

fn kind(input: &str) -> Parsed<'_, NodeKind> {
    let known = alt((
        value(NodeKind::Ca, tag("CA")),
        value(NodeKind::Switch, tag("SW")),
        value(NodeKind::Router, tag("RT")),
        value(NodeKind::Other, tag("??")),
    ));
    context("a kind of node", known).parse(input)
}
