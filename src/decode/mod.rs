//! Batch of records -> packet records and counts.
//!
//! Runs on every worker at once and knows no state but the batch's own framing, so batches can be decoded in any order.

mod deal;
mod health;
mod inspect;

pub use inspect::inspect;

use crate::model::coverage::BatchCounts;
use crate::model::{Batch, Clock, Coverage, Kind, Marks, PacketRecord, Packets};
use deal::Dealer;
use health::FLOW_CONTROL;
use ibscope_parsers::brief::{Brief, Content, Erf, Ethernet, Native, Shape, Then};
use ibscope_parsers::frame::{Item, LinkType, Record};
use ibscope_parsers::ib::crc::{CrcVerdict, verify_icrc, verify_vcrc};
use ibscope_parsers::link::{Location, NotInfiniband};

/// What to decode, and which part of the time.
#[derive(Clone, Debug)]
pub struct Options {
    /// Compute the check sums of every packet that was captured whole: ICRC, and VCRC where the capture has it.
    pub check_icrc: bool,
    /// Let those that follow see payload. Where not, packets look as if the capture had cut it off; check sums are computed all the same.
    pub payload: bool,
    /// First time that counts, nanoseconds since the epoch.
    pub from_ns: i64,
    /// First time that no longer counts, nanoseconds since the epoch.
    pub to_ns: i64,
    /// By input: what its times are corrected by, before anything else sees them. May be shorter than there are inputs.
    pub clocks: Vec<Option<Clock>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { check_icrc: true, payload: true, from_ns: i64::MIN, to_ns: i64::MAX, clocks: Vec::new() }
    }
}

impl Options {
    /// The same where only these inputs are read, in this order.
    #[must_use]
    pub fn of(&self, inputs: &[usize]) -> Self {
        let clocks = inputs.iter().map(|input| self.clocks.get(*input).copied().flatten()).collect();
        Self { clocks, ..self.clone() }
    }

    /// Every time is asked for.
    const fn covers_all(&self) -> bool {
        self.from_ns == i64::MIN && self.to_ns == i64::MAX
    }

    /// Records without a time belong to no window, unless every time is asked for.
    fn covers(&self, time_ns: i64) -> bool {
        if time_ns == PacketRecord::NO_TIME { self.covers_all() } else { (self.from_ns..self.to_ns).contains(&time_ns) }
    }
}

/// The packets of a batch, dealt to shards by the pair of their endpoints: both directions of a pair come to one shard.
#[derive(Debug)]
pub struct Decoded {
    /// The batch itself, for payloads.
    pub batch: Batch,
    /// Packets by shard, each in file order.
    pub shards: Vec<Packets>,
    /// What was counted on the way.
    pub counts: BatchCounts,
}

/// Records that are taken at a time. What is done to one is done to all of them before the next thing is: the processor has registers for each step
/// alone, not for all of them at once.
const RECORDS: usize = 64;

/// Decodes a batch. `shards` are the lists that its packets are dealt to, one at least; what they hold is dropped.
///
/// The framing has accepted its records before (that is how it was cut), so a record that it refuses now cannot be; it would end the batch.
#[must_use]
pub fn decode(batch: Batch, options: &Options, shards: Vec<Packets>) -> Decoded {
    let mut framing = batch.framing.clone();
    let mut decoder = Decoder {
        bytes: &batch.bytes,
        options,
        clock: options.clocks.get(batch.input as usize).copied().flatten(),
        counts: BatchCounts::default(),
        times: Times::NONE,
        times_ns: Vec::with_capacity(RECORDS),
        packets: Dealer::new(shards, batch.bytes.len()),
    };
    let mut records: Vec<Record<'_>> = Vec::with_capacity(RECORDS);
    framing.walk(&batch.bytes, |item| match item {
        Item::Record(record) => {
            records.push(*record);
            if records.len() == RECORDS {
                decoder.records(&mut records);
            }
        }
        Item::Statistics(statistics) => decoder.counts.statistics.push(*statistics),
        Item::Other => {}
    });
    decoder.records(&mut records);
    let Decoder { mut counts, times, packets, .. } = decoder;
    times.finish(&mut counts);
    let steps_ns = framing.interfaces().iter().map(|interface| interface.resolution.step_ns());
    counts.counts.clock_ns = steps_ns.max().unwrap_or(0);
    Decoded { shards: packets.finish(), batch, counts }
}

/// State of a batch that is decoded.
struct Decoder<'a> {
    bytes: &'a [u8],
    options: &'a Options,
    clock: Option<Clock>,
    counts: BatchCounts,
    times: Times,
    /// Of the records that are taken, [`PacketRecord::NO_TIME`] where one has none.
    times_ns: Vec<i64>,
    packets: Dealer,
}

impl Decoder<'_> {
    /// Takes these records, and leaves none.
    #[inline(never)]
    fn records(&mut self, records: &mut Vec<Record<'_>>) {
        self.stamps(records);
        // Nearly always they are all of one link type; those of another are unusual.
        match records.first().map_or(LinkType::RAW, |record| record.link_type) {
            LinkType::ERF => self.packets::<Erf>(records),
            LinkType::ETHERNET => self.packets::<Ethernet>(records),
            _ => self.packets::<Native>(records),
        }
        records.clear();
    }

    fn packets<S: Shape>(&mut self, records: &[Record<'_>]) {
        let Self { bytes, options, counts, times_ns, packets, .. } = self;
        for (record, time_ns) in records.iter().zip(times_ns) {
            let place = (*time_ns, data_offset(bytes, record.data));
            let usual = Usual { record, place, options, counts: &mut counts.counts, packets };
            let is_usual =
                record.link_type == S::LINK_TYPE && S::quick(record.data, record.original_bytes, usual).is_some();
            if !is_usual {
                unusual(record, place, options, counts, packets);
            }
        }
    }

    /// Counts records and their times, and drops those that lie outside the window.
    fn stamps(&mut self, records: &mut Vec<Record<'_>>) {
        let Self { options, clock, counts, times, times_ns, .. } = self;
        counts.counts.records += records.len() as u64;
        times_ns.clear();
        times_ns.extend(records.iter().map(|record| time_ns(record).unwrap_or(PacketRecord::NO_TIME)));
        if let Some(clock) = clock {
            let stamped = times_ns.iter_mut().filter(|time_ns| **time_ns != PacketRecord::NO_TIME);
            stamped.for_each(|time_ns| *time_ns = clock.corrected_ns(*time_ns));
        }
        times.add(times_ns);
        if !options.covers_all() {
            let before = records.len();
            let mut covered = times_ns.iter().map(|time_ns| options.covers(*time_ns));
            records.retain(|_| covered.next().unwrap_or(false));
            times_ns.retain(|time_ns| options.covers(*time_ns));
            counts.counts.outside_window += (before - records.len()) as u64;
        }
        // As they were stamped: corrected, times that differ may become one.
        counts.stamps.add(records.iter().filter_map(|record| Some((record.time_ns?, record.original_bytes))));
    }
}

/// Where `data` starts within `bytes`, of which it is a part.
#[inline]
fn data_offset(bytes: &[u8], data: &[u8]) -> usize {
    data.as_ptr().addr().wrapping_sub(bytes.as_ptr().addr())
}

/// A packet of a common shape.
struct Usual<'a> {
    record: &'a Record<'a>,
    place: (i64, usize),
    options: &'a Options,
    counts: &'a mut Coverage,
    packets: &'a mut Dealer,
}

impl Then for Usual<'_> {
    type Output = ();

    #[expect(clippy::inline_always, reason = "the packet is in registers")]
    #[inline(always)]
    fn then(self, brief: Brief) {
        packet(&brief, self.record, self.place, self.options, self.counts, self.packets);
    }
}

/// A record of any shape, or of none.
#[inline(never)]
fn unusual(
    record: &Record<'_>,
    place: (i64, usize),
    options: &Options,
    counts: &mut BatchCounts,
    packets: &mut Dealer,
) {
    match Brief::read(record) {
        Ok(Content::Infiniband(brief)) => packet(&brief, record, place, options, &mut counts.counts, packets),
        Ok(Content::Other(what)) => {
            *counts.other.entry(what).or_default() += 1;
            if what == NotInfiniband::EtherType(FLOW_CONTROL) {
                health::count_pause(record, counts);
            }
        }
        Err(error) => *counts.failed.entry((error.layer, error.is_truncated())).or_default() += 1,
    }
}

/// Counts a packet and puts it into its shard.
#[expect(clippy::inline_always, reason = "a copy of its own for packets that are in registers")]
#[inline(always)]
fn packet(
    brief: &Brief,
    record: &Record<'_>,
    (time_ns, data_offset): (i64, usize),
    options: &Options,
    counts: &mut Coverage,
    packets: &mut Dealer,
) {
    let Brief { location, bth, .. } = brief;
    let dealt = packets.add((location.src, location.dst), bth.opcode, bth.dest_qp, brief.extension);
    counts.infiniband += 1;
    counts.truncated += u64::from(record.data.len() < location.end());
    counts.unknown_opcode += u64::from(!bth.opcode.is_known());
    // The copy is made where it is needed: the place of most packets then need not be in memory.
    let damage = if options.check_icrc { check(record.data, &{ *location }, counts) } else { Marks::default() };
    let marks = damage.and(health::congestion(record.data, location, bth));
    match dealt.kind {
        Kind::Data => {}
        Kind::Management => counts.management += 1,
        Kind::Multicast => counts.multicast += 1,
    }
    packets.put(
        dealt,
        PacketRecord::new(
            time_ns,
            (bth.opcode, dealt.slot),
            (dealt.kind, bth.psn, bth.ack_req),
            marks,
            location.wire_bytes,
            brief.extension,
            (data_offset + brief.payload_offset) as u32,
            (brief.payload_bytes as u16, if options.payload { brief.captured_payload_bytes as u16 } else { 0 }),
        ),
    );
}

/// Compares both check sums with the packet's bytes, as far as they were captured.
#[inline(never)]
fn check(data: &[u8], location: &Location, counts: &mut Coverage) -> Marks {
    let tally = |verdict, ok: &mut u64, bad: &mut u64| {
        *ok += u64::from(verdict == CrcVerdict::Ok);
        *bad += u64::from(verdict == CrcVerdict::Bad);
        verdict == CrcVerdict::Bad
    };
    let icrc_bad = tally(verify_icrc(data, location), &mut counts.icrc_ok, &mut counts.icrc_bad);
    let vcrc_bad = tally(verify_vcrc(data, location), &mut counts.vcrc_ok, &mut counts.vcrc_bad);
    Marks::ICRC_BAD.when(icrc_bad).and(Marks::VCRC_BAD.when(vcrc_bad))
}

/// The time of a record. One at the end of what 64 bits hold is not to be taken for none, nor to lie outside every window.
#[inline]
fn time_ns(record: &Record<'_>) -> Option<i64> {
    record.time_ns.map(|time_ns| time_ns.clamp(PacketRecord::NO_TIME + 1, i64::MAX - 1))
}

/// The times of a batch's records.
#[derive(Clone, Copy)]
struct Times {
    /// Of the first and the last record that has one; nothing where `earliest_ns` is above `latest_ns`.
    first_ns: i64,
    last_ns: i64,
    earliest_ns: i64,
    latest_ns: i64,
    backwards: u64,
    without: u64,
}

impl Times {
    const NONE: Self =
        Self { first_ns: 0, last_ns: i64::MIN, earliest_ns: i64::MAX, latest_ns: i64::MIN, backwards: 0, without: 0 };

    /// The next ones, [`PacketRecord::NO_TIME`] where there is none.
    fn add(&mut self, times_ns: &[i64]) {
        // By value: the loop then keeps them in registers.
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
        self.last_ns = time_ns;
        self.earliest_ns = self.earliest_ns.min(time_ns);
        self.latest_ns = self.latest_ns.max(time_ns);
        self
    }

    fn finish(&self, counts: &mut BatchCounts) {
        counts.counts.time_backwards = self.backwards;
        counts.counts.without_time = self.without;
        if self.earliest_ns <= self.latest_ns {
            counts.times_ns = Some((self.first_ns, self.last_ns));
            counts.counts.first_time_ns = Some(self.earliest_ns);
            counts.counts.last_time_ns = Some(self.latest_ns);
        }
    }
}
