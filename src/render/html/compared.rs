//! Another run beside that of the page: what `ibscope compare` says of the two, and what it takes to draw both.
//!
//! Pairs of both are packed (`packed.rs`), once by rank where both know some, and by endpoint:
//!
//! ```text
//! pairs | sender | receiver | of A, then of B: payload, wire bytes, packets, has MPI; messages and MPI bytes of p2p, collective, all
//! ```
//! Pairs stand in the order of `compare`: those with most difference first.

use super::packed::{self, Columns};
use crate::analysis::compare::{self as analysis, ComparedSeries, Comparison, PairTraffic, Pairing, Times, Verdict};
use crate::analysis::matrix::{Cell, Selection};
use crate::analysis::rates::VALUES;
use crate::analysis::{By, Label};
use crate::model::Profile;
use crate::render::compare;
use crate::render::latency::key_json;
use crate::render::{RenderError, json};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io;

/// Selections, in the order in which they are packed.
const SELECTIONS: [Selection; 3] = [Selection::P2p, Selection::Collective, Selection::All];

/// Two runs side by side: that of the page is A.
#[derive(Clone, Debug)]
pub struct Compared {
    comparison: Comparison,
    courses: [ComparedSeries; 2],
    /// Pairs by what they are of, in the order of [`SELECTIONS`].
    pairs: Vec<(By, [Vec<PairTraffic>; 3])>,
}

impl Compared {
    /// Compares the profile of the page with another.
    pub fn new(profiles: [&Profile; 2], names: [String; 2]) -> Result<Self, RenderError> {
        let comparison = analysis::compare(profiles, names, None)?;
        let courses = analysis::time_series(profiles)?;
        let by: &[By] = if comparison.by == By::Rank { &[By::Rank, By::Endpoint] } else { &[By::Endpoint] };
        let of = |by: &By| (*by, SELECTIONS.map(|selection| analysis::pairs(profiles, *by, selection)));
        let pairs = by.iter().map(of).collect();
        Ok(Self { comparison, courses, pairs })
    }

    /// Everything but the pairs.
    pub(super) fn document(&self) -> Value {
        let Self { comparison, courses, pairs } = self;
        let differ = |(by, [.., all]): &(By, [Vec<PairTraffic>; 3])| {
            let differs = |pair: &&PairTraffic| pair.values().iter().any(|pairing| pairing.verdict != Verdict::Equal);
            let labels: Vec<Value> = labels(all).into_iter().map(label).collect();
            json!({ "by": json::by(*by), "labels": labels, "pairs": all.len(), "differ": all.iter().filter(differs).count() })
        };
        json!({
            "names": comparison.names,
            "placement": compare::placement(&comparison.placements),
            "rows": rows(comparison),
            "rates": VALUES,
            "bin_ns": courses[0].bin_ns,
            "courses": courses.each_ref().map(|course| json!({ "first_ns": course.first_ns, "has_mpi": course.has_mpi, "bins": course.bins })),
            "windows_ns": comparison.windows_ns,
            "pairs": pairs.iter().map(differ).collect::<Vec<_>>(),
        })
    }

    /// The pairs.
    pub(super) fn pack(&self) -> io::Result<String> {
        let mut columns = Columns::default();
        for (_, selections) in &self.pairs {
            let [.., all] = selections;
            let labels = labels(all);
            let place = |label: &Label| labels.binary_search(&label).unwrap_or_default() as u64;
            columns.put(std::iter::once(all.len() as u64))?;
            columns.put(all.iter().map(|pair| place(&pair.pair.0)))?;
            columns.put(all.iter().map(|pair| place(&pair.pair.1)))?;
            for side in 0..2 {
                let of: [fn(&Cell) -> u64; 4] = [
                    |cell| cell.payload_bytes,
                    |cell| cell.wire_bytes,
                    |cell| cell.packets,
                    |cell| u64::from(cell.mpi_bytes.is_some()),
                ];
                for of in of {
                    columns.put(all.iter().map(|pair| of(&pair.cells[side])))?;
                }
                for pairs in selections {
                    // What sorts them does not depend on the selection.
                    columns.put(pairs.iter().map(|pair| pair.cells[side].messages))?;
                    columns.put(pairs.iter().map(|pair| pair.cells[side].mpi_bytes.unwrap_or(0)))?;
                }
            }
        }
        Ok(packed::base64(&columns.finish()?))
    }
}

/// Everyone that sends or receives in one of the two, sorted.
fn labels(pairs: &[PairTraffic]) -> Vec<&Label> {
    let labels: BTreeSet<&Label> = pairs.iter().flat_map(|pair| [&pair.pair.0, &pair.pair.1]).collect();
    labels.into_iter().collect()
}

fn label(label: &Label) -> Value {
    json!({ "id": label.to_string(), "name": label.name() })
}

/// The rows of the csv but those of pairs, what differs first, and what differs beyond chance before all others.
fn rows(comparison: &Comparison) -> Vec<Value> {
    let mut rows: Vec<(Verdict, Value)> = Vec::new();
    let mut add = |section: &str, pairing: &Pairing, value: String, name: String, times: Option<&Times>| {
        let mut row = json!({
            "section": section, "value": value, "name": name, "values": pairing.values,
            "texts": compare::texts(pairing, section == "rate"), "verdict": pairing.verdict.name(),
        });
        if let Some(times) = times {
            row["key"] = Value::Object(key_json(&times.key));
            row["samples"] = json!(times.samples);
            row["longer_in_b"] = json!(times.longer_in_b);
            row["intervals"] = json!(pairing.bounds.map(|bounds| bounds.map(|bounds| [bounds.low_ns, bounds.high_ns])));
        }
        rows.push((pairing.verdict, row));
    };
    // Times are sorted by verdict and by what they weigh, so medians and 99th percentiles of one stay together.
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
