//! Payload -> zeros, but for the bytes that an envelope is read from.
//!
//! Which bytes these are is not told by layouts once more, but found: a byte stays if the readers of `parsers::mpi` say something else of the payload
//! without it. So nothing stays that does not say who sends which message, with which tag and how long.

use super::names::Names;
use ibscope_parsers::Qpn;
use ibscope_parsers::mpi::{self, Carrier, Envelope, Form, Head, Part, Payload, mvapich2_cm, nccl, ucx_wireup, udcm};
use std::collections::HashSet;

/// What stands in place of payload, where zeros would be read as an envelope that was not there.
const FILLS: [u8; 2] = [0, 0xFF];
/// Bytes before the lists of a worker's address: flags, and the worker's number.
const WORKER_ID: std::ops::Range<usize> = 1..9;

/// The first packet of a transport message, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub(super) carrier: Carrier,
    pub(super) packet_bytes: u32,
    pub(super) message_bytes: Option<u32>,
}

/// True for forms of one library, whose processes make themselves known to each other in one form and speak in another.
fn is_akin(one: Form, other: Form) -> bool {
    let is_ucx = |form| matches!(form, Form::UcxVerbs | Form::UcxMlx5 | Form::UcxUd);
    one == other || is_ucx(one) && is_ucx(other)
}

/// What the readers say of a payload.
#[derive(Debug, PartialEq)]
struct Said {
    /// Where nothing is known of the connection, and where its form is.
    heads: [Option<Head>; 2],
    several: Vec<Envelope>,
    introduction: Vec<u64>,
}

impl First {
    /// The form of a message by which processes make themselves known to each other, on a connection that has no messages else. `believed` are the forms
    /// that the two endpoints are known to speak.
    pub(super) fn introduces(&self, payload: &[u8], believed: &HashSet<Form>) -> Option<Form> {
        let payload_of =
            Payload { captured: payload, packet_bytes: self.packet_bytes, message_bytes: self.message_bytes };
        let Head { form, part: Part::Control, .. } = mpi::recognise(self.carrier, &payload_of, None)? else {
            return None;
        };
        let is_known = believed.iter().any(|other| is_akin(form, *other));
        (is_known && !self.introduction(payload, form).is_empty()).then_some(form)
    }

    fn heads(&self, payload: &[u8], form: Form) -> [Option<Head>; 2] {
        let payload = Payload { captured: payload, packet_bytes: self.packet_bytes, message_bytes: self.message_bytes };
        [None, Some(form)].map(|usual| mpi::recognise(self.carrier, &payload, usual))
    }

    fn said(&self, payload: &[u8], form: Form) -> Said {
        let heads = self.heads(payload, form);
        let several = match heads[1] {
            Some(Head { part: Part::Several, .. }) => mpi::several(form, payload, self.packet_bytes).collect(),
            _ => Vec::new(),
        };
        let introduction = match heads[1] {
            Some(Head { part: Part::Control, .. }) => self.introduction(payload, form),
            _ => Vec::new(),
        };
        Said { heads, several, introduction }
    }

    /// What a message that is no MPI message says of the processes at both ends, as numbers. Their addresses are none of it.
    fn introduction(&self, payload: &[u8], form: Form) -> Vec<u64> {
        let mut said = Vec::new();
        if let Some(message) = wireup(payload, form) {
            said.extend([u64::from(message.kind), u64::from(message.connection), message.address.len() as u64]);
            said.extend([message.sender_endpoint, message.receiver_endpoint, message.worker.unwrap_or(0)]);
        }
        let Carrier::Datagram(_) = self.carrier else {
            if let (Form::Nccl, Carrier::Write(dma_bytes)) = (form, self.carrier) {
                // One line for each element says all of it.
                let elements =
                    nccl::cts(payload, dma_bytes).into_iter().flat_map(|cts| cts.elements().collect::<Vec<_>>());
                said.extend(elements.map(|element| xxhash_rust::xxh3::xxh3_64(format!("{element:?}").as_bytes())));
            }
            return said;
        };
        if let Some(message) = udcm::datagram(payload, self.packet_bytes).filter(|_| form == Form::Ob1) {
            said.extend([
                message.kind as u64,
                message.layout as u64,
                u64::from(message.world_rank.unwrap_or(u32::MAX)),
            ]);
            said.extend(message.queues().flat_map(|queue| [queue.qpn.value(), queue.psn.value()]).map(u64::from));
        }
        if let Some(message) = mvapich2_cm::datagram(payload, self.packet_bytes).filter(|_| form == Form::Mvapich2) {
            let ranks = [message.request, message.server_rank, message.client_rank, u32::from(message.kind)];
            said.extend(ranks.map(u64::from));
            said.extend(message.rails().filter_map(|rail| rail.qpn).map(|qpn| u64::from(qpn.value())));
        }
        said
    }
}

fn wireup(payload: &[u8], form: Form) -> Option<ucx_wireup::Wireup<'_>> {
    match form {
        Form::UcxVerbs => ucx_wireup::wireup(payload, 0),
        Form::UcxMlx5 => ucx_wireup::wireup(payload, 1),
        Form::UcxUd => ucx_wireup::wireup_datagram(payload),
        Form::Ob1 | Form::Rxm | Form::Mvapich2 | Form::Nccl => None,
    }
}

/// Clears the payload of the first packet of a message but for its envelopes. `form` is that of its connection, `own` the queue pairs of its
/// sender. True where further envelopes may follow in other packets.
pub(super) fn rewrite(payload: &mut [u8], first: &First, form: Form, own: &HashSet<Qpn>, names: &mut Names) -> bool {
    let said = first.said(payload, form);
    if said.heads[1].is_none_or(|head| head.form != form) {
        clear(payload, Some((first, form)));
        return false;
    }
    let old = payload.to_vec();
    let whole = 0..payload.len();
    reduce(payload, whole, &|payload| first.said(payload, form) == said);
    if let Some(message) = wireup(&old, form) {
        let start = old.len() - message.address.len();
        // The entries of its queue pairs and the ports of their devices; nothing else in the address stays.
        let mut kept_until = 0;
        for lane in ucx_wireup::lanes(message.address).filter(|lane| own.contains(&lane.qpn)) {
            let (from, until) = (start + lane.start, start + lane.start + lane.length);
            if let (Some(kept), Some(own)) = (payload.get_mut(from..until), old.get(from..until)) {
                kept.copy_from_slice(own);
            }
            if let Some(before) = payload.get_mut(from - 1).filter(|_| kept_until < from) {
                *before = ucx_wireup::LANES_FOLLOW;
            }
            kept_until = until;
            let Some(device) = lane.device.map(|device| start + device.start) else { continue };
            if let Some(gid) = old.get(device + 2..).and_then(<[u8]>::first_chunk) {
                let port = names.gid(*gid);
                super::bits::exchange(payload, device, |_| [ucx_wireup::DEVICE_BYTES]);
                super::bits::exchange(payload, device + 2, |_| port);
            }
        }
        super::bits::exchange(payload, start + WORKER_ID.start, |id| {
            names.worker(u64::from_le_bytes(id)).to_le_bytes()
        });
    }
    matches!(said.heads[1], Some(Head { part: Part::Several, .. })) && first.message_bytes.is_none()
}

/// Clears a payload. `first` tells of the first packet of a message and which form is usual, if one is.
pub(super) fn clear(payload: &mut [u8], first: Option<(&First, Form)>) {
    let Some((first, form)) = first else { return payload.fill(0) };
    let was_read = first.heads(payload, form).iter().any(Option::is_some);
    for fill in FILLS {
        payload.fill(fill);
        if was_read || first.heads(payload, form).iter().all(Option::is_none) {
            return;
        }
    }
}

/// Zeroes all of `range` that can be without a difference to `is_same`: halves of halves.
fn reduce(payload: &mut [u8], range: std::ops::Range<usize>, is_same: &impl Fn(&[u8]) -> bool) {
    let Some(part) = payload.get_mut(range.clone()) else { return };
    if part.iter().all(|byte| *byte == 0) {
        return;
    }
    let old = part.to_vec();
    part.fill(0);
    if is_same(payload) {
        return;
    }
    payload[range.clone()].copy_from_slice(&old);
    if range.len() > 1 {
        let middle = range.start + range.len() / 2;
        // What comes last first: data follow their envelope.
        reduce(payload, middle..range.end, is_same);
        reduce(payload, range.start..middle, is_same);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anonymize::Key;

    #[test]
    fn of_an_eager_message_the_envelope_stays() {
        // UCX on rc_mlx5: a byte of 0, active message 2 (eager), the tag, then data.
        let tag = 0x0000_0007_0000_0003_u64.to_le_bytes();
        let mut payload = [&[0, 2][..], &tag, b"CONFIDENTIAL DATA OF THE USER"].concat();
        let bytes = payload.len() as u32;
        let first = First { carrier: Carrier::Send, packet_bytes: bytes, message_bytes: Some(bytes) };
        let said = first.said(&payload, Form::UcxMlx5);
        let further = rewrite(&mut payload, &first, Form::UcxMlx5, &HashSet::new(), &mut Names::new(&Key::of("a")));
        assert!(!further);
        assert_eq!(payload[..10], [&[0, 2][..], &tag].concat());
        assert!(payload[10..].iter().all(|byte| *byte == 0));
        assert_eq!(first.said(&payload, Form::UcxMlx5), said);
    }

    #[test]
    fn what_is_no_envelope_goes_and_does_not_become_one() {
        let mut names = Names::new(&Key::of("a"));
        for length in [1usize, 4, 5, 8, 16, 40, 64, 100, 1024] {
            for form in Form::ALL {
                let mut payload: Vec<u8> = b"no envelope at all ".iter().copied().cycle().take(length).collect();
                let bytes = length as u32;
                let first = First { carrier: Carrier::Send, packet_bytes: bytes, message_bytes: Some(bytes) };
                let was = first.heads(&payload, form);
                rewrite(&mut payload, &first, form, &HashSet::new(), &mut names);
                assert!(payload.windows(4).all(|window| window != b"elop"), "{form:?} {length}");
                if was == [None, None] {
                    assert_eq!(first.heads(&payload, form), [None, None], "{form:?} {length}");
                }
            }
        }
    }
}
