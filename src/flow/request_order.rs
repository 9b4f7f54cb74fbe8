//! Finds requests that a file holds twice although their sender did not retransmit them: mirror
//! copies.
//!
//! ```text
//! 1 2 3 4 | 2 3 4 | 5 6      go-back-N: the sender retransmits 2 and all later requests
//! 1 2 3 4 | 2 | 5 | 3 | 6    mirror copies: new requests come before the retransmission is over
//! 1 2 | 2 | 3                mirror copy: no sender retransmits its last request at once
//! ```
//! In: the numbers of the requests of one connection in the order of the file. Out: whether a packet
//! shows a copy. Invariant: a complete go-back-N shows none. Lost records can make it look like
//! copies, and some adapters retransmit single requests, so `mirror_copies` weighs how many there are.

use crate::model::PacketRecord;

/// A copy of the last request is observed within this time, in nanoseconds. No sender retransmits as
/// soon: a retransmission follows a NAK or the local ACK timeout, 4.096 us x 2^n, and the recorded runs
/// have retransmissions after 245 us.
const COPY_NS: i64 = 100_000;

/// The latest run of requests that were observed again. Every connection has one, so it is small.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestOrder {
    /// Low bits of the number after the latest request, if that was observed again.
    next: u32,
    is_again: bool,
    /// The run ended before the highest number that was sent.
    is_open: bool,
    /// Low bits of the time of the last new request, in units of 1024 ns.
    new_1024ns: u32,
    has_time: bool,
}

/// A time in units of 1024 ns. Wraps around after 73 minutes; a retransmission has the same value only by
/// chance.
const fn units(time_ns: i64) -> u32 {
    (time_ns >> 10) as u32
}

impl RequestOrder {
    /// Takes a request that was observed before: its first number and the one after its last. `high`
    /// is the highest number so far. Returns true if it is a copy of the last new request.
    pub(super) fn observed_again(&mut self, (number, end): (i64, i64), high: i64, time_ns: i64) -> bool {
        let starts = !self.is_again || number as u32 != self.next;
        (self.next, self.is_again) = (end as u32, true);
        self.is_open = end <= high;
        let has_times = self.has_time && time_ns != PacketRecord::NO_TIME;
        starts && !self.is_open && has_times && units(time_ns).wrapping_sub(self.new_1024ns) <= units(COPY_NS)
    }

    /// Takes a new request. Returns true if the run before it was no whole go-back-N.
    #[inline]
    pub(super) fn new_request(&mut self, time_ns: i64) -> bool {
        let was_open = self.is_open;
        let has_time = time_ns != PacketRecord::NO_TIME;
        *self = Self { new_1024ns: units(time_ns), has_time, ..Self::default() };
        was_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of copies that requests show, one per microsecond.
    fn shown(numbers: &[i64]) -> usize {
        let (mut run, mut high) = (RequestOrder::default(), 0);
        let mut shows = |(time_us, &number): (usize, &i64)| {
            let time_ns = time_us as i64 * 1000;
            let found = if number > high {
                run.new_request(time_ns)
            } else {
                run.observed_again((number, number + 1), high, time_ns)
            };
            high = high.max(number);
            found
        };
        numbers.iter().enumerate().filter(|request| shows(*request)).count()
    }

    #[test]
    fn a_go_back_n_shows_no_copy() {
        assert_eq!(shown(&[1, 2, 3, 4, 2, 3, 4, 5, 6]), 0);
        // The second go-back-N begins before the first one is over.
        assert_eq!(shown(&[1, 2, 3, 4, 2, 3, 2, 3, 4, 5]), 0);
    }

    #[test]
    fn requests_between_new_ones_and_at_once_are_copies() {
        assert_eq!(shown(&[1, 2, 3, 4, 2, 5, 3, 6, 4, 7]), 3);
        assert_eq!(shown(&[1, 1, 2, 2, 3]), 2);
    }

    /// A request that is not acknowledged is retransmitted after a timeout.
    #[test]
    fn a_late_retransmission_is_no_copy() {
        let mut run = RequestOrder::default();
        run.new_request(0);
        assert!(!run.observed_again((1, 2), 1, COPY_NS + 1024));
        run.new_request(0);
        assert!(run.observed_again((2, 3), 2, COPY_NS));
    }
}
