//! Batch of records -> packets with everything that `inspect` shows of them.

use super::Options;
use crate::model::{Batch, InspectedPacket};
use ibscope_parsers::frame::erf::ErfHeader;
use ibscope_parsers::frame::{Item, LinkType, Record};
use ibscope_parsers::ib::Packet;
use ibscope_parsers::ib::crc::verify_icrc;
use ibscope_parsers::link::{self, Framed, Located, Location};

/// Reads all headers of a batch's InfiniBand packets. Records that are none, or whose BTH was cut, are left out.
#[must_use]
pub fn inspect(batch: &Batch, options: &Options) -> Vec<InspectedPacket> {
    let mut packets = Vec::new();
    let mut framing = batch.framing.clone();
    let mut frame = batch.first_record;
    let mut at = 0;
    while let Some(rest) = batch.bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let Ok((item, length)) = framing.next(rest) else { break };
        at += length;
        let Item::Record(record) = item else { continue };
        frame += 1;
        if !options.covers(record.time_ns) {
            continue;
        }
        if let Ok(Located::Infiniband(location)) = link::locate(record.link_type, record.data, record.original_bytes) {
            packets.extend(packet(frame, &record, &location));
        }
    }
    packets
}

fn packet(frame: u64, record: &Record<'_>, location: &Location) -> Option<InspectedPacket> {
    let packet = Packet::parse_lax(record.data, location).ok()?;
    let capture_header_bytes = match (location.framed, record.link_type) {
        (Framed::Native, _) => location.start,
        (_, LinkType::ERF) => ErfHeader::parse(record.data).map_or(0, |header| header.header_bytes),
        _ => 0,
    };
    Some(InspectedPacket {
        frame,
        time_ns: record.time_ns,
        src: location.src,
        dst: location.dst,
        opcode: packet.bth.opcode,
        dest_qp: packet.bth.dest_qp,
        psn: packet.bth.psn,
        wire_bytes: location.wire_bytes,
        captured_bytes: record.data.len().saturating_sub(capture_header_bytes),
        payload_bytes: packet.payload_bytes,
        icrc: verify_icrc(record.data, location),
    })
}
