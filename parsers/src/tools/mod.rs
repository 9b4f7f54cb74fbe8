//! What the tools of a fabric print, read into values: `ibstat`, `ibtracert`, `ibnetdiscover -p`, and Slurm's host lists.
//!
//! Text comes from other machines, so nothing in it is trusted: no text makes a parser panic, every collection is bounded by
//! the length of the text or by what the caller allows, and an error says which line could not be read. Descriptions of nodes are whatever an
//! administrator wrote and the tools cut them at will: they are kept for people to read, and nothing is decided by them.

pub mod hostlist;
pub mod ibnetdiscover;
pub mod ibstat;
pub mod ibtracert;
pub mod otf2_print;

use core::fmt;
use nom::branch::alt;
use nom::bytes::complete::{tag, take_while1};
use nom::character::complete::{digit1, space1};
use nom::combinator::{map_opt, rest};
use nom::error::{ContextError, ErrorKind, context};
use nom::sequence::{delimited, preceded, separated_pair};
use nom::{IResult, Parser};

/// A text that could not be read: whose, where, and what stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolError {
    /// What wrote the text.
    pub tool: Tool,
    /// Line of the text, from 1.
    pub line: usize,
    /// Bytes from the start of the text to where reading stopped.
    pub offset: usize,
    /// Why it stopped.
    pub fault: Fault,
}

/// What writes a text that this module reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Slurm's list of nodes.
    HostList,
    /// `ibstat`.
    Ibstat,
    /// `ibtracert`.
    Ibtracert,
    /// `ibnetdiscover -p`.
    Ibnetdiscover,
}

/// Why a text could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Something else should stand there.
    Expected(&'static str),
    /// More entries than the caller allows.
    TooMany {
        /// How many are allowed.
        most: usize,
    },
}

/// A kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Host channel adapter.
    Ca,
    /// Switch.
    Switch,
    /// Router to another subnet.
    Router,
    /// Another kind.
    Other,
}

impl Tool {
    /// The name used in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostList => "host list",
            Self::Ibstat => "output of ibstat",
            Self::Ibtracert => "output of ibtracert",
            Self::Ibnetdiscover => "output of ibnetdiscover -p",
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tool.name())?;
        if self.tool != Tool::HostList {
            write!(f, ", line {}", self.line)?;
        }
        match self.fault {
            Fault::Expected(what) => write!(f, ": {what} expected at byte {}", self.offset),
            Fault::TooMany { most } => write!(f, ": more than {most} entries at byte {}", self.offset),
        }
    }
}

impl core::error::Error for ToolError {}

/// Where a line's parser stopped: what is left from there, and what it had expected.
#[derive(Clone, Copy, Debug)]
struct Stop<'a> {
    left: &'a str,
    expected: &'static str,
}

impl<'a> nom::error::ParseError<&'a str> for Stop<'a> {
    fn from_error_kind(left: &'a str, kind: ErrorKind) -> Self {
        Self { left, expected: if kind == ErrorKind::Eof { "the end of the line" } else { "" } }
    }

    fn append(_: &'a str, _: ErrorKind, other: Self) -> Self {
        other
    }
}

impl<'a> ContextError<&'a str> for Stop<'a> {
    /// The innermost name says most; its parser began at `left`.
    fn add_context(left: &'a str, expected: &'static str, other: Self) -> Self {
        if other.expected.is_empty() { Self { left, expected } } else { other }
    }
}

type Parsed<'a, T> = IResult<&'a str, T, Stop<'a>>;

/// A line of a text and where it stands.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    number: usize,
    offset: usize,
    text: &'a str,
}

impl<'a> Line<'a> {
    /// Reads the line; anything after what `parser` takes is left to it.
    fn read<T>(self, tool: Tool, parser: impl Parser<&'a str, Output = T, Error = Stop<'a>>) -> Result<T, ToolError> {
        let mut parser = parser;
        match parser.parse(self.text) {
            Ok((_, value)) => Ok(value),
            Err(nom::Err::Error(stop) | nom::Err::Failure(stop)) => {
                Err(self.error(tool, self.text.len().saturating_sub(stop.left.len()), stop.expected))
            }
            // Complete parsers never ask for more.
            Err(nom::Err::Incomplete(_)) => Err(self.error(tool, self.text.len(), "more text")),
        }
    }

    fn error(self, tool: Tool, column: usize, expected: &'static str) -> ToolError {
        ToolError { tool, line: self.number, offset: self.offset + column, fault: Fault::Expected(expected) }
    }
}

/// The lines of a text. Ends of lines (also CR LF) and white space before them do not belong to a line. Warnings that the
/// libraries below the tools print (`ibwarn: [PID] ...`) are left out: a site's wrapper may have joined both outputs.
fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut offset = 0;
    text.split_inclusive('\n')
        .enumerate()
        .map(move |(index, line)| {
            let start = offset;
            offset += line.len();
            Line { number: index + 1, offset: start, text: line.trim_end() }
        })
        .filter(|line| !line.text.is_empty() && !line.text.starts_with("ibwarn: ["))
}

/// A decimal number that fits the type.
fn number<'a, T: core::str::FromStr>(what: &'static str) -> impl Parser<&'a str, Output = T, Error = Stop<'a>> {
    context(what, map_opt(digit1, |digits: &str| digits.parse().ok()))
}

/// White space and what comes after it.
fn next<'a, T>(
    what: &'static str,
    parser: impl Parser<&'a str, Output = T, Error = Stop<'a>>,
) -> impl Parser<&'a str, Output = T, Error = Stop<'a>> {
    preceded(context(what, space1), context(what, parser))
}

/// `0x` and up to 16 hexadecimal digits.
fn guid(input: &str) -> Parsed<'_, u64> {
    let digits = take_while1(|c: char| c.is_ascii_hexdigit());
    let hexadecimal = map_opt(digits, |digits: &str| u64::from_str_radix(digits, 16).ok());
    context("a GUID", preceded(alt((tag("0x"), tag("0X"))), hexadecimal)).parse(input)
}

/// `{GUID}`.
fn braced_guid(input: &str) -> Parsed<'_, u64> {
    delimited(context("'{'", tag("{")), guid, context("'}'", tag("}"))).parse(input)
}

/// `[PORT]`.
fn bracketed_port(input: &str) -> Parsed<'_, u8> {
    delimited(context("'['", tag("[")), number("a port"), context("']'", tag("]"))).parse(input)
}

/// ` lid FIRST-LAST`.
fn lid_range(input: &str) -> Parsed<'_, (u16, u16)> {
    let range = separated_pair(number("a LID"), context("'-'", tag("-")), number("a LID"));
    preceded(next("lid", tag("lid")), next("a LID", range)).parse(input)
}

/// What is left, without the white space around it and the outermost pair of `quote`.
fn description(quote: char) -> impl Fn(&str) -> Parsed<'_, &str> {
    move |input| {
        let (left, text) = rest.parse(input)?;
        let text = text.trim();
        let inner = text.strip_prefix(quote).map_or(text, |inner| inner.strip_suffix(quote).unwrap_or(inner));
        Ok((left, inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::String;

    const RECORDED: [&str; 8] = [
        include_str!("fixtures/ibstat_rails.txt"),
        include_str!("fixtures/ibstat_n003.txt"),
        include_str!("fixtures/ibtracert_cross_leaf.txt"),
        include_str!("fixtures/ibtracert_n.txt"),
        include_str!("fixtures/ibtracert_odd_names.txt"),
        include_str!("fixtures/ibtracert_down.txt"),
        include_str!("fixtures/ibnetdiscover_p_odd_names.txt"),
        include_str!("fixtures/ibnetdiscover_p_down.txt"),
    ];

    /// Everything that reads text; an error must lie in it.
    fn read_all(text: &str) {
        let errors = [
            hostlist::expand(text, 100).err(),
            ibstat::parse(text).err(),
            ibtracert::parse(text).map(|trace| trace.leaf()).err(),
            ibnetdiscover::parse_ports(text).err(),
        ];
        for error in errors.into_iter().flatten() {
            assert!(error.offset <= text.len(), "{error}");
            assert!(text.is_char_boundary(error.offset), "{error}");
            assert!(error.line >= 1 && error.line <= text.split('\n').count(), "{error}");
            assert!(error.fault != Fault::Expected(""), "{error:?} in {text:?}");
        }
    }

    #[test]
    fn texts_cut_at_every_character_are_read_or_refused() {
        for text in RECORDED {
            text.char_indices().for_each(|(at, _)| read_all(&text[..at]));
        }
    }

    #[test]
    fn warnings_between_the_lines_change_nothing() {
        let warned = |text: &str| -> String {
            let warning = "ibwarn: [21615] mad_rpc: _do_madrpc failed; dport (Lid 9)\n";
            text.split_inclusive('\n').flat_map(|line| [warning, line]).collect()
        };
        for text in RECORDED {
            assert_eq!(ibstat::parse(&warned(text)).ok(), ibstat::parse(text).ok());
            assert_eq!(ibtracert::parse(&warned(text)).ok(), ibtracert::parse(text).ok());
            assert_eq!(ibnetdiscover::parse_ports(&warned(text)).ok(), ibnetdiscover::parse_ports(text).ok());
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in any::<String>()) {
            read_all(&text);
        }

        #[test]
        fn no_damage_makes_a_parser_panic(which in 0..RECORDED.len(), edits in prop::collection::vec((any::<prop::sample::Index>(), 0..40_usize, "[ -~\\n\\té]{0,12}"), 1..6)) {
            let mut text: String = RECORDED[which].into();
            for (at, length, new) in edits {
                let marks: std::vec::Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
                let start = at.index(marks.len());
                let end = (start + length).min(marks.len() - 1);
                text.replace_range(marks[start]..marks[end], &new);
            }
            read_all(&text);
        }
    }
}
