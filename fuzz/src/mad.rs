//! Bytes as a management datagram, and as one of connection management.

use ibscope_parsers::ib::{CmMessage, MadHeader};
use ibscope_parsers::mpi::rdmacm;

/// Bytes of a datagram.
pub(crate) const MAD_BYTES: usize = 256;

/// As it stands, and with a header that makes it a message of connection management of any kind.
///
/// # Panics
/// Where a header does not come back as it was.
pub fn run(bytes: &[u8]) {
    message(bytes);
    let Some((&attribute, body)) = bytes.split_first() else { return };
    let mut mad = of_connection_management(attribute & 0x0F, body);
    message(&mad);
    mad.resize(MAD_BYTES, 0);
    message(&mad);
}

/// A message of connection management of this kind, not yet as long as datagrams are.
pub(crate) fn of_connection_management(kind: u8, body: &[u8]) -> Vec<u8> {
    let header = MadHeader {
        base_version: 1,
        class: MadHeader::CLASS_CM,
        class_version: 2,
        method: 3,
        status: 0,
        class_specific: 0,
        tid: u64::from(kind),
        attr_id: 0x10 | u16::from(kind),
        attr_mod: 0,
    };
    [&header.to_bytes()[..], body].concat()
}

fn message(mad: &[u8]) {
    if let Ok(header) = MadHeader::parse(mad) {
        // Two bytes are reserved and not kept.
        assert_eq!(MadHeader::parse(&header.to_bytes()), Ok(header));
        let _ = (header.is_response(), header.class_name());
    }
    let Ok(message) = CmMessage::parse(mad) else { return };
    let _ = format!("{message:?}");
    for private in [mad, mad.get(MadHeader::LEN..).unwrap_or_default()] {
        let _ = (rdmacm::request(private), rdmacm::reply(private));
    }
}
