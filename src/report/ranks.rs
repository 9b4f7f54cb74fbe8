//! The rank map: which rank runs where, and what says so.

use super::csv::quoted;
use crate::model::profile::{RankRow, UnassignedRow};
use crate::model::{Kind, Profile};
use crate::report::columns::columns;
use ibscope_parsers::Endpoint;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Queue pairs that are listed per rank in the table.
const MAX_QUEUE_PAIRS: usize = 6;

/// A table for people: one line per rank and endpoint.
#[must_use]
pub fn ranks_table(profile: &Profile) -> String {
    if profile.ranks.is_empty() && !profile.mpi_read {
        return super::NOT_LOOKED_FOR.to_owned();
    }
    if profile.ranks.is_empty() {
        return "no rank is known: no message named one (is there MPI traffic in the capture, from its start?)\n"
            .to_owned();
    }
    let mut table = columns(&COLUMNS, []);
    lines(profile).for_each(|line| _ = table.add_row(line));
    format!("{}\n", table.trim_fmt())
}

/// What people are told of each rank.
pub(super) const COLUMNS: [&str; 7] = ["rank", "node", "endpoint", "queue pairs", "library", "evidence", "confidence"];

/// A line of [`COLUMNS`] per rank and endpoint.
pub(super) fn lines(profile: &Profile) -> impl Iterator<Item = [String; COLUMNS.len()]> + '_ {
    let libraries = libraries(profile);
    profile.ranks.chunk_by(|a, b| (a.rank, &a.endpoint) == (b.rank, &b.endpoint)).filter_map(move |rows| {
        let first = rows.first()?;
        let endpoint = first.endpoint.parse::<Endpoint>().ok();
        let name = endpoint.and_then(|endpoint| profile.names.get(&endpoint)).map_or("-", String::as_str);
        let own = endpoint.and_then(|endpoint| libraries.get(&endpoint));
        let confidence = match first.agreeing + first.disagreeing {
            0 => "-".to_owned(),
            total => format!("{} of {total}", first.agreeing),
        };
        Some([
            first.rank.to_string(),
            name.to_owned(),
            first.endpoint.clone(),
            queue_pairs(rows),
            own.map_or_else(|| "-".to_owned(), |own| own.iter().copied().collect::<Vec<_>>().join(", ")),
            evidence(first).to_owned(),
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

fn queue_pairs(rows: &[RankRow]) -> String {
    let numbers: Vec<String> = rows.iter().filter_map(|row| row.qpn).map(|qpn| format!("{qpn:#x}")).collect();
    match numbers.len() {
        0 => "all".to_owned(),
        count if count > MAX_QUEUE_PAIRS => {
            format!("{} and {} more", numbers[..MAX_QUEUE_PAIRS].join(" "), count - MAX_QUEUE_PAIRS)
        }
        _ => numbers.join(" "),
    }
}

/// The libraries that senders speak.
fn libraries(profile: &Profile) -> BTreeMap<Endpoint, BTreeSet<&str>> {
    let mut libraries: BTreeMap<Endpoint, BTreeSet<&str>> = BTreeMap::new();
    for row in profile.connections.iter().filter(|row| row.kind == Kind::Data) {
        if let Some(stack) = row.stack.as_deref() {
            libraries.entry(row.src).or_default().insert(stack);
        }
    }
    libraries
}

/// What says that a rank runs there, in words.
pub(super) fn evidence(row: &RankRow) -> &'static str {
    match row.evidence.as_str() {
        "envelope" => "messages name it",
        "cm" => "connection messages state it",
        "communicator" => "inferred from communicators",
        _ => "rank map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::two_jobs;

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
}
