//! Pairs of ranks: point-to-point messages and collective operations in the same columns. The
//! terminal table has the point-to-point messages only.

use super::rows::signed;
use super::{causes, result};
use crate::crosscheck::{CollectivePair, Crosscheck, MessageSums, PairComparison};
use crate::model::column::ColumnUnit::{Bytes, Count, Name, Number};
use crate::render::table::Table;
use crate::render::units::group;

/// The messages from one rank to another.
#[derive(Clone, Copy)]
pub(in crate::render) enum CrosscheckPairRow<'a> {
    PointToPoint(&'a PairComparison),
    /// Collective operations get no verdict.
    Collective(&'a CollectivePair),
}

impl<'a> CrosscheckPairRow<'a> {
    const fn ends(&self) -> (u32, u32) {
        match self {
            Self::PointToPoint(pair) => (pair.src, pair.dst),
            Self::Collective(pair) => (pair.src, pair.dst),
        }
    }

    /// A value of the comparison; `None` for collective operations, which are not compared.
    fn judged<T>(&self, of: impl Fn(&'a PairComparison) -> T) -> Option<T> {
        match self {
            Self::PointToPoint(pair) => Some(of(pair)),
            Self::Collective(_) => None,
        }
    }

    const fn wire(&self) -> MessageSums {
        match self {
            Self::PointToPoint(pair) => pair.wire,
            Self::Collective(pair) => MessageSums { messages: pair.wire_messages, bytes: pair.wire_bytes },
        }
    }

    const fn tracer(&self) -> MessageSums {
        match self {
            Self::PointToPoint(pair) => pair.tracer,
            Self::Collective(pair) => pair.tracer,
        }
    }

    const fn trace_bytes(&self) -> u64 {
        match self {
            Self::PointToPoint(pair) => pair.trace.bytes,
            Self::Collective(pair) => pair.expected_bytes,
        }
    }

    /// The verdict and its causes; empty for collective operations.
    fn result(&self) -> String {
        self.judged(|pair| result(pair.verdict, &pair.causes)).unwrap_or_default()
    }

    fn operation(&self) -> &'a str {
        match self {
            Self::PointToPoint(_) => "point-to-point",
            Self::Collective(pair) => &pair.operation,
        }
    }
}

/// The unexplained difference, clamped to 64 bits: a damaged trace may contain any numbers.
fn narrowed(excess: i128) -> i64 {
    i64::try_from(excess).unwrap_or(if excess < 0 { i64::MIN } else { i64::MAX })
}

/// The columns of `crosscheck --view pairs`.
pub(in crate::render) fn columns<'a>() -> Table<CrosscheckPairRow<'a>> {
    Table::new("ibscope crosscheck --view pairs --format csv")
        .name(
            "operation",
            "`point-to-point`, or the name of a collective operation, which gets no verdict",
            |row: &CrosscheckPairRow<'_>| Some(row.operation()),
        )
        .column("src", Number, "rank of the sender", |row| row.ends().0)
        .headed("from")
        .column("dst", Number, "rank of the receiver", |row| row.ends().1)
        .headed("to")
        .column(
            "verdict",
            Name,
            "result of the comparison; this and all other columns of the comparison are empty for collective operations",
            |row| row.judged(|pair| pair.verdict.name()),
        )
        .list("causes", Name, "causes of a difference, separated by `;`", |row| {
            row.judged(|pair| causes(&pair.causes)).unwrap_or_default()
        })
        .column("trace_messages", Count, "messages in the trace", |row| row.judged(|pair| pair.trace.messages))
        .headed("messages")
        .column(
            "trace_bytes",
            Bytes,
            "length of the messages in the trace; for collective operations, the bytes expected from the trace",
            CrosscheckPairRow::trace_bytes,
        )
        .column("wire_messages", Count, "messages on the wire", |row| row.wire().messages)
        .headed("wire")
        .shown("bytes", |row| group(row.trace_bytes()))
        .column("wire_mpi_bytes", Bytes, "MPI length of these messages", |row| row.wire().bytes)
        .shown("difference", |row| signed(row.wire().bytes, row.trace_bytes()))
        .shown_left("result", CrosscheckPairRow::result)
        .column("tracer_messages", Count, "messages of the tracer among them", |row| row.tracer().messages)
        .column("tracer_bytes", Bytes, "MPI length of these messages", |row| row.tracer().bytes)
        .column(
            "missing_messages",
            Count,
            "messages in the trace that are not on the wire between these two ranks, for a known reason",
            |row| row.judged(|pair| pair.missing.messages),
        )
        .column("missing_bytes", Bytes, "length of these messages", |row| row.judged(|pair| pair.missing.bytes))
        .column(
            "excess_messages",
            Count,
            "unexplained surplus of messages on the wire over the trace; below 0 where the trace has more",
            |row| row.judged(|pair| narrowed(pair.excess().0)),
        )
        .column("excess_bytes", Bytes, "unexplained surplus of bytes on the wire over the trace; below 0 where the trace has more", |row| {
            row.judged(|pair| narrowed(pair.excess().1))
        })
        .column("wire_bytes", Bytes, "bytes of all packets between the two ranks on the wire", |row| {
            row.judged(|pair| pair.wire_bytes)
        })
        .column("payload_bytes", Bytes, "InfiniBand payload of these packets", |row| {
            row.judged(|pair| pair.payload_bytes)
        })
        .column("retransmitted_wire_bytes", Bytes, "bytes of the retransmissions among these packets", |row| {
            row.judged(|pair| pair.retransmitted_wire_bytes)
        })
        .column(
            "unidentified_messages",
            Count,
            "missing messages that are on the wire with a sender or receiver whose rank is not identified",
            |row| row.judged(|pair| pair.unidentified.messages),
        )
        .column("unidentified_bytes", Bytes, "length of these messages", |row| row.judged(|pair| pair.unidentified.bytes))
        .column(
            "explained_excess_messages",
            Count,
            "messages that the wire has in excess of the trace for a known reason",
            |row| row.judged(|pair| pair.beyond.messages),
        )
        .column("explained_excess_bytes", Bytes, "length of these messages", |row| row.judged(|pair| pair.beyond.bytes))
}

/// Point-to-point messages.
pub(super) fn rows(crosscheck: &Crosscheck) -> impl Iterator<Item = CrosscheckPairRow<'_>> {
    crosscheck.pairs.iter().map(CrosscheckPairRow::PointToPoint)
}

/// Messages of collective operations.
pub(super) fn collective_rows(crosscheck: &Crosscheck) -> impl Iterator<Item = CrosscheckPairRow<'_>> {
    crosscheck.collectives.iter().map(CrosscheckPairRow::Collective)
}
