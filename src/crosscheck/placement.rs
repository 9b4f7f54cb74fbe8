//! Maps ranks to nodes. Messages between ranks of one node never reach the wire.

use super::otf2::TraceError;
use super::trace::AppTrace;
use crate::model::{Profile, printable, quoted};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The nodes of ranks, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    nodes: BTreeMap<u32, String>,
    /// Source of the placement, for outputs.
    pub source: &'static str,
}

impl Placement {
    /// The placement in the trace's system tree. If that is incomplete, the placement in the
    /// profile's ranks of this job.
    #[must_use]
    pub fn of(trace: &AppTrace, profile: &Profile, job: u32) -> Self {
        let from_profile = of_profile(profile, job);
        let from_trace: BTreeMap<u32, String> =
            trace.ranks.iter().filter_map(|(rank, host)| Some((*rank, host.clone()?))).collect();
        // Use one source only: host names of the trace and of the profile may differ.
        if trace.ranks.keys().all(|rank| from_trace.contains_key(rank)) && !from_trace.is_empty() {
            Self { nodes: from_trace, source: "the trace" }
        } else {
            Self { nodes: from_profile, source: "the capture's rank map" }
        }
    }

    /// Parses the output of `mpirun --display-map`, a table `rank,host`, or a hostfile
    /// (`node1 slots=2`, `node1:2`), whose slots are filled in order. Fails if a rank of `ranks`
    /// has no node.
    pub fn parse(path: &Path, text: &str, ranks: &BTreeSet<u32>) -> Result<Self, TraceError> {
        let wrong = |line: usize, what: String| TraceError::Table { path: path.to_owned(), line, what };
        let nodes = if text.contains("Data for node:") {
            display_map(text)
        } else if text.trim_start_matches('\u{feff}').starts_with("rank,host") {
            table(text).map_err(|(line, what)| wrong(line, what))?
        } else {
            hostfile(text, ranks).map_err(|(line, what)| wrong(line, what))?
        };
        if let Some(rank) = ranks.iter().find(|rank| !nodes.contains_key(rank)) {
            let lines = text.lines().count();
            return Err(wrong(
                lines,
                format!("rank {rank} is missing; give the output of mpirun --display-map, or a table `rank,host`"),
            ));
        }
        Ok(Self { nodes, source: "the given file" })
    }

    /// The node of a rank.
    #[must_use]
    pub fn node(&self, rank: u32) -> Option<&str> {
        self.nodes.get(&rank).map(String::as_str)
    }

    /// True if both ranks are known to run on one node.
    #[must_use]
    pub fn is_same_node(&self, first: u32, second: u32) -> bool {
        first == second || self.node(first).is_some_and(|node| self.node(second) == Some(node))
    }

    /// Number of nodes with ranks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.values().collect::<BTreeSet<_>>().len()
    }
}

/// Nodes by rank from the endpoints of a profile's job. Names are preferred to addresses, and ports
/// (`node/adapter:port`) belong to their node.
pub(super) fn of_profile(profile: &Profile, job: u32) -> BTreeMap<u32, String> {
    let node = |endpoint: &str| {
        let name = endpoint.parse::<Endpoint>().ok().and_then(|endpoint| profile.names.get(&endpoint));
        name.map_or(endpoint, |name| name.split('/').next().unwrap_or(name)).to_owned()
    };
    let ranks = profile.ranks.iter().filter(|row| row.job == job);
    ranks.map(|row| (row.rank, node(&row.endpoint))).collect()
}

fn display_map(text: &str) -> BTreeMap<u32, String> {
    let mut nodes = BTreeMap::new();
    let mut node = "";
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("Data for node:") {
            node = rest.split_whitespace().next().unwrap_or_default();
        } else if let Some((_, rest)) = line.split_once("Process rank:") {
            let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            nodes.extend(digits.parse().ok().map(|rank| (rank, printable(node))));
        }
    }
    nodes
}

fn table(text: &str) -> Result<BTreeMap<u32, String>, (usize, String)> {
    let mut nodes = BTreeMap::new();
    for (index, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
        let mut fields = line.split(',').map(str::trim);
        let rank = fields.next().and_then(|rank| rank.parse().ok());
        let (Some(rank), Some(host)) = (rank, fields.next().filter(|host| !host.is_empty())) else {
            return Err((index + 1, "expected a rank and a host".to_owned()));
        };
        nodes.insert(rank, printable(host));
    }
    Ok(nodes)
}

fn hostfile(text: &str, ranks: &BTreeSet<u32>) -> Result<BTreeMap<u32, String>, (usize, String)> {
    let mut nodes = BTreeMap::new();
    let mut next = 0_u32;
    let last = ranks.last().copied().unwrap_or(0);
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(host) = words.next() else { continue };
        let (host, mut slots) = match host.split_once(':') {
            Some((host, slots)) => (host, slots),
            None => (host, "1"),
        };
        slots = words.find_map(|word| word.strip_prefix("slots=")).unwrap_or(slots);
        let slots: u32 =
            slots.parse().map_err(|_| (index + 1, format!("{} is not a number of slots", quoted(slots))))?;
        for _ in 0..slots {
            if next > last {
                return Ok(nodes);
            }
            nodes.insert(next, printable(host));
            next += 1;
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, ranks: u32) -> Result<Vec<String>, String> {
        let placement =
            Placement::parse(Path::new("map"), text, &(0..ranks).collect()).map_err(|error| error.to_string())?;
        Ok((0..ranks).map(|rank| placement.node(rank).unwrap_or_default().to_owned()).collect())
    }

    #[test]
    fn all_formats_are_read() {
        let expected = Ok(["node1", "node1", "node2", "node2"].map(str::to_owned).to_vec());
        assert_eq!(parse("node1 slots=2\n# spare\nnode2 slots=2 max_slots=4\n", 4), expected);
        assert_eq!(parse("node1:2\nnode2:2\n", 4), expected);
        assert_eq!(parse("rank,host,pid\n0,node1,3\n1,node1,4\n2,node2,1\n3,node2,2\n", 4), expected);
        let map = " Data for node: node1\tNum slots: 2\n \tProcess OMPI jobid: [1,1] App: 0 Process rank: 0 Bound: N/A\n Process rank: 1\n\
                   Data for node: node2\tNum slots: 2\n\tProcess rank: 2\n\tProcess rank: 3\n";
        assert_eq!(parse(map, 4), expected);
    }

    #[test]
    fn errors_name_the_line_or_rank() {
        assert!(parse("node1 slots=x\n", 1).unwrap_err().contains("map: line 1: `x` is not a number of slots"));
        let long = parse(&format!("node1:{}", "\u{1b}".repeat(100_000)), 1).unwrap_err();
        assert!(long.len() < 1000 && !long.contains('\u{1b}'), "{long}");
        assert!(parse("node1\nnode2\n", 3).unwrap_err().contains("rank 2 is missing"));
        assert!(parse("rank,host\n0\n", 1).unwrap_err().contains("line 2: expected a rank and a host"));
    }
}
