//! Events of messages and operations with given times.

use super::merge::{FIRST_STREAMS, StreamTimes};
use super::*;
use crate::analysis::collective_instances::Confidence;
use crate::analysis::fixture;
use crate::model::profile::ConnectionRow;
use crate::model::{RankActivity, RdmaSums};
use ibscope_parsers::mpi::Identity;

fn message(number: u64, times_ns: (i64, i64), tag: i32) -> RankMessage {
    let transfer = RankTransfer::Message;
    RankMessage { times_ns, number, src: 0, dst: 1, transfer, communicator: 0, tag, bytes: 8 }
}

fn times_of(events: impl Iterator<Item = Result<JobEvent, ()>>) -> Vec<(i64, u32, &'static str, u64)> {
    let row = |event: JobEvent| match event.kind {
        JobEventKind::Send(message) => (event.time_ns, event.rank, "send", message.number),
        JobEventKind::Receive(message) => (event.time_ns, event.rank, "receive", message.number),
        JobEventKind::OneSided(message) => (event.time_ns, event.rank, "one-sided", message.number),
        JobEventKind::End(message) => (event.time_ns, event.rank, "end of message", message.number),
        JobEventKind::ReceiveBegin(message) => (event.time_ns, event.rank, "receive begin", message.number),
        JobEventKind::CollectiveBegin { .. } => (event.time_ns, event.rank, "begin", 0),
        JobEventKind::CollectiveEnd(operation) => {
            (event.time_ns, event.rank, "end", operation.bytes.unwrap_or_default())
        }
    };
    events.map(|event| row(event.expect("no error"))).collect()
}

/// A large message ends after a small one that was sent later: with one tag the small one is
/// received later, with another tag it is not.
#[test]
fn receives_of_one_stream_keep_the_order_of_the_sends() {
    let messages = [message(1, (10, 50), 7), message(2, (20, 30), 7), message(3, (25, 30), 8)];
    let mut plan = EventPlan::default();
    assert_eq!(
        times_of(plan.events(messages.into_iter().map(Ok))),
        [
            (10, 0, "send", 1),
            (20, 0, "send", 2),
            (25, 0, "send", 3),
            (30, 1, "receive", 3),
            (50, 1, "receive", 1),
            (50, 1, "receive", 2)
        ]
    );
}

/// With requests, both ranks have the first and the last packet of a message, and a receive that
/// waits for an earlier one delays no end of a send. A one-sided operation has no event at its
/// target.
#[test]
fn requests_and_one_sided_operations_begin_and_end() {
    let get = RankMessage { transfer: RankTransfer::Get, ..message(3, (15, 40), 0) };
    let messages = [message(1, (10, 50), 7), get, message(2, (20, 20), 7)];
    let mut plan = EventPlan { with_requests: true, ..EventPlan::default() };
    assert_eq!(
        times_of(plan.events(messages.into_iter().map(Ok))),
        [
            (10, 0, "send", 1),
            (10, 1, "receive begin", 1),
            (15, 0, "one-sided", 3),
            (20, 0, "send", 2),
            (20, 1, "receive begin", 2),
            (20, 0, "end of message", 2),
            (40, 0, "end of message", 3),
            (50, 0, "end of message", 1),
            (50, 1, "receive", 1),
            (50, 1, "receive", 2)
        ]
    );
}

/// The packets of two operations overlap at rank 0: its second begin is moved to the first end.
#[test]
fn operations_of_a_rank_do_not_overlap() {
    let activity =
        |rank, start_ns, end_ns| RankActivity { rank, start_ns, end_ns, first_send_ns: None, last_receive_ns: None };
    let operation = |number, bytes, activity: Vec<RankActivity>| CollectiveInstance {
        job: 1,
        is_nccl: false,
        communicator: "world".to_owned(),
        number,
        operation: MpiOperation::Allreduce,
        algorithms: Vec::new(),
        confidence: Confidence::High,
        misses_messages: false,
        ranks: Some(2),
        bytes: Some(bytes),
        start_ns: activity[0].start_ns,
        end_ns: activity[0].end_ns,
        last_rank: None,
        skew_ns: None,
        activity,
    };
    let operations = [
        operation(1, 100, vec![activity(0, 10, 30), activity(1, 10, 20)]),
        operation(2, 200, vec![activity(0, 25, 28), activity(1, 26, 40)]),
    ];
    let mut plan = RankMessages::default().finish(&Profile::default(), 1, &operations);
    assert_eq!(plan.communicators, [(EventCommunicator::World, Vec::new())]);
    assert_eq!(
        times_of(plan.events(std::iter::empty())),
        [
            (10, 0, "begin", 0),
            (10, 1, "begin", 0),
            (20, 1, "end", 100),
            (26, 1, "begin", 0),
            (30, 0, "end", 100),
            (30, 0, "begin", 0),
            (30, 0, "end", 200),
            (40, 1, "end", 200)
        ]
    );
}

/// Without confidence in the messages of an operation, its ranks have no events.
#[test]
fn operations_that_their_messages_do_not_show_are_left_out() {
    let activity = RankActivity { rank: 0, start_ns: 10, end_ns: 20, first_send_ns: None, last_receive_ns: None };
    let operation = |operation, confidence, misses_messages| CollectiveInstance {
        job: 1,
        is_nccl: false,
        communicator: "world".to_owned(),
        number: 1,
        operation,
        algorithms: Vec::new(),
        confidence,
        misses_messages,
        ranks: Some(2),
        bytes: Some(8),
        start_ns: 10,
        end_ns: 20,
        last_rank: None,
        skew_ns: None,
        activity: vec![activity],
    };
    let operations = [
        operation(MpiOperation::Alltoall, Confidence::Unknown, false),
        operation(MpiOperation::Alltoall, Confidence::Unknown, true),
        operation(MpiOperation::Nonblocking, Confidence::Unknown, false),
        operation(MpiOperation::Allreduce, Confidence::Low, true),
        operation(MpiOperation::Allreduce, Confidence::Low, false),
        operation(MpiOperation::Barrier, Confidence::Medium, false),
    ];
    let mut plan = RankMessages::default().finish(&Profile::default(), 1, &operations);
    let uncertain = UncertainOperations { unmatched: 2, with_missing_messages: 1, kept: 1 };
    assert_eq!(plan.left_out, LeftOutMessages { operations: 1, uncertain, ..LeftOutMessages::default() });
    assert_eq!((plan.operations, times_of(plan.events(std::iter::empty())).len()), (2, 4));
}

/// Streams that ended are forgotten, those under way are not.
#[test]
fn memory_is_bounded_by_the_messages_under_way() {
    let mut streams = StreamTimes::default();
    for tag in 0..100_000 {
        let sent_ns = i64::from(tag) * 10;
        streams.receive_ns(&message(0, (sent_ns, sent_ns + 25), tag));
        assert!(streams.receives_ns.len() <= FIRST_STREAMS, "{tag}");
    }
    assert_eq!(streams.receive_ns(&message(0, (1_000_000, 1_000_001), 99_999)), 1_000_015);
}

/// WRITEs and READs of data on a connection of one-sided operations are operations; others are not.
#[test]
fn one_sided_operations_are_writes_and_reads_of_data() {
    let sums = RdmaSums { messages: 2, payload_bytes: 200 };
    let plain = fixture::connection(Some(1), (9, 10), (10, 9), 1);
    let profile = Profile {
        connections: vec![ConnectionRow { one_sided: Some(sums), ..plain.clone() }, plain],
        ..Profile::default()
    };
    let row = |connection, verb, bytes, ranks: (Option<u32>, Option<u32>)| {
        let identity = Identity { rank: 0, context: 0, tag: 0, world: true, collective: false };
        let mut row = fixture::message(identity, ranks, (5, 9));
        (row.connection, row.mpi) = (connection, None);
        (row.raw.transfer_verb, row.raw.length_bytes) = (verb, bytes);
        row
    };
    let known = (Some(0), Some(1));
    let mut messages = RankMessages::default();
    let mut transfer = |row| messages.one_sided(&profile, &row).map(|own| (own.transfer, own.bytes, own.src, own.dst));
    assert_eq!(transfer(row(0, Verb::Write, Some(100), known)), Some((RankTransfer::Put, 100, 0, 1)));
    assert_eq!(transfer(row(0, Verb::Read, Some(50), known)), Some((RankTransfer::Get, 50, 0, 1)));
    assert_eq!(transfer(row(0, Verb::Write, Some(0), known)), None, "no data");
    assert_eq!(transfer(row(0, Verb::Send, Some(100), known)), None, "a message of the library");
    assert_eq!(transfer(row(1, Verb::Write, Some(100), known)), None, "a connection with messages");
    assert_eq!(transfer(row(0, Verb::Write, None, known)), None, "unknown length");
    assert_eq!(transfer(row(0, Verb::Write, Some(100), (Some(0), None))), None, "unknown target");
    let plan = messages.finish(&profile, 1, &[]);
    assert_eq!((plan.one_sided, plan.messages), (2, 0));
    let left_out = LeftOutMessages { without_ranks: 1, without_length_or_time: 1, ..LeftOutMessages::default() };
    assert_eq!(plan.left_out, left_out);
}
