//! Target `mpi`: the bytes are the payload of a transport message, parsed under every stack.

use arbitrary::Unstructured;
use ibscope_parsers::mpi::{
    Carrier, Envelope, Length, LibraryStack, MpiHeader, MpiMessagePart, Payload, TagLayout, coalesced_envelopes,
    mvapich2_cm, nccl, recognize, ucx, ucx_wireup, udcm,
};

/// The first bytes select the carrier and the captured length; the rest are the payload.
///
/// # Panics
/// If the usual stack changes whether a payload is recognized, or a list of messages does not end.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(kind) = input.arbitrary::<u8>() else { return };
    let Ok(more_bytes) = input.arbitrary::<u16>() else { return };
    let payload = input.take_rest();
    let length_bytes = payload.len() as u32;
    // The low bits select the carrier, the next ones the captured part.
    let carrier = match kind & 7 {
        0..=2 => Carrier::Send,
        3 => Carrier::Write(length_bytes),
        4 => Carrier::Write(u32::from(more_bytes)),
        5 => Carrier::Datagram(ucx::Q_KEY),
        6 => Carrier::Datagram(0),
        _ => Carrier::Datagram(u32::from(more_bytes)),
    };
    let cut = Payload { captured: payload, packet_bytes: length_bytes + u32::from(more_bytes), message_bytes: None };
    let first = match kind >> 3 & 3 {
        0 | 1 => Payload::whole(payload),
        2 => Payload { message_bytes: Some(cut.packet_bytes), ..cut },
        _ => cut,
    };
    let found = recognize(carrier, &first, None);
    for usual in LibraryStack::ALL {
        let again = recognize(carrier, &first, Some(usual));
        assert_eq!(again.is_some(), found.is_some());
        if found.is_some_and(|head| head.stack == usual) {
            assert_eq!(again, found);
        }
        again.iter().for_each(head);
        // Each message takes at least one byte of the payload.
        let messages = coalesced_envelopes(usual, payload, first.packet_bytes);
        assert!(messages.inspect(envelope).count() <= payload.len());
    }
    if let Some(control) = ucx_wireup::control(payload) {
        let _ = format!("{control:?}");
    }
    for wireup in [ucx_wireup::wireup_datagram(payload), ucx_wireup::wireup(payload, usize::from(more_bytes))] {
        let _ = format!("{wireup:?}");
    }
    assert!(ucx_wireup::lanes(payload).count() <= payload.len());
    let queues = udcm::datagram(payload, length_bytes).map_or(0, |message| message.queues().count());
    let rails = mvapich2_cm::datagram(payload, length_bytes).map_or(0, |message| message.rails().count());
    let elements = nccl::cts(payload, length_bytes).map_or(0, |cts| cts.elements().count());
    assert!(queues.max(rails).max(elements) <= payload.len());
    assert!(nccl::lengths(payload, length_bytes).map_or(0, Iterator::count) <= payload.len());
    let _ = nccl::is_share(length_bytes.into(), more_bytes.into(), payload.len() as u64, kind & 1 == 0);
}

fn head(head: &MpiHeader) {
    if let MpiMessagePart::Start(start) = head.part {
        envelope(&start.envelope);
    }
}

fn envelope(envelope: &Envelope) {
    for layout in TagLayout::ALL {
        let _ = envelope.matching.identity(layout);
    }
    for message_bytes in [0, 1, u64::MAX] {
        if let Length::AfterHeaders(_) = envelope.length {
            assert!(envelope.length.in_message(message_bytes) <= message_bytes);
        }
    }
}
