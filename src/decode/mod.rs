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
use ibscope_parsers::ib::Packet;
use ibscope_parsers::ib::crc::{CrcVerdict, verify_icrc, verify_vcrc};
use ibscope_parsers::link::{self, Located, Location, NotInfiniband};

/// What to decode, and which part of the time.
#[derive(Clone, Debug)]
pub struct Options {
    /// Compute the check sums of every packet that was captured whole: ICRC, and VCRC where the capture has it.
    pub check_icrc: bool,
    /// First time that counts, nanoseconds since the epoch.
    pub from_ns: i64,
    /// First time that no longer counts, nanoseconds since the epoch.
    pub to_ns: i64,
    /// By input: what its times are corrected by, before anything else sees them. May be shorter than there are inputs.
    pub clocks: Vec<Option<Clock>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { check_icrc: true, from_ns: i64::MIN, to_ns: i64::MAX, clocks: Vec::new() }
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
    let mut at = 0;
    while let Some(rest) = batch.bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let Ok((item, length)) = framing.next(rest) else { break };
        match item {
            Item::Record(record) => {
                let time_ns = match &clock {
                    Some(clock) => time_ns(&record).map(|time_ns| clock.corrected_ns(time_ns)),
                    None => time_ns(&record),
                };
                let packet = packet(&record, (time_ns, at + data_offset(rest, record.data)), options, &mut counts);
                if let Some(packet) = packet
                    && let Some(shard) = packets.get_mut(shard_of(&packet, shards))
                {
                    shard.push(packet);
                }
            }
            Item::Statistics(statistics) => counts.statistics.push(statistics),
            Item::Other => {}
        }
        at += length;
    }
    let steps_ns = framing.interfaces().iter().map(|interface| interface.resolution.step_ns());
    counts.counts.clock_ns = steps_ns.max().unwrap_or(0);
    Decoded { batch, shards: packets, counts }
}

/// Where `data` starts within `rest`, of which it is a part.
fn data_offset(rest: &[u8], data: &[u8]) -> usize {
    data.as_ptr().addr().wrapping_sub(rest.as_ptr().addr())
}

/// Endpoints in either order give the same shard.
fn shard_of(packet: &PacketRecord, shards: usize) -> usize {
    let (a, b) = (packet.src.hash64(), packet.dst.hash64());
    // The sum is symmetric; the multiplication spreads its low bits to the top.
    (a.wrapping_add(b).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize % shards
}

fn packet(
    record: &Record<'_>,
    (time_ns, data_offset): (Option<i64>, usize),
    options: &Options,
    counts: &mut BatchCounts,
) -> Option<PacketRecord> {
    count_time(time_ns, counts);
    counts.counts.records += 1;
    if !options.covers(time_ns) {
        counts.counts.outside_window += 1;
        return None;
    }
    // As it was stamped: corrected, times that differ may become one.
    if let Some(time_ns) = record.time_ns {
        counts.stamps.add(time_ns, record.original_bytes);
    }
    let location = match link::locate(record.link_type, record.data, record.original_bytes) {
        Ok(Located::Infiniband(location)) => location,
        Ok(Located::Other(what)) => {
            *counts.other.entry(what).or_default() += 1;
            if what == NotInfiniband::EtherType(FLOW_CONTROL) {
                health::count_pause(record, counts);
            }
            return None;
        }
        Err(error) => {
            *counts.failed.entry((error.layer, error.is_truncated())).or_default() += 1;
            return None;
        }
    };
    let headers = match Packet::parse_lax(record.data, &location) {
        // A packet that the capture cut is counted with its true lengths; one that contradicts itself is not.
        Ok(Packet { stop: Some(error), .. }) if !error.is_truncated() => Err(error),
        parsed => parsed,
    };
    let headers = match headers {
        Ok(headers) => headers,
        Err(error) => {
            *counts.failed.entry((error.layer, error.is_truncated())).or_default() += 1;
            return None;
        }
    };
    let kind = if headers.bth.dest_qp.is_management() {
        counts.counts.management += 1;
        Kind::Management
    } else if is_group(location.src) || is_group(location.dst) {
        counts.counts.multicast += 1;
        Kind::Multicast
    } else {
        Kind::Data
    };
    counts.counts.infiniband += 1;
    counts.counts.truncated += u64::from(record.data.len() < location.start + location.ib_bytes);
    counts.counts.unknown_opcode += u64::from(!headers.bth.opcode.is_known());
    let damage = if options.check_icrc { check(record.data, &location, &mut counts.counts) } else { Marks::default() };
    let marks = damage.and(health::congestion(record.data, &location, &headers.bth));
    let packet = PacketRecord::new(
        time_ns.unwrap_or(PacketRecord::NO_TIME),
        (location.src, location.dst),
        (headers.bth.opcode, headers.bth.dest_qp),
        (kind, headers.bth.psn, headers.bth.ack_req),
        location.wire_bytes,
        extension(&headers),
        (data_offset + headers.payload_offset) as u32,
        (headers.payload_bytes as u16, headers.payload.len() as u16),
    );
    Some(packet.marked(marks))
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

/// The one word of the extension headers that flows need.
fn extension(headers: &Packet<'_>) -> u32 {
    let ext = &headers.ext;
    if let Some(deth) = ext.deth {
        deth.src_qp.value()
    } else if let Some(reth) = ext.reth {
        reth.dma_len
    } else {
        ext.aeth.map_or(0, |aeth| u32::from(aeth.syndrome) << 24 | aeth.msn)
    }
}

/// The time of a record. One at the end of what 64 bits hold is not to be taken for none, nor to lie outside every window.
fn time_ns(record: &Record<'_>) -> Option<i64> {
    record.time_ns.map(|time_ns| time_ns.clamp(PacketRecord::NO_TIME + 1, i64::MAX - 1))
}

fn is_group(endpoint: ibscope_parsers::Endpoint) -> bool {
    endpoint.is_multicast() || endpoint.is_permissive()
}

fn count_time(time_ns: Option<i64>, counts: &mut BatchCounts) {
    let Some(time_ns) = time_ns else {
        counts.counts.without_time += 1;
        return;
    };
    match &mut counts.times_ns {
        Some((_, last)) => {
            counts.counts.time_backwards += u64::from(time_ns < *last);
            *last = time_ns;
        }
        None => counts.times_ns = Some((time_ns, time_ns)),
    }
    let (first, last) = (&mut counts.counts.first_time_ns, &mut counts.counts.last_time_ns);
    *first = Some(first.map_or(time_ns, |first| first.min(time_ns)));
    *last = Some(last.map_or(time_ns, |last| last.max(time_ns)));
}
