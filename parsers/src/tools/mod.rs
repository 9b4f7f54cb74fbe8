//! Parses the text output of fabric tools: `ibstat`, `ibtracert`, `ibnetdiscover -p`, `dump_fts`,
//! `otf2-print`, `scotch_gmap` and Slurm's host lists.
//!
//! The text comes from other machines and is not trusted: no text makes a parser panic, every
//! collection is bounded by the length of the text or by a limit of the caller, and an error names
//! the line that could not be read. Node descriptions are free text that the tools truncate: they
//! are kept for display, and no decision depends on them.

pub mod forwarding;
pub mod hostlist;
pub mod ibnetdiscover;
pub mod ibstat;
pub mod ibtracert;
pub mod otf2_print;
pub mod scotch;

use core::fmt;
use nom::branch::alt;
use nom::bytes::complete::{tag, take_while1};
use nom::character::complete::{digit1, space1};
use nom::combinator::{map_opt, rest};
use nom::error::{ContextError, ErrorKind, context};
use nom::sequence::{delimited, preceded, separated_pair};
use nom::{IResult, Parser};

/// A text that could not be parsed: tool, position and reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolError {
    /// Tool that wrote the text.
    pub tool: Tool,
    /// Line number in the text, from 1.
    pub line: usize,
    /// Bytes from the start of the text to the position of the error.
    pub offset: usize,
    /// Reason.
    pub kind: ToolErrorKind,
}

/// Source of a text.
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
    /// `dump_fts` or `ibroute`.
    ForwardingTables,
    /// `scotch_gmap`.
    ScotchMapping,
}

/// Reason why a text could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolErrorKind {
    /// Syntax error; the text names the expected element.
    Expected(&'static str),
    /// The text has more entries than the caller allows.
    TooMany {
        /// Limit of the caller.
        most: usize,
    },
}

/// Kind of a fabric node.
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
    /// Name used in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostList => "host list",
            Self::Ibstat => "output of ibstat",
            Self::Ibtracert => "output of ibtracert",
            Self::Ibnetdiscover => "output of ibnetdiscover -p",
            Self::ForwardingTables => "output of dump_fts or ibroute",
            Self::ScotchMapping => "output of scotch_gmap",
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tool.name())?;
        if self.tool != Tool::HostList {
            write!(f, ", line {}", self.line)?;
        }
        match self.kind {
            ToolErrorKind::Expected(what) => write!(f, ": {what} expected at byte {}", self.offset),
            ToolErrorKind::TooMany { most } => write!(f, ": more than {most} entries at byte {}", self.offset),
        }
    }
}

impl core::error::Error for ToolError {}

/// Position and cause of a failed line parser: the unread rest of the line, and the expected
/// element.
#[derive(Clone, Copy, Debug)]
struct LineError<'a> {
    rest: &'a str,
    expected: &'static str,
}

impl<'a> nom::error::ParseError<&'a str> for LineError<'a> {
    fn from_error_kind(left: &'a str, kind: ErrorKind) -> Self {
        Self { rest: left, expected: if kind == ErrorKind::Eof { "the end of the line" } else { "" } }
    }

    fn append(_: &'a str, _: ErrorKind, other: Self) -> Self {
        other
    }
}

impl<'a> ContextError<&'a str> for LineError<'a> {
    /// Keeps the innermost named element, whose parser began at `left`.
    fn add_context(left: &'a str, expected: &'static str, other: Self) -> Self {
        if other.expected.is_empty() { Self { rest: left, expected } } else { other }
    }
}

type ParseResult<'a, T> = IResult<&'a str, T, LineError<'a>>;

/// A line of a text with its position.
#[derive(Clone, Copy, Debug)]
struct TextLine<'a> {
    number: usize,
    offset: usize,
    text: &'a str,
}

impl<'a> TextLine<'a> {
    /// Parses the start of the line with `parser`; the rest of the line is ignored.
    fn read<T>(
        self,
        tool: Tool,
        parser: impl Parser<&'a str, Output = T, Error = LineError<'a>>,
    ) -> Result<T, ToolError> {
        let mut parser = parser;
        match parser.parse(self.text) {
            Ok((_, value)) => Ok(value),
            Err(nom::Err::Error(stop) | nom::Err::Failure(stop)) => {
                Err(self.error(tool, self.text.len().saturating_sub(stop.rest.len()), stop.expected))
            }
            // Complete parsers never return `Incomplete`.
            Err(nom::Err::Incomplete(_)) => Err(self.error(tool, self.text.len(), "more text")),
        }
    }

    fn error(self, tool: Tool, column: usize, expected: &'static str) -> ToolError {
        ToolError { tool, line: self.number, offset: self.offset + column, kind: ToolErrorKind::Expected(expected) }
    }
}

/// The non-empty lines of a text, without line ends (also CR LF) and trailing white space.
///
/// Warnings of the libraries below the tools (`ibwarn: [PID] ...`) are skipped, because a site's
/// wrapper may merge standard error into the output.
fn lines(text: &str) -> impl Iterator<Item = TextLine<'_>> {
    let mut offset = 0;
    text.split_inclusive('\n')
        .enumerate()
        .map(move |(index, line)| {
            let start = offset;
            offset += line.len();
            TextLine { number: index + 1, offset: start, text: line.trim_end() }
        })
        .filter(|line| !line.text.is_empty() && !line.text.starts_with("ibwarn: ["))
}

/// A decimal number in the range of `T`.
fn number<'a, T: core::str::FromStr>(what: &'static str) -> impl Parser<&'a str, Output = T, Error = LineError<'a>> {
    context(what, map_opt(digit1, |digits: &str| digits.parse().ok()))
}

/// White space, then `parser`.
fn next<'a, T>(
    what: &'static str,
    parser: impl Parser<&'a str, Output = T, Error = LineError<'a>>,
) -> impl Parser<&'a str, Output = T, Error = LineError<'a>> {
    preceded(context(what, space1), context(what, parser))
}

/// `0x` and 1 to 16 hexadecimal digits.
fn guid(input: &str) -> ParseResult<'_, u64> {
    let digits = take_while1(|c: char| c.is_ascii_hexdigit());
    let hexadecimal = map_opt(digits, |digits: &str| u64::from_str_radix(digits, 16).ok());
    context("a GUID", preceded(alt((tag("0x"), tag("0X"))), hexadecimal)).parse(input)
}

/// `{GUID}`.
fn braced_guid(input: &str) -> ParseResult<'_, u64> {
    delimited(context("'{'", tag("{")), guid, context("'}'", tag("}"))).parse(input)
}

/// `[PORT]`.
fn bracketed_port(input: &str) -> ParseResult<'_, u8> {
    delimited(context("'['", tag("[")), number("a port"), context("']'", tag("]"))).parse(input)
}

/// ` lid FIRST-LAST`.
fn lid_range(input: &str) -> ParseResult<'_, (u16, u16)> {
    let range = separated_pair(number("a LID"), context("'-'", tag("-")), number("a LID"));
    preceded(next("lid", tag("lid")), next("a LID", range)).parse(input)
}

/// The rest of the line, without surrounding white space and the outermost pair of `quote`.
fn description(quote: char) -> impl Fn(&str) -> ParseResult<'_, &str> {
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

    const RECORDED: [&str; 9] = [
        include_str!("fixtures/ibstat_rails.txt"),
        include_str!("fixtures/ibstat_n003.txt"),
        include_str!("fixtures/ibtracert_cross_leaf.txt"),
        include_str!("fixtures/ibtracert_n.txt"),
        include_str!("fixtures/ibtracert_odd_names.txt"),
        include_str!("fixtures/ibtracert_down.txt"),
        include_str!("fixtures/ibnetdiscover_p_odd_names.txt"),
        include_str!("fixtures/ibnetdiscover_p_down.txt"),
        include_str!("fixtures/ibroute_leaf1.txt"),
    ];

    /// Runs every parser on `text`; an error must point into the text.
    fn read_all(text: &str) {
        let errors = [
            hostlist::expand(text, 100).err(),
            ibstat::parse(text).err(),
            ibtracert::parse(text).map(|trace| trace.leaf()).err(),
            ibnetdiscover::parse_ports(text).err(),
            forwarding::parse_tables(text).err(),
            scotch::parse_mapping(text).err(),
        ];
        for error in errors.into_iter().flatten() {
            assert!(error.offset <= text.len(), "{error}");
            assert!(text.is_char_boundary(error.offset), "{error}");
            assert!(error.line >= 1 && error.line <= text.split('\n').count(), "{error}");
            assert!(error.kind != ToolErrorKind::Expected(""), "{error:?} in {text:?}");
        }
    }

    #[test]
    fn truncated_texts_parse_or_fail_cleanly() {
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
            assert_eq!(forwarding::parse_tables(&warned(text)).ok(), forwarding::parse_tables(text).ok());
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
