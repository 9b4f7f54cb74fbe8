//! Parses mapping files of Scotch, as `scotch_gmap` writes them (Scotch user's guide, "Mapping files"):
//! the number of vertices, then the label of each vertex and the number of its domain.
//!
//! ```text
//! 2
//! 0 1
//! 1 0
//! ```

use super::{TextLine, Tool, ToolError, lines, next, number};
use alloc::collections::BTreeMap;
use nom::combinator::eof;
use nom::sequence::terminated;

/// Parses a mapping: domain by vertex.
pub fn parse_mapping(text: &str) -> Result<BTreeMap<u32, u32>, ToolError> {
    let mut lines = lines(text);
    let end = TextLine { number: 1, offset: 0, text: "" };
    let first = lines.next().ok_or_else(|| end.error(Tool::ScotchMapping, 0, "a number of vertices"))?;
    let count: usize = first.read(Tool::ScotchMapping, terminated(number("a number of vertices"), eof))?;
    let mut mapping = BTreeMap::new();
    let mut last = first;
    for line in lines {
        let row = (number("the number of a vertex"), next("the number of a domain", number("the number of a domain")));
        let (vertex, domain) = line.read(Tool::ScotchMapping, terminated(row, eof))?;
        if mapping.insert(vertex, domain).is_some() {
            return Err(line.error(Tool::ScotchMapping, 0, "another vertex"));
        }
        last = line;
    }
    if mapping.len() == count {
        Ok(mapping)
    } else {
        Err(last.error(Tool::ScotchMapping, 0, "as many vertices as the first line states"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString as _;

    /// As `scotch_gmap` 7.0 writes it.
    #[test]
    fn a_mapping_has_a_domain_per_vertex() {
        assert_eq!(parse_mapping("3\n0\t2\n1\t0\n2\t1\n"), Ok(BTreeMap::from([(0, 2), (1, 0), (2, 1)])));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            ("", "line 1: a number of vertices expected at byte 0"),
            ("2\n0\t1\n", "line 2: as many vertices as the first line states expected at byte 2"),
            ("2\n0\t1\n0\t0\n", "line 3: another vertex expected at byte 6"),
            ("1\n0\n", "line 2: the number of a domain expected at byte 3"),
            ("1\n0\t1 2\n", "line 2: the end of the line expected at byte 5"),
        ] {
            let error = parse_mapping(text).unwrap_err().to_string();
            assert_eq!(error, ["output of scotch_gmap, ", expected].concat(), "{text:?}");
        }
    }
}
