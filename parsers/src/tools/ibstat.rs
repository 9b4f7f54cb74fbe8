//! `ibstat`: the host channel adapters of a node and the state of their ports.
//!
//! One block per adapter, its ports below it:
//!
//! ```text
//! CA 'mlx5_0'
//!         Number of ports: 1
//!         Node GUID: 0x1070fd0300000030
//!         Port 1:
//!                 State: Active
//!                 Rate: 200
//!                 Base lid: 8
//!                 ...
//! ```
//!
//! Keys that are not known are passed over, as newer versions add some. A port that is down may still show the LID that it
//! had: the state decides, not the LID.

use super::{Fault, Line, Parsed, Tool, ToolError, guid, lines, number};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use nom::Parser;
use nom::branch::alt;
use nom::bytes::complete::{tag, take_until};
use nom::character::complete::{digit1, space0};
use nom::combinator::{all_consuming, map_opt, opt, recognize};
use nom::error::context;
use nom::sequence::{delimited, preceded};

/// A host channel adapter, or another device that `ibstat` lists as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ca {
    /// Name of the device, such as `mlx5_0`.
    pub name: String,
    /// GUID of the node.
    pub node_guid: u64,
    /// Its ports.
    pub ports: Vec<CaPort>,
}

/// A port of an adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaPort {
    /// Number, from 1.
    pub number: u8,
    /// Logical state.
    pub state: PortState,
    /// Physical state as printed: `LinkUp`, `Polling`, `Disabled` ...
    pub physical_state: String,
    /// Rate in tenths of Gbit/s: 25 is 2.5 Gbit/s.
    pub rate_gbits_tenths: u32,
    /// First LID; 0 where the subnet manager gave none. Left over from before where the port is not active.
    pub base_lid: u16,
    /// LID mask control: the port answers to `2^lmc` LIDs from the first on.
    pub lmc: u8,
    /// LID of the subnet manager.
    pub sm_lid: u16,
    /// GUID of the port.
    pub port_guid: u64,
    /// Which link layer it runs.
    pub link_layer: LinkLayer,
}

/// Logical state of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortState {
    /// No link.
    Down,
    /// Link, but no subnet manager has been there.
    Initializing,
    /// Configured, not yet in use.
    Armed,
    /// In use.
    Active,
    /// None of these.
    #[default]
    Unknown,
}

/// Link layer of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand: `InfiniBand`, or `IB` as old versions and the simulator write it.
    InfiniBand,
    /// Ethernet: the port speaks RoCE or iWARP and has no LID.
    Ethernet,
    /// None of these, or not said.
    #[default]
    Unknown,
}

impl PortState {
    /// The name as `ibstat` prints it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Down => "Down",
            Self::Initializing => "Initializing",
            Self::Armed => "Armed",
            Self::Active => "Active",
            Self::Unknown => "unknown",
        }
    }
}

/// Reads the output of `ibstat`, with or without ports.
pub fn parse(text: &str) -> Result<Vec<Ca>, ToolError> {
    let mut cas: Vec<Ca> = Vec::new();
    for line in lines(text) {
        if let Ok((_, name)) = head(line.text) {
            cas.push(Ca { name: name.to_owned(), node_guid: 0, ports: Vec::new() });
            continue;
        }
        // Anything before the first block is the greeting of a login shell.
        let Some(ca) = cas.last_mut() else { continue };
        let text = line.text.trim_start();
        if let Ok((_, number)) = port_head(text) {
            ca.ports.push(CaPort { number, ..CaPort::default() });
        } else if let Some((key, value)) = text.split_once(':') {
            let at = line.text.len() - value.len();
            let value = Line { offset: line.offset + at, text: value, ..line };
            match ca.ports.last_mut() {
                Some(port) => set(port, key, value)?,
                None if key == "Node GUID" => ca.node_guid = whole(value, guid)?,
                None => {}
            }
        }
    }
    Ok(cas)
}

/// One key of a port.
fn set(port: &mut CaPort, key: &str, value: Line<'_>) -> Result<(), ToolError> {
    let word = value.text.trim();
    match key {
        "State" => {
            port.state = match word {
                "Down" => PortState::Down,
                "Initializing" => PortState::Initializing,
                "Armed" => PortState::Armed,
                "Active" => PortState::Active,
                _ => PortState::Unknown,
            }
        }
        "Physical state" => port.physical_state = word.to_owned(),
        "Rate" => port.rate_gbits_tenths = value.read(Tool::Ibstat, preceded(space0, rate))?,
        "Base lid" => port.base_lid = whole(value, number("a LID"))?,
        "LMC" => port.lmc = lmc(value)?,
        "SM lid" => port.sm_lid = whole(value, number("a LID"))?,
        "Port GUID" => port.port_guid = whole(value, guid)?,
        "Link layer" => {
            port.link_layer = match word {
                "InfiniBand" | "IB" => LinkLayer::InfiniBand,
                "Ethernet" => LinkLayer::Ethernet,
                _ => LinkLayer::Unknown,
            }
        }
        _ => {}
    }
    Ok(())
}

/// A value that takes the rest of its line.
fn whole<'a, T>(
    value: Line<'a>,
    parser: impl Parser<&'a str, Output = T, Error = super::Stop<'a>>,
) -> Result<T, ToolError> {
    value.read(Tool::Ibstat, all_consuming(delimited(space0, parser, space0)))
}

/// Three bits.
fn lmc(value: Line<'_>) -> Result<u8, ToolError> {
    let lmc = whole(value, number("an LMC"))?;
    if lmc > 7 {
        return Err(ToolError {
            tool: Tool::Ibstat,
            line: value.number,
            offset: value.offset,
            fault: Fault::Expected("an LMC of 0 to 7"),
        });
    }
    Ok(lmc)
}

/// `CA 'NAME'`, at the start of a line. The kind of device says nothing that the link layer of its ports does not.
fn head(input: &str) -> Parsed<'_, &str> {
    let kind = alt((tag("CA"), tag("Switch"), tag("Router"), tag("iWARP RNIC"), tag("???")));
    let name = delimited(tag("'"), take_until("'"), tag("'"));
    all_consuming(preceded((kind, opt(tag(":")), space0), name)).parse(input)
}

/// `Port N:`.
fn port_head(input: &str) -> Parsed<'_, u8> {
    all_consuming(delimited((tag("Port"), space0), number("a port"), tag(":"))).parse(input)
}

/// `200`, `2.5`, `40 (FDR10)`: in tenths.
fn rate(input: &str) -> Parsed<'_, u32> {
    let fraction = preceded(tag("."), recognize(digit1));
    let tenths = |(whole, fraction): (u32, Option<&str>)| {
        let tenth = fraction.and_then(|digits: &str| digits.chars().next()).and_then(|digit| digit.to_digit(10));
        whole.checked_mul(10)?.checked_add(tenth.unwrap_or(0))
    };
    context("a rate", map_opt((number("a rate"), opt(fraction)), tenths)).parse(input)
}
