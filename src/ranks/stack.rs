//! Which MPI library a connection carries, by the vote of its messages.

use crate::model::ConnectionKey;
use crate::model::traffic::{ConnectionTotals, Votes, readings};
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::{Form, TagLayout};
use std::collections::{BTreeMap, BTreeSet};

/// Messages with an envelope that a connection needs to be believed by itself.
const ENOUGH: u64 = 3;
/// Share of a connection's messages that must fit, and share of its envelopes on `MPI_COMM_WORLD` that must name one rank, in percent.
const FITTING_PERCENT: u64 = 90;

/// What the votes came to.
#[derive(Clone, Debug)]
pub struct Belief {
    /// How tags are filled, for the whole capture.
    layout: TagLayout,
    forms: BTreeMap<ConnectionKey, Form>,
}

impl Belief {
    /// The form of a connection's messages, where one is believed.
    #[must_use]
    pub fn form(&self, key: &ConnectionKey) -> Option<Form> {
        self.forms.get(key).copied()
    }

    /// How the envelopes of a form are to be read.
    #[must_use]
    pub fn layout(&self, form: Form) -> TagLayout {
        if form.carries_tags() { self.layout } else { readings(form)[0] }
    }

    /// The library's name for outputs.
    #[must_use]
    pub fn stack(&self, key: &ConnectionKey) -> Option<String> {
        self.form(key).map(|form| match form {
            Form::Ob1 => format!("{} {}", TagLayout::OpenMpi.name(), form.name()),
            Form::Mvapich2 | Form::Nccl => form.name().to_owned(),
            Form::UcxVerbs | Form::UcxMlx5 | Form::UcxUd | Form::Rxm => {
                format!("{} {}", self.layout.name(), form.name())
            }
        })
    }
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

/// Weighs all votes.
///
/// A form is believed of a connection when nearly all its messages fit and its envelopes on `MPI_COMM_WORLD` name one rank. Connections
/// with fewer such envelopes are believed where others of the same form go to or from the same endpoints, and their envelopes name one rank
/// of another communicator again and again, or none beyond those of the others; invitations of NCCL, which have no envelope, where the data go the other way.
#[must_use]
pub fn believe(connections: &[ConnectionTotals]) -> Belief {
    let mut belief = Belief { layout: layout(connections), forms: BTreeMap::new() };
    let mut weak: Vec<(&ConnectionTotals, Form)> = Vec::new();
    let mut known: BTreeMap<Form, Known> = BTreeMap::new();
    for connection in connections {
        let votes = &connection.votes;
        let Some(form) = fitting(votes) else { continue };
        let layout = belief.layout(form);
        let Some(world) = one_rank(votes, form, layout) else { continue };
        if votes.enveloped[form as usize] >= ENOUGH && world >= ENOUGH {
            let key = &connection.key;
            belief.forms.insert(*key, form);
            let known = known.entry(form).or_default();
            known.endpoints.extend([key.src, key.dst]);
            known.pairs.insert((key.src, key.dst));
            known.highest_rank = known.highest_rank.max(votes.highest_rank[layout as usize]);
        } else {
            weak.push((connection, form));
        }
    }
    for (connection, form) in weak {
        let (key, votes) = (&connection.key, &connection.votes);
        let Some(known) = known.get(&form) else { continue };
        let fits = if form == Form::Nccl {
            known.pairs.contains(&(key.dst, key.src))
        } else {
            let layout = belief.layout(form);
            // The same rank again and again on one communicator, or at least none that the job has not.
            let steady = votes.of(form, layout).any(|(_, _, count)| count >= ENOUGH);
            votes.enveloped[form as usize] > 0
                && votes.implausible[layout as usize] == 0
                && (steady || votes.highest_rank[layout as usize] <= known.highest_rank)
                && (known.endpoints.contains(&key.src) || known.endpoints.contains(&key.dst))
        };
        if fits {
            belief.forms.insert(*key, form);
        }
    }
    belief
}

/// The form that nearly all messages fit.
fn fitting(votes: &Votes) -> Option<Form> {
    Form::ALL.into_iter().find(|&form| {
        let fitting = votes.enveloped[form as usize] + votes.bare[form as usize];
        fitting > 0 && fitting * 100 >= votes.starts * FITTING_PERCENT
    })
}

/// Envelopes on `MPI_COMM_WORLD`, if they name one rank; `None` if they contradict each other.
fn one_rank(votes: &Votes, form: Form, layout: TagLayout) -> Option<u64> {
    let (total, top) = votes
        .world(form, layout)
        .fold((0, 0), |(total, top): (u64, u64), (_, count)| (total + count, top.max(count)));
    let total = total + votes.crowded[layout as usize];
    (top * 100 >= total * FITTING_PERCENT).then_some(total)
}

/// The reading of tags under which connections name one plausible rank each, and different endpoints different ranks.
fn layout(connections: &[ConnectionTotals]) -> TagLayout {
    let score = |layout: TagLayout| {
        let mut claims: BTreeMap<u32, BTreeMap<Endpoint, i64>> = BTreeMap::new();
        let mut implausible = 0;
        for connection in connections {
            let votes = &connection.votes;
            implausible += i64::try_from(votes.implausible[layout as usize]).unwrap_or(i64::MAX);
            let tagged = Form::ALL.into_iter().filter(|form| form.carries_tags());
            let of_layout = tagged.flat_map(|form| votes.world(form, layout));
            if let Some((rank, count)) = of_layout.max_by_key(|&(rank, count)| (count, rank)) {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                *claims.entry(rank).or_default().entry(connection.key.src).or_default() += count;
            }
        }
        let agreeing: i64 = claims.values().filter_map(|endpoints| endpoints.values().max()).sum();
        agreeing.saturating_sub(implausible.saturating_mul(2))
    };
    // On a tie the first: Open MPI's newer layout reads as the older one with ranks sixteen times as high, and where there are no tags
    // the name does not matter.
    TagLayout::ALL.into_iter().rev().max_by_key(|&layout| score(layout)).unwrap_or(TagLayout::OpenMpi)
}
