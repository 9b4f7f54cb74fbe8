//! Which MPI library a connection carries, by the vote of its messages.

use crate::model::ConnectionKey;
use crate::model::traffic::{ConnectionTotals, Votes};
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::{Form, TagLayout};
use std::collections::BTreeMap;

/// Messages with an envelope that a connection needs to be believed by itself.
const ENOUGH: u64 = 3;
/// Share of a connection's messages that must fit, and share of its envelopes on `MPI_COMM_WORLD` that must name one rank, in percent.
const FITTING_PERCENT: u64 = 90;

/// What the votes came to.
#[derive(Clone, Debug)]
pub struct Belief {
    /// How UCX tags are filled, for the whole capture.
    pub layout: TagLayout,
    forms: BTreeMap<ConnectionKey, Form>,
}

impl Belief {
    /// The form of a connection's messages, where one is believed.
    #[must_use]
    pub fn form(&self, key: &ConnectionKey) -> Option<Form> {
        self.forms.get(key).copied()
    }

    /// The library's name for outputs.
    #[must_use]
    pub fn stack(&self, key: &ConnectionKey) -> Option<String> {
        self.form(key).map(|form| match form {
            Form::Ob1 => format!("{} {}", TagLayout::OpenMpi.name(), form.name()),
            Form::UcxVerbs | Form::UcxMlx5 | Form::UcxUd | Form::Rxm => {
                format!("{} {}", self.layout.name(), form.name())
            }
        })
    }
}

/// Weighs all votes.
///
/// A form is believed of a connection when nearly all its messages fit and its envelopes on `MPI_COMM_WORLD` name one rank. Connections
/// with only a message or two are believed when another one of the capture is.
#[must_use]
pub fn believe(connections: &[ConnectionTotals]) -> Belief {
    let layout = layout(connections);
    let mut strong: BTreeMap<ConnectionKey, Form> = BTreeMap::new();
    let mut weak: Vec<(ConnectionKey, Form)> = Vec::new();
    for connection in connections {
        let votes = &connection.votes;
        let Some(form) = fitting(votes) else { continue };
        let Some(world) = one_rank(votes, form, layout) else { continue };
        if votes.enveloped[form as usize] >= ENOUGH && world >= ENOUGH {
            strong.insert(connection.key, form);
        } else {
            weak.push((connection.key, form));
        }
    }
    let known: Vec<Form> = Form::ALL.into_iter().filter(|form| strong.values().any(|seen| seen == form)).collect();
    let mut forms = strong;
    forms.extend(weak.into_iter().filter(|(_, form)| known.contains(form)));
    Belief { layout, forms }
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
    let of_form = votes.world.iter().filter(|((voted, reading, _), _)| *voted == form && *reading == layout);
    let (total, top) = of_form.fold((0, 0), |(total, top): (u64, u64), (_, &count)| (total + count, top.max(count)));
    let total = total + votes.crowded[layout as usize];
    (top * 100 >= total * FITTING_PERCENT).then_some(total)
}

/// The reading of UCX tags under which connections name one plausible rank each, and different endpoints different ranks.
fn layout(connections: &[ConnectionTotals]) -> TagLayout {
    let score = |layout: TagLayout| {
        let mut claims: BTreeMap<u32, BTreeMap<Endpoint, i64>> = BTreeMap::new();
        let mut implausible = 0;
        for connection in connections {
            let votes = &connection.votes;
            implausible += i64::try_from(votes.implausible[layout as usize]).unwrap_or(i64::MAX);
            let of_layout =
                votes.world.iter().filter(|((form, reading, _), _)| *form != Form::Ob1 && *reading == layout);
            if let Some(((_, _, rank), &count)) = of_layout.max_by_key(|&((_, _, rank), count)| (*count, *rank)) {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                *claims.entry(*rank).or_default().entry(connection.key.src).or_default() += count;
            }
        }
        let agreeing: i64 = claims.values().filter_map(|endpoints| endpoints.values().max()).sum();
        agreeing.saturating_sub(implausible.saturating_mul(2))
    };
    // On a tie (no UCX traffic at all) the name does not matter.
    if score(TagLayout::Mpich) > score(TagLayout::OpenMpi) { TagLayout::Mpich } else { TagLayout::OpenMpi }
}
