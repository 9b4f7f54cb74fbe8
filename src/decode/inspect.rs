//! Decodes a batch of records into packets with everything that `inspect` shows.

use super::samples::SampledRecord;
use super::{DecodeOptions, samples, time_ns};
use crate::model::coverage::BatchCounts;
use crate::model::{Batch, Coverage, InspectedPacket, PacketRecord};
use ibscope_parsers::ParseError;
use ibscope_parsers::frame::erf::ErfHeader;
use ibscope_parsers::frame::{CaptureItem, LinkType, Record};
use ibscope_parsers::ib::Packet;
use ibscope_parsers::ib::crc::verify_icrc;
use ibscope_parsers::link::{self, Encapsulation, LinkContent, Location, NotInfiniband, TunnelPath};
use ibscope_parsers::sampled::SampledFrame;

/// Parses all headers of a batch's InfiniBand packets. Other records, and packets with a truncated
/// BTH, are left out. The coverage counts records, InfiniBand packets and records that could not be
/// decoded. A packet with inconsistent lengths is shown as far as possible and counts as not
/// decoded, as in an analysis.
#[must_use]
pub fn inspect(batch: &Batch, options: &DecodeOptions) -> (Vec<InspectedPacket>, Coverage) {
    let mut found = InspectedPackets::default();
    let mut framing = batch.framing.clone();
    let mut frame = batch.first_record;
    framing.walk(&batch.bytes, |item| {
        let CaptureItem::Record(record) = item else { return };
        frame += 1;
        found.counts.counts.records += 1;
        if options.covers(time_ns(record).unwrap_or(PacketRecord::NO_TIME)) {
            found.record(frame, record);
        }
    });
    (found.packets, found.counts.into_coverage())
}

/// The packets so far.
#[derive(Default)]
struct InspectedPackets {
    packets: Vec<InspectedPacket>,
    counts: BatchCounts,
}

impl InspectedPackets {
    /// Adds the packet of a record, or those of the sampled frames in it. `frame` is the number of
    /// the record.
    fn record(&mut self, frame: u64, record: &Record<'_>) {
        let mut path = TunnelPath::default();
        if self.samples(frame, (record, &path)) {
            return;
        }
        let content = link::locate_in_tunnels(record.link_type, record.data, record.original_bytes, &mut path);
        if !self.samples(frame, (record, &path)) {
            self.content(frame, record, &path, content);
        }
    }

    /// Adds the packets of the samples in a record. False if there are none.
    fn samples(&mut self, frame: u64, (record, path): (&Record<'_>, &TunnelPath)) -> bool {
        let mut has_samples = false;
        for sample in samples::of_record(record, path) {
            has_samples = true;
            match sample {
                SampledRecord::Frame(sample) => self.sample(frame, (record, path), &sample),
                SampledRecord::Unread(what) => self.counts.add_unread(path, what),
                SampledRecord::Failed(error) => self.counts.add_failed(&error),
            }
        }
        has_samples
    }

    /// Adds the packet of a sampled frame.
    fn sample(&mut self, frame: u64, (record, path): (&Record<'_>, &TunnelPath), sample: &SampledFrame<'_>) {
        let Some((record, mut path)) = samples::record_of(record, path, sample) else {
            return self.counts.add_other(path, NotInfiniband::TooDeep);
        };
        let content = link::locate_in_tunnels(record.link_type, record.data, record.original_bytes, &mut path);
        self.content(frame, &record, &path, content);
    }

    /// Adds the content of a record.
    fn content(
        &mut self,
        frame: u64,
        record: &Record<'_>,
        path: &TunnelPath,
        content: Result<LinkContent, ParseError>,
    ) {
        let Self { packets, counts } = self;
        let found = match content {
            Ok(LinkContent::Infiniband(location)) => packet(frame, record, &location, path.frame_at()),
            Ok(LinkContent::Other(what)) => {
                if what.may_hold_roce() {
                    counts.add_other(path, what);
                }
                return;
            }
            Err(error) => Err(error),
        };
        match found {
            Ok((packet, contradiction)) => {
                packets.push(packet);
                match contradiction {
                    None => counts.counts.infiniband += 1,
                    Some(error) => counts.add_failed(&error),
                }
            }
            Err(error) => counts.add_failed(&error),
        }
    }
}

/// The fields to show of a packet, and the error if its lengths are inconsistent. `frame_at` is the
/// offset of its Ethernet header, if it has one.
fn packet(
    frame: u64,
    record: &Record<'_>,
    location: &Location,
    frame_at: usize,
) -> Result<(InspectedPacket, Option<ParseError>), ParseError> {
    let packet = Packet::parse_lax(record.data, location)?;
    let capture_header_bytes = match (location.encapsulation, record.link_type) {
        (Encapsulation::Native, _) => location.start,
        _ if !location.tunnels.is_empty() => frame_at,
        (_, LinkType::ERF) => ErfHeader::parse(record.data).map_or(0, |header| header.header_bytes),
        _ => 0,
    };
    let shown = InspectedPacket {
        frame,
        time_ns: time_ns(record),
        src: location.src,
        dst: location.dst,
        opcode: packet.bth.opcode,
        dest_qp: packet.bth.dest_qp,
        psn: packet.bth.psn,
        wire_bytes: location.wire_bytes,
        captured_bytes: record.data.len().saturating_sub(capture_header_bytes),
        payload_bytes: packet.payload_bytes,
        icrc: verify_icrc(record.data, location),
    };
    Ok((shown, packet.error.filter(|error| !error.is_truncated())))
}
