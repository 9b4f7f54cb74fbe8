//! From occurrences to transmissions, and from several inputs to one count per packet.

use super::bins::{Cell, Count, TimeSlot, TrafficSlot, TrafficSums};
use super::copies::Copies;
use super::health;
use super::points::{self, Point};
use super::{OCCURRENCES, Partial};
use crate::model::health::Observed;
use crate::model::profile::{Repeats, Traffic};
use crate::model::traffic::{BinOf, BinSums, ConnectionTotals, TimeBin};
use crate::model::{Claim, ConnectionKey, Continuity, Few, Kind, Missing, Recorder, Sight, Sums, TimingKey, Turn};
use ibscope_parsers::Qpn;
use smallvec::smallvec;

/// Clocks of two captures of the same packets differ by less, or nothing can be said.
pub(super) const SAME_TIME_NS: i64 = 5_000_000_000;

/// What an input holds so long before or after those that count is not what they hold: transits are shorter, and so is what
/// is left of the difference of clocks.
const BEYOND_NS: i64 = 10_000_000;

/// What one tracker of an input has summed up, with what it said of each connection at the end.
#[derive(Debug, Default)]
pub struct Share {
    /// Each lies by itself, so that it can be given up by itself.
    connections: Vec<(ConnectionKey, Box<(Partial, Ending)>)>,
}

impl Share {
    /// Adds a connection, which it does not have.
    pub fn add(&mut self, key: ConnectionKey, sums: Partial, ending: Ending) {
        self.connections.push((key, Box::new((sums, ending))));
    }
}

/// What the flow stage says of a connection when an input ends.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Messages of which something is missing, if any.
    pub missing: Option<Box<Missing>>,
    /// What sequence numbers show to be missing.
    pub continuity: Continuity,
    /// Its window of sequence numbers overflowed.
    pub overflowed: bool,
    /// Votes for the sender's queue pair: of answers by PSN, and of repeated request numbers.
    pub partners: [Vec<(Qpn, u64)>; 2],
    /// What went wrong, if anything did.
    pub health: Option<Box<Observed>>,
}

/// One count per packet.
#[derive(Debug, Default)]
pub struct Settled {
    /// Sums by connection, sorted by key. Each takes the place of what it was made of: all in a row they would need as much memory again.
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

/// Settles the sums of all inputs. It is told of each input first, in the order in which they were given, and then takes their connections a shard at a
/// time, of which several may be under way: so what they were made of is given up before others are looked at.
#[derive(Debug, Default)]
pub struct Settling {
    /// What is known of the inputs alone.
    settled: Settled,
    /// By input: the times of its first and last record.
    times_ns: Vec<(i64, i64)>,
}

impl Settling {
    /// The next input: the times of its first and last record, and all of its connections in any order.
    pub fn input<'a>(
        &mut self,
        times_ns: Option<(i64, i64)>,
        connections: impl Iterator<Item = (&'a ConnectionKey, &'a Partial)>,
    ) {
        let copies = Copies::decide(connections);
        let (pairs_seen_once, pairs_seen_twice) = copies.count();
        self.settled.inputs.push(InputCopies { pairs_seen_once, pairs_seen_twice, ..InputCopies::default() });
        self.settled.copies.push(copies);
        self.times_ns.push(times_ns.unwrap_or_default());
    }

    /// Settles what each input, in the same order, has in one shard. All that the inputs have of a connection is in one.
    #[must_use]
    pub fn shard(&self, shares: Vec<Share>) -> Settled {
        let copies = &self.settled.copies;
        let mut settled = Settled { inputs: vec![InputCopies::default(); copies.len()], ..Settled::default() };
        let mut inputs = Vec::new();
        for Share { mut connections } in shares {
            connections.sort_unstable_by_key(|(key, _)| *key);
            // Parts that were written down may say anything.
            connections.dedup_by_key(|(key, _)| *key);
            inputs.push(connections.into_iter().peekable());
        }
        while let Some(key) = inputs.iter_mut().filter_map(|input| input.peek().map(|(key, _)| *key)).min() {
            let mut seen: Vec<(Point, Option<One>)> = Vec::new();
            for (index, input) in inputs.iter_mut().enumerate() {
                let Some((_, of)) = input.next_if(|(next, _)| *next == key) else { continue };
                let (partial, ending) = *of;
                let twice = copies[index].twice(&key);
                let one = One::new(index as u32, key, partial, ending, twice);
                settled.inputs[index].mirror_copies += one.mirror_copies;
                let point = Point {
                    input: index,
                    input_times_ns: self.times_ns[index],
                    packets: one.totals.traffic.packets,
                    twice,
                    first_time_ns: one.totals.times_ns.0,
                };
                seen.push((point, Some(one)));
            }
            settled.connection(&key, seen);
        }
        settled
    }

    /// All shards together.
    #[must_use]
    pub fn finish(self, shards: Vec<Settled>) -> Settled {
        let mut settled = self.settled;
        for shard in shards {
            for (input, own) in settled.inputs.iter_mut().zip(shard.inputs) {
                input.mirror_copies += own.mirror_copies;
                input.missing_packets += own.missing_packets;
            }
            settled.continued += shard.continued;
            settled.left_out += shard.left_out;
            settled.window_overflows += shard.window_overflows;
            settled.connections.extend(shard.connections);
        }
        let connections = &mut settled.connections;
        connections.sort_unstable_by_key(|connection| connection.key);
        connections.dedup_by_key(|connection| connection.key);
        settled
    }
}

impl Settled {
    /// Settles what the inputs have seen of a connection.
    fn connection(&mut self, key: &ConnectionKey, mut seen: Vec<(Point, Option<One>)>) {
        let times: Vec<(usize, (i64, i64))> =
            seen.iter().filter_map(|(point, one)| Some((point.input, one.as_ref()?.totals.times_ns))).collect();
        let views: Vec<Point> = seen.iter().map(|(point, _)| *point).collect();
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
            let one = seen.iter_mut().find(|(point, _)| point.input == input).and_then(|(_, one)| one.take());
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

/// A connection in one input, settled.
struct One {
    totals: ConnectionTotals,
    overflowed: bool,
    mirror_copies: u64,
}

/// Which occurrences are transmissions, and which of those are repeats.
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

/// What a connection has sent, by which of its packets are transmissions.
pub(super) struct Transmitted {
    pub(super) traffic: Traffic,
    pub(super) repeats: Repeats,
    pub(super) mirror_copies: u64,
}

/// Packets, bytes and transport messages of a connection; `twice` says that both copies of its packets are in the input.
pub(super) fn transmitted(key: &ConnectionKey, partial: &Partial, twice: bool) -> Transmitted {
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
    Transmitted { traffic, repeats, mirror_copies }
}

impl One {
    fn new(input: u32, key: ConnectionKey, partial: Partial, ending: Ending, twice: bool) -> Self {
        let Transmitted { traffic, repeats, mirror_copies } = transmitted(&key, &partial, twice);
        let observed = ending.health.unwrap_or_default();
        let health = health::settled(&key, &partial, &observed, twice).into();
        let bins = bins(&Rule::new(twice, key.can_repeat()), partial.bins.into_cells());
        let times_ns = partial.times_ns;
        let [partners, echoes] = ending.partners.map(|votes| votes.into_iter().collect());
        let (unknown_starts, mpi, sizes) = (partial.unknown_starts, partial.mpi, partial.sizes);
        let times = partial.times.map(|times| *times).unwrap_or_default();
        // At a sink of both ports what answers is measured at its second sight, and a second sight elsewhere is a repeat.
        let right = if twice { Sight::Twice } else { Sight::Alone };
        let is_right = |sight: Sight| sight == right || sight == Sight::Any;
        let kinds: Vec<Option<TimingKey>> =
            times.recorders.iter().map(|((sight, _, key), _)| is_right(*sight).then_some(*key)).collect();
        let time_bins = time_bins(&kinds, &times.bins.into_cells());
        let timings = times.recorders.into_iter().filter(|((sight, ..), _)| is_right(*sight));
        let mut settled: Few<(Option<Claim>, TimingKey), Recorder> = Few::default();
        for ((_, claim, key), recorder) in timings {
            settled.join((claim, key), recorder, Recorder::merge);
        }
        let continuity = Continuity {
            request_packets: partial.first[Turn::Request as usize].packets,
            response_packets: partial.first[Turn::Response as usize].packets,
            ..ending.continuity
        };
        let totals = ConnectionTotals {
            key,
            times_ns,
            traffic,
            repeats,
            health,
            unknown_starts,
            mpi,
            missing: ending.missing,
            continuity,
            rdma: partial.rdma,
            inputs: smallvec![input],
            partners,
            echoes,
            timings: settled,
            sizes,
            time_bins,
            bins,
        };
        Self { totals, overflowed: ending.overflowed, mirror_copies }
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
    let settled = |Cell { bin, slot, value }: Cell<TrafficSlot, TrafficSums>| {
        let TrafficSums { sums, messages } = value;
        let of = match slot {
            TrafficSlot::Occurrence(class) if !rule.transmission[usize::from(class)] => return None,
            TrafficSlot::Occurrence(class) if rule.repeat[usize::from(class)] => BinOf::Repeated,
            TrafficSlot::Occurrence(_) => BinOf::Sent,
            TrafficSlot::Mpi(class) => BinOf::Mpi(class),
        };
        Some(BinSums { bin, of, sums, messages })
    };
    cells.into_iter().filter_map(settled).collect()
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
