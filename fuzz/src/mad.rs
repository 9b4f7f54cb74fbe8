//! Bytes as a management datagram, and as one of connection management.

use ibscope_parsers::ib::{CmMessage, MadHeader};
use ibscope_parsers::mpi::rdmacm;

/// Bytes of a datagram.
const MAD_BYTES: usize = 256;

/// As it stands, and with a header that makes it a message of connection management of any kind.
///
/// # Panics
/// Where a header does not come back as it was.
pub fn run(bytes: &[u8]) {
    message(bytes);
    let Some((&attribute, body)) = bytes.split_first() else { return };
    let header = MadHeader {
        base_version: 1,
        class: MadHeader::CLASS_CM,
        class_version: 2,
        method: 3,
        status: 0,
        class_specific: 0,
        tid: 7,
        attr_id: 0x10 | u16::from(attribute & 0x0F),
        attr_mod: 0,
    };
    let mut mad = [&header.to_bytes()[..], body].concat();
    message(&mad);
    mad.resize(MAD_BYTES, 0);
    message(&mad);
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
