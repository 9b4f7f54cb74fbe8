//! The user's rank map: `rank,endpoint[,qpn]`, as `ranks --format csv` writes it.

use crate::model::profile::RankRow;
use crate::model::quoted;
use ibscope_parsers::Endpoint;
use std::collections::HashMap;
use std::path::PathBuf;

/// A file of names or ranks that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: line {line}: {what}; expected {expected}", path.display())]
pub struct TableError {
    /// The file.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
    /// What should stand there.
    pub expected: &'static str,
}

const EXPECTED: &str =
    "a header line `rank,endpoint` or `rank,endpoint,qpn` and then lines like `0,17` or `0,10.77.0.1,0x11`";

/// Reads a rank map from its text. `path` is for errors.
pub fn parse(path: &std::path::Path, text: &str) -> Result<Vec<RankRow>, TableError> {
    let mut rows: Vec<RankRow> = Vec::new();
    let mut places: HashMap<(Endpoint, Option<u32>), u32> = HashMap::new();
    let mut has_header = false;
    for (index, line) in text.lines().enumerate() {
        let error = |what: String| TableError { path: path.to_owned(), line: index + 1, what, expected: EXPECTED };
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if !has_header {
            if fields.first() != Some(&"rank") || fields.get(1) != Some(&"endpoint") {
                return Err(error(format!("{} is no header", quoted(line))));
            }
            has_header = true;
            continue;
        }
        let [rank, endpoint, ..] = fields.as_slice() else {
            return Err(error(format!("{} has fewer than two fields", quoted(line))));
        };
        let rank = rank.parse().map_err(|_| error(format!("{} is no rank", quoted(rank))))?;
        let endpoint: Endpoint =
            endpoint.parse().map_err(|problem| error(format!("{} is {problem}", quoted(endpoint))))?;
        let qpn = match fields.get(2).filter(|text| !text.is_empty()) {
            Some(text) => Some(number(text).ok_or_else(|| error(format!("{} is no queue pair number", quoted(text))))?),
            None => None,
        };
        let row = RankRow {
            rank,
            endpoint: endpoint.to_string(),
            qpn,
            evidence: "rankmap".to_owned(),
            agreeing: 0,
            disagreeing: 0,
            job: 1,
            inferred: false,
        };
        let other = *places.entry((endpoint, qpn)).or_insert(rank);
        if other != rank {
            return Err(error(format!("endpoint {} is rank {other} already", row.endpoint)));
        }
        rows.push(row);
    }
    if !has_header {
        let what = "the file is empty".to_owned();
        return Err(TableError { path: path.to_owned(), line: 1, what, expected: EXPECTED });
    }
    rows.sort_by(|a, b| (a.rank, &a.endpoint, a.qpn).cmp(&(b.rank, &b.endpoint, b.qpn)));
    Ok(rows)
}

fn number(text: &str) -> Option<u32> {
    let value = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => text.parse().ok()?,
    };
    (value < 1 << 24).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn reads_ranks_with_and_without_queue_pairs() {
        let rows = parse(Path::new("map"), "rank,endpoint,qpn\n1,10.77.0.2,0x11\n0,17\n").unwrap();
        let places: Vec<_> = rows.iter().map(|row| (row.rank, row.endpoint.as_str(), row.qpn)).collect();
        assert_eq!(places, [(0, "17", None), (1, "10.77.0.2", Some(17))]);
    }

    #[test]
    fn says_line_and_remedy() {
        for (text, line, what) in [
            ("", 1, "empty"),
            ("0,17\n", 1, "no header"),
            ("rank,endpoint\nx,17\n", 2, "`x` is no rank"),
            ("rank,endpoint\n0,node1\n", 2, "not an endpoint"),
            ("rank,endpoint\n0\n", 2, "fewer than two"),
            ("rank,endpoint\n0,17\n1,17\n", 3, "rank 0 already"),
            ("rank,endpoint,qpn\n0,17,0x1000000\n", 2, "queue pair"),
        ] {
            let error = parse(Path::new("map.csv"), text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}");
            let message = error.to_string();
            assert!(message.contains("map.csv") && message.contains(what), "{message}");
            assert!(message.contains("expected"), "{message}");
        }
    }
}
