//! The communication matrix as a graph, for programs that draw graphs or map ranks to nodes.
//!
//! In: a [`Matrix`] and the unit of its edges. Out: GraphML and DOT with one directed edge per cell;
//! a Scotch source graph, which has no directions; a dense matrix of numbers, as TreeMatch and
//! LibTopoMap read it. Sources: the GraphML primer, the DOT grammar of Graphviz, and the Scotch user's
//! guide (source graphs).

use super::units::bytes;
use crate::analysis::Label;
use crate::analysis::matrix::{Matrix, MatrixCell, TrafficUnit};
use crate::model::count_of;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Scotch adds all weights in its integers, and Graphviz stores them in integers, of 32 bits.
const WEIGHT_LIMIT: u64 = i32::MAX as u64;
/// Ranks of the largest dense matrix, which has the square of them as numbers.
pub const MAX_DENSE_RANKS: u32 = 1 << 12;

/// The graph in GraphML. Nodes have the attributes `label` and, by rank, `job` and `rank`; edges have
/// all units of the matrix.
#[must_use]
pub fn graphml(matrix: &Matrix) -> String {
    let mut out = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n",
    );
    let node_keys = [("label", "string"), ("job", "long"), ("rank", "long")];
    let edge_keys = EDGE_UNITS.map(|(name, _)| (name, "long"));
    for (of, keys) in [("node", &node_keys[..]), ("edge", &edge_keys[..])] {
        for (name, kind) in keys {
            _ = writeln!(out, "  <key id=\"{name}\" for=\"{of}\" attr.name=\"{name}\" attr.type=\"{kind}\"/>");
        }
    }
    out.push_str("  <graph id=\"communication\" edgedefault=\"directed\">\n");
    for (number, label) in matrix.labels.iter().enumerate() {
        _ = write!(out, "    <node id=\"n{number}\"><data key=\"label\">{}</data>", escaped(&label.name()));
        for (key, value) in [("job", label.job()), ("rank", label.rank())] {
            value.iter().for_each(|value| _ = write!(out, "<data key=\"{key}\">{value}</data>"));
        }
        out.push_str("</node>\n");
    }
    for ((src, dst), cell) in &matrix.cells {
        _ = write!(out, "    <edge source=\"n{src}\" target=\"n{dst}\">");
        for (name, unit) in EDGE_UNITS {
            let value = Some(cell.value(unit)).filter(|_| is_value_known(cell, unit));
            value.iter().for_each(|value| _ = write!(out, "<data key=\"{name}\">{value}</data>"));
        }
        out.push_str("</edge>\n");
    }
    out.push_str("  </graph>\n</graphml>\n");
    out
}

/// The attributes of edges in GraphML.
const EDGE_UNITS: [(&str, TrafficUnit); 5] = [
    ("messages", TrafficUnit::Messages),
    ("mpi_bytes", TrafficUnit::MpiBytes),
    ("payload_bytes", TrafficUnit::PayloadBytes),
    ("wire_bytes", TrafficUnit::WireBytes),
    ("packets", TrafficUnit::Packets),
];

const fn is_value_known(cell: &MatrixCell, unit: TrafficUnit) -> bool {
    !matches!(unit, TrafficUnit::MpiBytes) || cell.mpi_bytes.is_some()
}

/// The text with the characters that XML reserves as entities.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            c if c.is_control() => escaped.push('\u{FFFD}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The graph in DOT. The label and the `weight` of an edge are its value in `unit`; cells without a
/// value in it have no edge.
#[must_use]
pub fn dot(matrix: &Matrix, unit: TrafficUnit) -> String {
    let mut out = format!("// Edges: {}.\ndigraph communication {{\n", unit.name());
    for (number, label) in matrix.labels.iter().enumerate() {
        _ = writeln!(out, "  n{number} [label={}];", quoted(&label.name()));
    }
    for ((src, dst), cell) in &matrix.cells {
        let value = cell.value(unit);
        if value > 0 {
            let weight = value.min(WEIGHT_LIMIT);
            let text = if unit.is_bytes() { bytes(value) } else { value.to_string() };
            _ = writeln!(out, "  n{src} -> n{dst} [label=\"{text}\", weight={weight}];");
        }
    }
    out.push_str("}\n");
    out
}

/// The text as a quoted DOT identifier.
fn quoted(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect();
    format!("\"{}\"", clean.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The ranks of one job as rows of numbers: what mapping needs.
pub struct RankGraph {
    /// Number of ranks: the highest known rank and one. Ranks without traffic have no edges.
    ranks: u32,
    /// Value by sender and receiver.
    values: BTreeMap<(u32, u32), u64>,
    /// Cells with an end whose rank is not known.
    unknown: u64,
    /// Ordered pairs of ranks on one node, without a value: their messages are not on the wire.
    on_one_node: usize,
}

impl RankGraph {
    /// The ranks of a matrix by rank, of one job.
    #[must_use]
    pub fn of(matrix: &Matrix, unit: TrafficUnit) -> Self {
        let rank = |number: u32| matrix.labels.get(number as usize).and_then(Label::rank);
        let mut graph = Self {
            ranks: matrix.labels.iter().filter_map(Label::rank).max().map_or(0, |rank| rank + 1),
            values: BTreeMap::new(),
            unknown: 0,
            on_one_node: 0,
        };
        for (&(src, dst), cell) in &matrix.cells {
            match rank(src).zip(rank(dst)) {
                Some(ends) => _ = graph.values.insert(ends, cell.value(unit)),
                None => graph.unknown += 1,
            }
        }
        graph.values.retain(|_, value| *value > 0);
        let is_hidden =
            |&(src, dst): &(u32, u32)| rank(src).zip(rank(dst)).is_some_and(|ends| !graph.values.contains_key(&ends));
        graph.on_one_node = matrix.pairs_on_one_node().iter().filter(|ends| is_hidden(ends)).count();
        graph
    }

    /// Number of ranks.
    #[must_use]
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// A line per sender with the values of all receivers, separated by spaces; `None` beyond
    /// [`MAX_DENSE_RANKS`].
    #[must_use]
    pub fn dense(&self) -> Option<String> {
        if self.ranks > MAX_DENSE_RANKS {
            return None;
        }
        let mut out = String::new();
        for src in 0..self.ranks {
            for dst in 0..self.ranks {
                let value = self.values.get(&(src, dst)).copied().unwrap_or(0);
                _ = write!(out, "{}{value}", if dst == 0 { "" } else { " " });
            }
            out.push('\n');
        }
        Some(out)
    }

    /// A Scotch source graph: vertex = rank, weight of an edge = the values of both directions
    /// divided by the returned scale, rounded up, so that all weights fit 32 bits.
    #[must_use]
    pub fn scotch(&self) -> (String, u64) {
        let mut neighbors: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
        for (&(src, dst), &value) in self.values.iter().filter(|((src, dst), _)| src != dst) {
            for (own, other) in [(src, dst), (dst, src)] {
                let sum = neighbors.entry(own).or_default().entry(other).or_default();
                *sum = sum.saturating_add(value);
            }
        }
        let arcs = neighbors.values().map(BTreeMap::len).sum::<usize>() as u64;
        let sum: u128 = neighbors.values().flat_map(BTreeMap::values).map(|value| u128::from(*value)).sum();
        // Rounding up adds less than 1 per arc.
        let room = u128::from(WEIGHT_LIMIT.saturating_sub(arcs).max(1));
        let scale = u64::try_from(sum.div_ceil(room).max(1)).unwrap_or(u64::MAX);
        let mut out = format!("0\n{} {arcs}\n0 010\n", self.ranks);
        for rank in 0..self.ranks {
            let own = neighbors.get(&rank);
            _ = write!(out, "{}", own.map_or(0, BTreeMap::len));
            for (other, value) in own.into_iter().flatten() {
                _ = write!(out, " {} {other}", value.div_ceil(scale));
            }
            out.push('\n');
        }
        (out, scale)
    }

    /// Content that is missing from the graph, in sentences.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.unknown > 0 {
            let pairs = count_of(self.unknown, "pair");
            notes.push(format!(
                "the graph of ranks omits {pairs} with an unknown rank; `ibscope ranks` shows the reasons"
            ));
        }
        if self.on_one_node > 0 {
            let pairs = count_of(self.on_one_node as u64, "pair");
            notes.push(format!(
                "the graph of ranks has no traffic for {pairs} of ranks on one node, because their messages are not on the wire"
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::GroupBy;
    use crate::analysis::matrix::{MatrixCells, Selection};

    /// Ranks 0, 1 and 3: 0 -> 1 10 bytes, 1 -> 0 5 bytes, 3 -> 0 `large` bytes, 1 -> 1 1 byte.
    fn matrix(large: u64) -> Matrix {
        let mut cells = MatrixCells::default();
        for (src, dst, bytes) in [(0, 1, 10), (1, 0, 5), (3, 0, large), (1, 1, 1)] {
            let cell = cells.cell(Label::only(src), Label::only(dst));
            (cell.mpi_bytes, cell.messages, cell.packets) = (Some(bytes), 1, 1);
        }
        cells.into_matrix(GroupBy::Rank, Selection::All)
    }

    #[test]
    fn a_dense_matrix_has_a_row_per_rank() {
        let graph = RankGraph::of(&matrix(7), TrafficUnit::MpiBytes);
        assert_eq!(graph.dense().unwrap(), "0 10 0 0\n5 1 0 0\n0 0 0 0\n7 0 0 0\n");
        assert_eq!(graph.notes(), Vec::<String>::new());
    }

    #[test]
    fn a_dense_matrix_has_a_bound() {
        for (highest, is_written) in [(MAX_DENSE_RANKS - 1, true), (MAX_DENSE_RANKS, false)] {
            let mut cells = MatrixCells::default();
            cells.cell(Label::only(0), Label::only(highest)).mpi_bytes = Some(1);
            let graph = RankGraph::of(&cells.into_matrix(GroupBy::Rank, Selection::All), TrafficUnit::MpiBytes);
            assert_eq!(graph.dense().is_some(), is_written, "{highest}");
        }
    }

    /// Edges of both directions are one, loops are none, and a rank without traffic has no neighbor.
    #[test]
    fn a_scotch_graph_has_each_edge_at_both_ends() {
        let (text, scale) = RankGraph::of(&matrix(7), TrafficUnit::MpiBytes).scotch();
        assert_eq!((text.as_str(), scale), ("0\n4 4\n0 010\n2 15 1 7 3\n1 15 0\n0\n1 7 0\n", 1));
    }

    #[test]
    fn the_weights_of_a_scotch_graph_fit_32_bits() {
        for large in [1 << 31, u64::MAX / 4] {
            let (text, scale) = RankGraph::of(&matrix(large), TrafficUnit::MpiBytes).scotch();
            let weights = text.lines().skip(3).flat_map(|line| line.split(' ').skip(1).step_by(2));
            let sum: u64 = weights.map(|weight| weight.parse::<u64>().unwrap()).sum();
            assert!(sum <= WEIGHT_LIMIT && sum > WEIGHT_LIMIT / 2, "{large}: {sum} at {scale}");
        }
    }

    #[test]
    fn reserved_characters_are_escaped() {
        assert_eq!(escaped("a<b>&\"\u{1b}"), "a&lt;b&gt;&amp;\"\u{FFFD}");
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\u{FFFD}\"");
    }
}
