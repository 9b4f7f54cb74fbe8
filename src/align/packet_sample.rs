//! Samples the packets of an input by a hash of their headers.
//!
//! In: the packets of one input. Out: a bounded sample, sorted by hash. Invariant: two inputs that
//! hold the same packets sample the same packets, regardless of their order.

use crate::model::{Clock, ConnectionKey, HashMap, PacketRecord, PacketRef, Sample, TrafficKind};
use ibscope_parsers::Endpoint;
use ibscope_parsers::ib::Opcode;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Packets of all inputs together, and the minimum and maximum per input.
const TOTAL_PACKETS: usize = 1 << 19;
const MIN_INPUT_PACKETS: usize = 1 << 12;
pub(super) const MAX_INPUT_PACKETS: usize = 1 << 16;
/// A large input may start earlier than its first sampled packet, by less than its duration divided
/// by this.
const START_SHARE: i64 = 16;
/// Two samples hold the same records if, while they overlap, they have at least this share of their
/// packets in common, in percent (a split in the order of time moves some records), and at least
/// `LEAST_COMMON` packets.
const COMMON_PERCENT: usize = 90;
const LEAST_COMMON: usize = 2;
/// Fewer packets do not show whether two inputs hold the same ones: mirror copies that follow their
/// packets by milliseconds may be alone in a short file.
const MIN_PACKETS: usize = 16;

/// From this resolution on, two ports give most packets the same timestamp.
const COARSE_NS: i64 = 1_000_000;

/// A packet in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct SampledPacket {
    pub(super) time_ns: i64,
    /// Number of its connection within the input.
    pub(super) connection: u32,
    pub(super) opcode: Opcode,
    pub(super) payload_bytes: u16,
    pub(super) psn: u32,
}

/// Hash and time of each packet of a sample, sorted.
#[derive(Debug)]
pub(super) struct PacketTimestamps {
    /// Hashes from this one on are dropped.
    limit: u64,
    sorted: Vec<(u64, i64)>,
}

impl PacketTimestamps {
    /// Number of packets of the other sample that this one holds too, but not at the same time: as
    /// another observation point does. Then the number of its packets that can be compared.
    pub(super) fn at_other_times(&self, other: &Self) -> (usize, usize) {
        let comparable = other.sorted.iter().take_while(|(hash, _)| *hash < self.limit);
        let is_elsewhere = |packet: &&(u64, i64)| {
            let from = self.sorted.partition_point(|own| own.0 < packet.0);
            let same = self.sorted[from..].iter().take_while(|own| own.0 == packet.0);
            let mut times_ns = same.map(|own| own.1).peekable();
            times_ns.peek().is_some() && times_ns.all(|time_ns| time_ns != packet.1)
        };
        (comparable.clone().filter(is_elsewhere).count(), comparable.count())
    }

    /// True if this sample holds most packets of the other one, which are at least `MIN_PACKETS`, at
    /// other times: the other input is at another observation point.
    pub(super) fn holds_most_of(&self, other: &Self) -> bool {
        let (elsewhere, all) = self.at_other_times(other);
        all >= MIN_PACKETS && elsewhere * 2 > all
    }
}

/// First and last PSN of the requests of a connection, by time.
#[derive(Clone, Copy, Debug)]
pub(super) struct PsnRange {
    pub(super) first: u32,
    pub(super) last: u32,
    times_ns: (i64, i64),
}

/// The sample of one input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "StoredSample", into = "StoredSample")]
pub struct PacketSample {
    connections: HashMap<ConnectionKey, u32>,
    sample: Sample<SampledPacket>,
}

/// Serialized form of a sample: connections are listed by number.
#[derive(Serialize, Deserialize)]
struct StoredSample {
    connections: Vec<ConnectionKey>,
    sample: Sample<SampledPacket>,
}

impl From<StoredSample> for PacketSample {
    fn from(stored: StoredSample) -> Self {
        Self { connections: stored.connections.into_iter().zip(0..).collect(), sample: stored.sample }
    }
}

impl From<PacketSample> for StoredSample {
    fn from(sample: PacketSample) -> Self {
        Self { connections: sample.keys(), sample: sample.sample }
    }
}

/// A packet and the hash that decides whether it is sampled.
#[derive(Clone, Copy, Debug)]
pub struct SampleCandidate {
    hash: u64,
    key: ConnectionKey,
    record: PacketRecord,
}

impl PacketSample {
    /// An empty sample of one input out of `inputs`.
    #[must_use]
    pub fn new(inputs: usize) -> Self {
        Self { connections: HashMap::default(), sample: Sample::new(room(inputs)) }
    }

    /// Narrows the sample to the size for one input out of `inputs`, which must be at least the
    /// number given to [`Self::new`]. The result does not depend on the order in which packets
    /// arrived.
    pub fn narrow(&mut self, inputs: usize) {
        self.sample.narrow(room(inputs));
        let keys = self.keys();
        let key = |packet: &SampledPacket| keys.get(packet.connection as usize).copied();
        let used: BTreeSet<ConnectionKey> = self.sample.items().filter_map(key).collect();
        let numbers: HashMap<ConnectionKey, u32> = used.into_iter().zip(0..).collect();
        for packet in self.sample.items_mut() {
            let number = keys.get(packet.connection as usize).and_then(|key| numbers.get(key));
            packet.connection = number.copied().unwrap_or(u32::MAX);
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

    /// The packets that the sample would take. Several threads may call this at any time, because
    /// [`Self::add`] checks the limit again.
    pub fn candidates<'a>(&self, packets: impl Iterator<Item = PacketRef<'a>>) -> Vec<SampleCandidate> {
        let draw = |packet: PacketRef<'_>| {
            let hash = hash(packet);
            (self.sample.wants(hash)).then_some(SampleCandidate { hash, key: *packet.key, record: *packet.record })
        };
        let counts =
            |packet: &PacketRef<'_>| packet.kind() == TrafficKind::Data && packet.time_ns != PacketRecord::NO_TIME;
        packets.filter(counts).filter_map(draw).collect()
    }

    /// Adds candidates, in the order of the file.
    pub fn add(&mut self, candidates: Vec<SampleCandidate>) {
        for SampleCandidate { hash, key, record } in candidates {
            if !self.sample.wants(hash) {
                continue;
            }
            let next = self.connections.len() as u32;
            let connection = *self.connections.entry(key).or_insert(next);
            let (time_ns, opcode, payload_bytes) = (record.time_ns, record.opcode(), record.payload_bytes);
            let psn = record.psn().value();
            self.sample.add(hash, SampledPacket { time_ns, connection, opcode, payload_bytes, psn });
        }
    }

    /// Adds the sample of the file that follows in the same stream. Packets that both files hold
    /// are added once.
    #[must_use]
    pub fn followed_by(mut self, later: &Self) -> Self {
        let end_ns = self.span_ns().map_or(i64::MIN, |(_, end_ns)| end_ns);
        let start_ns = later.span_ns().map_or(i64::MAX, |(start_ns, _)| start_ns);
        let is_at_seam = |packet: &SampledPacket| (start_ns..=end_ns).contains(&packet.time_ns);
        let own = self.sample.hashed().filter(|(_, packet)| is_at_seam(packet));
        let own: BTreeSet<(u64, i64)> = own.map(|(hash, packet)| (hash, packet.time_ns)).collect();
        self.sample.lower_limit(later.sample.limit());
        let keys = later.keys();
        for (hash, packet) in later.sample.hashed() {
            let Some(key) = keys.get(packet.connection as usize) else { continue };
            if !own.contains(&(hash, packet.time_ns)) {
                let next = self.connections.len() as u32;
                let connection = *self.connections.entry(*key).or_insert(next);
                self.sample.add(hash, SampledPacket { connection, ..*packet });
            }
        }
        self
    }

    /// Times of the first and of the last sampled packet, nanoseconds since the epoch.
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let times = || self.sample.items().map(|packet| packet.time_ns);
        times().min().zip(times().max())
    }

    /// A time at or before the first packet, in nanoseconds since the epoch. The sample of a large
    /// input may not hold its first packet, so the time is earlier by a share of the span.
    #[must_use]
    pub fn starts_ns(&self) -> Option<i64> {
        let (first_ns, last_ns) = self.span_ns()?;
        Some(first_ns.saturating_sub(last_ns.saturating_sub(first_ns) / START_SHARE))
    }

    /// True if both samples hold the same packets, at the same times, while they overlap.
    #[must_use]
    pub fn overlaps(&self, later: &Self) -> bool {
        let (Some((_, end_ns)), Some((start_ns, later_end_ns))) = (self.span_ns(), later.span_ns()) else {
            return false;
        };
        let limit = self.sample.limit().min(later.sample.limit());
        let shared_ns = start_ns..=end_ns.min(later_end_ns);
        let within = |of: &Self| {
            let mut timestamps = of.timestamps();
            timestamps.sorted.retain(|(hash, time_ns)| *hash < limit && shared_ns.contains(time_ns));
            timestamps.sorted.dedup();
            timestamps
        };
        let (own, others) = (within(self), within(later));
        let (here, there) = (own.sorted.len(), others.sorted.len());
        let common = own.sorted.iter().filter(|packet| others.sorted.binary_search(packet).is_ok()).count();
        // With one coarse clock, two ports give most packets the same timestamp, and the others one
        // step later. Files of one port differ in packets that only one of them holds.
        let (elsewhere, _) = others.at_other_times(&own);
        common >= LEAST_COMMON && common * 100 >= here.max(there) * COMMON_PERCENT && elsewhere * 2 <= here - common
    }

    /// True if a packet is in the sample twice with one time: both of its mirror copies.
    #[must_use]
    pub fn has_copies(&self) -> bool {
        let mut packets: Vec<(u64, i64)> = self.sample.hashed().map(|(hash, packet)| (hash, packet.time_ns)).collect();
        packets.sort_unstable();
        packets.array_windows().any(|[one, other]| one == other)
    }

    /// True if the times are in milliseconds, so that packets of two ports can be at the same time; `None`
    /// without a packet.
    #[must_use]
    pub fn has_coarse_clock(&self) -> Option<bool> {
        (self.sample.items().next().is_some()).then(|| self.resolution_ns() >= COARSE_NS)
    }

    /// Resolution of the times: 1 ns, 1 us or 1 ms.
    fn resolution_ns(&self) -> i64 {
        let fits = |step: &i64| self.sample.items().all(|packet| packet.time_ns % step == 0);
        [COARSE_NS, 1_000].into_iter().find(fits).unwrap_or(1)
    }

    /// Senders and receivers of the packets.
    pub(super) fn port_pairs(&self) -> BTreeSet<(Endpoint, Endpoint)> {
        self.connections.keys().map(|key| (key.src, key.dst)).collect()
    }

    /// Hashes and times of the packets, sorted.
    pub(super) fn timestamps(&self) -> PacketTimestamps {
        let mut sorted: Vec<(u64, i64)> = self.sample.hashed().map(|(hash, packet)| (hash, packet.time_ns)).collect();
        sorted.sort_unstable();
        PacketTimestamps { limit: self.sample.limit(), sorted }
    }

    /// First and last request PSN of each connection.
    pub(super) fn psn_ranges(&self) -> BTreeMap<ConnectionKey, PsnRange> {
        let keys = self.keys();
        let mut ranges: BTreeMap<ConnectionKey, PsnRange> = BTreeMap::new();
        for packet in self.sample.items().filter(|packet| packet.opcode.is_request()) {
            let Some(key) = keys.get(packet.connection as usize).filter(|key| key.kind == TrafficKind::Data) else {
                continue;
            };
            let own = PsnRange { first: packet.psn, last: packet.psn, times_ns: (packet.time_ns, packet.time_ns) };
            let range = ranges.entry(*key).or_insert(own);
            if packet.time_ns < range.times_ns.0 {
                (range.first, range.times_ns.0) = (packet.psn, packet.time_ns);
            }
            if packet.time_ns > range.times_ns.1 {
                (range.last, range.times_ns.1) = (packet.psn, packet.time_ns);
            }
        }
        ranges
    }

    /// Finishes the sample; corrects its times by the clock `given` for the input, if any.
    pub(super) fn finish(self, given: Option<Clock>) -> FinishedSample {
        let (connections, resolution_ns) = (self.keys(), self.resolution_ns());
        let (limit, mut packets) = self.sample.finish();
        if let Some(clock) = given {
            packets.iter_mut().for_each(|(_, packet)| packet.time_ns = clock.corrected_ns(packet.time_ns));
        }
        // Equal packets in the order of time: the k-th of one input is the k-th of the other.
        packets.sort_by_key(|(hash, packet)| (*hash, packet.time_ns));
        FinishedSample { limit, packets, connections, resolution_ns }
    }
}

/// Number of packets to keep of one input out of `inputs`.
fn room(inputs: usize) -> usize {
    (TOTAL_PACKETS / inputs.max(1)).clamp(MIN_INPUT_PACKETS, MAX_INPUT_PACKETS)
}

/// Hash of a packet, equal at every observation point: addresses, opcode, queue pair, PSN, AETH,
/// length. Not of the length in an RETH, which truncated packets may miss.
#[must_use]
pub fn hash(packet: PacketRef<'_>) -> u64 {
    let extension = packet.extension().filter(|_| !packet.opcode().has_reth()).unwrap_or_default();
    let words = [
        packet.key.src.hash64(),
        packet.key.dst.hash64(),
        u64::from(packet.opcode().0) << 56
            | u64::from(packet.key.dest_qp.value()) << 32
            | u64::from(packet.psn().value()),
        u64::from(extension) << 32 | u64::from(packet.wire_bytes),
    ];
    // The finalizer of MurmurHash3 after each word.
    words.into_iter().fold(0, |hash: u64, word| {
        let mut mixed = hash.rotate_left(23) ^ word;
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
        mixed ^ mixed >> 33
    })
}

/// A finished sample, sorted by hash and time.
#[derive(Debug)]
pub(super) struct FinishedSample {
    pub(super) limit: u64,
    pub(super) packets: Vec<(u64, SampledPacket)>,
    pub(super) connections: Vec<ConnectionKey>,
    /// Resolution of the original timestamps: 1 ns, 1 us or 1 ms.
    pub(super) resolution_ns: i64,
}

impl FinishedSample {
    pub(super) fn below(&self, limit: u64) -> impl Iterator<Item = &[(u64, SampledPacket)]> {
        let until = self.packets.partition_point(|(hash, _)| *hash < limit);
        self.packets[..until].chunk_by(|a, b| a.0 == b.0)
    }

    pub(super) fn span_ns(&self) -> Option<(i64, i64)> {
        let times = || self.packets.iter().map(|(_, packet)| packet.time_ns);
        times().min().zip(times().max())
    }
}
