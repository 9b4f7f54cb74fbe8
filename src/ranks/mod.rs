//! Who is which rank. Joined last: sums are kept per connection, and what is believed here only names them.
//!
//! [`believe`] lets the messages of all connections vote on the library and on the meaning of its tags, [`pair`] finds
//! the two directions of connections, and [`learn`] lets processes vote on their rank. [`rankmap`] is the user's word,
//! which goes before.

pub mod rankmap;

mod pairs;
mod processes;
mod stack;

pub use pairs::{Evidence, Pairs, pair};
pub use stack::{Belief, believe};

use crate::model::{Introduction, Wireup};
use crate::model::profile::{CmRow, RankRow};
use crate::model::traffic::ConnectionTotals;
use ibscope_parsers::Endpoint;
use processes::Process;
use std::collections::{BTreeMap, BTreeSet};

/// Share of the votes that a rank needs at its process, in percent.
const CLEAR_PERCENT: u64 = 90;

/// Everything that speaks of ranks.
#[derive(Clone, Copy, Debug)]
pub struct Witnesses<'a> {
    /// Connections with the votes of their messages.
    pub connections: &'a [ConnectionTotals],
    /// Connection management messages.
    pub cm: &'a [CmRow],
    /// UCX's wire-up messages.
    pub wireups: &'a [Wireup],
    /// Introductions of Open MPI's `udcm` and of MVAPICH2.
    pub introductions: &'a [Introduction],
}

/// A rank and what speaks for it: votes that agree, and that do not.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    rank: u32,
    agreeing: u64,
    disagreeing: u64,
    /// The library stated it.
    stated: bool,
}

/// The ranks that envelopes and connection messages name, sorted, and what could not be settled, one sentence each.
///
/// An endpoint with one rank gets one row for all its queue pairs; one with several gets a row per queue pair.
#[must_use]
pub fn learn(witnesses: &Witnesses<'_>, belief: &Belief, paired: &Pairs) -> (Vec<RankRow>, Vec<String>) {
    let (processes, loose) = processes::find(witnesses, belief, paired);
    let mut notes = Vec::new();
    let mut endpoints: BTreeMap<Endpoint, Vec<&Process>> = BTreeMap::new();
    for process in &processes {
        let ends: BTreeSet<Endpoint> = process.queue_pairs.iter().map(|end| end.endpoint).collect();
        ends.into_iter().for_each(|endpoint| endpoints.entry(endpoint).or_default().push(process));
    }
    for endpoint in loose.keys() {
        endpoints.entry(*endpoint).or_default();
    }
    let mut rows = Vec::new();
    for (endpoint, processes) in endpoints {
        let mut together = loose.get(&endpoint).cloned().unwrap_or_default();
        processes.iter().for_each(|process| together.add(process));
        // A second rank at the endpoint may have sent next to nothing: it is asked for by process, not by share.
        let distinct: BTreeSet<u32> = processes.iter().filter_map(|p| verdict(p)).map(|verdict| verdict.rank).collect();
        if distinct.len() <= 1
            && let Some(verdict) = verdict(&together)
        {
            rows.push(row(endpoint, None, verdict));
            continue;
        }
        let mut unknown = 0;
        for process in processes {
            let Some(verdict) = verdict(process) else {
                unknown += 1;
                continue;
            };
            for end in process.queue_pairs.iter().filter(|end| end.endpoint == endpoint) {
                rows.push(row(endpoint, Some(end.qpn.value()), verdict));
            }
        }
        let ranks: BTreeSet<&u32> = together.envelopes.keys().chain(together.stated.keys()).collect();
        if unknown > 0 && !ranks.is_empty() {
            let all: Vec<String> = ranks.into_iter().map(u32::to_string).collect();
            notes.push(format!(
                "endpoint {endpoint} sends as ranks {}, and for {unknown} of its queue pairs no message tells which: \
                 give --rankmap with queue pairs to name them",
                all.join(", ")
            ));
        }
    }
    drop_conflicts(&mut rows, &mut notes);
    rows.sort_by(|a, b| (a.rank, &a.endpoint, a.qpn).cmp(&(b.rank, &b.endpoint, b.qpn)));
    (rows, notes)
}

/// The rank that nearly all votes name. What the library states goes before what envelopes say.
fn verdict(process: &Process) -> Option<Verdict> {
    let Process { envelopes, stated, .. } = process;
    let candidates = if stated.is_empty() { envelopes } else { stated };
    let (&rank, _) = candidates.iter().max_by_key(|&(rank, count)| (count, std::cmp::Reverse(rank)))?;
    let of = |votes: &BTreeMap<u32, u64>| votes.get(&rank).copied().unwrap_or(0);
    let agreeing = of(envelopes) + of(stated);
    let total = envelopes.values().chain(stated.values()).sum::<u64>();
    let clear = agreeing > 0 && agreeing * 100 >= total * CLEAR_PERCENT;
    clear.then_some(Verdict { rank, agreeing, disagreeing: total - agreeing, stated: !stated.is_empty() })
}

fn row(endpoint: Endpoint, qpn: Option<u32>, verdict: Verdict) -> RankRow {
    RankRow {
        rank: verdict.rank,
        endpoint: endpoint.to_string(),
        qpn,
        evidence: if verdict.stated { "cm" } else { "envelope" }.to_owned(),
        agreeing: verdict.agreeing,
        disagreeing: verdict.disagreeing,
    }
}

/// A rank that is claimed at two endpoints is believed at none of them.
fn drop_conflicts(rows: &mut Vec<RankRow>, notes: &mut Vec<String>) {
    let mut claims: BTreeMap<u32, BTreeMap<String, u64>> = BTreeMap::new();
    for row in rows.iter() {
        claims.entry(row.rank).or_default().entry(row.endpoint.clone()).or_insert(row.agreeing);
    }
    claims.retain(|_, endpoints| endpoints.len() > 1);
    for (rank, endpoints) in &claims {
        let claims: Vec<String> =
            endpoints.iter().map(|(endpoint, votes)| format!("{endpoint} ({votes} messages)")).collect();
        notes.push(format!(
            "rank {rank} is claimed by {}: none of them is believed (are these captures of two jobs?)",
            claims.join(" and ")
        ));
    }
    rows.retain(|row| !claims.contains_key(&row.rank));
}
