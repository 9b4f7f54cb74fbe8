//! Who is which rank. Joined last: sums are kept per connection, and what is believed here only names them.
//!
//! [`believe`] lets the messages of all connections vote on the library and on the meaning of its tags, [`pair`] finds
//! the two directions of connections, and [`learn`] lets processes vote on their rank. [`rankmap`] is the user's word,
//! which goes before.

pub mod hosts;
pub mod rankmap;

mod communicators;
mod jobs;
mod pairs;
mod processes;
mod stack;

pub use pairs::{Evidence, Pairs, named, pair};
pub use stack::{Belief, believe};

use crate::model::profile::{CmRow, RankRow};
use crate::model::traffic::ConnectionTotals;
use crate::model::{Introduction, QueuePair, SameProcess, Wireup};
use ibscope_parsers::Endpoint;
use processes::Process;
use std::collections::{BTreeMap, BTreeSet};

/// Share of the votes that a rank needs at its process, in percent.
const CLEAR_PERCENT: u64 = 90;

/// Everything that speaks of ranks.
#[derive(Clone, Copy, Debug)]
pub struct Witnesses<'a> {
    /// Connections with the votes of their messages.
    pub connections: &'a [Box<ConnectionTotals>],
    /// Connection management messages.
    pub cm: &'a [CmRow],
    /// UCX's wire-up messages.
    pub wireups: &'a [Wireup],
    /// The queue pairs that each of these may name, as [`named`] finds them.
    pub named: &'a [Vec<QueuePair>],
    /// Introductions of Open MPI's `udcm` and of MVAPICH2.
    pub introductions: &'a [Introduction],
    /// Queue pairs of which it is known that they belong to one process.
    pub same_process: &'a [SameProcess],
}

/// A rank and what speaks for it: votes that agree, and that do not.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    rank: u32,
    agreeing: u64,
    disagreeing: u64,
    source: Source,
}

/// What says so, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// A process at an endpoint, and what is believed of it.
struct Place {
    endpoint: Endpoint,
    /// Its queue pairs there; none: senders whose queue pairs are not known.
    queue_pairs: Vec<u32>,
    process: Process,
    verdict: Option<Verdict>,
}

/// The ranks that envelopes and connection messages name, sorted, and what could not be settled, one sentence each.
///
/// An endpoint whose processes are all one rank, as far as can be seen, gets one row for all its queue pairs; others get a row per queue pair
/// whose rank is known.
#[must_use]
pub fn learn(witnesses: &Witnesses<'_>, belief: &Belief, paired: &Pairs) -> (Vec<RankRow>, Vec<String>) {
    let mut places = places(witnesses, belief, paired);
    communicators::infer(&mut places);
    let mut notes = Vec::new();
    let mut rows = Vec::new();
    for here in places.chunk_by(|a, b| a.endpoint == b.endpoint) {
        let named = here.iter().filter_map(|place| Some((place, place.verdict?)));
        let ranks: BTreeSet<u32> = named.clone().map(|(_, verdict)| verdict.rank).collect();
        if ranks.len() == 1 && here.iter().all(|place| place.verdict.is_some()) {
            rows.extend(together(here));
            continue;
        }
        for (place, verdict) in named {
            rows.extend(place.queue_pairs.iter().map(|&qpn| row(place.endpoint, Some(qpn), verdict)));
        }
        notes.extend(unsettled(here));
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

/// Processes by endpoint, those whose queue pairs are not known last.
fn places(witnesses: &Witnesses<'_>, belief: &Belief, paired: &Pairs) -> Vec<Place> {
    let (processes, loose) = processes::find(witnesses, belief, paired);
    let mut places = Vec::new();
    for process in processes {
        let endpoints: BTreeSet<Endpoint> = process.queue_pairs.iter().map(|end| end.endpoint).collect();
        for endpoint in endpoints {
            let own = process.queue_pairs.iter().filter(|end| end.endpoint == endpoint);
            let queue_pairs = own.map(|end| end.qpn.value()).collect();
            places.push(Place { endpoint, queue_pairs, verdict: verdict(&process), process: process.clone() });
        }
    }
    for (endpoint, process) in loose {
        places.push(Place { endpoint, queue_pairs: Vec::new(), verdict: verdict(&process), process });
    }
    places.sort_by(|a, b| {
        (a.endpoint, a.queue_pairs.is_empty(), &a.queue_pairs).cmp(&(
            b.endpoint,
            b.queue_pairs.is_empty(),
            &b.queue_pairs,
        ))
    });
    places
}

/// The row of an endpoint that is one rank: with the strongest of what says so, and all that speaks for and against it.
fn together(here: &[Place]) -> Option<RankRow> {
    let mut verdicts = here.iter().filter_map(|place| Some((place.endpoint, place.verdict?)));
    let (endpoint, mut all) = verdicts.next()?;
    for (_, verdict) in verdicts {
        all.agreeing += verdict.agreeing;
        all.disagreeing += verdict.disagreeing;
        all.source = all.source.min(verdict.source);
    }
    Some(row(endpoint, None, all))
}

/// What is left open at an endpoint: processes without a rank where others have one, and those whose messages contradict each other.
fn unsettled(here: &[Place]) -> Option<String> {
    let endpoint = here.first()?.endpoint;
    let unknown = here.iter().filter(|place| place.verdict.is_none()).count();
    let mut votes: BTreeMap<u32, u64> = BTreeMap::new();
    for place in here {
        for (rank, count) in place.process.envelopes.iter().chain(&place.process.stated) {
            *votes.entry(*rank).or_default() += count;
        }
    }
    if unknown == 0 || votes.is_empty() {
        return None;
    }
    let all: Vec<String> = votes.iter().map(|(rank, count)| format!("{rank} ({count} messages)")).collect();
    Some(format!(
        "endpoint {endpoint} sends as ranks {}, and for {unknown} of its processes or queue pairs no message tells which, or they contradict each \
         other: give --rankmap with queue pairs to name them",
        all.join(", ")
    ))
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
