//! Decodes a batch of records into packets with everything that `inspect` shows.

use super::{DecodeOptions, time_ns};
use crate::model::coverage::BatchCounts;
use crate::model::{Batch, Coverage, InspectedPacket, PacketRecord};
use ibscope_parsers::ParseError;
use ibscope_parsers::frame::erf::ErfHeader;
use ibscope_parsers::frame::{CaptureItem, LinkType, Record};
use ibscope_parsers::ib::Packet;
use ibscope_parsers::ib::crc::verify_icrc;
use ibscope_parsers::link::{self, Encapsulation, LinkContent, Location, TunnelPath};
use ibscope_parsers::sampled::{self, SampledFrame, SflowDatagram, SflowSample};

/// Parses all headers of a batch's InfiniBand packets. Other records, and packets with a truncated
/// BTH, are left out. The coverage counts records, InfiniBand packets and records that could not be
/// decoded. A packet with inconsistent lengths is shown as far as possible and counts as not
/// decoded, as in an analysis.
#[must_use]
pub fn inspect(batch: &Batch, options: &DecodeOptions) -> (Vec<InspectedPacket>, Coverage) {
    let mut packets = Vec::new();
    let mut counts = BatchCounts::default();
    let mut framing = batch.framing.clone();
    let mut frame = batch.first_record;
    framing.walk(&batch.bytes, |item| {
        let CaptureItem::Record(record) = item else { return };
        frame += 1;
        counts.counts.records += 1;
        if !options.covers(time_ns(record).unwrap_or(PacketRecord::NO_TIME)) {
            return;
        }
        sampled_records(record, |record, path| show(frame, record, path, &mut packets, &mut counts));
    });
    (packets, counts.into_coverage())
}

/// Calls `each` for the record, or for the sampled frames in it, with the tunnels around them.
fn sampled_records(record: &Record<'_>, mut each: impl FnMut(&Record<'_>, TunnelPath)) {
    let mut path = TunnelPath::default();
    let mut sample = |path: &TunnelPath, frame: SampledFrame<'_>| {
        let SampledFrame { link_type, data, original_bytes, header } = frame;
        let path = path.of_sample(header.mirror());
        path.into_iter().for_each(|path| each(&Record { link_type, data, original_bytes, ..*record }, path));
    };
    if record.link_type == LinkType::NETLINK {
        return sampled::psample(record.data).into_iter().for_each(|frame| sample(&path, frame));
    }
    let _ = link::locate_in_tunnels(record.link_type, record.data, record.original_bytes, &mut path);
    let datagram = path.samples().and_then(|(start, end)| record.data.get(start..end.min(record.data.len())));
    let Some(Ok(samples)) = datagram.map(SflowDatagram::parse) else {
        return each(record, TunnelPath::default());
    };
    for frame in samples {
        if let Ok(SflowSample::Frame(frame)) = frame {
            sample(&path, frame);
        }
    }
}

/// Adds the packet of a record.
fn show(
    frame: u64,
    record: &Record<'_>,
    mut path: TunnelPath,
    packets: &mut Vec<InspectedPacket>,
    counts: &mut BatchCounts,
) {
    let found = match link::locate_in_tunnels(record.link_type, record.data, record.original_bytes, &mut path) {
        Ok(LinkContent::Infiniband(location)) => packet(frame, record, &location, path.frame_at()),
        Ok(LinkContent::Other(what)) => {
            if what.may_hold_roce() {
                counts.add_other(&path, what);
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
                Some(error) => *counts.failed.entry((error.layer, false)).or_default() += 1,
            }
        }
        Err(error) => *counts.failed.entry((error.layer, error.is_truncated())).or_default() += 1,
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
