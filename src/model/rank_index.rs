//! From an end of a connection to the rank behind it.

use super::profile::RankRow;
use ibscope_parsers::{Endpoint, Qpn};
use std::collections::{BTreeMap, BTreeSet};

/// The ranks of a profile, by endpoint and queue pair.
#[derive(Clone, Debug, Default)]
pub struct RankIndex {
    /// Endpoints with one rank.
    alone: BTreeMap<Endpoint, u32>,
    queue_pairs: BTreeMap<(Endpoint, Qpn), u32>,
}

impl RankIndex {
    /// Indexes the rows of a rank map. Rows whose endpoint is no address name nothing.
    #[must_use]
    pub fn new(rows: &[RankRow]) -> Self {
        let mut ranks: BTreeMap<Endpoint, BTreeSet<u32>> = BTreeMap::new();
        let mut queue_pairs = BTreeMap::new();
        for row in rows {
            let Ok(endpoint) = row.endpoint.parse::<Endpoint>() else { continue };
            ranks.entry(endpoint).or_default().insert(row.rank);
            if let Some(qpn) = row.qpn {
                queue_pairs.insert((endpoint, Qpn::new(qpn)), row.rank);
            }
        }
        let alone = ranks.into_iter().filter_map(|(endpoint, ranks)| match ranks.into_iter().collect::<Vec<_>>()[..] {
            [rank] => Some((endpoint, rank)),
            _ => None,
        });
        Self { alone: alone.collect(), queue_pairs }
    }

    /// The rank at an endpoint: that of the queue pair, or the only one there is.
    #[must_use]
    pub fn rank(&self, endpoint: Endpoint, qpn: Option<Qpn>) -> Option<u32> {
        let by_qp = qpn.and_then(|qpn| self.queue_pairs.get(&(endpoint, qpn)));
        by_qp.or_else(|| self.alone.get(&endpoint)).copied()
    }
}
