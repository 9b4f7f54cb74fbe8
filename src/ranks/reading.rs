//! What the messages of connections are: the form that nearly all fit, and how a job fills its tags.
//!
//! **Form.** A connection's messages vote; a form needs nine of ten starts, and what comes back on the same connection
//! must not be something else.
//!
//! **Tag layout.** UCX and libfabric carry 64 bits that each MPI library fills in its own way, and many tags read well
//! in several of them: a tag of MPICH, read as Open MPI's, names rank 4096 r on the communicator "tag". So all layouts
//! are tried on all connections of a job, and each is charged the bits that describe what it sees, by Elias' gamma code
//! (Elias 1975: 2 floor(log2 n) + 1 bits for n): every communicator once, every sender's rank on it once. Small numbers
//! are cheap, so the right reading, in which ranks and contexts are few and small, is short. What cannot be in MPI costs
//! [`IMPOSSIBLE_BITS`]: a process with two ranks on one communicator, a process that sends to its own rank over the
//! wire, a rank or tag beyond any real one. A layout is accepted where the second best takes [`MARGIN_BITS`] more: a
//! wrong one would be chosen once in 32 000 times if bits were what they claim to be.

use super::Pairs;
use crate::model::traffic::{Communicator, ConnectionTotals, Votes, readings};
use crate::model::{ConnectionKey, QueuePair};
use ibscope_parsers::mpi::{Form, TagLayout};
use std::collections::{BTreeMap, BTreeSet};

/// Starts of a connection that must say something before what comes back counts against it.
const ENOUGH: u64 = 3;
/// Share of a connection's messages that must fit, in percent.
const FITTING_PERCENT: u64 = 90;
/// What a reading pays for each thing that cannot be.
const IMPOSSIBLE_BITS: u64 = 32;
/// By how much the best reading must be shorter than the next.
const MARGIN_BITS: u64 = 15;
/// What Open MPI's layout of 2.x pays in advance: no release since 2018 has it, and the layout of 3.0 reads well in it,
/// with ranks 16 times as large.
const OUTDATED_BITS: u64 = 16;

/// A connection whose messages fit a form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fitting<'a> {
    /// Index into the list of all connections.
    pub(super) index: usize,
    pub(super) connection: &'a ConnectionTotals,
    pub(super) form: Form,
}

/// Forms that one job may use at a time: UCX speaks over datagrams while it connects, and stays there at will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    Ob1,
    Ucx,
    Rxm,
    Mvapich2,
    Nccl,
}

impl Family {
    pub(super) const fn of(form: Form) -> Self {
        match form {
            Form::Ob1 => Self::Ob1,
            Form::UcxVerbs | Form::UcxMlx5 | Form::UcxUd => Self::Ucx,
            Form::Rxm => Self::Rxm,
            Form::Mvapich2 => Self::Mvapich2,
            Form::Nccl => Self::Nccl,
        }
    }

    /// Envelopes of two processes travel on several queue pairs at a time: by size (`openib`), by rail (MVAPICH2), by
    /// channel (NCCL).
    pub(super) const fn has_parallel_queue_pairs(self) -> bool {
        matches!(self, Self::Ob1 | Self::Mvapich2 | Self::Nccl)
    }
}

pub(super) fn receiver(key: &ConnectionKey) -> QueuePair {
    QueuePair { endpoint: key.dst, qpn: key.dest_qp }
}

/// Connections of which nearly all messages fit one form, as do those that come back, where it is known what comes back.
pub(super) fn fitting_connections<'a>(connections: &'a [Box<ConnectionTotals>], paired: &Pairs) -> Vec<Fitting<'a>> {
    let all = connections.iter().enumerate();
    let fit: Vec<Fitting<'_>> =
        all.filter_map(|(index, own)| Some(Fitting { index, connection: own, form: fitting(own)? })).collect();
    if fit.is_empty() {
        return fit;
    }
    let own: BTreeMap<QueuePair, Option<Form>> = connections
        .iter()
        .filter(|connection| !connection.key.is_datagram() && connection.starts() >= ENOUGH)
        .map(|connection| (receiver(&connection.key), fitting(connection)))
        .collect();
    let comes_back = |fit: &Fitting<'_>| {
        let partner = paired.partner(receiver(&fit.connection.key)).map(|(end, _)| end);
        partner.and_then(|end| own.get(&end)).is_none_or(|back| *back == Some(fit.form))
    };
    fit.into_iter().filter(comes_back).collect()
}

/// The form that nearly all messages fit.
fn fitting(connection: &ConnectionTotals) -> Option<Form> {
    let (votes, starts) = (connection.votes(), connection.starts());
    Form::ALL.into_iter().find(|&form| {
        let fitting = votes.enveloped[form as usize] + votes.bare[form as usize];
        fitting > 0 && fitting * 100 >= starts * FITTING_PERCENT
    })
}

/// Senders and receivers of the messages of one component, by the number of their process.
pub(super) type Sides = (u32, u32);

/// How the tags of connections may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// One layout beats all others by the margin.
    Clear(TagLayout),
    /// These describe them best, and none of them by the margin.
    Open(Vec<TagLayout>),
}

/// The layout of the tags of these connections.
pub(super) fn layout(connections: &[(Fitting<'_>, Sides)]) -> Reading {
    let tagged: Vec<_> = connections.iter().filter(|(fitting, _)| fitting.form.carries_tags()).collect();
    if tagged.is_empty() {
        let only = connections.first().map(|(fitting, _)| readings(fitting.form)[0]);
        return only.map_or(Reading::Open(Vec::new()), Reading::Clear);
    }
    let mut bits: Vec<(u64, TagLayout)> =
        TagLayout::ALL.into_iter().map(|layout| (description_bits(&tagged, layout), layout)).collect();
    bits.sort_by_key(|(bits, _)| *bits);
    match bits[..] {
        [(best, layout), (next, _), ..] if best + MARGIN_BITS <= next => Reading::Clear(layout),
        [(best, _), ..] => {
            Reading::Open(bits.into_iter().filter(|(own, _)| *own == best).map(|(_, layout)| layout).collect())
        }
        [] => Reading::Open(Vec::new()),
    }
}

/// How many bits describe the envelopes of these connections under a layout.
fn description_bits(connections: &[&(Fitting<'_>, Sides)], layout: TagLayout) -> u64 {
    let mut communicators: BTreeSet<Communicator> = BTreeSet::new();
    let mut ranks: BTreeMap<(u32, Communicator), BTreeSet<u32>> = BTreeMap::new();
    let mut bits = if layout == TagLayout::OpenMpi2 { OUTDATED_BITS } else { 0 };
    for (Fitting { connection, form, .. }, (sender, _)) in connections {
        let votes = connection.votes();
        for (communicator, rank, _) in votes.of(*form, layout) {
            communicators.insert(communicator);
            ranks.entry((*sender, communicator)).or_default().insert(rank);
        }
        let Votes { implausible, crowded, .. } = votes;
        bits += IMPOSSIBLE_BITS * u64::from(implausible[layout as usize] > 0);
        bits += IMPOSSIBLE_BITS * u64::from(crowded[layout as usize] > 0);
    }
    bits += communicators.iter().map(|communicator| communicator_bits(*communicator)).sum::<u64>();
    for own in ranks.values() {
        bits += own.iter().map(|rank| gamma_bits(u64::from(*rank) + 1)).sum::<u64>();
        bits += IMPOSSIBLE_BITS * (own.len() as u64 - 1);
    }
    let world = |process: u32| ranks.get(&(process, Communicator::World)).filter(|own| own.len() == 1);
    let to_itself = |(_, (sender, receiver)): &&&(Fitting<'_>, Sides)| {
        sender != receiver && world(*sender).is_some_and(|own| Some(own) == world(*receiver))
    };
    bits + IMPOSSIBLE_BITS * connections.iter().filter(to_itself).count() as u64
}

const fn communicator_bits(communicator: Communicator) -> u64 {
    match communicator {
        Communicator::World => 1,
        Communicator::Context(context) => gamma_bits(context as u64 + 1),
    }
}

/// Length of Elias' gamma code of a number from 1 on.
const fn gamma_bits(number: u64) -> u64 {
    2 * number.ilog2() as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::traffic::MpiSeen;
    use ibscope_parsers::mpi::{Envelope, Length, Matching};

    /// A connection on which these UCX tags were sent, four times each.
    fn connection(tags: &[u64]) -> ConnectionTotals {
        let mut seen = MpiSeen::default();
        for tag in tags.iter().flat_map(|tag| [*tag; 4]) {
            let envelope = Envelope { matching: Matching::UcxTag(tag), length: Length::Stated(8), sequence: None };
            seen.votes.start(Form::UcxVerbs, Some(envelope));
        }
        ConnectionTotals { mpi: Some(Box::new(seen)), ..super::super::tests::connection(17, 18, 40) }
    }

    fn read(sides: &[(&ConnectionTotals, Sides)]) -> Reading {
        let fit = |(connection, sides): &(&'static ConnectionTotals, Sides)| {
            (Fitting { index: 0, connection, form: Form::UcxVerbs }, *sides)
        };
        let leaked: Vec<(&'static ConnectionTotals, Sides)> =
            sides.iter().map(|(own, sides)| (&*Box::leak(Box::new((*own).clone())), *sides)).collect();
        layout(&leaked.iter().map(fit).collect::<Vec<_>>())
    }

    fn open_mpi(rank: u64, tag: u64) -> u64 {
        tag << 40 | rank << 20
    }

    fn mpich(rank: u64, tag: u64) -> u64 {
        rank << 32 | tag
    }

    #[test]
    fn two_ranks_are_enough_for_each_library() {
        for tag in [0, 1, 7, 42, 1000] {
            let (zero, one) = (connection(&[open_mpi(0, tag)]), connection(&[open_mpi(1, tag)]));
            assert_eq!(read(&[(&zero, (0, 1)), (&one, (1, 0))]), Reading::Clear(TagLayout::OpenMpi), "{tag}");
            let (zero, one) = (connection(&[mpich(0, tag)]), connection(&[mpich(1, tag)]));
            assert_eq!(read(&[(&zero, (0, 1)), (&one, (1, 0))]), Reading::Clear(TagLayout::Mpich), "{tag}");
        }
    }

    #[test]
    fn ranks_of_mpich_are_not_taken_for_multiples_of_4096() {
        let ranks: Vec<ConnectionTotals> = (0..4).map(|rank| connection(&[mpich(rank, 0), mpich(rank, 3)])).collect();
        let sides: Vec<_> = (0..).zip(&ranks).map(|(at, own)| (own, (at, (at + 1) % 4))).collect();
        assert_eq!(read(&sides), Reading::Clear(TagLayout::Mpich));
    }

    #[test]
    fn old_ranks_of_open_mpi() {
        let old = |rank: u64| connection(&[6 << 40 | rank << 16]);
        assert_eq!(read(&[(&old(0), (0, 1)), (&old(1), (1, 0))]), Reading::Clear(TagLayout::OpenMpi2));
    }

    #[test]
    fn one_empty_tag_says_nothing() {
        assert!(matches!(read(&[(&connection(&[0]), (0, 1))]), Reading::Open(_)));
    }

    #[test]
    fn gamma_code() {
        // Elias 1975, table 1: 1 -> 1 bit, 2 and 3 -> 3 bits, 4 to 7 -> 5 bits.
        assert_eq!([1, 2, 3, 4, 7, 8].map(gamma_bits), [1, 3, 3, 5, 5, 7]);
    }
}
