//! The sample of packets that an input draws: the same packets in all inputs that hold them, without knowing of each other.

use crate::model::{Clock, ConnectionKey, HashMap, Kind, Packet, PacketRecord, Sample};
use ibscope_parsers::ib::Opcode;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Packets that are kept of all inputs together, and of each input at least and at most.
const ROOM: usize = 1 << 19;
const LEAST_ROOM: usize = 1 << 12;
pub(super) const MOST_ROOM: usize = 1 << 16;
/// A sampled input may begin before its first sampled packet, by less than this share of its length.
const START_SHARE: i64 = 16;
/// Packets that two files of one capture point have in common while they overlap: all but those whose records a cut of the
/// order of time has moved, in percent, and at least so many.
const COMMON_PERCENT: usize = 90;
const LEAST_COMMON: usize = 2;

/// A packet in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Sight {
    pub(super) time_ns: i64,
    /// Its connection, by number within the input.
    pub(super) connection: u32,
    pub(super) opcode: Opcode,
    pub(super) payload_bytes: u16,
    pub(super) psn: u32,
}

/// First and last PSN of the requests of a connection, in the order of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seam {
    pub(super) first: u32,
    pub(super) last: u32,
    times_ns: (i64, i64),
}

/// The sample of one input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Kept", into = "Kept")]
pub struct Sights {
    connections: HashMap<ConnectionKey, u32>,
    sample: Sample<Sight>,
}

/// A sample as it is written down: connections by number.
#[derive(Serialize, Deserialize)]
struct Kept {
    connections: Vec<ConnectionKey>,
    sample: Sample<Sight>,
}

impl From<Kept> for Sights {
    fn from(kept: Kept) -> Self {
        Self { connections: kept.connections.into_iter().zip(0..).collect(), sample: kept.sample }
    }
}

impl From<Sights> for Kept {
    fn from(sights: Sights) -> Self {
        Self { connections: sights.keys(), sample: sights.sample }
    }
}

/// A packet with the hash by which it is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    hash: u64,
    key: ConnectionKey,
    record: PacketRecord,
}

impl Sights {
    /// An empty sample of one of so many inputs.
    #[must_use]
    pub fn new(inputs: usize) -> Self {
        Self { connections: HashMap::default(), sample: Sample::new(room(inputs)) }
    }

    /// The sample that would have been drawn as one of so many inputs, which may not be fewer than it was drawn for; in a form that does not depend on the
    /// order in which packets came.
    pub fn narrow(&mut self, inputs: usize) {
        self.sample.narrow(room(inputs));
        let keys = self.keys();
        let key = |sight: &Sight| keys.get(sight.connection as usize).copied();
        let used: BTreeSet<ConnectionKey> = self.sample.items().filter_map(key).collect();
        let numbers: HashMap<ConnectionKey, u32> = used.into_iter().zip(0..).collect();
        for sight in self.sample.items_mut() {
            let number = keys.get(sight.connection as usize).and_then(|key| numbers.get(key));
            sight.connection = number.copied().unwrap_or(u32::MAX);
        }
        self.connections = numbers;
        self.sample.sort();
    }

    /// The connections, by number.
    fn keys(&self) -> Vec<ConnectionKey> {
        let mut connections: Vec<_> = self.connections.iter().map(|(key, number)| (*number, *key)).collect();
        connections.sort_unstable();
        connections.into_iter().map(|(_, key)| key).collect()
    }

    /// Those of some packets that the sample would take. May be asked from several threads; what is taken does not depend on when.
    pub fn draw<'a>(&self, packets: impl Iterator<Item = Packet<'a>>) -> Vec<Drawn> {
        let draw = |packet: Packet<'_>| {
            let hash = hash(packet);
            (self.sample.wants(hash)).then_some(Drawn { hash, key: *packet.key, record: *packet.record })
        };
        let counts = |packet: &Packet<'_>| packet.kind() == Kind::Data && packet.time_ns != PacketRecord::NO_TIME;
        packets.filter(counts).filter_map(draw).collect()
    }

    /// Takes what was drawn, in the order of the file.
    pub fn add(&mut self, drawn: Vec<Drawn>) {
        for Drawn { hash, key, record } in drawn {
            if !self.sample.wants(hash) {
                continue;
            }
            let next = self.connections.len() as u32;
            let connection = *self.connections.entry(key).or_insert(next);
            let (time_ns, opcode, payload_bytes) = (record.time_ns, record.opcode(), record.payload_bytes);
            let psn = record.psn().value();
            self.sample.add(hash, Sight { time_ns, connection, opcode, payload_bytes, psn });
        }
    }

    /// Time of the first and of the last packet.
    pub(super) fn span_ns(&self) -> Option<(i64, i64)> {
        let times = || self.sample.items().map(|sight| sight.time_ns);
        times().min().zip(times().max())
    }

    /// A time at or before the first packet, nanoseconds since the epoch: of a large input some packets stand for all.
    #[must_use]
    pub fn starts_ns(&self) -> Option<i64> {
        let (first_ns, last_ns) = self.span_ns()?;
        Some(first_ns.saturating_sub(last_ns.saturating_sub(first_ns) / START_SHARE))
    }

    /// True where both hold the same packets, at the same times, while they overlap.
    pub(super) fn overlaps(&self, later: &Self) -> bool {
        let (Some((_, end_ns)), Some((start_ns, later_end_ns))) = (self.span_ns(), later.span_ns()) else {
            return false;
        };
        let limit = self.sample.limit().min(later.sample.limit());
        let shared_ns = start_ns..=end_ns.min(later_end_ns);
        let within = |sights: &Self| -> BTreeSet<(i64, u64)> {
            let own = sights.sample.hashed().map(|(hash, sight)| (sight.time_ns, hash));
            own.filter(|(time_ns, hash)| *hash < limit && shared_ns.contains(time_ns)).collect()
        };
        let (own, others) = (within(self), within(later));
        let common = own.intersection(&others).count();
        common >= LEAST_COMMON && common * 100 >= own.len().max(others.len()) * COMMON_PERCENT
    }

    /// Where the requests of each connection begin and end.
    pub(super) fn seams(&self) -> BTreeMap<ConnectionKey, Seam> {
        let keys = self.keys();
        let mut seams: BTreeMap<ConnectionKey, Seam> = BTreeMap::new();
        for sight in self.sample.items().filter(|sight| sight.opcode.is_request()) {
            let Some(key) = keys.get(sight.connection as usize).filter(|key| key.kind == Kind::Data) else { continue };
            let own = Seam { first: sight.psn, last: sight.psn, times_ns: (sight.time_ns, sight.time_ns) };
            let seam = seams.entry(*key).or_insert(own);
            if sight.time_ns < seam.times_ns.0 {
                (seam.first, seam.times_ns.0) = (sight.psn, sight.time_ns);
            }
            if sight.time_ns > seam.times_ns.1 {
                (seam.last, seam.times_ns.1) = (sight.psn, sight.time_ns);
            }
        }
        seams
    }

    /// On the clock that is given for the input, if one is.
    pub(super) fn finish(self, given: Option<Clock>) -> Drawing {
        let connections = self.keys();
        let (limit, mut sights) = self.sample.finish();
        let fits = |step: &i64| sights.iter().all(|(_, sight)| sight.time_ns % step == 0);
        let resolution_ns = [1_000_000, 1_000].into_iter().find(fits).unwrap_or(1);
        if let Some(clock) = given {
            sights.iter_mut().for_each(|(_, sight)| sight.time_ns = clock.corrected_ns(sight.time_ns));
        }
        // Equal packets in the order of time: the k-th here is the k-th there.
        sights.sort_by_key(|(hash, sight)| (*hash, sight.time_ns));
        Drawing { limit, sights, connections, resolution_ns }
    }
}

/// How many packets are kept of one of so many inputs.
fn room(inputs: usize) -> usize {
    (ROOM / inputs.max(1)).clamp(LEAST_ROOM, MOST_ROOM)
}

/// What a packet is, wherever it is seen: addresses, opcode, queue pair, sequence number, length.
#[must_use]
pub fn hash(packet: Packet<'_>) -> u64 {
    let words = [
        packet.key.src.hash64(),
        packet.key.dst.hash64(),
        u64::from(packet.opcode().0) << 56
            | u64::from(packet.key.dest_qp.value()) << 32
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
pub(super) struct Drawing {
    pub(super) limit: u64,
    pub(super) sights: Vec<(u64, Sight)>,
    pub(super) connections: Vec<ConnectionKey>,
    /// What all times were whole multiples of as they were stamped: 1 ns, 1 us, 1 ms.
    pub(super) resolution_ns: i64,
}

impl Drawing {
    pub(super) fn below(&self, limit: u64) -> impl Iterator<Item = &[(u64, Sight)]> {
        let until = self.sights.partition_point(|(hash, _)| *hash < limit);
        self.sights[..until].chunk_by(|a, b| a.0 == b.0)
    }

    pub(super) fn span_ns(&self) -> Option<(i64, i64)> {
        let times = || self.sights.iter().map(|(_, sight)| sight.time_ns);
        times().min().zip(times().max())
    }
}
