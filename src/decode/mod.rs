//! Decodes a batch of records into packet records and counts.
//!
//! Every worker decodes batches at the same time. Invariant: the result depends only on the batch
//! and its own framing, so batches can be decoded in any order.

mod deal;
mod health;
mod inspect;
mod samples;

pub use inspect::inspect;

use crate::model::coverage::BatchCounts;
use crate::model::{
    Batch, Clock, Coverage, PacketFields, PacketFlags, PacketRecord, Packets, RecentSamples, SampleCounters,
    SequenceRuns, TrafficKind,
};
use deal::ShardDispatcher;
use health::FLOW_CONTROL;
use ibscope_parsers::Endpoint;
use ibscope_parsers::frame::{CaptureItem, Framing, LinkType, Record, erf};
use ibscope_parsers::ib::crc::{CrcVerdict, verify_icrc, verify_vcrc};
use ibscope_parsers::link::{Location, NotInfiniband, TunnelPath};
use ibscope_parsers::packet_summary::{
    ErfShape, EthernetShape, NativeShape, PacketShape, PacketSummary, RecordContent, SummaryConsumer,
};
use ibscope_parsers::sampled::{SampleHeader, SampledFrame};
use samples::SampledRecord;

/// Depth of the decoding, and the time window.
#[derive(Clone, Debug)]
pub struct DecodeOptions {
    /// Compute the checksums of every packet that was captured in full: ICRC, and VCRC if the
    /// capture has it.
    pub check_icrc: bool,
    /// Pass payloads on. Otherwise packets look as if the capture had truncated them; checksums are
    /// computed all the same.
    pub payload: bool,
    /// Start of the time window, nanoseconds since the epoch.
    pub from_ns: i64,
    /// End of the time window (exclusive), nanoseconds since the epoch.
    pub to_ns: i64,
    /// Clock corrections by input, applied before any other step. May be shorter than the list of
    /// inputs.
    pub clocks: Vec<Option<Clock>>,
    /// By input: offset of the first new record. Records before it are in an earlier file of the
    /// stream and count there. May be shorter than the list of inputs.
    pub new_from_bytes: Vec<u64>,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self {
            check_icrc: true,
            payload: true,
            from_ns: i64::MIN,
            to_ns: i64::MAX,
            clocks: Vec::new(),
            new_from_bytes: Vec::new(),
        }
    }
}

impl DecodeOptions {
    /// The same options for a selection of the inputs, in this order.
    #[must_use]
    pub fn of(&self, inputs: &[usize]) -> Self {
        let clocks = inputs.iter().map(|input| self.clocks.get(*input).copied().flatten()).collect();
        let new_from_bytes = inputs.iter().map(|input| self.new_from(*input)).collect();
        Self { clocks, new_from_bytes, ..self.clone() }
    }

    /// Offset of the first new record of an input.
    fn new_from(&self, input: usize) -> u64 {
        self.new_from_bytes.get(input).copied().unwrap_or(0)
    }

    /// True if the window includes all times.
    const fn covers_all(&self) -> bool {
        self.from_ns == i64::MIN && self.to_ns == i64::MAX
    }

    /// True if a time lies in the window. Records without a time are only in the window of all
    /// times.
    fn covers(&self, time_ns: i64) -> bool {
        if time_ns == PacketRecord::NO_TIME { self.covers_all() } else { (self.from_ns..self.to_ns).contains(&time_ns) }
    }
}

/// The packets of a batch, assigned to shards by their pair of endpoints, so that both directions
/// of a pair are in the same shard.
#[derive(Debug)]
pub struct DecodedBatch {
    /// The batch, which holds the payloads.
    pub batch: Batch,
    /// Packets by shard, each in file order.
    pub shards: Vec<Packets>,
    /// Counts of the batch.
    pub counts: BatchCounts,
}

/// Records that are processed together. Each step runs over all of them before the next one starts:
/// the processor has enough registers for one step, not for all.
const RECORDS: usize = 64;

/// Decodes a batch. `shards` are the lists that its packets are assigned to, at least one; their
/// old contents are dropped.
///
/// The framing accepted the records when the batch was split off, so it cannot reject one now; if
/// it did, the batch would end there.
#[must_use]
pub fn decode(batch: Batch, options: &DecodeOptions, shards: Vec<Packets>) -> DecodedBatch {
    decode_without(batch, options, shards, Vec::new())
}

/// Leaves out the samples that the input has already: those of datagrams that arrived twice. `recent`
/// are the samples of the batches before this one, in file order.
#[must_use]
pub fn without_repeated_samples(
    decoded: DecodedBatch,
    options: &DecodeOptions,
    recent: &mut RecentSamples,
) -> DecodedBatch {
    let repeated = recent.repeated(decoded.counts.sequences.fingerprints());
    // Few captures have any. Decoding again corrects all counts.
    if repeated.is_empty() { decoded } else { decode_without(decoded.batch, options, decoded.shards, repeated) }
}

/// Decodes a batch without the samples at these positions.
fn decode_without(
    batch: Batch,
    options: &DecodeOptions,
    shards: Vec<Packets>,
    repeated_samples: Vec<usize>,
) -> DecodedBatch {
    let mut framing = batch.framing.clone();
    let mut decoder = Decoder {
        bytes: &batch.bytes,
        options,
        clock: options.clocks.get(batch.input as usize).copied().flatten(),
        counts: BatchCounts { sequences: SequenceRuns::without(repeated_samples), ..BatchCounts::default() },
        times: BatchTimes::NONE,
        times_ns: Vec::with_capacity(RECORDS),
        packets: ShardDispatcher::new(shards, batch.bytes.len()),
    };
    let mut records: Vec<Record<'_>> = Vec::with_capacity(RECORDS);
    let repeated_bytes = options.new_from(batch.input as usize).saturating_sub(batch.offset_bytes) as usize;
    let (new_from, repeated) = pass_repeated(&mut framing, &batch.bytes, repeated_bytes);
    decoder.counts.counts.overlap_packets = repeated;
    let before = framing.interface_drops();
    let states_losses = states_losses(&framing);
    framing.walk(&batch.bytes[new_from..], |item| match item {
        CaptureItem::Record(record) => {
            if states_losses {
                decoder.counts.counts.interface_drops += erf::lost_before(record.data);
            }
            records.push(*record);
            if records.len() == RECORDS {
                decoder.records(&mut records);
            }
        }
        CaptureItem::Statistics(_) | CaptureItem::Other => {}
    });
    decoder.records(&mut records);
    let Decoder { mut counts, times, packets, .. } = decoder;
    times.finish(&mut counts);
    let drops = framing.interface_drops();
    counts.counts.interface_drops += drops.packets.saturating_sub(before.packets);
    counts.counts.statistics_left_out = drops.left_out - before.left_out;
    let steps_ns = framing.interfaces().iter().map(|interface| interface.resolution.step_ns());
    counts.counts.clock_ns = steps_ns.max().unwrap_or(0);
    DecodedBatch { shards: packets.finish(), batch, counts }
}

/// Passes the records at the start of a batch that an earlier file has too: those whose captured bytes
/// start before `repeated_bytes`, and the blocks between them. Returns the offset after them, and their
/// number.
fn pass_repeated(framing: &mut Framing, bytes: &[u8], repeated_bytes: usize) -> (usize, u64) {
    let (mut at, mut records) = (0, 0);
    while at < repeated_bytes.min(bytes.len()) {
        let before = framing.clone();
        match framing.next(&bytes[at..]) {
            Ok((CaptureItem::Record(record), _)) if data_offset(bytes, record.data) >= repeated_bytes => {
                *framing = before;
                break;
            }
            Ok((item, length)) => {
                records += u64::from(matches!(item, CaptureItem::Record(_)));
                at += length;
            }
            // The walk from here on ends with the same error.
            Err(_) => break,
        }
    }
    (at, records)
}

/// True if records state in their headers how many packets were lost before them, and no block does:
/// ERF in a classic file.
fn states_losses(framing: &Framing) -> bool {
    let is_erf = || framing.interfaces().iter().any(|interface| interface.link_type == LinkType::ERF);
    matches!(framing, Framing::Pcap(_)) && is_erf()
}

/// State while a batch is decoded.
struct Decoder<'a> {
    bytes: &'a [u8],
    options: &'a DecodeOptions,
    clock: Option<Clock>,
    counts: BatchCounts,
    times: BatchTimes,
    /// Times of the current records; [`PacketRecord::NO_TIME`] if a record has none.
    times_ns: Vec<i64>,
    packets: ShardDispatcher,
}

impl Decoder<'_> {
    /// Processes these records and clears the list.
    #[inline(never)]
    fn records(&mut self, records: &mut Vec<Record<'_>>) {
        self.timestamps(records);
        // Nearly always all of them have one link type; records with another one take the slow
        // path.
        match records.first().map_or(LinkType::RAW, |record| record.link_type) {
            LinkType::ERF => self.packets::<ErfShape>(records),
            LinkType::ETHERNET => self.packets::<EthernetShape>(records),
            _ => self.packets::<NativeShape>(records),
        }
        records.clear();
    }

    fn packets<S: PacketShape>(&mut self, records: &[Record<'_>]) {
        let Self { bytes, options, counts, times_ns, packets, .. } = self;
        for (record, time_ns) in records.iter().zip(times_ns) {
            let place = (*time_ns, data_offset(bytes, record.data));
            let usual = CommonShapePacket { record, place, options, counts: &mut counts.counts, packets };
            let is_usual =
                record.link_type == S::LINK_TYPE && S::quick(record.data, record.original_bytes, usual).is_some();
            if !is_usual {
                uncommon_shape(record, place, options, counts, packets);
            }
        }
    }

    /// Counts records and their times, and drops those outside the window.
    fn timestamps(&mut self, records: &mut Vec<Record<'_>>) {
        let Self { options, clock, counts, times, times_ns, .. } = self;
        counts.counts.records += records.len() as u64;
        times_ns.clear();
        times_ns.extend(records.iter().map(|record| time_ns(record).unwrap_or(PacketRecord::NO_TIME)));
        if let Some(clock) = clock {
            let with_time = times_ns.iter_mut().filter(|time_ns| **time_ns != PacketRecord::NO_TIME);
            with_time.for_each(|time_ns| *time_ns = clock.corrected_ns(*time_ns));
        }
        times.add(times_ns);
        if !options.covers_all() {
            let before = records.len();
            let mut covered = times_ns.iter().map(|time_ns| options.covers(*time_ns));
            records.retain(|_| covered.next().unwrap_or(false));
            times_ns.retain(|time_ns| options.covers(*time_ns));
            counts.counts.outside_window += (before - records.len()) as u64;
        }
        // The uncorrected times: correction may make different times equal.
        counts.timestamps.add(records.iter().filter_map(|record| Some((record.time_ns?, record.original_bytes))));
    }
}

/// Offset of `data` within `bytes`, which contains it.
#[inline]
fn data_offset(bytes: &[u8], data: &[u8]) -> usize {
    data.as_ptr().addr().wrapping_sub(bytes.as_ptr().addr())
}

/// Receives a packet of a common shape.
struct CommonShapePacket<'a> {
    record: &'a Record<'a>,
    place: (i64, usize),
    options: &'a DecodeOptions,
    counts: &'a mut Coverage,
    packets: &'a mut ShardDispatcher,
}

impl SummaryConsumer for CommonShapePacket<'_> {
    type Output = ();

    #[expect(clippy::inline_always, reason = "the packet is in registers")]
    #[inline(always)]
    fn consume(self, brief: PacketSummary) {
        count_packet(&brief, self.record, self.place, self.options, self.counts, self.packets);
    }
}

/// Decodes a record of any shape.
#[inline(never)]
fn uncommon_shape(
    record: &Record<'_>,
    place: (i64, usize),
    options: &DecodeOptions,
    counts: &mut BatchCounts,
    packets: &mut ShardDispatcher,
) {
    let path = TunnelPath::default();
    if !samples_of_record((record, &path), place, options, counts, packets) {
        frame_in_tunnels(record, path, place, options, counts, packets);
    }
}

/// Decodes a sampled frame. The record holds the sample, and `path` are the tunnels around it. False if
/// the input has the sample already.
fn sampled_frame(
    (record, path): (&Record<'_>, &TunnelPath),
    frame: &SampledFrame<'_>,
    (time_ns, data_offset_of_record): (i64, usize),
    options: &DecodeOptions,
    counts: &mut BatchCounts,
    packets: &mut ShardDispatcher,
) -> bool {
    let SampleHeader { session, sequence, one_in, pool, drops, uptime_ms } = frame.header;
    let counters = SampleCounters { sequence, uptime_ms, pool, drops, time_ns };
    if !counts.sequences.add_sample(session, counters, samples::fingerprint(frame)) {
        counts.counts.repeated_samples += 1;
        return false;
    }
    let Some((sampled, path)) = samples::record_of(record, path, frame) else {
        counts.add_other(path, NotInfiniband::TooDeep);
        return true;
    };
    let place = (time_ns, data_offset_of_record + data_offset(record.data, sampled.data));
    if let Some(pair) = frame_in_tunnels(&sampled, path, place, options, counts, packets) {
        counts.counts.add_sampled(one_in, 1);
        counts.sequences.add_packet(session, pair);
    }
    true
}

/// Decodes the samples of a record. Each frame counts as a record, except those that the input has
/// already. False if there are none.
fn samples_of_record(
    (record, path): (&Record<'_>, &TunnelPath),
    place: (i64, usize),
    options: &DecodeOptions,
    counts: &mut BatchCounts,
    packets: &mut ShardDispatcher,
) -> bool {
    let (mut frames, mut records) = (0, 0);
    for sample in samples::of_record(record, path) {
        let mut is_repeated = false;
        match sample {
            SampledRecord::Frame(frame) => {
                is_repeated = !sampled_frame((record, path), &frame, place, options, counts, packets);
            }
            SampledRecord::Unread(what) => counts.add_unread(path, what),
            SampledRecord::Failed(error) => counts.add_failed(&error),
        }
        frames += 1;
        records += u64::from(!is_repeated);
    }
    if frames > 0 {
        // The record counts already.
        counts.counts.records = counts.counts.records - 1 + records;
    }
    frames > 0
}

/// Decodes a frame at the end of this path. Returns the ends of an InfiniBand packet.
fn frame_in_tunnels(
    record: &Record<'_>,
    mut path: TunnelPath,
    place: (i64, usize),
    options: &DecodeOptions,
    counts: &mut BatchCounts,
    packets: &mut ShardDispatcher,
) -> Option<(Endpoint, Endpoint)> {
    let is_sample = !path.kinds().is_empty();
    let content = PacketSummary::read_in_tunnels(record, &mut path);
    // Samples have counters, which were added before.
    if let Some(mirror) = path.mirror().filter(|mirror| !mirror.session.is_sampler()) {
        counts.sequences.add(&mirror);
    }
    match content {
        Ok(RecordContent::Infiniband(brief)) => {
            if let Some(kind) = path.outermost() {
                *counts.encapsulated.entry(kind).or_default() += 1;
            }
            // A packet of a common shape is whole, and its opcode is known.
            if record.data.len() < brief.location.end() {
                counts.counts.truncated += 1;
                counts.counts.longest_truncated_bytes = counts.counts.longest_truncated_bytes.max(record.data.len());
            }
            counts.counts.unknown_opcode += u64::from(!brief.bth.opcode.is_known());
            count_packet(&brief, record, place, options, &mut counts.counts, packets);
            return Some((brief.location.src, brief.location.dst));
        }
        Ok(RecordContent::Other(_))
            if !is_sample && samples_of_record((record, &path), place, options, counts, packets) => {}
        Ok(RecordContent::Other(what)) => {
            counts.add_other(&path, what);
            if what == NotInfiniband::EtherType(FLOW_CONTROL) {
                health::count_pause(record, place.0, path.frame_at(), counts);
            }
        }
        Err(error) => counts.add_failed(&error),
    }
    None
}

/// Counts a packet and puts it into its shard.
#[expect(clippy::inline_always, reason = "a copy of its own for packets that are in registers")]
#[inline(always)]
fn count_packet(
    brief: &PacketSummary,
    record: &Record<'_>,
    (time_ns, data_offset): (i64, usize),
    options: &DecodeOptions,
    counts: &mut Coverage,
    packets: &mut ShardDispatcher,
) {
    let PacketSummary { location, bth, .. } = brief;
    let route = packets.add((location.src, location.dst), bth.opcode, bth.dest_qp, brief.extension, brief.path);
    counts.infiniband += 1;
    // Copies the location only where needed, so that for most packets it stays in registers.
    let (crc_flags, has_right_icrc) = if options.check_icrc {
        check_crcs(record.data, &{ *location }, counts)
    } else {
        (PacketFlags::default(), false)
    };
    let packet_flags = crc_flags.union(health::congestion_flags(record.data, location, bth));
    match route.kind {
        TrafficKind::Data => {}
        TrafficKind::Management => counts.management += 1,
        TrafficKind::Multicast => counts.multicast += 1,
    }
    packets.put(
        route,
        PacketRecord::new(PacketFields {
            time_ns,
            opcode: bth.opcode,
            slot: route.slot,
            kind: route.kind,
            psn: bth.psn,
            ack_requested: bth.ack_req,
            packet_flags,
            wire_bytes: location.wire_bytes,
            extension: brief.extension,
            has_right_icrc,
            payload_offset: (data_offset + brief.payload_offset) as u32,
            has_extension_headers: brief.payload_offset <= record.data.len(),
            payload_bytes: brief.payload_bytes as u16,
            captured_payload_bytes: if options.payload { brief.captured_payload_bytes as u16 } else { 0 },
        }),
    );
}

/// Checks both checksums, as far as the packet was captured. Returns the flags, and whether the ICRC
/// is right.
#[inline(never)]
fn check_crcs(data: &[u8], location: &Location, counts: &mut Coverage) -> (PacketFlags, bool) {
    let tally = |verdict, ok: &mut u64, bad: &mut u64| {
        *ok += u64::from(verdict == CrcVerdict::Ok);
        *bad += u64::from(verdict == CrcVerdict::Bad);
        verdict == CrcVerdict::Bad
    };
    let icrc = verify_icrc(data, location);
    let icrc_bad = tally(icrc, &mut counts.icrc_ok, &mut counts.icrc_bad);
    let vcrc_bad = tally(verify_vcrc(data, location), &mut counts.vcrc_ok, &mut counts.vcrc_bad);
    let flags = PacketFlags::ICRC_BAD.set_if(icrc_bad).union(PacketFlags::VCRC_BAD.set_if(vcrc_bad));
    (flags, icrc == CrcVerdict::Ok)
}

/// The time of a record, kept away from the ends of the 64-bit range: it must not look like a
/// missing time, nor lie outside every window.
#[inline]
fn time_ns(record: &Record<'_>) -> Option<i64> {
    record.time_ns.map(|time_ns| time_ns.clamp(PacketRecord::NO_TIME + 1, i64::MAX - 1))
}

/// The times of a batch's records.
#[derive(Clone, Copy)]
struct BatchTimes {
    /// First and last time in file order; unset while `earliest_ns` is above `latest_ns`.
    first_ns: i64,
    last_ns: i64,
    earliest_ns: i64,
    latest_ns: i64,
    backwards: u64,
    /// Largest step from a record to an earlier one.
    longest_backwards_ns: i64,
    without: u64,
}

impl BatchTimes {
    const NONE: Self = Self {
        first_ns: 0,
        last_ns: i64::MIN,
        earliest_ns: i64::MAX,
        latest_ns: i64::MIN,
        backwards: 0,
        longest_backwards_ns: 0,
        without: 0,
    };

    /// Adds the next times; [`PacketRecord::NO_TIME`] if a record has none.
    fn add(&mut self, times_ns: &[i64]) {
        // By value, so that the loop keeps the fields in registers.
        *self = times_ns.iter().fold(*self, |times, &time_ns| times.and(time_ns));
    }

    #[inline]
    fn and(mut self, time_ns: i64) -> Self {
        if time_ns == PacketRecord::NO_TIME {
            self.without += 1;
            return self;
        }
        if self.earliest_ns > self.latest_ns {
            self.first_ns = time_ns;
        }
        self.backwards += u64::from(time_ns < self.last_ns);
        self.longest_backwards_ns = self.longest_backwards_ns.max(self.last_ns.saturating_sub(time_ns));
        self.last_ns = time_ns;
        self.earliest_ns = self.earliest_ns.min(time_ns);
        self.latest_ns = self.latest_ns.max(time_ns);
        self
    }

    fn finish(&self, counts: &mut BatchCounts) {
        counts.counts.time_backwards = self.backwards;
        counts.counts.longest_backwards_ns = self.longest_backwards_ns;
        counts.counts.without_time = self.without;
        if self.earliest_ns <= self.latest_ns {
            counts.times_ns = Some((self.first_ns, self.last_ns));
            counts.counts.first_time_ns = Some(self.earliest_ns);
            counts.counts.last_time_ns = Some(self.latest_ns);
        }
    }
}
