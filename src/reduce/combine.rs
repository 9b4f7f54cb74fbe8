//! Combines the observations of all inputs into one count per packet.
//!
//! In: per input the sums by occurrence. Out: per connection the transmissions, without mirror
//! copies, of the inputs that count. Invariant: a shard holds both directions of its connections in
//! all inputs, so shards are independent.

use super::bins::{BinCell, Count, TimeSlot, TrafficSlot, TrafficSums};
use super::congestion::CongestionCounter;
use super::health;
use super::late_copies::{self, LateCopies};
use super::marks::OtherMarks;
use super::mirror_copies::{MirrorCopies, points_in_union};
use super::observation_points::{self, ObservationPoint};
use super::pair_parts::{Absence, InputSpan, PairParts};
use super::paths;
use super::point_sums::{self, AbsentPoints, PacketDigests, PointRecords};
use super::record_series::{self, InputRecords};
use super::{PartialSums, TransmissionRule};
use crate::model::observation::OCCURRENCES;
use crate::model::paths::add_path;
use crate::model::profile::{RetransmissionSums, Traffic};
use crate::model::{
    BinClass, BinSums, ConnectionEnd, ConnectionKey, ConnectionTotals, Continuity, DatagramSpan, MissingMessages,
    ObservedPorts, OtherInputs, PackedBins, PacketRole, PacketSums, PagedVec, PointCount, PsnSpans, RecordSeries,
    Recorder, RequiredDetection, SampledSums, TimeBin, TimingKey, TrafficKind, VecMap,
};
use ibscope_parsers::{Psn, Qpn};
use rayon::prelude::*;
use smallvec::smallvec;
use std::collections::BTreeMap;

/// Largest plausible difference between the clocks of two captures of the same packets, in
/// nanoseconds. Messages farther apart are different ones.
pub(super) const SAME_TIME_NS: i64 = 5_000_000_000;

/// A packet of an input that was not chosen cannot be a mirror copy if it was captured more than
/// this (ns) before the first or after the last packet of the chosen inputs: transit times and the
/// remaining differences of the clocks are shorter.
const BEYOND_NS: i64 = 10_000_000;

/// The connections of one shard of one input, and their sums in the same order.
pub type ShardConnections = (Vec<ConnectionEnd>, PagedVec<PartialSums>);

/// One count per packet, for all inputs.
#[derive(Debug, Default)]
pub struct CombinedTotals {
    /// Sums by connection, sorted by key. Each is boxed: a single allocation would need as much
    /// memory again while it grows.
    pub connections: Vec<Box<ConnectionTotals>>,
    /// Per input: mirror copies, and pairs of endpoints observed once and twice.
    pub inputs: Vec<InputMirrorCopies>,
    /// Connections that continue from one input to the next.
    pub continued: u64,
    /// Connections for which an input that was not chosen has packets from before the first or after
    /// the last packet of the chosen inputs. These packets are not counted.
    pub left_out: u64,
    /// Connections of which overlapping inputs hold different packets, and for which the union of
    /// their packets is not known.
    pub without_union: u64,
    /// Connections whose PSN window overflowed, in the inputs that count.
    pub window_overflows: u64,
    /// Connections whose packets appear more often than one or two observation points explain, in the
    /// inputs that count.
    pub unclear_copies: u64,
    /// Connections whose times between two ports are unknown, because second observations are late, in
    /// the inputs that count.
    pub late_copies: Vec<LateCopies>,
    /// Per input: the records that its observation points should have and do have, of connections
    /// with several points.
    pub records: Vec<RecordSeries>,
    /// Per input: which pairs of endpoints it observes twice.
    pub(super) mirror_copies: Vec<MirrorCopies>,
}

/// Mirror copies and missing packets of one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputMirrorCopies {
    /// Packets that are mirror copies of others.
    pub mirror_copies: u64,
    /// Directed pairs of endpoints observed at one port.
    pub pairs_observed_once: u64,
    /// Directed pairs of endpoints observed at both ports.
    pub pairs_observed_twice: u64,
    /// Packets of its connections that are missing here and present in the inputs that count.
    pub missing_packets: u64,
}

/// Combines the sums of all inputs.
///
/// Callers add every input first, in the order of the command line. Then they combine the shards,
/// several at a time, so that the memory of one shard is freed before the next is read.
#[derive(Debug, Default)]
pub struct Combiner {
    /// Results on the inputs so far, without connections.
    totals: CombinedTotals,
    /// By input: the times of its first and last record.
    times_ns: Vec<(i64, i64)>,
    /// By input: the inputs that it unites; none for a capture.
    members: Vec<Vec<usize>>,
}

impl Combiner {
    /// Adds the next input: the times of its first and last record, and all its connections in
    /// groups, all in any order. Groups are processed in parallel.
    pub fn input<'a, G>(&mut self, times_ns: Option<(i64, i64)>, groups: impl ParallelIterator<Item = G>)
    where
        G: Iterator<Item = (&'a ConnectionKey, &'a PartialSums)>,
    {
        let copies = MirrorCopies::detect(groups);
        let (pairs_observed_once, pairs_observed_twice) = copies.count_pairs();
        self.totals.inputs.push(InputMirrorCopies {
            pairs_observed_once,
            pairs_observed_twice,
            ..InputMirrorCopies::default()
        });
        self.totals.records.push(RecordSeries::default());
        self.totals.mirror_copies.push(copies);
        self.times_ns.push(times_ns.unwrap_or_default());
        self.members.push(Vec::new());
    }

    /// Adds the union of inputs that overlap in time, after all inputs: it holds each transmission
    /// once, of some of their connections. It counts for these connections instead of its members.
    pub fn union(&mut self, times_ns: (i64, i64), members: Vec<usize>) {
        self.totals.inputs.push(InputMirrorCopies::default());
        self.totals.records.push(RecordSeries::default());
        self.totals.mirror_copies.push(MirrorCopies::default());
        self.times_ns.push(times_ns);
        self.members.push(members);
    }

    /// Combines one shard. `inputs` holds its connections in each input, in the order of the
    /// inputs.
    #[must_use]
    pub fn shard(&self, inputs: Vec<ShardConnections>) -> CombinedTotals {
        let copies = &self.totals.mirror_copies;
        let mut totals = CombinedTotals {
            inputs: vec![InputMirrorCopies::default(); copies.len()],
            records: vec![RecordSeries::default(); copies.len()],
            ..Default::default()
        };
        let mut inputs: Vec<_> = inputs.into_iter().map(SortedConnections::new).collect();
        let mut parts = PairParts::new(inputs.iter().map(SortedConnections::sums));
        let mut without_source: Option<ConnectionKey> = None;
        while let Some(key) = inputs.iter().filter_map(SortedConnections::next_key).min() {
            // Datagrams that were truncated before their source queue pair come before the others to the
            // same queue pair.
            if key.is_datagram() && key.kind == TrafficKind::Data && key.src_qp == Qpn::new(0) {
                without_source = Some(key);
            }
            let may_be_truncated = without_source == Some(ConnectionKey { src_qp: Qpn::new(0), ..key });
            let mut observed: Vec<ObservedConnection> = Vec::new();
            for (index, input) in inputs.iter_mut().enumerate() {
                let Some((end, partial)) = input.next_if(&key) else { continue };
                let points = copies[index].of(&key);
                let is_compared = copies.len() > 1 || points.is_two();
                let one = InputConnection::new(index as u32, end, partial, (points, is_compared));
                totals.inputs[index].mirror_copies += one.mirror_copies;
                let point = ObservationPoint {
                    input: index,
                    input_times_ns: self.times_ns[index],
                    packets: one.totals.traffic.packets,
                    truncated_packets: one.totals.missing.as_ref().map_or(0, |missing| missing.truncated_packets()),
                    observed_twice: points.is_two(),
                    first_time_ns: one.totals.times_ns.0,
                    is_union: !self.members[index].is_empty(),
                };
                observed.push((point, Some(one)));
            }
            let replaced = self.unite(&mut observed);
            let mut absence = self.absence(&key, &observed, &mut parts);
            // A point may hold such a datagram under another key, and the packets of a second connection
            // under the PSNs of the first one, so that neither proves a loss.
            let mut all = observed.iter().filter_map(|(_, one)| one.as_ref());
            absence.is_unclear |= may_be_truncated || all.any(|one| one.totals.continuity.restarted);
            totals.add_connection(&key, observed, (&replaced, &absence));
        }
        totals
    }

    /// The inputs that observe packets between the two ports, but none of this connection.
    fn absence(&self, key: &ConnectionKey, observed: &[ObservedConnection], parts: &mut PairParts) -> Absence {
        let own = || observed.iter().filter(|(point, _)| !point.is_union);
        let holders: Vec<InputSpan> = own().map(|(point, _)| (point.input, point.input_times_ns)).collect();
        let times = own().filter_map(|(_, one)| Some(one.as_ref()?.totals.times_ns));
        let times_ns = times.fold((i64::MAX, i64::MIN), |all, own| (all.0.min(own.0), all.1.max(own.1)));
        let inputs = self.totals.mirror_copies.iter().zip(&self.times_ns).enumerate();
        let points = inputs.map(|(input, (copies, times_ns))| AbsentPoints {
            input,
            points: copies.points(key),
            input_times_ns: *times_ns,
        });
        let is_held = |input: usize| holders.iter().any(|(holder, _)| *holder == input);
        let absent = points.filter(|own| own.points > 0 && !is_held(own.input));
        parts.absence(key, absent, (&holders, times_ns))
    }

    /// Moves times between packets to the unions of inputs, from the members that would count without
    /// the union: times between packets of different inputs are not comparable. Returns the members of
    /// all unions, which do not count.
    fn unite(&self, observed: &mut [ObservedConnection]) -> Vec<usize> {
        let mut replaced = Vec::new();
        for union in 0..observed.len() {
            let members = &self.members[observed[union].0.input];
            if members.is_empty() {
                continue;
            }
            let views = observed.iter().map(|(point, _)| *point).filter(|point| members.contains(&point.input));
            let chosen = observation_points::choose(views.collect());
            let (before, from) = observed.split_at_mut(union);
            let Some(own) = from.first_mut().and_then(|(_, one)| one.as_mut()) else { continue };
            // The union holds each PSN of such an input once, so retransmissions may be missing in it.
            let copies = &self.totals.mirror_copies;
            let is_unclear = |member: &usize| points_in_union(copies, *member, &own.totals.key) == PointCount::Unclear;
            own.totals.continuity.has_unclear_copies |= members.iter().any(is_unclear);
            for (_, one) in before.iter_mut().filter(|(point, _)| chosen.contains(&point.input)) {
                let Some(one) = one else { continue };
                for (key, recorder) in std::mem::take(&mut one.totals.latencies) {
                    own.totals.latencies.join(key, recorder, Recorder::merge);
                }
                own.totals.time_bins.append(&mut one.totals.time_bins);
            }
            replaced.extend(members);
        }
        replaced
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
            totals.records.iter_mut().zip(&shard.records).for_each(|(series, own)| series.merge(own));
            totals.continued += shard.continued;
            totals.left_out += shard.left_out;
            totals.without_union += shard.without_union;
            totals.window_overflows += shard.window_overflows;
            totals.unclear_copies += shard.unclear_copies;
            totals.late_copies.extend(shard.late_copies);
            totals.connections.extend(shard.connections);
        }
        let connections = &mut totals.connections;
        // A copy of each key, because a comparison of boxes waits for memory.
        connections.par_sort_by_cached_key(|connection| connection.key);
        connections.dedup_by_key(|connection| connection.key);
        totals
    }
}

/// Takes the connections of a shard in the order of their keys.
struct SortedConnections {
    /// Keys and positions, each key once.
    order: Vec<(ConnectionKey, u32)>,
    /// Number of connections that were taken.
    taken: usize,
    ends: Vec<ConnectionEnd>,
    sums: PagedVec<PartialSums>,
}

impl SortedConnections {
    fn new((ends, sums): ShardConnections) -> Self {
        let mut order: Vec<(ConnectionKey, u32)> = ends.iter().map(|end| end.key).zip(0..sums.len() as u32).collect();
        order.sort_unstable();
        // A damaged partial profile may repeat a key.
        order.dedup_by_key(|(key, _)| *key);
        Self { order, taken: 0, ends, sums }
    }

    /// The sums of all connections. Call before the first one is taken.
    fn sums(&self) -> impl Iterator<Item = (&ConnectionKey, &PartialSums)> {
        self.order.iter().filter_map(|(key, position)| Some((key, self.sums.get(*position as usize)?)))
    }

    fn next_key(&self) -> Option<ConnectionKey> {
        self.order.get(self.taken).map(|(key, _)| *key)
    }

    /// The next connection, if it has this key.
    fn next_if(&mut self, key: &ConnectionKey) -> Option<(ConnectionEnd, PartialSums)> {
        let (_, position) = *self.order.get(self.taken).filter(|(next, _)| next == key)?;
        self.taken += 1;
        let end = self.ends.get_mut(position as usize)?;
        let sums = self.sums.get_mut(position as usize)?;
        Some((std::mem::replace(end, ConnectionEnd::new(*key)), std::mem::take(sums)))
    }
}

impl CombinedTotals {
    /// Adds a connection: chooses which of the inputs that observed it count, and adds up their
    /// sums. Inputs in `replaced` do not count, because their union does; those in `absence` have no
    /// packet of it.
    fn add_connection(
        &mut self,
        key: &ConnectionKey,
        mut observed: Vec<ObservedConnection>,
        (replaced, absence): (&[usize], &Absence),
    ) {
        let times: Vec<(usize, (i64, i64))> =
            observed.iter().filter_map(|(point, one)| Some((point.input, one.as_ref()?.totals.times_ns))).collect();
        let views: Vec<ObservationPoint> = observed.iter().map(|(point, _)| *point).collect();
        let records: Vec<(ObservationPoint, PointRecords)> =
            observed.iter().filter_map(|(point, one)| Some((*point, one.as_ref()?.records))).collect();
        let has_overlap = observation_points::captures_overlap(&views);
        let is_choice = |point: &&ObservationPoint| !replaced.contains(&point.input);
        let chosen = observation_points::choose(views.iter().filter(is_choice).copied().collect());
        let is_data = key.kind == TrafficKind::Data;
        let differs = point_sums::differ(&records);
        self.without_union += u64::from(is_data && replaced.is_empty() && differs);
        let lost_on_fabric = lost_on_fabric(&observed);
        let counted = chosen.first().copied().filter(|_| chosen.len() == 1);
        let observations = if absence.is_unclear {
            Some(Box::default())
        } else {
            point_sums::compare(&records, &absence.lost, counted)
        };
        if observations.as_ref().is_some_and(|sums| sums.points > 0) && is_data {
            let held = observed.iter().filter_map(|(point, one)| Some(one.as_ref()?.input_records(*point)));
            record_series::add(&mut self.records, &held.collect::<Vec<_>>(), &absence.lost, counted);
        }
        let missing = observation_points::missing_packets(&views, &chosen);
        let counted = times.iter().filter(|(input, _)| chosen.contains(input));
        let (first, last) =
            counted.fold((i64::MAX, i64::MIN), |(first, last), (_, times)| (first.min(times.0), last.max(times.1)));
        let is_beyond =
            |times: (i64, i64)| times.0 < first.saturating_sub(BEYOND_NS) || times.1 > last.saturating_add(BEYOND_NS);
        self.continued += u64::from(chosen.len() > 1);
        let leaves_out = times.iter().any(|(_, times)| is_beyond(*times));
        self.left_out += u64::from(leaves_out);
        let mut marks = OtherMarks::default();
        let others = observed.iter().filter(|(point, _)| !chosen.contains(&point.input));
        others.filter_map(|(_, one)| one.as_ref()).for_each(|one| marks.note(&one.totals));
        let mut total: Option<Box<ConnectionTotals>> = None;
        let mut last_spans = [None; 3];
        let mut last_datagrams: BTreeMap<u32, u16> = BTreeMap::new();
        for input in chosen {
            let one = observed.iter_mut().find(|(point, _)| point.input == input).and_then(|(_, one)| one.take());
            let Some(one) = one else { continue };
            self.window_overflows += u64::from(one.overflowed);
            self.unclear_copies += u64::from(one.totals.continuity.has_unclear_copies);
            self.late_copies.extend(one.late_copies);
            match &mut total {
                None => total = Some(one.totals),
                Some(total) => {
                    let missing = datagrams_between(&last_datagrams, &one.datagram_spans);
                    let between = total.continuity.missing_datagrams.and(missing).unwrap_or(0);
                    add(total, *one.totals);
                    total.continuity.missing_datagrams.iter_mut().for_each(|missing| *missing += between);
                    total.continuity.uncertain |= missing.is_none() || may_repeat(last_spans, one.psn_spans);
                }
            }
            last_spans = one.psn_spans;
            last_datagrams.extend(one.datagram_spans.iter().map(|span| (span.endpoint, span.last)));
        }
        if let Some(total) = total.as_mut().filter(|_| leaves_out) {
            total.continuity.uncertain = true;
        }
        if let Some(total) = &mut total {
            marks.complete(total);
            total.continuity.lost_on_fabric = lost_on_fabric;
            total.observations = observations;
            let others = times.iter().filter(|(input, _)| !replaced.contains(input)).count();
            total.continuity.other_inputs = if others > total.inputs.len() && differs {
                OtherInputs::Different
            } else if has_overlap {
                OtherInputs::Same
            } else {
                OtherInputs::None
            };
            times.iter().for_each(|(input, _)| total.continuity.held_by.insert(*input as u32));
        }
        if let Some(total) = total.as_mut().filter(|_| key.kind == TrafficKind::Data) {
            for (input, packets) in missing {
                total.health.change(|health| health.missing_in_other_inputs += packets);
                self.inputs.iter_mut().skip(input).take(1).for_each(|copies| copies.missing_packets += packets);
            }
        }
        self.connections.extend(total);
    }
}

/// True if the start of a later input may hold packets that the end of the earlier one holds too: the
/// second mirror copy, if the first one was the last packet of the earlier file.
fn may_repeat(earlier: PsnSpans, later: PsnSpans) -> bool {
    let ends = earlier.into_iter().zip(later).filter_map(|(earlier, later)| Some((earlier?.1, later?.0)));
    let mut steps = ends.map(|(last, first)| Psn::new(first).since(Psn::new(last)));
    steps.any(|step| step <= 0)
}

/// Datagrams that neither the earlier inputs nor the later one hold, by the numbers of each endpoint.
/// `earlier` has the highest number by endpoint. `None` if both may hold the same datagram.
fn datagrams_between(earlier: &BTreeMap<u32, u16>, later: &[DatagramSpan]) -> Option<u64> {
    let missing = |span: &DatagramSpan| match earlier.get(&span.endpoint) {
        // Numbers are modulo 2^16, so a larger step backwards may be one forwards.
        Some(last) => u64::try_from(i32::from(span.first.wrapping_sub(*last).cast_signed()) - 1).ok(),
        None => Some(span.before),
    };
    later.iter().map(missing).sum()
}

/// Requests that were lost on the fabric, according to the NAKs of a connection. The receiver names
/// the request that is missing. If an input with two observation points had observed the request
/// once when the NAK came, it had observed it at the sender's port, and the request was lost after
/// that. With two inputs of one observation point each, the request was lost between them if one
/// had observed it and the other had not.
fn lost_on_fabric(observed: &[ObservedConnection]) -> u64 {
    let inputs = || {
        let inputs = observed.iter().enumerate().filter(|(_, (point, _))| !point.is_union);
        inputs.filter_map(|(at, (point, one))| Some((at, point.observed_twice, one.as_ref()?.totals.continuity)))
    };
    let within = inputs().filter(|(_, twice, _)| *twice).map(|(_, _, own)| own.naks_observed_once);
    let once = || inputs().filter(|(_, twice, _)| !twice);
    let between = once().flat_map(|(at, _, sender)| {
        let others = once().filter(move |(other, ..)| *other != at);
        // If the receiver's input observed the request too, the request was lost behind both points.
        let lost = move |receiver: Continuity| {
            let between = sender.naks_observed_once.saturating_sub(receiver.naks_observed_once);
            between.min(receiver.naks_unobserved)
        };
        others.map(move |(_, _, receiver)| lost(receiver))
    });
    within.chain(between).max().unwrap_or(0)
}

/// A connection in one input, until it is added up.
type ObservedConnection = (ObservationPoint, Option<InputConnection>);

/// A connection in one input, without mirror copies.
struct InputConnection {
    totals: Box<ConnectionTotals>,
    psn_spans: PsnSpans,
    datagram_spans: Vec<DatagramSpan>,
    records: PointRecords,
    /// Records by bin, mirror copies included, for inputs that are compared.
    bin_records: Vec<(i64, u64)>,
    overflowed: bool,
    mirror_copies: u64,
    /// Set if its packets were observed twice, and the second time too late.
    late_copies: Option<LateCopies>,
}

/// Transmissions of a connection, without mirror copies.
pub(super) struct TransmissionSums {
    pub(super) traffic: Traffic,
    pub(super) retransmissions: RetransmissionSums,
    pub(super) mirror_copies: u64,
}

/// Packets, bytes and transport messages of a connection; `points` are the observation points of its
/// pair in the input.
pub(super) fn transmissions(key: &ConnectionKey, partial: &PartialSums, points: PointCount) -> TransmissionSums {
    let numbered = TransmissionRule::new(points, !key.is_datagram());
    let unnumbered = TransmissionRule::unnumbered(points);
    let mut traffic = Traffic::default();
    let mut retransmissions = RetransmissionSums::default();
    let mut mirror_copies = 0;
    for (role, class, sums) in partial.classified() {
        let rule = if role == PacketRole::Other as usize { &unnumbered } else { &numbered };
        if !rule.transmission[class] {
            mirror_copies += sums.packets;
            continue;
        }
        traffic.packets += sums.packets;
        traffic.wire_bytes += sums.wire_bytes;
        if rule.retransmission[class] {
            add_retransmissions(&mut retransmissions, role, sums);
        } else {
            traffic.payload_bytes += sums.payload_bytes;
        }
    }
    traffic.messages = messages(&numbered, partial.messages());
    TransmissionSums { traffic, retransmissions, mirror_copies }
}

impl InputConnection {
    /// `is_compared` is true if the connection may have several observation points.
    fn new(input: u32, end: ConnectionEnd, partial: PartialSums, (points, is_compared): (PointCount, bool)) -> Self {
        let twice = points.is_two();
        let ConnectionEnd {
            key,
            missing,
            continuity,
            psn_spans,
            datagram_spans,
            overflowed,
            icrcs: _,
            copy_order,
            partners,
            health,
            storage,
        } = end;
        let TransmissionSums { traffic, retransmissions, mirror_copies } = transmissions(&key, &partial, points);
        let sampled = SampledSums {
            open_mpi_messages: missing.as_ref().map_or(0, |missing| missing.mpi_incomplete),
            ..partial.sampled()
        };
        let [requests_again, responses_again] =
            [PacketRole::Request, PacketRole::Response].map(|role| partial.later_packets(role));
        let has_unclear_copies = points == PointCount::Unclear && !partial.is_observed_evenly();
        let paths = paths::of_connection(&key, &partial, points);
        let records = PointRecords::new(&partial, PacketDigests::new(&continuity, (traffic.packets, twice)));
        let health = health::of_connection(&key, &partial, &health.unwrap_or_default(), points).into();
        let cells = partial.bins.into_cells();
        let bin_records = if is_compared { record_series::by_bin(&cells) } else { Vec::new() };
        let bins = Box::new(bins(points, key.can_be_retransmitted(), cells));
        let times_ns = partial.times_ns;
        let [partners, echoes] = partners.map(|votes| votes.into_iter().collect());
        let (unknown_starts, mpi, sizes) = (partial.unknown_starts, partial.mpi, partial.sizes.into_map());
        let (upper_layers, operations) = (partial.upper_layers, partial.operations);
        let times = partial.times.map(|times| *times).unwrap_or_default();
        // If the input observes both ports, a response is timed at its second observation, the port
        // of its receiver. If it observes one port, the second observation is a retransmission.
        let right = if twice { ObservedPorts::BothPorts } else { ObservedPorts::OnePort };
        let has_late_copies = copy_order.is_late() && twice;
        let is_right = |ports: ObservedPorts| ports == right && !has_late_copies || ports == ObservedPorts::Any;
        let kinds: Vec<Option<TimingKey>> =
            times.recorders.iter().map(|((ports, _, key), _)| is_right(*ports).then_some(*key)).collect();
        let time_bins = time_bins(&kinds, &times.bins.into_cells());
        let late_copies =
            has_late_copies.then(|| LateCopies { key, delay_ns: late_copies::median_delay_ns(&times.recorders) });
        let timings = times.recorders.into_iter().filter(|((ports, ..), _)| is_right(*ports));
        let mut recorders: VecMap<(Option<RequiredDetection>, TimingKey), Recorder> = VecMap::default();
        for ((_, detection, key), recorder) in timings {
            recorders.join((detection, key), recorder, Recorder::merge);
        }
        let continuity = Continuity {
            request_packets: partial.first[PacketRole::Request as usize].packets,
            requests_again,
            responses_again,
            response_packets: partial.first[PacketRole::Response as usize].packets,
            is_observed_twice: twice,
            has_overflowed: overflowed,
            has_unclear_copies,
            ..continuity
        };
        // Boxed, because it is large and moved several times.
        let totals = Box::new(ConnectionTotals {
            key,
            times_ns,
            traffic,
            sampled,
            retransmissions,
            health,
            unknown_starts,
            upper_layers,
            operations,
            mpi,
            storage,
            missing: missing.filter(|missing| **missing != MissingMessages::default()),
            continuity,
            observations: None,
            rdma: partial.rdma,
            paths,
            inputs: smallvec![input],
            partners,
            echoes,
            latencies: recorders,
            sizes,
            time_bins,
            bins,
        });
        Self { totals, psn_spans, datagram_spans, records, bin_records, overflowed, mirror_copies, late_copies }
    }

    fn input_records(&self, point: ObservationPoint) -> InputRecords<'_> {
        let all = self.totals.traffic.packets + self.mirror_copies;
        InputRecords { point, totals: &self.totals, by_bin: &self.bin_records, all }
    }
}

fn messages(rule: &TransmissionRule, by_occurrence: [u64; OCCURRENCES]) -> u64 {
    let counted = |class: &usize| rule.transmission[*class] && !rule.retransmission[*class];
    (0..OCCURRENCES).filter(counted).map(|class| by_occurrence[class]).sum()
}

fn add_retransmissions(retransmissions: &mut RetransmissionSums, role: usize, sums: &PacketSums) {
    retransmissions.wire_bytes += sums.wire_bytes;
    retransmissions.payload_bytes += sums.payload_bytes;
    if role == PacketRole::Request as usize {
        retransmissions.request_packets += sums.packets;
    } else if role == PacketRole::Response as usize {
        retransmissions.response_packets += sums.packets;
    } else {
        retransmissions.acknowledge_packets += sums.packets;
    }
}

/// Time series of the times that count: those whose recorder has a key in `kinds`.
fn time_bins(kinds: &[Option<TimingKey>], cells: &[BinCell<TimeSlot, Count>]) -> Vec<TimeBin> {
    let named = |cell: &BinCell<TimeSlot, Count>| {
        let key = kinds.get(usize::from(cell.slot.recorder)).copied().flatten()?;
        Some(TimeBin { bin: cell.bin, key, bucket: cell.slot.bucket, count: cell.value.0 })
    };
    // All connections together have many bins, so the capacity is exact.
    let mut bins = Vec::with_capacity(cells.iter().filter_map(named).count());
    bins.extend(cells.iter().filter_map(named));
    bins
}

/// Transmissions per bin.
fn bins(
    points: PointCount,
    can_retransmit: bool,
    cells: Vec<BinCell<TrafficSlot, TrafficSums>>,
) -> PackedBins<BinSums> {
    let rule = TransmissionRule::new(points, can_retransmit);
    let marked = cells.iter().filter_map(|cell| match cell.slot {
        TrafficSlot::Congestion(slot) => Some((slot, cell.value.sums.packets)),
        _ => None,
    });
    let mut congestion = CongestionCounter::new(points, &marked);
    let transmission = |BinCell { bin, slot, value }: BinCell<TrafficSlot, TrafficSums>| {
        let TrafficSums { mut sums, messages } = value;
        let of = match slot {
            TrafficSlot::Occurrence(class) if !rule.transmission[usize::from(class)] => return None,
            TrafficSlot::Occurrence(class) if rule.retransmission[usize::from(class)] => BinClass::Retransmitted,
            TrafficSlot::Occurrence(_) => BinClass::Sent,
            TrafficSlot::Mpi(class) => BinClass::Mpi(class),
            TrafficSlot::Congestion(slot) => {
                let (event, packets) = congestion.next(slot, sums.packets);
                sums.packets = packets;
                if packets == 0 {
                    return None;
                }
                BinClass::Congestion(event)
            }
        };
        Some((bin, BinSums { class: of, sums, messages }))
    };
    cells.into_iter().filter_map(transmission).collect()
}

/// Adds the totals of the same connection in a later input.
fn add(total: &mut ConnectionTotals, later: ConnectionTotals) {
    // A few mirror copies look like retransmissions.
    let [is_twice, later_is_twice] = [&total.continuity, &later.continuity].map(|own| own.is_observed_twice);
    let of_one_point = if is_twice { &later.retransmissions } else { &total.retransmissions };
    total.continuity.uncertain |= is_twice != later_is_twice && *of_one_point != RetransmissionSums::default();
    total.times_ns = (total.times_ns.0.min(later.times_ns.0), total.times_ns.1.max(later.times_ns.1));
    total.traffic += later.traffic;
    total.sampled += later.sampled;
    total.retransmissions += later.retransmissions;
    total.health.change(|health| *health += later.health.whole());
    total.unknown_starts += later.unknown_starts;
    if let Some(votes) = later.upper_layers {
        total.upper_layers.get_or_insert_default().merge(&votes);
    }
    total.operations.merge(&later.operations);
    total.merge_mpi(later.mpi);
    if let Some(later) = later.storage {
        match &mut total.storage {
            Some(storage) => storage.merge(&later),
            none => *none = Some(later),
        }
    }
    if let Some(missing) = later.missing {
        *total.missing.get_or_insert_default().as_mut() += *missing;
    }
    total.continuity.add(&later.continuity);
    total.rdma += later.rdma;
    later.paths.into_iter().for_each(|sums| add_path(&mut total.paths, sums));
    total.inputs.extend(later.inputs);
    for (key, recorder) in later.latencies {
        total.latencies.or_default(key).merge(recorder);
    }
    for (key, sums) in later.sizes {
        total.sizes.join(key, sums, |held, sums| *held += sums);
    }
    for (votes, others) in [(&mut total.partners, later.partners), (&mut total.echoes, later.echoes)] {
        for (qpn, count) in others {
            *votes.or_default(qpn) += count;
        }
    }
    total.time_bins.extend(later.time_bins);
    // Consecutive files of a rotated capture share a bin: its cells stay separate here.
    total.bins.extend(later.bins.iter());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_between_two_inputs_are_counted_by_endpoint() {
        let earlier = BTreeMap::from([(7, 100), (8, u16::MAX)]);
        let span = |(endpoint, first, before)| DatagramSpan { endpoint, first, last: first, before };
        let between = |later: &[(u32, u16, u64)]| {
            datagrams_between(&earlier, &later.iter().copied().map(span).collect::<Vec<_>>())
        };
        assert_eq!(between(&[]), Some(0));
        assert_eq!(between(&[(7, 101, 99), (8, 0, 5)]), Some(0));
        assert_eq!(between(&[(7, 104, 102), (8, 2, 7)]), Some(3 + 2));
        // An endpoint that the earlier inputs do not have.
        assert_eq!(between(&[(7, 101, 99), (9, 6, 4)]), Some(4));
        // The same datagram in both, or one before.
        assert_eq!(between(&[(7, 100, 98)]), None);
        assert_eq!(between(&[(7, 102, 100), (8, u16::MAX - 1, 9)]), None);
    }
}
