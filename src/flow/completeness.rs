//! What the capture missed: request and response numbers that must have passed, and were never seen.
//!
//! A receiver takes requests in the order of their PSNs, so what it acknowledges has reached it, all before included. Of a connection and the
//! one that answers it (`pairing` tells which):
//!
//! ```text
//! requests seen      4 5 6 . . 9 [READ: 10 11 12 13] 14
//! answers                       ACK 9   10 . 12 13   ACK 14
//! never seen               7 8                       two requests, or one READ if responses 7 and 8 were seen
//! never seen                              11         one response
//! ```
//! Both are sets of ranges, which the ledgers hold. They are held against each other when an input ends, and before a ledger forgets.
//! What was acknowledged behind the last request that was seen is lost as well. A missing ACK cannot be seen, nor what lies before the first request
//! that was seen or after the last that was acknowledged.

use super::health::{self, Health};
use super::ledger::{Ledger, MAX_HOLE};
use super::{LARGEST_MTU_BYTES, Tracker};
use crate::model::health::{Loss, Observed};
use crate::model::{ConnectionKey, Turn};
use std::collections::HashMap;

/// PSNs wrap around after this many.
const PSNS: i64 = 1 << 24;
/// Votes that are enough to look for no other partner.
const ENOUGH_VOTES: u32 = 8;

impl Tracker {
    /// Called when ledgers fill up: holds what can be held against each other.
    #[cold]
    pub(super) fn reconcile_midway(&mut self, id: u32, turn: Turn) {
        if turn == Turn::Response {
            let ledger = &self.connections[id as usize].ledgers[Turn::Response as usize];
            let health = &mut self.health[id as usize];
            let by_responses = ledger.crowded(health.used()).then(|| ledger.middle());
            let by_starts = health.crowded_starts();
            let Some(upto) = by_responses.into_iter().chain(by_starts).max() else { return };
            let own_upto = upto;
            health.data().used = upto;
            if let Some((request, _)) = self.clear_partner(id) {
                let upto = upto + shift(upto, self.health[request as usize].high().unwrap_or(0));
                self.reconcile(request, Some(id), upto);
            }
            if let Some(data) = &mut self.health[id as usize].data {
                data.starts.retain(|number| *number >= own_upto);
            }
            return;
        }
        let ledger = &self.connections[id as usize].ledgers[Turn::Request as usize];
        let health = &self.health[id as usize];
        let by_requests = ledger.crowded(health.done()).then(|| ledger.middle());
        let Some(upto) = health.crowded().into_iter().chain(by_requests).min() else { return };
        let answering = self.answering(id);
        self.reconcile(id, answering, upto);
    }

    /// What was observed of each connection, in the order of their numbers, when the input has ended; `None` where nothing went wrong.
    pub(super) fn observed(&mut self, keys: &[ConnectionKey]) -> Vec<Option<Box<Observed>>> {
        // Votes for each request connection, of all that claim it: the clear one answers it, if it has no clearer one itself.
        let mut claims: HashMap<u32, Vec<(u32, u32)>> = HashMap::new();
        for id in 0..keys.len() as u32 {
            for (request, votes) in self.pairing.ballot().votes(id) {
                claims.entry(*request).or_default().push((id, *votes));
            }
        }
        for (id, key) in (0..).zip(keys).take(self.health.len()) {
            let answer = claims.get(&id).and_then(|claims| clear(claims)).map(|(answer, _)| answer);
            let answer = answer.filter(|answer| self.clear_partner(*answer).is_some_and(|(partner, _)| partner == id));
            if !key.is_datagram() {
                self.reconcile(id, answer, i64::MAX);
            }
        }
        let observed = |id: usize| {
            let never_seen = self.connections[id].ledgers[Turn::Request as usize].never_seen();
            let health = self.health.get_mut(id);
            let open_psns = never_seen.saturating_sub(health.as_ref().map_or(0, |health| health.explained()));
            let mut observed = health.and_then(Health::take_observed);
            if open_psns > 0 {
                observed.get_or_insert_default().open_psns = open_psns;
            }
            observed
        };
        (0..keys.len()).map(observed).collect()
    }

    /// Of so many numbers that no request was seen for, those that responses were seen for: a READ request before the
    /// path MTU was known takes more numbers than it was thought to.
    pub(super) fn explained(&self, request: u32, missing: u64) -> u64 {
        if missing == 0 || !self.connections[request as usize].guesses {
            return 0;
        }
        let answers = |id: &u32| self.clear_partner(*id).is_some_and(|(partner, _)| partner == request);
        let Some(answer) = (0..self.connections.len() as u32).find(answers) else { return 0 };
        let requests = &self.connections[request as usize].ledgers[Turn::Request as usize];
        let responses = &self.connections[answer as usize].ledgers[Turn::Response as usize];
        let (Some(high), Some(other)) = (requests.high(), responses.high()) else { return 0 };
        let by = shift(other, high);
        let mut seen: Vec<(i64, i64)> = Vec::new();
        responses.runs().for_each(|(start, end)| health::insert(&mut seen, start + by, end + by));
        let mut asked: Vec<(i64, i64)> = Vec::new();
        requests.runs().for_each(|(start, end)| health::insert(&mut asked, start, end));
        gaps_between(&asked, i64::MIN, i64::MAX).iter().map(|(start, end)| overlap(&seen, *start, *end)).sum()
    }

    /// The connection whose requests this one answers, where that is clear, and the votes for it.
    fn clear_partner(&self, answering: u32) -> Option<(u32, u32)> {
        clear(self.pairing.ballot().votes(answering))
    }

    /// The connection that answers this one, while the input goes on.
    fn answering(&mut self, request: u32) -> Option<u32> {
        let answers = |id: &u32| self.clear_partner(*id).filter(|(partner, _)| *partner == request);
        let known = self.health[request as usize].data.as_ref().and_then(|data| data.partner);
        if let Some(known) = known.filter(|id| answers(id).is_some()) {
            return Some(known);
        }
        let votes = |id: u32| self.pairing.ballot().votes(id).iter().find(|(partner, _)| *partner == request);
        let claims: Vec<(u32, u32)> =
            (0..self.connections.len() as u32).filter_map(|id| Some((id, votes(id)?.1))).collect();
        let (found, votes) = clear(&claims).filter(|(id, _)| answers(id).is_some())?;
        if votes >= ENOUGH_VOTES {
            self.health[request as usize].data().partner = Some(found);
        }
        Some(found)
    }

    /// Holds the requests of a connection, below `upto` and as far as they are acknowledged, against what was seen of them and of their answers.
    fn reconcile(&mut self, request: u32, answer: Option<u32>, upto: i64) {
        let Some(high) = self.health[request as usize].high() else { return };
        let mut limit = i64::MIN;
        let mut responses: Vec<(i64, i64)> = Vec::new();
        let mut starts: Vec<i64> = Vec::new();
        if let Some(answer) = answer {
            let health = &self.health[answer as usize];
            let ledgers = &self.connections[answer as usize].ledgers;
            let acknowledged = health.acknowledged().into_iter().flatten();
            limit = acknowledged.map(|number| number + shift(number, high) + 1).max().unwrap_or(limit).min(upto);
            let ledger = &ledgers[Turn::Response as usize];
            let by = ledger.high().map_or(0, |number| shift(number, high));
            starts.extend(health.starts().iter().map(|number| number + by));
            starts.sort_unstable();
            for (start, end) in ledger.runs() {
                match responses.last_mut().filter(|last| last.1 == start + by) {
                    Some(last) => last.1 = end + by,
                    None => responses.push((start + by, end + by)),
                }
            }
        }
        let pair = self.mtu_of(request);
        let ledger: &Ledger = &self.connections[request as usize].ledgers[Turn::Request as usize];
        let health = &mut self.health[request as usize];
        let from = health.done();
        let mut requests: Vec<(i64, i64)> = Vec::new();
        ledger.runs().for_each(|(start, end)| health::insert(&mut requests, start, end));
        let region = |ranges: &[(i64, i64)]| gaps_between(ranges, from, limit);
        let explained: u64 = region(&requests).iter().map(|(start, end)| (end - start).cast_unsigned()).sum();
        if explained > 0 {
            health.data().explained += explained;
        }
        // The path MTU is known by now, if it ever is: READs that were seen before take more numbers than was thought.
        if let (Some(mtu), Some(data)) = (pair, &mut health.data) {
            for (number, length_bytes) in std::mem::take(&mut data.guessed) {
                let end = number + i64::from(length_bytes.div_ceil(mtu).max(1));
                health::insert(&mut requests, number, end);
                health::insert(&mut data.asked, number, end);
            }
        }
        let mut gaps = region(&requests);
        // What was acknowledged beyond the last that was seen. A READ of unknown span may be what reaches so far.
        let seen_upto = requests.last().map_or(limit, |last| last.1.max(from));
        let is_unsure = health.data.as_ref().is_some_and(|data| data.is_unsure);
        let is_guessed = is_unsure || health.data.as_ref().is_some_and(|data| !data.guessed.is_empty());
        if !is_guessed && (1..=MAX_HOLE).contains(&limit.saturating_sub(seen_upto)) {
            gaps.push((seen_upto, limit));
        }
        let mut loss = Loss::default();
        for (start, end) in gaps {
            let answered = overlap(&responses, start, end);
            let unanswered = (end - start).cast_unsigned() - answered;
            // What was answered with data was asked for: by one READ for each first response, or one whose first response is missing too.
            let before = |number: i64| starts.partition_point(|start| *start < number) as u64;
            let begun = before(end) - before(start);
            let reads = if is_unsure { begun } else { begun.max(answered.min(1)) };
            // What was not is a request each; or a response whose request is missing as well.
            loss.requests += reads + unanswered;
            loss.at_least += reads + unanswered;
            loss.at_most += begun.max(answered.min(1)) + 2 * unanswered;
        }
        for &(start, asked_end) in health.data.iter().flat_map(|data| &data.asked) {
            let (start, end) = (start.max(from), asked_end.min(limit));
            if start < end {
                let missing = (end - start).cast_unsigned() - overlap(&responses, start, end);
                loss.responses += missing;
                loss.at_least += missing;
                loss.at_most += missing;
            }
            // What is not compared now never is: it may have been answered, and not all of it.
            let (start, end) = (start.max(limit), asked_end.min(upto));
            if answer.is_some() && upto < i64::MAX && start < end {
                loss.at_most += (end - start).cast_unsigned() - overlap(&responses, start, end);
            }
        }
        if loss != Loss::default() {
            health.observed().loss += loss;
        }
        if upto < i64::MAX {
            let data = health.data();
            data.done = from.max(upto);
            data.asked.retain(|(_, end)| *end > upto);
            data.asked.iter_mut().take(1).for_each(|first| first.0 = first.0.max(upto));
        }
    }

    /// Path MTU between the ends of a connection, where it is known.
    fn mtu_of(&self, id: u32) -> Option<u32> {
        let key = &self.connections[id as usize].key;
        let mtu = self.mtu_bytes.get(&(key.src.min(key.dst), key.src.max(key.dst))).copied()?;
        Some(u32::from(mtu).clamp(1, LARGEST_MTU_BYTES))
    }
}

/// The connection with most votes, if no other has half as many, and its votes. Stricter than `clear_favourite` at exactly two to one: loss is not to be
/// told on a doubt.
fn clear(votes: &[(u32, u32)]) -> Option<(u32, u32)> {
    let &(best, most) = votes.iter().max_by_key(|(_, count)| *count)?;
    let others = votes.iter().filter(|(other, _)| *other != best).map(|(_, count)| *count).max();
    (most > others.unwrap_or(0).saturating_mul(2)).then_some((best, most))
}

/// What brings a number of one numbering next to one of another: both are PSNs without their wrap-around, begun at different times.
const fn shift(number: i64, near: i64) -> i64 {
    (near - number + PSNS / 2).div_euclid(PSNS) * PSNS
}

/// What lies between the ranges, from `from` and below `limit`. A jump over more numbers than a sender can have under way is a new connection
/// on an old queue pair number, and no gap.
fn gaps_between(ranges: &[(i64, i64)], from: i64, limit: i64) -> Vec<(i64, i64)> {
    let between = ranges.windows(2).map(|pair| (pair[0].1, pair[1].0));
    let gaps = between.filter(|(start, end)| end - start <= MAX_HOLE);
    gaps.map(|(start, end)| (start.max(from), end.min(limit))).filter(|(start, end)| start < end).collect()
}

/// How many numbers of a range are in the list.
fn overlap(ranges: &[(i64, i64)], start: i64, end: i64) -> u64 {
    let first = ranges.partition_point(|range| range.1 <= start);
    let inside = ranges.get(first..).unwrap_or_default().iter().take_while(|range| range.0 < end);
    inside.map(|range| (range.1.min(end) - range.0.max(start)).cast_unsigned()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numberings_are_brought_together() {
        assert_eq!(shift(5, 10), 0);
        assert_eq!(shift(3, PSNS + 1), PSNS);
        assert_eq!(shift(PSNS + 3, 5), -PSNS);
        assert_eq!(shift(PSNS - 1, PSNS + 20), 0);
    }

    #[test]
    fn gaps_and_overlaps() {
        let ranges = [(0, 5), (7, 9), (10, 12), (MAX_HOLE * 3, MAX_HOLE * 3 + 1)];
        assert_eq!(gaps_between(&ranges, i64::MIN, i64::MAX), [(5, 7), (9, 10)]);
        assert_eq!(gaps_between(&ranges, 6, 9), [(6, 7)]);
        assert_eq!(overlap(&ranges, 3, 8), 3);
        assert_eq!(overlap(&ranges, 12, 40), 0);
    }
}
