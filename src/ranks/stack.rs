//! Which MPI library a connection carries, by the vote of its messages.

use super::jobs::{Groups, Jobs};
use super::{Pairs, Witnesses};
use crate::model::traffic::{ConnectionTotals, Votes, readings};
use crate::model::{ConnectionKey, QueuePair};
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::{Form, TagLayout};
use std::collections::{BTreeMap, BTreeSet};

/// Messages with an envelope that a connection needs to be believed by itself.
const ENOUGH: u64 = 3;
/// Share of a connection's messages that must fit, and share of its envelopes on `MPI_COMM_WORLD` that must name one rank, in percent.
const FITTING_PERCENT: u64 = 90;

/// What the votes came to.
#[derive(Clone, Debug, Default)]
pub struct Belief {
    /// Form of the messages, and how their envelopes are to be read.
    believed: BTreeMap<ConnectionKey, (Form, TagLayout)>,
}

impl Belief {
    /// The form of a connection's messages, where one is believed.
    #[must_use]
    pub fn form(&self, key: &ConnectionKey) -> Option<Form> {
        self.believed.get(key).map(|(form, _)| *form)
    }

    /// The form, and how its envelopes are to be read.
    #[must_use]
    pub fn reading(&self, key: &ConnectionKey) -> Option<(Form, TagLayout)> {
        self.believed.get(key).copied()
    }

    /// The library's name for outputs.
    #[must_use]
    pub fn stack(&self, key: &ConnectionKey) -> Option<String> {
        self.reading(key).map(|(form, layout)| match form {
            Form::Ob1 => format!("{} {}", TagLayout::OpenMpi.name(), form.name()),
            Form::Mvapich2 | Form::Nccl => form.name().to_owned(),
            Form::UcxVerbs | Form::UcxMlx5 | Form::UcxUd | Form::Rxm => {
                format!("{} {}", layout.name(), form.name())
            }
        })
    }
}

/// Weighs all votes.
///
/// A form is believed of a connection when nearly all its messages fit, and
/// - its envelopes on `MPI_COMM_WORLD` name one rank, or the library's own connection messages have introduced it;
/// - or others of the same form go to or from the same endpoints, and its envelopes name one rank of another communicator again and
///   again, or none beyond those of the others;
/// - or, for invitations of NCCL, which have no envelope, the data go the other way.
///
/// Other traffic may look like a message of rank 0 again and again. So it is not believed where what comes back on the same connection does not
/// fit, nor where ports that talk to each other are all the same rank.
#[must_use]
pub fn believe(witnesses: &Witnesses<'_>, paired: &Pairs) -> Belief {
    let connections = witnesses.connections;
    let fitting = fitting_connections(connections, paired);
    let introduced = introduced(witnesses, paired);
    let mut groups = Groups::default();
    fitting.iter().for_each(|(connection, _)| groups.join(connection.key.src, connection.key.dst));
    let layouts = layouts(&fitting, &mut groups);
    let mut reading = |key: &ConnectionKey, form: Form| {
        let of_group = layouts.get(&groups.group(key.src)).copied().unwrap_or(TagLayout::OpenMpi);
        if form.carries_tags() { of_group } else { readings(form)[0] }
    };
    let mut believed: BTreeMap<ConnectionKey, (Form, TagLayout)> = BTreeMap::new();
    let mut strong: BTreeMap<Form, Jobs> = BTreeMap::new();
    let mut weak: Vec<(&ConnectionTotals, Form, TagLayout)> = Vec::new();
    for &(connection, form) in &fitting {
        let key = &connection.key;
        let layout = reading(key, form);
        let is_introduced = introduced.contains(&(receiver(key), form));
        match one_rank(connection.votes(), form, layout) {
            OneRank::Contradicted => {}
            OneRank::Of(rank, world) if world >= ENOUGH || is_introduced => {
                strong.entry(form).or_default().add(connection, Some(rank));
            }
            OneRank::Nobody if is_introduced => strong.entry(form).or_default().add(connection, None),
            OneRank::Of(..) | OneRank::Nobody => weak.push((connection, form, layout)),
        }
    }
    let mut known: BTreeMap<Form, Known> = BTreeMap::new();
    let wired_up: BTreeSet<Endpoint> = witnesses.wireups.iter().flat_map(|wireup| [wireup.src, wireup.dst]).collect();
    for (form, jobs) in strong {
        for connection in jobs.believable(form, &wired_up) {
            let key = &connection.key;
            let layout = reading(key, form);
            believed.insert(*key, (form, layout));
            let known = known.entry(form).or_default();
            known.endpoints.extend([key.src, key.dst]);
            known.pairs.insert((key.src, key.dst));
            known.highest_rank = known.highest_rank.max(connection.votes().highest_rank[layout as usize]);
        }
    }
    for (connection, form, layout) in weak {
        let (key, votes) = (&connection.key, connection.votes());
        let Some(known) = known.get(&form) else { continue };
        let fits = if form == Form::Nccl {
            known.pairs.contains(&(key.dst, key.src))
        } else {
            // The same rank again and again on one communicator, or at least none that the job has not.
            let steady = votes.of(form, layout).any(|(_, _, count)| count >= ENOUGH);
            votes.enveloped[form as usize] > 0
                && votes.implausible[layout as usize] == 0
                && (steady || votes.highest_rank[layout as usize] <= known.highest_rank)
                && (known.endpoints.contains(&key.src) || known.endpoints.contains(&key.dst))
        };
        if fits {
            believed.insert(*key, (form, layout));
        }
    }
    Belief { believed }
}

/// What connections that are believed by themselves have shown of a form: it says which others are to be believed.
#[derive(Debug, Default)]
struct Known {
    /// Ends of those connections.
    endpoints: BTreeSet<Endpoint>,
    /// Both ends of those connections, from the sender to the receiver.
    pairs: BTreeSet<(Endpoint, Endpoint)>,
    /// Highest rank on any communicator.
    highest_rank: u32,
}

fn receiver(key: &ConnectionKey) -> QueuePair {
    QueuePair { endpoint: key.dst, qpn: key.dest_qp }
}

/// Connections of which nearly all messages fit one form, as do those that come back, where it is known what comes back.
fn fitting_connections<'a>(
    connections: &'a [Box<ConnectionTotals>],
    paired: &Pairs,
) -> Vec<(&'a ConnectionTotals, Form)> {
    let fit: Vec<_> =
        connections.iter().filter_map(|connection| Some((connection.as_ref(), fitting(connection)?))).collect();
    if fit.is_empty() {
        return fit;
    }
    let own: BTreeMap<QueuePair, Option<Form>> = connections
        .iter()
        .filter(|connection| !connection.key.is_datagram() && connection.starts() >= ENOUGH)
        .map(|connection| (receiver(&connection.key), fitting(connection)))
        .collect();
    let comes_back = |connection: &ConnectionTotals, form: Form| {
        let partner = paired.partner(receiver(&connection.key)).map(|(end, _)| end);
        let back = partner.and_then(|end| own.get(&end));
        back.is_none_or(|fits| *fits == Some(form))
    };
    fit.into_iter().filter(|(connection, form)| comes_back(connection, *form)).collect()
}

/// Receiving ends of connections that a library's own connection messages have introduced.
fn introduced(witnesses: &Witnesses<'_>, paired: &Pairs) -> BTreeSet<(QueuePair, Form)> {
    let of_cm = witnesses.cm.iter().filter(|row| row.world_rank.is_some()).filter_map(|row| {
        let end = QueuePair { endpoint: row.src, qpn: row.qpn? };
        Some((end, Form::Ob1))
    });
    let listed = witnesses.introductions.iter().flat_map(|said| {
        let ends = said.queue_pairs.iter().map(|&qpn| QueuePair { endpoint: said.from.endpoint, qpn });
        ends.map(|end| (end, said.form))
    });
    let ends: BTreeSet<(QueuePair, Form)> = of_cm.chain(listed).collect();
    let partners = ends.iter().filter_map(|(end, form)| Some((paired.partner(*end)?.0, *form)));
    ends.iter().copied().chain(partners).collect()
}

/// What envelopes on `MPI_COMM_WORLD` say of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OneRank {
    /// There are none.
    Nobody,
    /// Nearly all of so many name this rank.
    Of(u32, u64),
    /// They contradict each other.
    Contradicted,
}

/// The form that nearly all messages fit.
fn fitting(connection: &ConnectionTotals) -> Option<Form> {
    let (votes, starts) = (connection.votes(), connection.starts());
    Form::ALL.into_iter().find(|&form| {
        let fitting = votes.enveloped[form as usize] + votes.bare[form as usize];
        fitting > 0 && fitting * 100 >= starts * FITTING_PERCENT
    })
}

fn one_rank(votes: &Votes, form: Form, layout: TagLayout) -> OneRank {
    let total = votes.world(form, layout).map(|(_, count)| count).sum::<u64>() + votes.crowded[layout as usize];
    match votes.world(form, layout).max_by_key(|&(rank, count)| (count, std::cmp::Reverse(rank))) {
        None => OneRank::Nobody,
        Some((rank, count)) if count * 100 >= total * FITTING_PERCENT => OneRank::Of(rank, total),
        Some(_) => OneRank::Contradicted,
    }
}

/// For each group of endpoints that talk to each other: the reading of tags under which connections name one plausible rank each, and different
/// endpoints different ranks.
fn layouts(fitting: &[(&ConnectionTotals, Form)], groups: &mut Groups) -> BTreeMap<Endpoint, TagLayout> {
    type Claims = BTreeMap<u32, BTreeMap<Endpoint, u64>>;
    let mut claims: BTreeMap<Endpoint, [Claims; TagLayout::ALL.len()]> = BTreeMap::new();
    for &(connection, form) in fitting.iter().filter(|(_, form)| form.carries_tags()) {
        let votes = connection.votes();
        for layout in TagLayout::ALL {
            // Other traffic has a say in what the tags of MPI mean only if it would pass for MPI itself.
            let OneRank::Of(rank, world) = one_rank(votes, form, layout) else { continue };
            if world >= ENOUGH && votes.implausible[layout as usize] * 100 <= world * (100 - FITTING_PERCENT) {
                let claims = &mut claims.entry(groups.group(connection.key.src)).or_default()[layout as usize];
                *claims.entry(rank).or_default().entry(connection.key.src).or_default() += world;
            }
        }
    }
    let best = |claims: &[Claims; TagLayout::ALL.len()]| {
        let score = |layout: TagLayout| {
            let claims = &claims[layout as usize];
            // A rank is at one endpoint; what claims to be it elsewhere does not count.
            let agreeing: u64 = claims.values().filter_map(|endpoints| endpoints.values().max()).sum();
            (claims.len().min(2), agreeing)
        };
        // On a tie the first: Open MPI's newer layout reads as the older one with ranks sixteen times as high.
        TagLayout::ALL.into_iter().rev().max_by_key(|&layout| score(layout)).unwrap_or(TagLayout::OpenMpi)
    };
    claims.iter().map(|(group, claims)| (*group, best(claims))).collect()
}
