//! What the renderings of times have in common: which interval, verb, size and pair a row is of.

use super::units::size;
use crate::analysis::latency::Key;
use crate::model::Histogram;
use crate::render::columns::columns;
use crate::render::csv::ends;
use crate::render::json;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The first columns of every csv.
pub(crate) const LABELS: &str = "interval,verb,from_bytes,src,dst";

/// The fields of a key as in [`LABELS`]; `src` and `dst` are empty where all pairs are together, `from_bytes` where all sizes are.
pub(crate) fn key_csv(key: &Key) -> String {
    let from_bytes = key.from_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
    let [src, dst, _] = ends(key.pair.as_ref());
    format!("{},{},{from_bytes},{src},{dst}", key.interval, key.verb)
}

/// The column `job`, behind all others; empty as `src` is.
pub(crate) fn key_job(key: &Key) -> String {
    let [.., job] = ends(key.pair.as_ref());
    job
}

/// The same as members of an object; null where they are empty in the csv.
pub(crate) fn key_json(key: &Key) -> Map<String, Value> {
    let labels = [("interval", json!(key.interval)), ("verb", json!(key.verb)), ("from_bytes", json!(key.from_bytes))];
    let members = labels.into_iter().chain(json::ends(key.pair.as_ref()));
    members.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A table for people: the labels, and what `row` says under `header`.
pub(crate) fn labelled(
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
