//! Parses `ibstat`: the host channel adapters of a node and the state of their ports.
//!
//! One block per adapter, followed by its ports:
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
//! Unknown keys are skipped, because newer versions add keys. A port that is down may still show
//! its former LID, so callers must check the state.

use super::{ParseResult, TextLine, Tool, ToolError, ToolErrorKind, guid, lines, number};
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

/// A host channel adapter, or another device that `ibstat` lists like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ca {
    /// Device name, such as `mlx5_0`.
    pub name: String,
    /// GUID of the node.
    pub node_guid: u64,
    /// Ports of the adapter.
    pub ports: Vec<CaPort>,
}

/// A port of an adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaPort {
    /// Port number, from 1.
    pub number: u8,
    /// Logical state.
    pub state: PortState,
    /// Physical state as printed: `LinkUp`, `Polling`, `Disabled` ...
    pub physical_state: String,
    /// Rate in tenths of Gbit/s: 25 is 2.5 Gbit/s.
    pub rate_gbits_tenths: u32,
    /// First LID; 0 if the subnet manager assigned none. A stale value if the port is not active.
    pub base_lid: u16,
    /// LID mask control: the port has `2^lmc` LIDs, starting with `base_lid`.
    pub lmc: u8,
    /// LID of the subnet manager.
    pub sm_lid: u16,
    /// GUID of the port.
    pub port_guid: u64,
    /// Link layer.
    pub link_layer: LinkLayer,
}

/// Logical state of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortState {
    /// No link.
    Down,
    /// Link, but not configured by a subnet manager yet.
    Initializing,
    /// Configured, not yet in use.
    Armed,
    /// In use.
    Active,
    /// Another state.
    #[default]
    Unknown,
}

/// Link layer of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand, printed as `InfiniBand`, or as `IB` by old versions and the simulator.
    InfiniBand,
    /// Ethernet: the port runs RoCE or iWARP and has no LID.
    Ethernet,
    /// Another link layer, or none printed.
    #[default]
    Unknown,
}

impl PortState {
    /// Name as `ibstat` prints it.
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

/// Parses the output of `ibstat`.
pub fn parse(text: &str) -> Result<Vec<Ca>, ToolError> {
    let mut cas: Vec<Ca> = Vec::new();
    for line in lines(text) {
        if let Ok((_, name)) = head(line.text) {
            cas.push(Ca { name: name.to_owned(), node_guid: 0, ports: Vec::new() });
            continue;
        }
        // Skip text before the first block: the greeting of a login shell.
        let Some(ca) = cas.last_mut() else { continue };
        let text = line.text.trim_start();
        if let Ok((_, number)) = port_head(text) {
            ca.ports.push(CaPort { number, ..CaPort::default() });
        } else if let Some((key, value)) = text.split_once(':') {
            let at = line.text.len() - value.len();
            let value = TextLine { offset: line.offset + at, text: value, ..line };
            match ca.ports.last_mut() {
                Some(port) => set(port, key, value)?,
                None if key == "Node GUID" => ca.node_guid = whole(value, guid)?,
                None => {}
            }
        }
    }
    Ok(cas)
}

/// Sets the field of one key of a port.
fn set(port: &mut CaPort, key: &str, value: TextLine<'_>) -> Result<(), ToolError> {
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
        "Physical state" => word.clone_into(&mut port.physical_state),
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

/// Parses a value that takes the rest of its line.
fn whole<'a, T>(
    value: TextLine<'a>,
    parser: impl Parser<&'a str, Output = T, Error = super::LineError<'a>>,
) -> Result<T, ToolError> {
    value.read(Tool::Ibstat, all_consuming(delimited(space0, parser, space0)))
}

/// Parses an LMC, 0 to 7.
fn lmc(value: TextLine<'_>) -> Result<u8, ToolError> {
    let lmc = whole(value, number("an LMC"))?;
    if lmc > 7 {
        return Err(ToolError {
            tool: Tool::Ibstat,
            line: value.number,
            offset: value.offset,
            kind: ToolErrorKind::Expected("an LMC of 0 to 7"),
        });
    }
    Ok(lmc)
}

/// `CA 'NAME'` at the start of a line. The kind of device is ignored: the link layer of the ports
/// is more specific.
fn head(input: &str) -> ParseResult<'_, &str> {
    let kind = alt((tag("CA"), tag("Switch"), tag("Router"), tag("iWARP RNIC"), tag("???")));
    let name = delimited(tag("'"), take_until("'"), tag("'"));
    all_consuming(preceded((kind, opt(tag(":")), space0), name)).parse(input)
}

/// `Port N:`.
fn port_head(input: &str) -> ParseResult<'_, u8> {
    all_consuming(delimited((tag("Port"), space0), number("a port"), tag(":"))).parse(input)
}

/// `200`, `2.5`, `40 (FDR10)`, in tenths.
fn rate(input: &str) -> ParseResult<'_, u32> {
    let fraction = preceded(tag("."), recognize(digit1));
    let tenths = |(whole, fraction): (u32, Option<&str>)| {
        let tenth = fraction.and_then(|digits: &str| digits.chars().next()).and_then(|digit| digit.to_digit(10));
        whole.checked_mul(10)?.checked_add(tenth.unwrap_or(0))
    };
    context("a rate", map_opt((number("a rate"), opt(fraction)), tenths)).parse(input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec;

    #[test]
    fn one_adapter_of_the_simulator() {
        let cas = parse(include_str!("fixtures/ibstat_n003.txt")).unwrap();
        let port = CaPort {
            number: 1,
            state: PortState::Active,
            physical_state: "LinkUp".to_owned(),
            rate_gbits_tenths: 1040,
            base_lid: 8,
            lmc: 0,
            sm_lid: 1,
            port_guid: 0x1070_fd03_0000_0031,
            link_layer: LinkLayer::InfiniBand,
        };
        let expected = Ca { name: "ibsim0".to_owned(), node_guid: 0x1070_fd03_0000_0030, ports: vec![port] };
        assert_eq!(cas, [expected]);
    }

    #[test]
    fn several_adapters_and_ports() {
        let cas = parse(include_str!("fixtures/ibstat_rails.txt")).unwrap();
        let ports: Vec<_> = cas
            .iter()
            .flat_map(|ca| ca.ports.iter().map(move |port| (ca.name.as_str(), ca.node_guid, port)))
            .map(|(ca, node_guid, port)| {
                let CaPort { number, state, rate_gbits_tenths, base_lid, lmc, sm_lid, port_guid, link_layer, .. } =
                    *port;
                (ca, node_guid, number, state, rate_gbits_tenths, (base_lid, lmc, sm_lid), port_guid, link_layer)
            })
            .collect();
        let (active, ib) = (PortState::Active, LinkLayer::InfiniBand);
        let mlx4 = 0x0002_c903_0031_fdc0;
        let expected = [
            ("mlx5_0", 0xb8ce_f603_00a1_b2c0, 1, active, 2000, (1031, 0, 12), 0xb8ce_f603_00a1_b2c0, ib),
            ("mlx5_1", 0xb8ce_f603_00a1_b2c4, 1, active, 4000, (49151, 3, 12), 0xb8ce_f603_00a1_b2c5, ib),
            (
                "mlx5_bond_0",
                0x0c42_a103_00d4_e5f6,
                1,
                active,
                250,
                (0, 0, 0),
                0x0e42_a1ff_fed4_e5f6,
                LinkLayer::Ethernet,
            ),
            ("mlx4_0", mlx4, 1, active, 400, (7, 1, 12), mlx4 + 1, ib),
            ("mlx4_0", mlx4, 2, PortState::Initializing, 25, (9, 0, 0), mlx4 + 2, ib),
        ];
        assert_eq!(ports, expected);
    }

    #[test]
    fn a_port_that_is_down_still_shows_its_lid() {
        let port = &parse(include_str!("fixtures/ibstat_down.txt")).unwrap()[0].ports[0];
        assert_eq!((port.state, port.base_lid, port.lmc), (PortState::Down, 28, 2));
        assert_ne!(port.physical_state, "LinkUp");
    }

    #[test]
    fn lid_mask_control_and_the_other_end_of_lines() {
        let text = include_str!("fixtures/ibstat_lmc2.txt");
        let cas = parse(text).unwrap();
        assert_eq!((cas[0].ports[0].base_lid, cas[0].ports[0].lmc, cas[0].ports[0].sm_lid), (24, 2, 4));
        assert_eq!(parse(&text.replace('\n', "\r\n")).unwrap(), cas);
        let greeting = std::format!("Last login: today\nPort 9: closed\nibwarn: [7] CA 'x'\n{text}");
        assert_eq!(parse(&greeting).unwrap(), cas);
    }

    #[test]
    fn no_adapter() {
        assert_eq!(parse("").unwrap(), []);
        assert_eq!(parse(include_str!("fixtures/ibstat_badca.txt")).unwrap(), []);
    }

    #[test]
    fn errors_name_the_line() {
        for (key, value, what) in [
            ("Base lid", "65536", "a LID"),
            ("Base lid", "-1", "a LID"),
            ("Base lid", "9 8", "the end of the line"),
            ("LMC", "8", "an LMC of 0 to 7"),
            ("Rate", "fast", "a rate"),
            ("Port GUID", "1070fd0300000031", "a GUID"),
            ("Port GUID", "0x11070fd0300000031", "a GUID"),
        ] {
            let text = std::format!("CA 'mlx5_0'\n\tPort 1:\n\t\t{key}: {value}\n");
            let error = parse(&text).unwrap_err();
            assert_eq!((error.line, error.kind), (3, ToolErrorKind::Expected(what)), "{text}");
            let at = value.rsplit(' ').next().unwrap().trim_start_matches("0x");
            assert!(text[error.offset..].trim_start().trim_start_matches("0x").starts_with(at), "{text} {error}");
        }
        let message = parse("CA 'a'\n\tPort 1:\n\t\tLMC: x\n").unwrap_err().to_string();
        assert_eq!(message, "output of ibstat, line 3: an LMC expected at byte 23");
    }
}
