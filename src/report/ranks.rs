//! The rank map: which rank runs where, and what says so.

use crate::model::profile::RankRow;
use crate::model::{Kind, Profile};
use crate::report::columns::columns;
use ibscope_parsers::Endpoint;
use serde_json::json;
use std::collections::BTreeSet;
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
    let mut table = columns(&["rank", "node", "endpoint", "queue pairs", "library", "evidence", "confidence"], []);
    for rows in profile.ranks.chunk_by(|a, b| (a.rank, &a.endpoint) == (b.rank, &b.endpoint)) {
        let Some(first) = rows.first() else { continue };
        let endpoint = first.endpoint.parse::<Endpoint>().ok();
        let name = endpoint.and_then(|endpoint| profile.names.get(&endpoint)).map_or("-", String::as_str);
        let confidence = match first.agreeing + first.disagreeing {
            0 => "-".to_owned(),
            total => format!("{} of {total}", first.agreeing),
        };
        table.add_row([
            first.rank.to_string(),
            name.to_owned(),
            first.endpoint.clone(),
            queue_pairs(rows),
            libraries(profile, endpoint),
            evidence(first).to_owned(),
            confidence,
        ]);
    }
    format!("{}\n", table.trim_fmt())
}

/// `rank,endpoint,qpn,evidence,agreeing,disagreeing`: what `--rankmap` reads. `qpn` is empty where the rank has all queue
/// pairs of its endpoint.
pub fn ranks_csv(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "rank,endpoint,qpn,evidence,agreeing,disagreeing")?;
    for row in &profile.ranks {
        let RankRow { rank, endpoint, evidence, agreeing, disagreeing, .. } = row;
        let qpn = row.qpn.map(|qpn| qpn.to_string()).unwrap_or_default();
        writeln!(out, "{rank},{endpoint},{qpn},{evidence},{agreeing},{disagreeing}")?;
    }
    Ok(())
}

/// One object with the rows of the csv.
pub fn ranks_json(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let document = json!({ "schema": "ibscope ranks", "version": 1, "ranks": profile.ranks });
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

fn libraries(profile: &Profile, endpoint: Option<Endpoint>) -> String {
    let sent = profile.connections.iter().filter(|row| Some(row.src) == endpoint && row.kind == Kind::Data);
    let stacks: BTreeSet<&str> = sent.filter_map(|row| row.stack.as_deref()).collect();
    if stacks.is_empty() { "-".to_owned() } else { stacks.into_iter().collect::<Vec<_>>().join(", ") }
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
