//! Open MPI `ob1` over the `openib` BTL, releases 1.4 to 4.1.
//!
//! A 4-byte BTL header (tag, credit fields) comes before the header of `ob1`, whose type repeats the tag
//! (`btl_openib_frag.h`, `pml_ob1_hdr.h`; offsets of the x86-64 layout):
//!
//! ```text
//! P+0 tag  P+2 credits u16 | P+4 type  P+5 flags  P+6 context u16  P+8 rank i32  P+12 MPI tag i32  P+16 seq u16
//!                            MATCH: data at P+18     RNDV, RGET: message length u64 at P+20
//! ```
//! The layout is in the sender's byte order: little-endian on every machine that ibscope has met.

use super::{Envelope, Form, Head, Identity, Length, Matching, bytes};

const MATCH: u8 = 0x41;
const RNDV: u8 = 0x42;
const RGET: u8 = 0x43;
const FIN: u8 = 0x49;
/// BTL control messages: credits, ring addresses, coalesced sends, clear to send.
const CONTROL: u8 = 0x20;
/// Highest type of a control message (`MCA_BTL_OPENIB_CONTROL_*`).
const CONTROL_LAST: u8 = 3;
/// Bytes before the data of a MATCH: BTL header and the packed match header.
const MATCH_BYTES: u32 = 18;
/// Footer of a message written into an eager RDMA ring.
const FOOTER_BYTES: u32 = 4;

/// A message that came by SEND.
#[must_use]
pub fn send(payload: &[u8]) -> Option<Head> {
    // The shortest message, "clear to send", ends with its type.
    let [tag, _, _, _, kind] = bytes::<5>(payload, 0)?;
    let envelope = match tag {
        MATCH | RNDV | RGET if kind == tag => Some(envelope(payload, kind, MATCH_BYTES)?),
        // ACK, NACK, FRAG, GET, PUT and FIN name the request they belong to, not the sender.
        0x44..=FIN if kind == tag => None,
        CONTROL if kind <= CONTROL_LAST => None,
        _ => return None,
    };
    Some(Head { form: Form::Ob1, envelope, datagram: None })
}

/// A message that was written into an eager RDMA ring: the same headers and a footer `length (24 bits), 0xff`, which is
/// checked where `whole` says that `payload` is the whole message.
#[must_use]
pub fn eager_rdma(payload: &[u8], dma_bytes: u32, whole: bool) -> Option<Head> {
    let [tag, _, _, _, kind] = bytes::<5>(payload, 0)?;
    if !(MATCH..=FIN).contains(&tag) || kind != tag || dma_bytes < MATCH_BYTES + FOOTER_BYTES {
        return None;
    }
    if whole && payload.len() == dma_bytes as usize {
        let footer = u32::from_le_bytes(bytes::<4>(payload, payload.len() - FOOTER_BYTES as usize)?);
        if footer != 0xFF00_0000 | dma_bytes {
            return None;
        }
    }
    let envelope = match kind {
        MATCH | RNDV | RGET => Some(envelope(payload, kind, MATCH_BYTES + FOOTER_BYTES)?),
        _ => None,
    };
    // The write states its own length, so that nothing depends on seeing its last packet.
    let envelope = envelope
        .map(|envelope| Envelope { length: Length::Stated(envelope.length.of(u64::from(dma_bytes))), ..envelope });
    Some(Head { form: Form::Ob1, envelope, datagram: None })
}

fn envelope(payload: &[u8], kind: u8, overhead_bytes: u32) -> Option<Envelope> {
    // MATCH knows no flags; RNDV and RGET know ACK, PIN, CONTIG, NORDMA and SIGNAL. NBO (2) means big-endian.
    let [flags] = bytes(payload, 5)?;
    let known_flags = if kind == MATCH { 0 } else { 0x3D };
    let context = u32::from(u16::from_le_bytes(bytes(payload, 6)?));
    let rank = i32::from_le_bytes(bytes(payload, 8)?);
    if flags & !known_flags != 0 || context >= 0x1000 || !(0..1 << 20).contains(&rank) {
        return None;
    }
    // Cut captures may show the rank and not the tag: the rank is what counts, so the tag then reads as 0.
    let tag = bytes(payload, 12).map_or(0, i32::from_le_bytes);
    let length = if kind == MATCH {
        Length::Beyond(overhead_bytes)
    } else {
        let stated = u64::from_le_bytes(bytes(payload, 20)?);
        if stated >= 1 << 48 {
            return None;
        }
        Length::Stated(stated)
    };
    let identity = Identity { rank: rank.cast_unsigned(), context, tag, world: context == 0, collective: tag < 0 };
    Some(Envelope { matching: Matching::Ob1(identity), length })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn header(kind: u8, rank: i32, tag: i32) -> Vec<u8> {
        let mut payload = Vec::from([kind, 0, 0, 0, kind, 0, 0, 0]);
        payload.extend(rank.to_le_bytes());
        payload.extend(tag.to_le_bytes());
        payload.extend(9u16.to_le_bytes());
        payload
    }

    fn identity(head: &Head) -> Identity {
        match head.envelope.expect("envelope").matching {
            Matching::Ob1(identity) => identity,
            Matching::UcxTag(_) | Matching::OfiTag(..) => panic!("not ob1"),
        }
    }

    #[test]
    fn match_of_the_recorded_runs() {
        // wire-formats, recorded: rank 1, tag 6, sequence 13.
        let payload = [0x41, 0, 0, 0, 0x41, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0x0d, 0, 0xAA, 0xBB];
        let head = send(&payload).unwrap();
        assert_eq!(identity(&head), Identity { rank: 1, context: 0, tag: 6, world: true, collective: false });
        assert_eq!(head.envelope.unwrap().length.of(payload.len() as u64), 2);
    }

    #[test]
    fn rendezvous_states_its_length() {
        for kind in [RNDV, RGET] {
            let mut payload = header(kind, 3, -12);
            payload.extend([0; 2]);
            payload.extend(1_048_576u64.to_le_bytes());
            let head = send(&payload).unwrap();
            assert_eq!(head.envelope.unwrap().length, Length::Stated(1_048_576));
            assert!(identity(&head).collective);
        }
    }

    #[test]
    fn messages_without_an_envelope_still_belong_to_the_library() {
        for kind in 0x44..=FIN {
            assert_eq!(send(&header(kind, 0, 0)).unwrap().envelope, None);
        }
        // Recorded: "clear to send" is five bytes.
        assert_eq!(send(&[0x20, 0, 0, 0, 3]).unwrap().envelope, None);
    }

    #[test]
    fn ring_messages_need_their_footer() {
        let mut payload = header(MATCH, 1, 5);
        payload.extend([7; 10]);
        let dma_bytes = payload.len() as u32 + 4;
        payload.extend((0xFF00_0000 | dma_bytes).to_le_bytes());
        let head = eager_rdma(&payload, dma_bytes, true).unwrap();
        assert_eq!(head.envelope.unwrap().length, Length::Stated(10));
        *payload.last_mut().unwrap() = 0;
        assert_eq!(eager_rdma(&payload, dma_bytes, true), None);
        assert!(eager_rdma(&payload[..24], dma_bytes, true).is_some(), "the footer was not captured");
    }

    #[test]
    fn other_payloads_are_not_taken() {
        assert_eq!(send(&[0x41; 4]), None);
        assert_eq!(send(&header(MATCH, -1, 0)), None);
        assert_eq!(send(&header(MATCH, 1 << 20, 0)), None);
        let mut flagged = header(MATCH, 0, 0);
        flagged[5] = 1;
        assert_eq!(send(&flagged), None);
        // IPoIB connected mode starts with an EtherType.
        assert_eq!(send(&[0x08, 0, 0, 0, 0x45, 0, 0, 0x54, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(eager_rdma(&header(MATCH, 0, 0), 8, false), None);
    }
}
