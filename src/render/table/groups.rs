//! Groups of columns that several tables share.

use super::Table;
use crate::analysis::Label;
use crate::analysis::latency::LatencyKey;
use crate::analysis::matrix::MatrixCell;
use crate::model::column::ColumnUnit::{self, Bytes, Count, Name, Number};
use crate::model::column::{ColumnDescription, ColumnType};
use crate::model::sampling::{Estimate, EstimatedSum, EstimatedValue};
use crate::model::{ClassSet, PairEstimators};
use crate::render::table::ColumnValue;
use crate::render::units::{bytes, group, size};
use std::borrow::Cow;

/// The meaning of the column `interval`.
pub(crate) const INTERVAL: &str = "the measured interval: `acknowledged`, `last_response` ...";
/// The meaning of the column `from_bytes`.
pub(crate) const FROM_BYTES: &str =
    "size class of the messages: from this power of two to below the next; empty in rows that combine all sizes";

/// A row that belongs to a pair of sender and receiver.
pub(crate) trait HasPair {
    /// Sender and receiver; `None` where the row combines all pairs.
    fn pair(&self) -> Option<(&Label, &Label)>;

    /// The sender. A row that combines all receivers of a sender has a sender but no pair.
    fn sender(&self) -> Option<&Label> {
        self.pair().map(|(src, _)| src)
    }
}

/// A row that holds the traffic of a pair.
pub(crate) trait HasCell: HasPair {
    fn cell(&self) -> &MatrixCell;
}

/// Adds the columns `src` and `dst`.
pub(crate) fn pair<R: HasPair>(table: Table<R>) -> Table<R> {
    table
        .label(
            "src",
            "sender: rank in the `MPI_COMM_WORLD` of the row's job, `unknown`, or endpoint; with `--by node` or `--by leaf`, node or leaf switch; empty in rows that combine all pairs",
            |row: &R| row.sender(),
        )
        .label("dst", "receiver, in the form of `src`", |row: &R| row.pair().map(|(_, dst)| dst))
}

/// Adds `src` and `dst`; the terminal table shows them only with `has_pairs`.
pub(crate) fn shown_pair<R: HasPair>(has_pairs: bool) -> impl FnOnce(Table<R>) -> Table<R> {
    move |table| {
        let table = pair(table);
        if !has_pairs {
            return table;
        }
        let name = |label: Option<&Label>| label.map(Label::name).unwrap_or_default();
        table
            .shown_left("from", move |row| name(row.pair().map(|(src, _)| src)))
            .shown_left("to", move |row| name(row.pair().map(|(_, dst)| dst)))
    }
}

/// Adds `job`, the job of the pair.
pub(crate) fn job<R: HasPair>(table: Table<R>) -> Table<R> {
    table.column(
        "job",
        Number,
        "number of the job, from 1 (`ibscope ranks` lists the jobs); empty by endpoint, for traffic of no job, and in rows that combine all pairs",
        |row: &R| row.sender().and_then(Label::job),
    )
}

/// Adds sender, receiver, traffic and job of a pair. The terminal table shows exact bytes.
pub(crate) fn cell<R: HasCell>(table: Table<R>) -> Table<R> {
    let table = pair(table)
        .shown_left("pair", |row| {
            row.pair().map(|(src, dst)| format!("{} → {}", src.name(), dst.name())).unwrap_or_default()
        })
        .column(
            "messages",
            Count,
            "by endpoint, transport messages that the sender started; by rank, MPI messages of the chosen `--traffic`",
            |row: &R| row.cell().messages,
        )
        .headed("messages")
        .column(
            "mpi_bytes",
            Bytes,
            "MPI length of the chosen messages, sender to receiver, even if an RDMA READ transferred the data; empty where no MPI library was detected",
            |row: &R| row.cell().mpi_bytes,
        )
        .shown("MPI bytes", |row| row.cell().mpi_bytes.map_or_else(|| "-".to_owned(), group))
        .column(
            "payload_bytes",
            Bytes,
            "payload of all traffic of the pair: after the BTH and extension headers, without pad and ICRC, without retransmissions; READ responses count from responder to requester",
            |row: &R| row.cell().payload_bytes,
        )
        .shown("payload bytes", |row| group(row.cell().payload_bytes))
        .column(
            "wire_bytes",
            Bytes,
            "all packets of the pair, from LRH to VCRC or the whole Ethernet frame, with retransmissions",
            |row: &R| row.cell().wire_bytes,
        )
        .shown("wire bytes", |row| group(row.cell().wire_bytes))
        .column(
            "packets",
            Count,
            "every transmission from sender to receiver: requests, responses, acknowledgements, retransmissions; a packet and its mirror copy count once",
            |row: &R| row.cell().packets,
        )
        .headed("packets");
    job(table)
}

/// The meaning of the column `class` in rows of several connections.
pub(crate) const CLASSES: &str = "classes of the connections: `mpi`, `nccl`, `nvmeof`, `nfs`, `iser`, `srp`, `smb`, `ipoib`, `rds`, `lustre`, `ucx`, `libfabric`, `verbs`, `management` or `unknown`";

/// The names of classes, as the values of a list column.
pub(crate) fn class_names<'r>(classes: ClassSet) -> Vec<Cow<'r, str>> {
    classes.iter().map(|class| Cow::Borrowed(class.name())).collect()
}

/// Adds `class`, the classes of the pair's connections.
pub(crate) fn class<R: HasCell>(table: Table<R>) -> Table<R> {
    table.list("class", Name, CLASSES, |row: &R| class_names(row.cell().classes))
}

/// A row of a sampled capture.
pub(crate) trait HasEstimates {
    /// The estimators of its sums; `None` where nothing was sampled.
    fn estimators(&self) -> Option<&PairEstimators>;
}

/// Adds the estimate of one sum, and its interval.
fn estimates_of<R: HasEstimates>(table: Table<R>, sum: EstimatedSum) -> Table<R> {
    let description =
        ColumnDescription { name: sum.name(), column_type: ColumnType::Label, unit: sum.unit, meaning: ESTIMATE };
    let table = table.values(description, move |row| estimate_value(estimate(row, sum)));
    sum.interval(table, move |row| estimate(row, sum).known())
}

/// The estimate of a row that contains one sum, in columns of this name.
pub(crate) fn estimate_of_value<R>(
    table: Table<R>,
    [name, low, high]: [&'static str; 3],
    estimate: impl Fn(&R) -> Estimate + Copy + 'static,
) -> Table<R> {
    let description =
        ColumnDescription { name, column_type: ColumnType::Label, unit: ColumnUnit::OfValue, meaning: ESTIMATE };
    let end = move |row: &R| estimate(row).known();
    table
        .values(description, move |row| estimate_value(estimate(row)))
        .column(low, ColumnUnit::OfValue, "lower end of the 95 % interval", move |row| end(row).map(|value| value.low))
        .column(high, ColumnUnit::OfValue, "upper end of the 95 % interval", move |row| {
            end(row).map(|value| value.high)
        })
}

const ESTIMATE: &str = "estimate of the total from the sampled packets; `too few` below 30 samples; empty where the sampling rate is not known";

fn estimate_value(estimate: Estimate) -> ColumnValue<'static> {
    match estimate {
        Estimate::Known(value) => ColumnValue::Unsigned(value.estimate),
        Estimate::TooFew => ColumnValue::Text(Cow::Borrowed(TOO_FEW)),
        Estimate::Unknown => ColumnValue::Missing,
    }
}

/// The estimate of a row.
fn estimate<R: HasEstimates>(row: &R, sum: EstimatedSum) -> Estimate {
    row.estimators().map_or(Estimate::TooFew, |pair| sum.estimate(pair))
}

/// The text of an estimate from too few samples.
const TOO_FEW: &str = "too few";

/// Adds the estimates of the totals of a pair in a sampled capture. The terminal table shows
/// messages and payload.
pub(crate) fn estimates<R: HasEstimates>(table: Table<R>) -> Table<R> {
    let table = estimates_of(table, EstimatedSum::MESSAGES)
        .shown("messages", |row: &R| shown(estimate(row, EstimatedSum::MESSAGES), group));
    let table = estimates_of(table, EstimatedSum::PAYLOAD_BYTES)
        .shown("payload", |row: &R| shown(estimate(row, EstimatedSum::PAYLOAD_BYTES), bytes));
    let table = estimates_of(table, EstimatedSum::WIRE_BYTES);
    estimates_of(table, EstimatedSum::PACKETS)
        .shown("packets", |row: &R| shown(estimate(row, EstimatedSum::PACKETS), group))
}

/// An estimate as text: `~1.2 GiB (1.1 GiB to 1.3 GiB)`.
pub(crate) fn shown(estimate: Estimate, format: fn(u64) -> String) -> String {
    match estimate {
        Estimate::Known(EstimatedValue { estimate, low, high }) => {
            format!("~{} ({} to {})", format(estimate), format(low), format(high))
        }
        Estimate::TooFew => TOO_FEW.to_owned(),
        Estimate::Unknown => "?".to_owned(),
    }
}

/// A row of times, with the interval, verb, size class and pair that the times belong to.
pub(crate) trait HasKey: HasPair {
    fn key(&self) -> &LatencyKey;
}

/// Adds `interval`, `verb`, `from_bytes`, `src` and `dst`; the terminal table shows the last two
/// only with `has_pairs`.
pub(crate) fn key<R: HasKey>(has_pairs: bool) -> impl FnOnce(Table<R>) -> Table<R> {
    move |table| {
        table
            .name("interval", INTERVAL, |row: &R| Some(row.key().interval))
            .headed("interval")
            .name(
                "verb",
                "`SEND`, `WRITE`, `READ`, `ATOMIC` or `DATAGRAM`; empty for `set_up` and `tear_down`",
                |row: &R| Some(row.key().verb),
            )
            .headed("verb")
            .column("from_bytes", Bytes, FROM_BYTES, |row: &R| row.key().from_bytes)
            .shown_left("size", |row| size(row.key().from_bytes))
            .with(shown_pair(has_pairs))
    }
}
