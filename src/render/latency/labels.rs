//! The key of a row of times: interval, verb, size class and pair.

use crate::analysis::Label;
use crate::analysis::latency::LatencyKey;
use crate::model::Histogram;
use crate::render::table::Table;
use crate::render::table::groups::{self, HasKey, HasPair};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A key without times.
struct KeyRow<'a>(&'a LatencyKey);

impl HasPair for KeyRow<'_> {
    fn pair(&self) -> Option<(&Label, &Label)> {
        ends(self.0)
    }
}

impl HasKey for KeyRow<'_> {
    fn key(&self) -> &LatencyKey {
        self.0
    }
}

/// Interval, verb, size and pair as members of an object.
pub(crate) fn key_json(key: &LatencyKey) -> Map<String, Value> {
    Table::new("times").with(groups::key(false)).with(groups::job).object(&KeyRow(key))
}

/// Sender and receiver; `None` where the key combines all pairs.
pub(crate) fn ends(key: &LatencyKey) -> Option<(&Label, &Label)> {
    key.pair.as_ref().map(|(src, dst)| (src, dst))
}

/// True if the times are grouped by pair.
pub(crate) fn has_pairs(latencies: &BTreeMap<LatencyKey, Histogram>) -> bool {
    latencies.keys().any(|key| key.pair.is_some())
}
