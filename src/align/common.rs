//! Finds the packets that two inputs have in common, and derives bounds on the difference of their
//! clocks.
//!
//! In: the finished samples of two inputs. Out: the common packets, and upper and lower bounds on
//! the clock of the second input relative to that of the first. Invariant: a packet counts only if
//! both samples hold it as often as their observation points explain.

use super::{FinishedSample, SampledPacket, middle};
use crate::model::ConnectionKey;
use crate::model::line::{Clouds, Point};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Number of time slices; each has its own median difference.
const SLICES: usize = 64;
/// Two observations whose difference is farther than this from the median of their slice are not of
/// the same transmission.
const MAX_TRANSIT_NS: i64 = 100_000_000;

/// Fewer equal packets are chance: short programs begin alike.
const MIN_LOOK_ALIKES: usize = 16;

/// Two endpoints, the smaller one first.
type UnorderedPair = (Endpoint, Endpoint);

/// A packet that both inputs hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommonPacket {
    pub(super) key: ConnectionKey,
    /// First observation in the first input.
    pub(super) first: SampledPacket,
    /// Time of the last observation in the first input. It differs from that of `first` if the
    /// input observes both ports.
    first_last_ns: i64,
    /// First observation in the second input.
    pub(super) second: SampledPacket,
    second_last_ns: i64,
}

impl CommonPacket {
    pub(super) fn difference_ns(&self) -> i64 {
        self.second.time_ns.saturating_sub(self.first.time_ns)
    }

    fn pair(&self) -> UnorderedPair {
        self.key.port_pair()
    }

    /// True if the packet goes from the smaller endpoint to the larger.
    fn is_up(&self) -> bool {
        self.key.src < self.key.dst
    }
}

/// Number of observations by two inputs of each packet of a pair of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairView {
    /// Each input observes each packet once. True: packets from the smaller to the larger endpoint
    /// pass the port of the first input, then that of the second; false: the reverse. `None`:
    /// unknown, because both inputs may observe the same port.
    Once(Option<bool>),
    /// At least one of the inputs observes both ports.
    Both,
}

/// The packets that two inputs have in common.
#[derive(Debug)]
pub(super) struct CommonPackets {
    pub(super) packets: Vec<CommonPacket>,
    /// They are most of the packets of one of the inputs.
    pub(super) is_most: bool,
    views: BTreeMap<UnorderedPair, PairView>,
}

impl CommonPackets {
    /// Finds the packets that both samples hold as often as each input observes a packet of their
    /// pair.
    pub(super) fn find(here: &FinishedSample, there: &FinishedSample) -> Self {
        let limit = here.limit.min(there.limit);
        let (times_here, times_there) = (observations_per_packet(here), observations_per_packet(there));
        let mut others = there.below(limit).peekable();
        let mut packets = Vec::new();
        let mut views = BTreeMap::new();
        for own in here.below(limit) {
            let hash = own[0].0;
            while others.next_if(|other| other[0].0 < hash).is_some() {}
            let Some(other) = others.next_if(|other| other[0].0 == hash) else { continue };
            let Some(key) = here.connections.get(own[0].1.connection as usize).copied() else { continue };
            let pair = key.port_pair();
            let times = |of: &BTreeMap<UnorderedPair, usize>| of.get(&pair).copied().unwrap_or(1);
            let (each_here, each_there) = (times(&times_here), times(&times_there));
            if own.len() * each_there != other.len() * each_here || own.len() % each_here > 0 {
                continue;
            }
            for (own, other) in own.chunks(each_here).zip(other.chunks(each_there)) {
                packets.push(CommonPacket {
                    key,
                    first: own[0].1,
                    first_last_ns: own[own.len() - 1].1.time_ns,
                    second: other[0].1,
                    second_last_ns: other[other.len() - 1].1.time_ns,
                });
            }
            let view = if each_here + each_there > 2 { PairView::Both } else { PairView::Once(None) };
            views.insert(pair, view);
        }
        packets.sort_by_key(|packet| (packet.first.time_ns, packet.second.time_ns, packet.key));
        let fewest = here.below(limit).count().min(there.below(limit).count());
        let is_most = packets.len() >= MIN_LOOK_ALIKES && packets.len() * 2 > fewest;
        drop_unrelated(&mut packets);
        Self { packets, is_most, views }
    }

    /// Bounds on the clock of the second input relative to the first, from all pairs of endpoints.
    /// Times are relative to `origin_ns` and differences to `base_ns`; each bound is widened by
    /// `slack` ns. `None` if one side has no bound.
    pub(super) fn clouds(&mut self, (origin_ns, base_ns): (i64, i64), slack: f64) -> Option<Clouds> {
        let mut all = Clouds::default();
        let mut once: BTreeMap<UnorderedPair, [Vec<Point>; 2]> = BTreeMap::new();
        for packet in &self.packets {
            let x = packet.first.time_ns.saturating_sub(origin_ns) as f64;
            let y = |there_ns: i64, here_ns: i64| there_ns.saturating_sub(here_ns).saturating_sub(base_ns) as f64;
            if self.views.get(&packet.pair()) == Some(&PairView::Both) {
                // If one input observes both ports, the single observation of the other lies
                // between its first and its last. If both inputs do, their observations match one
                // by one.
                let (first, last) =
                    (y(packet.second.time_ns, packet.first.time_ns), y(packet.second_last_ns, packet.first_last_ns));
                let crossed =
                    (y(packet.second.time_ns, packet.first_last_ns), y(packet.second_last_ns, packet.first.time_ns));
                let sees_both = |first_ns: i64, last_ns: i64| first_ns != last_ns;
                let is_matched = sees_both(packet.first.time_ns, packet.first_last_ns)
                    && sees_both(packet.second.time_ns, packet.second_last_ns);
                let (low, high) = if is_matched { (first.min(last), first.max(last)) } else { crossed };
                all.upper.push((x, high + slack));
                all.lower.push((x, low - slack));
            } else {
                let points = once.entry(packet.pair()).or_default();
                points[usize::from(!packet.is_up())].push((x, y(packet.second.time_ns, packet.first.time_ns)));
            }
        }
        // The direction of a pair is unknown. With the correct one, a line fits between the bounds from
        // packets there and packets back; with the wrong one, no line fits.
        let mut unsure = Vec::new();
        for (pair, [up, down]) in once {
            let ways = [(&up, &down), (&down, &up)].map(|(there, back)| {
                let moved = |points: &[Point], by: f64| points.iter().map(|(x, y)| (*x, y + by)).collect();
                let mut clouds = Clouds { upper: moved(there, slack), lower: moved(back, -slack), ..Clouds::default() };
                clouds.reduce();
                let margin = clouds.fit().map(|line| line.margin);
                (margin, clouds)
            });
            let [(Some(up), up_clouds), (Some(down), down_clouds)] = ways else { continue };
            let clouds = if up >= down { up_clouds } else { down_clouds };
            if up.max(down) >= 0.0 && up.min(down) < 0.0 {
                self.views.insert(pair, PairView::Once(Some(up >= down)));
                all.upper.extend(clouds.upper);
                all.lower.extend(clouds.lower);
            } else {
                unsure.push(clouds);
            }
        }
        // Pairs with few packets, or of one port that both inputs see, are consistent with both
        // directions. They count only if no other pairs are there.
        if all.upper.is_empty() {
            for clouds in unsure {
                all.upper.extend(clouds.upper);
                all.lower.extend(clouds.lower);
            }
        }
        all.reduce();
        (!all.upper.is_empty()).then_some(all)
    }

    /// Packets that each input observed at another port, and whether the first input observed them
    /// first.
    pub(super) fn transits(&self) -> impl Iterator<Item = (&CommonPacket, bool)> {
        self.packets.iter().filter_map(|packet| match self.views.get(&packet.pair()) {
            Some(PairView::Once(Some(is_up))) => Some((packet, packet.is_up() == *is_up)),
            _ => None,
        })
    }
}

/// Number of observations by an input of each packet of a pair of endpoints: two if most packets
/// appear an even number of times, otherwise one.
fn observations_per_packet(sample: &FinishedSample) -> BTreeMap<UnorderedPair, usize> {
    let mut counts: BTreeMap<UnorderedPair, [usize; 2]> = BTreeMap::new();
    for same in sample.below(u64::MAX) {
        let Some(key) = sample.connections.get(same[0].1.connection as usize) else { continue };
        counts.entry(key.port_pair()).or_default()[same.len() % 2] += 1;
    }
    counts.into_iter().map(|(pair, [even, odd])| (pair, if even > odd { 2 } else { 1 })).collect()
}

/// Drops packets whose difference is too far from the median of their time slice: their
/// observations are not of one transmission.
fn drop_unrelated(packets: &mut Vec<CommonPacket>) {
    let slice = packets.len().div_ceil(SLICES).max(1);
    let kept = packets.chunks(slice).flat_map(|slice| {
        let middle_ns = middle(slice.iter().map(CommonPacket::difference_ns)).unwrap_or(0);
        let is_near = move |packet: &&CommonPacket| {
            packet.difference_ns().saturating_sub(middle_ns).unsigned_abs() <= MAX_TRANSIT_NS.unsigned_abs()
        };
        slice.iter().filter(is_near).copied().collect::<Vec<_>>()
    });
    *packets = kept.collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibscope_parsers::ib::Opcode;
    use ibscope_parsers::{Lid, Qpn};

    /// Three packets per time slice. The observations of each have equal times, except those of the
    /// first.
    fn packets(first_ns: i64) -> Vec<CommonPacket> {
        let ends = [1, 2].map(|lid| Endpoint::from_lid(Lid(lid)));
        let key = ConnectionKey::of(ends.into(), Opcode(4), Qpn::new(7), 0);
        let packet_at = |time_ns| SampledPacket { time_ns, connection: 0, opcode: Opcode(4), payload_bytes: 0, psn: 0 };
        let packet = |there_ns| CommonPacket {
            key,
            first: packet_at(0),
            first_last_ns: 0,
            second: packet_at(there_ns),
            second_last_ns: there_ns,
        };
        (0..3 * SLICES).map(|number| packet(if number == 0 { first_ns } else { 0 })).collect()
    }

    #[test]
    fn observations_farther_apart_than_any_transit_are_two_packets() {
        for (apart_ns, dropped) in [(MAX_TRANSIT_NS, 0), (MAX_TRANSIT_NS + 1, 1), (-MAX_TRANSIT_NS - 1, 1)] {
            let mut packets = packets(apart_ns);
            drop_unrelated(&mut packets);
            assert_eq!(packets.len(), 3 * SLICES - dropped);
        }
    }
}
