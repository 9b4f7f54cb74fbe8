//! UCX's connection messages: they identify the host and process of a UD queue pair, and both
//! endpoints of a connection.
//!
//! Control datagrams over UD (`ud_def.h`, `ud_ep.c`), after the 8-byte header of UCX's UD
//! transport:
//!
//! ```text
//! request (to endpoint 0xFFFFFF): P+8 type 1  P+12 queue pair (3)  P+15 endpoint (3)  P+18 connection u16
//! reply:                          P+8 type 2  P+12 the replier's endpoint u32
//! both:    P+28 host name [16]  P+44 process id i32  (P+24 and P+40 in older releases); request: P+48 address of the port
//! ```
//! Recorded with UCX 1.13.1 at P+28. Wire-up is active message 1 on any transport (`wireup.h`).
//! With A the first byte after the transport's header: A+0 type u8, A+1 error mode u8, A+2
//! connection u16, A+4 the sender's endpoint u64, A+12 the receiver's endpoint u64, A+20 address of
//! the sender's worker (one byte, then its id u64, then devices, transports and queue pairs).
//! Neither message contains an MPI rank.

use super::bytes;
use crate::{Endpoint, Qpn};

const NETH_IS_MESSAGE: u32 = 1 << 24;
const NETH_CONTROL: u32 = 1 << 29;
const NETH_BYTES: usize = 8;
const REQUEST: u32 = 1;
const REPLY: u32 = 2;
/// Destination endpoint of requests: not assigned yet.
const NO_ENDPOINT: u32 = 0xFF_FFFF;
const HOST_BYTES: usize = 16;
/// Highest process id of Linux (`PID_MAX_LIMIT`).
const PID_LIMIT: i32 = 1 << 22;
/// `UCP_AM_ID_WIREUP`.
const WIREUP: u8 = 1;
/// Highest wire-up type; the types are request before connection, request, reply, acknowledgement,
/// endpoint check, endpoint removed.
const WIREUP_TYPE_LAST: u8 = 5;
const WORKER_ADDRESS: usize = 20;
/// Limit of the connection number. Two workers number their connections from 0, and few have more
/// than one. `ob1` messages of the `openib` BTL, whose first byte may equal the id of this message,
/// have the type of their header here, 0x41 and above.
const CONNECTIONS_LIMIT: u16 = 0x1000;

/// A control datagram of UCX over UD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control<'a> {
    /// Connection request or its reply.
    pub kind: ControlKind,
    /// Host name of the sender, up to 15 characters; `None` if truncated or missing.
    pub host: Option<&'a str>,
    /// Process id of the sender; `None` if truncated or missing.
    pub process_id: Option<i32>,
}

/// Endpoints that a control datagram names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// Request for a new connection.
    Request {
        /// The sender's queue pair; equals the source queue pair of the DETH.
        qpn: Qpn,
        /// The sender's endpoint, 24 bits. Datagrams to the sender carry it.
        endpoint: u32,
        /// Number of the connection between the two interfaces, from 0.
        connection: u16,
    },
    /// Reply to a request.
    Reply {
        /// The receiver's endpoint, from its request.
        to_endpoint: u32,
        /// The sender's endpoint.
        endpoint: u32,
    },
}

/// Parses a control datagram: `payload` of a UD packet with UCX's `Q_Key`.
#[must_use]
pub fn control(payload: &[u8]) -> Option<Control<'_>> {
    let word = u32::from_le_bytes(bytes(payload, 0)?);
    if word & NETH_IS_MESSAGE != 0 || word & NETH_CONTROL == 0 {
        return None;
    }
    // One byte of type, three of padding that were recorded as 0.
    let kind = u32::from_le_bytes(bytes(payload, NETH_BYTES)?) & 0xFF;
    let to_endpoint = word & 0xFF_FFFF;
    let kind = match kind {
        REQUEST if to_endpoint == NO_ENDPOINT => {
            let [q0, q1, q2, e0, e1, e2] = bytes(payload, 12)?;
            ControlKind::Request {
                qpn: Qpn::new(u32::from_le_bytes([q0, q1, q2, 0])),
                endpoint: u32::from_le_bytes([e0, e1, e2, 0]),
                connection: u16::from_le_bytes(bytes(payload, 18)?),
            }
        }
        REPLY => ControlKind::Reply { to_endpoint, endpoint: u32::from_le_bytes(bytes(payload, 12)?) & 0xFF_FFFF },
        _ => return None,
    };
    // Try the older offset first: newer releases never have a name followed by a process id there.
    let peer = [24, 28].into_iter().find_map(|at| Some((host(payload, at)?, process_id(payload, at + HOST_BYTES)?)));
    Some(Control { kind, host: peer.map(|(host, _)| host), process_id: peer.map(|(_, pid)| pid) })
}

/// Sequence number of a control datagram on its endpoint; `None` for other datagrams. Control datagrams
/// and messages have one sequence (`uct_ud_neth_init_data`), acknowledgements repeat the latest number.
#[must_use]
pub fn control_sequence(payload: &[u8]) -> Option<u16> {
    let word = u32::from_le_bytes(bytes(payload, 0)?);
    let is_control = word & NETH_IS_MESSAGE == 0 && word & NETH_CONTROL != 0;
    if is_control { bytes(payload, 4).map(u16::from_le_bytes) } else { None }
}

/// A name that is printable, not empty, and padded with zeros.
fn host(payload: &[u8], at: usize) -> Option<&str> {
    let field = payload.get(at..)?.get(..HOST_BYTES)?;
    let length = field.iter().position(|&byte| byte == 0)?;
    let (name, fill) = field.split_at_checked(length)?;
    let plausible = !name.is_empty() && name.iter().all(u8::is_ascii_graphic) && fill.iter().all(|&byte| byte == 0);
    if plausible { core::str::from_utf8(name).ok() } else { None }
}

fn process_id(payload: &[u8], at: usize) -> Option<i32> {
    let pid = i32::from_le_bytes(bytes(payload, at)?);
    (1..=PID_LIMIT).contains(&pid).then_some(pid)
}

/// A wire-up message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UcxWireup<'a> {
    /// Type: 0 request before connection, 1 request, 2 reply, 3 acknowledgement, 4 endpoint check,
    /// 5 endpoint removed.
    pub kind: u8,
    /// Number of the connection between the two workers.
    pub connection: u16,
    /// The sender's endpoint: a pointer or an id.
    pub sender_endpoint: u64,
    /// The receiver's endpoint; 0 in requests, because the sender does not know it yet.
    pub receiver_endpoint: u64,
    /// Id of the sender's worker, the same in all its messages.
    pub worker: Option<u64>,
    /// Captured part of the sender's address.
    pub address: &'a [u8],
}

/// The queue pairs in a worker's address, one per lane.
///
/// An address lists devices, each with its transports, each with the lanes of the endpoint
/// (`address.c`, `uct_ib_address_t`, `uct_rc_ep_address_t`). Recorded with UCX 1.13 and 1.18:
///
/// ```text
/// 11 48 00000000000000000000ffff0a4d0001    length 17, flags, GID of the device's port (RoCE)
/// 40                                        length of the transport's own address 0, "lanes follow" (0x40)
/// 04 00 5d0000 80                           length 4, flags, queue pair 0x5D, lane 0 and "last" (0x80)
/// ```
/// Releases before 1.11 have no flags in a lane: the queue pair comes first. The parts in between
/// differ between releases, so lanes are found by searching for this shape.
pub fn lanes(address: &[u8]) -> impl Iterator<Item = UcxLane> + '_ {
    // A byte of flags and the worker's id precede the lists.
    const LISTS: usize = 9;
    let lists = address.get(LISTS..).unwrap_or_default();
    let (mut device, mut list_goes_on) = (None, None);
    (0..lists.len()).filter_map(move |at| {
        device = gid(&lists[at..]).map(|port| Device { port, start: LISTS + at }).or(device);
        if !(list_goes_on == Some(at) || begins_list(&lists[..at])) {
            return None;
        }
        let (qpn, length, is_last) = entry(&lists[at..])?;
        list_goes_on = (!is_last).then_some(at + length);
        Some(UcxLane { qpn, device, start: LISTS + at, length })
    })
}

/// Entry of a lane in a worker's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UcxLane {
    /// Queue pair of the sender.
    pub qpn: Qpn,
    /// Device of the queue pair, if the GID of its port is an IPv4 address.
    pub device: Option<Device>,
    /// Offset of the entry in the address, in bytes.
    pub start: usize,
    /// Length of the entry in bytes, from its length byte through its lane number.
    pub length: usize,
}

/// Device in a worker's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Port of the device.
    pub port: Endpoint,
    /// Offset of the device's length byte in the address, in bytes. Flags and GID follow it.
    pub start: usize,
}

/// Byte before the lanes of a transport without an address of its own.
pub const LANES_FOLLOW: u8 = 0x40;
/// Length of a device address: flags and GID.
pub const DEVICE_BYTES: u8 = 17;

/// Low bits of a length byte; the upper bits are flags.
const LENGTH_MASK: u8 = 0x3F;

/// The IPv4 address of a device's GID, if `rest` starts with a length byte of a device.
fn gid(rest: &[u8]) -> Option<Endpoint> {
    let [length, _] = bytes(rest, 0)?;
    let port = Endpoint::from_gid(bytes(rest, 2)?);
    (length & LENGTH_MASK == DEVICE_BYTES && matches!(port.ip(), Some(core::net::IpAddr::V4(_)))).then_some(port)
}

/// True if `before` ends with a transport address that announces lanes.
fn begins_list(before: &[u8]) -> bool {
    const LONGEST: u8 = 16;
    let mut lengths = before.iter().rev().zip(0..=LONGEST);
    lengths.any(|(byte, behind)| byte & LANES_FOLLOW != 0 && byte & LENGTH_MASK == behind)
}

/// The lane entry at the start of `rest`, if any: queue pair, length in bytes, and whether it is
/// the last of its list.
fn entry(rest: &[u8]) -> Option<(Qpn, usize, bool)> {
    const LAST: u8 = 0x80;
    const LANES: u8 = 16;
    const LONGEST: u8 = 16;
    let (length, rest) = rest.split_first()?;
    let length = length & LENGTH_MASK;
    let lane = rest.get(usize::from(length))?;
    if !(4..=LONGEST).contains(&length) || lane & !LAST >= LANES {
        return None;
    }
    // The flags use a few low bits; a queue pair number at this position has more.
    let has_flags = rest.first().is_some_and(|flags| *flags < 4);
    let [low, middle, high] = bytes(rest, usize::from(has_flags))?;
    let qpn = Qpn::new(u32::from_le_bytes([low, middle, high, 0]));
    (!qpn.is_management()).then_some((qpn, usize::from(length) + 2, lane & LAST != 0))
}

/// Parses a wire-up message.
///
/// `id_at` is the offset of the active message id in the payload: 0 with the verbs transports of RC
/// and DC, 1 with the mlx5 transports, after a byte that is 0. For UD see [`wireup_datagram`].
#[must_use]
pub fn wireup(payload: &[u8], id_at: usize) -> Option<UcxWireup<'_>> {
    let [id] = bytes(payload, id_at)?;
    // Flow-control grants have all upper bits set and no message after them.
    if id & 0x1F != WIREUP || id >> 5 == 7 || payload.iter().take(id_at).any(|&byte| byte != 0) {
        return None;
    }
    message(payload.get(id_at.checked_add(1)?..)?)
}

/// Parses a wire-up message in a UD packet with UCX's `Q_Key`.
#[must_use]
pub fn wireup_datagram(payload: &[u8]) -> Option<UcxWireup<'_>> {
    let word = u32::from_le_bytes(bytes(payload, 0)?);
    if word & NETH_IS_MESSAGE == 0 || (word >> 27) as u8 != WIREUP {
        return None;
    }
    message(payload.get(NETH_BYTES..)?)
}

fn message(rest: &[u8]) -> Option<UcxWireup<'_>> {
    let [kind, error_mode] = bytes(rest, 0)?;
    let sender_endpoint = u64::from_le_bytes(bytes(rest, 4)?);
    let receiver_endpoint = u64::from_le_bytes(bytes(rest, 12)?);
    let connection = u16::from_le_bytes(bytes(rest, 2)?);
    // Endpoints are user pointers or small numbers; error modes are 0 and 1.
    let plausible = kind <= WIREUP_TYPE_LAST
        && error_mode <= 1
        && connection < CONNECTIONS_LIMIT
        && (sender_endpoint | receiver_endpoint) < 1 << 48;
    let address = rest.get(WORKER_ADDRESS..)?;
    plausible.then_some(UcxWireup {
        kind,
        connection,
        sender_endpoint,
        receiver_endpoint,
        worker: bytes(address, 1).map(u64::from_le_bytes),
        address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::noise::Noise;
    use alloc::vec::Vec;
    use hex_literal::hex;

    /// Recorded with UCX 1.13.1 except the first 8 bytes, which are built from the layout: process
    /// 1683 on node2, queue pair 0x56.
    const REQUEST: [u8; 65] = hex!(
        "ffffff20 01000000"
        "01000000 560000020000 0000 00000000 007f0000"
        "6e6f6465320000000000000000000000 93060000 4800000000000000000000ffff0a4d0002"
    );
    /// Recorded in the same way: reply of process 1353 on node1.
    const REPLY: [u8; 48] = hex!(
        "02000020 01000000"
        "02000000 03000000 d17f0000 00000000 00000000"
        "6e6f6465310000000000000000000000 49050000"
    );
    /// Recorded over RC verbs: acknowledgement with both endpoints.
    const WIREUP_RC: [u8; 31] = hex!("01 03 00 0000 b03014e1127f0000 0841e25ed17f0000 20dde6d026f981d778ff");
    /// Recorded (active message part): reply that names RC queue pair 0x60.
    const WIREUP_UD: [u8; 74] = hex!(
        "02000000b040e25ed17f0000b0501d4d097f000020e17773ad297c9d4e23914800000000000000000000ffff0a4d0001"
        "278ab00fa133e34ae94ca97bae3600df220003c0040060000080"
    );

    #[test]
    fn requests_name_queue_pair_host_and_process() {
        let control = control(&REQUEST).unwrap();
        assert_eq!(control.kind, ControlKind::Request { qpn: Qpn::new(0x56), endpoint: 2, connection: 0 });
        assert_eq!((control.host, control.process_id), (Some("node2"), Some(1683)));
    }

    #[test]
    fn replies_name_the_other_end() {
        let control = control(&REPLY).unwrap();
        assert_eq!(control.kind, ControlKind::Reply { to_endpoint: 2, endpoint: 3 });
        assert_eq!((control.host, control.process_id), (Some("node1"), Some(1353)));
    }

    /// The recorded request and reply are the first datagrams of their senders, from bytes 4 and 5.
    #[test]
    fn control_datagrams_are_numbered() {
        assert_eq!((control_sequence(&REQUEST), control_sequence(&REPLY)), (Some(1), Some(1)));
        let acknowledgement = [0, 0, 0, 2, 4, 0, 1, 0];
        let message = [0, 0, 0, 0x13, 3, 0, 1, 0];
        assert_eq!([control_sequence(&acknowledgement), control_sequence(&message)], [None, None]);
        assert_eq!(control_sequence(&REQUEST[..5]), None);
    }

    #[test]
    fn older_releases_have_the_name_four_bytes_earlier() {
        let older = [&REQUEST[..24], &REQUEST[28..]].concat();
        let control = control(&older).unwrap();
        assert_eq!((control.host, control.process_id), (Some("node2"), Some(1683)));
    }

    #[test]
    fn wireup_of_both_transports() {
        let message = wireup(&WIREUP_RC, 0).unwrap();
        assert_eq!((message.kind, message.connection, message.worker), (3, 0, Some(0x78D7_81F9_26D0_E6DD)));
        assert_eq!((message.sender_endpoint, message.receiver_endpoint), (0x7F12_E114_30B0, 0x7FD1_5EE2_4108));
        let mlx5 = [&[0], &WIREUP_RC[..]].concat();
        assert_eq!(wireup(&mlx5, 1), Some(message));

        let mut datagram = Vec::from((1u32 << 27 | NETH_IS_MESSAGE | 2).to_le_bytes());
        datagram.extend([2, 0, 1, 0]);
        datagram.extend(WIREUP_UD);
        let message = wireup_datagram(&datagram).unwrap();
        assert_eq!((message.kind, message.sender_endpoint), (2, 0x7FD1_5EE2_40B0));
        let found: Vec<UcxLane> = lanes(message.address).filter(|lane| lane.qpn == Qpn::new(0x60)).collect();
        // The address has 54 bytes; the entry is the last six.
        let device = Some(Device { port: Endpoint::from_ipv4([10, 77, 0, 1]), start: 10 });
        assert_eq!(found, [UcxLane { qpn: Qpn::new(0x60), device, start: 54 - 6, length: 6 }]);
        // The same number elsewhere is no lane: here it is the end of an IPv4 address.
        assert!(lanes(message.address).all(|lane| lane.qpn != Qpn::new(0x01_004d)));
    }

    #[test]
    fn truncated_messages_yield_the_captured_part() {
        for cut in 0..REQUEST.len() {
            let found = control(&REQUEST[..cut]);
            assert_eq!(found.is_some(), cut >= 20, "{cut}");
            assert_eq!(found.is_some_and(|found| found.host.is_some()), cut >= 48, "{cut}");
        }
        for cut in 0..REPLY.len() {
            assert_eq!(control(&REPLY[..cut]).is_some(), cut >= 16, "{cut}");
        }
        for cut in 0..WIREUP_RC.len() {
            let found = wireup(&WIREUP_RC[..cut], 0);
            assert_eq!(found.is_some(), cut >= 21, "{cut}");
            assert_eq!(found.is_some_and(|found| found.worker.is_some()), cut >= 30, "{cut}");
        }
    }

    #[test]
    fn other_messages_are_not_taken() {
        // Acknowledgement without a message, eager message, flow-control grant.
        assert_eq!(control(&[0; 64]), None);
        assert_eq!(wireup(&[2; 64], 0), None);
        assert_eq!(wireup(&[0xE1; 64], 0), None);
        assert_eq!(wireup(&[1; 64], usize::MAX), None);
        // Messages of the openib BTL: MATCH, and one with a credit in its second byte.
        let ob1 = [&[0x41, 0, 0, 0, 0x41], &[0; 40][..]].concat();
        assert_eq!(wireup(&ob1, 0), None);
        let credit = [&[0x41, 1], &[0; 40][..]].concat();
        assert_eq!(wireup(&credit, 1), None);
        let mut noise = Noise::new(7);
        let taken = (0..100_000).filter(|_| wireup(&noise.payload(40), 0).is_some()).count();
        // 8 bits of type and error mode and 16 of each endpoint: the probability is below 2^-40.
        assert_eq!(taken, 0);
    }
}
