use super::communicators::ContextCommunicators;
use super::composites::operations;
use super::entry::last_entry;
use super::forced_programs as forced;
use super::programs as library;
use super::simulator::{Action, Programs};
use super::split::{
    CollectiveMessage, Confidence, JobTimes, MAX_RANKS, MAX_ROOTS, MAX_SEARCHED, MAX_SEGMENTS, OperationMessages,
};
use super::{CollectiveCollector, CollectiveInstances};
use crate::analysis::fixture;
use crate::model::profile::JobRow;
use crate::model::{MessageRow, Profile};
use ibscope_parsers::mpi::{Identity, MpiOperation};

type Program = Box<dyn Fn(u32, u32) -> Vec<Action>>;

/// One call: operation, name of the algorithm, bytes, and the program of a rank among `n`.
struct Call {
    operation: MpiOperation,
    algorithm: &'static str,
    bytes: u64,
    program: Program,
}

fn call(
    operation: MpiOperation,
    algorithm: &'static str,
    bytes: u64,
    program: impl Fn(u32, u32) -> Vec<Action> + 'static,
) -> Call {
    Call { operation, algorithm, bytes, program: Box::new(program) }
}

/// Calls of all algorithms that support `n` ranks. `index` varies roots and sizes.
fn calls(n: u32, index: u32) -> Vec<Call> {
    let root = (index * 5 + 3) % n;
    let bytes = 8 * (1 + u64::from(index % 7));
    let elements = 1000 + u64::from(index);
    let mut calls = vec![
        call(MpiOperation::Allreduce, "recursive_doubling", bytes, move |rank, n| {
            library::allreduce_doubling(rank, n, bytes)
        }),
        call(MpiOperation::Allreduce, "ring", 8 * elements, move |rank, n| {
            library::allreduce_ring(rank, n, elements, MpiOperation::Allreduce)
        }),
        call(MpiOperation::Allreduce, "ring", 8 * elements, move |rank, n| {
            library::allreduce_ring(rank, n, elements, MpiOperation::Allgatherv)
        }),
        call(MpiOperation::Allreduce, "segmented_ring", 12_288 * u64::from(n), |rank, n| {
            library::allreduce_segmented_ring(rank, n, 12_288, 3)
        }),
        call(MpiOperation::Allreduce, "rabenseifner", 8 * elements, move |rank, n| {
            library::allreduce_rabenseifner_mpich(rank, n, elements)
        }),
        call(MpiOperation::Allreduce, "reduce_bcast", bytes, move |rank, n| {
            let mut program = library::linear_reduce(rank, n, 0, bytes);
            program.extend(library::linear_bcast(rank, n, 0, bytes));
            program
        }),
        call(MpiOperation::Bcast, "binomial", bytes, move |rank, n| {
            library::bcast_binomial(rank, n, root, &[bytes], true)
        }),
        call(MpiOperation::Bcast, "binomial", bytes, move |rank, n| {
            library::bcast_binomial(rank, n, root, &[bytes], false)
        }),
        call(MpiOperation::Bcast, "binomial", 20_000, move |rank, n| {
            library::bcast_binomial(rank, n, root, &[8192, 8192, 3616], true)
        }),
        call(MpiOperation::Bcast, "pipeline", bytes, move |rank, n| library::bcast_pipeline(rank, n, root, &[bytes])),
        call(MpiOperation::Bcast, "pipeline", 20_000, move |rank, n| {
            library::bcast_pipeline(rank, n, root, &[8192, 8192, 3616])
        }),
        call(MpiOperation::Bcast, "chain", bytes, move |rank, n| library::bcast_chain(rank, n, root, bytes)),
        call(MpiOperation::Bcast, "linear", bytes, move |rank, n| library::linear_bcast(rank, n, root, bytes)),
        call(MpiOperation::Reduce, "binomial", bytes, move |rank, n| library::reduce_binomial(rank, n, root, bytes)),
        call(MpiOperation::Reduce, "linear", bytes, move |rank, n| library::linear_reduce(rank, n, root, bytes)),
        call(MpiOperation::Reduce, "in_order_binary", bytes, move |rank, n| {
            forced::reduce_in_order_binary(rank, n, root, bytes)
        }),
        call(MpiOperation::Reduce, "rabenseifner", 8 * 960, move |rank, n| {
            forced::reduce_rabenseifner(rank, n, root, 960, false)
        }),
        call(MpiOperation::Reduce, "rabenseifner", 8 * 960, move |rank, n| {
            forced::reduce_rabenseifner(rank, n, root, 960, true)
        }),
        call(MpiOperation::Gather, "linear_sync", 3000, move |rank, n| {
            forced::gather_linear_sync(rank, n, root, (1024, 1976))
        }),
        call(MpiOperation::Allgather, "gather_bcast", bytes, move |rank, n| {
            let mut program = forced::gather_linear(rank, n, 0, bytes);
            program.extend(library::bcast_binomial(rank, n, 0, &[u64::from(n) * bytes], true));
            program
        }),
        call(MpiOperation::Barrier, "recursive_doubling", 0, forced::barrier_recursive_exchange),
        call(MpiOperation::Barrier, "linear", 0, library::barrier_linear),
        call(MpiOperation::Barrier, "dissemination", 0, library::barrier_dissemination),
        call(MpiOperation::Barrier, "double_ring", 0, library::barrier_double_ring),
        call(MpiOperation::Allgather, "bruck", bytes, move |rank, n| library::allgather_bruck(rank, n, bytes)),
        call(MpiOperation::Allgather, "ring", bytes, move |rank, n| library::allgather_ring(rank, n, bytes)),
        call(MpiOperation::Alltoall, "linear", bytes, move |rank, n| library::alltoall_linear(rank, n, bytes)),
        call(MpiOperation::Alltoall, "pairwise", bytes, move |rank, n| library::alltoall_pairwise(rank, n, bytes)),
        call(MpiOperation::Alltoall, "bruck", bytes, move |rank, n| library::alltoall_bruck(rank, n, bytes)),
        call(MpiOperation::Scatter, "binomial", bytes, move |rank, n| library::scatter_binomial(rank, n, root, bytes)),
        call(MpiOperation::ReduceScatterBlock, "recursive_halving", bytes, move |rank, n| {
            library::reduce_scatter_halving(rank, n, bytes)
        }),
    ];
    if n > 3 {
        calls.push(call(MpiOperation::Allgather, "recursive_exchange", bytes, move |rank, n| {
            forced::allgather_recursive_exchange(rank, n, bytes, true)
        }));
    }
    calls.push(call(MpiOperation::Allgather, "recursive_doubling", bytes, move |rank, n| {
        forced::allgather_recursive_exchange(rank, n, bytes, false)
    }));
    if n.is_multiple_of(2) && n > 2 {
        calls.push(call(MpiOperation::Allgather, "neighbor_exchange", bytes, move |rank, n| {
            library::allgather_neighbor(rank, n, bytes)
        }));
    }
    calls
}

/// The operations of a program in which every pair of ranks is on the wire.
fn split(size: u32, messages: &[CollectiveMessage]) -> Vec<OperationMessages> {
    operations(size, messages, &|_, _| true, JobTimes::default())
}

/// True if the operation, the algorithm and the length are those of the call.
fn is(found: &OperationMessages, call: &Call) -> bool {
    found.operation == call.operation
        && found.algorithms.contains(&call.algorithm)
        && found.bytes == Some(call.bytes)
        && found.confidence != Confidence::Unknown
}

/// The operations and calls that differ, as text.
fn differences(found: &[&OperationMessages], calls: &[&Call], context: &str) -> Vec<String> {
    let describe = |operation: MpiOperation, names: &[&str], bytes: Option<u64>| {
        format!("{} {} {bytes:?}", operation.name(), names.join("|"))
    };
    if found.len() == calls.len() && found.iter().zip(calls).all(|(found, call)| is(found, call)) {
        return Vec::new();
    }
    let found = found.iter().map(|one| describe(one.operation, &one.algorithms, one.bytes));
    let calls = calls.iter().map(|one| describe(one.operation, &[one.algorithm], Some(one.bytes)));
    vec![format!("{context}: {:?} for {:?}", found.collect::<Vec<_>>(), calls.collect::<Vec<_>>())]
}

/// Computes for a time that differs by rank, so that operations begin at different times.
fn pause(programs: &mut Programs, around_ns: i64, index: u32) {
    programs.call(|rank| vec![Action::Compute(around_ns + i64::from((rank * 37 + index * 11) % 13) * 150)]);
}

/// Between two ranks, a double ring is the same as two other barriers. Between two or three, parts of
/// some Reduce operations are the same as several calls.
#[test]
fn each_algorithm_is_recognized_at_2_to_16_ranks() {
    let mut wrong = Vec::new();
    for n in 2..=16 {
        for number in 0..calls(n, 0).len() {
            let mut programs = Programs::new(n);
            let expected: Vec<Call> = (0..3).map(|index| calls(n, index).swap_remove(number)).collect();
            let looks_like_several = match expected[0].algorithm {
                "double_ring" | "in_order_binary" => n == 2,
                "rabenseifner" => n <= 3 && expected[0].operation == MpiOperation::Reduce,
                _ => false,
            };
            if looks_like_several {
                continue;
            }
            for (index, call) in (0..).zip(&expected) {
                pause(&mut programs, 100_000, index);
                programs.call(|rank| (call.program)(rank, n));
            }
            let found = split(n, &programs.run());
            let expected: Vec<&Call> = expected.iter().collect();
            wrong.extend(differences(&found.iter().collect::<Vec<_>>(), &expected, &format!("{n} ranks")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// From four ranks on, the algorithms below send messages that no other algorithm sends.
#[test]
fn algorithms_with_messages_of_their_own_are_certain() {
    let own = ["recursive_doubling", "ring", "rabenseifner", "dissemination", "double_ring"];
    for n in 5..=16 {
        // A barrier by recursive doubling that has another tag may be another operation.
        let is_own = |call: &&Call| {
            own.contains(&call.algorithm)
                && (call.operation != MpiOperation::Barrier || call.algorithm != "recursive_doubling")
        };
        for call in calls(n, 1).iter().filter(is_own) {
            let mut programs = Programs::new(n);
            programs.call(|rank| (call.program)(rank, n));
            let found = split(n, &programs.run());
            assert_eq!((found.len(), &found[0].algorithms[..]), (1, &[call.algorithm][..]), "{n} ranks");
            assert_eq!(found[0].confidence, Confidence::High, "{n} ranks, {}", call.algorithm);
        }
    }
}

/// Ranks run ahead of others, so the messages of several operations interleave.
#[test]
fn operations_without_a_pause_are_kept_apart() {
    let mut wrong = Vec::new();
    for n in 3..=16 {
        let mut programs = Programs::new(n);
        let mut expected: Vec<Call> = Vec::new();
        for index in 0..60 {
            let mut all = calls(n, index);
            // Segments, and a Bcast after a Reduce, need a pause.
            let parts = ["reduce_bcast", "gather_bcast", "in_order_binary", "rabenseifner", "linear_sync"];
            all.retain(|call| call.bytes != 20_000 && !parts.contains(&call.algorithm));
            let call = all.swap_remove(index as usize * 7 % all.len());
            if expected.last().is_some_and(|last| last.operation == MpiOperation::Reduce) {
                pause(&mut programs, 100_000, index);
            }
            programs.call(|rank| (call.program)(rank, n));
            expected.push(call);
        }
        let found = split(n, &programs.run());
        for operation in MpiOperation::ALL {
            let found: Vec<&OperationMessages> = found.iter().filter(|found| found.operation == operation).collect();
            let expected: Vec<&Call> = expected.iter().filter(|call| call.operation == operation).collect();
            wrong.extend(differences(&found, &expected, &format!("{n} ranks")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_operation_with_a_missing_message_is_unknown_and_the_others_stay() {
    for n in [4, 6, 8] {
        let mut programs = Programs::new(n);
        for index in 0..5 {
            pause(&mut programs, 100_000, index);
            programs.call(|rank| library::allreduce_doubling(rank, n, 8));
        }
        let whole = programs.run();
        let per_call = whole.len() / 5;
        for missing in [0, 1, per_call / 2, per_call - 1] {
            let mut messages = whole.clone();
            messages.remove(2 * per_call + missing);
            let found = split(n, &messages);
            let certain: Vec<bool> = found.iter().map(|found| found.confidence == Confidence::High).collect();
            assert_eq!(certain, [true, true, false, true, true], "{n} ranks, message {missing}");
            assert_eq!(found[2].operation, MpiOperation::Allreduce, "{n} ranks, message {missing}");
            assert_eq!((found[2].algorithms.len(), found[2].bytes), (0, None), "{n} ranks, message {missing}");
        }
    }
}

#[test]
fn an_operation_with_a_message_of_unknown_length_is_unknown() {
    let n = 4;
    let mut programs = Programs::new(n);
    programs.call(|rank| library::allreduce_doubling(rank, n, 8));
    let mut messages = programs.run();
    messages[3].bytes = None;
    let is_unknown = |found: &OperationMessages| found.confidence == Confidence::Unknown && found.bytes.is_none();
    assert!(split(n, &messages).iter().all(is_unknown));
    messages.iter_mut().for_each(|message| message.bytes = None);
    assert!(split(n, &messages).iter().all(is_unknown));
}

#[test]
fn an_algorithm_that_is_not_known_is_unknown() {
    // Each rank sends to the rank across, and nothing else.
    let mut programs = Programs::new(8);
    programs
        .call(|rank| vec![Action::Send((rank + 4) % 8, 64, MpiOperation::Allgather), Action::Receive((rank + 4) % 8)]);
    let found = split(8, &programs.run());
    assert_eq!((found.len(), found[0].confidence), (1, Confidence::Unknown));
    assert_eq!(found[0].messages.len(), 8);
}

#[test]
fn messages_inside_nodes_may_be_missing() {
    // Two ranks per node.
    let is_visible = |src: u32, dst: u32| src / 2 != dst / 2;
    for n in [4, 8, 16] {
        let mut programs = Programs::new(n);
        for index in 0..4 {
            pause(&mut programs, 100_000, index);
            programs.call(|rank| library::allreduce_doubling(rank, n, 8));
            pause(&mut programs, 100_000, index);
            programs.call(|rank| library::alltoall_linear(rank, n, 64));
        }
        let messages: Vec<CollectiveMessage> =
            programs.run().into_iter().filter(|message| is_visible(message.src, message.dst)).collect();
        let found = operations(n, &messages, &is_visible, JobTimes::default());
        let names: Vec<(MpiOperation, Option<u64>)> =
            found.iter().map(|found| (found.operation, found.bytes)).collect();
        let pair = [(MpiOperation::Allreduce, Some(8)), (MpiOperation::Alltoall, Some(64))];
        assert_eq!(names, [pair, pair, pair, pair].concat(), "{n} ranks");
        assert!(found.iter().all(|found| found.confidence <= Confidence::Medium), "{n} ranks");
    }
}

#[test]
fn nonblocking_operations_have_tags_of_their_own() {
    // Open MPI's libnbc: up one binomial tree and down another.
    let n = 6;
    let mut programs = Programs::new(n);
    for _ in 0..3 {
        programs.call(|rank| {
            let mut program = library::reduce_binomial(rank, n, 0, 4);
            program.extend(library::bcast_binomial(rank, n, 0, &[4], true));
            program
        });
    }
    let mut messages = programs.run();
    let mut count = std::collections::BTreeMap::new();
    for message in &mut messages {
        // The n-th message between two ranks belongs to the n-th operation; each has a tag.
        let number = count.entry((message.src, message.dst, message.operation)).or_insert(0);
        message.tag = -33 - *number;
        *number += 1;
        message.operation = MpiOperation::Nonblocking;
    }
    let found = split(n, &messages);
    let names: Vec<MpiOperation> = found.iter().map(|found| found.operation).collect();
    assert_eq!(names, [MpiOperation::Allreduce; 3]);
    // A message of another algorithm keeps the name of its tag.
    let alone = CollectiveMessage { dst: 3, src: 1, bytes: Some(5), ..messages[0] };
    assert_eq!(split(n, &[alone])[0].operation, MpiOperation::Nonblocking);
}

#[test]
fn the_rank_that_enters_last_is_named_with_its_lead() {
    const LATE_NS: i64 = 500_000;
    const MARGIN_NS: i64 = 5000;
    for n in 3..=16u32 {
        for late in 0..n {
            let mut programs = Programs::new(n);
            // All ranks but the late one enter within 3 µs.
            programs.call(|rank| {
                vec![Action::Compute(if rank == late { LATE_NS } else { 1000 + i64::from(rank % 3) * 1000 })]
            });
            programs.call(|rank| library::barrier_dissemination(rank, n));
            let messages = programs.run();
            let found = split(n, &messages);
            let last = last_entry(&found[0], n, &messages, MARGIN_NS).expect("last");
            let before_ns = (0..n).filter(|&rank| rank != late).map(|rank| 1000 + i64::from(rank % 3) * 1000).max();
            let expected_ns = LATE_NS - before_ns.expect("ranks");
            assert_eq!(last.rank, late, "{n} ranks");
            assert_eq!(last.skew_ns, Some(expected_ns as u64), "{n} ranks");
        }
    }
}

#[test]
fn a_lead_within_the_margin_and_an_entry_that_is_not_on_the_wire_name_no_rank() {
    let n = 4;
    let mut programs = Programs::new(n);
    programs.call(|rank| vec![Action::Compute(1000 + i64::from(rank) * 1000)]);
    programs.call(|rank| library::barrier_dissemination(rank, n));
    let messages = programs.run();
    assert_eq!(last_entry(&split(n, &messages)[0], n, &messages, 5000), None);
    // The leaves of a broadcast send nothing: they may be the last ones.
    let mut programs = Programs::new(n);
    programs.call(|rank| if rank == 0 { vec![Action::Compute(1_000_000)] } else { Vec::new() });
    programs.call(|rank| library::linear_bcast(rank, n, 0, 8));
    let messages = programs.run();
    assert_eq!(last_entry(&split(n, &messages)[0], n, &messages, 5000), None);
}

#[test]
fn a_context_is_used_by_disjoint_communicators_and_again_later() {
    let mut contexts = ContextCommunicators::default();
    // Ranks 0 and 2, 1 and 3; then 3, 2, 1 in this order.
    let messages = [(0, 2, 0), (1, 3, 0), (2, 0, 1), (3, 1, 1), (3, 2, 0), (2, 1, 1), (1, 3, 2)];
    for (index, (src, dst, rank)) in messages.into_iter().enumerate() {
        contexts.add(index, (src, dst), rank);
    }
    let found = contexts.into_communicators(4);
    let members: Vec<Option<Vec<Option<u32>>>> = found.iter().map(super::CommunicatorMembers::world_ranks).collect();
    let ranks = |ranks: &[u32]| Some(ranks.iter().map(|&rank| Some(rank)).collect::<Vec<_>>());
    assert_eq!(members, [ranks(&[0, 2]), ranks(&[1, 3]), ranks(&[3, 2, 1])]);
    let messages: Vec<&[usize]> = found.iter().map(|one| &one.messages[..]).collect();
    assert_eq!(messages, [&[0, 2][..], &[1, 3], &[4, 5, 6]]);
}

#[test]
fn a_communicator_whose_silent_members_have_no_rank_is_not_compared() {
    let mut contexts = ContextCommunicators::default();
    contexts.add(0, (4, 5), 0);
    contexts.add(1, (4, 6), 0);
    let found = contexts.into_communicators(7);
    assert_eq!((found.len(), found[0].world_ranks(), found[0].known()), (1, None, 3));
    let mut contexts = ContextCommunicators::default();
    contexts.add(0, (4, 5), 0);
    assert_eq!(contexts.into_communicators(7)[0].world_ranks(), Some(vec![Some(4), Some(5)]));
}

#[test]
fn larger_communicators_than_the_bound_are_unknown() {
    for (n, confidence) in [(MAX_RANKS, Confidence::High), (MAX_RANKS + 1, Confidence::Unknown)] {
        let mut programs = Programs::new(n);
        programs.call(|rank| library::barrier_dissemination(rank, n));
        assert_eq!(split(n, &programs.run())[0].confidence, confidence, "{n} ranks");
    }
}

#[test]
fn roots_of_larger_communicators_than_the_bound_are_those_of_the_first_message() {
    for (n, is_known) in [(MAX_ROOTS, true), (MAX_ROOTS + 1, false)] {
        let mut programs = Programs::new(n);
        // The earliest message is far from the root.
        programs.call(|rank| vec![Action::Compute(if rank == n - 1 { 0 } else { 10_000 })]);
        programs.call(|rank| library::reduce_binomial(rank, n, 1, 8));
        let found = split(n, &programs.run());
        assert_eq!(found[0].algorithms.contains(&"binomial"), is_known, "{n} ranks");
    }
}

#[test]
fn segments_beyond_the_search_are_another_operation() {
    for (count, expected) in [(MAX_SEARCHED + 1, 1), (MAX_SEARCHED + 2, 2)] {
        let mut programs = Programs::new(2);
        let segments = vec![1024; count];
        programs.call(|rank| library::bcast_pipeline(rank, 2, 0, &segments));
        assert_eq!(split(2, &programs.run()).len(), expected, "{count} segments");
    }
}

#[test]
fn a_segmented_ring_of_more_segments_than_the_bound_is_unknown() {
    let most = u64::from(MAX_SEGMENTS);
    for (segments, is_known) in [(most, true), (most + 1, false)] {
        let mut programs = Programs::new(3);
        programs.call(|rank| library::allreduce_segmented_ring(rank, 3, 64 * segments, segments));
        let found = split(3, &programs.run());
        assert_eq!(found[0].algorithms == ["segmented_ring"], is_known, "{segments} segments");
        assert!(found[0].confidence <= Confidence::Low, "{segments} segments: {:?}", found[0].confidence);
    }
}

fn row(connection: u32, ranks: (Option<u32>, Option<u32>), start_ns: i64) -> MessageRow {
    let identity = Identity { rank: 0, context: 0, tag: -16, world: true, collective: true };
    MessageRow { connection, ..fixture::message(identity, ranks, (start_ns, start_ns)) }
}

#[test]
fn messages_beyond_the_bound_and_without_ranks_are_counted() {
    let collect = |limit: usize| {
        let mut collector = CollectiveCollector::with_limit(limit);
        for index in 0..4 {
            collector.add(&row(0, (Some(0), Some(1)), index));
        }
        collector.add(&row(1, (Some(1), None), 5));
        let CollectiveInstances { without_ranks, beyond_bound, .. } = collector.finish(&Profile::default());
        (without_ranks, beyond_bound)
    };
    assert_eq!((collect(4), collect(3)), ((1, 0), (1, 1)));
}

/// `MPI_COMM_WORLD` of six ranks on three nodes, whose leaders are the ranks 0, 2 and 4. Context id
/// 5 is that of the leaders of `MPI_COMM_WORLD` in MPICH, 501 that of the leaders of 497.
#[test]
fn operations_between_leaders_are_those_of_their_communicator() {
    let n = 3;
    let found = |stack: &str| {
        let mut collector = CollectiveCollector::default();
        for (context, after_ns) in [(5, 0), (501, 1_000_000)] {
            let mut programs = Programs::new(n);
            programs.ranks[1].push(Action::Compute(500_000));
            programs.call(|rank| library::barrier_dissemination(rank, n));
            for message in programs.run() {
                let identity = Identity { rank: message.src, context, tag: 1, world: false, collective: true };
                let times_ns = (message.times_ns.0 + after_ns, message.times_ns.1 + after_ns);
                let ranks = (Some(message.src * 2), Some(message.dst * 2));
                collector.add(&fixture::message(identity, ranks, times_ns));
            }
        }
        let jobs = vec![JobRow { stack: stack.to_owned(), ..fixture::job(1, 6, None) }];
        let ranks = (0..6).map(|rank| fixture::rank(1, rank, 9 + rank as u16 / 2, None)).collect();
        let profile = Profile { jobs, ranks, ..Profile::default() };
        let of_one =
            |own: &super::CollectiveInstance| (own.communicator.clone(), own.operation, own.ranks, own.last_rank);
        collector.finish(&profile).instances.iter().map(of_one).collect::<Vec<_>>()
    };
    let own = |name: &str, ranks, last| (name.to_owned(), MpiOperation::Barrier, ranks, last);
    assert_eq!(found("MPICH UCX rc_verbs"), [own("world", Some(6), None), own("497/0", None, None)]);
    assert_eq!(found("Open MPI UCX rc_verbs"), [own("5/0", Some(3), Some(2)), own("501/0", Some(3), Some(2))]);
}
