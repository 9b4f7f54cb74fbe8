//! The summary as csv and JSON; [`super::text::summary`] has the terminal form.

use super::table::groups::{self, HasEstimates};
use super::table::{Table, write_document};
use crate::analysis::health;
use crate::analysis::rates::{
    DEFAULT_WINDOW_NS, MESSAGES, MPI_BYTES, MPI_MESSAGES, PACKETS, PAYLOAD_BYTES, Rates, WIRE_BYTES, rates,
};
use crate::analysis::totals::ProfileTotals;
use crate::model::column::ColumnUnit::{
    self, Bytes, BytesPerSecond, Count, Name, Nanoseconds, PerSecond, Percent, Timestamp,
};
use crate::model::profile::{RetransmissionSums, Traffic};
use crate::model::{Coverage, Health, PairEstimators, Profile};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// The profile and the totals that the facts are computed from.
pub(super) struct SummaryRow<'a> {
    profile: &'a Profile,
    totals: ProfileTotals<'a>,
    rates: Option<Rates>,
    health: Health,
    retransmissions: RetransmissionSums,
}

impl<'a> SummaryRow<'a> {
    fn of(profile: &'a Profile) -> Self {
        let (health, retransmissions) = health::totals(profile);
        let rates = rates(profile, None, None, DEFAULT_WINDOW_NS).ok();
        Self { profile, totals: ProfileTotals::of(profile), rates, health, retransmissions }
    }

    const fn coverage(&self) -> &Coverage {
        &self.profile.coverage
    }

    fn mpi(&self, of: fn(&Traffic) -> u64) -> Option<u64> {
        self.totals.mpi(of)
    }

    /// The rates, if the value at `index` is known.
    fn known(&self, index: usize) -> Option<&Rates> {
        self.rates.as_ref().filter(|rates| rates.total.known(index, 0).is_some())
    }

    fn is_known(&self, column: &str) -> bool {
        health::is_known(column, self.profile.sampling.is_some())
    }

    fn ranks(&self) -> u64 {
        let ranks: BTreeSet<(u32, u32)> = self.profile.ranks.iter().map(|row| (row.job, row.rank)).collect();
        ranks.len() as u64
    }
}

impl HasEstimates for SummaryRow<'_> {
    fn estimators(&self) -> Option<&PairEstimators> {
        self.totals.estimators.as_ref()
    }
}

/// The facts of this profile: a sampled capture has estimates.
fn facts_table_of<'a>(profile: &Profile) -> Table<SummaryRow<'a>> {
    if profile.sampling.is_some() { facts_table().with(groups::estimates) } else { facts_table() }
}

/// For each value: its index, the column names of its mean and peak rate, and their unit.
const RATES: [(usize, &str, &str, ColumnUnit); 6] = [
    (WIRE_BYTES, "wire_bytes_per_s_mean", "wire_bytes_per_s_peak", BytesPerSecond),
    (PAYLOAD_BYTES, "payload_bytes_per_s_mean", "payload_bytes_per_s_peak", BytesPerSecond),
    (PACKETS, "packets_per_s_mean", "packets_per_s_peak", PerSecond),
    (MESSAGES, "messages_per_s_mean", "messages_per_s_peak", PerSecond),
    (MPI_MESSAGES, "mpi_messages_per_s_mean", "mpi_messages_per_s_peak", PerSecond),
    (MPI_BYTES, "mpi_bytes_per_s_mean", "mpi_bytes_per_s_peak", BytesPerSecond),
];

fn rate_columns(mut table: Table<SummaryRow<'_>>) -> Table<SummaryRow<'_>> {
    for (index, mean, peak, unit) in RATES {
        table = table
            .column(mean, unit, "mean rate, as in `ibscope rates`", move |row| {
                row.known(index).map(|rates| rates.mean(rates.total.sums[index]))
            })
            .column(peak, unit, "highest rate over the window", move |row| {
                row.known(index).map(|rates| rates.peak(rates.total.peaks[index]))
            });
    }
    table
}

/// The columns of `summary`; csv writes each as a row.
pub(super) fn facts_table<'a>() -> Table<SummaryRow<'a>> {
    Table::new("ibscope summary --format csv")
        .column("inputs", Count, "captures that were read", |row: &SummaryRow<'_>| row.profile.inputs.len() as u64)
        .column("first_time_ns", Timestamp, "smallest time of a record", |row| row.coverage().first_time_ns)
        .column("last_time_ns", Timestamp, "largest time of a record", |row| row.coverage().last_time_ns)
        .column(
            "records",
            Count,
            "records of the captures: without a time window the sum of `infiniband`, `other_frames` and `not_decoded`",
            |row| row.coverage().records,
        )
        .column("infiniband", Count, "records with a BTH", |row| row.coverage().infiniband)
        .column("other_frames", Count, "frames that are not InfiniBand", |row| row.coverage().other())
        .column("not_decoded", Count, "records that could not be decoded", |row| row.coverage().failed())
        .column(
            "decoded_percent",
            Percent,
            "share of the records that were decoded, which `--min-coverage` checks",
            |row| row.coverage().decoded_percent(),
        )
        .column("encapsulated", Count, "InfiniBand packets in tunnels, such as ERSPAN and VXLAN", |row| {
            row.coverage().encapsulated_packets()
        })
        .column(
            "lost_mirrored_frames",
            Count,
            "frames that were lost between a mirror and the capture, by the mirror's sequence numbers",
            |row| row.coverage().lost_mirrored_frames(),
        )
        .column("truncated", Count, "InfiniBand packets that were not captured in full", |row| row.coverage().truncated)
        .column("icrc_bad", Count, "packets with a wrong ICRC", |row| row.coverage().icrc_bad)
        .column("vcrc_bad", Count, "packets with a wrong VCRC", |row| row.coverage().vcrc_bad)
        .column("interface_drops", Count, "packets that the capturing interfaces report as dropped", |row| {
            row.coverage().interface_drops
        })
        .column(
            "mirror_copies",
            Count,
            "mirror copies: second observations of packets that appear twice in one file",
            |row| row.coverage().mirror_copies,
        )
        .column("endpoints", Count, "endpoints with traffic", |row| row.totals.endpoints.len() as u64)
        .column("ranks", Count, "ranks that are known", SummaryRow::ranks)
        // A library name may contain a `;`, so this is not a list column.
        .column("stacks", Name, "MPI libraries that were detected, separated by `; `", |row| {
            row.totals.stacks.iter().copied().collect::<Vec<_>>().join("; ")
        })
        .column("packets", Count, "all packets, with retransmissions", |row| row.totals.traffic.packets)
        .column("wire_bytes", Bytes, "bytes of these packets on the wire", |row| row.totals.traffic.wire_bytes)
        .column("payload_bytes", Bytes, "InfiniBand payload, without retransmissions", |row| {
            row.totals.traffic.payload_bytes
        })
        .column("messages", Count, "transport messages", |row| row.totals.traffic.messages)
        .column("p2p_messages", Count, "MPI messages, point-to-point; empty where no MPI library was detected", |row| {
            row.mpi(|sums| sums.p2p_messages)
        })
        .column("p2p_mpi_bytes", Bytes, "MPI length of these messages", |row| row.mpi(|sums| sums.p2p_mpi_bytes))
        .column(
            "collective_messages",
            Count,
            "MPI messages of collective operations; empty where no MPI library was detected",
            |row| row.mpi(|sums| sums.collective_messages),
        )
        .column("collective_mpi_bytes", Bytes, "MPI length of these messages", |row| {
            row.mpi(|sums| sums.collective_mpi_bytes)
        })
        .column("retransmitted_packets", Count, "retransmissions, duplicate acknowledgements included", |row| {
            row.profile.sampling.is_none().then(|| row.totals.retransmissions.packets())
        })
        .with(rate_columns)
        .column("peak_window_ns", Nanoseconds, "length of the window of the peaks", |row| {
            row.rates.as_ref().map(|rates| rates.window_ns)
        })
        .known_counts(RetransmissionSums::COLUMNS, |row| row.retransmissions.values(), SummaryRow::is_known)
        .known_counts(Health::COLUMNS, |row| row.health.values(), SummaryRow::is_known)
}

/// Writes csv with one `name,value` row per fact; unknown values are empty.
pub fn csv(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    facts_table_of(profile).csv_transposed(&SummaryRow::of(profile), out)
}

/// Writes one JSON object with the facts, the inputs, the coverage, the ranks and the notes.
pub fn json(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let members = json!({
        "facts": facts_table_of(profile).object(&SummaryRow::of(profile)),
        "sampled": profile.sampling.map(|sampling| sampling.describe()),
        "inputs": profile.inputs,
        "coverage": profile.coverage,
        "trust": profile.trust,
        "ranks": profile.ranks,
        "notes": profile.notes,
    });
    write_document(out, "ibscope summary", 2, members)
}
