//! Explains messages that are missing on the wire by messages with an unidentified rank.
//!
//! A rank is identified by the messages that its queue pairs send, so a rank that only receives may
//! stay unidentified. Messages to it are on the wire all the same. Each sender has an account of
//! messages to unidentified ranks, and each receiver an account of messages from them. The missing
//! messages of a pair are taken from the accounts of its two ranks.
//!
//! In: the unidentified messages of [`WireMessages`]. Out: causes. Invariant: an account explains
//! no more messages and bytes of a tag than it contains.

use super::message_sums::MessageSums;
use super::verdict::Cause;
use super::wire::{RankEnds, WireMessages};
use serde::Serialize;
use std::collections::BTreeMap;

/// Messages on the wire with an unidentified sender or receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UnidentifiedMessages {
    /// World rank of the sender; `None` if it is not identified.
    pub src: Option<u32>,
    /// World rank of the receiver; `None` if it is not identified.
    pub dst: Option<u32>,
    /// Point-to-point messages on the wire.
    pub wire: MessageSums,
    /// The part of `wire` that explains missing messages of the trace.
    pub explaining: MessageSums,
}

/// The content of an account by tag; `None` if tags are not distinguished.
type SumsByTag = BTreeMap<Option<i32>, MessageSums>;

/// All accounts, with their initial and remaining content.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts {
    initial: BTreeMap<RankEnds, SumsByTag>,
    remaining: BTreeMap<RankEnds, SumsByTag>,
}

impl Accounts {
    /// The accounts of the wire, without the messages in the tracer's own communicator.
    pub(super) fn of(wire: &WireMessages, tracer: Option<u32>) -> Self {
        let mut initial: BTreeMap<RankEnds, SumsByTag> = BTreeMap::new();
        for ((ends, envelope), sums) in &wire.unidentified {
            if envelope.is_some_and(|envelope| tracer == Some(envelope.context)) {
                continue;
            }
            let tag = envelope.map(|envelope| envelope.tag);
            *initial.entry(*ends).or_default().entry(tag).or_default() += *sums;
        }
        Self { remaining: initial.clone(), initial }
    }

    /// The accounts that may contain messages of a pair, the likeliest first. The account without
    /// any rank is included only if one of the two ranks is identified nowhere.
    fn ends(wire: &WireMessages, (src, dst): (u32, u32)) -> impl Iterator<Item = RankEnds> {
        let is_anywhere = wire.is_identified(src) && wire.is_identified(dst);
        let both = (!is_anywhere).then_some((None, None));
        [(Some(src), None), (None, Some(dst))].into_iter().chain(both)
    }

    /// True if unidentified messages may be of this pair.
    pub(super) fn may_explain(&self, wire: &WireMessages, pair: (u32, u32)) -> bool {
        Self::ends(wire, pair).any(|ends| self.initial.contains_key(&ends))
    }

    /// Takes the missing messages of a pair out of its accounts, all or none. `tag` is `None` if
    /// tags are not distinguished. The causes show which end of the messages is unidentified.
    pub(super) fn take(
        &mut self,
        wire: &WireMessages,
        pair: (u32, u32),
        tag: Option<i32>,
        missing: MessageSums,
    ) -> Vec<Cause> {
        let is_of_tag = |other: &Option<i32>| tag.is_none() || other.is_none() || *other == tag;
        let mut available = MessageSums::default();
        for sums in Self::ends(wire, pair).filter_map(|ends| self.remaining.get(&ends)) {
            sums.iter().filter(|(other, _)| is_of_tag(other)).for_each(|(_, sums)| available += *sums);
        }
        if available.messages < missing.messages || available.bytes < missing.bytes {
            return Vec::new();
        }
        let mut causes = Vec::new();
        let mut rest = missing;
        for ends in Self::ends(wire, pair) {
            // Messages with the same tag are taken before messages with an unknown tag.
            let sums = self.remaining.get_mut(&ends).into_iter().flat_map(|sums| sums.iter_mut().rev());
            let before = rest;
            sums.filter(|(other, _)| is_of_tag(other)).for_each(|(_, sums)| transfer(sums, &mut rest));
            if rest != before {
                causes.extend(ends.0.is_none().then_some(Cause::SenderNotIdentified));
                causes.extend(ends.1.is_none().then_some(Cause::ReceiverNotIdentified));
            }
        }
        causes
    }

    /// The initial content of the accounts, and the part of it that explains missing messages.
    pub(super) fn rows(&self) -> Vec<UnidentifiedMessages> {
        let total = |sums: &SumsByTag| {
            let mut total = MessageSums::default();
            sums.values().for_each(|sums| total += *sums);
            total
        };
        let row = |(ends, initial): (&RankEnds, &SumsByTag)| {
            let (wire, left) = (total(initial), self.remaining.get(ends).map(total).unwrap_or_default());
            UnidentifiedMessages { src: ends.0, dst: ends.1, wire, explaining: wire.less(left) }
        };
        self.initial.iter().map(row).collect()
    }
}

/// Moves as much as possible from an account to the missing messages.
pub(super) fn transfer(account: &mut MessageSums, missing: &mut MessageSums) {
    let moved =
        MessageSums { messages: account.messages.min(missing.messages), bytes: account.bytes.min(missing.bytes) };
    *account = account.less(moved);
    *missing = missing.less(moved);
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn sums(messages: u64, bytes: u64) -> MessageSums {
        MessageSums { messages, bytes }
    }

    fn accounts(initial: &[(RankEnds, Option<i32>, MessageSums)]) -> Accounts {
        let mut accounts = Accounts::default();
        for (ends, tag, sums) in initial {
            *accounts.initial.entry(*ends).or_default().entry(*tag).or_default() += *sums;
        }
        Accounts { remaining: accounts.initial.clone(), ..accounts }
    }

    /// No rank is identified anywhere.
    fn wire() -> WireMessages {
        WireMessages::default()
    }

    #[test]
    fn an_account_is_paid_from_once() {
        let mut accounts = accounts(&[((Some(0), None), Some(5), sums(10, 1000))]);
        let receiver = vec![Cause::ReceiverNotIdentified];
        assert_eq!(accounts.take(&wire(), (0, 1), Some(5), sums(6, 600)), receiver);
        // All or none: four messages and 400 bytes are left.
        assert_eq!(accounts.take(&wire(), (0, 2), Some(5), sums(5, 400)), []);
        assert_eq!(accounts.take(&wire(), (0, 2), Some(5), sums(4, 401)), []);
        assert_eq!(accounts.take(&wire(), (0, 2), Some(5), sums(4, 400)), receiver);
        assert_eq!(accounts.take(&wire(), (0, 3), Some(5), sums(1, 0)), []);
        let row = UnidentifiedMessages { src: Some(0), dst: None, wire: sums(10, 1000), explaining: sums(10, 1000) };
        assert_eq!(accounts.rows(), [row]);
    }

    #[test]
    fn messages_of_another_tag_or_rank_explain_nothing() {
        let initial = [((Some(0), None), Some(5), sums(10, 1000)), ((None, Some(2)), Some(6), sums(10, 1000))];
        let mut accounts = accounts(&initial);
        assert_eq!(accounts.take(&wire(), (0, 1), Some(6), sums(1, 8)), []);
        assert_eq!(accounts.take(&wire(), (1, 0), Some(5), sums(1, 8)), []);
        assert_eq!(accounts.take(&wire(), (1, 2), Some(6), sums(1, 8)), [Cause::SenderNotIdentified]);
        // Without tags, any message may be taken.
        assert_eq!(accounts.take(&wire(), (0, 1), None, sums(1, 8)), [Cause::ReceiverNotIdentified]);
    }

    #[test]
    fn queue_pairs_without_a_rank_at_either_end_are_of_ranks_that_are_identified_nowhere() {
        let initial = [((None, None), Some(5), sums(10, 1000))];
        let both = [Cause::SenderNotIdentified, Cause::ReceiverNotIdentified];
        assert_eq!(accounts(&initial).take(&wire(), (0, 1), Some(5), sums(10, 1000)), both);
        assert_eq!(accounts(&initial).take(&WireMessages::of_ranks([0]), (0, 1), Some(5), sums(10, 1000)), both);
        assert_eq!(accounts(&initial).take(&WireMessages::of_ranks([0, 1]), (0, 1), Some(5), sums(10, 1000)), []);
    }
}
