//! Operations on constructed messages ([`schedules`]), whose operation, number of ranks and
//! algorithm are the truth.

mod schedules;

use super::{NcclAlgorithm, NcclCollective, NcclCollector, NcclDataPath, NcclOperation, channels, collectives};
use crate::analysis::fixture;
use crate::model::{NcclReceive, Profile};
use NcclOperation::{AllGather, AllReduce, AllToAll, Broadcast, Reduce, ReduceScatter};
use ibscope_parsers::mpi::Identity;
use schedules::{Call, Job, Protocol};
use std::collections::BTreeMap;

const RANKS: [u32; 9] = [2, 3, 4, 5, 6, 7, 8, 12, 16];

/// Operations and algorithm of each call, as found.
fn found(job: &Job) -> Vec<NcclCollective> {
    collectives(job.transfers(), 0)
}

/// Asserts that each call was found, with one of the operations that `expected` returns.
fn check(case: &str, job: &Job, expected: impl Fn(&Call) -> Vec<NcclOperation>) {
    let (calls, ranks, channels) = (job.calls.clone(), job.ranks, job.channels);
    let found = found(job);
    let summary: Vec<_> = found.iter().map(|own| (&own.operations, own.algorithm, own.bytes)).collect();
    assert_eq!(found.len(), calls.len(), "{case}: {summary:?}");
    for (own, call) in found.iter().zip(&calls) {
        let case = format!("{case}: {call:?} in {summary:?}");
        assert_eq!(own.operations, expected(call), "{case}");
        assert_eq!((own.ranks, own.channels), (ranks, channels), "{case}");
        let is_two_way = ranks == 2 && call.algorithm == NcclAlgorithm::Tree;
        if !own.operations.is_empty() && !is_two_way {
            assert_eq!(own.bytes, call.bytes_on_wire(), "{case}");
        }
        if own.operation().is_some() && own.algorithm.is_some() {
            assert_eq!(own.algorithm, Some(call.algorithm), "{case}");
        }
    }
}

fn call(operation: NcclOperation, bytes: u64, protocol: Protocol) -> Call {
    let algorithm = if operation == AllToAll { NcclAlgorithm::Direct } else { NcclAlgorithm::Ring };
    Call { operation, algorithm, bytes, protocol, root: 1 }
}

/// Sizes of one loop and of several, whole chunks and parts of them.
const SIZES: [u64; 3] = [48 << 10, 1_000_000, 14_000_000];

/// With data, each operation of a ring of three and more ranks has its name.
#[test]
fn operations_of_rings() {
    for ranks in RANKS.into_iter().filter(|ranks| *ranks > 2) {
        for channels in 1..=4 {
            for protocol in [Protocol::Simple, Protocol::Ll, Protocol::Ll128] {
                // Others would be tens of thousands of messages.
                let is_few = |bytes: &u64| *bytes <= 1_000_000 || ranks <= 5 && protocol == Protocol::Simple;
                for bytes in SIZES.into_iter().filter(is_few) {
                    let operations = [AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllReduce];
                    let calls = operations.map(|operation| call(operation, bytes, protocol));
                    let job = Job::new(ranks, channels, &calls);
                    check(&format!("{ranks} ranks, {channels} channels, {protocol:?}, {bytes} bytes"), &job, |call| {
                        vec![call.operation]
                    });
                }
            }
        }
    }
}

/// Without data, a gather looks like a scatter with reduction, and a broadcast like a reduction.
#[test]
fn operations_of_rings_without_data() {
    for ranks in RANKS.into_iter().filter(|ranks| *ranks > 2) {
        for channels in 1..=4 {
            let operations = [AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllReduce];
            let calls = operations.map(|operation| call(operation, 1_000_000, Protocol::Simple));
            let job = Job { has_data: false, ..Job::new(ranks, channels, &calls) };
            check(&format!("{ranks} ranks, {channels} channels"), &job, |call| match call.operation {
                AllGather | ReduceScatter => vec![AllGather, ReduceScatter],
                Broadcast | Reduce => vec![Broadcast, Reduce],
                other => vec![other],
            });
        }
    }
}

#[test]
fn trees() {
    for ranks in RANKS.into_iter().filter(|ranks| *ranks > 2) {
        for channels in 1..=4 {
            for has_data in [true, false] {
                for bytes in [8u64 << 10, 1_000_000, 16 << 20] {
                    let tree = Call { algorithm: NcclAlgorithm::Tree, ..call(AllReduce, bytes, Protocol::Simple) };
                    let job = Job { has_data, ..Job::new(ranks, channels, &[tree.clone(), tree]) };
                    check(&format!("{ranks} ranks, {channels} channels, {bytes} bytes"), &job, |_| vec![AllReduce]);
                }
            }
        }
    }
}

#[test]
fn all_to_all() {
    for ranks in RANKS.into_iter().filter(|ranks| *ranks > 2) {
        for channels in 1..=4 {
            for bytes in [1000, 1 << 20] {
                let calls = [call(AllToAll, bytes, Protocol::Send), call(AllToAll, bytes, Protocol::Send)];
                let case = format!("{ranks} ranks, {channels} channels, {bytes} bytes");
                check(&case, &Job::new(ranks, channels, &calls), |_| vec![AllToAll]);
            }
        }
    }
}

/// Between two ranks only an `AllReduce` over a ring differs from all others.
#[test]
fn two_ranks() {
    for channels in 1..=4 {
        for bytes in [48 << 10, 1_000_000] {
            let case = format!("{channels} channels, {bytes} bytes");
            let one = |operation, protocol| found(&Job::new(2, channels, &[call(operation, bytes, protocol)]));
            let reduced = one(AllReduce, Protocol::Simple);
            assert_eq!(reduced.iter().map(NcclCollective::operation).collect::<Vec<_>>(), [Some(AllReduce)], "{case}");
            assert_eq!(reduced[0].bytes, Some(bytes), "{case}");
            for (operation, protocol) in
                [(AllGather, Protocol::Simple), (AllToAll, Protocol::Send), (Broadcast, Protocol::Simple)]
            {
                for own in one(operation, protocol) {
                    assert_eq!(own.operation(), None, "{case}: {operation:?}");
                    assert!(own.operations.is_empty() || own.operations.contains(&operation), "{case}: {own:?}");
                }
            }
        }
    }
}

/// What the messages between two ranks leave open. No rank forwards anything, so a gather looks like
/// a scatter, and a broadcast like a reduction to the other rank. Buffers of the simple protocol
/// exclude plain sends, which have shorter ones; half chunks (slices) do too.
#[test]
fn two_ranks_leave_open_what_looks_alike() {
    for channels in 1..=4 {
        for bytes in [48 << 10, 1_000_000, 14_000_000] {
            // The first operation shows both directions of the ring.
            let of = |operation, protocol| {
                let calls = [call(AllReduce, bytes, Protocol::Simple), call(operation, bytes, protocol)];
                let found = found(&Job::new(2, channels, &calls));
                assert_eq!(found.len(), 2, "{operation:?}, {bytes} bytes, {channels} channels");
                assert_eq!(found[0].operations, [AllReduce]);
                (found[1].operations.clone(), found[1].bytes)
            };
            for operation in [AllGather, ReduceScatter] {
                let expected = (vec![AllGather, ReduceScatter], Some(bytes));
                assert_eq!(
                    of(operation, Protocol::Simple),
                    expected,
                    "{operation:?}, {bytes} bytes, {channels} channels"
                );
            }
            for operation in [Broadcast, Reduce] {
                let expected = (vec![Broadcast, Reduce], Some(bytes));
                assert_eq!(
                    of(operation, Protocol::Simple),
                    expected,
                    "{operation:?}, {bytes} bytes, {channels} channels"
                );
            }
        }
    }
}

/// A ring of four ranks and three channels: each channel carries a third of 2 (n - 1) / n times the
/// vector, in chunks of two slices. Without the last messages of one channel, that one falls behind.
#[test]
fn channels_and_their_imbalance() {
    const BYTES: u64 = 3 * (16 << 20);
    let transfers = Job::new(4, 3, &[call(AllReduce, BYTES, Protocol::Simple)]).transfers();
    let shares = |transfers| channels::shares(transfers, BTreeMap::new(), &Profile::default());
    let found = shares(transfers.clone());
    let pairs: Vec<(u32, u32)> = found.iter().map(|own| (own.src, own.dst)).collect();
    assert_eq!(
        pairs,
        [(0, 1); 3].into_iter().chain([(1, 2); 3]).chain([(2, 3); 3]).chain([(3, 0); 3]).collect::<Vec<_>>()
    );
    for (own, number) in found.iter().zip([1, 2, 3].into_iter().cycle()) {
        assert_eq!((own.bytes, own.of_mean), (BYTES / 3 * 2 * 3 / 4, Some(1.0)), "{own:?}");
        let NcclDataPath::Channel { number: own, messages, message_bytes, chunk_bytes } = &own.path else {
            panic!("{own:?}")
        };
        // Buffers of 512 KiB, two of them per slice, and two slices per chunk.
        assert_eq!((*own, *message_bytes, *chunk_bytes), (number, 1 << 20, Some(2 << 20)));
        assert_eq!(*messages * (1 << 20), BYTES / 3 * 2 * 3 / 4);
    }
    let ring = transfers.iter().filter(|own| own.src == 0).map(|own| own.receive.ring).max();
    let mut some = transfers;
    let mut dropped = 0;
    some.retain(|own| {
        let is_dropped = Some(own.receive.ring) == ring && own.src == 0 && own.receive.index > 12;
        dropped += u64::from(is_dropped);
        !is_dropped
    });
    // 24 messages per channel, 12 of the last one: 2.5 thirds in all.
    assert_eq!(dropped, 12);
    let of_mean: Vec<f64> =
        shares(some).iter().filter(|own| own.src == 0).map(|own| own.of_mean.expect("known")).collect();
    assert!(of_mean.iter().zip([1.2, 1.2, 0.6]).all(|(own, expected)| (own - expected).abs() < 1e-9), "{of_mean:?}");
}

/// A rank that enters late is named, with its delay.
#[test]
fn the_last_rank() {
    for (rank, delay_ns) in [(0, 2_000_000), (3, 700_000)] {
        let calls = [call(AllGather, 1 << 20, Protocol::Simple), call(AllReduce, 1 << 20, Protocol::Simple)];
        let job = Job { late: Some((rank, delay_ns)), ..Job::new(5, 2, &calls) };
        for own in found(&job) {
            let (last, skew_ns) = own.last.expect("a last rank");
            assert_eq!(last, rank);
            assert!(skew_ns.abs_diff(delay_ns.unsigned_abs()) < 100_000, "{skew_ns}");
        }
    }
}

/// A missing message leaves its operation without a name, and names of others right.
#[test]
fn missing_messages() {
    for ranks in [3, 4, 8] {
        let calls = [AllReduce, AllGather, Broadcast, AllReduce].map(|own| call(own, 1_000_000, Protocol::Simple));
        let all = Job::new(ranks, 2, &calls).transfers();
        for missing in (0..all.len()).step_by(7) {
            let mut some = all.clone();
            some.remove(missing);
            for own in collectives(some, 0) {
                let Some(operation) = own.operation() else { continue };
                let is_right = calls.iter().any(|call| call.operation == operation);
                assert!(is_right && own.bytes == Some(1_000_000), "{ranks} ranks without {missing}: {own:?}");
            }
        }
    }
}

/// Messages beyond the bound, and those without a receive, are counted.
#[test]
fn messages_beyond_the_bound_are_counted() {
    let identity = Identity { rank: 0, context: 0, tag: 0, world: true, collective: false };
    let receive =
        NcclReceive { ring: 1, index: 1, posted_ns: 0, buffer_address: 1 << 20, buffer_bytes: 8, data_hash: None };
    let row = |receive| {
        let mut row = fixture::message(identity, (Some(0), Some(1)), (1, 1));
        (row.raw.length_bytes, row.raw.receive) = (Some(8), receive);
        row
    };
    for (count, beyond) in [(3, 0), (4, 1)] {
        let mut collector = NcclCollector::with_limit(3);
        (0..count).for_each(|_| collector.add(&row(Some(receive))));
        collector.add(&row(None));
        let found = collector.finish(0);
        assert_eq!((found.beyond_bound, found.left_out), (beyond, 1));
    }
}
