//! Bytes as the payload of a transport message, under every form of every MPI library.

use arbitrary::Unstructured;
use ibscope_parsers::mpi::{
    Carrier, Envelope, Form, Head, Length, Part, Payload, TagLayout, mvapich2_cm, nccl, recognise, several, ucx,
    ucx_wireup, udcm,
};

/// What the payload came in, how much of it was captured, and the payload.
///
/// # Panics
/// Where a form that was told apart is not found again, or lists of messages have no end.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(kind) = input.arbitrary::<u8>() else { return };
    let Ok(more_bytes) = input.arbitrary::<u16>() else { return };
    let payload = input.take_rest();
    let length_bytes = payload.len() as u32;
    // The lower bits choose the carrier, the higher ones what was captured.
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
    let found = recognise(carrier, &first, None);
    for usual in Form::ALL {
        let again = recognise(carrier, &first, Some(usual));
        assert_eq!(again.is_some(), found.is_some());
        if found.is_some_and(|head| head.form == usual) {
            assert_eq!(again, found);
        }
        again.iter().for_each(head);
        // Each message takes some of the payload.
        let messages = several(usual, payload, first.packet_bytes);
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

fn head(head: &Head) {
    if let Part::Start(start) = head.part {
        envelope(&start.envelope);
    }
}

fn envelope(envelope: &Envelope) {
    for layout in TagLayout::ALL {
        let _ = envelope.matching.identity(layout);
    }
    for message_bytes in [0, 1, u64::MAX] {
        if let Length::Beyond(_) = envelope.length {
            assert!(envelope.length.of(message_bytes) <= message_bytes);
        }
    }
}
