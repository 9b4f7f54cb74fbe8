//! Combines what the inputs observed into one count per packet.
//!
//! In: per input the sums by occurrence. Out: per connection the transmissions, without mirror copies, of the inputs
//! that count. Invariant: a shard holds both directions of its connections in all inputs, so shards are independent.

use super::bins::{Cell, Count, TimeSlot, TrafficSlot, TrafficSums};
use super::copies::Copies;
use super::health;
use super::points::{self, Point};
use super::{OCCURRENCES, Partial};
use crate::model::profile::{Repeats, Traffic};
use crate::model::traffic::{BinOf, BinSums, ConnectionTotals, TimeBin};
use crate::model::{
    Claim, ConnectionEnd, ConnectionKey, Continuity, Few, Kind, Missing, Recorder, Sight, Sums, TimingKey, Turn,
};
use smallvec::smallvec;
use std::iter::Peekable;
use std::vec::IntoIter;

/// Clocks of two captures of the same packets differ by less, or nothing can be said.
pub(super) const SAME_TIME_NS: i64 = 5_000_000_000;

/// Packets that an input holds this long before or after the inputs that count are not copies of theirs: transits, and
/// what remains of the difference of clocks, are shorter.
const BEYOND_NS: i64 = 10_000_000;

/// A connection in one input. Each lies by itself, so that combining releases them one by one.
pub type ConnectionSums = Box<(ConnectionEnd, Partial)>;

/// One count per packet, for all inputs.
#[derive(Debug, Default)]
pub struct CombinedTotals {
    /// Sums by connection, sorted by key. They are boxed one by one: a single allocation would need as much memory again.
    pub connections: Vec<Box<ConnectionTotals>>,
    /// Per input: mirror copies, and pairs of endpoints seen once and twice.
    pub inputs: Vec<InputCopies>,
    /// Connections that go on from one input to the next.
    pub continued: u64,
    /// Connections of which inputs that do not count hold packets before or after those that do.
    pub left_out: u64,
    /// Connections whose window of sequence numbers overflowed, in the inputs that count.
    pub window_overflows: u64,
    /// Per input: which pairs of endpoints it shows twice.
    pub(super) copies: Vec<Copies>,
}

/// How the packets of one input stand in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputCopies {
    /// Second copies of packets.
    pub mirror_copies: u64,
    /// Directed pairs of endpoints that are seen at one port.
    pub pairs_seen_once: u64,
    /// Directed pairs of endpoints that are seen at both ports.
    pub pairs_seen_twice: u64,
    /// Packets of its connections that it lacks and the inputs that count have.
    pub missing_packets: u64,
}

/// Combines the sums of all inputs.
///
/// Callers add every input first, in the order of the command line, and then combine shard by shard, several at a time,
/// so that memory of one shard is released before the next is read.
#[derive(Debug, Default)]
pub struct Combiner {
    /// Which pairs of endpoints each input shows twice; no connections yet.
    totals: CombinedTotals,
    /// By input: the times of its first and last record.
    times_ns: Vec<(i64, i64)>,
}

impl Combiner {
    /// Adds the next input: the times of its first and last record, and all its connections in any order.
    pub fn input<'a>(
        &mut self,
        times_ns: Option<(i64, i64)>,
        connections: impl Iterator<Item = (&'a ConnectionKey, &'a Partial)>,
    ) {
        let copies = Copies::decide(connections);
        let (pairs_seen_once, pairs_seen_twice) = copies.count();
        self.totals.inputs.push(InputCopies { pairs_seen_once, pairs_seen_twice, ..InputCopies::default() });
        self.totals.copies.push(copies);
        self.times_ns.push(times_ns.unwrap_or_default());
    }

    /// Combines one shard: the connections that each input, in the same order, has in it.
    #[must_use]
    pub fn shard(&self, inputs: Vec<Vec<ConnectionSums>>) -> CombinedTotals {
        let copies = &self.totals.copies;
        let mut totals = CombinedTotals { inputs: vec![InputCopies::default(); copies.len()], ..Default::default() };
        let mut inputs: Vec<_> = inputs.into_iter().map(by_key).collect();
        while let Some(key) = inputs.iter_mut().filter_map(|input| input.peek().map(|sums| sums.0.key)).min() {
            let mut observed: Vec<(Point, Option<InputConnection>)> = Vec::new();
            for (index, input) in inputs.iter_mut().enumerate() {
                let Some(sums) = input.next_if(|next| next.0.key == key) else { continue };
                let (end, partial) = *sums;
                let twice = copies[index].twice(&key);
                let one = InputConnection::new(index as u32, end, partial, twice);
                totals.inputs[index].mirror_copies += one.mirror_copies;
                let point = Point {
                    input: index,
                    input_times_ns: self.times_ns[index],
                    packets: one.totals.traffic.packets,
                    twice,
                    first_time_ns: one.totals.times_ns.0,
                };
                observed.push((point, Some(one)));
            }
            totals.add_connection(&key, observed);
        }
        totals
    }

    /// The totals of all shards.
    #[must_use]
    pub fn finish(self, shards: Vec<CombinedTotals>) -> CombinedTotals {
        let mut totals = self.totals;
        for shard in shards {
            for (input, own) in totals.inputs.iter_mut().zip(shard.inputs) {
                input.mirror_copies += own.mirror_copies;
                input.missing_packets += own.missing_packets;
            }
            totals.continued += shard.continued;
            totals.left_out += shard.left_out;
            totals.window_overflows += shard.window_overflows;
            totals.connections.extend(shard.connections);
        }
        let connections = &mut totals.connections;
        connections.sort_unstable_by_key(|connection| connection.key);
        connections.dedup_by_key(|connection| connection.key);
        totals
    }
}

/// The connections of a shard in the order of their keys, each key once: a damaged part of a profile may repeat one.
fn by_key(mut connections: Vec<ConnectionSums>) -> Peekable<IntoIter<ConnectionSums>> {
    connections.sort_unstable_by_key(|sums| sums.0.key);
    connections.dedup_by_key(|sums| sums.0.key);
    connections.into_iter().peekable()
}

impl CombinedTotals {
    /// Adds a connection: chooses the inputs that count, of those that observed it, and adds up their sums.
    fn add_connection(&mut self, key: &ConnectionKey, mut observed: Vec<(Point, Option<InputConnection>)>) {
        let times: Vec<(usize, (i64, i64))> =
            observed.iter().filter_map(|(point, one)| Some((point.input, one.as_ref()?.totals.times_ns))).collect();
        let views: Vec<Point> = observed.iter().map(|(point, _)| *point).collect();
        let chosen = points::choose(views.clone());
        let lacking = points::lacking(&views, &chosen);
        let counted = times.iter().filter(|(input, _)| chosen.contains(input));
        let (first, last) =
            counted.fold((i64::MAX, i64::MIN), |(first, last), (_, times)| (first.min(times.0), last.max(times.1)));
        let is_beyond =
            |times: (i64, i64)| times.0 < first.saturating_sub(BEYOND_NS) || times.1 > last.saturating_add(BEYOND_NS);
        self.continued += u64::from(chosen.len() > 1);
        let leaves_out = times.iter().any(|(_, times)| is_beyond(*times));
        self.left_out += u64::from(leaves_out);
        let mut total: Option<ConnectionTotals> = None;
        for input in chosen {
            let one = observed.iter_mut().find(|(point, _)| point.input == input).and_then(|(_, one)| one.take());
            let Some(one) = one else { continue };
            self.window_overflows += u64::from(one.overflowed);
            match &mut total {
                None => total = Some(one.totals),
                Some(total) => add(total, one.totals),
            }
        }
        if let Some(total) = total.as_mut().filter(|_| leaves_out) {
            total.continuity.uncertain = true;
        }
        if let Some(total) = total.as_mut().filter(|_| key.kind == Kind::Data) {
            for (input, packets) in lacking {
                total.health.change(|health| health.missing_in_other_inputs += packets);
                self.inputs.iter_mut().skip(input).take(1).for_each(|copies| copies.missing_packets += packets);
            }
        }
        self.connections.extend(total.map(Box::new));
    }
}

/// A connection in one input, without mirror copies.
struct InputConnection {
    totals: ConnectionTotals,
    overflowed: bool,
    mirror_copies: u64,
}

/// Which occurrences are transmissions, and which of those are retransmissions.
struct Rule {
    transmission: [bool; OCCURRENCES],
    repeat: [bool; OCCURRENCES],
}

impl Rule {
    fn new(twice: bool, can_repeat: bool) -> Self {
        // With two observation points every second sight is the copy of the one before it.
        let transmission = if twice { [true, false, true, false] } else { [true; OCCURRENCES] };
        let repeat = [false, !twice && can_repeat, can_repeat, !twice && can_repeat];
        Self { transmission, repeat }
    }
}

/// What a connection sent, without mirror copies.
pub(super) struct Transmissions {
    pub(super) traffic: Traffic,
    pub(super) repeats: Repeats,
    pub(super) mirror_copies: u64,
}

/// Packets, bytes and transport messages of a connection; `twice` says that both copies of its packets are in the input.
pub(super) fn transmissions(key: &ConnectionKey, partial: &Partial, twice: bool) -> Transmissions {
    let numbered = Rule::new(twice, !key.is_datagram());
    let unnumbered = Rule::new(twice, false);
    let mut traffic = Traffic::default();
    let mut repeats = Repeats::default();
    let mut mirror_copies = 0;
    for (turn, by_occurrence) in partial.all_sums().iter().enumerate() {
        let rule = if turn == Turn::Other as usize { &unnumbered } else { &numbered };
        for (class, sums) in by_occurrence.iter().enumerate() {
            if !rule.transmission[class] {
                mirror_copies += sums.packets;
                continue;
            }
            traffic.packets += sums.packets;
            traffic.wire_bytes += sums.wire_bytes;
            if rule.repeat[class] {
                add_repeats(&mut repeats, turn, sums);
            } else {
                traffic.payload_bytes += sums.payload_bytes;
            }
        }
    }
    traffic.messages = messages(&numbered, partial.messages());
    Transmissions { traffic, repeats, mirror_copies }
}

impl InputConnection {
    fn new(input: u32, end: ConnectionEnd, partial: Partial, twice: bool) -> Self {
        let ConnectionEnd { key, missing, continuity, overflowed, partners, health } = end;
        let Transmissions { traffic, repeats, mirror_copies } = transmissions(&key, &partial, twice);
        let health = health::of_connection(&key, &partial, &health.unwrap_or_default(), twice).into();
        let bins = bins(&Rule::new(twice, key.can_repeat()), partial.bins.into_cells());
        let times_ns = partial.times_ns;
        let [partners, echoes] = partners.map(|votes| votes.into_iter().collect());
        let (unknown_starts, mpi, sizes) = (partial.unknown_starts, partial.mpi, partial.sizes);
        let times = partial.times.map(|times| *times).unwrap_or_default();
        // At a sink of both ports what answers is measured at its second sight, and a second sight elsewhere is a repeat.
        let right = if twice { Sight::Twice } else { Sight::Alone };
        let is_right = |sight: Sight| sight == right || sight == Sight::Any;
        let kinds: Vec<Option<TimingKey>> =
            times.recorders.iter().map(|((sight, _, key), _)| is_right(*sight).then_some(*key)).collect();
        let time_bins = time_bins(&kinds, &times.bins.into_cells());
        let timings = times.recorders.into_iter().filter(|((sight, ..), _)| is_right(*sight));
        let mut recorders: Few<(Option<Claim>, TimingKey), Recorder> = Few::default();
        for ((_, claim, key), recorder) in timings {
            recorders.join((claim, key), recorder, Recorder::merge);
        }
        let continuity = Continuity {
            request_packets: partial.first[Turn::Request as usize].packets,
            response_packets: partial.first[Turn::Response as usize].packets,
            ..continuity
        };
        let totals = ConnectionTotals {
            key,
            times_ns,
            traffic,
            repeats,
            health,
            unknown_starts,
            mpi,
            missing: (missing != Missing::default()).then(|| Box::new(missing)),
            continuity,
            rdma: partial.rdma,
            inputs: smallvec![input],
            partners,
            echoes,
            timings: recorders,
            sizes,
            time_bins,
            bins,
        };
        Self { totals, overflowed, mirror_copies }
    }
}

fn messages(rule: &Rule, by_occurrence: [u64; OCCURRENCES]) -> u64 {
    let counted = |class: &usize| rule.transmission[*class] && !rule.repeat[*class];
    (0..OCCURRENCES).filter(counted).map(|class| by_occurrence[class]).sum()
}

fn add_repeats(repeats: &mut Repeats, turn: usize, sums: &Sums) {
    repeats.wire_bytes += sums.wire_bytes;
    repeats.payload_bytes += sums.payload_bytes;
    if turn == Turn::Request as usize {
        repeats.request_packets += sums.packets;
    } else if turn == Turn::Response as usize {
        repeats.response_packets += sums.packets;
    } else {
        repeats.acknowledge_packets += sums.packets;
    }
}

/// The times of the kinds that count: those that have a name here.
fn time_bins(kinds: &[Option<TimingKey>], cells: &[Cell<TimeSlot, Count>]) -> Vec<TimeBin> {
    let named = |cell: &Cell<TimeSlot, Count>| {
        let key = kinds.get(usize::from(cell.slot.of)).copied().flatten()?;
        Some(TimeBin { bin: cell.bin, key, bucket: cell.slot.bucket, count: cell.value.0 })
    };
    // There are many in all: no more room than they need.
    let mut bins = Vec::with_capacity(cells.iter().filter_map(named).count());
    bins.extend(cells.iter().filter_map(named));
    bins
}

/// What was transmitted, of each bin. It stays where it is: there are many in all.
fn bins(rule: &Rule, cells: Vec<Cell<TrafficSlot, TrafficSums>>) -> Vec<BinSums> {
    let transmission = |Cell { bin, slot, value }: Cell<TrafficSlot, TrafficSums>| {
        let TrafficSums { sums, messages } = value;
        let of = match slot {
            TrafficSlot::Occurrence(class) if !rule.transmission[usize::from(class)] => return None,
            TrafficSlot::Occurrence(class) if rule.repeat[usize::from(class)] => BinOf::Repeated,
            TrafficSlot::Occurrence(_) => BinOf::Sent,
            TrafficSlot::Mpi(class) => BinOf::Mpi(class),
        };
        Some(BinSums { bin, of, sums, messages })
    };
    cells.into_iter().filter_map(transmission).collect()
}

/// Adds what a later input saw of the same connection.
fn add(total: &mut ConnectionTotals, later: ConnectionTotals) {
    total.times_ns = (total.times_ns.0.min(later.times_ns.0), total.times_ns.1.max(later.times_ns.1));
    total.traffic += later.traffic;
    total.repeats += later.repeats;
    total.health.change(|health| *health += later.health.whole());
    total.unknown_starts += later.unknown_starts;
    total.merge_mpi(later.mpi);
    if let Some(missing) = later.missing {
        *total.missing.get_or_insert_default().as_mut() += *missing;
    }
    total.continuity.add(&later.continuity);
    total.rdma += later.rdma;
    total.inputs.extend(later.inputs);
    for (key, recorder) in later.timings {
        total.timings.or_default(key).merge(recorder);
    }
    total.sizes.merge(later.sizes);
    for (votes, others) in [(&mut total.partners, later.partners), (&mut total.echoes, later.echoes)] {
        for (qpn, count) in others {
            *votes.or_default(qpn) += count;
        }
    }
    total.time_bins.extend(later.time_bins);
    // Parts of a rotated capture share the bin in which one goes on to the next.
    total.bins.extend(later.bins);
}
