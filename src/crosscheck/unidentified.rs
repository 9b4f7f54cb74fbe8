//! Messages on the wire of which a rank is not identified, as an explanation of messages that the
//! trace has and the wire seems not to have.
//!
//! A rank is identified by what its queue pairs send, so a rank that only receives may stay
//! unknown. What other ranks send there is on the wire all the same. Each sender has an account of
//! such messages, and so has each receiver; what a pair of ranks is missing is paid from the
//! accounts of its two ranks.
//!
//! In: the unidentified messages of [`Wire`]. Out: causes. Invariant: an account explains no more
//! messages and no more bytes than it holds, of the same tag.

use super::message_sums::Sums;
use super::verdict::Cause;
use super::wire::{Ends, Wire};
use serde::Serialize;
use std::collections::BTreeMap;

/// Messages on the wire between ranks of which at least one is not identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Unidentified {
    /// World rank of the sender; `None` where it is not identified.
    pub src: Option<u32>,
    /// World rank of the receiver; `None` where it is not identified.
    pub dst: Option<u32>,
    /// Point-to-point messages on the wire.
    pub wire: Sums,
    /// Those of them that explain missing messages of the trace.
    pub explaining: Sums,
}

/// What one account holds, by tag; `None` where tags are not kept apart.
type ByTag = BTreeMap<Option<i32>, Sums>;

/// All accounts.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts {
    held: BTreeMap<Ends, ByTag>,
    left: BTreeMap<Ends, ByTag>,
}

impl Accounts {
    /// Those of the wire, without the messages of the tracer's own communicator.
    pub(super) fn of(wire: &Wire, tracer: Option<u32>) -> Self {
        let mut held: BTreeMap<Ends, ByTag> = BTreeMap::new();
        for ((ends, envelope), sums) in &wire.unidentified {
            if envelope.is_some_and(|envelope| tracer == Some(envelope.context)) {
                continue;
            }
            let tag = envelope.map(|envelope| envelope.tag);
            *held.entry(*ends).or_default().entry(tag).or_default() += *sums;
        }
        Self { left: held.clone(), held }
    }

    /// The accounts that may hold messages between two ranks, the likeliest first. A queue pair of
    /// which neither end is identified is of two ranks of which at least one is identified nowhere.
    fn ends(wire: &Wire, (src, dst): (u32, u32)) -> impl Iterator<Item = Ends> {
        let is_anywhere = wire.is_identified(src) && wire.is_identified(dst);
        let both = (!is_anywhere).then_some((None, None));
        [(Some(src), None), (None, Some(dst))].into_iter().chain(both)
    }

    /// True where unidentified messages may be of this pair.
    pub(super) fn may_hold(&self, wire: &Wire, pair: (u32, u32)) -> bool {
        Self::ends(wire, pair).any(|ends| self.held.contains_key(&ends))
    }

    /// Takes what a pair is missing out of its accounts, all of it or nothing. `tag` is `None`
    /// where tags are not told apart. The causes say whose accounts they were.
    pub(super) fn take(&mut self, wire: &Wire, pair: (u32, u32), tag: Option<i32>, missing: Sums) -> Vec<Cause> {
        let is_of_tag = |other: &Option<i32>| tag.is_none() || other.is_none() || *other == tag;
        let mut available = Sums::default();
        for sums in Self::ends(wire, pair).filter_map(|ends| self.left.get(&ends)) {
            sums.iter().filter(|(other, _)| is_of_tag(other)).for_each(|(_, sums)| available += *sums);
        }
        if available.messages < missing.messages || available.bytes < missing.bytes {
            return Vec::new();
        }
        let mut causes = Vec::new();
        let mut rest = missing;
        for ends in Self::ends(wire, pair) {
            // Those of the same tag before those of which the tag is not known.
            let sums = self.left.get_mut(&ends).into_iter().flat_map(|sums| sums.iter_mut().rev());
            let before = rest;
            sums.filter(|(other, _)| is_of_tag(other)).for_each(|(_, sums)| transfer(sums, &mut rest));
            if rest != before {
                causes.extend(ends.0.is_none().then_some(Cause::SenderNotIdentified));
                causes.extend(ends.1.is_none().then_some(Cause::ReceiverNotIdentified));
            }
        }
        causes
    }

    /// What the accounts held, and what they explain.
    pub(super) fn rows(&self) -> Vec<Unidentified> {
        let total = |sums: &ByTag| {
            let mut total = Sums::default();
            sums.values().for_each(|sums| total += *sums);
            total
        };
        let row = |(ends, held): (&Ends, &ByTag)| {
            let (wire, left) = (total(held), self.left.get(ends).map(total).unwrap_or_default());
            Unidentified { src: ends.0, dst: ends.1, wire, explaining: wire.less(left) }
        };
        self.held.iter().map(row).collect()
    }
}

/// Moves as much as possible from an account to what is still missing.
pub(super) fn transfer(account: &mut Sums, missing: &mut Sums) {
    let moved = Sums { messages: account.messages.min(missing.messages), bytes: account.bytes.min(missing.bytes) };
    *account = account.less(moved);
    *missing = missing.less(moved);
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn sums(messages: u64, bytes: u64) -> Sums {
        Sums { messages, bytes }
    }

    fn accounts(held: &[(Ends, Option<i32>, Sums)]) -> Accounts {
        let mut accounts = Accounts::default();
        for (ends, tag, sums) in held {
            *accounts.held.entry(*ends).or_default().entry(*tag).or_default() += *sums;
        }
        Accounts { left: accounts.held.clone(), ..accounts }
    }

    /// No rank is identified anywhere.
    fn wire() -> Wire {
        Wire::default()
    }

    #[test]
    fn an_account_is_paid_from_once() {
        let mut accounts = accounts(&[((Some(0), None), Some(5), sums(10, 1000))]);
        let receiver = vec![Cause::ReceiverNotIdentified];
        assert_eq!(accounts.take(&wire(), (0, 1), Some(5), sums(6, 600)), receiver);
        // All of it or nothing: four messages and 400 bytes are left.
        assert_eq!(accounts.take(&wire(), (0, 2), Some(5), sums(5, 400)), []);
        assert_eq!(accounts.take(&wire(), (0, 2), Some(5), sums(4, 401)), []);
        assert_eq!(accounts.take(&wire(), (0, 2), Some(5), sums(4, 400)), receiver);
        assert_eq!(accounts.take(&wire(), (0, 3), Some(5), sums(1, 0)), []);
        let row = Unidentified { src: Some(0), dst: None, wire: sums(10, 1000), explaining: sums(10, 1000) };
        assert_eq!(accounts.rows(), [row]);
    }

    #[test]
    fn messages_of_another_tag_or_rank_explain_nothing() {
        let held = [((Some(0), None), Some(5), sums(10, 1000)), ((None, Some(2)), Some(6), sums(10, 1000))];
        let mut accounts = accounts(&held);
        assert_eq!(accounts.take(&wire(), (0, 1), Some(6), sums(1, 8)), []);
        assert_eq!(accounts.take(&wire(), (1, 0), Some(5), sums(1, 8)), []);
        assert_eq!(accounts.take(&wire(), (1, 2), Some(6), sums(1, 8)), [Cause::SenderNotIdentified]);
        // Where tags are not told apart, any may be meant.
        assert_eq!(accounts.take(&wire(), (0, 1), None, sums(1, 8)), [Cause::ReceiverNotIdentified]);
    }

    #[test]
    fn queue_pairs_without_a_rank_at_either_end_are_of_ranks_that_are_identified_nowhere() {
        let held = [((None, None), Some(5), sums(10, 1000))];
        let both = [Cause::SenderNotIdentified, Cause::ReceiverNotIdentified];
        assert_eq!(accounts(&held).take(&wire(), (0, 1), Some(5), sums(10, 1000)), both);
        assert_eq!(accounts(&held).take(&Wire::of_ranks([0]), (0, 1), Some(5), sums(10, 1000)), both);
        assert_eq!(accounts(&held).take(&Wire::of_ranks([0, 1]), (0, 1), Some(5), sums(10, 1000)), []);
    }
}
