//! The described tables of a comparison other than the pairs.

use crate::crosscheck::{
    CollectiveCalls, Crosscheck, Difference, OneSidedPair, OperationComparison, PairComparison, RankClock,
    UnidentifiedMessages,
};
use crate::model::column::ColumnUnit::{
    Bytes, Count, Flag, Name, Nanoseconds, Number, PartsPerMillion, Prose, Timestamp,
};
use crate::render::table::Table;
use crate::render::units::{bytes, group, span, utc};
use std::io::{self, Write};

/// The unexplained difference of one tag of a pair.
pub(in crate::render) struct DifferenceRow<'a> {
    pair: &'a PairComparison,
    difference: &'a Difference,
}

/// A class of times from send call to wire, from `from_ns` to below `to_ns`, and its messages.
pub(in crate::render) struct DelayRow {
    from_ns: i64,
    to_ns: i64,
    messages: u64,
}

/// The columns of `crosscheck --view differences`.
pub(in crate::render) fn differences_table<'a>() -> Table<DifferenceRow<'a>> {
    Table::new("ibscope crosscheck --view differences --format csv")
        .column("src", Number, "rank of the sender", |row: &DifferenceRow<'_>| row.pair.src)
        .column("dst", Number, "rank of the receiver", |row| row.pair.dst)
        .column(
            "tag",
            Number,
            "tag of the messages whose difference is unexplained; empty where tags are not distinguished",
            |row| row.difference.tag,
        )
        .list("communicators", Name, "communicators of these messages in the trace, separated by `;`", |row| {
            row.difference.communicators.iter().map(|name| name.as_str().into()).collect()
        })
        .list("contexts", Number, "context ids of these messages on the wire, separated by `;`", |row| {
            row.difference.contexts.iter().map(|context| context.to_string().into()).collect()
        })
        .column("trace_messages", Count, "messages in the trace", |row| row.difference.trace.messages)
        .column("trace_bytes", Bytes, "length of these messages", |row| row.difference.trace.bytes)
        .column("wire_messages", Count, "messages on the wire", |row| row.difference.wire.messages)
        .column("wire_mpi_bytes", Bytes, "MPI length of these messages", |row| row.difference.wire.bytes)
}

/// The columns of `crosscheck --view clocks`.
pub(in crate::render) fn clocks_table() -> Table<RankClock> {
    Table::new("ibscope crosscheck --view clocks --format csv")
        .column("rank", Number, "rank", |clock: &RankClock| clock.rank)
        .headed("clock")
        .column("offset_ns", Timestamp, "time on the capture's clock when the trace's clock starts", |clock| {
            clock.offset_ns
        })
        .shown_left("starts at", |clock| utc(clock.offset_ns))
        .column(
            "drift_ppm",
            PartsPerMillion,
            "drift of the capture's clock relative to the trace's, positive if the capture's is faster",
            |clock| clock.drift_ppm,
        )
        .shown("drift [ppm]", |clock| format!("{:+.1}", clock.drift_ppm))
        .column(
            "uncertainty_ns",
            Nanoseconds,
            "uncertainty of the offset; empty where the rank only sends or only receives",
            |clock| clock.uncertainty_ns,
        )
        .column(
            "is_uneven",
            Flag,
            "`true` if the bounds contradict each other, which shows that the clock does not run evenly",
            |clock| clock.is_uneven,
        )
        .shown("known to", clock_uncertainty)
        .column("sent", Count, "sent messages, which bound the offset from above", |clock| clock.sent)
        .headed("sent")
        .column("received", Count, "received messages, which bound the offset from below", |clock| clock.received)
        .headed("received")
}

/// The uncertainty of a clock.
fn clock_uncertainty(clock: &RankClock) -> String {
    match clock.uncertainty_ns {
        Some(ns) if clock.is_uneven => format!("uneven, {}", span(ns)),
        Some(ns) => span(ns),
        None => "one side only".to_owned(),
    }
}

/// The columns of `crosscheck --view delays`.
pub(in crate::render) fn delays_table() -> Table<DelayRow> {
    Table::new("ibscope crosscheck --view delays --format csv")
        .column(
            "from_ns",
            Nanoseconds,
            "class of times from the send call to the wire: its lower bound",
            |row: &DelayRow| row.from_ns,
        )
        .column("to_ns", Nanoseconds, "upper bound of the class, exclusive", |row| row.to_ns)
        .column("messages", Count, "messages in the class", |row| row.messages)
}

/// The columns of `crosscheck --view calls`.
pub(in crate::render) fn calls_table() -> Table<CollectiveCalls> {
    Table::new("ibscope crosscheck --view calls --format csv")
        .name("operation", "collective operation", |row: &CollectiveCalls| Some(&row.operation))
        .column("calls", Count, "calls of the operation by all ranks", |row| row.calls)
        .column("sent_bytes", Bytes, "bytes that the ranks sent, as the tracer counts them", |row| row.sent)
        .column("received_bytes", Bytes, "bytes that the ranks received, as the tracer counts them", |row| row.received)
}

/// The columns of `crosscheck --view instances`.
pub(in crate::render) fn operations_table() -> Table<OperationComparison> {
    Table::new("ibscope crosscheck --view instances --format csv")
        .column(
            "communicator",
            Name,
            "communicator in the trace; empty if only the wire has the operation",
            |row: &OperationComparison| row.communicator.clone(),
        )
        .column("call", Number, "number of the operation on this communicator in the trace, from 1", |row| row.number)
        .column("operation", Name, "operation in the trace", |row| row.operation)
        .column(
            "wire_communicator",
            Name,
            "communicator on the wire, as in `collectives --view instances`; empty if only the trace has the operation",
            |row| row.wire_communicator.clone(),
        )
        .column("wire_instance", Number, "number of the operation on this communicator on the wire, from 1", |row| {
            row.wire_number
        })
        .column("wire_operation", Name, "operation on the wire", |row| row.wire_operation)
        .column(
            "entry_ns",
            Timestamp,
            "time at which the first rank entered the call, on the clock of the capture; empty if a clock is unknown",
            |row| row.entry_ns,
        )
        .column("start_ns", Timestamp, "time of the first packet", |row| row.start_ns)
        .column("end_ns", Timestamp, "time of the last packet", |row| row.end_ns)
        .column("exit_ns", Timestamp, "time at which the last rank left the call, on the clock of the capture", |row| {
            row.exit_ns
        })
        .column(
            "outside_ns",
            Nanoseconds,
            "how far a rank sent before it entered the call, or received after it left the call, beyond `bound_ns`; 0 if it did neither",
            |row| row.outside_ns,
        )
        .column("bound_ns", Nanoseconds, "largest uncertainty of the clocks of the callers", |row| row.bound_ns)
        .column("result", Prose, "relation of the two", |row| row.result.text())
}

/// The columns of the operations that differ, on the terminal.
pub(super) fn shown_operations_table() -> Table<OperationComparison> {
    Table::new("ibscope crosscheck")
        .shown_left("communicator", |row: &OperationComparison| row.communicator.clone().unwrap_or_default())
        .shown("call", |row| row.number.map(group).unwrap_or_default())
        .shown_left("operation", |row| row.operation.unwrap_or_default().to_owned())
        .shown("outside", |row| row.outside_ns.filter(|ns| *ns > 0).map(span).unwrap_or_default())
        .shown_left("", |row| row.result.text().to_owned())
}

/// The columns of `crosscheck --view one-sided`.
pub(in crate::render) fn one_sided_table() -> Table<OneSidedPair> {
    Table::new("ibscope crosscheck --view one-sided --format csv")
        .column("src", Number, "rank that the bytes come from", |row: &OneSidedPair| row.src)
        .headed("one-sided: from")
        .column("dst", Number, "rank that the bytes go to", |row| row.dst)
        .headed("to")
        .column("operations", Count, "one-sided operations in the trace", |row| row.trace.messages)
        .headed("operations")
        .column("bytes", Bytes, "bytes of these operations", |row| row.trace.bytes)
        .column(
            "rdma_operations",
            Count,
            "RDMA operations on the wire that belong to no message; empty where RDMA was not analyzed",
            |row| row.wire.map(|sums| sums.messages),
        )
        .shown("by RDMA", |row| row.wire.map(|sums| group(sums.messages)).unwrap_or_default())
        .shown("bytes", |row| bytes(row.trace.bytes))
        .column("rdma_bytes", Bytes, "bytes of these operations", |row| row.wire.map(|sums| sums.bytes))
        .shown("by RDMA", |row| row.wire.map(|sums| bytes(sums.bytes)).unwrap_or_default())
        .column("result", Prose, "relation of trace and wire; one-sided operations get no verdict", |row| {
            row.result.text()
        })
        .headed("")
}

/// The columns of `crosscheck --view unidentified`.
pub(in crate::render) fn unidentified_table() -> Table<UnidentifiedMessages> {
    Table::new("ibscope crosscheck --view unidentified --format csv")
        .column("src", Number, "rank of the sender; empty where it is not identified", |row: &UnidentifiedMessages| {
            row.src
        })
        .shown("from", |row| rank_or_unknown(row.src))
        .column("dst", Number, "rank of the receiver; empty where it is not identified", |row| row.dst)
        .shown("to", |row| rank_or_unknown(row.dst))
        .column("wire_messages", Count, "messages on the wire", |row| row.wire.messages)
        .headed("messages")
        .column("wire_mpi_bytes", Bytes, "MPI length of these messages", |row| row.wire.bytes)
        .column(
            "explained_messages",
            Count,
            "number of these messages that explain messages missing from pairs",
            |row| row.explaining.messages,
        )
        .headed("explaining")
        .shown("bytes", |row| group(row.wire.bytes))
        .column("explained_bytes", Bytes, "MPI length of these messages", |row| row.explaining.bytes)
        .shown("explaining", |row| group(row.explaining.bytes))
}

fn rank_or_unknown(rank: Option<u32>) -> String {
    rank.map_or_else(|| "?".to_owned(), |rank| rank.to_string())
}

/// The unexplained differences, one row per tag of a pair.
pub(super) fn differences(crosscheck: &Crosscheck) -> impl Iterator<Item = DifferenceRow<'_>> {
    crosscheck
        .pairs
        .iter()
        .flat_map(|pair| pair.differences.iter().map(move |difference| DifferenceRow { pair, difference }))
}

/// The collective operations, one by one.
pub(super) fn operations(crosscheck: &Crosscheck) -> &[OperationComparison] {
    crosscheck.operations.as_ref().map_or(&[], |operations| &operations.rows)
}

/// The classes of times from send call to wire.
pub(super) fn delays(crosscheck: &Crosscheck) -> impl Iterator<Item = DelayRow> {
    let classes = crosscheck.clocks.send_to_wire.iter().flat_map(|delays| &delays.buckets);
    classes.map(|&(from_ns, to_ns, messages)| DelayRow { from_ns, to_ns, messages })
}

/// Writes the unexplained differences as csv, one row per tag of a pair.
pub fn differences_csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    differences_table().csv(differences(crosscheck), out)
}

/// Writes the clocks of the ranks as csv.
pub fn clocks_csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    clocks_table().csv(&crosscheck.clocks.ranks, out)
}

/// Writes the classes of times from send call to wire as csv.
pub fn delays_csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    delays_table().csv(delays(crosscheck), out)
}

/// Writes the calls of collective operations by all ranks as csv.
pub fn calls_csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    calls_table().csv(&crosscheck.collective_calls, out)
}

/// Writes the collective operations of the trace and of the wire as csv, one by one.
pub fn operations_csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    operations_table().csv(operations(crosscheck), out)
}

/// Writes the one-sided operations between ranks on different nodes as csv.
pub fn one_sided_csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    one_sided_table().csv(&crosscheck.one_sided, out)
}

/// Writes the messages on the wire whose sender or receiver is not identified, as csv.
pub fn unidentified_csv(crosscheck: &Crosscheck, out: &mut dyn Write) -> io::Result<()> {
    unidentified_table().csv(&crosscheck.unidentified, out)
}
