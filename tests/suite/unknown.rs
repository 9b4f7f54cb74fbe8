//! Traffic that is not MPI never gets a library or a rank: random payloads and other protocols,
//! alone and together with recorded MPI traffic, whose own result must not change.

use crate::runs;
use crate::tools::random;
use crate::wire::{WireBuilder, WireQueuePair, profile};
use ibscope::model::profile::{ConnectionRow, LatencyRow};
use ibscope::model::{ConnectionClass, Profile};
use ibscope_parsers::Lid;
use std::path::PathBuf;

/// One recorded run of each library: a detected library in the capture lowers the bar for weak
/// connections. The LIDs of the runs are 17 to 20.
const RECORDED: [&str; 5] = ["ompi-rc-ring2", "ompi-openib-ring2", "mpich-rc-ring2", "ompi-ud-ring2", "ompi-ofi-ring2"];
/// LIDs of the traffic that the tests build.
const LIDS: std::ops::Range<u16> = 0x100..0x120;
/// Random packets in a run of the suite.
const PACKETS: u64 = 200_000;

const IPOIB_Q_KEY: u32 = 0x0B1B;
/// `Q_Keys` with a meaning: UCX and management.
const MEANINGFUL: [u32; 2] = [0x1EE7_A330, 0x8001_0000];

fn is_ours(connection: &ConnectionRow) -> bool {
    connection.src.lid().is_some_and(|Lid(lid)| LIDS.contains(&lid))
}

/// Claims about connections that are not MPI; must be empty.
fn claims(profile: &Profile) -> Vec<String> {
    let says_something = |connection: &&ConnectionRow| {
        let traffic = &connection.traffic;
        let mpi =
            [traffic.p2p_messages, traffic.p2p_mpi_bytes, traffic.collective_messages, traffic.collective_mpi_bytes];
        let is_job = matches!(connection.class, ConnectionClass::Mpi | ConnectionClass::Nccl);
        connection.stack.is_some() || mpi != [0; 4] || is_job
    };
    let line = |connection: &ConnectionRow| {
        let ConnectionRow { src, dst, dest_qp, service, traffic, stack, class, .. } = connection;
        format!(
            "{src}->{dst} qp {:#x} service {service}: {}, {stack:?}, {} messages, {} and {} MPI messages",
            dest_qp.value(),
            class.name(),
            traffic.messages,
            traffic.p2p_messages,
            traffic.collective_messages
        )
    };
    let of_mpi = |row: &LatencyRow| {
        row.timing.interval.requires_detection() && is_ours(&profile.connections[row.connection as usize])
    };
    let times = profile.latencies.iter().filter(of_mpi).map(|row| format!("times of MPI messages: {:?}", row.timing));
    let rows = profile.connections.iter().filter(|connection| is_ours(connection));
    rows.filter(says_something).map(line).chain(times).collect()
}

/// False claims about the built capture, alone or together with a recorded capture, and changes in
/// the result of the recorded capture: one sentence each, empty if there are none. `packets` is the
/// number of built packets.
fn findings(case: &str, capture: &PathBuf, packets: u64, recorded: &[&str]) -> Vec<String> {
    let alone = profile(std::slice::from_ref(capture));
    let built = &alone.connections;
    assert_eq!(built.iter().map(|row| row.traffic.packets).sum::<u64>(), packets, "{case}: all packets are there");
    assert!(built.iter().all(is_ours), "{case}");
    let mut findings = Vec::new();
    let say = |place: &str, what: &str, lines: &[String]| {
        let example = lines.first()?;
        Some(format!("{case}, {place}: {} {what} (of {} connections built), {example}", lines.len(), built.len()))
    };
    findings.extend(say("alone", "labeled", &claims(&alone)));
    let named: Vec<String> = alone.ranks.iter().map(|row| format!("{row:?}")).collect();
    findings.extend(say("alone", "ranks named", &named));
    for name in recorded {
        let place = format!("beside {name}");
        let sink = runs::named(name).sink();
        let expected = profile(std::slice::from_ref(&sink));
        assert!(expected.connections.iter().any(|row| row.stack.is_some()), "{name} is MPI");
        let together = profile(&[sink, capture.clone()]);
        findings.extend(say(&place, "labeled", &claims(&together)));
        if together.ranks != expected.ranks {
            findings.push(format!("{case}, {place}: ranks are {:?}, not {:?}", together.ranks, expected.ranks));
        }
        let theirs: Vec<_> = together.connections.into_iter().filter(|row| !is_ours(row)).collect();
        assert_eq!(theirs.len(), expected.connections.len(), "{case}, {place}");
        let changed = theirs.iter().zip(&expected.connections).filter(|(is, was)| is != was);
        let changed: Vec<String> = changed
            .map(|(is, was)| format!("{:?} {:?}, not {:?} {:?}", is.stack, is.traffic, was.stack, was.traffic))
            .collect();
        findings.extend(say(&place, "recorded connections changed", &changed));
    }
    findings
}

#[track_caller]
fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

/// Random bytes.
fn noise(random: &mut impl FnMut(usize) -> usize, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| random(usize::MAX).to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

/// Writes connections with random payloads until the capture has this many packets. Many have one
/// or two messages, the others up to 60, of one operation or of all.
fn random_connections(wire: &mut WireBuilder, packets: u64, seed: u64) {
    let mut random = random(seed);
    while wire.packets() < packets {
        let src = LIDS.start + random(LIDS.len()) as u16;
        let dst = LIDS.start + (usize::from(src - LIDS.start) + 1 + random(LIDS.len() - 1)) as u16 % LIDS.len() as u16;
        let mut queue = WireQueuePair::new(src, dst, 2 + random((1 << 24) - 3) as u32);
        queue.mtu_bytes = 256 << random(5);
        queue.psn = if random(2) == 0 { 0 } else { random(1 << 24) as u32 };
        let src_qp = 2 + random((1 << 24) - 3) as u32;
        let messages = match random(4) {
            0 => 1,
            1 => 2,
            _ => 3 + random(58),
        };
        let of_connection = random(7);
        for _ in 0..messages {
            let length = random(2001);
            let payload = noise(&mut random, length);
            // Datagrams have queue pairs of their own, so only the other operations are mixed.
            match if of_connection == 6 { random(4) } else { of_connection } {
                0 => queue.send(wire, &payload),
                1 => queue.send_immediate(wire, &payload, random(1 << 32) as u32),
                2 => queue.write(wire, random(1 << 48) as u64, random(1 << 32) as u32, &payload),
                3 => queue.write_immediate(wire, random(1 << 48) as u64, 1, &payload, random(1 << 32) as u32),
                4 => queue.datagram(wire, if src_qp.is_multiple_of(2) { 0 } else { IPOIB_Q_KEY }, src_qp, &payload),
                _ => {
                    let q_key = random(1 << 32) as u32;
                    if !MEANINGFUL.contains(&q_key) {
                        queue.datagram(wire, q_key, src_qp, &payload);
                    }
                }
            }
        }
    }
}

/// Analyzes random captures together with every recorded capture; `packets` is the number of random
/// packets in total.
pub(crate) fn random_payloads_stay_unknown(packets: u64) {
    let mut found = Vec::new();
    for (seed, name) in (1..).zip(RECORDED) {
        let mut wire = WireBuilder::new();
        random_connections(&mut wire, packets / RECORDED.len() as u64, seed);
        let capture = wire.file();
        let classified = profile(std::slice::from_ref(&capture)).connections;
        let classified = classified.iter().filter(|row| row.class != ConnectionClass::Unknown);
        found.extend(classified.map(|row| format!("random payloads, seed {seed}: {} {}", row.src, row.class.name())));
        found.extend(findings(&format!("random payloads, seed {seed}"), &capture, wire.packets(), &[name]));
    }
    assert_none(&found);
}

#[test]
fn random_payloads_are_unknown() {
    random_payloads_stay_unknown(PACKETS);
}

/// The [`findings`] for a protocol: `message` returns the n-th payload. The messages use four
/// connections of 40 messages and eight with one or two, as acknowledged SENDs.
fn protocol(case: &str, message: impl Fn(u32) -> Vec<u8>) -> Vec<String> {
    let mut wire = WireBuilder::new();
    each_connection(|there, back, messages| {
        for number in 0..messages {
            there.send(&mut wire, &message(number));
            back.ack(&mut wire, there);
        }
    });
    let capture = wire.file();
    findings(case, &capture, wire.packets(), &RECORDED)
}

/// Twelve connections, each with its number of messages.
fn each_connection(mut with: impl FnMut(&mut WireQueuePair, &mut WireQueuePair, u32)) {
    let messages = [40, 40, 40, 40, 1, 1, 1, 1, 2, 2, 2, 2];
    for (index, messages) in (0u16..).zip(messages) {
        let (one, other) = (LIDS.start + index % 4, LIDS.start + 4 + index % 3);
        let (mut there, mut back) =
            WireQueuePair::pair((one, 0x800 + u32::from(index)), (other, 0x900 + u32::from(index)));
        with(&mut there, &mut back, messages);
    }
}

/// An IPv4 packet with a TCP segment.
fn ipv4(number: u32, data_bytes: usize) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((40 + data_bytes as u16).to_be_bytes());
    packet.extend((number as u16).to_be_bytes());
    packet.extend([0x40, 0, 64, 6, 0x1A, 0x2B, 10, 1, 0, 1, 10, 1, 0, 2]);
    packet.extend([0x8F, 0x02, 0x14, 0x51]);
    packet.extend((1_000_000 + number * data_bytes as u32).to_be_bytes());
    packet.extend([0, 0, 0x10, 0, 0x50, 0x18, 1, 0xF6, 0, 0, 0, 0]);
    packet.extend((0..data_bytes).map(|at| (at * 7 + number as usize) as u8));
    packet
}

/// An IPv6 packet with a TCP segment.
fn ipv6(number: u32, data_bytes: usize) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((20 + data_bytes as u16).to_be_bytes());
    packet.extend([6, 64]);
    packet.extend([0xFE, 0x80, 0, 0, 0, 0, 0, 0, 2, 2, 0xC9, 3, 0, 0x3A, 0x1F, 1]);
    packet.extend([0xFE, 0x80, 0, 0, 0, 0, 0, 0, 2, 2, 0xC9, 3, 0, 0x3A, 0x1F, 2]);
    packet.extend(&ipv4(number, data_bytes)[20..]);
    packet
}

/// An ARP request over InfiniBand: hardware type 32, addresses of 20 bytes.
fn arp(number: u32) -> Vec<u8> {
    let mut packet = vec![0, 32, 8, 0, 20, 4, 0, 1];
    packet.extend([0x80, 0, 4, 4]);
    packet.extend([0xFE, 0x80, 0, 0, 0, 0, 0, 0, 2, 2, 0xC9, 3, 0, 0x3A, 0x1F, 1]);
    packet.extend([10, 1, 0, 1]);
    packet.extend([0; 20]);
    packet.extend([10, 1, 0, number as u8]);
    packet
}

/// RFC 4391 and 4755: `EtherType` and two reserved bytes, then the packet.
fn ip_over_infiniband(number: u32) -> Vec<u8> {
    match number % 5 {
        0 => [&[0x86, 0xDD, 0, 0][..], &ipv6(number, 64)].concat(),
        1 => [&[0x08, 0x06, 0, 0][..], &arp(number)].concat(),
        2 => [&[0x08, 0x00, 0, 0][..], &ipv4(number, 3000)].concat(),
        _ => [&[0x08, 0x00, 0, 0][..], &ipv4(number, 100)].concat(),
    }
}

#[test]
fn ip_over_infiniband_in_connected_mode_is_unknown() {
    let mut found = Vec::new();
    found.extend(protocol("IPoIB, connected mode", ip_over_infiniband));
    found.extend(protocol("IPoIB, connected mode, IPv4 only", |number| {
        [&[0x08, 0x00, 0, 0][..], &ipv4(number, 500)].concat()
    }));
    found.extend(protocol("IPoIB, connected mode, IPv6 only", |number| {
        [&[0x86, 0xDD, 0, 0][..], &ipv6(number, 500)].concat()
    }));
    assert_none(&found);
}

#[test]
fn ip_over_infiniband_in_datagram_mode_is_unknown() {
    let mut wire = WireBuilder::new();
    each_connection(|there, back, messages| {
        for number in 0..messages {
            there.datagram(&mut wire, IPOIB_Q_KEY, back.dest_qp, &ip_over_infiniband(number));
            back.datagram(&mut wire, IPOIB_Q_KEY, there.dest_qp, &ip_over_infiniband(number + 3));
        }
    });
    let capture = wire.file();
    assert_none(&findings("IPoIB, datagrams", &capture, wire.packets(), &RECORDED));
}

/// SCSI RDMA Protocol (T10): `SRP_CMD` is {opcode 0x02, solicited notification, 3 reserved, buffer
/// formats, descriptors out and in, tag u64, 4 reserved, LUN u64, ..., CDB[16], direct descriptor
/// {address u64, key u32, length u32}}, all big-endian.
fn srp_command(number: u32, reads: bool) -> Vec<u8> {
    // Buffer format 0x02: one direct descriptor for data in; 0x20: for data out.
    let mut command = vec![0x02, 0, 0, 0, 0, if reads { 0x02 } else { 0x20 }, 0, 0];
    command.extend(u64::from(number % 64).to_be_bytes());
    command.extend([0; 4]);
    command.extend([0, 1, 0, 0, 0, 0, 0, 0]);
    command.extend([0; 4]);
    // READ(10) or WRITE(10) of eight blocks.
    command.extend([if reads { 0x28 } else { 0x2A }, 0]);
    command.extend((number * 8).to_be_bytes());
    command.extend([0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    command.extend((0x0000_7F12_3400_0000 + u64::from(number) * 4096).to_be_bytes());
    command.extend(0x0001_2345u32.to_be_bytes());
    command.extend(4096u32.to_be_bytes());
    command
}

#[test]
fn srp_is_unknown() {
    let mut found = Vec::new();
    found.extend(protocol("SRP_CMD", |number| srp_command(number, number % 2 == 0)));
    // `SRP_RSP`: {0xC1, solicited, 2 reserved, credits u32, tag u64, 2 reserved, flags, status,
    // four lengths u32}.
    found.extend(protocol("SRP_RSP", |number| {
        let mut response = vec![0xC1, 0, 0, 0, 0, 0, 0, 1];
        response.extend(u64::from(number % 64).to_be_bytes());
        response.extend([0; 20]);
        response
    }));
    assert_none(&found);
}

/// Commands of one kind are the hardest: 0x02 is UCX's `EAGER_ONLY`, and the rest is, byte by byte,
/// tag 0 of rank 2 (reads) or 32 (writes) in MPICH's layout. Each port would have the same rank,
/// and no other rank exists, which rules MPI out.
#[test]
fn srp_of_one_kind_is_unknown() {
    let mut found = Vec::new();
    found.extend(protocol("SRP_CMD, reads only", |number| srp_command(number, true)));
    found.extend(protocol("SRP_CMD, writes only", |number| srp_command(number, false)));
    assert_none(&found);
}

/// The iSER protocol (RFC 7145): {flags 0x10 and bits for the tags, 3 reserved, write tag u32,
/// address u64, read tag u32, address u64} big-endian, then the 48 bytes of an iSCSI command (0x01)
/// or response (0x21).
#[test]
fn iser_is_unknown() {
    let mut found = Vec::new();
    for (case, flags, opcode) in [("iSER commands", 0x14, 0x01), ("iSER responses", 0x10, 0x21)] {
        found.extend(protocol(case, |number| {
            let mut message = vec![flags, 0, 0, 0];
            message.extend([0; 12]);
            message.extend(0x0001_8000u32.to_be_bytes());
            message.extend((0x0000_7F12_3400_0000 + u64::from(number) * 8192).to_be_bytes());
            message.extend([opcode, 0xC1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            message.extend(number.to_be_bytes());
            message.extend(8192u32.to_be_bytes());
            message.extend((number + 1).to_be_bytes());
            message.extend(number.to_be_bytes());
            message.extend([0x28, 0, 0, 0, 0, number as u8, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0]);
            message
        }));
    }
    assert_none(&found);
}

/// `NVMe` over Fabrics: a submission of 64 bytes, little-endian {opcode, flags 0x40, command id
/// u16, namespace u32, 16, SGL 16 at 24, LBA u64 at 40, blocks u16 at 48}, or a completion of 16
/// {result u64, SQ head u16, SQ id u16, command id u16, status u16}.
#[test]
fn nvme_over_fabrics_is_unknown() {
    let mut found = Vec::new();
    for (case, opcode) in [("NVMe-oF read", 0x02), ("NVMe-oF write", 0x01)] {
        found.extend(protocol(case, |number| {
            let mut command = vec![opcode, 0x40];
            command.extend((number as u16 % 32).to_le_bytes());
            command.extend(1u32.to_le_bytes());
            command.extend([0; 16]);
            command.extend((0x0000_7F12_3400_0000 + u64::from(number) * 4096).to_le_bytes());
            // Keyed SGL: 24 bits of length, the key, type 0x40.
            command.extend([0, 0x10, 0, 0x45, 0x23, 1, 0, 0x40]);
            command.extend((u64::from(number) * 8).to_le_bytes());
            command.extend([7, 0]);
            command.resize(64, 0);
            command
        }));
    }
    found.extend(protocol("NVMe-oF completion", |number| {
        let mut completion = vec![0; 8];
        completion.extend((number as u16 % 128).to_le_bytes());
        completion.extend([0, 0]);
        completion.extend((number as u16 % 32).to_le_bytes());
        completion.extend([0, 0]);
        completion
    }));
    assert_none(&found);
}

/// NFS over RDMA (RFC 8166): {xid, version 1, credits, `RDMA_MSG` 0, no read, write and reply
/// chunks} and the RPC call (RFC 5531: xid, call 0, RPC 2, program 100003, version 3, procedure),
/// all big-endian u32.
#[test]
fn nfs_over_rdma_is_unknown() {
    let mut found = Vec::new();
    // The first byte of the transaction id takes all values.
    found.extend(protocol("NFS-RDMA", |number| {
        let xid = 0x0100_0000u32.wrapping_mul(number) | 0x0045_6700 | number;
        let words = [xid, 1, 128, 0, 0, 0, 0, xid, 0, 2, 100_003, 3, 6, 1, 24, 0x5566_7788];
        let mut message: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        message.extend([0; 60]);
        message
    }));
    // With a single client, only the last byte changes.
    found.extend(protocol("NFS-RDMA, one client", |number| {
        let xid = 0x0245_6700 + number;
        let words = [xid, 1, 128, 0, 0, 0, 0, xid, 0, 2, 100_003, 3, 6, 1, 24, 0x5566_7788];
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }));
    assert_none(&found);
}

/// Lustre's o2iblnd: {magic 0x0BE91B91, version u16 0x12, type u8 (0xD0 immediate, 0xD1 no-op, 0xD2
/// put request), credits u8, length u32, checksum u32, source NID u64, stamp u64, destination NID
/// u64, stamp u64}, in the byte order of the sender.
#[test]
fn lustre_is_unknown() {
    let mut found = Vec::new();
    for (case, kind) in [("o2iblnd immediate", 0xD0), ("o2iblnd no-op", 0xD1), ("o2iblnd put", 0xD2)] {
        found.extend(protocol(case, |number| {
            let mut message = 0x0BE9_1B91u32.to_le_bytes().to_vec();
            message.extend([0x12, 0, kind, 1]);
            message.extend(152u32.to_le_bytes());
            message.extend([0; 4]);
            for word in [0x0005_0000_0A01_0001u64, 0x5F5E_1000_0001, 0x0005_0000_0A01_0002, 0x5F5E_1000_0002] {
                message.extend(word.to_le_bytes());
            }
            message.extend(number.to_le_bytes());
            message.resize(152, 0);
            message
        }));
    }
    assert_none(&found);
}

/// Request and response of another protocol, as its specification defines them; `random` gives the
/// fields that the specification leaves open.
fn conversation(kind: usize, number: u32, random: &mut impl FnMut(usize) -> usize) -> [Vec<u8>; 2] {
    let address = |random: &mut dyn FnMut(usize) -> usize| 0x7F00_0000_0000 | (random(1 << 28) as u64) << 12;
    match kind {
        0 => [ip_over_infiniband(number), ip_over_infiniband(number + 3)],
        1 => {
            let mut response = vec![0xC1, 0, 0, 0, 0, 0, 0, 1];
            response.extend(u64::from(number % 64).to_be_bytes());
            response.extend([0; 20]);
            [srp_command(number, random(2) == 0), response]
        }
        // iSER (RFC 7145) with an iSCSI command or response.
        2 => [(0x14, 0x01), (0x10, 0x21)].map(|(flags, opcode)| {
            let mut message = vec![flags, 0, 0, 0];
            message.extend([0; 12]);
            message.extend((if opcode == 0x01 { random(1 << 32) as u32 } else { 0 }).to_be_bytes());
            message.extend((if opcode == 0x01 { address(random) } else { 0 }).to_be_bytes());
            message.extend([opcode, 0xC1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            [number, 8192, number + 1, number].iter().for_each(|word| message.extend(word.to_be_bytes()));
            message.extend([0x28, 0, 0, 0, 0, number as u8, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0]);
            message
        }),
        // NVMe: a command of 64 bytes with a keyed SGL, and a completion of 16.
        3 => {
            let id = (random(128) as u16).to_le_bytes();
            let mut command = vec![1 + random(2) as u8, 0x40, id[0], id[1], 1, 0, 0, 0];
            command.extend([0; 16]);
            command.extend(address(random).to_le_bytes());
            command.extend([0, 0x10, 0]);
            command.extend((random(1 << 32) as u32).to_le_bytes());
            command.push(0x40);
            command.extend((random(1 << 30) as u64).to_le_bytes());
            command.extend([7, 0]);
            command.resize(64, 0);
            let mut completion = vec![0; 8];
            completion.extend([number as u8 % 128, 0, 0, 0, id[0], id[1], 0, 0]);
            [command, completion]
        }
        // RPC-over-RDMA (RFC 8166): call of NFS 3 READ, and its reply.
        4 => {
            let xid = random(1 << 32) as u32;
            let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
            let head = [xid, 1, 128, 0, 0, 0, 0, xid];
            let call = words(&[&head[..], &[0, 2, 100_003, 3, 6, 1, 24, random(1 << 32) as u32, 0, 0]].concat());
            [call, words(&[&head[..], &[1, 0, 0, 0, 0, 0, 0]].concat())]
        }
        // o2iblnd: immediate or put request, and a no-op.
        5 => [[0xD0, 0xD2][random(2)], 0xD1].map(|kind| {
            let mut message = 0x0BE9_1B91u32.to_le_bytes().to_vec();
            message.extend([0x12, 0, kind, 1, 152, 0, 0, 0, 0, 0, 0, 0]);
            for word in [0x0005_0000_0A01_0001u64, 0x5F5E_1000_0001, 0x0005_0000_0A01_0002, 0x5F5E_1000_0002] {
                message.extend(word.to_le_bytes());
            }
            message.extend(number.to_le_bytes());
            message.extend(noise(random, 100));
            message
        }),
        // SMB Direct (MS-SMBD 2.2.3): credits, flags, reserved, remaining, offset 24, length.
        _ => [0; 2].map(|_: u8| {
            let data_bytes = random(1000);
            let mut message = vec![255, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0];
            message.extend((data_bytes as u32).to_le_bytes());
            message.extend([0; 4]);
            message.extend(noise(random, data_bytes));
            message
        }),
    }
}

/// Kinds of [`conversation`].
const SHAPES: usize = 7;

/// Writes connections with messages of other protocols until the capture has this many packets.
fn shaped_connections(wire: &mut WireBuilder, packets: u64, seed: u64) {
    let mut random = random(seed);
    while wire.packets() < packets {
        let lid = |at: usize| LIDS.start + at as u16;
        let (one, other) = (random(LIDS.len() / 2), LIDS.len() / 2 + random(LIDS.len() / 2));
        let qpn = |random: &mut dyn FnMut(usize) -> usize| 2 + random((1 << 24) - 3) as u32;
        let ends = ((lid(one), qpn(&mut random)), (lid(other), qpn(&mut random)));
        let (mut there, mut back) = WireQueuePair::pair(ends.0, ends.1);
        let kind = random(SHAPES);
        let is_answered = random(4) > 0;
        let (first, messages) = (random(1 << 20) as u32, 1 + random(60) as u32);
        for number in first..first + messages {
            let [request, response] = conversation(kind, number, &mut random);
            there.send(wire, &request);
            back.ack(wire, &there);
            if is_answered {
                back.send(wire, &response);
                there.ack(wire, &back);
            }
        }
    }
}

/// Like [`random_payloads_stay_unknown`], with messages of other protocols. They may have the
/// class of their protocol.
pub(crate) fn shaped_payloads_are_no_job(packets: u64) {
    let mut found = Vec::new();
    for (seed, name) in (101..).zip(RECORDED) {
        let mut wire = WireBuilder::new();
        shaped_connections(&mut wire, packets / RECORDED.len() as u64, seed);
        let capture = wire.file();
        found.extend(findings(&format!("shaped payloads, seed {seed}"), &capture, wire.packets(), &[name]));
    }
    assert_none(&found);
}

#[test]
fn payloads_that_are_shaped_like_other_protocols_are_no_job() {
    shaped_payloads_are_no_job(PACKETS);
}

#[test]
fn zeros_and_ones_are_unknown() {
    let mut found = Vec::new();
    for length in [1, 5, 8, 16, 40, 64, 88, 256, 1296, 5000] {
        found.extend(protocol(&format!("{length} zeros"), |_| vec![0; length]));
        found.extend(protocol(&format!("{length} bytes 0xff"), |_| vec![0xFF; length]));
    }
    assert_none(&found);
}

#[test]
fn text_is_unknown() {
    let mut found = Vec::new();
    let lines = [
        "GET /status HTTP/1.1\r\nHost: node1\r\nAccept: */*\r\n\r\n",
        "{\"time\": 1700000000, \"level\": \"info\", \"message\": \"checkpoint written\"}\n",
        "A line of a log file, and nothing else in it\n",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
        "  \t indented text that begins with blanks\n",
        "#include <stdio.h>\n",
    ];
    for line in lines {
        found.extend(protocol(line.trim_end(), |number| format!("{line}{number}").into_bytes()));
    }
    assert_none(&found);
}

#[test]
fn counters_are_unknown() {
    let mut found = Vec::new();
    // Incrementing words, like the buffers of a benchmark: the first byte takes every value.
    found.extend(protocol("u32 counters", |number| {
        (0..50u32).flat_map(|at| (number * 50 + at).to_le_bytes()).collect()
    }));
    found.extend(protocol("u64 counters", |number| {
        (0..50u64).flat_map(|at| (u64::from(number) * 50 + at).to_le_bytes()).collect()
    }));
    found.extend(protocol("big-endian counters", |number| {
        (0..50u32).flat_map(|at| (number * 50 + at).to_be_bytes()).collect()
    }));
    found.extend(protocol("bytes that count", |number| (0..=255u8).map(|at| at.wrapping_add(number as u8)).collect()));
    found.extend(protocol("one number per message", |number| number.to_le_bytes().to_vec()));
    assert_none(&found);
}

/// The same number in the first word of every message, like a request code. Without 2 and 6: a word
/// of 2 and a counter are, byte by byte, UCX's eager messages of rank 0 with the tags 0x10000,
/// 0x20000 ... (6: synchronous ones).
#[test]
fn request_codes_are_unknown() {
    let mut found = Vec::new();
    for code in (1..=28u64).filter(|code| ![2, 6].contains(code)) {
        found.extend(protocol(&format!("request code {code}"), |number| {
            let words = [code, u64::from(number), 0, 0, 4096];
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        }));
    }
    assert_none(&found);
}

/// WRITEs of 64 bytes that look like NCCL 2.20's "clear to send" (address u64, size u32, keys
/// u32[2], elements u32 at 20, rank u32 at 24, index u64 at 32), but with an index that does not
/// increment by one.
#[test]
fn writes_with_a_wrong_index_are_unknown() {
    type Index = fn(u64) -> u64;
    let mut found = Vec::new();
    let indices: [(&str, Index); 4] = [
        ("the same", |_| 5),
        ("by two", |number| 1 + 2 * number),
        ("downwards", |number| 100 - number),
        ("scattered", |number| 1 + number * 0x9E37 % 1009),
    ];
    for (case, index) in indices {
        let mut wire = WireBuilder::new();
        each_connection(|there, back, messages| {
            for number in 0..messages {
                let mut element = (0x7F00_0000_0000 + u64::from(number) * 65536).to_le_bytes().to_vec();
                for word in [65536u32, 0xABCD, 0, 1, 1, 0] {
                    element.extend(word.to_le_bytes());
                }
                element.extend(index(u64::from(number)).to_le_bytes());
                element.resize(64, 0);
                there.write(&mut wire, 0x5500_0000_0000 + u64::from(number % 8) * 512, 0x77, &element);
                back.ack(&mut wire, there);
            }
        });
        let capture = wire.file();
        found.extend(findings(&format!("CTS-like WRITEs, index {case}"), &capture, wire.packets(), &RECORDED));
    }
    assert_none(&found);
}
