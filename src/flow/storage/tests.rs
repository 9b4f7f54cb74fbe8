//! Commands and completions in constructed orders.

use super::*;
use ibscope_parsers::{Endpoint, Lid};

const CLIENT: u32 = 0;
const SERVER: u32 = 1;

fn ends() -> EndpointPair {
    (Endpoint::from_lid(Lid(1)), Endpoint::from_lid(Lid(2)))
}

fn send(storage: &mut StorageTracker, connection: u32, payload: &[u8]) -> Option<CommandTime> {
    let (client, server) = ends();
    let is_client = connection.is_multiple_of(2);
    let send = StorageSend {
        connection,
        pair: if is_client { (client, server) } else { (server, client) },
        partner: (!is_client).then(|| connection - 1),
        time_ns: 0,
        payload: Payload::whole(payload),
    };
    storage.send(UpperLayer::Srp, send)
}

/// SRP command (T10 SRP r16a): READ(10) with indirect descriptors of 4 KiB.
fn command(tag: u64, descriptors: u8) -> Vec<u8> {
    let mut bytes = vec![0; 48];
    (bytes[0], bytes[5], bytes[7], bytes[32]) = (0x02, 0x02, descriptors, 0x28);
    bytes[8..16].copy_from_slice(&tag.to_be_bytes());
    bytes.extend([0; 16]);
    bytes.extend((4096 * u32::from(descriptors)).to_be_bytes());
    for key in 1..=u32::from(descriptors) {
        bytes.extend([&[0; 8][..], &key.to_be_bytes(), &4096u32.to_be_bytes()].concat());
    }
    bytes
}

fn response(tag: u64) -> Vec<u8> {
    let mut bytes = vec![0; 36];
    bytes[0] = 0xC1;
    bytes[8..16].copy_from_slice(&tag.to_be_bytes());
    bytes
}

fn counts(storage: &mut StorageTracker, status: StorageStatus) -> StorageCounts {
    let sums = storage.finish();
    let of = |sums: &StorageSums| {
        let of = sums.results.iter().filter(|((_, own), _)| *own == status).map(|(_, counts)| *counts);
        of.fold(StorageCounts::default(), |mut sum, counts| {
            sum += counts;
            sum
        })
    };
    sums.get(&CLIENT).map_or_else(StorageCounts::default, |sums| of(sums))
}

#[test]
fn the_oldest_of_too_many_outstanding_commands_is_dropped_and_counted() {
    let mut storage = StorageTracker::default();
    for tag in 0..MAX_OUTSTANDING as u64 {
        send(&mut storage, CLIENT, &command(tag, 1));
    }
    assert_eq!(storage.queues[&CLIENT].sums.dropped, 0);
    send(&mut storage, CLIENT, &command(MAX_OUTSTANDING as u64, 1));
    assert_eq!((storage.queues[&CLIENT].sums.dropped, storage.outstanding), (1, MAX_OUTSTANDING));
    assert!(send(&mut storage, SERVER, &response(0)).is_none(), "dropped");
    send(&mut storage, SERVER, &response(1));
    assert_eq!(storage.outstanding, MAX_OUTSTANDING - 1);
    assert_eq!(storage.queues[&CLIENT].sums.without_command, 1);
    assert_eq!(counts(&mut storage, StorageStatus::NoCompletion).commands, MAX_OUTSTANDING as u64);
}

/// Messages at a PSN of their direction, some of which the capture misses. Times are the order.
/// Returns from when until when the known times last, and the most outstanding commands.
fn times(messages: &[(u32, i64, Vec<u8>)]) -> (Vec<(i64, i64)>, u64) {
    let mut storage = StorageTracker::default();
    let mut times = Vec::new();
    let mut observed: [Vec<(i64, i64)>; 2] = [Vec::new(), Vec::new()];
    for (time_ns, (connection, number, payload)) in (0..).zip(messages) {
        let seen = &mut observed[*connection as usize];
        seen.push((*number, number + 1));
        times.extend(storage.starts(*connection, MessageSpan::packet(*number), seen.iter().copied()));
        let (client, server) = ends();
        let is_client = *connection == CLIENT;
        let send = StorageSend {
            connection: *connection,
            pair: if is_client { (client, server) } else { (server, client) },
            partner: Some(1 - *connection),
            time_ns,
            payload: Payload::whole(payload),
        };
        times.extend(storage.send(UpperLayer::Srp, send));
    }
    times.extend(storage.finish_times());
    let most = storage.finish()[&CLIENT].most_outstanding;
    (times.iter().map(|time| (time.from_ns, time.until_ns)).collect(), most)
}

/// The conversation: command 7, its completion, and both again; command 9 and its completion.
/// Tag 1 comes first, so that both directions are known.
fn reused_tag(missing: &[usize]) -> (Vec<(i64, i64)>, u64) {
    let all = [
        (CLIENT, 10, command(1, 1)),
        (SERVER, 20, response(1)),
        (CLIENT, 11, command(7, 1)),
        (SERVER, 21, response(7)),
        (CLIENT, 12, command(7, 1)),
        (SERVER, 22, response(7)),
        (CLIENT, 13, command(9, 1)),
        (SERVER, 23, response(9)),
    ];
    let is_kept = |at: &usize| !missing.contains(at);
    let kept: Vec<_> = (0..all.len()).filter(is_kept).map(|at| all[at].clone()).collect();
    times(&kept)
}

#[test]
fn a_completion_of_a_command_with_the_same_id_gives_no_time() {
    assert_eq!(reused_tag(&[]), (vec![(0, 1), (2, 3), (4, 5), (6, 7)], 1));
    // Completion and next command: the pair would last from 2 to 3, the truth is unknown.
    assert_eq!(reused_tag(&[3, 4]).0, [(0, 1), (4, 5)]);
    // The client's messages show that no command is missing, the server's that a completion is.
    assert_eq!(reused_tag(&[3]), (vec![(0, 1), (3, 4), (5, 6)], 1));
    // A command is missing, but no completion.
    assert_eq!(reused_tag(&[4]), (vec![(0, 1), (2, 3), (5, 6)], 1));
    // The last command of the capture: no message of the client follows.
    assert_eq!(reused_tag(&[3, 4, 6, 7]).0, [(0, 1)]);
    assert_eq!(reused_tag(&[0, 3, 4]).0, [(3, 4)], "a capture that begins within the queue");
}

/// Five commands whose completions the capture misses are not outstanding for certain.
#[test]
fn commands_whose_completions_are_missing_are_not_outstanding() {
    let mut messages = vec![(CLIENT, 10, command(100, 1)), (SERVER, 20, response(100))];
    messages.extend((1..6).map(|at: i64| (CLIENT, 10 + at, command(at.cast_unsigned(), 1))));
    messages.push((CLIENT, 16, command(6, 1)));
    assert_eq!(times(&messages).1, 6, "no completion follows");
    messages.push((SERVER, 26, response(6)));
    assert_eq!(times(&messages).1, 1);
    // Two at a time.
    messages.extend([(CLIENT, 17, command(7, 1)), (CLIENT, 18, command(8, 1))]);
    messages.extend([(SERVER, 27, response(7)), (SERVER, 28, response(8))]);
    assert_eq!(times(&messages).1, 2);
}

#[test]
fn data_belong_to_the_first_memory_ranges_of_a_command() {
    for (r_key, expected_bytes) in [(MAX_RANGES as u32, 4096), (MAX_RANGES as u32 + 1, 0)] {
        let mut storage = StorageTracker::default();
        send(&mut storage, CLIENT, &command(7, MAX_RANGES as u8 + 1));
        storage.rdma((SERVER, Some(CLIENT)), Reth { va: 0, r_key, dma_len: 4096 }, Some(&[]));
        send(&mut storage, SERVER, &response(7));
        let counts = counts(&mut storage, StorageStatus::Success);
        let length_bytes = 4096 * (MAX_RANGES as u64 + 1);
        assert_eq!((counts.rdma_read_bytes, counts.read_bytes), (expected_bytes, length_bytes), "key {r_key}");
    }
}

/// 16-byte messages before the first command, on so many connections; the last of them turns out
/// to carry completions.
#[test]
fn early_completions_of_too_many_connections_do_not_count() {
    for (connections, expected) in [(MAX_EARLY, 1), (MAX_EARLY + 1, 0)] {
        let mut storage = StorageTracker::default();
        let (client, server) = ends();
        let last = 2 * (connections as u32 - 1) + 1;
        let early = |connection, payload, partner| StorageSend {
            connection,
            pair: if partner == Some(0) { (server, client) } else { (client, server) },
            partner,
            time_ns: 0,
            payload: Payload::whole(payload),
        };
        for number in 0..connections as u32 {
            storage.send(UpperLayer::NvmeOf, early(2 * number + 1, &[0; 16], Some(2 * number)));
        }
        // NVM Express base specification: a READ by keyed SGL.
        let mut read = [0; 64];
        (read[0], read[1], read[2], read[39]) = (0x02, 0x40, 9, 0x40);
        let commands = StorageSend { pair: (client, server), partner: None, ..early(last - 1, &read, None) };
        storage.send(UpperLayer::NvmeOf, commands);
        let mut completion = [0; 16];
        completion[12] = 9;
        storage.send(UpperLayer::NvmeOf, early(last, &completion, Some(last - 1)));
        let sums = storage.finish();
        assert_eq!(sums[&(last - 1)].without_command, expected, "{connections} connections");
    }
}
