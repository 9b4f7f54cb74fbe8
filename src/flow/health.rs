//! What goes wrong on one connection, from every packet of it.
//!
//! **Go-back-N**: the requests of a sender run upwards by PSN. Where one lies at or below the highest so far, the sender has stepped back; the
//! run from there to the next new PSN (or to the next step back) is an episode if it repeats at least one packet.
//!
//! ```text
//! PSN     4  5  6  7 | 5  6  7  8         an episode of 3 packets; its cost is the time from the first 5 to the second
//! ```
//! Whether the second sight of a packet is a repeat or a mirror copy is known at the end only, so episodes are kept for both readings: with one
//! observation point every sight is a transmission, with two the first, third ... are.

use super::reaction::{self, Running};
use crate::model::health::{Episodes, Observed};
use crate::model::{Marks, PacketRecord};
use ibscope_parsers::ib::{Aeth, AethKind, NakCode};

/// First transmissions whose time is remembered, and steps between them and those that are remembered for longer.
const RECENT: usize = 32;
/// Times that are remembered for longer, one per [`RECENT`] packets.
const SPARSE: usize = 32;
/// Requests for data that wait to be compared with the responses: from then on `completeness` compares what it can. A queue pair has 16 under
/// way at most.
const MAX_ASKED: usize = 128;
/// READ requests whose number of responses is not known yet. Of further ones it stays unknown, so responses that no request
/// asks for prove no lost request.
const MAX_GUESSED: usize = 64;
/// First responses to requests that wait to be held against the requests.
const MAX_STARTS: usize = 512;

/// Second sights of requests that settle that all of them stand twice, if they are more than half of the first.
const ENOUGH_COPIES: u32 = 64;

/// Stands for "nothing yet".
const NOTHING: i64 = i64::MIN;

/// The health of one connection, as far as it can be told before its input has ended. What most connections do not have stands apart.
#[derive(Debug)]
pub(super) struct Health {
    /// Highest number that a request took; READ requests take several.
    high: i64,
    /// Highest response number.
    high_response: i64,
    /// Highest request number of the other direction that this one has acknowledged, in the numbering of its ACKs.
    acknowledged: i64,
    /// Numbers and times of the first transmissions of requests. Two rings, one behind the other: of the last ones, and from the time that they come
    /// round of every 32nd.
    sent_ns: Vec<Sent>,
    sent: u32,
    copies: u32,
    /// Something waits for new requests: a run that they end, or a measurement.
    waits: bool,
    /// Requests stand twice, so only the reading of two points goes on.
    twice: bool,
    /// What is held against what comes back.
    pub(super) data: Option<Box<Data>>,
    trouble: Option<Box<Trouble>>,
}

/// Requests that are answered with data and those answers, and what has been made of all requests and answers before the end.
#[derive(Debug)]
pub(super) struct Data {
    /// The connection that answers this one.
    pub(super) partner: Option<u32>,
    /// Requests below this number have been held against what came back, and responses below this one were used for that.
    pub(super) done: i64,
    pub(super) used: i64,
    /// Request numbers never seen that lie below `done` and were acknowledged.
    pub(super) explained: u64,
    /// Numbers that responses must come for: sorted, disjoint ranges.
    pub(super) asked: Vec<(i64, i64)>,
    /// Numbers of the first response of each request, as far as they may still be needed.
    pub(super) starts: Vec<i64>,
    /// READ requests, with their length, that were seen before the path MTU was known.
    pub(super) guessed: Vec<(i64, u32)>,
    /// There were more of them.
    pub(super) is_unsure: bool,
}

impl Default for Data {
    fn default() -> Self {
        Self {
            partner: None,
            done: NOTHING,
            used: NOTHING,
            explained: 0,
            asked: Vec::new(),
            starts: Vec::new(),
            guessed: Vec::new(),
            is_unsure: false,
        }
    }
}

/// What goes wrong.
#[derive(Debug, Default)]
struct Trouble {
    readings: [Reading; 2],
    /// What a notification of congestion does.
    reaction: Option<Running>,
    observed: Box<Observed>,
}

/// When a request was sent first: 40 bits of nanoseconds (18 minutes), 24 of the number. One word, so that a line holds eight.
#[derive(Clone, Copy, Debug)]
struct Sent(u64);

impl Sent {
    const NUMBER_BITS: u32 = 24;

    const fn new(number: i64, time_ns: i64) -> Self {
        Self(time_ns.cast_unsigned() << Self::NUMBER_BITS | number.cast_unsigned() & 0xFF_FFFF)
    }

    /// The number, which lies at or below `high`, by less than the sequence is long.
    const fn number(self, high: i64) -> i64 {
        high - (high.wrapping_sub(self.0.cast_signed()) & 0xFF_FFFF)
    }

    /// The time, which lies within 9 minutes of `now_ns`.
    const fn time_ns(self, now_ns: i64) -> i64 {
        let ago = now_ns.cast_unsigned() << Self::NUMBER_BITS;
        let ago = ago.wrapping_sub(self.0 >> Self::NUMBER_BITS << Self::NUMBER_BITS);
        now_ns.saturating_sub(ago.cast_signed() >> Self::NUMBER_BITS)
    }
}

/// The current run of one reading.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    open: bool,
    counted: bool,
    last: i64,
    began_ns: i64,
    first_sent_ns: Option<i64>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            high: NOTHING,
            high_response: NOTHING,
            acknowledged: NOTHING,
            sent_ns: Vec::new(),
            sent: 0,
            copies: 0,
            waits: false,
            twice: false,
            data: None,
            trouble: None,
        }
    }
}

impl Health {
    /// What went wrong, to be added to.
    pub(super) fn observed(&mut self) -> &mut Observed {
        &mut self.trouble().observed
    }

    /// The same given up, where anything did.
    pub(super) fn take_observed(&mut self) -> Option<Box<Observed>> {
        self.trouble.take().map(|trouble| trouble.observed).filter(|observed| **observed != Observed::default())
    }

    /// What is held against what comes back, to be added to.
    pub(super) fn data(&mut self) -> &mut Data {
        self.data.get_or_insert_default()
    }

    /// Requests below this number have been held against what came back.
    pub(super) fn done(&self) -> i64 {
        self.data.as_ref().map_or(NOTHING, |data| data.done)
    }

    /// Responses below this number were used for that.
    pub(super) fn used(&self) -> i64 {
        self.data.as_ref().map_or(NOTHING, |data| data.used)
    }

    /// Request numbers never seen that lie below `done` and were acknowledged.
    pub(super) fn explained(&self) -> u64 {
        self.data.as_ref().map_or(0, |data| data.explained)
    }

    /// Numbers of first responses.
    pub(super) fn starts(&self) -> &[i64] {
        self.data.as_ref().map_or(&[], |data| &data.starts)
    }

    fn trouble(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    /// A request of a connected service that takes `span` numbers.
    #[inline]
    pub(super) fn request(&mut self, number: i64, span: u32, occurrence: u32, time_ns: i64) {
        if number > self.high {
            self.high = number + i64::from(span.max(1)) - 1;
            if self.waits {
                self.new_one(time_ns);
            }
            self.remember(number, time_ns);
            return;
        }
        if self.twice && occurrence.is_multiple_of(2) {
            return;
        }
        self.not_new(number, occurrence, time_ns);
    }

    /// A new request where something waits for it.
    fn new_one(&mut self, time_ns: i64) {
        let Trouble { readings, reaction, observed } = self.trouble();
        readings.iter_mut().for_each(|reading| reading.open = false);
        if time_ns != PacketRecord::NO_TIME {
            reaction.take_if(|running| running.request(time_ns, &mut observed.reaction));
        }
        self.waits = reaction.is_some();
    }

    /// A notification that the sender is to slow down.
    pub(super) fn notified(&mut self, now_ns: i64) {
        let count = self.sent as usize;
        let at = |back: usize| Some(self.sent_ns.get(count.checked_sub(back)? % RECENT)?.time_ns(now_ns));
        let times_ns = at(1).zip(at(reaction::GAPS as usize + 1));
        if let Some((last_ns, first_ns)) = times_ns
            && self.trouble().reaction.is_none()
        {
            self.trouble().reaction = Some(Running::new(last_ns, last_ns.saturating_sub(first_ns)));
            self.waits = true;
        }
    }

    fn not_new(&mut self, number: i64, occurrence: u32, time_ns: i64) {
        self.waits = true;
        if occurrence == 1 {
            self.observed().late += 1;
        }
        if occurrence == 2 {
            self.copies += 1;
            self.twice = self.copies >= ENOUGH_COPIES && self.copies > self.sent / 2;
        }
        if !self.twice {
            self.back(0, number, occurrence >= 2, time_ns);
        }
        if occurrence % 2 == 1 {
            self.back(1, number, occurrence >= 3, time_ns);
        }
    }

    /// A READ response or an atomic acknowledgement; `starts`: the first for its request.
    #[inline]
    pub(super) fn response(&mut self, number: i64, occurrence: u32, starts: bool) {
        if starts && occurrence == 1 {
            self.data().starts.push(number);
        }
        if number > self.high_response {
            self.high_response = number;
        } else if occurrence == 1 {
            self.observed().late += 1;
        }
    }

    /// An ACK or NAK with this AETH.
    #[inline]
    pub(super) fn acknowledge(&mut self, number: i64, aeth: u32) {
        let refused = aeth >> 29 != 0;
        // A NAK names the packet that it misses or refuses: those before it have come.
        self.acknowledged = self.acknowledged.max(number - i64::from(refused));
        if refused {
            self.refusal(Aeth { syndrome: (aeth >> 24) as u8, msn: aeth & 0xFF_FFFF });
        }
    }

    #[cold]
    fn refusal(&mut self, aeth: Aeth) {
        let code = match aeth.kind() {
            AethKind::RnrNak { timer_ns } => {
                let observed = self.observed();
                observed.rnr_naks += 1;
                observed.longest_rnr_timer_ns = observed.longest_rnr_timer_ns.max(timer_ns);
                return;
            }
            AethKind::Nak(NakCode::PsnSequenceError) => 0,
            AethKind::Nak(NakCode::InvalidRequest) => 1,
            AethKind::Nak(NakCode::RemoteAccess) => 2,
            AethKind::Nak(NakCode::RemoteOperational) => 3,
            AethKind::Nak(NakCode::InvalidRdRequest) => 4,
            AethKind::Nak(NakCode::Reserved(_)) | AethKind::Reserved | AethKind::Ack { .. } => 5,
        };
        self.observed().naks[code] += 1;
    }

    /// A packet with marks.
    #[cold]
    pub(super) fn marked(&mut self, marks: Marks, occurrence: u32) {
        for (count, mark) in self.observed().marked.iter_mut().zip(Marks::ALL) {
            count[usize::from(occurrence.is_multiple_of(2))] += u64::from(marks.has(mark));
        }
    }

    /// A request, seen for the first time, that data must come back for. `guessed`: its length, where the path MTU and so the number of its
    /// responses is not known.
    pub(super) fn ask(&mut self, number: i64, span: u32, guessed: Option<u32>) {
        self.observed().data_requests += 1;
        let Data { asked, guessed: all_guessed, is_unsure, .. } = self.data();
        insert(asked, number, number + i64::from(span.max(1)));
        match guessed {
            Some(length_bytes) if all_guessed.len() < MAX_GUESSED => all_guessed.push((number, length_bytes)),
            Some(_) => *is_unsure = true,
            None => {}
        }
    }

    /// Too many requests for data wait to be held against the responses: all before this number can be.
    pub(super) fn crowded(&self) -> Option<i64> {
        let asked = &self.data.as_ref()?.asked;
        let &(start, _) = asked.get(MAX_ASKED - RECENT)?;
        (asked.len() >= MAX_ASKED).then_some(start)
    }

    /// Too many first responses wait: all before this number can be held against the requests.
    pub(super) fn crowded_starts(&self) -> Option<i64> {
        let number = self.starts().get(MAX_STARTS - MAX_STARTS / 4).copied();
        number.filter(|_| self.starts().len() >= MAX_STARTS)
    }

    /// Highest request number, if there was one.
    pub(super) fn high(&self) -> Option<i64> {
        (self.high != NOTHING).then_some(self.high)
    }

    /// Highest numbers by ACK and by response that this direction has acknowledged, each in its own numbering.
    pub(super) fn acknowledged(&self) -> [Option<i64>; 2] {
        [self.acknowledged, self.high_response].map(|number| (number != NOTHING).then_some(number))
    }

    fn remember(&mut self, number: i64, time_ns: i64) {
        if time_ns == PacketRecord::NO_TIME {
            return;
        }
        let sent = Sent::new(number, time_ns);
        let (count, at) = (self.sent as usize, self.sent as usize % RECENT);
        let ring = &mut self.sent_ns;
        if at == 0 && count > 0 {
            if count == RECENT {
                ring.extend_from_within(..1);
            }
            put(ring, RECENT + count / RECENT % SPARSE, sent);
        }
        put(ring, at, sent);
        // Stays a multiple of both rings' lengths where it begins again, and above them.
        self.sent = self.sent.checked_add(1).unwrap_or(1 << 31);
    }

    /// The time of the first transmission of a number; of one that was not seen, that of the next higher one.
    fn first_sent_ns(&self, number: i64, was_seen: bool, now_ns: i64) -> Option<i64> {
        let count = self.sent as usize;
        let mut higher = None;
        for back in 1..=count.min(RECENT) {
            let entry = self.sent_ns.get((count - back) % RECENT)?;
            let (sent, time_ns) = (entry.number(self.high), entry.time_ns(now_ns));
            if sent == number || sent < number && was_seen {
                return Some(time_ns);
            }
            if sent < number {
                return higher;
            }
            higher = Some(time_ns);
        }
        if count <= RECENT {
            // Before all that was seen.
            return higher;
        }
        let steps = count.div_ceil(RECENT);
        let before = (1..=steps.min(SPARSE)).filter_map(|back| self.sent_ns.get(RECENT + (steps - back) % SPARSE));
        before.copied().find(|entry| entry.number(self.high) <= number).map(|entry| entry.time_ns(now_ns))
    }

    /// A transmission that is not above all before it.
    fn back(&mut self, reading: usize, number: i64, repeats: bool, time_ns: i64) {
        let before = self.trouble().readings[reading];
        if !before.open || number <= before.last {
            let first_sent_ns = self.first_sent_ns(number, repeats, time_ns);
            self.trouble().readings[reading] =
                Reading { open: true, counted: false, last: number, began_ns: time_ns, first_sent_ns };
        }
        let Trouble { readings, observed, .. } = self.trouble();
        let run = &mut readings[reading];
        run.last = number;
        if repeats {
            let episodes = &mut observed.episodes[reading];
            episodes.packets += 1;
            if !run.counted {
                run.counted = true;
                count(episodes, run);
            }
        }
    }
}

fn count(episodes: &mut Episodes, run: &Reading) {
    episodes.count += 1;
    if let Some(first_ns) = run.first_sent_ns
        && run.began_ns != PacketRecord::NO_TIME
    {
        let cost_ns = run.began_ns.saturating_sub(first_ns).max(0).cast_unsigned();
        episodes.timed += 1;
        episodes.total_ns = episodes.total_ns.saturating_add(cost_ns);
        episodes.longest_ns = episodes.longest_ns.max(cost_ns);
    }
}

/// Writes to a ring that may still grow.
fn put<T>(ring: &mut Vec<T>, at: usize, value: T) {
    if let Some(slot) = ring.get_mut(at) {
        *slot = value;
        return;
    }
    // Most connections fill no more than a part, and there are many: steps that an allocator has blocks of.
    if ring.len() == ring.capacity() {
        ring.reserve_exact(if ring.is_empty() { 5 } else { 4 });
    }
    ring.push(value);
}

/// Adds a range to a sorted list of disjoint ones. New ones come at the end as a rule.
pub(super) fn insert(ranges: &mut Vec<(i64, i64)>, start: i64, end: i64) {
    let from = ranges.iter().rposition(|range| range.1 < start).map_or(0, |index| index + 1);
    let to = ranges.iter().rposition(|range| range.0 <= end).map_or(0, |index| index + 1);
    let joined = ranges.get(from..to.max(from)).unwrap_or_default();
    let start = joined.first().map_or(start, |first| first.0.min(start));
    let end = joined.last().map_or(end, |last| last.1.max(end));
    ranges.splice(from..to.max(from), [(start, end)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests with their occurrence, a microsecond apart.
    fn sent(packets: &[(i64, u32)]) -> Observed {
        let mut health = Health::default();
        for (time_us, &(number, occurrence)) in packets.iter().enumerate() {
            health.request(number, 1, occurrence, time_us as i64 * 1000);
        }
        *health.observed()
    }

    #[test]
    fn an_episode_costs_the_time_from_the_first_to_the_second_transmission() {
        let observed = sent(&[(4, 1), (5, 1), (6, 1), (7, 1), (5, 2), (6, 2), (7, 2), (8, 1)]);
        let once = Episodes { count: 1, packets: 3, timed: 1, total_ns: 3000, longest_ns: 3000 };
        assert_eq!(observed.episodes[0], once);
        assert_eq!(observed.late, 0);
    }

    #[test]
    fn what_was_lost_before_the_capture_is_late_and_its_repetition_an_episode() {
        // 5 was never seen; 6 was sent a microsecond later.
        let observed = sent(&[(4, 1), (6, 1), (7, 1), (5, 1), (6, 2), (7, 2), (8, 1)]);
        let once = Episodes { count: 1, packets: 2, timed: 1, total_ns: 2000, longest_ns: 2000 };
        assert_eq!((observed.episodes[0], observed.late), (once, 1));
        // Out of order alone is no episode.
        let observed = sent(&[(4, 1), (6, 1), (5, 1), (7, 1)]);
        assert_eq!((observed.episodes[0], observed.late), (Episodes::default(), 1));
    }

    #[test]
    fn a_sender_that_steps_back_twice_has_two_episodes() {
        let observed = sent(&[(1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (2, 3), (3, 1)]);
        let once = Episodes { count: 2, packets: 4, timed: 2, total_ns: 2000 + 4000, longest_ns: 4000 };
        assert_eq!(observed.episodes[0], once);
    }

    #[test]
    fn a_read_that_starts_again_in_the_middle_is_an_episode() {
        let mut health = Health::default();
        for (number, span, occurrence, time_ns) in [(10, 8, 1, 0), (14, 4, 2, 500), (18, 1, 1, 600)] {
            health.request(number, span, occurrence, time_ns);
        }
        let once = Episodes { count: 1, packets: 1, timed: 1, total_ns: 500, longest_ns: 500 };
        assert_eq!((health.observed().episodes[0], health.observed().late), (once, 0));
    }

    #[test]
    fn copies_are_no_episodes_where_there_are_two_points() {
        let observed = sent(&[(1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 1), (3, 2)]);
        let twice = Episodes { count: 1, packets: 2, timed: 1, total_ns: 4000, longest_ns: 4000 };
        assert_eq!(observed.episodes[1], twice);
    }

    #[test]
    fn times_long_ago_are_known_to_the_next_32_packets() {
        let packets: Vec<(i64, u32)> = (0..200).map(|number| (number, 1)).chain([(70, 2), (200, 1)]).collect();
        // 64 stands for 70.
        assert_eq!(sent(&packets).episodes[0].total_ns, (200 - 64) * 1000);
        let packets: Vec<(i64, u32)> = (0..2000).map(|number| (number, 1)).chain([(70, 2), (2000, 1)]).collect();
        assert_eq!(sent(&packets).episodes[0], Episodes { count: 1, packets: 1, ..Episodes::default() });
    }

    #[test]
    fn numbers_and_times_come_back_from_a_word() {
        let (number, time_ns) = (0x12_3456_789A, 1_700_000_000_123_456_789);
        let sent = Sent::new(number, time_ns);
        for later in [0, 1, 1000, 0xFF_FFFF] {
            assert_eq!(sent.number(number + later), number);
        }
        for later_ns in [0, 1, 500_000_000_000, -1, -1_000_000] {
            assert_eq!(sent.time_ns(time_ns + later_ns), time_ns);
        }
    }

    #[test]
    fn many_copies_leave_the_reading_of_two_points() {
        let both = |number| [(number, 1), (number, 2)];
        let again = [(1990, 3), (1990, 4), (1991, 3), (1991, 4)];
        let packets: Vec<(i64, u32)> = (0..2000).flat_map(both).chain(again).chain(both(2000)).collect();
        let twice = Episodes { count: 1, packets: 2, timed: 1, total_ns: 20_000, longest_ns: 20_000 };
        assert_eq!(sent(&packets).episodes[1], twice);
    }

    #[test]
    fn ranges_join() {
        let mut ranges = Vec::new();
        for (start, end) in [(10, 12), (20, 25), (12, 14), (0, 5), (30, 31), (13, 22), (5, 6)] {
            insert(&mut ranges, start, end);
        }
        assert_eq!(ranges, [(0, 6), (10, 25), (30, 31)]);
    }
}
