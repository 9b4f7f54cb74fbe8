//! Clears payload, except the bytes of MPI envelopes.
//!
//! A search finds these bytes; no layout lists them: a byte is kept if the parsers in
//! `ibscope_parsers::mpi` give another result without it. So only bytes that identify sender,
//! receiver, tag and length of a message are kept.

use super::names::Pseudonyms;
use ibscope_parsers::Qpn;
use ibscope_parsers::mpi::{
    self, Carrier, Envelope, LibraryStack, MpiHeader, MpiMessagePart, Payload, mvapich2_cm, nccl, ucx, ucx_wireup, udcm,
};
use ibscope_parsers::ulp;
use std::collections::HashSet;

/// Fill values of cleared payload: 0xFF where zeros would parse as an envelope or as another
/// protocol.
const FILLS: [u8; 2] = [0, 0xFF];
/// Range of the worker id in a worker address, after the byte of flags.
const WORKER_ID: std::ops::Range<usize> = 1..9;

/// The first packet of a transport message.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstPacketPayload {
    pub(super) carrier: Carrier,
    pub(super) packet_bytes: u32,
    pub(super) message_bytes: Option<u32>,
}

/// True for two stacks of one library, whose processes may send connection messages over one stack
/// and MPI messages over the other.
fn is_akin(one: LibraryStack, other: LibraryStack) -> bool {
    let is_ucx = |stack| matches!(stack, LibraryStack::UcxVerbs | LibraryStack::UcxMlx5 | LibraryStack::UcxUd);
    one == other || is_ucx(one) && is_ucx(other)
}

/// The result of parsing a payload.
#[derive(Debug, PartialEq)]
struct ParsedPayload {
    /// The envelope or control message, parsed without and with the known stack of the connection.
    heads: [Option<MpiHeader>; 2],
    several: Vec<Envelope>,
    connection_message: Vec<u64>,
}

impl FirstPacketPayload {
    /// The stack of a connection message on a connection without other messages. `detected` are the
    /// stacks that were detected between the two endpoints.
    pub(super) fn connection_message_stack(
        &self,
        payload: &[u8],
        detected: &HashSet<LibraryStack>,
    ) -> Option<LibraryStack> {
        let payload_of =
            Payload { captured: payload, packet_bytes: self.packet_bytes, message_bytes: self.message_bytes };
        let MpiHeader { stack, part: MpiMessagePart::Control, .. } = mpi::recognize(self.carrier, &payload_of, None)?
        else {
            return None;
        };
        let is_known = detected.iter().any(|other| is_akin(stack, *other));
        (is_known && !self.connection_message(payload, stack).is_empty()).then_some(stack)
    }

    fn heads(&self, payload: &[u8], stack: LibraryStack) -> [Option<MpiHeader>; 2] {
        let payload = Payload { captured: payload, packet_bytes: self.packet_bytes, message_bytes: self.message_bytes };
        [None, Some(stack)].map(|usual| mpi::recognize(self.carrier, &payload, usual))
    }

    /// True if the payload clearly looks like a message of another protocol than MPI.
    fn seems_another_protocol(&self, payload: &[u8]) -> bool {
        let payload = Payload { captured: payload, packet_bytes: self.packet_bytes, message_bytes: self.message_bytes };
        let is_datagram = matches!(self.carrier, Carrier::Datagram(_));
        ulp::recognize(is_datagram, &payload).is_some_and(|found| found.is_distinctive)
    }

    fn parse(&self, payload: &[u8], stack: LibraryStack) -> ParsedPayload {
        let heads = self.heads(payload, stack);
        let several = match heads[1] {
            Some(MpiHeader { part: MpiMessagePart::Coalesced, .. }) => {
                mpi::coalesced_envelopes(stack, payload, self.packet_bytes).collect()
            }
            _ => Vec::new(),
        };
        let connection_message = match heads[1] {
            Some(MpiHeader { part: MpiMessagePart::Control, .. }) => self.connection_message(payload, stack),
            _ => Vec::new(),
        };
        ParsedPayload { heads, several, connection_message }
    }

    /// The content of a control message that identifies the processes at both ends, as numbers.
    /// Their addresses are not part of it.
    fn connection_message(&self, payload: &[u8], stack: LibraryStack) -> Vec<u64> {
        let mut numbers = Vec::new();
        if let Some(message) = wireup(payload, stack) {
            numbers.extend([u64::from(message.kind), u64::from(message.connection), message.address.len() as u64]);
            numbers.extend([message.sender_endpoint, message.receiver_endpoint, message.worker.unwrap_or(0)]);
        }
        let Carrier::Datagram(_) = self.carrier else {
            if let (LibraryStack::Nccl, Carrier::Write(dma_bytes)) = (stack, self.carrier) {
                // A hash per element represents all fields of the element.
                let elements =
                    nccl::cts(payload, dma_bytes).into_iter().flat_map(|cts| cts.elements().collect::<Vec<_>>());
                numbers.extend(elements.map(|element| xxhash_rust::xxh3::xxh3_64(format!("{element:?}").as_bytes())));
            }
            return numbers;
        };
        if let Some(datagram) = ucx::datagram_without_message(payload).filter(|_| stack == LibraryStack::UcxUd) {
            numbers.extend([u64::from(datagram.endpoint), u64::from(datagram.sequence)]);
        }
        if let Some(message) = udcm::datagram(payload, self.packet_bytes).filter(|_| stack == LibraryStack::Ob1) {
            numbers.extend([
                message.kind as u64,
                message.layout as u64,
                u64::from(message.world_rank.unwrap_or(u32::MAX)),
            ]);
            numbers.extend(message.queues().flat_map(|queue| [queue.qpn.value(), queue.psn.value()]).map(u64::from));
        }
        if let Some(message) =
            mvapich2_cm::datagram(payload, self.packet_bytes).filter(|_| stack == LibraryStack::Mvapich2)
        {
            let ranks = [message.request, message.server_rank, message.client_rank, u32::from(message.kind)];
            numbers.extend(ranks.map(u64::from));
            numbers.extend(message.rails().filter_map(|rail| rail.qpn).map(|qpn| u64::from(qpn.value())));
        }
        numbers
    }
}

fn wireup(payload: &[u8], stack: LibraryStack) -> Option<ucx_wireup::UcxWireup<'_>> {
    match stack {
        LibraryStack::UcxVerbs => ucx_wireup::wireup(payload, 0),
        LibraryStack::UcxMlx5 => ucx_wireup::wireup(payload, 1),
        LibraryStack::UcxUd => ucx_wireup::wireup_datagram(payload),
        LibraryStack::Ob1 | LibraryStack::Rxm | LibraryStack::Mvapich2 | LibraryStack::Nccl => None,
    }
}

/// Clears the payload of the first packet of a message, except its envelopes. `stack` is the
/// stack of the connection, `own` the queue pairs of the sender. Returns true if further envelopes may
/// follow in other packets.
pub(super) fn rewrite(
    payload: &mut [u8],
    first: &FirstPacketPayload,
    stack: LibraryStack,
    own: &HashSet<Qpn>,
    names: &mut Pseudonyms,
) -> bool {
    let parsed = first.parse(payload, stack);
    if parsed.heads[1].is_none_or(|head| head.stack != stack) {
        clear(payload, Some((first, stack)));
        return false;
    }
    let old = payload.to_vec();
    let was_another = first.seems_another_protocol(&old);
    let fills = if wireup(&old, stack).is_some() { &FILLS[..1] } else { &FILLS[..] };
    for fill in fills {
        payload.copy_from_slice(&old);
        reduce(payload, (0..old.len(), *fill), &|payload| first.parse(payload, stack) == parsed);
        // An envelope that is followed by zeros can look like a storage command.
        if was_another || !first.seems_another_protocol(payload) {
            break;
        }
    }
    if let Some(message) = wireup(&old, stack) {
        let start = old.len() - message.address.len();
        // Of the addresses, keep only the entries of the sender's queue pairs and the ports of
        // their devices.
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
                super::bits::replace_bytes(payload, device, |_| [ucx_wireup::DEVICE_BYTES]);
                super::bits::replace_bytes(payload, device + 2, |_| port);
            }
        }
        super::bits::replace_bytes(payload, start + WORKER_ID.start, |id| {
            names.worker(u64::from_le_bytes(id)).to_le_bytes()
        });
    }
    matches!(parsed.heads[1], Some(MpiHeader { part: MpiMessagePart::Coalesced, .. })) && first.message_bytes.is_none()
}

/// Clears a payload. `first` is the first packet of a message, with the stack of its connection.
pub(super) fn clear(payload: &mut [u8], first: Option<(&FirstPacketPayload, LibraryStack)>) {
    let Some((first, stack)) = first else { return payload.fill(0) };
    let was_read = first.heads(payload, stack).iter().any(Option::is_some);
    for fill in FILLS {
        payload.fill(fill);
        if was_read || first.heads(payload, stack).iter().all(Option::is_none) {
            return;
        }
    }
}

/// Fills every byte of `range` that can be filled without a change of `is_same`, by recursive
/// bisection.
fn reduce(payload: &mut [u8], (range, fill): (std::ops::Range<usize>, u8), is_same: &impl Fn(&[u8]) -> bool) {
    let Some(part) = payload.get_mut(range.clone()) else { return };
    if part.iter().all(|byte| *byte == fill) {
        return;
    }
    let old = part.to_vec();
    part.fill(fill);
    if is_same(payload) {
        return;
    }
    payload[range.clone()].copy_from_slice(&old);
    if range.len() > 1 {
        let middle = range.start + range.len() / 2;
        // Later bytes first: data follows its envelope.
        reduce(payload, (middle..range.end, fill), is_same);
        reduce(payload, (range.start..middle, fill), is_same);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anonymize::AnonymizeKey;

    #[test]
    fn the_envelope_of_an_eager_message_is_kept() {
        // UCX on rc_mlx5: a byte of 0, active message 2 (eager), the tag, then data.
        let tag = 0x0000_0007_0000_0003_u64.to_le_bytes();
        let mut payload = [&[0, 2][..], &tag, b"CONFIDENTIAL DATA OF THE USER"].concat();
        let bytes = payload.len() as u32;
        let first = FirstPacketPayload { carrier: Carrier::Send, packet_bytes: bytes, message_bytes: Some(bytes) };
        let parsed = first.parse(&payload, LibraryStack::UcxMlx5);
        let further = rewrite(
            &mut payload,
            &first,
            LibraryStack::UcxMlx5,
            &HashSet::new(),
            &mut Pseudonyms::new(&AnonymizeKey::of("a")),
        );
        assert!(!further);
        assert_eq!(payload[..10], [&[0, 2][..], &tag].concat());
        assert!(payload[10..].iter().all(|byte| *byte == 0));
        assert_eq!(first.parse(&payload, LibraryStack::UcxMlx5), parsed);
    }

    #[test]
    fn other_payload_is_cleared_and_does_not_become_an_envelope() {
        let mut names = Pseudonyms::new(&AnonymizeKey::of("a"));
        for length in [1usize, 4, 5, 8, 16, 40, 64, 100, 1024] {
            for stack in LibraryStack::ALL {
                let mut payload: Vec<u8> = b"no envelope at all ".iter().copied().cycle().take(length).collect();
                let bytes = length as u32;
                let first =
                    FirstPacketPayload { carrier: Carrier::Send, packet_bytes: bytes, message_bytes: Some(bytes) };
                let was = first.heads(&payload, stack);
                rewrite(&mut payload, &first, stack, &HashSet::new(), &mut names);
                assert!(payload.windows(4).all(|window| window != b"elop"), "{stack:?} {length}");
                if was == [None, None] {
                    assert_eq!(first.heads(&payload, stack), [None, None], "{stack:?} {length}");
                }
            }
        }
    }
}
