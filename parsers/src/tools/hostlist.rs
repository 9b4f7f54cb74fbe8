//! Expands Slurm's host lists: `n[001-003,007],x5-[9-11],a[1-2]b[0-1]`.
//!
//! A name may have several brackets; the last one varies fastest. Numbers have the width of the
//! start of their range: `[08-11]` is 08, 09, 10, 11. `scontrol show hostnames` expands lists in
//! the same way, but needs a readable configuration and may wait a minute for it.

use super::{ParseResult, TextLine, Tool, ToolError, ToolErrorKind};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::iter;
use nom::Parser;
use nom::branch::alt;
use nom::bytes::complete::{tag, take_while1};
use nom::character::complete::digit1;
use nom::combinator::{cut, eof, map, map_opt, opt};
use nom::error::context;
use nom::multi::{many0, many1};
use nom::sequence::{delimited, preceded};

/// Longest name in bytes, as for host names; bounds the size of the result.
const MAX_NAME_BYTES: usize = 255;

/// A part of a name.
enum HostlistPart<'a> {
    /// Literal text.
    Text(&'a str),
    /// Content of a bracket: each name contains one number of one of the ranges.
    Ranges(Vec<Range>),
}

/// Numbers from `first` to `last`, written with at least `width` digits.
struct Range {
    first: u64,
    last: u64,
    width: usize,
}

impl HostlistPart<'_> {
    /// Number of strings that the part expands to.
    fn expansion_count(&self) -> u64 {
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

    /// Appends every expansion of the part to each of `names`.
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

/// Expands a list to its names, in list order, duplicates included. An empty list has no names;
/// more than `most` names are an error.
pub fn expand(text: &str, most: usize) -> Result<Vec<String>, ToolError> {
    let mut names = Vec::new();
    let mut left = text;
    loop {
        // Slurm ignores empty elements.
        left = left.trim_start_matches(',');
        if left.is_empty() {
            return Ok(names);
        }
        let line = TextLine { number: 1, offset: text.len() - left.len(), text: left };
        let (after, parts) = line.read(Tool::HostList, |input| {
            let (after, parts) = name(input)?;
            Ok((after, (after, parts)))
        })?;
        if parts.iter().map(HostlistPart::longest_bytes).sum::<usize>() > MAX_NAME_BYTES {
            return Err(line.error(Tool::HostList, 0, "a name of at most 255 bytes"));
        }
        let more = parts.iter().fold(1, |product: u64, part| product.saturating_mul(part.expansion_count()));
        if more > (most - names.len()) as u64 {
            let fault = ToolErrorKind::TooMany { most };
            return Err(ToolError { tool: Tool::HostList, line: 1, offset: line.offset, kind: fault });
        }
        let start = iter::once(String::new()).collect::<Vec<_>>();
        names.append(&mut parts.iter().fold(start, |names, part| part.append_to(&names)));
        left = after;
    }
}

/// Parses one element of the list, up to the next comma or the end.
fn name(input: &str) -> ParseResult<'_, Vec<HostlistPart<'_>>> {
    let literal = take_while1(|c: char| !matches!(c, '[' | ']' | ',') && !c.is_whitespace() && !c.is_control());
    let more = many0(preceded(tag(","), cut(range)));
    let ranges = delimited(tag("["), (cut(range), more), context("',' or ']'", cut(tag("]"))));
    let ranges = map(ranges, |(first, more)| HostlistPart::Ranges(iter::once(first).chain(more).collect()));
    let part = alt((ranges, map(literal, HostlistPart::Text)));
    let (left, parts) = context("a name", many1(part)).parse(input)?;
    // An element must end at a comma or at the end of the list.
    let (_, _) = context("',' or the end", alt((eof, tag(",")))).parse(left)?;
    Ok((left, parts))
}

/// `7` or `001-003`.
fn range(input: &str) -> ParseResult<'_, Range> {
    let number = |digits: &str| Some((digits.parse().ok()?, digits.len()));
    let digits = || map_opt(digit1, move |digits: &str| number(digits).filter(|&(_, width)| width <= MAX_NAME_BYTES));
    let (after, (first, width)) = context("a number", digits()).parse(input)?;
    let (left, last) = opt(preceded(tag("-"), context("a number", cut(digits())))).parse(after)?;
    let last = last.map_or(first, |(last, _)| last);
    if last < first {
        let fault = super::LineError { rest: input, expected: "a range from the smaller to the larger number" };
        return Err(nom::Err::Failure(fault));
    }
    Ok((left, Range { first, last, width }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::borrow::ToOwned;
    use std::string::ToString;
    use std::vec;

    /// Lists and names as printed by `scontrol show hostnames` of Slurm 22.05.8.
    const SLURM: [(&str, &str); 14] = [
        ("n[001-003,007],x5-[9-11],a[1-2]b[0-1]", "n001 n002 n003 n007 x5-9 x5-10 x5-11 a1b0 a1b1 a2b0 a2b1"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[8-011]", "n8 n9 n10 n11"),
        ("n[1-1]", "n1"),
        ("n1,,n2", "n1 n2"),
        ("n1,", "n1"),
        ("n[1,1,1]", "n1 n1 n1"),
        ("[1-3]", "1 2 3"),
        ("n[098-102]", "n098 n099 n100 n101 n102"),
        ("n[9-12,3]", "n9 n10 n11 n12 n3"),
        ("n[00-1]", "n00 n01"),
        ("n[1-2][3-4]", "n13 n14 n23 n24"),
        ("n[001-5,10-12]", "n001 n002 n003 n004 n005 n10 n11 n12"),
        ("n2,n1,n2", "n2 n1 n2"),
    ];

    #[test]
    fn lists_are_expanded_as_slurm_does() {
        for (list, names) in SLURM {
            let expected: Vec<&str> = names.split(' ').collect();
            assert_eq!(expand(list, 11).unwrap(), expected, "{list}");
        }
        assert_eq!(expand("", 0).unwrap(), Vec::<String>::new());
        assert_eq!(expand("a[1-2].x[3,5]y", 4).unwrap(), ["a1.x3y", "a1.x5y", "a2.x3y", "a2.x5y"]);
    }

    #[test]
    fn errors_name_the_offset() {
        for (list, offset, what) in [
            ("n[5-3]", 2, "a range from the smaller to the larger number"),
            ("n1,n[]", 5, "a number"),
            ("n[1", 3, "',' or ']'"),
            ("n1]", 2, "',' or the end"),
            ("n[a-b]", 2, "a number"),
            ("n[1,,2]", 4, "a number"),
            ("n[1-]", 4, "a number"),
            ("n[ 1-2 ]", 2, "a number"),
            ("n[[1-2]]", 2, "a number"),
            ("n 1", 1, "',' or the end"),
            ("n1\n", 2, "',' or the end"),
            ("n1, n2", 3, "a name"),
            ("n\0", 1, "',' or the end"),
            ("n[99999999999999999999]", 2, "a number"),
        ] {
            let error = expand(list, 1000).unwrap_err();
            assert_eq!((error.offset, error.kind), (offset, ToolErrorKind::Expected(what)), "{list:?}");
        }
        assert_eq!(expand("n[1", 9).unwrap_err().to_string(), "host list: ',' or ']' expected at byte 3");
    }

    #[test]
    fn lists_are_bounded_before_they_grow() {
        let all = u64::MAX;
        for list in [
            std::format!("n[0-{all}]"),
            std::format!("n[0-{all},0-{all}]m[0-{all}]"),
            "a[1-1000]b[1-1000]c[1-1000]".to_owned(),
            "n[1-100],m1".to_owned(),
        ] {
            let error = expand(&list, 100).unwrap_err();
            assert_eq!(error.kind, ToolErrorKind::TooMany { most: 100 }, "{list}");
        }
        assert_eq!(expand("n[1-99],m1", 100).unwrap().len(), 100);
        for zeros in [255, 300, 70_000] {
            assert!(expand(&std::format!("n[{}1-9]", "0".repeat(zeros)), 100).is_err());
        }
        assert!(expand(&("n".repeat(254) + "[1-9]"), 100).is_ok());
        assert!(expand(&("n".repeat(254) + "[1-10]"), 100).is_err());
    }

    /// Compresses numbered names to a list; names in a run differ only in their last number.
    fn compress(names: &[(String, u64, usize)]) -> String {
        type NumberRange = (u64, u64, usize);
        let written = |number: u64, width: usize| std::format!("{number:0width$}");
        let mut elements: Vec<(&str, Vec<NumberRange>)> = Vec::new();
        for &(ref prefix, number, width) in names {
            let digits = written(number, width).len();
            match elements.last_mut() {
                Some((last, runs)) if last == prefix => match runs.last_mut() {
                    // The next number of the run, with the width that the range's start implies.
                    Some((_, end, first)) if *end + 1 == number && written(number, *first).len() == digits => {
                        *end = number;
                    }
                    _ => runs.push((number, number, digits)),
                },
                _ => elements.push((prefix, vec![(number, number, digits)])),
            }
        }
        let run = |&(first, last, width): &NumberRange| {
            let first_written = written(first, width);
            if first == last { first_written } else { std::format!("{first_written}-{last}") }
        };
        let element = |(prefix, runs): &(&str, Vec<NumberRange>)| {
            std::format!("{prefix}[{}]", runs.iter().map(run).collect::<Vec<_>>().join(","))
        };
        elements.iter().map(element).collect::<Vec<_>>().join(",")
    }

    proptest! {
        #[test]
        fn compressed_lists_expand_to_the_same_names(
            runs in prop::collection::vec(("[a-z][a-z0-9.-]{0,6}[a-z]", 0..1200_u64, 1..5_usize, 1..40_u64), 0..8),
        ) {
            let numbered = |(prefix, first, width, count): &(String, u64, usize, u64)| {
                let (prefix, width) = (prefix.clone(), *width);
                (*first..first + count).map(move |number| (prefix.clone(), number, width))
            };
            let names: Vec<(String, u64, usize)> = runs.iter().flat_map(numbered).collect();
            let list = compress(&names);
            let name = |(prefix, number, width): &(String, u64, usize)| std::format!("{prefix}{number:0width$}");
            let expected: Vec<String> = names.iter().map(name).collect();
            if let Some(fewer) = expected.len().checked_sub(1) {
                prop_assert!(expand(&list, fewer).is_err());
            }
            prop_assert_eq!(expand(&list, expected.len()).unwrap(), expected, "{}", list);
        }

        #[test]
        fn several_brackets_are_a_product(
            parts in prop::collection::vec(("[a-z]{0,2}", prop::collection::vec(0..50_u64, 1..4)), 1..5),
        ) {
            let element = |(text, numbers): &(String, Vec<u64>)| {
                std::format!("{text}[{}]", numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(","))
            };
            let list = parts.iter().map(element).collect::<Vec<_>>().concat();
            let total: usize = parts.iter().map(|(_, numbers)| numbers.len()).product();
            // Reads `place` as digits in mixed radix, with the last bracket as the lowest digit.
            let name = |mut place: usize| {
                let mut name = String::new();
                for (text, numbers) in parts.iter().rev() {
                    let number = numbers[place % numbers.len()];
                    place /= numbers.len();
                    name.insert_str(0, &std::format!("{text}{number}"));
                }
                name
            };
            prop_assert_eq!(expand(&list, total).unwrap(), (0..total).map(name).collect::<Vec<_>>());
        }

        #[test]
        fn no_list_makes_expand_panic_or_exceed_its_limit(list in "[n0-9\\[\\],\\- ]{0,60}") {
            if let Ok(names) = expand(&list, 50) {
                prop_assert!(names.len() <= 50);
                prop_assert!(names.iter().all(|name| !name.is_empty() && !name.contains(['[', ']', ',', ' '])));
            }
        }
    }
}
