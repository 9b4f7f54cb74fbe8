//! Comparison of the page's run (A) with another run (B), with the numbers of `ibscope compare`.
//!
//! The pairs of both runs are packed (`packed.rs`), by rank if both runs are compared by rank, and
//! by endpoint:
//!
//! ```text
//! number of pairs | sender | receiver | for A, then for B: payload, wire bytes, packets, has MPI;
//! messages and MPI bytes of p2p, collective, all
//! ```
//! Pairs are in the order of `compare`: largest difference first.

use super::packed::{self, PackedColumns};
use crate::analysis::compare::{
    self as analysis, ComparedSeries, Comparison, ComparisonVerdict, LatencyComparison, PairTraffic, ValueComparison,
};
use crate::analysis::matrix::{MatrixCell, Selection};
use crate::analysis::observed_ports::may_miss_ports;
use crate::analysis::rates::{DEFAULT_WINDOW_NS, Rates, VALUES, grouped_rates};
use crate::analysis::{GroupBy, Label};
use crate::model::{JobRank, Nodes, Profile};
use crate::render::RenderError;
use crate::render::compare;
use crate::render::latency::key_json;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Selections in the order of the packed columns.
const SELECTIONS: [Selection; 3] = [Selection::P2p, Selection::Collective, Selection::All];

/// Two runs side by side; A is the run of the page.
#[derive(Clone, Debug)]
pub struct ReportComparison {
    comparison: Comparison,
    series: [ComparedSeries; 2],
    /// The rates of both runs in the bins of `series`.
    rates: [Option<Rates>; 2],
    /// For each run: whether pairs without captured packets may have sent some, and the nodes of
    /// the ranks.
    hidden: [(bool, RankNodes); 2],
    /// For each run: why its counts may be too low.
    doubts: [Option<String>; 2],
    /// Pairs by grouping; the arrays are in the order of [`SELECTIONS`].
    pairs: Vec<(GroupBy, [Vec<PairTraffic>; 3])>,
}

impl ReportComparison {
    /// Compares the profile of the page (the first) with another profile.
    pub fn new(profiles: [&Profile; 2], names: [String; 2]) -> Result<Self, RenderError> {
        let comparison = analysis::compare(profiles, names, None)?;
        let series = analysis::time_series(profiles)?;
        let by: &[GroupBy] =
            if comparison.by == GroupBy::Rank { &[GroupBy::Rank, GroupBy::Endpoint] } else { &[GroupBy::Endpoint] };
        let of = |by: &GroupBy| (*by, SELECTIONS.map(|selection| analysis::pairs(profiles, *by, selection)));
        let pairs = by.iter().map(of).collect();
        let rates =
            profiles.map(|profile| grouped_rates(profile, None, Some(series[0].bin_ns), DEFAULT_WINDOW_NS).ok());
        let hidden = profiles.map(|profile| (may_miss_ports(profile), rank_nodes(profile)));
        let doubts = profiles.map(compare::doubt);
        Ok(Self { comparison, series, rates, hidden, doubts, pairs })
    }

    /// Writes the csv of `compare`.
    pub(super) fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        compare::csv(&self.comparison, out)
    }

    /// The rates of both runs, each with the name of its export and its inputs.
    pub(super) fn rates<'a>(
        &'a self,
        inputs: [&'a str; 2],
    ) -> impl Iterator<Item = (&'static str, &'a str, &'a Rates)> {
        let named = ["rates_a", "rates_b"].into_iter().zip(inputs).zip(&self.rates);
        named.filter_map(|((name, inputs), rates)| Some((name, inputs, rates.as_ref()?)))
    }

    /// Returns the comparison part of the document, without the pairs.
    pub(super) fn document(&self) -> Value {
        let Self { comparison, series, hidden, doubts, pairs, .. } = self;
        let differ = |(by, [.., all]): &(GroupBy, [Vec<PairTraffic>; 3])| {
            let own = labels(all);
            let nodes = hidden.each_ref().map(|(_, nodes)| on_one_node(&own, nodes));
            let labels: Vec<Value> = own.into_iter().map(label).collect();
            json!({ "by": by.name(), "labels": labels, "nodes": nodes, "pairs": all.iter().filter(|pair| pair.is_known()).count(), "differ": all.iter().filter(|pair| pair.differs()).count() })
        };
        json!({
            "names": comparison.names,
            "doubts": doubts,
            "placement": compare::placement(&comparison.placements),
            "rows": rows(comparison),
            "partial": hidden.each_ref().map(|(is_partial, _)| is_partial),
            "rates": VALUES,
            "bin_ns": series[0].bin_ns,
            "series": series.each_ref().map(|run| json!({ "first_ns": run.first_ns, "span_ns": run.span_ns, "has_mpi": run.has_mpi, "bins": run.bins })),
            "windows_ns": comparison.windows_ns,
            "pairs": pairs.iter().map(differ).collect::<Vec<_>>(),
        })
    }

    /// Packs the pairs.
    pub(super) fn pack(&self) -> io::Result<String> {
        let mut columns = PackedColumns::default();
        for (_, selections) in &self.pairs {
            let [.., all] = selections;
            let labels = labels(all);
            let place = |label: &Label| labels.binary_search(&label).unwrap_or_default() as u64;
            columns.put(std::iter::once(all.len() as u64))?;
            columns.put(all.iter().map(|pair| place(&pair.pair.0)))?;
            columns.put(all.iter().map(|pair| place(&pair.pair.1)))?;
            for side in 0..2 {
                let of: [fn(&MatrixCell) -> u64; 4] = [
                    |cell| cell.payload_bytes,
                    |cell| cell.wire_bytes,
                    |cell| cell.packets,
                    |cell| u64::from(cell.mpi_bytes.is_some()),
                ];
                for of in of {
                    columns.put(all.iter().map(|pair| of(&pair.cells[side])))?;
                }
                for pairs in selections {
                    // All selections have the same order of pairs.
                    columns.put(pairs.iter().map(|pair| pair.cells[side].messages))?;
                    columns.put(pairs.iter().map(|pair| pair.cells[side].mpi_bytes.unwrap_or(0)))?;
                }
            }
        }
        Ok(packed::base64(&columns.finish()?))
    }
}

/// The nodes of each rank.
type RankNodes = BTreeMap<u32, Vec<String>>;

/// The nodes of the ranks of a profile with one job.
fn rank_nodes(profile: &Profile) -> RankNodes {
    let nodes = Nodes::of(profile);
    let of = |rank: JobRank| (rank.rank, nodes.names(rank).map(str::to_owned).collect());
    profile.ranks.iter().map(|row| of(JobRank { job: row.job, rank: row.rank })).collect()
}

/// For each node with several ranks: the positions of the labels of these ranks.
fn on_one_node(labels: &[&Label], nodes: &RankNodes) -> Vec<Vec<usize>> {
    let mut at: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, label) in labels.iter().enumerate() {
        let own = label.rank().and_then(|rank| nodes.get(&rank));
        own.into_iter().flatten().for_each(|node| at.entry(node).or_default().push(place));
    }
    at.into_values().filter(|ranks| ranks.len() > 1).collect()
}

/// All senders and receivers of either run, sorted.
fn labels(pairs: &[PairTraffic]) -> Vec<&Label> {
    let labels: BTreeSet<&Label> = pairs.iter().flat_map(|pair| [&pair.pair.0, &pair.pair.1]).collect();
    labels.into_iter().collect()
}

fn label(label: &Label) -> Value {
    json!({ "id": label.to_string(), "name": label.name() })
}

/// The rows of `compare`'s csv except the pairs, sorted by verdict: differences beyond chance
/// first.
fn rows(comparison: &Comparison) -> Vec<Value> {
    let mut rows: Vec<(ComparisonVerdict, Value)> = Vec::new();
    let mut add =
        |section: &str, pairing: &ValueComparison, value: String, name: String, times: Option<&LatencyComparison>| {
            let mut row = json!({
                "section": section, "value": value, "name": name, "values": pairing.values,
                "texts": compare::texts(pairing, section == "rate"), "verdict": pairing.verdict.name(),
            });
            if let Some(times) = times {
                row["key"] = Value::Object(key_json(&times.key));
                row["samples"] = json!(times.samples);
                row["longer_in_b"] = json!(times.longer_in_b);
                row["intervals"] = json!(
                    pairing.confidence_intervals.map(|bounds| bounds.map(|bounds| [bounds.low_ns, bounds.high_ns]))
                );
            }
            rows.push((pairing.verdict, row));
        };
    // The times are already sorted by verdict and weight; the stable sort below keeps the median
    // and the 99th percentile of the same verdict together.
    for times in &comparison.times {
        for pairing in &times.quantiles {
            add("latency", pairing, pairing.value.to_owned(), compare::name(pairing.value), Some(times));
        }
    }
    for pairing in &comparison.totals {
        add("total", pairing, pairing.value.to_owned(), compare::name(pairing.value), None);
    }
    for (what, pairing) in &comparison.rates {
        let name = format!("{what} rate: {}", compare::name(pairing.value));
        add("rate", pairing, format!("{}_per_s_{what}", pairing.value), name, None);
    }
    for pairing in &comparison.health {
        add("health", pairing, pairing.value.to_owned(), compare::name(pairing.value), None);
    }
    rows.sort_by_key(|(verdict, _)| *verdict);
    rows.into_iter().map(|(_, row)| row).collect()
}
