//! Checks the message sequence numbers (MSN) of the ACKs and responses that a connection sends.
//!
//! A responder counts the messages that it has completed, and a message takes at least one PSN
//! (InfiniBand Architecture 9.7.5). From one ACK to a later one, the MSN therefore never decreases,
//! and increases by at most the difference of their PSNs; over all ACKs it increases by at least
//! the number of messages between them.

/// Largest step of PSNs that is checked. A larger one may be a new connection on a reused queue
/// pair number.
const LARGEST_STEP: u32 = 1 << 16;
const MASK: u32 = 0xFF_FFFF;
/// The upper three bits of the syndrome in an AETH.
const RNR_NAK: u32 = 0b001;
const NAK: u32 = 0b011;

/// PSN and MSN of an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Acknowledgement {
    psn: u32,
    msn: u32,
}

impl Acknowledgement {
    /// PSNs from this one to another, modulo 2^24.
    const fn psns_to(self, later: Self) -> u32 {
        later.psn.wrapping_sub(self.psn) & MASK
    }

    /// True if `later`, with a later PSN, may follow this one.
    const fn allows(self, later: Self) -> bool {
        later.msn.wrapping_sub(self.msn) & MASK <= self.psns_to(later)
    }
}

/// The ACKs of a connection so far.
#[derive(Debug, Default)]
pub(super) struct MsnCheck {
    /// The first ACK since the numbers started, and the latest one that is consistent.
    span: Option<(Acknowledgement, Acknowledgement)>,
    /// The latest ACK, if it was wrong.
    wrong: Option<Acknowledgement>,
    /// The numbers started again: the whole span shows nothing.
    has_restarted: bool,
}

impl MsnCheck {
    /// Checks the MSN of an ACK or response, by its PSN and AETH; true if the MSN is wrong.
    ///
    /// The PSN of an ACK is that of a request that was executed. The PSN of a NAK and of an RNR NAK
    /// is that of the request that was not (InfiniBand Architecture 9.7.5), and its MSN counts the
    /// messages before that request: 0 if it is the first one.
    #[inline]
    pub(super) fn check(&mut self, psn: u32, aeth: u32, occurrence: u32) -> bool {
        let executed = if matches!(aeth >> 29, RNR_NAK | NAK) { psn.wrapping_sub(1) & MASK } else { psn };
        self.is_wrong(executed, aeth & MASK, occurrence)
    }

    /// Takes an ACK or response; true if its MSN is wrong.
    #[inline]
    fn is_wrong(&mut self, psn: u32, msn: u32, occurrence: u32) -> bool {
        let next = Acknowledgement { psn, msn };
        let Some((_, latest)) = &mut self.span else {
            if occurrence == 1 {
                self.span = Some((next, next));
            }
            return false;
        };
        // Usual case: the next ACK.
        if occurrence == 1 && (1..LARGEST_STEP).contains(&latest.psns_to(next)) && latest.allows(next) {
            *latest = next;
            self.wrong = None;
            return false;
        }
        let latest = *latest;
        self.is_unusual_wrong(latest, next, occurrence)
    }

    #[cold]
    fn is_unusual_wrong(&mut self, latest: Acknowledgement, next: Acknowledgement, occurrence: u32) -> bool {
        let step = latest.psns_to(next);
        if occurrence == 1 && (1..LARGEST_STEP).contains(&step) {
            // Two wrong ACKs that are consistent with each other: the number jumped.
            if self.wrong.is_some_and(|wrong| wrong.psns_to(next) < LARGEST_STEP && wrong.allows(next)) {
                self.restart(next);
                return false;
            }
            self.wrong = Some(next);
            return true;
        }
        // Mirror copies and duplicates repeat an earlier number. Otherwise PSN and MSN started
        // again: a new connection.
        if !next.allows(latest) || next.psns_to(latest) >= LARGEST_STEP {
            self.span = None;
            self.has_restarted = true;
        }
        false
    }

    const fn restart(&mut self, from: Acknowledgement) {
        self.span = Some((from, from));
        self.wrong = None;
        self.has_restarted = true;
    }

    /// True if the MSN rose by less than the number of messages between the first and the last ACK.
    /// `first_psn` and `last_psn` are those of the requests, which hold `messages` messages.
    pub(super) const fn is_stuck(&self, first_psn: u32, last_psn: u32, messages: u32) -> bool {
        let Some((first, last)) = self.span else { return false };
        if self.has_restarted {
            return false;
        }
        // Each PSN outside of the two ACKs may be a message.
        let before = (first.psn.wrapping_sub(first_psn) & MASK) + 1;
        let after = last_psn.wrapping_sub(last.psn) & MASK;
        let risen = last.msn.wrapping_sub(first.msn) & MASK;
        before <= MASK / 2 && after <= MASK / 2 && messages.saturating_sub(before.saturating_add(after)) > risen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions of the wrong ones among ACKs of (PSN, MSN, occurrence).
    fn wrong(acks: &[(u32, u32, u32)]) -> Vec<usize> {
        let mut check = MsnCheck::default();
        let is_wrong = |&(psn, msn, occurrence): &(u32, u32, u32)| check.is_wrong(psn & MASK, msn & MASK, occurrence);
        acks.iter().map(is_wrong).enumerate().filter(|(_, wrong)| *wrong).map(|(at, _)| at).collect()
    }

    /// The first request is lost: the NAK has its PSN and MSN 0, and the next ACK acknowledges all
    /// four. Later, a receiver is not ready for a request, and a NAK ends the connection.
    #[test]
    fn naks_count_the_messages_before_their_request() {
        let aeth = |syndrome: u32, msn: u32| syndrome << 24 | msn;
        let mut check = MsnCheck::default();
        for (psn, aeth) in [
            (10, aeth(0x60, 0)),
            (13, aeth(0x1F, 4)),
            (14, aeth(0x25, 4)),
            (14, aeth(0x25, 4)),
            (15, aeth(0x1F, 6)),
            (16, aeth(0x62, 6)),
        ] {
            assert!(!check.check(psn, aeth, 1), "{psn}");
        }
        assert!(!check.has_restarted);
        // A NAK that counts the message that it refuses.
        let mut check = MsnCheck::default();
        assert!(!check.check(10, aeth(0x1F, 1), 1));
        assert!(check.check(12, aeth(0x60, 3), 1));
    }

    #[test]
    fn coalesced_acks_copies_and_duplicates_are_right() {
        assert!(wrong(&[(10, 1, 1), (11, 2, 1), (15, 6, 1), (20, 7, 1), (21, 7, 1)]).is_empty());
        assert!(wrong(&[(MASK, MASK, 1), (MASK + 3, MASK + 2, 1), (MASK + 4, MASK + 3, 1)]).is_empty());
        assert!(
            wrong(&[(10, 1, 1), (11, 2, 1), (10, 1, 2), (12, 3, 1), (11, 2, 2), (11, 2, 3), (13, 4, 1)]).is_empty()
        );
    }

    #[test]
    fn numbers_that_jump_or_go_backwards_are_wrong() {
        assert_eq!(wrong(&[(10, 1, 1), (11, 9, 1), (12, 3, 1), (13, 4, 1)]), [1]);
        assert_eq!(wrong(&[(10, 5, 1), (11, 4, 1), (12, 7, 1), (13, 8, 1)]), [1]);
        // A jump that stays is one.
        assert_eq!(wrong(&[(10, 5, 1), (11, 60, 1), (12, 61, 1), (13, 62, 1)]), [1]);
        assert_eq!(wrong(&[(10, 5, 1), (11, 60, 1), (12, 161, 1), (13, 1162, 1)]), [1, 2, 3]);
    }

    /// The same queue pairs with new numbers from 0 on.
    #[test]
    fn a_new_connection_is_not_wrong() {
        let first = (0..50).map(|number| (number, number + 1, 1));
        let second = (0..20).map(|number| (number, 2 * number.min(1) + 1, 2));
        let acks: Vec<_> = first.chain(second).chain((50..60).map(|number| (number, 10, 1))).collect();
        assert!(wrong(&acks).is_empty());
    }

    #[test]
    fn a_number_that_stays_is_stuck() {
        let check = |msn: fn(u32) -> u32| {
            let mut check = MsnCheck::default();
            (100..200).for_each(|psn| assert!(!check.is_wrong(psn, msn(psn), 1)));
            check
        };
        assert!(check(|_| 7).is_stuck(100, 210, 111));
        assert!(!check(|psn| psn - 99).is_stuck(100, 210, 111));
        // Three messages in all these packets, one of them before the first ACK.
        assert!(!check(|psn| 1 + u32::from(psn > 150)).is_stuck(100, 200, 3));
    }
}
