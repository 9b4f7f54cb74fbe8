//! Rewrites queue pair numbers and addresses inside connection messages.

use std::collections::HashMap;

use ibscope_parsers::ib::{MadHeader, Operation, Service};
use ibscope_parsers::mpi::{ucx_wireup, udcm};

use super::frame::{PacketFrame, write};

/// Queue key of the general services queue pair.
const Q_KEY_MANAGEMENT: u32 = 0x8001_0000;
/// Queue key of UCX's datagrams.
const Q_KEY_UCX: u32 = 0x1EE7_A330;
/// Lengths of UCX's datagram header, and of the active message id of its verbs transports.
const NETH_BYTES: usize = 8;
const AM_BYTES: usize = 1;
/// Offsets in a wire-up message of the worker's id, and of the lists of devices and queue pairs.
const WORKER_AT: usize = 21;
const LISTS_AT: usize = 29;
const CM_BODY: usize = MadHeader::LEN;
/// Offsets in CM messages of Open MPI's private data, which follow 36 bytes of addresses in a REQ,
/// and of the job id in them.
const PRIVATE_OF_REQ: usize = CM_BODY + 140 + 36;
const PRIVATE_OF_REP: usize = CM_BODY + 36;
const JOB_AT: usize = 7;

/// New names for the contents of a connection message.
pub(super) struct ConnectionNames<'a> {
    /// New number of a queue pair of the message's sender.
    pub(super) own: &'a dyn Fn(u32) -> Option<u32>,
    /// New number of a queue pair of the message's receiver.
    pub(super) peer: &'a dyn Fn(u32) -> Option<u32>,
    /// New IPv4 addresses, by old address.
    pub(super) addresses: &'a HashMap<[u8; 4], [u8; 4]>,
    /// Bits to flip in the numbers of workers, jobs and connections; 0 changes nothing.
    pub(super) identity: u32,
}

/// Rewrites the payload of a packet if it is a connection message.
pub(super) fn rename(frame: &PacketFrame, payload: &mut [u8], names: &ConnectionNames<'_>) {
    if frame.opcode.operation() != Some(Operation::SendOnly) {
        return;
    }
    match (frame.opcode.service(), frame.q_key) {
        (_, Some(Q_KEY_MANAGEMENT)) => management(payload, names),
        (_, Some(Q_KEY_UCX)) => ucx_datagram(payload, names),
        (_, Some(udcm::Q_KEY)) => udcm_datagram(payload, names),
        (Service::Rc, None) if ucx_wireup::wireup(payload, 0).is_some() => wireup(&mut payload[AM_BYTES..], names),
        _ => {}
    }
}

fn management(payload: &mut [u8], names: &ConnectionNames<'_>) {
    let Ok(header) = MadHeader::parse(payload) else { return };
    if header.class != MadHeader::CLASS_CM {
        return;
    }
    let (number_at, rename, job_at) = match header.attr_id {
        0x10 => (Some(CM_BODY + 32), names.own, Some(PRIVATE_OF_REQ + JOB_AT)),
        0x13 => (Some(CM_BODY + 12), names.own, Some(PRIVATE_OF_REP + JOB_AT)),
        0x15 => (Some(CM_BODY + 8), names.peer, None),
        _ => (None, names.own, None),
    };
    if let Some(at) = number_at
        && let Some(number) = be24(payload, at).and_then(rename)
    {
        write(payload, at, &number.to_be_bytes()[1..]);
    }
    addresses(payload, names.addresses);
    if names.identity != 0 {
        // Communication ids of both ends; the receiver's is 0 in a REQ.
        for at in [CM_BODY, CM_BODY + 4] {
            flip(payload, at, names.identity, u32::from_be_bytes, u32::to_be_bytes);
        }
        // The job's family is in the upper half. Other users of CM have different contents there.
        if let Some(at) = job_at.filter(|_| is_open_mpi(payload, header.attr_id)) {
            flip(payload, at, names.identity << 16, u32::from_le_bytes, u32::to_le_bytes);
        }
    }
}

fn is_open_mpi(mad: &[u8], attr_id: u16) -> bool {
    use ibscope_parsers::mpi::rdmacm;
    match attr_id {
        0x10 => mad.get(CM_BODY + 140..CM_BODY + 232).and_then(rdmacm::request).is_some(),
        _ => mad.get(CM_BODY + 36..CM_BODY + 232).and_then(rdmacm::reply).is_some(),
    }
}

fn ucx_datagram(payload: &mut [u8], names: &ConnectionNames<'_>) {
    match ucx_wireup::control(payload).map(|control| control.kind) {
        Some(ucx_wireup::ControlKind::Request { qpn, .. }) => {
            if let Some(number) = (names.own)(qpn.value()) {
                write(payload, 12, &number.to_le_bytes()[..3]);
            }
            addresses(payload, names.addresses);
        }
        None if ucx_wireup::wireup_datagram(payload).is_some() => wireup(&mut payload[NETH_BYTES..], names),
        Some(ucx_wireup::ControlKind::Reply { .. }) | None => {}
    }
}

fn udcm_datagram(payload: &mut [u8], names: &ConnectionNames<'_>) {
    const QUEUES_AT: usize = 56;
    let length = payload.len() as u32;
    let Some(message) = udcm::datagram(payload, length).filter(|message| message.job.is_some()) else { return };
    let renamed: Vec<Option<u32>> = message.queues().map(|queue| (names.own)(queue.qpn.value())).collect();
    for (index, number) in renamed.into_iter().enumerate() {
        if let Some(number) = number {
            write(payload, QUEUES_AT + 8 * index, &number.to_be_bytes());
        }
    }
    if names.identity != 0 {
        flip(payload, 32, names.identity << 16, u32::from_le_bytes, u32::to_le_bytes);
    }
}

/// Rewrites a wire-up message, given from its type on. The address has no fixed layout, so every
/// three bytes that equal a queue pair of the sender are rewritten.
fn wireup(message: &mut [u8], names: &ConnectionNames<'_>) {
    let mut at = LISTS_AT;
    while let Some(&[low, middle, high]) = message.get(at..at + 3) {
        let number = u32::from_le_bytes([low, middle, high, 0]);
        match (names.own)(number) {
            Some(renamed) => {
                write(message, at, &renamed.to_le_bytes()[..3]);
                at += 3;
            }
            None => at += 1,
        }
    }
    addresses(message, names.addresses);
    if names.identity != 0 {
        flip(message, WORKER_AT, names.identity, u32::from_le_bytes, u32::to_le_bytes);
    }
}

/// Replaces every known IPv4 address.
fn addresses(payload: &mut [u8], addresses: &HashMap<[u8; 4], [u8; 4]>) {
    if addresses.is_empty() {
        return;
    }
    let mut at = 0;
    while let Some(&[a, b, c, d]) = payload.get(at..at + 4) {
        match addresses.get(&[a, b, c, d]) {
            Some(renamed) => {
                write(payload, at, renamed);
                at += 4;
            }
            None => at += 1,
        }
    }
}

/// Flips bits of a number that is not 0.
fn flip(payload: &mut [u8], at: usize, bits: u32, read: fn([u8; 4]) -> u32, bytes: fn(u32) -> [u8; 4]) {
    if let Some(&old) = payload.get(at..).and_then(<[u8]>::first_chunk::<4>)
        && read(old) != 0
    {
        write(payload, at, &bytes(read(old) ^ bits));
    }
}

fn be24(payload: &[u8], at: usize) -> Option<u32> {
    let &[high, middle, low] = payload.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes([0, high, middle, low]))
}
