//! Who is which rank. Joined last: sums are kept per connection, and what is believed here only names them.
//!
//! [`believe`] lets the messages of all connections vote on the library and on the meaning of its tags, and then the
//! endpoints on their rank. [`rankmap`] is the user's word, which goes before.

pub mod rankmap;
mod stack;

pub use stack::{Belief, believe};

use crate::model::profile::RankRow;
use crate::model::traffic::ConnectionTotals;
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Share of the votes that a rank needs at its endpoint, in percent. One process per node gives 100; with several no rank has it.
const CLEAR_PERCENT: u64 = 90;

/// The ranks that the envelopes name, sorted, and what could not be settled, one sentence each.
#[must_use]
pub fn learn(connections: &[ConnectionTotals], belief: &Belief) -> (Vec<RankRow>, Vec<String>) {
    let mut votes: BTreeMap<Endpoint, BTreeMap<u32, u64>> = BTreeMap::new();
    for connection in connections {
        let Some(form) = belief.form(&connection.key) else { continue };
        for (&(voted_form, layout, rank), &count) in &connection.votes.world {
            if voted_form == form && layout == belief.layout {
                *votes.entry(connection.key.src).or_default().entry(rank).or_default() += count;
            }
        }
    }
    let mut notes = Vec::new();
    let mut ranks: Vec<(u32, Endpoint, u64, u64)> = Vec::new();
    for (endpoint, by_rank) in votes {
        let total: u64 = by_rank.values().sum();
        let Some((&rank, &agreeing)) = by_rank.iter().max_by_key(|&(rank, count)| (count, std::cmp::Reverse(rank)))
        else {
            continue;
        };
        if agreeing * 100 >= total * CLEAR_PERCENT {
            ranks.push((rank, endpoint, agreeing, total - agreeing));
        } else {
            let all: Vec<String> = by_rank.keys().map(u32::to_string).collect();
            notes.push(format!(
                "endpoint {endpoint} sends as ranks {}: several processes run there, so its traffic has no single rank \
                 (give --rankmap with queue pairs to split it)",
                all.join(", ")
            ));
        }
    }
    ranks.sort_unstable();
    let mut rows = Vec::new();
    for same in ranks.chunk_by(|a, b| a.0 == b.0) {
        match same {
            [(rank, endpoint, agreeing, disagreeing)] => rows.push(RankRow {
                rank: *rank,
                endpoint: endpoint.to_string(),
                qpn: None,
                evidence: "envelope".to_owned(),
                agreeing: *agreeing,
                disagreeing: *disagreeing,
            }),
            several => {
                let claims: Vec<String> =
                    several.iter().map(|(_, endpoint, votes, _)| format!("{endpoint} ({votes} messages)")).collect();
                notes.push(format!(
                    "rank {} is claimed by {}: none of them is believed (are these captures of two jobs?)",
                    several[0].0,
                    claims.join(" and ")
                ));
            }
        }
    }
    (rows, notes)
}
