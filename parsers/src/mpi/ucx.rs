//! UCX active messages that carry MPI's point-to-point protocol, UCX 1.3 to 1.9 and 1.11 onwards.
//!
//! The transport header comes first (`rc_iface.h`, `rc_mlx5_common.h`, `ud_def.h`):
//!
//! ```text
//! RC, DC verbs: P+0 active message id (low 5 bits)
//! RC, DC mlx5:  P+0 = 0 (no hardware tag)  P+1 active message id (low 5 bits)
//! UD:           P+0 u32: destination endpoint (24), is-message, ack, ecn, id (5)   P+4 sequence u16   P+6 acknowledged u16
//! ```
//! then the header of the message (`eager.h`, `proto_am.h`, `rndv.h`), packed and little-endian.

use super::{Envelope, Form, Head, Length, Matching, bytes};

/// `Q_Key` of every UCX UD queue pair (`UCT_IB_KEY`).
pub const Q_KEY: u32 = 0x1EE7_A330;

const EAGER_ONLY: u8 = 2;
const EAGER_FIRST: u8 = 3;
const EAGER_SYNC_ONLY: u8 = 6;
const EAGER_SYNC_FIRST: u8 = 7;
const RNDV_RTS: u8 = 9;
/// Highest id of an active message (`ucp_types.h`: `UCP_AM_ID_LAST` is 29).
const AM_ID_LAST: u8 = 28;

const NETH_BYTES: usize = 8;
const NETH_IS_MESSAGE: u32 = 1 << 24;

/// UCX's own number of a UD datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Endpoint id at the receiver, 24 bits.
    pub endpoint: u32,
    /// Sequence number on that endpoint, 16 bits.
    pub sequence: u16,
}

/// A message on an RC or DC queue pair.
#[must_use]
pub fn connected(payload: &[u8]) -> Option<Head> {
    let (&first, rest) = payload.split_first()?;
    if first == 0 {
        let (&second, rest) = rest.split_first()?;
        return message(Form::UcxMlx5, second, rest, 2);
    }
    message(Form::UcxVerbs, first, rest, 1)
}

/// A message on a UD queue pair with UCX's `Q_Key`.
#[must_use]
pub fn datagram(payload: &[u8]) -> Option<Head> {
    let word = u32::from_le_bytes(bytes(payload, 0)?);
    let datagram = Datagram { endpoint: word & 0xFF_FFFF, sequence: u16::from_le_bytes(bytes(payload, 4)?) };
    let rest = payload.get(NETH_BYTES..)?;
    if word & NETH_IS_MESSAGE == 0 {
        // Acknowledgements, connection requests and puts: UCX's, and without an envelope.
        return Some(Head { form: Form::UcxUd, envelope: None, datagram: None });
    }
    let head = message(Form::UcxUd, (word >> 27) as u8, rest, NETH_BYTES as u32)?;
    Some(Head { datagram: Some(datagram), ..head })
}

fn message(form: Form, id_byte: u8, rest: &[u8], transport_bytes: u32) -> Option<Head> {
    let id = id_byte & 0x1F;
    let tag = || bytes(rest, 0).map(u64::from_le_bytes);
    let length = |at| {
        let bytes = u64::from_le_bytes(bytes(rest, at)?);
        (bytes < 1 << 48).then_some(Length::Stated(bytes))
    };
    let (tag, length) = match id {
        EAGER_ONLY => (tag()?, Length::Beyond(transport_bytes + 8)),
        EAGER_SYNC_ONLY => (tag()?, Length::Beyond(transport_bytes + 24)),
        EAGER_FIRST | EAGER_SYNC_FIRST => (tag()?, length(8)?),
        RNDV_RTS => (tag()?, length(32)?),
        // Flow-control grants have id 0 and the upper bits set.
        0 if id_byte != 0 => return Some(Head { form, envelope: None, datagram: None }),
        1..=AM_ID_LAST => return Some(Head { form, envelope: None, datagram: None }),
        _ => return None,
    };
    Some(Head { form, envelope: Some(Envelope { matching: Matching::UcxTag(tag), length }), datagram: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::TagLayout;
    use alloc::vec::Vec;

    /// wire-formats, recorded: eager first, rank 1, tag 6, 12288 bytes.
    const EAGER_FIRST_RECORDED: [u8; 17] = [3, 0, 0, 0x10, 0, 0, 6, 0, 0, 0, 0x30, 0, 0, 0, 0, 0, 0];

    #[test]
    fn eager_first_of_the_recorded_runs() {
        let head = connected(&EAGER_FIRST_RECORDED).unwrap();
        assert_eq!(head.form, Form::UcxVerbs);
        let envelope = head.envelope.unwrap();
        assert_eq!(envelope.length, Length::Stated(12288));
        let identity = envelope.matching.identity(TagLayout::OpenMpi);
        assert_eq!((identity.rank, identity.tag, identity.world), (1, 6, true));
    }

    #[test]
    fn eager_only_is_as_long_as_its_transport_message() {
        let mut payload = Vec::from([2]);
        payload.extend(6u64.to_le_bytes());
        payload.extend([0; 48]);
        let verbs = connected(&payload).unwrap();
        assert_eq!(verbs.envelope.unwrap().length.of(payload.len() as u64), 48);
        payload.insert(0, 0);
        let mlx5 = connected(&payload).unwrap();
        assert_eq!(mlx5.form, Form::UcxMlx5);
        assert_eq!(mlx5.envelope.unwrap().length.of(payload.len() as u64), 48);
    }

    #[test]
    fn ready_to_send_states_the_size_at_byte_32() {
        let mut payload = Vec::from([9]);
        for word in [0x10_0000u64, 11, 22, 33, 262_144] {
            payload.extend(word.to_le_bytes());
        }
        payload.push(0);
        let envelope = connected(&payload).unwrap().envelope.unwrap();
        assert_eq!(envelope.length, Length::Stated(262_144));
        assert_eq!(envelope.matching, Matching::UcxTag(0x10_0000));
    }

    #[test]
    fn datagrams_name_endpoint_and_sequence() {
        let mut payload = Vec::new();
        payload.extend((2u32 << 27 | NETH_IS_MESSAGE | 0x1234).to_le_bytes());
        payload.extend(7u16.to_le_bytes());
        payload.extend(3u16.to_le_bytes());
        payload.extend(1u64.to_le_bytes());
        payload.extend([0; 5]);
        let head = datagram(&payload).unwrap();
        assert_eq!(head.datagram, Some(Datagram { endpoint: 0x1234, sequence: 7 }));
        assert_eq!(head.envelope.unwrap().length.of(payload.len() as u64), 5);
    }

    #[test]
    fn headers_cut_by_the_capture_are_not_guessed() {
        for cut in 0..EAGER_FIRST_RECORDED.len() {
            assert_eq!(connected(&EAGER_FIRST_RECORDED[..cut]), None, "{cut}");
        }
    }
}
