//! The rank map as terminal table, csv and JSON: where each rank runs, and the evidence.

use super::table::{ColumnValue, Table, write_document};
use crate::analysis::libraries::{Libraries, libraries};
use crate::model::Profile;
use crate::model::column::ColumnUnit::{Count, Flag, Number, Prose};
use crate::model::column::{ColumnDescription, ColumnType};
use crate::model::profile::{JobRow, RankRow, UnassignedRow};
use crate::render::columns::rows_within;
use crate::render::units::count_of;
use ibscope_parsers::Endpoint;
use ibscope_parsers::mpi::LibraryStack;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Maximum number of queue pairs per rank in the terminal table.
const MAX_QUEUE_PAIRS: usize = 6;

/// Maximum number of endpoints per reason in the terminal table.
const MAX_ENDPOINTS: usize = 8;

/// Queue pair numbers by endpoint and job.
type QueuePairsByEndpoint<'a> = BTreeMap<(&'a str, Option<u32>), Vec<u32>>;

/// The terminal table: one line per rank and endpoint, one table per job, then the queue pairs
/// without a rank, grouped by reason. A table that is wider than `width` columns leaves out the library,
/// the queue pairs, the node and the evidence, in this order, until it fits.
#[must_use]
pub fn ranks_table(profile: &Profile, width: Option<usize>) -> String {
    if profile.ranks.is_empty() && !profile.mpi_read {
        return super::NOT_ANALYZED.to_owned();
    }
    let mut parts = Vec::new();
    if profile.ranks.is_empty() {
        parts.push(
            "no rank is known: no message in the capture names one (does it hold MPI traffic from the start of the job?)\n"
                .to_owned(),
        );
    }
    let libraries = libraries(profile);
    for rows in profile.ranks.chunk_by(|a, b| a.job == b.job) {
        let job = rows.first().and_then(|row| profile.jobs.iter().find(|job| job.job == row.job));
        let heading = job.filter(|_| profile.jobs.len() > 1).map(|job| format!("{}\n", job.describe()));
        let lines: Vec<Vec<String>> =
            lines_of(profile, rows, &libraries, |row| row.rank.to_string()).map(Vec::from).collect();
        let table = rows_within(&COLUMNS, &[], &lines, (width, &[4, 3, 1, 5]));
        parts.push(format!("{}{table}\n", heading.unwrap_or_default()));
    }
    if !profile.unassigned.is_empty() {
        parts.push(unassigned(profile));
    }
    parts.join("\n")
}

/// The queue pairs without a rank, grouped by reason.
fn unassigned(profile: &Profile) -> String {
    let mut reasons: BTreeMap<&str, QueuePairsByEndpoint<'_>> = BTreeMap::new();
    for row in &profile.unassigned {
        let endpoints = reasons.entry(&row.reason).or_default();
        endpoints.entry((&row.endpoint, row.job)).or_default().push(row.qpn);
    }
    let count = profile.unassigned.len() as u64;
    let mut text = format!("without a rank: {} with MPI traffic\n", count_of(count, "queue pair"));
    for (reason, endpoints) in reasons {
        let count = endpoints.values().map(Vec::len).sum::<usize>() as u64;
        let _ = writeln!(text, "  {reason} ({}):", count_of(count, "queue pair"));
        for ((endpoint, job), numbers) in endpoints.iter().take(MAX_ENDPOINTS) {
            let name = name(profile, endpoint).map(|name| format!(" {name}")).unwrap_or_default();
            let job = job.filter(|_| profile.jobs.len() > 1).map(|job| format!(", job {job}")).unwrap_or_default();
            let _ = writeln!(text, "    {endpoint}{name}{job}: {}", queue_pairs(numbers));
        }
        if let Some(more) = endpoints.len().checked_sub(MAX_ENDPOINTS).filter(|more| *more > 0) {
            let _ = writeln!(text, "    and {}", count_of(more as u64, "more endpoint"));
        }
    }
    text
}

fn name<'a>(profile: &'a Profile, endpoint: &str) -> Option<&'a str> {
    profile.names.get(&endpoint.parse().ok()?).map(String::as_str)
}

/// The columns of the terminal table.
pub(crate) const COLUMNS: [&str; 7] = ["rank", "node", "endpoint", "queue pairs", "library", "evidence", "confidence"];

/// One line of [`COLUMNS`] per rank and endpoint, for all jobs.
pub(crate) fn lines(profile: &Profile) -> impl Iterator<Item = [String; COLUMNS.len()]> {
    let libraries = libraries(profile);
    let several = profile.jobs.len() > 1;
    let label = move |row: &RankRow| if several { format!("{}.{}", row.job, row.rank) } else { row.rank.to_string() };
    lines_of(profile, &profile.ranks, &libraries, label).collect::<Vec<_>>().into_iter()
}

fn lines_of<'a>(
    profile: &'a Profile,
    rows: &'a [RankRow],
    libraries: &'a Libraries<'_>,
    label: impl Fn(&RankRow) -> String + 'a,
) -> impl Iterator<Item = [String; COLUMNS.len()]> + 'a {
    let is_same = |a: &RankRow, b: &RankRow| (a.job, a.rank, &a.endpoint) == (b.job, b.rank, &b.endpoint);
    rows.chunk_by(is_same).filter_map(move |rows| {
        let first = rows.first()?;
        let endpoint = first.endpoint.parse::<Endpoint>().ok();
        let own = endpoint.and_then(|endpoint| libraries.get(&(endpoint, first.job)));
        let is_nccl = own.is_some_and(|own| own.contains(LibraryStack::Nccl.name()));
        let library = if is_nccl { "NCCL" } else { "MPI" };
        let numbers: Vec<u32> = rows.iter().filter_map(|row| row.qpn).collect();
        let confidence = match first.agreeing + first.disagreeing {
            0 => "-".to_owned(),
            total => format!("{} of {total}", first.agreeing),
        };
        Some([
            label(first),
            name(profile, &first.endpoint).unwrap_or("-").to_owned(),
            first.endpoint.clone(),
            queue_pairs(&numbers),
            own.map_or_else(|| "-".to_owned(), |own| own.iter().copied().collect::<Vec<_>>().join(", ")),
            evidence(first, library),
            confidence,
        ])
    })
}

/// A rank at an endpoint or queue pair, or a queue pair without a rank.
pub(super) enum RankMapRow<'a> {
    Rank(&'a RankRow),
    Unassigned(&'a UnassignedRow),
}

impl<'a> RankMapRow<'a> {
    const fn rank(&self) -> Option<&'a RankRow> {
        match self {
            Self::Rank(row) => Some(row),
            Self::Unassigned(_) => None,
        }
    }

    const fn unassigned(&self) -> Option<&'a UnassignedRow> {
        match self {
            Self::Rank(_) => None,
            Self::Unassigned(row) => Some(row),
        }
    }

    fn endpoint(&self) -> &'a str {
        match self {
            Self::Rank(row) => &row.endpoint,
            Self::Unassigned(row) => &row.endpoint,
        }
    }

    const fn qpn(&self) -> Option<u32> {
        match self {
            Self::Rank(row) => row.qpn,
            Self::Unassigned(row) => Some(row.qpn),
        }
    }

    const fn job(&self) -> Option<u32> {
        match self {
            Self::Rank(row) => Some(row.job),
            Self::Unassigned(row) => row.job,
        }
    }
}

/// The columns of `ranks`; `--rankmap` reads a csv file with these columns.
pub(super) fn rank_map_table<'a>() -> Table<RankMapRow<'a>> {
    let inferred = ColumnDescription {
        name: "inferred",
        column_type: ColumnType::Bool,
        unit: Flag,
        meaning: "`yes` (in JSON `true`) if no message of the queue pair names the rank and ibscope inferred it: from the rank of the process on another communicator, or because its port has one rank only; else `no`; empty without a rank",
    };
    Table::new("ibscope ranks --format csv")
        .column("rank", Number, "rank in the `MPI_COMM_WORLD` of its job; empty where it is not known", |row: &RankMapRow<'_>| {
            row.rank().map(|row| row.rank)
        })
        .name("endpoint", "endpoint of the rank", |row| Some(row.endpoint()))
        .column("qpn", Number, "the queue pair, if the rank was assigned to that queue pair only", RankMapRow::qpn)
        .name(
            "evidence",
            "`envelope`: stated in MPI messages; `cm`: stated in connection messages of the library, or in its RDMA CM private data; `communicator`: inferred, see [Ranks](method.md#ranks); `rankmap`: given with `--rankmap`",
            |row| row.rank().map(|row| row.evidence.as_str()),
        )
        .column("agreeing", Count, "messages on `MPI_COMM_WORLD` and connection messages of this process that named this rank", |row| {
            row.rank().map(|row| row.agreeing)
        })
        .column("disagreeing", Count, "messages that named another rank", |row| row.rank().map(|row| row.disagreeing))
        .column("job", Number, "number of the job, from 1; empty where it is not known", RankMapRow::job)
        .values(inferred, |row| row.rank().map_or(ColumnValue::Missing, |row| ColumnValue::YesNo(row.inferred)))
        .values(
            ColumnDescription {
                name: "reason",
                column_type: ColumnType::Text,
                unit: Prose,
                meaning: "why the rank of the queue pair is not known",
            },
            |row| row.unassigned().map_or(ColumnValue::Missing, |row| ColumnValue::Text(row.reason.as_str().into())),
        )
}

fn known(profile: &Profile) -> impl Iterator<Item = RankMapRow<'_>> {
    profile.ranks.iter().map(RankMapRow::Rank)
}

fn without_rank(profile: &Profile) -> impl Iterator<Item = RankMapRow<'_>> {
    profile.unassigned.iter().map(RankMapRow::Unassigned)
}

/// Writes one csv row per rank and endpoint or queue pair, and one per queue pair that has MPI
/// traffic and no rank.
pub fn ranks_csv(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    rank_map_table().csv(known(profile).chain(without_rank(profile)), out)
}

/// Writes one JSON object with the csv rows and the jobs.
pub fn ranks_json(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let table = rank_map_table();
    let members = json!({
        "jobs": profile.jobs.iter().map(job_members).collect::<Vec<_>>(),
        "ranks": table.objects(known(profile)),
        "unassigned": table.objects(without_rank(profile)),
    });
    write_document(out, "ibscope ranks", 2, members)
}

/// Times of the first and last packet of a job in nanoseconds since the epoch; `None` if no packet
/// has a time. The profile then has the times of an empty interval, whose end is before its start.
pub(crate) fn job_times_ns(job: &JobRow) -> Option<(i64, i64)> {
    (job.first_time_ns <= job.last_time_ns).then_some((job.first_time_ns, job.last_time_ns))
}

/// A job in JSON, where times that are not known are null.
fn job_members(job: &JobRow) -> Value {
    let mut members = json!(job);
    if job_times_ns(job).is_none() {
        members["first_time_ns"] = Value::Null;
        members["last_time_ns"] = Value::Null;
    }
    members
}

fn queue_pairs(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(|qpn| format!("{qpn:#x}")).collect();
    match numbers.len() {
        0 => "all".to_owned(),
        count if count > MAX_QUEUE_PAIRS => {
            format!("{} and {} more", numbers[..MAX_QUEUE_PAIRS].join(" "), count - MAX_QUEUE_PAIRS)
        }
        _ => numbers.join(" "),
    }
}

/// Describes the evidence for a rank; `library` is MPI or NCCL.
pub(crate) fn evidence(row: &RankRow, library: &str) -> String {
    let of_messages = format!("from {library} messages");
    let text = match row.evidence.as_str() {
        "envelope" => of_messages.as_str(),
        "cm" => "from connection messages",
        "communicator" => "inferred from communicators",
        RankRow::OF_MAP => "from the rank map",
        other => other,
    };
    let is_complete = !row.inferred || text.starts_with("inferred");
    if is_complete { text.to_owned() } else { format!("{text} (inferred)") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::two_jobs;

    #[test]
    fn csv_has_unassigned_queue_pairs_and_can_be_read_as_a_rank_map() {
        let mut out = Vec::new();
        ranks_csv(&two_jobs(), &mut out).unwrap();
        let expected = "rank,endpoint,qpn,evidence,agreeing,disagreeing,job,inferred,reason\n\
                        0,9,10,envelope,4,0,1,no,\n\
                        1,10,9,envelope,4,0,1,no,\n\
                        0,9,20,envelope,4,0,2,no,\n\
                        1,10,19,envelope,4,0,2,no,\n\
                        ,10,77,,,,2,,\"no message names it, whatever the communicator\"\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// A capture without timestamps: the profile has the times of an empty interval.
    #[test]
    fn times_of_a_job_without_timestamps_are_null() {
        let mut profile = two_jobs();
        (profile.jobs[1].first_time_ns, profile.jobs[1].last_time_ns) = (i64::MAX, i64::MIN);
        let mut out = Vec::new();
        ranks_json(&profile, &mut out).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        let times = |job: usize| ["first_time_ns", "last_time_ns"].map(|name| document["jobs"][job].get(name).cloned());
        // `two_jobs` has jobs of 1 ms from the epoch.
        assert_eq!(times(0), [Some(json!(0)), Some(json!(1_000_000))]);
        assert_eq!(times(1), [Some(Value::Null), Some(Value::Null)]);
    }

    #[test]
    fn the_table_has_a_heading_for_each_job_and_queue_pairs_by_reason() {
        let table = ranks_table(&two_jobs(), None);
        let expected = "\
job 1: Open MPI UCX rc_verbs, 2 ranks
 rank  node  endpoint  queue pairs  library                evidence           confidence
 0     -     9         0xa          Open MPI UCX rc_verbs  from MPI messages  4 of 4
 1     -     10        0x9          -                      from MPI messages  4 of 4

job 2 (Slurm 4711): Open MPI UCX rc_verbs, 2 ranks
 rank  node  endpoint  queue pairs  library                evidence           confidence
 0     -     9         0x14         Open MPI UCX rc_verbs  from MPI messages  4 of 4
 1     -     10        0x13         Open MPI UCX rc_verbs  from MPI messages  4 of 4

without a rank: 1 queue pair with MPI traffic
  no message names it, whatever the communicator (1 queue pair):
    10, job 2: 0x4d
";
        assert_eq!(table, expected, "{table}");
    }
}
