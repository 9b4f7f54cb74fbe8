//! Packets that two inputs hold, and what they say of the clocks.

use super::{Drawing, Sight, middle};
use crate::model::ConnectionKey;
use crate::model::line::{Clouds, Point};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;

/// Slices of time of which each has a difference of its own.
const SLICES: usize = 64;
/// A packet whose two sights differ by more than this from the middle of its slice is not the same transmission.
const MAX_TRANSIT_NS: i64 = 100_000_000;

/// Two endpoints, the smaller one first.
type Pair = (Endpoint, Endpoint);

/// A packet that two inputs hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) key: ConnectionKey,
    /// Its sight in the first input, the first one where that holds two.
    pub(super) here: Sight,
    /// The last one: another than `here` where the input sees both ports.
    here_last_ns: i64,
    /// The same in the second input.
    pub(super) there: Sight,
    there_last_ns: i64,
}

impl Packet {
    pub(super) fn difference_ns(&self) -> i64 {
        self.there.time_ns.saturating_sub(self.here.time_ns)
    }

    fn pair(&self) -> Pair {
        (self.key.src.min(self.key.dst), self.key.src.max(self.key.dst))
    }

    /// From the smaller endpoint to the larger.
    fn is_up(&self) -> bool {
        self.key.src < self.key.dst
    }
}

/// How two inputs see the packets of a pair of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// Each packet once in each. Packets from the smaller to the larger endpoint go from the first input to the second, or the other way; `None` where
    /// that cannot be told: both may see the same port.
    Once(Option<bool>),
    /// At least one of the two sees both ports.
    Both,
}

/// What two inputs have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) packets: Vec<Packet>,
    views: BTreeMap<Pair, View>,
}

impl Common {
    /// Packets of two samples: those that stand in both as often as each sees them.
    pub(super) fn find(here: &Drawing, there: &Drawing) -> Self {
        let limit = here.limit.min(there.limit);
        let (times_here, times_there) = (sights_of_pairs(here), sights_of_pairs(there));
        let mut others = there.below(limit).peekable();
        let mut packets = Vec::new();
        let mut views = BTreeMap::new();
        for own in here.below(limit) {
            let hash = own[0].0;
            while others.next_if(|other| other[0].0 < hash).is_some() {}
            let Some(other) = others.next_if(|other| other[0].0 == hash) else { continue };
            let Some(key) = here.connections.get(own[0].1.connection as usize).copied() else { continue };
            let pair = (key.src.min(key.dst), key.src.max(key.dst));
            let times = |of: &BTreeMap<Pair, usize>| of.get(&pair).copied().unwrap_or(1);
            let (each_here, each_there) = (times(&times_here), times(&times_there));
            if own.len() * each_there != other.len() * each_here || own.len() % each_here > 0 {
                continue;
            }
            for (own, other) in own.chunks(each_here).zip(other.chunks(each_there)) {
                packets.push(Packet {
                    key,
                    here: own[0].1,
                    here_last_ns: own[own.len() - 1].1.time_ns,
                    there: other[0].1,
                    there_last_ns: other[other.len() - 1].1.time_ns,
                });
            }
            let view = if each_here + each_there > 2 { View::Both } else { View::Once(None) };
            views.insert(pair, view);
        }
        packets.sort_by_key(|packet| (packet.here.time_ns, packet.there.time_ns, packet.key));
        drop_strangers(&mut packets);
        Self { packets, views }
    }

    /// What bounds the clock of the second input on the first, over all pairs of endpoints, at times from `origin_ns` on and as differences to
    /// `base_ns`; each bound is `slack` ns wider than the stamps say. `None` where it is bound from one side only.
    pub(super) fn clouds(&mut self, (origin_ns, base_ns): (i64, i64), slack: f64) -> Option<Clouds> {
        let mut all = Clouds::default();
        let mut once: BTreeMap<Pair, [Vec<Point>; 2]> = BTreeMap::new();
        for packet in &self.packets {
            let x = packet.here.time_ns.saturating_sub(origin_ns) as f64;
            let y = |there_ns: i64, here_ns: i64| there_ns.saturating_sub(here_ns).saturating_sub(base_ns) as f64;
            if self.views.get(&packet.pair()) == Some(&View::Both) {
                // What one stamp there is of was stamped here between the first and the last sight; where both see both ports, sight by sight.
                let (first, last) =
                    (y(packet.there.time_ns, packet.here.time_ns), y(packet.there_last_ns, packet.here_last_ns));
                let crossed =
                    (y(packet.there.time_ns, packet.here_last_ns), y(packet.there_last_ns, packet.here.time_ns));
                let sees_both = |first_ns: i64, last_ns: i64| first_ns != last_ns;
                let is_matched = sees_both(packet.here.time_ns, packet.here_last_ns)
                    && sees_both(packet.there.time_ns, packet.there_last_ns);
                let (low, high) = if is_matched { (first.min(last), first.max(last)) } else { crossed };
                all.upper.push((x, high + slack));
                all.lower.push((x, low - slack));
            } else {
                let points = once.entry(packet.pair()).or_default();
                points[usize::from(!packet.is_up())].push((x, y(packet.there.time_ns, packet.here.time_ns)));
            }
        }
        // One way round the line lies between what went and what came; the other way round it cannot.
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
                self.views.insert(pair, View::Once(Some(up >= down)));
                all.upper.extend(clouds.upper);
                all.lower.extend(clouds.lower);
            } else {
                unsure.push(clouds);
            }
        }
        // Pairs with few packets, or of one port that both see, fit both ways: they count where there are no others.
        if all.upper.is_empty() {
            for clouds in unsure {
                all.upper.extend(clouds.upper);
                all.lower.extend(clouds.lower);
            }
        }
        all.reduce();
        (!all.upper.is_empty()).then_some(all)
    }

    /// The packets that passed from a port that one input sees to a port that the other one sees, and whether the first input saw them first.
    pub(super) fn passages(&self) -> impl Iterator<Item = (&Packet, bool)> {
        self.packets.iter().filter_map(|packet| match self.views.get(&packet.pair()) {
            Some(View::Once(Some(is_up))) => Some((packet, packet.is_up() == *is_up)),
            _ => None,
        })
    }
}

/// How often an input sees each packet of a pair of endpoints: twice where most are there an even number of times.
fn sights_of_pairs(drawing: &Drawing) -> BTreeMap<Pair, usize> {
    let mut counts: BTreeMap<Pair, [usize; 2]> = BTreeMap::new();
    for same in drawing.below(u64::MAX) {
        let Some(key) = drawing.connections.get(same[0].1.connection as usize) else { continue };
        counts.entry((key.src.min(key.dst), key.src.max(key.dst))).or_default()[same.len() % 2] += 1;
    }
    counts.into_iter().map(|(pair, [even, odd])| (pair, if even > odd { 2 } else { 1 })).collect()
}

/// Drops packets that are not the same transmission: far from the middle of their time.
fn drop_strangers(packets: &mut Vec<Packet>) {
    let slice = packets.len().div_ceil(SLICES).max(1);
    let kept = packets.chunks(slice).flat_map(|slice| {
        let middle_ns = middle(slice.iter().map(Packet::difference_ns)).unwrap_or(0);
        let is_near = move |packet: &&Packet| {
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

    /// Three packets in each slice of time, whose sights differ by nothing, but for the first one.
    fn packets(first_ns: i64) -> Vec<Packet> {
        let ends = [1, 2].map(|lid| Endpoint::from_lid(Lid(lid)));
        let key = ConnectionKey::of(ends.into(), Opcode(4), Qpn::new(7), 0);
        let sight = |time_ns| Sight { time_ns, connection: 0, opcode: Opcode(4), payload_bytes: 0, psn: 0 };
        let packet =
            |there_ns| Packet { key, here: sight(0), here_last_ns: 0, there: sight(there_ns), there_last_ns: there_ns };
        (0..3 * SLICES).map(|number| packet(if number == 0 { first_ns } else { 0 })).collect()
    }

    #[test]
    fn sights_farther_apart_than_any_way_are_not_one_packet() {
        for (apart_ns, dropped) in [(MAX_TRANSIT_NS, 0), (MAX_TRANSIT_NS + 1, 1), (-MAX_TRANSIT_NS - 1, 1)] {
            let mut packets = packets(apart_ns);
            drop_strangers(&mut packets);
            assert_eq!(packets.len(), 3 * SLICES - dropped);
        }
    }
}
