//! Target `mad`: the bytes are a management datagram, or the body of a communication management
//! message.

use ibscope_parsers::ib::{CmMessage, MadHeader};
use ibscope_parsers::mpi::rdmacm;

/// Length of a management datagram.
pub(crate) const MAD_BYTES: usize = 256;

/// Parses the bytes as they are, and after a header that makes them a communication management
/// message of any kind.
///
/// # Panics
/// If a header does not parse as written.
pub fn run(bytes: &[u8]) {
    message(bytes);
    let Some((&attribute, body)) = bytes.split_first() else { return };
    let mut mad = cm_mad(attribute & 0x0F, body);
    message(&mad);
    mad.resize(MAD_BYTES, 0);
    message(&mad);
}

/// A communication management message of this kind, not padded to `MAD_BYTES`.
pub(crate) fn cm_mad(kind: u8, body: &[u8]) -> Vec<u8> {
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
        // Two reserved bytes are not stored.
        assert_eq!(MadHeader::parse(&header.to_bytes()), Ok(header));
        let _ = (header.is_response(), header.class_name());
    }
    let Ok(message) = CmMessage::parse(mad) else { return };
    let _ = format!("{message:?}");
    for private in [mad, mad.get(MadHeader::LEN..).unwrap_or_default()] {
        let _ = (rdmacm::request(private), rdmacm::reply(private));
    }
}
