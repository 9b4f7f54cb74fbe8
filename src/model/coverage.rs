//! How much of a capture was decoded: part of every result.

use super::pause_series::PauseSeries;
use super::sampling::rate_text;
use super::{MirrorLoss, SampleSources, SamplerSteps, SequenceRuns, TimestampStats, duration};
use ibscope_parsers::link::{NotInfiniband, TunnelKind, TunnelPath};
use ibscope_parsers::sampled::UnreadSample;
use ibscope_parsers::{Layer, ParseError};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

/// Counts over the records of one input or of all inputs. `records = infiniband + other_frames +
/// undecoded`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Packet records read.
    pub records: u64,
    /// InfiniBand packets: records with a BTH.
    pub infiniband: u64,
    /// Frames that are not InfiniBand, by kind (`TCP`, `ARP`, `UDP port 53` ...).
    pub other_frames: BTreeMap<String, u64>,
    /// Records that could not be decoded, by layer and reason; also frames that may hold RoCE and
    /// cannot be read: fragments, and tunnels with unknown content.
    pub undecoded: BTreeMap<String, u64>,
    /// InfiniBand packets in tunnels, by kind of the outermost tunnel (`ERSPAN II`, `VXLAN` ...).
    #[serde(default)]
    pub encapsulated: BTreeMap<String, u64>,
    /// Sessions of mirrors whose sequence numbers show lost frames, by name (`ERSPAN II from
    /// 10.0.0.1, session 5`).
    #[serde(default)]
    pub mirror_losses: BTreeMap<String, MirrorLoss>,
    /// Mirrored frames of sessions beyond the limit. Lost frames of these sessions are not counted.
    #[serde(default)]
    pub mirrored_frames_left_out: u64,
    /// Frames from samples, by the rate that the samples state: one of this many packets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub sampling_rates: BTreeMap<SamplingRate, u64>,
    /// Frames from samples whose rate is not kept, because there are more than `MAX_RATES`
    /// different rates.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub sampling_rates_left_out: u64,
    /// Distances between the samples of sFlow agents in packets, computed from the `sample_pool`
    /// field of the samples.
    #[serde(skip_serializing_if = "SamplerSteps::is_empty", default)]
    pub sampler_steps: SamplerSteps,
    /// Samples that the input has already, because their datagram arrived twice. No other number counts
    /// them.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub repeated_samples: u64,
    /// The sources of the samples.
    #[serde(skip_serializing_if = "SampleSources::is_empty", default)]
    pub sample_sources: SampleSources,
    /// Records outside `--from` and `--to`; of the counts above they are in `records` only.
    pub outside_window: u64,
    /// InfiniBand packets that were not captured in full.
    pub truncated: u64,
    /// Captured bytes of the longest record of these packets.
    #[serde(skip)]
    pub longest_truncated_bytes: usize,
    /// Packets with an opcode that the specification does not define.
    pub unknown_opcode: u64,
    /// Records with an earlier time than the record before.
    pub time_backwards: u64,
    /// The longest of these steps to an earlier time, in nanoseconds.
    #[serde(default)]
    pub longest_backwards_ns: i64,
    /// Records without a time (pcapng simple packets): in the matrix, not in the timeline.
    pub without_time: u64,
    /// Packets with a correct ICRC.
    pub icrc_ok: u64,
    /// Packets with a wrong ICRC.
    pub icrc_bad: u64,
    /// Native packets with a correct VCRC. If most VCRCs of an input are wrong, the input does not
    /// preserve them, and both counts are 0.
    #[serde(default)]
    pub vcrc_ok: u64,
    /// Native packets with a wrong VCRC.
    #[serde(default)]
    pub vcrc_bad: u64,
    /// Packets that the capturing interfaces report as dropped: in pcapng statistics and packet blocks, and
    /// in ERF headers.
    pub interface_drops: u64,
    /// Second copies of packets that passed two observation points of one file.
    pub mirror_copies: u64,
    /// Connections with too many runs of sequence numbers: older retransmissions were not
    /// detected.
    pub window_overflows: u64,
    /// Connections whose packets appear more often than one or two observation points explain: each packet
    /// counts once, and their retransmissions are unknown.
    #[serde(default)]
    pub unclear_copies: u64,
    /// MPI messages with a known start and an unknown end.
    pub mpi_incomplete: u64,
    /// MPI messages with a captured rank, but without tag or length (snap length): in no MPI
    /// column.
    #[serde(default)]
    pub mpi_truncated: u64,
    /// Packets that may start or end a message of the connection's library, and were captured too short
    /// to show it (snap length).
    #[serde(default)]
    pub truncated_headers: u64,
    /// Transport messages with missing packets: lost by the capture, or sent before or after it.
    #[serde(default)]
    pub messages_with_gaps: u64,
    /// Transport messages with a missing first packet: an envelope in it was not observed.
    #[serde(default)]
    pub messages_without_start: u64,
    /// Messages that ibscope stopped tracking before their end, because too many were incomplete at
    /// a time.
    #[serde(default)]
    pub messages_evicted: u64,
    /// Pause and PFC frames by MAC address of the sender and kind (`02:00:00:00:00:01 PFC`);
    /// `other_frames` counts them as flow control.
    #[serde(default)]
    pub pause_frames: BTreeMap<String, u64>,
    /// Requested pauses by sender, kind and, for PFC, class (`02:00:00:00:00:01 PFC class 3`).
    #[serde(default)]
    pub pauses: BTreeMap<String, Pauses>,
    /// The same frames over time, of all senders; frames without a time are in no bin.
    #[serde(skip_serializing_if = "PauseSeries::is_empty", default)]
    pub pause_series: PauseSeries,
    /// Packets of connections beyond `--max-connections` per input: in no table.
    #[serde(default)]
    pub untracked_packets: u64,
    /// Wire-up messages and connection messages that were counted but not kept: ranks may be
    /// unknown as a result.
    #[serde(default)]
    pub connection_messages_left_out: u64,
    /// Pause frames of senders beyond the limit: in neither of the two tables of pause frames.
    #[serde(default)]
    pub pause_frames_left_out: u64,
    /// Interface statistics of interfaces beyond the limit: drops of these interfaces are not
    /// counted.
    #[serde(default)]
    pub statistics_left_out: u64,
    /// Records that an earlier file of the same stream contains too. All other numbers count them
    /// in that file only.
    #[serde(default)]
    pub overlap_packets: u64,
    /// Packets that a later file of the same stream may contain too but that were not kept for
    /// comparison: they may count twice.
    #[serde(default)]
    pub overlap_left_out: u64,
    /// Packets that this input is missing although it observes their connections. Another input
    /// that overlaps in time holds them, and they are counted from that input.
    #[serde(default)]
    pub missing_packets: u64,
    /// Packets to queue pairs 0 and 1.
    pub management: u64,
    /// Packets from or to multicast and permissive addresses.
    pub multicast: u64,
    /// Tick of the capture's clock in nanoseconds; the longest of all interfaces.
    #[serde(default)]
    pub clock_ns: u64,
    /// Records with the same time as the record before: the clock is coarse, or packets get their
    /// timestamps in batches.
    #[serde(default)]
    pub same_time: u64,
    /// Longest run of records with one time.
    #[serde(default)]
    pub same_time_longest_run: u64,
    /// Largest sum of the bytes of a run of records with one time, without the first record of the
    /// run.
    #[serde(default)]
    pub same_time_longest_run_bytes: u64,
    /// Smallest record time in nanoseconds since the epoch.
    pub first_time_ns: Option<i64>,
    /// Largest record time in nanoseconds since the epoch.
    pub last_time_ns: Option<i64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Pauses requested by one sender of pause frames, for all its traffic or for one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pauses {
    /// Frames that request a pause.
    pub pauses: u64,
    /// Frames that end a pause (0 quanta).
    pub resumes: u64,
    /// Longest requested pause in quanta of 512 bit times.
    pub longest_quanta: u64,
    /// Sum of the requested pauses in quanta. A frame renews the pause before it, so the sum is an
    /// upper bound of the paused time.
    pub quanta: u64,
}

impl Pauses {
    /// Bits that a link sends in one quantum.
    pub const QUANTUM_BITS: u64 = 512;

    /// Adds a frame.
    pub fn add(&mut self, quanta: u16) {
        let quanta = u64::from(quanta);
        self.pauses += u64::from(quanta > 0);
        self.resumes += u64::from(quanta == 0);
        self.longest_quanta = self.longest_quanta.max(quanta);
        self.quanta += quanta;
    }

    fn merge(&mut self, other: &Self) {
        self.pauses += other.pauses;
        self.resumes += other.resumes;
        self.longest_quanta = self.longest_quanta.max(other.longest_quanta);
        self.quanta = self.quanta.saturating_add(other.quanta);
    }
}

/// Maximum number of pause frame senders that are kept. The first by name are kept, so that the
/// result does not depend on the order of the records. A link has two senders.
const MAX_PAUSE_SENDERS: usize = 1 << 10;

/// Maximum number of sampling rates 1/N that are kept: those with the smallest N. Samples of more
/// than one rate have no estimates.
const MAX_RATES: usize = 16;

/// The rate 1/N that a sample states; N need not be whole. Rates sort by N.
#[derive(Clone, Copy, Debug)]
pub struct SamplingRate(f64);

impl SamplingRate {
    /// The rate of samples that take one of this many packets.
    #[must_use]
    pub const fn new(one_in: f64) -> Self {
        Self(one_in)
    }

    /// The N of the rate.
    #[must_use]
    pub const fn one_in(self) -> f64 {
        self.0
    }
}

impl Ord for SamplingRate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for SamplingRate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SamplingRate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SamplingRate {}

impl fmt::Display for SamplingRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rate_text(self.0))
    }
}

/// A text, because it is the key of a map: `4`, or `3.3333333348855376`.
impl Serialize for SamplingRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SamplingRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let one_in = text.parse().ok().filter(|one_in: &f64| one_in.is_finite() && *one_in >= 0.0);
        one_in.map(Self).ok_or_else(|| D::Error::custom(format!("no sampling rate: {text}")))
    }
}

/// Maximum number of names of sFlow samples with unknown formats and protocols. The first ones are kept, so
/// that the result does not depend on the order of the records.
const MAX_SAMPLE_FORMATS: usize = 64;

/// What the names of unread samples start with, and the name of those beyond [`MAX_SAMPLE_FORMATS`].
const UNREAD_SAMPLE: &str = "sFlow with unknown ";
const OTHER_UNREAD_SAMPLES: &str = "sFlow with other unread samples";

impl Coverage {
    /// Adds frames from samples with this rate.
    pub fn add_sampled(&mut self, one_in: f64, frames: u64) {
        *self.sampling_rates.entry(SamplingRate::new(one_in)).or_default() += frames;
        if self.sampling_rates.len() > MAX_RATES {
            self.sampling_rates_left_out += self.sampling_rates.pop_last().map_or(0, |(_, frames)| frames);
        }
    }

    /// Drops senders of pause frames beyond the limit and counts their frames. A damaged capture
    /// may have any number of them.
    pub fn bound_pauses(&mut self) {
        while self.pause_frames.len() > MAX_PAUSE_SENDERS {
            let Some((sender, frames)) = self.pause_frames.pop_last() else { return };
            self.pause_frames_left_out += frames;
            // The classes sort directly after the sender's name, and no other name starts with it.
            let next = |pauses: &BTreeMap<String, Pauses>| Some(pauses.range(sender.clone()..).next()?.0.clone());
            while let Some(class) = next(&self.pauses).filter(|class| class.starts_with(&sender)) {
                self.pauses.remove(&class);
            }
        }
    }

    /// Drops the names of unread samples beyond the limit and counts the samples under one name. A damaged
    /// capture may have any number of formats.
    fn bound_sample_formats(&mut self) {
        let is_named = |name: &&String| name.starts_with(UNREAD_SAMPLE);
        let from = || (Bound::Included(UNREAD_SAMPLE), Bound::Unbounded);
        let named = self.undecoded.range::<str, _>(from()).map(|(name, _)| name).take_while(is_named);
        let beyond: Vec<String> = named.skip(MAX_SAMPLE_FORMATS).cloned().collect();
        for name in beyond {
            let samples = self.undecoded.remove(&name).unwrap_or(0);
            *self.undecoded.entry(OTHER_UNREAD_SAMPLES.to_owned()).or_default() += samples;
        }
    }

    /// Adds the counts of another part of the same input, or of another input.
    pub fn merge(&mut self, other: &Self) {
        self.records += other.records;
        self.infiniband += other.infiniband;
        for (into, from) in [
            (&mut self.other_frames, &other.other_frames),
            (&mut self.undecoded, &other.undecoded),
            (&mut self.pause_frames, &other.pause_frames),
            (&mut self.encapsulated, &other.encapsulated),
        ] {
            for (name, count) in from {
                *into.entry(name.clone()).or_default() += count;
            }
        }
        self.bound_sample_formats();
        for (what, pauses) in &other.pauses {
            self.pauses.entry(what.clone()).or_default().merge(pauses);
        }
        self.pause_series.merge(&other.pause_series);
        for (session, loss) in &other.mirror_losses {
            let own = self.mirror_losses.entry(session.clone()).or_default();
            own.frames += loss.frames;
            own.lost_frames += loss.lost_frames;
        }
        self.mirrored_frames_left_out += other.mirrored_frames_left_out;
        other.sampling_rates.iter().for_each(|(rate, frames)| self.add_sampled(rate.one_in(), *frames));
        self.sampling_rates_left_out += other.sampling_rates_left_out;
        self.sampler_steps.merge(&other.sampler_steps);
        self.repeated_samples += other.repeated_samples;
        self.sample_sources.merge(&other.sample_sources);
        self.pause_frames_left_out += other.pause_frames_left_out;
        self.bound_pauses();
        self.outside_window += other.outside_window;
        self.truncated += other.truncated;
        self.longest_truncated_bytes = self.longest_truncated_bytes.max(other.longest_truncated_bytes);
        self.unknown_opcode += other.unknown_opcode;
        self.time_backwards += other.time_backwards;
        self.longest_backwards_ns = self.longest_backwards_ns.max(other.longest_backwards_ns);
        self.without_time += other.without_time;
        self.icrc_ok += other.icrc_ok;
        self.icrc_bad += other.icrc_bad;
        self.vcrc_ok += other.vcrc_ok;
        self.vcrc_bad += other.vcrc_bad;
        self.interface_drops += other.interface_drops;
        self.mirror_copies += other.mirror_copies;
        self.window_overflows += other.window_overflows;
        self.unclear_copies += other.unclear_copies;
        self.mpi_incomplete += other.mpi_incomplete;
        self.mpi_truncated += other.mpi_truncated;
        self.truncated_headers += other.truncated_headers;
        self.messages_with_gaps += other.messages_with_gaps;
        self.messages_without_start += other.messages_without_start;
        self.messages_evicted += other.messages_evicted;
        self.untracked_packets += other.untracked_packets;
        self.connection_messages_left_out += other.connection_messages_left_out;
        self.statistics_left_out += other.statistics_left_out;
        self.overlap_packets += other.overlap_packets;
        self.overlap_left_out += other.overlap_left_out;
        self.missing_packets += other.missing_packets;
        self.management += other.management;
        self.multicast += other.multicast;
        self.clock_ns = self.clock_ns.max(other.clock_ns);
        self.same_time += other.same_time;
        self.same_time_longest_run = self.same_time_longest_run.max(other.same_time_longest_run);
        self.same_time_longest_run_bytes = self.same_time_longest_run_bytes.max(other.same_time_longest_run_bytes);
        self.first_time_ns = [self.first_time_ns, other.first_time_ns].into_iter().flatten().min();
        self.last_time_ns = [self.last_time_ns, other.last_time_ns].into_iter().flatten().max();
    }

    /// The longest step to an earlier time, as a text of three digits, rounded up.
    #[must_use]
    pub fn longest_backwards(&self) -> String {
        let ns = self.longest_backwards_ns.max(0).cast_unsigned();
        let unit_ns = 10_u64.pow(ns.checked_ilog10().unwrap_or(0).saturating_sub(2));
        duration(ns.div_ceil(unit_ns).saturating_mul(unit_ns).min(i64::MAX as u64).cast_signed())
    }

    /// True if the records are not in the order in which they were captured, as several threads of a
    /// capturing program write them. A clock that is set back makes a single step.
    #[must_use]
    pub const fn is_out_of_order(&self) -> bool {
        const FEWEST_STEPS: u64 = 16;
        /// Records for each step.
        const MOST_RECORDS: u64 = 1000;
        /// Shorter steps exchange single records. Connections keep their order, so the counts are right.
        const SHORTEST_NS: i64 = 1_000_000;
        let steps = self.time_backwards;
        steps >= FEWEST_STEPS && steps >= self.records / MOST_RECORDS && self.longest_backwards_ns >= SHORTEST_NS
    }

    /// True if the input may be several captures of the same time in one file.
    #[must_use]
    pub const fn may_be_joined(&self) -> bool {
        /// Clocks are set back by less, mostly.
        const SHORTEST_NS: i64 = 1_000_000_000;
        self.longest_backwards_ns >= SHORTEST_NS
    }

    /// InfiniBand packets in tunnels.
    #[must_use]
    pub fn encapsulated_packets(&self) -> u64 {
        self.encapsulated.values().sum()
    }

    /// Mirrored frames that were lost between the switches and the capture.
    #[must_use]
    pub fn lost_mirrored_frames(&self) -> u64 {
        self.mirror_losses.values().map(|loss| loss.lost_frames).sum()
    }

    /// Frames from samples that state a rate.
    #[must_use]
    pub fn sampled_frames(&self) -> u64 {
        self.sampling_rates.values().sum::<u64>() + self.sampling_rates_left_out
    }

    /// The rate of all packets. `None` if not all packets are from samples, or if the samples state several
    /// rates.
    #[must_use]
    pub fn common_rate(&self) -> Option<SamplingRate> {
        let rate = self.sampling_rates.keys().next().copied();
        rate.filter(|_| self.sampling_rates.len() == 1 && self.sampled_frames() == self.infiniband)
    }

    /// The N of the rate of all packets, rounded up: 1 only if each packet is a sample.
    #[must_use]
    pub fn stated_one_in(&self) -> Option<u32> {
        self.common_rate().map(|rate| rate.one_in().ceil() as u32)
    }

    /// The N of "one of N packets" for the captured samples, if the samplers take one of `one_in` packets:
    /// if this is the N of the rate of all packets, rounded up, the exact N counts. Samples that were lost,
    /// or dropped by the agent, raise N.
    #[must_use]
    pub fn with_lost_samples(&self, one_in: u32) -> f64 {
        let exact = self.common_rate().filter(|_| self.stated_one_in() == Some(one_in));
        self.sample_sources.with_lost_samples(exact.map_or(f64::from(one_in), SamplingRate::one_in))
    }

    /// Records that are not InfiniBand.
    #[must_use]
    pub fn other(&self) -> u64 {
        self.other_frames.values().sum()
    }

    /// Records that could not be decoded.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.undecoded.values().sum()
    }

    /// Percentage of the records that were understood: InfiniBand or another known kind.
    #[must_use]
    pub fn decoded_percent(&self) -> f64 {
        if self.records == 0 {
            return 100.0;
        }
        (self.records - self.failed()) as f64 * 100.0 / self.records as f64
    }
}

/// Counts of one batch, cheap to add to; converted to [`Coverage`] at the end of the batch.
#[derive(Clone, Debug, Default)]
pub struct BatchCounts {
    /// The counts without names.
    pub counts: Coverage,
    /// Other frames by the outermost tunnel and kind.
    pub other: BTreeMap<(Option<TunnelKind>, NotInfiniband), u64>,
    /// Samples without a frame that can be read, by the outermost tunnel.
    pub unread_samples: BTreeMap<(Option<TunnelKind>, UnreadSample), u64>,
    /// InfiniBand packets in tunnels by the outermost one.
    pub encapsulated: BTreeMap<TunnelKind, u64>,
    /// Sequence numbers of mirrored frames.
    pub sequences: SequenceRuns,
    /// Undecoded records by layer and whether they were truncated.
    pub failed: BTreeMap<(Layer, bool), u64>,
    /// Times of the first and last record with a time.
    pub times_ns: Option<(i64, i64)>,
    /// Statistics of equal times.
    pub timestamps: TimestampStats,
}

impl BatchCounts {
    /// Counts a frame that is not InfiniBand, and that has these tunnels around it.
    pub fn add_other(&mut self, path: &TunnelPath, what: NotInfiniband) {
        *self.other.entry((path.outermost(), what)).or_default() += 1;
    }

    /// Counts a sample without a frame that can be read, in a datagram that has these tunnels around it.
    pub fn add_unread(&mut self, path: &TunnelPath, what: UnreadSample) {
        *self.unread_samples.entry((path.outermost(), what)).or_default() += 1;
    }

    /// Counts a record that cannot be decoded.
    pub fn add_failed(&mut self, error: &ParseError) {
        *self.failed.entry((error.layer, error.is_truncated())).or_default() += 1;
    }

    /// Converts the counts to named ones.
    #[must_use]
    pub fn into_coverage(self) -> Coverage {
        let mut coverage = self.counts;
        for ((tunnel, what), count) in self.other {
            let name = match tunnel {
                Some(tunnel) if !matches!(what, NotInfiniband::TunnelPayload(kind, _) if kind == tunnel) => {
                    format!("{what} in {tunnel}")
                }
                _ => what.to_string(),
            };
            let counts = if what.may_hold_roce() { &mut coverage.undecoded } else { &mut coverage.other_frames };
            *counts.entry(name).or_default() += count;
        }
        for ((tunnel, what), count) in self.unread_samples {
            let inside = tunnel.filter(|tunnel| *tunnel != TunnelKind::Sflow);
            let inside = inside.map(|tunnel| format!(" in {tunnel}")).unwrap_or_default();
            *coverage.undecoded.entry(format!("{} with {what}{inside}", TunnelKind::Sflow)).or_default() += count;
        }
        coverage.bound_sample_formats();
        coverage.encapsulated = self.encapsulated.iter().map(|(kind, count)| (kind.to_string(), *count)).collect();
        for ((layer, is_truncated), count) in self.failed {
            let why = if is_truncated { "truncated" } else { "not valid" };
            *coverage.undecoded.entry(format!("{layer} {why}")).or_default() += count;
        }
        coverage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Classes that a sender may pause.
    const CLASSES: usize = 8;

    #[test]
    fn the_longest_step_backwards_has_three_digits() {
        for (ns, text) in
            [(0, "0 ns"), (999, "999 ns"), (99_917_859, "100 ms"), (19_912_345, "20 ms"), (19_812_345, "19.9 ms")]
        {
            assert_eq!(Coverage { longest_backwards_ns: ns, ..Coverage::default() }.longest_backwards(), text);
        }
    }

    #[test]
    fn sampling_rates_beyond_the_bound_are_counted() {
        for rates in [MAX_RATES, MAX_RATES + 1] {
            let mut coverage = Coverage::default();
            (0..rates).for_each(|rate| coverage.add_sampled(rate as f64 + 0.5, 3));
            let beyond = (rates - MAX_RATES) as u64;
            assert_eq!((coverage.sampling_rates.len(), coverage.sampling_rates_left_out), (MAX_RATES, 3 * beyond));
        }
    }

    #[test]
    fn sampling_rates_keep_their_fractions() {
        let mut coverage = Coverage { infiniband: 5, ..Coverage::default() };
        coverage.add_sampled(10.0 / 3.0, 2);
        coverage.add_sampled(10.0 / 3.0, 3);
        assert_eq!((coverage.common_rate(), coverage.stated_one_in()), (Some(SamplingRate::new(10.0 / 3.0)), Some(4)));
        assert_eq!(
            [coverage.with_lost_samples(4), coverage.with_lost_samples(7)].map(Some),
            [10.0 / 3.0, 7.0].map(Some)
        );
        coverage.add_sampled(3.0, 1);
        coverage.add_sampled(4.0, 1);
        assert_eq!(coverage.common_rate(), None);
        let text = serde_json::to_string(&coverage).expect("written");
        assert!(text.contains(r#""4":1"#), "{text}");
        assert_eq!(serde_json::from_str::<Coverage>(&text).expect("read"), coverage);
        let rates: Vec<String> = coverage.sampling_rates.keys().map(ToString::to_string).collect();
        assert_eq!(rates, ["3", "3.3", "4"]);
        assert!(
            ["NaN", "-1", "x"].iter().all(|text| serde_json::from_str::<SamplingRate>(&format!("\"{text}\"")).is_err())
        );
    }

    /// In any order of the parts, and with the samples of formats that are left out.
    #[test]
    fn unknown_sample_formats_beyond_the_bound_are_counted() {
        let of = |formats: &mut dyn Iterator<Item = usize>| {
            let mut sum = Coverage::default();
            for format in formats {
                let mut one = BatchCounts::default();
                one.add_unread(&TunnelPath::default(), UnreadSample::Format((format as u32) << 12 | 1));
                sum.merge(&one.into_coverage());
            }
            sum
        };
        for formats in [MAX_SAMPLE_FORMATS, MAX_SAMPLE_FORMATS + 1, 3 * MAX_SAMPLE_FORMATS] {
            let found = of(&mut (0..formats));
            let beyond = formats - MAX_SAMPLE_FORMATS;
            assert_eq!(found.undecoded.get(OTHER_UNREAD_SAMPLES).copied().unwrap_or(0), beyond as u64);
            assert_eq!(found.undecoded.len(), MAX_SAMPLE_FORMATS + usize::from(beyond > 0));
            assert_eq!(found.undecoded.get("sFlow with unknown sample format 0:1"), Some(&1));
            assert_eq!(of(&mut (0..formats).rev()), found);
        }
    }

    /// A dropped sender leaves no class in the other table.
    #[test]
    fn both_pause_tables_drop_the_same_senders() {
        for senders in [MAX_PAUSE_SENDERS, MAX_PAUSE_SENDERS + 1] {
            let mut coverage = Coverage::default();
            for sender in 0..senders {
                coverage.pause_frames.insert(format!("{sender:05} PFC"), 3);
                coverage.pauses.entry(format!("{sender:05} PFC class 0")).or_default().add(7);
            }
            coverage.bound_pauses();
            assert_eq!((coverage.pause_frames.len(), coverage.pauses.len()), (MAX_PAUSE_SENDERS, MAX_PAUSE_SENDERS));
            assert_eq!(coverage.pause_frames_left_out, 3 * (senders - MAX_PAUSE_SENDERS) as u64);
        }
    }

    #[test]
    fn pause_senders_are_limited_in_any_order() {
        let of = |senders: &mut dyn Iterator<Item = usize>| {
            let mut sum = Coverage::default();
            for sender in senders {
                let mut one = Coverage::default();
                one.pause_frames.insert(format!("{sender:05} PFC"), 1);
                (0..CLASSES)
                    .for_each(|class| one.pauses.entry(format!("{sender:05} PFC class {class}")).or_default().add(7));
                sum.merge(&one);
            }
            sum
        };
        let forwards = of(&mut (0..3000).chain(0..10));
        assert_eq!(
            (forwards.pause_frames.len(), forwards.pauses.len()),
            (MAX_PAUSE_SENDERS, MAX_PAUSE_SENDERS * CLASSES)
        );
        assert_eq!((forwards.pause_frames["00003 PFC"], forwards.pauses["00003 PFC class 0"].pauses), (2, 2));
        assert_eq!(of(&mut (0..10).chain((0..3000).rev())), forwards);
    }
}
