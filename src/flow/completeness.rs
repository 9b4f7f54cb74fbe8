//! Finds the packets that the capture missed: request and response PSNs that must have been sent
//! but were never observed.
//!
//! A receiver takes requests in PSN order, so an ACK shows that all requests up to its PSN arrived.
//! For a connection and the connection that responds to it (`pairing`):
//!
//! ```text
//! observed requests   4 5 6 . . 9 [READ: 10 11 12 13] 14
//! observed responses            ACK 9   10 . 12 13   ACK 14
//! missing                  7 8                       2 requests; 1 READ if 7 and 8 have responses
//! missing                                 11         1 response
//! ```
//! Requests and responses are sets of PSN ranges from the ledgers. They are compared at the end of
//! an input, and before a ledger drops runs. Requests that were acknowledged after the last
//! observed request are missing too. Missing ACKs cannot be detected, nor missing packets before
//! the first observed request or after the last acknowledged one.

use super::health::{self, HealthTracker};
use super::ledger::Ledger;
use super::{LARGEST_MTU_BYTES, Tracker};
use crate::model::health::{HealthEvents, Loss};
use crate::model::{ConnectionKey, HashMap, MAX_GAP, PacketRole};
use ibscope_parsers::Psn;

/// PSNs wrap around after this many.
const PSNS: i64 = 1 << 24;
/// Votes that make a partner final: the search for another one ends.
const ENOUGH_VOTES: u32 = 8;

impl Tracker {
    /// Compares requests with responses as far as possible when a ledger or a list is nearly full.
    #[cold]
    pub(super) fn reconcile_midway(&mut self, id: u32, role: PacketRole) {
        if role == PacketRole::Response {
            let ledger = &self.connections[id as usize].ledgers[PacketRole::Response as usize];
            let health = &mut self.health[id as usize];
            let by_responses = ledger.is_nearly_full(health.responses_compared()).then(|| ledger.middle());
            let by_starts = health.responses_to_compare();
            let Some(upto) = by_responses.into_iter().chain(by_starts).max() else { return };
            let own_upto = upto;
            health.data().responses_compared = upto;
            if let Some((request, _)) = self.clear_partner(id) {
                let upto = upto + shift(upto, self.health[request as usize].high().unwrap_or(0));
                self.reconcile(request, Some(id), upto);
            }
            if let Some(data) = &mut self.health[id as usize].data {
                data.first_responses.retain(|number| *number >= own_upto);
            }
            return;
        }
        let ledger = &self.connections[id as usize].ledgers[PacketRole::Request as usize];
        let health = &self.health[id as usize];
        let by_requests = ledger.is_nearly_full(health.requests_compared()).then(|| ledger.middle());
        let Some(upto) = health.requests_to_compare().into_iter().chain(by_requests).min() else { return };
        let responder = self.responder(id);
        self.reconcile(id, responder, upto);
    }

    /// Health events of each connection at the end of the input, ordered by number; `None` where
    /// there were none.
    pub(super) fn observed(&mut self, keys: &[ConnectionKey]) -> Vec<Option<Box<HealthEvents>>> {
        // Votes for each request connection. The connection with clearly most votes is its
        // responder, unless that one clearly responds to another connection.
        let mut responder_votes: HashMap<u32, Vec<(u32, u32)>> = HashMap::default();
        for id in 0..keys.len() as u32 {
            for (request, votes) in self.pairing.ballot().votes(id) {
                responder_votes.entry(request).or_default().push((id, votes));
            }
        }
        for (id, key) in (0..).zip(keys).take(self.health.len()) {
            let responder = responder_votes
                .get(&id)
                .and_then(|responder_votes| clear(responder_votes.iter().copied()))
                .map(|(responder, _)| responder);
            let responder = responder.filter(|responder| self.is_responder(*responder, id));
            if !key.is_datagram() {
                self.reconcile(id, responder, i64::MAX);
                self.note_progress(id, responder);
            }
        }
        let observed = |id: usize| {
            let never_seen = self.connections[id].ledgers[PacketRole::Request as usize].missing_numbers();
            let health = self.health.get_mut(id);
            let unobserved_psns = never_seen.saturating_sub(health.as_ref().map_or(0, |health| health.explained()));
            let mut observed = health.and_then(HealthTracker::take_observed);
            if unobserved_psns > 0 {
                observed.get_or_insert_default().unobserved_psns = unobserved_psns;
            }
            observed
        };
        (0..keys.len()).map(observed).collect()
    }

    /// Notes the observations of the oldest request that was not acknowledged, and whether the
    /// responder counted the messages (MSN).
    fn note_progress(&mut self, request: u32, responder: Option<u32>) {
        let ledger = &self.connections[request as usize].ledgers[PacketRole::Request as usize];
        let (Some(high), Some(last_run)) = (self.health[request as usize].high(), ledger.last_run_start()) else {
            return;
        };
        let acknowledged = responder.and_then(|responder| {
            let numbers = self.connections[responder as usize].responded().into_iter().flatten();
            numbers.map(|number| number + shift(number, high)).max()
        });
        // If nothing responds: the packets that were sent last.
        let oldest = acknowledged.map_or(last_run, |number| number + 1);
        if oldest <= high {
            let observations = ledger.observations(Psn::new(oldest as u32)).unwrap_or(0);
            if observations > 1 {
                self.health[request as usize].observed().stalled_observations = observations.into();
            }
        }
        let first = self.connections[request as usize].first.map(i64::from);
        let (Some(responder), Some(first)) = (responder, first) else { return };
        let messages = self.health[request as usize].message_ends;
        let psns = [first, high].map(|number| Psn::new(number as u32).value());
        // Within half a wrap-around the numbers of PSNs are certain.
        if high - first < PSNS / 2 && self.health[responder as usize].msns.is_stuck(psns[0], psns[1], messages) {
            self.health[responder as usize].observed().wrong_msns += 1;
        }
    }

    /// For each connection with READs before the path MTU was known: the first connection that
    /// clearly responds to it.
    pub(super) fn responders_of_guesses(&self) -> HashMap<u32, u32> {
        let mut responders = HashMap::default();
        if self.connections.iter().any(|connection| connection.guesses) {
            for id in 0..self.connections.len() as u32 {
                let partner = self.clear_partner(id).map(|(partner, _)| partner);
                if let Some(request) = partner.filter(|request| self.connections[*request as usize].guesses) {
                    responders.entry(request).or_insert(id);
                }
            }
        }
        responders
    }

    /// Counts the missing request PSNs (of `missing`) whose responses were observed: a READ request
    /// that was observed before the path MTU was known takes more PSNs than assumed. `responders`
    /// are those of [`Self::responders_of_guesses`].
    pub(super) fn explained(&self, request: u32, missing: u64, responders: &HashMap<u32, u32>) -> u64 {
        if missing == 0 || !self.connections[request as usize].guesses {
            return 0;
        }
        let Some(&responder) = responders.get(&request) else { return 0 };
        let requests = &self.connections[request as usize].ledgers[PacketRole::Request as usize];
        let responses = &self.connections[responder as usize].ledgers[PacketRole::Response as usize];
        let (Some(high), Some(other)) = (requests.high(), responses.high()) else { return 0 };
        let by = shift(other, high);
        let mut seen: Vec<(i64, i64)> = Vec::new();
        responses.runs().for_each(|(start, end)| health::insert(&mut seen, start + by, end + by));
        let mut requested: Vec<(i64, i64)> = Vec::new();
        requests.runs().for_each(|(start, end)| health::insert(&mut requested, start, end));
        gaps_between(&requested, i64::MIN, i64::MAX).iter().map(|(start, end)| overlap(&seen, *start, *end)).sum()
    }

    /// The connection whose requests this one responds to, and its votes; `None` while unclear.
    fn clear_partner(&self, responder: u32) -> Option<(u32, u32)> {
        clear(self.pairing.ballot().votes(responder))
    }

    fn is_responder(&self, responder: u32, request: u32) -> bool {
        self.clear_partner(responder).is_some_and(|(partner, _)| partner == request)
    }

    /// The connection that responds to this one, as known before the end of the input.
    fn responder(&mut self, request: u32) -> Option<u32> {
        let known = self.health[request as usize].data.as_ref().and_then(|data| data.partner);
        let voters: Vec<u32> = match known.filter(|id| self.is_responder(*id, request)) {
            Some(known) => return Some(known),
            None => self.pairing.responders(request).collect(),
        };
        let votes = |id: u32| self.pairing.ballot().votes(id).find(|(partner, _)| *partner == request);
        let responder_votes: Vec<(u32, u32)> = voters.into_iter().filter_map(|id| Some((id, votes(id)?.1))).collect();
        let (found, votes) = clear(responder_votes.into_iter()).filter(|(id, _)| self.is_responder(*id, request))?;
        if votes >= ENOUGH_VOTES {
            self.health[request as usize].data().partner = Some(found);
        }
        Some(found)
    }

    /// Compares the requests of a connection with its responses, below `upto` and as far as they
    /// are acknowledged, and adds the missing packets to its health.
    fn reconcile(&mut self, request: u32, responder: Option<u32>, upto: i64) {
        let Some(high) = self.health[request as usize].high() else { return };
        let mut limit = i64::MIN;
        let mut responses: Vec<(i64, i64)> = Vec::new();
        let mut starts: Vec<i64> = Vec::new();
        if let Some(responder) = responder {
            let health = &self.health[responder as usize];
            let connection = &self.connections[responder as usize];
            let responded = connection.responded().into_iter().flatten();
            limit = responded.map(|number| number + shift(number, high) + 1).max().unwrap_or(limit).min(upto);
            let ledger = &connection.ledgers[PacketRole::Response as usize];
            let by = ledger.high().map_or(0, |number| shift(number, high));
            starts.extend(health.first_responses().iter().map(|number| number + by));
            starts.sort_unstable();
            for (start, end) in ledger.runs() {
                match responses.last_mut().filter(|last| last.1 == start + by) {
                    Some(last) => last.1 = end + by,
                    None => responses.push((start + by, end + by)),
                }
            }
        }
        let pair = self.mtu_of(request);
        let ledger: &Ledger = &self.connections[request as usize].ledgers[PacketRole::Request as usize];
        let health = &mut self.health[request as usize];
        let from = health.requests_compared();
        let mut requests: Vec<(i64, i64)> = Vec::new();
        ledger.runs().for_each(|(start, end)| health::insert(&mut requests, start, end));
        let region = |ranges: &[(i64, i64)]| gaps_between(ranges, from, limit);
        let explained: u64 = region(&requests).iter().map(|(start, end)| (end - start).cast_unsigned()).sum();
        if explained > 0 {
            health.data().explained += explained;
        }
        // Now that the path MTU is known, READs that were observed before it take their true span.
        if let (Some(mtu), Some(data)) = (pair, &mut health.data) {
            for (number, length_bytes) in std::mem::take(&mut data.reads_of_unknown_length) {
                let end = number + i64::from(length_bytes.div_ceil(mtu).max(1));
                health::insert(&mut requests, number, end);
                health::insert(&mut data.expected_responses, number, end);
            }
        }
        let mut gaps = region(&requests);
        // Requests acknowledged after the last observed one. With READs of unknown span, one of
        // those may reach that far.
        let seen_upto = requests.last().map_or(limit, |last| last.1.max(from));
        let is_unsure = health.data.as_ref().is_some_and(|data| data.is_unsure);
        let is_guessed = is_unsure || health.data.as_ref().is_some_and(|data| !data.reads_of_unknown_length.is_empty());
        if !is_guessed && (1..=MAX_GAP).contains(&limit.saturating_sub(seen_upto)) {
            gaps.push((seen_upto, limit));
        }
        let mut loss = Loss::default();
        for (start, end) in gaps {
            let with_response = overlap(&responses, start, end);
            let without_response = (end - start).cast_unsigned() - with_response;
            // PSNs with response data belong to READs: one per first response, or one whose first
            // response is missing too.
            let before = |number: i64| starts.partition_point(|start| *start < number) as u64;
            let started = before(end) - before(start);
            let reads = if is_unsure { started } else { started.max(with_response.min(1)) };
            // Each PSN without response data is one request, or a response whose request is missing
            // as well.
            loss.requests += reads + without_response;
            loss.at_least += reads + without_response;
            loss.at_most += started.max(with_response.min(1)) + 2 * without_response;
        }
        for &(start, expected_end) in health.data.iter().flat_map(|data| &data.expected_responses) {
            let (start, end) = (start.max(from), expected_end.min(limit));
            if start < end {
                let missing = (end - start).cast_unsigned() - overlap(&responses, start, end);
                loss.responses += missing;
                loss.at_least += missing;
                loss.at_most += missing;
            }
            // Responses in this range are never compared later: some of them may be missing.
            let (start, end) = (start.max(limit), expected_end.min(upto));
            if responder.is_some() && upto < i64::MAX && start < end {
                loss.at_most += (end - start).cast_unsigned() - overlap(&responses, start, end);
            }
        }
        if loss != Loss::default() {
            health.observed().loss += loss;
        }
        if upto < i64::MAX {
            let data = health.data();
            data.requests_compared = from.max(upto);
            data.expected_responses.retain(|(_, end)| *end > upto);
            data.expected_responses.iter_mut().take(1).for_each(|first| first.0 = first.0.max(upto));
        }
    }

    /// Path MTU between the ends of a connection, if known.
    fn mtu_of(&self, id: u32) -> Option<u32> {
        let key = &self.connections[id as usize].key;
        let mtu = self.mtu_bytes.get(&key.port_pair()).copied()?;
        Some(u32::from(mtu).clamp(1, LARGEST_MTU_BYTES))
    }
}

/// The connection with the most votes and these votes, if no other has half as many. This is
/// stricter than `clear_favorite`, which accepts exactly two to one: a doubtful pair must not
/// report loss.
fn clear(votes: impl Iterator<Item = (u32, u32)> + Clone) -> Option<(u32, u32)> {
    let (best, most) = votes.clone().max_by_key(|(_, count)| *count)?;
    let others = votes.filter(|(other, _)| *other != best).map(|(_, count)| count).max();
    (most > others.unwrap_or(0).saturating_mul(2)).then_some((best, most))
}

/// Offset that moves `number` to within half a wrap-around of `near`: both are unwrapped PSNs, but
/// their unwrapping began at different times.
const fn shift(number: i64, near: i64) -> i64 {
    (near - number + PSNS / 2).div_euclid(PSNS) * PSNS
}

/// Gaps between the ranges, from `from` and below `limit`. A jump over more than [`MAX_GAP`]
/// numbers is no gap but a new connection on a reused queue pair number.
fn gaps_between(ranges: &[(i64, i64)], from: i64, limit: i64) -> Vec<(i64, i64)> {
    let between = ranges.windows(2).map(|pair| (pair[0].1, pair[1].0));
    let gaps = between.filter(|(start, end)| end - start <= MAX_GAP);
    gaps.map(|(start, end)| (start.max(from), end.min(limit))).filter(|(start, end)| start < end).collect()
}

/// How many numbers from `start` to `end` the sorted ranges contain.
fn overlap(ranges: &[(i64, i64)], start: i64, end: i64) -> u64 {
    let first = ranges.partition_point(|range| range.1 <= start);
    let inside = ranges.get(first..).unwrap_or_default().iter().take_while(|range| range.0 < end);
    inside.map(|range| (range.1.min(end) - range.0.max(start)).cast_unsigned()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shift_aligns_unwrapped_psns() {
        assert_eq!(shift(5, 10), 0);
        assert_eq!(shift(3, PSNS + 1), PSNS);
        assert_eq!(shift(PSNS + 3, 5), -PSNS);
        assert_eq!(shift(PSNS - 1, PSNS + 20), 0);
    }

    #[test]
    fn gaps_and_overlaps() {
        let ranges = [(0, 5), (7, 9), (10, 12), (MAX_GAP * 3, MAX_GAP * 3 + 1)];
        assert_eq!(gaps_between(&ranges, i64::MIN, i64::MAX), [(5, 7), (9, 10)]);
        assert_eq!(gaps_between(&ranges, 6, 9), [(6, 7)]);
        assert_eq!(overlap(&ranges, 3, 8), 3);
        assert_eq!(overlap(&ranges, 12, 40), 0);
    }
}
