//! The rank map: which rank runs where, and what says so.

use super::csv::quoted;
use crate::analysis::libraries::{Libraries, libraries};
use crate::model::Profile;
use crate::model::profile::{RankRow, UnassignedRow};
use crate::render::columns::columns;
use crate::render::units::counted;
use ibscope_parsers::Endpoint;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Queue pairs that are listed per rank in the table.
const MAX_QUEUE_PAIRS: usize = 6;

/// Endpoints that are listed per reason in the table.
const MAX_ENDPOINTS: usize = 8;

/// Queue pairs by endpoint and job.
type Unassigned<'a> = BTreeMap<(&'a str, Option<u32>), Vec<u32>>;

/// A table for people: one line per rank and endpoint, each job under a heading of its own, and queue pairs without a rank by the reason.
#[must_use]
pub fn ranks_table(profile: &Profile) -> String {
    if profile.ranks.is_empty() && !profile.mpi_read {
        return super::NOT_LOOKED_FOR.to_owned();
    }
    let mut parts = Vec::new();
    if profile.ranks.is_empty() {
        parts.push(
            "no rank is known: no message named one (is there MPI traffic in the capture, from its start?)\n"
                .to_owned(),
        );
    }
    let libraries = libraries(profile);
    for rows in profile.ranks.chunk_by(|a, b| a.job == b.job) {
        let job = rows.first().and_then(|row| profile.jobs.iter().find(|job| job.job == row.job));
        let heading = job.filter(|_| profile.jobs.len() > 1).map(|job| format!("{}\n", job.describe()));
        let mut table = columns(&COLUMNS, []);
        lines_of(profile, rows, &libraries, |row| row.rank.to_string()).for_each(|line| _ = table.add_row(line));
        parts.push(format!("{}{}\n", heading.unwrap_or_default(), table.trim_fmt()));
    }
    if !profile.unassigned.is_empty() {
        parts.push(unassigned(profile));
    }
    parts.join("\n")
}

/// Queue pairs without a rank, by the reason.
fn unassigned(profile: &Profile) -> String {
    let mut reasons: BTreeMap<&str, Unassigned<'_>> = BTreeMap::new();
    for row in &profile.unassigned {
        let endpoints = reasons.entry(&row.reason).or_default();
        endpoints.entry((&row.endpoint, row.job)).or_default().push(row.qpn);
    }
    let count = profile.unassigned.len() as u64;
    let mut text = format!("without a rank: {} with MPI traffic\n", counted(count, "queue pair"));
    for (reason, endpoints) in reasons {
        let count = endpoints.values().map(Vec::len).sum::<usize>() as u64;
        let _ = writeln!(text, "  {reason} ({}):", counted(count, "queue pair"));
        for ((endpoint, job), numbers) in endpoints.iter().take(MAX_ENDPOINTS) {
            let name = name(profile, endpoint).map(|name| format!(" {name}")).unwrap_or_default();
            let job = job.filter(|_| profile.jobs.len() > 1).map(|job| format!(", job {job}")).unwrap_or_default();
            let _ = writeln!(text, "    {endpoint}{name}{job}: {}", queue_pairs(numbers));
        }
        if let Some(more) = endpoints.len().checked_sub(MAX_ENDPOINTS).filter(|more| *more > 0) {
            let _ = writeln!(text, "    and {}", counted(more as u64, "more endpoint"));
        }
    }
    text
}

fn name<'a>(profile: &'a Profile, endpoint: &str) -> Option<&'a str> {
    profile.names.get(&endpoint.parse().ok()?).map(String::as_str)
}

/// What people are told of each rank.
pub(crate) const COLUMNS: [&str; 7] = ["rank", "node", "endpoint", "queue pairs", "library", "evidence", "confidence"];

/// A line of [`COLUMNS`] per rank and endpoint, of all jobs.
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
            evidence(first),
            confidence,
        ])
    })
}

/// `rank,endpoint,qpn,evidence,agreeing,disagreeing,job,inferred,reason`: what `--rankmap` reads. `qpn` is empty where the rank has
/// all queue pairs of its endpoint, `rank` where the rank of a queue pair is unknown, for the `reason`.
pub fn ranks_csv(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "rank,endpoint,qpn,evidence,agreeing,disagreeing,job,inferred,reason")?;
    for row in &profile.ranks {
        let RankRow { job, rank, endpoint, evidence, agreeing, disagreeing, inferred, .. } = row;
        let qpn = row.qpn.map(|qpn| qpn.to_string()).unwrap_or_default();
        let inferred = if *inferred { "yes" } else { "no" };
        writeln!(out, "{rank},{endpoint},{qpn},{},{agreeing},{disagreeing},{job},{inferred},", quoted(evidence))?;
    }
    for UnassignedRow { job, endpoint, qpn, reason } in &profile.unassigned {
        let job = job.map(|job| job.to_string()).unwrap_or_default();
        writeln!(out, ",{endpoint},{qpn},,,,{job},,{}", quoted(reason))?;
    }
    Ok(())
}

/// One object with the rows of the csv, and the jobs.
pub fn ranks_json(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let document = json!({
        "schema": "ibscope ranks",
        "version": 1,
        "jobs": profile.jobs,
        "ranks": profile.ranks,
        "unassigned": profile.unassigned,
    });
    writeln!(out, "{document:#}")
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

/// What says that a rank runs there, in words.
pub(crate) fn evidence(row: &RankRow) -> String {
    let text = match row.evidence.as_str() {
        "envelope" => "messages name it",
        "cm" => "connection messages state it",
        "communicator" => "inferred from communicators",
        "rankmap" => "rank map",
        other => other,
    };
    let is_said = !row.inferred || text.starts_with("inferred");
    if is_said { text.to_owned() } else { format!("{text} (inferred)") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::two_jobs;

    #[test]
    fn csv_has_unassigned_queue_pairs_and_goes_back_as_it_is() {
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

    #[test]
    fn the_table_has_a_heading_for_each_job_and_queue_pairs_by_reason() {
        let table = ranks_table(&two_jobs());
        let expected = "\
job 1: Open MPI UCX rc_verbs, 2 ranks
 rank  node  endpoint  queue pairs  library                evidence          confidence
 0     -     9         0xa          Open MPI UCX rc_verbs  messages name it  4 of 4
 1     -     10        0x9          -                      messages name it  4 of 4

job 2 (Slurm 4711): Open MPI UCX rc_verbs, 2 ranks
 rank  node  endpoint  queue pairs  library                evidence          confidence
 0     -     9         0x14         Open MPI UCX rc_verbs  messages name it  4 of 4
 1     -     10        0x13         Open MPI UCX rc_verbs  messages name it  4 of 4

without a rank: 1 queue pair with MPI traffic
  no message names it, whatever the communicator (1 queue pair):
    10, job 2: 0x4d
";
        assert_eq!(table, expected, "{table}");
    }
}
