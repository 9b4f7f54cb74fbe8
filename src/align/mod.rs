//! Clocks of several captures: how far they are apart, from packets that two of them hold.
//!
//! Each input draws a sample of its packets by a hash of what a packet is, so that two inputs draw the same ones ([`Sights`]). A packet from a port that
//! one input sees to a port that the other one sees was stamped by both, the sender's first. Packets that went there bound the difference of the
//! two clocks from above, packets that came back from below (`line`). Which of two ports an input sees is told by the same: only one way round
//! leaves room for a line.
//!
//! Inputs whose clocks agree within the uncertainty are left as they are. All others are corrected to the clock of the first input, over as many steps as it
//! takes, each over the pair of inputs that is surest.

mod line;

use crate::model::{Clock, ClockRow, ConnectionKey, Kind, PacketRecord, Sample, SizeClass, Turn, Verb};
use ibscope_parsers::Endpoint;
use ibscope_parsers::ib::Opcode;
use line::{Clouds, Line};
use std::collections::{BTreeMap, HashMap};

/// Packets that are kept of all inputs together, and of each input at least and at most.
const ROOM: usize = 1 << 19;
const LEAST_ROOM: usize = 1 << 12;
const MOST_ROOM: usize = 1 << 16;
/// Slices of time of which each has a difference of its own.
const SLICES: usize = 64;
/// A packet whose two sights differ by more than this from the middle of its slice is not the same transmission.
const MAX_TRANSIT_NS: i64 = 100_000_000;

/// A packet in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sight {
    time_ns: i64,
    /// Its connection, by number within the input.
    connection: u32,
    opcode: Opcode,
    payload_bytes: u16,
}

/// The sample of one input.
#[derive(Debug)]
pub struct Sights {
    connections: HashMap<ConnectionKey, u32, foldhash::fast::FixedState>,
    sample: Sample<Sight>,
}

/// A packet with the hash by which it is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    hash: u64,
    packet: PacketRecord,
}

impl Sights {
    /// An empty sample of one of so many inputs.
    #[must_use]
    pub fn new(inputs: usize) -> Self {
        let room = (ROOM / inputs.max(1)).clamp(LEAST_ROOM, MOST_ROOM);
        Self { connections: HashMap::default(), sample: Sample::new(room) }
    }

    /// Those of some packets that the sample would take. May be asked from several threads; what is taken does not depend on when.
    pub fn draw<'a>(&self, packets: impl Iterator<Item = &'a PacketRecord>) -> Vec<Drawn> {
        let draw = |packet: &PacketRecord| {
            let hash = hash(packet);
            (self.sample.wants(hash)).then_some(Drawn { hash, packet: *packet })
        };
        let counts = |packet: &&PacketRecord| packet.kind() == Kind::Data && packet.time_ns != PacketRecord::NO_TIME;
        packets.filter(counts).filter_map(draw).collect()
    }

    /// Takes what was drawn, in the order of the file.
    pub fn add(&mut self, drawn: Vec<Drawn>) {
        for Drawn { hash, packet } in drawn {
            if !self.sample.wants(hash) {
                continue;
            }
            let next = self.connections.len() as u32;
            let connection = *self.connections.entry(ConnectionKey::of(&packet)).or_insert(next);
            let (time_ns, opcode, payload_bytes) = (packet.time_ns, packet.opcode(), packet.payload_bytes);
            self.sample.add(hash, Sight { time_ns, connection, opcode, payload_bytes });
        }
    }

    /// On the clock that is given for the input, if one is.
    fn finish(self, given: Option<&Clock>) -> Drawing {
        let (limit, mut sights) = self.sample.finish();
        let fits = |step: &i64| sights.iter().all(|(_, sight)| sight.time_ns % step == 0);
        let resolution_ns = [1_000_000, 1_000].into_iter().find(fits).unwrap_or(1);
        if let Some(clock) = given {
            sights.iter_mut().for_each(|(_, sight)| sight.time_ns = clock.corrected_ns(sight.time_ns));
        }
        // Equal packets in the order of time: the k-th here is the k-th there.
        sights.sort_by_key(|(hash, sight)| (*hash, sight.time_ns));
        let mut connections: Vec<(ConnectionKey, u32)> = self.connections.into_iter().collect();
        connections.sort_unstable_by_key(|(_, number)| *number);
        let connections = connections.into_iter().map(|(key, _)| key).collect();
        Drawing { limit, sights, connections, resolution_ns }
    }
}

/// What a packet is, wherever it is seen: addresses, opcode, queue pair, sequence number, length.
fn hash(packet: &PacketRecord) -> u64 {
    let words = [
        packet.src.hash64(),
        packet.dst.hash64(),
        u64::from(packet.opcode().0) << 56
            | u64::from(packet.dest_qp().value()) << 32
            | u64::from(packet.psn().value()),
        u64::from(packet.extension) << 32 | u64::from(packet.wire_bytes),
    ];
    // The finisher of MurmurHash3 after each word.
    words.into_iter().fold(0, |hash: u64, word| {
        let mut mixed = hash.rotate_left(23) ^ word;
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
        mixed ^ mixed >> 33
    })
}

/// A finished sample.
#[derive(Debug)]
struct Drawing {
    limit: u64,
    sights: Vec<(u64, Sight)>,
    connections: Vec<ConnectionKey>,
    /// What all times were whole multiples of as they were stamped: 1 ns, 1 us, 1 ms.
    resolution_ns: i64,
}

impl Drawing {
    fn below(&self, limit: u64) -> impl Iterator<Item = &[(u64, Sight)]> {
        let until = self.sights.partition_point(|(hash, _)| *hash < limit);
        self.sights[..until].chunk_by(|a, b| a.0 == b.0)
    }

    fn span_ns(&self) -> Option<(i64, i64)> {
        let times = || self.sights.iter().map(|(_, sight)| sight.time_ns);
        times().min().zip(times().max())
    }
}

/// A packet that two inputs hold.
#[derive(Clone, Copy, Debug)]
struct Common {
    key: ConnectionKey,
    here: Sight,
    there_ns: i64,
}

impl Common {
    fn difference_ns(&self) -> i64 {
        self.there_ns.saturating_sub(self.here.time_ns)
    }
}

/// What is known of the clocks of all inputs.
#[derive(Debug, Default)]
pub struct Aligned {
    /// By input: what its times are corrected by; `None` where they are left as they are.
    pub clocks: Vec<Option<Clock>>,
    /// By input: what the profile says of it; `None` for the input that others are held against, and for one that shares nothing.
    pub rows: Vec<Option<ClockRow>>,
    /// The packets that were compared, from the sender's port to the receiver's.
    pub transits: Vec<Transit>,
    /// Pairs of inputs that hold the same packets and whose clocks could not be compared, and why.
    pub unclear: Vec<(usize, usize, &'static str)>,
}

/// The way of a packet from one port to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Its connection.
    pub connection: ConnectionKey,
    /// What it belongs to.
    pub verb: Verb,
    /// How long its payload is.
    pub size: SizeClass,
    /// When it began, on the clock that all are corrected to.
    pub time_ns: i64,
    /// How long it took; 0 where the uncertainty of the clocks turned it round.
    pub ns: u64,
}

/// How the clock of one input runs against that of another.
struct Edge {
    inputs: (usize, usize),
    /// Of the second input on the first.
    clock: Clock,
    /// The clocks are the same, as far as can be told.
    agrees: bool,
    uncertainty_ns: f64,
    common: Vec<Common>,
}

/// Compares the clocks of inputs. `names` are those of what they run by, for the profile. Clocks that are `given`, with their uncertainty in
/// nanoseconds, are believed: they get no row, and others are held against them.
#[must_use]
pub fn align(sights: Vec<Sights>, names: &[String], given: &[Option<(Clock, u64)>]) -> Aligned {
    let given = |input: usize| given.get(input).and_then(Option::as_ref);
    let finish = |(input, sights): (usize, Sights)| sights.finish(given(input).map(|(clock, _)| clock));
    let inputs: Vec<Drawing> = sights.into_iter().enumerate().map(finish).collect();
    let mut aligned =
        Aligned { clocks: vec![None; inputs.len()], rows: vec![None; inputs.len()], ..Aligned::default() };
    let mut edges = Vec::new();
    for second in 1..inputs.len() {
        for first in 0..second {
            match compare((first, &inputs[first]), (second, &inputs[second])) {
                Some(Ok(edge)) => edges.push(edge),
                Some(Err(why)) if given(first).is_none() || given(second).is_none() => {
                    aligned.unclear.push((first, second, why));
                }
                Some(Err(_)) | None => {}
            }
        }
    }
    edges.sort_by(|a, b| a.uncertainty_ns.total_cmp(&b.uncertainty_ns).then(a.inputs.cmp(&b.inputs)));
    // Of each input that is tied to another one: its clock on that of the root, which root, and how sure that is.
    let sure = |input: usize| Some((input, (Clock::default(), input, given(input)?.1 as f64)));
    let mut known: BTreeMap<usize, (Clock, usize, f64)> = (0..inputs.len()).filter_map(sure).collect();
    let mut roots = 0..inputs.len();
    loop {
        // The surest of the edges that lead from what is known to what is not.
        while let Some((edge, from, to)) = edges.iter().find_map(|edge| {
            let (a, b) = edge.inputs;
            match (known.contains_key(&a), known.contains_key(&b)) {
                (true, false) => Some((edge, a, b)),
                (false, true) => Some((edge, b, a)),
                _ => None,
            }
        }) {
            let step = if to == edge.inputs.1 { edge.clock } else { inverse(&edge.clock) };
            let (reference, root, before_ns) = known[&from];
            let uncertainty_ns = before_ns + edge.uncertainty_ns;
            let clock = if edge.agrees { reference } else { step.on(&reference) };
            known.insert(to, (clock, root, uncertainty_ns));
            let at_ns = inputs[to].span_ns().map_or(0, |(first, _)| first);
            aligned.clocks[to] = (clock != Clock::default()).then_some(clock);
            aligned.rows[to] = Some(ClockRow {
                reference: names.get(root).cloned().unwrap_or_default(),
                at_ns,
                offset_ns: at_ns.saturating_sub(clock.corrected_ns(at_ns)),
                drift_ppm: (1.0 / (1.0 + clock.gain) - 1.0) * 1e6,
                uncertainty_ns: uncertainty_ns.ceil() as u64,
                common_packets: edge.common.len() as u64,
            });
        }
        let Some(root) = roots.find(|root| !known.contains_key(root)) else { break };
        known.insert(root, (Clock::default(), root, 0.0));
    }
    aligned.transits = transits(&edges, &aligned.clocks);
    aligned
}

fn inverse(clock: &Clock) -> Clock {
    Clock { own_ns: clock.reference_ns, reference_ns: clock.own_ns, gain: 1.0 / (1.0 + clock.gain) - 1.0 }
}

/// Compares two inputs; `None` where they hold nothing in common.
fn compare((first, here): (usize, &Drawing), (second, there): (usize, &Drawing)) -> Option<Result<Edge, &'static str>> {
    let mut common = common(here, there);
    drop_strangers(&mut common);
    let base_ns = middle(common.iter().map(Common::difference_ns))?;
    let (start_ns, end_ns) = span(common.iter().map(|common| common.here.time_ns))?;
    let origin_ns = start_ns + (end_ns - start_ns) / 2;
    // A time may have been cut to the resolution on either side.
    let slack = (here.resolution_ns.max(there.resolution_ns) - 1) as f64;
    let Some(clouds) = clouds(&common, (origin_ns, base_ns), slack) else {
        return Some(Err("only packets in one direction are in both"));
    };
    let line = clouds.fit()?;
    // How far an even clock can be off at both ends of what the two hold.
    let (from, to) = there.span_ns().unwrap_or_default();
    let (own_from, own_to) = here.span_ns().unwrap_or_default();
    let ends = [own_from.min(from.saturating_sub(base_ns)), own_to.max(to.saturating_sub(base_ns))]
        .map(|time_ns| time_ns.saturating_sub(origin_ns) as f64);
    let uncertainty = clouds.uncertainty(&line, (ends[0], ends[1]));
    if line.margin < -(MAX_TRANSIT_NS as f64) {
        return Some(Err("their times contradict each other"));
    }
    // Numbers come again: parts of a capture that follow each other may hold packets that are alike, at the pace of their sender. Copies of one
    // packet differ by a clock and a way, which fits a line; packets that are sent at a later time do not.
    if line.margin < 0.0 && (own_to < from || to < own_from) {
        return Some(Err("they do not overlap in time, and what is alike in them is not the same packets"));
    }
    let apart = ends.map(|x| (base_ns as f64 + line.at + line.slope * x).abs());
    let agrees = apart.iter().all(|apart| *apart <= uncertainty);
    let clock = Clock {
        own_ns: origin_ns.saturating_add(base_ns).saturating_add(line.at.round() as i64),
        reference_ns: origin_ns,
        gain: 1.0 / (1.0 + line.slope) - 1.0,
    };
    let uncertainty_ns = if agrees { uncertainty + apart[0].max(apart[1]) } else { uncertainty };
    Some(Ok(Edge { inputs: (first, second), clock, agrees, uncertainty_ns, common }))
}

/// Packets of two samples: those that stand in both equally often.
fn common(here: &Drawing, there: &Drawing) -> Vec<Common> {
    let limit = here.limit.min(there.limit);
    let mut others = there.below(limit).peekable();
    let mut common = Vec::new();
    for own in here.below(limit) {
        let hash = own[0].0;
        while others.next_if(|other| other[0].0 < hash).is_some() {}
        let Some(other) = others.next_if(|other| other[0].0 == hash) else { continue };
        if own.len() == other.len() {
            common.extend(own.iter().zip(other).filter_map(|((_, here_sight), (_, there_sight))| {
                let key = *here.connections.get(here_sight.connection as usize)?;
                Some(Common { key, here: *here_sight, there_ns: there_sight.time_ns })
            }));
        }
    }
    common.sort_by_key(|common| (common.here.time_ns, common.there_ns, common.key));
    common
}

/// Drops pairs that are not the same transmission: far from the middle of their time.
fn drop_strangers(common: &mut Vec<Common>) {
    let slice = common.len().div_ceil(SLICES).max(1);
    let kept = common.chunks(slice).flat_map(|slice| {
        let middle_ns = middle(slice.iter().map(Common::difference_ns)).unwrap_or(0);
        let is_near = move |common: &&Common| {
            common.difference_ns().saturating_sub(middle_ns).unsigned_abs() <= MAX_TRANSIT_NS.unsigned_abs()
        };
        slice.iter().filter(is_near).copied().collect::<Vec<_>>()
    });
    *common = kept.collect();
}

fn middle(values: impl Iterator<Item = i64>) -> Option<i64> {
    let mut values: Vec<i64> = values.collect();
    let half = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(half).1)
}

fn span(times: impl Iterator<Item = i64> + Clone) -> Option<(i64, i64)> {
    times.clone().min().zip(times.max())
}

/// What went there and what came back, over all pairs of endpoints. `None` where nothing came back.
fn clouds(common: &[Common], (origin_ns, base_ns): (i64, i64), slack: f64) -> Option<Clouds> {
    let mut pairs: BTreeMap<(Endpoint, Endpoint), [Vec<line::Point>; 2]> = BTreeMap::new();
    for one in common {
        let (src, dst) = (one.key.src, one.key.dst);
        let x = one.here.time_ns.saturating_sub(origin_ns) as f64;
        let y = one.difference_ns().saturating_sub(base_ns) as f64;
        pairs.entry((src.min(dst), src.max(dst))).or_default()[usize::from(src > dst)].push((x, y));
    }
    // One way round the line lies between what went and what came; the other way round it cannot.
    let mut turned: Vec<(bool, Clouds)> = Vec::new();
    for [forth, back] in pairs.into_values() {
        let ways = [(&forth, &back), (&back, &forth)].map(|(there, back)| {
            let moved = |points: &[line::Point], by: f64| points.iter().map(|(x, y)| (*x, y + by)).collect();
            let mut clouds = Clouds { upper: moved(there, slack), lower: moved(back, -slack) };
            clouds.reduce();
            let line = clouds.fit();
            (line, clouds)
        });
        let [(Some(one), clouds), (Some(other), turned_clouds)] = ways else { continue };
        let is_sure = one.margin.max(other.margin) >= 0.0 && one.margin.min(other.margin) < 0.0;
        turned.push((is_sure, if is_better(&one, &other) { clouds } else { turned_clouds }));
    }
    // Pairs with few packets fit both ways: they count where there are no others.
    let any_sure = turned.iter().any(|(is_sure, _)| *is_sure);
    let mut all = Clouds::default();
    for (_, clouds) in turned.into_iter().filter(|(is_sure, _)| *is_sure || !any_sure) {
        all.upper.extend(clouds.upper);
        all.lower.extend(clouds.lower);
    }
    all.reduce();
    (!all.upper.is_empty()).then_some(all)
}

fn is_better(one: &Line, other: &Line) -> bool {
    one.margin >= other.margin
}

/// Transits, of each connection from the two inputs that hold most of its packets in common.
fn transits(edges: &[Edge], clocks: &[Option<Clock>]) -> Vec<Transit> {
    let mut most: BTreeMap<ConnectionKey, (usize, usize)> = BTreeMap::new();
    for (index, edge) in edges.iter().enumerate() {
        let mut counts: BTreeMap<ConnectionKey, usize> = BTreeMap::new();
        edge.common.iter().for_each(|common| *counts.entry(common.key).or_default() += 1);
        for (key, count) in counts {
            let best = most.entry(key).or_insert((count, index));
            if count > best.0 {
                *best = (count, index);
            }
        }
    }
    let corrected = |input: usize, time_ns: i64| match clocks.get(input).copied().flatten() {
        Some(clock) => clock.corrected_ns(time_ns),
        None => time_ns,
    };
    let mut transits = Vec::new();
    for (index, edge) in edges.iter().enumerate() {
        let (first, second) = edge.inputs;
        let of = |common: &Common| {
            (corrected(second, common.there_ns)).saturating_sub(corrected(first, common.here.time_ns))
        };
        let own = |common: &&Common| most.get(&common.key).is_some_and(|(_, best)| *best == index);
        // A connection goes one way: most of its packets say which, and those that the uncertainty turns round took no time.
        let mut forth: BTreeMap<ConnectionKey, i64> = BTreeMap::new();
        for common in edge.common.iter().filter(own) {
            *forth.entry(common.key).or_default() += of(common).signum();
        }
        for common in edge.common.iter().filter(own).filter(|common| turn_is_timed(common.here.opcode)) {
            let Some(verb) = Verb::of(common.here.opcode) else { continue };
            let sign = if forth.get(&common.key).is_some_and(|sum| *sum < 0) { -1 } else { 1 };
            let ns = u64::try_from(of(common).saturating_mul(sign)).unwrap_or(0);
            let size = SizeClass::of(u64::from(common.here.payload_bytes));
            let time_ns = corrected(first, common.here.time_ns);
            transits.push(Transit { connection: common.key, verb, size, time_ns, ns });
        }
    }
    transits
}

/// As where one input holds both ports: requests and responses, no acknowledgements.
fn turn_is_timed(opcode: Opcode) -> bool {
    matches!(Turn::of(opcode), Turn::Request | Turn::Response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::{Lid, Psn, Qpn};

    const ACK: u8 = 0x11;
    const SEND_ONLY: u8 = 0x04;

    /// SENDs from 1 to 2 and their ACKs, each a number and a time: what a capture holds.
    fn sights(requests: impl Iterator<Item = (u32, i64)>, answers: impl Iterator<Item = (u32, i64)>) -> Sights {
        let packet = |(src, dst), opcode, (psn, time_ns)| {
            let ends = [src, dst].map(|lid| Endpoint::from_lid(Lid(lid)));
            let number = (Kind::Data, Psn::new(psn), false);
            PacketRecord::new(time_ns, ends.into(), (Opcode(opcode), Qpn::new(7)), number, 30, 0, 0, (0, 0))
        };
        let packets: Vec<PacketRecord> =
            requests.map(|at| packet((1, 2), SEND_ONLY, at)).chain(answers.map(|at| packet((2, 1), ACK, at))).collect();
        let mut sights = Sights::new(2);
        sights.add(sights.draw(packets.iter()));
        sights
    }

    /// Up to 4095 ns, another for each number and salt.
    fn jitter_ns(number: u32, salt: u64) -> i64 {
        ((u64::from(number) + salt).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as i64
    }

    /// A steady sender whose numbers come round again 3.4 s later, in the next part of the capture of one port.
    fn part(turn: u64) -> Sights {
        let sent_ns =
            move |number: u32| turn as i64 * 3_400_000_000 + i64::from(number) * 1000 + jitter_ns(number, turn);
        let answered_ns = move |number: u32| sent_ns(number) + 10_000 + jitter_ns(number, turn + 99);
        sights(
            (0..9000).map(move |number| (number, sent_ns(number))),
            (0..9000).map(move |number| (number, answered_ns(number))),
        )
    }

    #[test]
    fn parts_in_which_numbers_come_again_keep_their_times() {
        let names = ["one".to_owned(), "other".to_owned()];
        let aligned = align(vec![part(0), part(1)], &names, &[]);
        assert_eq!((aligned.clocks, aligned.rows), (vec![None; 2], vec![None; 2]));
        assert_eq!(aligned.unclear.len(), 1);
        assert_eq!(aligned.transits, []);
    }

    /// The same packets at both ports, the second one's clock a minute ahead: no time in common, and yet one line.
    #[test]
    fn clocks_far_apart_are_held_against_each_other() {
        let sent_ns = |number: u32| i64::from(number) * 1000 + jitter_ns(number, 0);
        let way_ns = |number: u32, salt: u64| 500 + jitter_ns(number, salt);
        let ahead_ns = 60_000_000_000;
        let here = sights(
            (0..9000).map(|number| (number, sent_ns(number))),
            (0..9000).map(|number| (number, sent_ns(number) + 20_000)),
        );
        let there = sights(
            (0..9000).map(|number| (number, sent_ns(number) + way_ns(number, 1) + ahead_ns)),
            (0..9000).map(|number| (number, sent_ns(number) + 20_000 - way_ns(number, 2) + ahead_ns)),
        );
        let aligned = align(vec![here, there], &["one".to_owned(), "other".to_owned()], &[]);
        let row = aligned.rows[1].as_ref().expect("a clock");
        assert!(row.offset_ns.abs_diff(ahead_ns) <= row.uncertainty_ns && row.uncertainty_ns < 2000, "{row:?}");
    }
}
