//! Slurm's lists of nodes: `n[001-003,007],x5-[9-11],a[1-2]b[0-1]`.
//!
//! A name has any number of brackets; with several, the last one runs fastest. Numbers keep the width of the start of their range:
//! `[08-11]` is 08, 09, 10, 11. `scontrol show hostnames` does the same, but needs a configuration that it can read and may wait a minute for it.

use super::{Fault, Line, Parsed, Tool, ToolError};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::iter;
use nom::Parser;
use nom::branch::alt;
use nom::bytes::complete::{tag, take_while1};
use nom::character::complete::digit1;
use nom::combinator::{cut, map, map_opt, opt};
use nom::error::context;
use nom::multi::{many1, separated_list1};
use nom::sequence::{delimited, preceded};

/// Bytes that a name may have, as host names do: it bounds what one list can grow to.
const MAX_NAME_BYTES: usize = 255;

/// A piece of a name.
enum Part<'a> {
    /// The same in every name.
    Text(&'a str),
    /// What stands between brackets: one number of one of the ranges in every name.
    Ranges(Vec<Range>),
}

/// Numbers from `first` to `last`, written with at least `width` digits.
struct Range {
    first: u64,
    last: u64,
    width: usize,
}

impl Part<'_> {
    /// How many ways there are to write it.
    fn variants(&self) -> u64 {
        match self {
            Self::Text(_) => 1,
            Self::Ranges(ranges) => ranges.iter().fold(0, |sum, range| sum.saturating_add(range.len())),
        }
    }

    fn longest_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Ranges(ranges) => ranges
                .iter()
                .map(|range| format!("{:0width$}", range.last, width = range.width).len())
                .max()
                .unwrap_or(0),
        }
    }

    /// Each of `names` with each way to write this part behind it.
    fn append_to(&self, names: &[String]) -> Vec<String> {
        match self {
            Self::Text(text) => names.iter().map(|name| format!("{name}{text}")).collect(),
            Self::Ranges(ranges) => names
                .iter()
                .flat_map(|name| {
                    let numbered = move |range: &Range| {
                        let width = range.width;
                        (range.first..=range.last).map(move |number| format!("{name}{number:0width$}"))
                    };
                    ranges.iter().flat_map(numbered)
                })
                .collect(),
        }
    }
}

impl Range {
    fn len(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

/// The names of a list, in its order, repeats included. More than `most` of them are an error. An empty list has no names.
pub fn expand(text: &str, most: usize) -> Result<Vec<String>, ToolError> {
    let mut names = Vec::new();
    let mut left = text;
    loop {
        // Slurm takes an empty element for none.
        left = left.trim_start_matches(',');
        if left.is_empty() {
            return Ok(names);
        }
        let line = Line { number: 1, offset: text.len() - left.len(), text: left };
        let (after, parts) = line.read(Tool::HostList, |input| {
            let (after, parts) = name(input)?;
            Ok((after, (after, parts)))
        })?;
        if parts.iter().map(Part::longest_bytes).sum::<usize>() > MAX_NAME_BYTES {
            return Err(line.error(Tool::HostList, 0, "a name of at most 255 bytes"));
        }
        let more = parts.iter().fold(1, |product: u64, part| product.saturating_mul(part.variants()));
        if more > (most - names.len()) as u64 {
            let fault = Fault::TooMany { most };
            return Err(ToolError { tool: Tool::HostList, line: 1, offset: line.offset, fault });
        }
        let start = iter::once(String::new()).collect::<Vec<_>>();
        names.append(&mut parts.iter().fold(start, |names, part| part.append_to(&names)));
        left = after;
    }
}

/// One element of the list, up to the comma behind it or the end.
fn name(input: &str) -> Parsed<'_, Vec<Part<'_>>> {
    let literal = take_while1(|c: char| !matches!(c, '[' | ']' | ',') && !c.is_whitespace() && !c.is_control());
    let ranges = delimited(tag("["), cut(separated_list1(tag(","), range)), context("',' or ']'", cut(tag("]"))));
    let part = alt((map(ranges, Part::Ranges), map(literal, Part::Text)));
    let (left, parts) = context("a name", many1(part)).parse(input)?;
    // What is neither a part nor a comma ends the list.
    let (_, _) = context("',' or the end", alt((tag(","), nom::combinator::eof))).parse(left)?;
    Ok((left, parts))
}

/// `7` or `001-003`.
fn range(input: &str) -> Parsed<'_, Range> {
    let digits = || map_opt(digit1, |digits: &str| Some((digits.parse::<u64>().ok()?, digits.len())));
    let (after, (first, width)) = context("a number", digits()).parse(input)?;
    let (left, last) = opt(preceded(tag("-"), context("a number", cut(digits())))).parse(after)?;
    let last = last.map_or(first, |(last, _)| last);
    if last < first {
        let stop = super::Stop { left: input, expected: "a range from the smaller to the larger number" };
        return Err(nom::Err::Failure(stop));
    }
    Ok((left, Range { first, last, width }))
}
