//! Bytes as a record of any link type: located, and read in both ways, quickly and in general.

use arbitrary::Unstructured;
use ibscope_parsers::frame::{LinkType, Record};
use ibscope_parsers::ib::crc::{verify_icrc, verify_vcrc};
use ibscope_parsers::ib::{CmMessage, Packet};
use ibscope_parsers::link::{Located, locate};
use ibscope_parsers::{Brief, Content, ErrorKind};

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

/// The first byte chooses the link type, the second by how much the packet was longer than the record; the record follows.
///
/// # Panics
/// Where two ways of reading differ, or a location lies outside of its record.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let (Ok(kind), Ok(more)) = (input.arbitrary::<u8>(), input.arbitrary::<u8>()) else { return };
    let data = input.take_rest();
    // Mostly whole records.
    let missing = if more < 0x80 { 0 } else { u32::from(more & 0x7F) * 16 };
    record(LINK_TYPES[usize::from(kind) % LINK_TYPES.len()], data, data.len() as u32 + missing);
}

/// One record, in every way that there is.
pub(crate) fn record(link_type: LinkType, data: &[u8], original_bytes: u32) {
    let record = Record { time_ns: None, link_type, interface: 0, data, original_bytes };
    let general = Brief::read(&record);
    if let Some(brief) = Brief::quick(&record) {
        assert_eq!(general, Ok(Content::Infiniband(brief)));
    }
    if let Err(error) = &general
        && let ErrorKind::Truncated { needed, available } = error.kind
    {
        assert!(needed > available);
    }
    let Ok(Located::Infiniband(location)) = locate(link_type, data, original_bytes) else { return };
    assert!(location.start <= data.len() && location.network <= location.start && location.ib_bytes >= 16);
    let _ = (verify_icrc(data, &location), verify_vcrc(data, &location));
    let lax = Packet::parse_lax(data, &location);
    let strict = Packet::parse_strict(data, &location);
    let Ok(packet) = lax else {
        assert!(strict.is_err());
        return;
    };
    assert_eq!(strict.is_ok(), packet.stop.is_none());
    assert!(packet.payload.len() <= packet.payload_bytes && packet.payload_bytes < location.ib_bytes);
    let behind = data.get(packet.payload_offset..).unwrap_or_default();
    assert!(behind.starts_with(packet.payload));
    let _ = CmMessage::parse(packet.payload);
}
