//! The command `inspect` compared with tshark: the same packets, with the same value in every
//! field.

use crate::runs;
use crate::tools::{RawRecord, link_type, result, samples, walk};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One run of each kind: datagrams, RC with two processes per node, loss, atomics, UC, openib,
/// MPICH, truncated to 128 bytes.
const RUNS: [&str; 9] = [
    "mpich-rc-ring2",
    "ompi-openib-bt.S-4x1",
    "ompi-openib-put-ring2",
    "ompi-rc-coll-2x2",
    "ompi-rc-loss1-ring2",
    "ompi-ud-ring2",
    "perf-atomic-lat",
    "perf-cm-write-lat",
    "perf-uc-write-lat",
];

const FIELDS: [&str; 15] = [
    "frame.number",
    "frame.time_epoch",
    "frame.len",
    "frame.cap_len",
    "ip.src",
    "ip.dst",
    "infiniband.lrh.slid",
    "infiniband.lrh.dlid",
    "infiniband.lrh.lnh",
    "infiniband.lrh.pktlen",
    "udp.length",
    "infiniband.bth.opcode",
    "infiniband.bth.destqp",
    "infiniband.bth.psn",
    "infiniband.bth.padcnt",
];

const LRH_BYTES: u64 = 8;
const GRH_BYTES: u64 = 40;
const BTH_BYTES: u64 = 12;
const ICRC_BYTES: u64 = 4;
const VCRC_BYTES: u64 = 2;
const UDP_BYTES: u64 = 8;

/// Name of an opcode and the length of its extension headers, of the services in the captures
/// (InfiniBand specification volume 1, table 38).
fn opcode(number: u64) -> (String, u64) {
    const DETH: u64 = 8;
    const RETH: u64 = 16;
    const ATOMIC_ETH: u64 = 28;
    const AETH: u64 = 4;
    const ATOMIC_ACK_ETH: u64 = 8;
    const IMMEDIATE: u64 = 4;
    const IETH: u64 = 4;
    let (service, is_datagram) = match number >> 5 {
        0 => ("RC", false),
        1 => ("UC", false),
        3 => ("UD", true),
        other => panic!("service {other} is in no capture"),
    };
    let (operation, bytes) = match number & 0x1F {
        0x00 => ("SEND_FIRST", 0),
        0x01 => ("SEND_MIDDLE", 0),
        0x02 => ("SEND_LAST", 0),
        0x03 => ("SEND_LAST_IMMEDIATE", IMMEDIATE),
        0x04 => ("SEND_ONLY", 0),
        0x05 => ("SEND_ONLY_IMMEDIATE", IMMEDIATE),
        0x06 => ("RDMA_WRITE_FIRST", RETH),
        0x07 => ("RDMA_WRITE_MIDDLE", 0),
        0x08 => ("RDMA_WRITE_LAST", 0),
        0x09 => ("RDMA_WRITE_LAST_IMMEDIATE", IMMEDIATE),
        0x0A => ("RDMA_WRITE_ONLY", RETH),
        0x0B => ("RDMA_WRITE_ONLY_IMMEDIATE", RETH + IMMEDIATE),
        0x0C => ("RDMA_READ_REQUEST", RETH),
        0x0D => ("RDMA_READ_RESPONSE_FIRST", AETH),
        0x0E => ("RDMA_READ_RESPONSE_MIDDLE", 0),
        0x0F => ("RDMA_READ_RESPONSE_LAST", AETH),
        0x10 => ("RDMA_READ_RESPONSE_ONLY", AETH),
        0x11 => ("ACKNOWLEDGE", AETH),
        0x12 => ("ATOMIC_ACKNOWLEDGE", AETH + ATOMIC_ACK_ETH),
        0x13 => ("CMP_SWAP", ATOMIC_ETH),
        0x14 => ("FETCH_ADD", ATOMIC_ETH),
        0x16 => ("SEND_LAST_INVALIDATE", IETH),
        0x17 => ("SEND_ONLY_INVALIDATE", IETH),
        other => panic!("operation {other:#x} is in no capture"),
    };
    (format!("{service}_{operation}"), bytes + if is_datagram { DETH } else { 0 })
}

#[test]
fn inspect_agrees_with_tshark_on_every_sample() {
    let cut: u64 = samples().par_iter().map(|path| compare(path)).sum();
    assert_eq!(cut, 0, "no packet of the samples is truncated");
}

#[test]
fn inspect_agrees_with_tshark_on_recorded_runs() {
    let files = |name: &&str| {
        let run = runs::named(name);
        run.every_node().into_iter().chain([run.sink()])
    };
    let paths: Vec<PathBuf> = RUNS.iter().flat_map(files).collect();
    let cut: u64 = paths.par_iter().map(|path| compare(path)).sum();
    assert!(cut > 1000, "some captures have truncated packets, not {cut} packets");
}

/// Compares every line of `inspect --format csv` with tshark's fields of the same file. Returns the
/// number of truncated packets.
fn compare(path: &Path) -> u64 {
    let file = runs::decompressed(path);
    let folder = tempfile::tempdir().expect("folder");
    let plain = folder.path().join("plain.pcap");
    std::fs::write(&plain, &file).expect("decompressed");
    let theirs = tshark(&plain);
    let ours = result(&["inspect", "--format", "csv"], &[path]);
    let mut lines = ours.lines();
    assert_eq!(
        lines.next(),
        Some("frame,time_ns,src,dst,opcode,dest_qp,psn,wire_bytes,captured_bytes,payload_bytes,icrc")
    );
    let place = path.display();
    let records = walk(&file);
    let is_erf = link_type(&file) == 197;
    let mut cut = 0;
    let mut expected = theirs.lines();
    for line in &mut lines {
        let theirs = expected.next().unwrap_or_else(|| panic!("{place}: {line}: tshark has no such packet"));
        let (expected, is_cut) = our_line(theirs, &records, &file, is_erf);
        assert_eq!(line, expected, "{place}");
        cut += u64::from(is_cut);
    }
    assert_eq!(expected.next(), None, "{place}: inspect misses a packet");
    assert!(ours.lines().count() > 100, "{place} holds packets");
    cut
}

/// The expected line of `inspect` for a line of tshark, and whether the packet is truncated.
fn our_line(theirs: &str, records: &[RawRecord], file: &[u8], is_erf: bool) -> (String, bool) {
    let fields: Vec<&str> = theirs.split('\t').collect();
    let [frame, time, length, captured, ip_src, ip_dst, slid, dlid, lnh, pkt_len, udp_length, op, qp, psn, pad] =
        fields[..]
    else {
        panic!("{theirs}: {} fields", fields.len());
    };
    let record = &records[number(frame) as usize - 1];
    let (seconds, fraction) = time.split_once('.').expect("time");
    assert_eq!(fraction.len(), 9, "{time}");
    let tshark_ns = (number(seconds) * 1_000_000_000 + number(fraction)).cast_signed();
    // For ERF records, tshark shows the time of the ERF header; ours is that of the pcap record.
    assert_eq!(tshark_ns, if is_erf { erf_time_ns(record.data(file)) } else { record.time_ns }, "{theirs}");
    let (length, captured) = (number(length), number(captured));
    let (operation, extension_bytes) = opcode(number(op));
    let after_bth = BTH_BYTES + extension_bytes + number(pad) + ICRC_BYTES;
    let (src, dst, payload_bytes, wire_bytes, checked_bytes) = if is_erf {
        let ib_bytes = 4 * number(pkt_len);
        let grh_bytes = if number(lnh) == 3 { GRH_BYTES } else { 0 };
        assert_eq!(length, ib_bytes + VCRC_BYTES, "{theirs}");
        (slid, dlid, ib_bytes - LRH_BYTES - grh_bytes - after_bth, length, ib_bytes)
    } else {
        (ip_src, ip_dst, number(udp_length) - UDP_BYTES - after_bth, length, length)
    };
    let is_cut = captured < checked_bytes;
    let icrc = if is_cut { "truncated" } else { "ok" };
    let (time_ns, dest_qp, psn) = (record.time_ns, number(qp), number(psn));
    let line = format!(
        "{frame},{time_ns},{src},{dst},{operation},{dest_qp},{psn},{wire_bytes},{captured},{payload_bytes},{icrc}"
    );
    (line, is_cut)
}

/// The time of an ERF header (units of 2^-32 s, little-endian) in nanoseconds, rounded half up.
fn erf_time_ns(data: &[u8]) -> i64 {
    let stamp = u128::from(u64::from_le_bytes(data[..8].try_into().expect("ERF header")));
    i64::try_from((stamp * 1_000_000_000 + (1 << 31)) >> 32).expect("time")
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .unwrap_or_else(|error| panic!("`{text}`: {error}"))
}

/// tshark's fields of all packets with a BTH, one line each.
fn tshark(path: &Path) -> String {
    let mut command = Command::new("tshark");
    // Without heuristics, which take MPI messages for other protocols.
    command.args([
        "-n",
        "-o",
        "infiniband.try_heuristic_first:FALSE",
        "--disable-protocol",
        "rpcordma",
        "-Y",
        "infiniband.bth",
        "-T",
        "fields",
    ]);
    command.args(["-E", "occurrence=f", "-r"]).arg(path).args(FIELDS.iter().flat_map(|field| ["-e", field]));
    let output = command.output().unwrap_or_else(|error| {
        panic!("tshark cannot be started ({error}); `make test` installs it, or: apt-get install tshark")
    });
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
