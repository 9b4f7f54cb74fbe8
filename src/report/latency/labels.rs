//! What the renderings of times have in common: which interval, verb, size and pair a row is of.

use super::{Key, size};
use crate::model::Histogram;
use crate::report::columns::columns;
use crate::report::csv::ends;
use crate::report::json;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The first columns of every csv.
pub(in crate::report) const LABELS: &str = "interval,verb,from_bytes,src,dst";

impl Key {
    /// Its fields as in [`LABELS`]; `src` and `dst` are empty where all pairs are together, `from_bytes` where all sizes are.
    pub(in crate::report) fn csv(&self) -> String {
        let from_bytes = self.from_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        let [src, dst, _] = ends(self.pair.as_ref());
        format!("{},{},{from_bytes},{src},{dst}", self.interval, self.verb)
    }

    /// The column `job`, behind all others; empty as `src` is.
    pub(in crate::report) fn job(&self) -> String {
        let [.., job] = ends(self.pair.as_ref());
        job
    }

    /// The same as members of an object; null where they are empty in the csv.
    pub(in crate::report) fn json(&self) -> Map<String, Value> {
        let key =
            [("interval", json!(self.interval)), ("verb", json!(self.verb)), ("from_bytes", json!(self.from_bytes))];
        let members = key.into_iter().chain(json::ends(self.pair.as_ref()));
        members.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// A table for people: the labels, and what `row` says under `header`.
pub(in crate::report) fn labelled(
    latencies: &BTreeMap<Key, Histogram>,
    header: &[&str],
    row: impl Fn(&Key, &Histogram) -> Vec<String>,
) -> String {
    let has_pairs = latencies.keys().any(|key| key.pair.is_some());
    labelled_rows(has_pairs, header, latencies.iter().map(|(key, times)| (key, row(key, times))))
}

/// The same of any rows.
pub(super) fn labelled_rows<'a>(
    has_pairs: bool,
    header: &[&str],
    rows: impl Iterator<Item = (&'a Key, Vec<String>)>,
) -> String {
    let labels: &[&str] =
        if has_pairs { &["interval", "verb", "size", "from", "to"] } else { &["interval", "verb", "size"] };
    let all = [labels, header].concat();
    let mut table = columns(&all, labels.len()..all.len());
    for (key, row) in rows {
        let mut cells = vec![key.interval.to_owned(), key.verb.to_owned(), size(key.from_bytes)];
        if let Some((src, dst)) = &key.pair {
            cells.extend([src.name(), dst.name()]);
        }
        cells.extend(row);
        table.add_row(cells);
    }
    table.trim_fmt()
}
