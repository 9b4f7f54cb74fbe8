//! The Parquet table of connections.

use super::decode::{TableFile, TableReader};
use super::tables::names;
use super::{ProfileError, path_columns};
use crate::model::column::ColumnUnit::{Bytes, Count, Name, Number, Timestamp};
use crate::model::profile::{ConnectionRow, CoverageState, PairCoverage, RetransmissionSums, Traffic};
use crate::model::sampling::{EstimateQuality, EstimatedSum};
use crate::model::table::{ColumnValue, Table};
use crate::model::{
    ConnectionClass, ConnectionPaths, PairEstimators, RdmaSums, SampledConnection, SampledSums, SamplingPoints,
    SamplingWeight, TrafficKind, printable,
};
use ibscope_parsers::Qpn;
use ibscope_parsers::ib::Opcode;
use ibscope_parsers::mpi::LibraryStack;
use std::path::Path;

/// The columns of `connections.parquet`.
pub(super) fn table() -> Table<ConnectionRow> {
    Table::new("connections.parquet")
        .column("src", Name, "endpoint of the sender", |row: &ConnectionRow| row.src.to_string())
        .column("dst", Name, "endpoint of the receiver", |row| row.dst.to_string())
        .column("kind", Name, "category of the packets: `data`, `management` or `multicast`", |row| row.kind.name())
        .column("service", Name, "`RC`, `UC`, `UD` ...", |row| Opcode(row.service << 5).service().name())
        .column("service_code", Number, "bits 7 to 5 of the opcode", |row| u32::from(row.service))
        .column("dest_qp", Number, "queue pair of the receiver", |row| row.dest_qp.value())
        .column("src_qp", Number, "queue pair of the sender; null where it is not known", |row| row.src_qp.map(Qpn::value))
        .name(
            "src_qp_evidence",
            "evidence for the sender's queue pair: `deth`, `cm`, `connection_message`, `wireup`, `echo`, `responses` or `only_connection`",
            |row| row.src_qp_evidence.as_deref(),
        )
        .column("first_time_ns", Timestamp, "time of the first packet", |row| row.first_time_ns)
        .column("last_time_ns", Timestamp, "time of the last packet", |row| row.last_time_ns)
        .name("stack", "MPI library whose envelopes were detected; null where there is none", |row| row.stack.as_deref())
        .column(
            "class",
            Name,
            "kind of program: `mpi`, `nccl`, `nvmeof`, `nfs`, `iser`, `srp`, `smb`, `ipoib`, `rds`, `lustre`, `ucx`, `libfabric`, `verbs`, `management` or `unknown`",
            |row| row.class.name(),
        )
        .column("job", Number, "number of the job; null where the connection belongs to none", |row| row.job)
        .column(
            "one_sided_messages",
            Count,
            "WRITEs and READs, counted in the direction in which the bytes move; null where the connection carries no one-sided MPI operations",
            |row| row.one_sided.map(|rdma| rdma.messages),
        )
        .column("one_sided_bytes", Bytes, "payload of the WRITEs and READs; null where `one_sided_messages` is", |row| row.one_sided.map(|rdma| rdma.payload_bytes))
        .column(
            "coverage",
            Name,
            "whether the capture holds all messages of the connection: `complete`, `incomplete`, `sampled` or `unknown`, as in the matrix; `unknown` in profiles that were written before this column existed",
            |row| row.coverage.state.name(),
        )
        .column("missing_packets", Count, "packets that were sent and are not in the capture, according to the sequence numbers", |row| {
            row.coverage.missing_packets
        })
        .column("missing_messages", Count, "MPI messages that began and whose length is unknown; no other column counts them", |row| {
            row.coverage.missing_messages
        })
        .column(
            "captured_ports",
            Number,
            "number of its two ports whose traffic the captures show at the same time: 1 or 2; null in profiles that were written before this column existed",
            |row| row.is_at_both_ports.map(|both| if both { 2_u32 } else { 1 }),
        )
        .counts(Traffic::COLUMNS, |row| row.traffic.values())
        .counts(RetransmissionSums::COLUMNS, |row| row.retransmissions.values())
        .with(path_columns::of_connections)
        .with(samples)
}

/// Adds the samples of a sampled capture, their weight, and the estimates.
fn samples(mut table: Table<ConnectionRow>) -> Table<ConnectionRow> {
    for (index, description) in SampledSums::COLUMNS.into_iter().enumerate() {
        table = table.values(description, move |row| {
            let sampled = row.sampled.as_ref();
            sampled.map_or(ColumnValue::Missing, |sampled| ColumnValue::Unsigned(sampled.sums.values()[index]))
        });
    }
    let weight = |row: &ConnectionRow| row.sampled.as_ref()?.weight;
    let table = table
        .column(
            "sampled_one_in",
            Number,
            "an observation point takes one of this many packets (if `sampled_ports` is 0: transmissions per observation); null where the rate or the number of ports is not known",
            move |row| weight(row).map(|weight| weight.one_in),
        )
        .column(
            "sampled_ports",
            Number,
            "code of the ports that sample the connection: 1 = one port; 2 = two, independently; 3 = one or two, not known which; 4 = two with the same packets, because the mirror sampled before it copied; 103 to 132 = three to 32 points, independently; 203 to 232 = one to so many points, not known how many; 0 = not known",
            move |row| weight(row).map(|weight| weight.points.code()),
        );
    let sums = [EstimatedSum::PACKETS, EstimatedSum::WIRE_BYTES, EstimatedSum::PAYLOAD_BYTES, EstimatedSum::MESSAGES];
    sums.into_iter().fold(table, estimates)
}

/// Adds the estimate of one sum, and its interval.
fn estimates(table: Table<ConnectionRow>, sum: EstimatedSum) -> Table<ConnectionRow> {
    let value = move |row: &ConnectionRow| sum.estimate(&PairEstimators::of(row.sampled.as_ref()?)).known();
    let table = table.column(
        sum.name(),
        sum.unit,
        "estimate of the total from the sampled packets; null for captures that are not sampled, below 30 samples, and where the rate is not known",
        move |row| value(row).map(|value| value.estimate),
    );
    sum.interval(table, value)
}

/// Reads the table. `path` is for errors.
pub(super) fn read(path: &Path, bytes: Vec<u8>) -> Result<Vec<ConnectionRow>, ProfileError> {
    TableFile::open(path, bytes)?.read(read_part)
}

fn read_part(table: &TableReader<'_>) -> Result<Vec<ConnectionRow>, ProfileError> {
    let (src, dst, kind) = (table.text("src")?, table.text("dst")?, table.text("kind")?);
    let (service, dest_qp, src_qp) = (table.u32("service_code")?, table.u32("dest_qp")?, table.u32("src_qp")?);
    let (first, last) = (table.i64("first_time_ns")?, table.i64("last_time_ns")?);
    let (stack, src_qp_evidence) = (table.text("stack")?, table.text("src_qp_evidence")?);
    let has_jobs = table.has("job");
    let job = if has_jobs { table.u32("job")? } else { Vec::new() };
    let one_sided = if has_jobs { table.u64s(["one_sided_messages", "one_sided_bytes"])? } else { Vec::new() };
    let coverage = if has_jobs { table.text("coverage")? } else { Vec::new() };
    let missing = if has_jobs { table.u64s(["missing_packets", "missing_messages"])? } else { Vec::new() };
    let traffic = table.u64s(names(Traffic::COLUMNS))?;
    let retransmissions = table.u64s(names(RetransmissionSums::COLUMNS))?;
    let captured_ports = if table.has("captured_ports") { table.u32("captured_ports")? } else { Vec::new() };
    let samples = SampleColumns::of(table)?;
    let has_classes = table.has("class");
    let classes = if has_classes { table.text("class")? } else { Vec::new() };
    let row = |row: usize| {
        let endpoint = |column: &[Option<&str>]| table.endpoint(column, row);
        let class = if has_classes {
            table.parse_name(&classes, row, ConnectionClass::ALL, ConnectionClass::name, "not a class")?
        } else {
            let kind = table.parse_name(&kind, row, TrafficKind::ALL, TrafficKind::name, "not a kind of traffic")?;
            class_of_stack(kind, stack.get(row).copied().flatten())
        };
        Ok(ConnectionRow {
            src: endpoint(&src)?,
            dst: endpoint(&dst)?,
            kind: table.parse_name(&kind, row, TrafficKind::ALL, TrafficKind::name, "not a kind of traffic")?,
            service: service_code(table, &service, row)?,
            dest_qp: Qpn::new(table.value(&dest_qp, row)?),
            src_qp: src_qp.get(row).copied().flatten().map(Qpn::new),
            src_qp_evidence: src_qp_evidence.get(row).copied().flatten().map(|text| printable(text).into()),
            first_time_ns: table.value(&first, row)?,
            last_time_ns: table.value(&last, row)?,
            traffic: Traffic::from_values(table.values(&traffic, row)?),
            retransmissions: RetransmissionSums::from_values(table.values(&retransmissions, row)?),
            stack: stack.get(row).copied().flatten().map(printable),
            class,
            job: job.get(row).copied().flatten(),
            one_sided: match &one_sided[..] {
                [messages, bytes] => {
                    let value = |column: &[Option<u64>]| column.get(row).copied().flatten();
                    let sums = |(messages, payload_bytes)| RdmaSums { messages, payload_bytes };
                    value(messages).zip(value(bytes)).map(sums)
                }
                _ => None,
            },
            coverage: if has_jobs {
                let [missing_packets, missing_messages] = table.values(&missing, row)?;
                let state = table.parse_name(
                    &coverage,
                    row,
                    CoverageState::ALL,
                    CoverageState::name,
                    "not a class of coverage",
                )?;
                PairCoverage { state, missing_packets, missing_messages }
            } else {
                PairCoverage { state: CoverageState::Unknown, ..PairCoverage::default() }
            },
            sampled: samples.get(row).map(Box::new),
            paths: ConnectionPaths::new(),
            is_at_both_ports: captured_ports.get(row).copied().flatten().map(|ports| ports > 1),
        })
    };
    (0..table.rows()).map(row).collect()
}

/// The upper three bits of an opcode.
fn service_code(table: &TableReader<'_>, column: &[Option<u32>], row: usize) -> Result<u8, ProfileError> {
    table.field(("service_code", column), row, 7)?;
    Ok(table.value(column, row)? as u8)
}

/// The class in a profile from before it was a column, as far as the other columns show it.
fn class_of_stack(kind: TrafficKind, stack: Option<&str>) -> ConnectionClass {
    match (kind, stack) {
        (TrafficKind::Management, _) => ConnectionClass::Management,
        (_, Some(stack)) if stack == LibraryStack::Nccl.name() => ConnectionClass::Nccl,
        (_, Some(_)) => ConnectionClass::Mpi,
        (_, None) => ConnectionClass::Unknown,
    }
}

/// The columns with the samples; empty in profiles from before they existed.
#[derive(Default)]
struct SampleColumns {
    sums: Vec<Vec<Option<u64>>>,
    one_in: Vec<Option<f64>>,
    ports: Vec<Option<u32>>,
}

impl SampleColumns {
    fn of(table: &TableReader<'_>) -> Result<Self, ProfileError> {
        if !table.has("sampled_one_in") {
            return Ok(Self::default());
        }
        Ok(Self {
            sums: table.u64s(names(SampledSums::COLUMNS))?,
            one_in: table.f64("sampled_one_in")?,
            ports: table.u32("sampled_ports")?,
        })
    }

    /// The samples of a connection; [`super`] adds what all of them have in common.
    fn get(&self, row: usize) -> Option<SampledConnection> {
        let values: Vec<u64> = self.sums.iter().map_while(|column| column.get(row).copied().flatten()).collect();
        let sums = SampledSums::from_values(values.try_into().ok()?);
        let one_in = self.one_in.get(row).copied().flatten().filter(|one_in| one_in.is_finite() && *one_in >= 1.0);
        let points = self.ports.get(row).copied().flatten().and_then(SamplingPoints::from_code);
        let weight = one_in.zip(points).map(|(one_in, points)| SamplingWeight { one_in, points });
        Some(SampledConnection { sums, weight, quality: EstimateQuality::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::*;

    #[test]
    fn service_codes_have_three_bits() {
        let path = Path::new("connections.parquet");
        let read = |code: u32| {
            let table = Table::new("connections.parquet").column("service_code", Number, "a code", |code: &u32| *code);
            let bytes = encode::bytes(path, [vec![code]].iter(), &table).unwrap();
            TableFile::open(path, bytes)?.read(|part| Ok(vec![service_code(part, &part.u32("service_code")?, 0)?]))
        };
        assert_eq!([0, 7].map(|code| read(code).unwrap()), [[0], [7]]);
        // As a `u8`, the last one would be 0.
        for code in [8, 255, 256] {
            let error = read(code).unwrap_err().to_string();
            assert!(error.contains(&format!("{code} in `service_code` is larger than 7")), "{error}");
        }
    }
}
