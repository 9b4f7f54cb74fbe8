//! Messages written from the specifications, and random payloads.

use super::*;
use alloc::vec::Vec;

fn found(payload: &[u8]) -> Option<(UpperLayer, bool)> {
    recognize(false, &Payload::whole(payload)).map(|message| (message.protocol, message.is_distinctive))
}

/// Bytes with numbers written at offsets.
fn message(length: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = alloc::vec![0; length];
    for (at, part) in parts {
        bytes[*at..*at + part.len()].copy_from_slice(part);
    }
    bytes
}

/// NVM Express base specification, figure "Common Command Format": a WRITE of 4 KiB inside the
/// capsule and a READ by keyed SGL.
#[test]
fn nvme_capsules() {
    let write = message(64 + 4096, &[(0, &[0x01, 0x40, 7, 0, 1]), (32, &4096u32.to_le_bytes()), (39, &[0x01])]);
    assert_eq!(found(&write), Some((UpperLayer::NvmeOf, true)));
    let read = message(64, &[(0, &[0x02, 0x40, 8, 0, 1]), (24, &[0x7F; 8]), (32, &[0, 0x10, 0, 5, 6, 7, 8, 0x40])]);
    assert_eq!(found(&read), Some((UpperLayer::NvmeOf, true)));
    let connect = message(64 + 1024, &[(0, &[0x7F, 0x40, 0, 0, 1]), (32, &1024u32.to_le_bytes()), (39, &[0x01])]);
    assert_eq!(found(&connect), Some((UpperLayer::NvmeOf, true)));
    assert_eq!(found(&message(16, &[(8, &[9, 0, 1, 0, 8, 0])])), Some((UpperLayer::NvmeOf, false)));
    // PRP instead of SGL, and data that the length does not cover.
    assert_eq!(found(&message(64, &[(0, &[0x02, 0x00, 8, 0, 1]), (39, &[0x40])])), None);
    assert_eq!(found(&write[..4000]), None);
}

/// RFC 8166, section 4: an RPC call without chunks, and a reply whose data are in a write chunk.
#[test]
fn rpc_over_rdma() {
    let xid = [0x8A, 0x11, 0x22, 0x33];
    let call = message(100, &[(0, &xid), (7, &[1]), (11, &[64]), (28, &xid), (39, &[2]), (40, &[0, 1, 0x86, 0xA3])]);
    assert_eq!(found(&call), Some((UpperLayer::Nfs, true)));
    let reply = message(80, &[(0, &xid), (7, &[1]), (11, &[32]), (23, &[1, 0, 0, 0, 1])]);
    assert_eq!(found(&reply), Some((UpperLayer::Nfs, true)));
    let mut other = call.clone();
    other[31] ^= 1;
    assert_eq!(found(&other), None, "the RPC message has another XID");
    other = call;
    other[7] = 2;
    assert_eq!(found(&other), None, "version 2");
}

/// RFC 7145, section 9.2, with a SCSI command of RFC 7143, section 11.3.
#[test]
fn iser_control_pdu() {
    let command = message(76, &[(0, &[0x14]), (16, &[0, 1, 2, 3]), (28, &[0x01, 0xC1]), (60, &[0x28])]);
    assert_eq!(found(&command), Some((UpperLayer::Iser, true)));
    let text = message(76 + 42, &[(0, &[0x10]), (28, &[0x43, 0x87]), (35, &[42])]);
    assert_eq!(found(&text), Some((UpperLayer::Iser, true)));
    assert_eq!(found(&text[..100]), None, "the text is longer than the message");
}

/// SRP r16a, sections 6.8 and 6.9.
#[test]
fn srp_information_units() {
    let read = message(64, &[(0, &[0x02]), (5, &[0x01]), (8, &[0, 0, 0, 1]), (32, &[0x28]), (48, &[0x7F; 16])]);
    assert_eq!(found(&read), Some((UpperLayer::Srp, true)));
    let table = message(48 + 20 + 32, &[(0, &[0x02]), (5, &[0x20, 2]), (32, &[0x2A])]);
    assert_eq!(found(&table), Some((UpperLayer::Srp, true)));
    assert_eq!(found(&table[..84]), None, "one descriptor is missing");
    let response = message(36 + 18, &[(0, &[0xC1]), (7, &[1]), (18, &[2, 2]), (31, &[18])]);
    assert_eq!(found(&response), Some((UpperLayer::Srp, true)));
}

/// MS-SMBD, sections 2.2.1 to 2.2.3.
#[test]
fn smb_direct_messages() {
    let negotiate = message(20, &[(0, &[0, 1, 0, 1, 0, 0, 255]), (8, &[0x54, 5]), (13, &[32])]);
    assert_eq!(found(&negotiate), Some((UpperLayer::SmbDirect, true)));
    let data = message(24 + 112, &[(0, &[255, 0, 1]), (12, &[24]), (16, &[112]), (24, b"\xFESMB\x40")]);
    assert_eq!(found(&data), Some((UpperLayer::SmbDirect, true)));
    assert_eq!(found(&message(20, &[(0, &[10, 0, 5])])), Some((UpperLayer::SmbDirect, false)));
    assert_eq!(found(&data[..130]), None);
}

/// RFC 4391, section 6: IPv4, IPv6 and ARP packets, as datagrams and in connected mode.
#[test]
fn ip_packets() {
    let ipv4 = message(104, &[(0, &[0x08, 0]), (4, &[0x45, 0, 0, 100])]);
    let ipv6 = message(104, &[(0, &[0x86, 0xDD]), (4, &[0x60, 0, 0, 0, 0, 60])]);
    let arp = message(60, &[(0, &[0x08, 0x06]), (4, &[0, 32, 8, 0, 20, 4, 0, 1])]);
    for packet in [&ipv4, &ipv6, &arp] {
        let datagram = recognize(true, &Payload::whole(packet));
        assert_eq!(
            datagram,
            Some(UpperLayerMessage { protocol: UpperLayer::Ipoib, is_distinctive: true }),
            "{packet:?}"
        );
        assert_eq!(found(packet), Some((UpperLayer::Ipoib, true)));
    }
    assert_eq!(found(&ipv4[..103]), None);
}

/// Linux `net/rds/rds.h`; the checksum is the one of RFC 1071.
#[test]
fn rds_header() {
    let mut fragment = message(48 + 100, &[(7, &[5]), (15, &[4]), (19, &[100]), (20, &[0x10, 0, 0x20, 1]), (25, &[8])]);
    // 5 + 4 + 100 + 0x1000 + 0x2001 + 8, inverted.
    fragment[30..32].copy_from_slice(&(!(5u16 + 4 + 100 + 0x1000 + 0x2001 + 8)).to_be_bytes());
    assert_eq!(found(&fragment), Some((UpperLayer::Rds, true)));
    fragment[7] = 6;
    assert_eq!(found(&fragment), None);
}

/// `o2iblnd-idl.h`, in both byte orders.
#[test]
fn lustre_messages() {
    let little = message(152, &[(0, &[0x91, 0x1B, 0xE9, 0x0B, 0x12, 0, 0xD1, 3, 152])]);
    let big = message(152, &[(0, &[0x0B, 0xE9, 0x1B, 0x91, 0, 0x12, 0xD1, 3, 0, 0, 0, 152])]);
    assert_eq!([found(&little), found(&big)], [Some((UpperLayer::Lustre, true)); 2]);
    let mut other = little;
    other[4] = 0x13;
    assert_eq!(found(&other), None, "an unknown version");
}

/// Service ids and private data of CM messages.
#[test]
fn connection_management() {
    let port = |port: u16| IP_CM_TCP | u64::from(port);
    let addresses = [0; 36];
    let expected = [
        (4420, UpperLayer::NvmeOf),
        (20049, UpperLayer::Nfs),
        (3260, UpperLayer::Iser),
        (445, UpperLayer::SmbDirect),
        (987, UpperLayer::Lustre),
        (18634, UpperLayer::Rds),
    ];
    for (number, protocol) in expected {
        assert_eq!(of_request(port(number), &addresses), Some(protocol), "{number}");
    }
    assert_eq!(of_request(port(40_000), &addresses), None);
    assert_eq!(of_request(0x1000_0000_0000_0404, &[]), Some(UpperLayer::Ipoib));
    let rpc = [&addresses[..], &[0xF6, 0xAB, 0x0E, 0x18, 1, 0, 3, 3]].concat();
    assert_eq!(of_request(port(40_000), &rpc), Some(UpperLayer::Nfs), "the private data show it");
    assert_eq!(of_request(port(4420), &rpc), None, "port and private data disagree");
    assert_eq!(of_reply(&rpc[36..]), Some(UpperLayer::Nfs));
    let login = message(92, &[(15, &[1]), (18, &[1]), (24, &[0, 6]), (32, &[1; 32])]);
    assert_eq!(of_request(0x0002_C903_003A_1F00, &login), Some(UpperLayer::Srp));
    assert_eq!(of_request(0x0002_C903_003A_1F00, &[0; 92]), None);
}

/// No protocol takes noise for a distinctive message: fewer than one in a million of these lengths.
#[test]
fn noise_is_not_distinctive() {
    // SplitMix64.
    let mut state = 0x1B5C_09E5u64;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    };
    let mut payload = [0; 152];
    for length in [16, 20, 32, 36, 48, 64, 76, 152] {
        let mut distinctive = 0u32;
        for _ in 0..250_000 {
            payload.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&next().to_le_bytes()[..chunk.len()]));
            distinctive += u32::from(found(&payload[..length]).is_some_and(|(_, is_distinctive)| is_distinctive));
        }
        assert_eq!(distinctive, 0, "{length} bytes");
    }
}

/// Whatever part of a message was captured, no other protocol matches distinctively.
#[test]
fn truncated_messages_have_no_other_protocol() {
    let read = message(64, &[(0, &[0x02]), (5, &[0x01]), (8, &[0, 0, 0, 1]), (32, &[0x28]), (48, &[0x7F; 16])]);
    let call = message(100, &[(7, &[1]), (11, &[64]), (39, &[2]), (40, &[0, 1, 0x86, 0xA3])]);
    let lnet = message(152, &[(0, &[0x91, 0x1B, 0xE9, 0x0B, 0x12, 0, 0xD1, 3, 152])]);
    for (whole, protocol) in [(read, UpperLayer::Srp), (call, UpperLayer::Nfs), (lnet, UpperLayer::Lustre)] {
        for captured in 0..whole.len() {
            let payload = Payload { captured: &whole[..captured], ..Payload::whole(&whole) };
            let found = recognize(false, &payload).filter(|found| found.is_distinctive);
            assert!(found.is_none_or(|found| found.protocol == protocol), "{captured} bytes: {found:?}");
        }
    }
}

/// Any bytes, and any part of a message, give some result and no panic.
#[test]
fn storage_messages_of_any_bytes() {
    use super::storage::{self, CommandTransfer, StorageMessage, StorageOperation};
    let mut state = 0x5702_A6E5u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    let xid = [0x8A, 0x11, 0x22, 0x33];
    let mut seeds = [
        message(
            200,
            &[
                (0, &xid),
                (7, &[1]),
                (11, &[64]),
                (28, &xid),
                (39, &[2]),
                (41, &[1, 0x86, 0xA3]),
                (47, &[4, 0, 0, 0, 1]),
            ],
        ),
        message(200, &[(0, &[0x02]), (5, &[0x22, 9, 9]), (32, &[0x28])]),
        message(200, &[(0, &[0x1C]), (28, &[0x01, 0xC1])]),
        message(64, &[(0, &[0x02, 0x40, 8, 0, 1]), (39, &[0x40])]),
    ];
    let transfer = CommandTransfer::of_unknown_length(StorageOperation::Nfs4(25));
    let (mut commands, mut truncated) = (0, 0);
    for _ in 0..20_000 {
        let seed = &mut seeds[usize::from(next() % 4)];
        let mut bytes = seed.clone();
        for _ in 0..next() % 8 {
            let at = usize::from(next()) % bytes.len();
            bytes[at] = [0, 1, 0xFF, next()][usize::from(next() % 4)];
        }
        let captured = usize::from(next()) % (bytes.len() + 1);
        let payload = Payload { captured: &bytes[..captured], ..Payload::whole(&bytes) };
        for protocol in UpperLayer::ALL {
            match storage::message(protocol, &payload) {
                StorageMessage::Command(_) => commands += 1,
                StorageMessage::Truncated => truncated += 1,
                StorageMessage::Completion(_) | StorageMessage::Other => {}
            }
            let _ = storage::completion(protocol, &payload, &transfer);
            let _ = storage::long_reply(payload.captured, 7, &transfer);
        }
    }
    assert!(commands > 1000 && truncated > 1000, "{commands} commands, {truncated} truncated messages");
}
