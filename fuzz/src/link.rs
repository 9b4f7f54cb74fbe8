//! Target `link`: the bytes are a record of any link type, located and parsed by the fast and by
//! the general parser.

use arbitrary::Unstructured;
use ibscope_parsers::frame::{LinkType, Record};
use ibscope_parsers::ib::crc::{verify_icrc, verify_vcrc};
use ibscope_parsers::ib::{CmMessage, Packet};
use ibscope_parsers::link::{LinkContent, locate};
use ibscope_parsers::{ErrorKind, PacketSummary, RecordContent};

const LINK_TYPES: [LinkType; 8] = [
    LinkType::ETHERNET,
    LinkType::ERF,
    LinkType::INFINIBAND,
    LinkType::SLL,
    LinkType::SLL2,
    LinkType::RAW,
    LinkType::IPOIB,
    LinkType(147),
];

/// The first byte selects the link type, the second how many bytes the record lost by truncation;
/// the rest is the record.
///
/// # Panics
/// If the two parsers differ, or a location is outside the record.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let (Ok(kind), Ok(more)) = (input.arbitrary::<u8>(), input.arbitrary::<u8>()) else { return };
    let data = input.take_rest();
    // Mostly records that were not truncated.
    let missing = if more < 0x80 { 0 } else { u32::from(more & 0x7F) * 16 };
    record(LINK_TYPES[usize::from(kind) % LINK_TYPES.len()], data, data.len() as u32 + missing);
}

/// Parses one record in every way.
pub(crate) fn record(link_type: LinkType, data: &[u8], original_bytes: u32) {
    let record = Record { time_ns: None, link_type, interface: 0, data, original_bytes };
    let general = PacketSummary::read(&record);
    if let Some(brief) = PacketSummary::quick(&record) {
        assert_eq!(general, Ok(RecordContent::Infiniband(brief)));
    }
    if let Err(error) = &general
        && let ErrorKind::Truncated { needed, available } = error.kind
    {
        assert!(needed > available);
    }
    let Ok(LinkContent::Infiniband(location)) = locate(link_type, data, original_bytes) else { return };
    assert!(location.start <= data.len() && location.network <= location.start && location.ib_bytes >= 16);
    let _ = (verify_icrc(data, &location), verify_vcrc(data, &location));
    let lax = Packet::parse_lax(data, &location);
    let strict = Packet::parse_strict(data, &location);
    let Ok(packet) = lax else {
        assert!(strict.is_err());
        return;
    };
    assert_eq!(strict.is_ok(), packet.error.is_none());
    assert!(packet.payload.len() <= packet.payload_bytes && packet.payload_bytes < location.ib_bytes);
    let behind = data.get(packet.payload_offset..).unwrap_or_default();
    assert!(behind.starts_with(packet.payload));
    let _ = CmMessage::parse(packet.payload);
}
