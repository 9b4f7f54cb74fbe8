//! Batch of records -> packet records and counts.
//!
//! Runs on every worker at once and knows no state but the batch's own framing, so batches can be decoded in any order.

mod health;
mod inspect;

pub use inspect::inspect;

use crate::model::coverage::BatchCounts;
use crate::model::{Batch, Clock, Coverage, Kind, Marks, PacketRecord};
use health::FLOW_CONTROL;
use ibscope_parsers::frame::{Item, Record};
use ibscope_parsers::ib::crc::{CrcVerdict, verify_icrc, verify_vcrc};
use ibscope_parsers::link::{Location, NotInfiniband};
use ibscope_parsers::{Brief, Content, Endpoint};

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
    /// Records without a time belong to no window, unless every time is asked for.
    fn covers(&self, time_ns: Option<i64>) -> bool {
        match time_ns {
            Some(time_ns) => (self.from_ns..self.to_ns).contains(&time_ns),
            None => self.from_ns == i64::MIN && self.to_ns == i64::MAX,
        }
    }
}

/// The packets of a batch, dealt to `shards` by the pair of their endpoints: both directions of a pair come to one shard.
#[derive(Debug)]
pub struct Decoded {
    /// The batch itself, for payloads.
    pub batch: Batch,
    /// Packets by shard, each in file order.
    pub shards: Vec<Vec<PacketRecord>>,
    /// What was counted on the way.
    pub counts: BatchCounts,
}

/// Decodes a batch. The framing has accepted its records before (that is how it was cut), so a record that it refuses now
/// cannot be; it would end the batch.
#[must_use]
pub fn decode(batch: Batch, options: &Options, shards: usize) -> Decoded {
    // Room for packets of 128 bytes, twice over because pairs are dealt unevenly.
    let room = batch.bytes.len() / 64 / shards.max(1);
    let mut packets: Vec<Vec<PacketRecord>> = (0..shards).map(|_| Vec::with_capacity(room)).collect();
    let mut counts = BatchCounts::default();
    let mut framing = batch.framing.clone();
    let clock = options.clocks.get(batch.input as usize).copied().flatten();
    let mut times = Times::NONE;
    framing.walk(&batch.bytes, |item| match item {
        Item::Record(record) => {
            let time_ns = match &clock {
                Some(clock) => time_ns(record).map(|time_ns| clock.corrected_ns(time_ns)),
                None => time_ns(record),
            };
            let data_offset = data_offset(&batch.bytes, record.data);
            let place = (time_ns, data_offset);
            times.add(time_ns);
            if !count(record, time_ns, options, &mut counts) {
                return;
            }
            // The packet of a common shape stays in registers: the other way has a copy of its own of what follows.
            match Brief::quick(record) {
                Some(brief) => packet(&brief, record, place, options, &mut counts, &mut packets),
                None => unusual(record, place, options, &mut counts, &mut packets),
            }
        }
        Item::Statistics(statistics) => counts.statistics.push(*statistics),
        Item::Other => {}
    });
    times.finish(&mut counts);
    let steps_ns = framing.interfaces().iter().map(|interface| interface.resolution.step_ns());
    counts.counts.clock_ns = steps_ns.max().unwrap_or(0);
    Decoded { batch, shards: packets, counts }
}

/// Where `data` starts within `bytes`, of which it is a part.
#[inline]
fn data_offset(bytes: &[u8], data: &[u8]) -> usize {
    data.as_ptr().addr().wrapping_sub(bytes.as_ptr().addr())
}

/// Endpoints in either order give the same shard.
#[inline]
fn shard_of(src: Endpoint, dst: Endpoint, shards: usize) -> usize {
    // The sum is symmetric; the multiplication spreads its low bits to the top, and the upper half of a product is as good as a remainder.
    let mixed = src.hash64().wrapping_add(dst.hash64()).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    ((mixed * shards as u64) >> 32) as usize
}

/// Counts a record; false where it lies outside the window.
#[inline]
fn count(record: &Record<'_>, time_ns: Option<i64>, options: &Options, counts: &mut BatchCounts) -> bool {
    counts.counts.records += 1;
    if !options.covers(time_ns) {
        counts.counts.outside_window += 1;
        return false;
    }
    // As it was stamped: corrected, times that differ may become one.
    if let Some(time_ns) = record.time_ns {
        counts.stamps.add(time_ns, record.original_bytes);
    }
    true
}

/// A record of any shape, or of none.
#[inline(never)]
fn unusual(
    record: &Record<'_>,
    place: (Option<i64>, usize),
    options: &Options,
    counts: &mut BatchCounts,
    shards: &mut [Vec<PacketRecord>],
) {
    match Brief::read(record) {
        Ok(Content::Infiniband(brief)) => packet(&brief, record, place, options, counts, shards),
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
    (time_ns, data_offset): (Option<i64>, usize),
    options: &Options,
    counts: &mut BatchCounts,
    shards: &mut [Vec<PacketRecord>],
) {
    let Brief { location, bth, .. } = brief;
    let kind = Kind::of(location.src, location.dst, bth.dest_qp);
    match kind {
        Kind::Data => {}
        Kind::Management => counts.counts.management += 1,
        Kind::Multicast => counts.counts.multicast += 1,
    }
    counts.counts.infiniband += 1;
    counts.counts.truncated += u64::from(record.data.len() < location.start + location.ib_bytes);
    counts.counts.unknown_opcode += u64::from(!bth.opcode.is_known());
    let damage = if options.check_icrc { check(record.data, location, &mut counts.counts) } else { Marks::default() };
    let marks = damage.and(health::congestion(record.data, location, bth));
    let shard = shard_of(location.src, location.dst, shards.len());
    let Some(shard) = shards.get_mut(shard) else { return };
    let packet = PacketRecord::new(
        time_ns.unwrap_or(PacketRecord::NO_TIME),
        (location.src, location.dst),
        (bth.opcode, bth.dest_qp),
        (kind, bth.psn, bth.ack_req),
        location.wire_bytes,
        brief.extension,
        (data_offset + brief.payload_offset) as u32,
        (brief.payload_bytes as u16, if options.payload { brief.captured_payload_bytes as u16 } else { 0 }),
    );
    shard.push(packet.marked(marks));
}

/// Compares both check sums with the packet's bytes, as far as they were captured.
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

/// The times of a batch's records, counted without asking at each whether it is the first.
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

    #[inline]
    fn add(&mut self, time_ns: Option<i64>) {
        let Some(time_ns) = time_ns else {
            self.without += 1;
            return;
        };
        if self.earliest_ns > self.latest_ns {
            self.first_ns = time_ns;
        }
        self.backwards += u64::from(time_ns < self.last_ns);
        self.last_ns = time_ns;
        self.earliest_ns = self.earliest_ns.min(time_ns);
        self.latest_ns = self.latest_ns.max(time_ns);
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
