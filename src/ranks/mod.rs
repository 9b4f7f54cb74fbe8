//! Who is which rank. Joined last: sums are kept per connection, and what is believed here only names them.
//!
//! [`believe`] lets the messages of all connections vote on the library and on the meaning of its tags, [`pair`] finds
//! the two directions of connections, and [`learn`] lets processes vote on their rank. [`rankmap`] is the user's word,
//! which goes before.

pub mod rankmap;

mod communicators;
mod jobs;
mod pairs;
mod processes;
mod stack;

pub use pairs::{Evidence, Pairs, pair};
pub use stack::{Belief, believe};

use crate::model::profile::{CmRow, RankRow};
use crate::model::traffic::ConnectionTotals;
use crate::model::{Introduction, Wireup};
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
    source: Source,
}

/// What says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The library's connection messages state it.
    Stated,
    /// Envelopes name it.
    Envelopes,
    /// Other communicators let it be inferred.
    Communicator,
}

impl Source {
    const fn name(self) -> &'static str {
        match self {
            Self::Stated => "cm",
            Self::Envelopes => "envelope",
            Self::Communicator => "communicator",
        }
    }
}

/// A process, or all of an endpoint where that is one, whose rank is asked for.
struct Place {
    endpoint: Endpoint,
    /// Its queue pairs there, where the endpoint has several processes.
    queue_pairs: Option<Vec<u32>>,
    process: Process,
}

/// The ranks that envelopes and connection messages name, sorted, and what could not be settled, one sentence each.
///
/// An endpoint with one rank gets one row for all its queue pairs; one with several gets a row per queue pair.
#[must_use]
pub fn learn(witnesses: &Witnesses<'_>, belief: &Belief, paired: &Pairs) -> (Vec<RankRow>, Vec<String>) {
    let places = places(witnesses, belief, paired);
    let verdicts: Vec<Option<Verdict>> = places.iter().map(|place| verdict(&place.process)).collect();
    let known: Vec<(u32, &Process)> = places
        .iter()
        .zip(&verdicts)
        .filter_map(|(place, verdict)| Some((verdict.as_ref()?.rank, &place.process)))
        .collect();
    let contexts = communicators::like_world(&known);
    let mut notes = Vec::new();
    let mut rows = Vec::new();
    let mut unknown: BTreeMap<Endpoint, u64> = BTreeMap::new();
    for (place, verdict) in places.iter().zip(&verdicts) {
        let inferred = || {
            let (rank, agreeing) = communicators::infer(&place.process, &contexts, &known)?;
            Some(Verdict { rank, agreeing, disagreeing: 0, source: Source::Communicator })
        };
        match (*verdict).or_else(inferred) {
            Some(verdict) => rows.extend(rows_of(place, verdict)),
            None => *unknown.entry(place.endpoint).or_default() += 1,
        }
    }
    for (endpoint, count) in unknown {
        let here = places.iter().filter(|place| place.endpoint == endpoint);
        let named = here.flat_map(|place| place.process.envelopes.keys().chain(place.process.stated.keys()));
        let ranks: BTreeSet<&u32> = named.collect();
        if !ranks.is_empty() {
            let all: Vec<String> = ranks.into_iter().map(u32::to_string).collect();
            notes.push(format!(
                "endpoint {endpoint} sends as ranks {}, and for {count} of its queue pairs no message tells which: \
                 give --rankmap with queue pairs to name them",
                all.join(", ")
            ));
        }
    }
    drop_conflicts(&mut rows, &mut notes);
    let inferred: BTreeSet<u32> =
        rows.iter().filter(|row| row.evidence == Source::Communicator.name()).map(|row| row.rank).collect();
    if !inferred.is_empty() {
        let all: Vec<String> = inferred.iter().map(u32::to_string).collect();
        notes.push(format!(
            "ranks inferred from communicators on which all known processes have their world rank: {}",
            all.join(", ")
        ));
    }
    rows.sort_by(|a, b| (a.rank, &a.endpoint, a.qpn).cmp(&(b.rank, &b.endpoint, b.qpn)));
    (rows, notes)
}

/// Where processes are: endpoints with one as a whole, those with several by process.
fn places(witnesses: &Witnesses<'_>, belief: &Belief, paired: &Pairs) -> Vec<Place> {
    let (processes, loose) = processes::find(witnesses, belief, paired);
    let mut endpoints: BTreeMap<Endpoint, Vec<&Process>> = BTreeMap::new();
    for process in &processes {
        let ends: BTreeSet<Endpoint> = process.queue_pairs.iter().map(|end| end.endpoint).collect();
        ends.into_iter().for_each(|endpoint| endpoints.entry(endpoint).or_default().push(process));
    }
    for endpoint in loose.keys() {
        endpoints.entry(*endpoint).or_default();
    }
    let mut places = Vec::new();
    for (endpoint, processes) in endpoints {
        let mut together = loose.get(&endpoint).cloned().unwrap_or_default();
        processes.iter().for_each(|process| together.add(process));
        // A second rank at the endpoint may have sent next to nothing: it is asked for by process, not by share.
        let distinct: BTreeSet<u32> = processes.iter().filter_map(|p| verdict(p)).map(|verdict| verdict.rank).collect();
        let is_one = distinct.len() <= 1 && !communicators::contradict(&processes);
        // Without any word on `MPI_COMM_WORLD` there is nothing that contradicts it either.
        let is_silent = together.envelopes.is_empty() && together.stated.is_empty();
        if is_one && (is_silent || verdict(&together).is_some()) {
            places.push(Place { endpoint, queue_pairs: None, process: together });
            continue;
        }
        for process in processes {
            let own = process.queue_pairs.iter().filter(|end| end.endpoint == endpoint);
            let queue_pairs = Some(own.map(|end| end.qpn.value()).collect());
            places.push(Place { endpoint, queue_pairs, process: process.clone() });
        }
    }
    places
}

fn rows_of(place: &Place, verdict: Verdict) -> Vec<RankRow> {
    match &place.queue_pairs {
        None => vec![row(place.endpoint, None, verdict)],
        Some(queue_pairs) => queue_pairs.iter().map(|&qpn| row(place.endpoint, Some(qpn), verdict)).collect(),
    }
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
    let source = if stated.is_empty() { Source::Envelopes } else { Source::Stated };
    clear.then_some(Verdict { rank, agreeing, disagreeing: total - agreeing, source })
}

fn row(endpoint: Endpoint, qpn: Option<u32>, verdict: Verdict) -> RankRow {
    RankRow {
        rank: verdict.rank,
        endpoint: endpoint.to_string(),
        qpn,
        evidence: verdict.source.name().to_owned(),
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
