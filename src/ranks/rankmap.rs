//! The user's rank map: csv `rank,endpoint[,qpn]` and more, as `ranks --format csv` writes it.
//!
//! [`parse`] reads the file; [`apply`] replaces the inferred ranks of a profile by it. Invariant: a
//! row that equals an inferred rank keeps its evidence, so an unedited file changes nothing.

use crate::model::profile::{ConnectionRow, JobRow, RankRow, UnassignedRow};
use crate::model::{JobRank, Profile, RankIndex, TrafficKind, quoted};
use ibscope_parsers::{Endpoint, Qpn};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

/// Error in a rank map.
#[derive(Debug, thiserror::Error)]
#[error("{}: line {line}: {what}; expected {expected}", path.display())]
pub struct RankmapError {
    /// The file.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// The reason.
    pub what: String,
    /// The expected content.
    pub expected: &'static str,
}

const EXPECTED: &str = "a header line `rank,endpoint` or `rank,endpoint,qpn` and then lines like `0,17` or `0,10.77.0.1,0x11`; a column \
                        `job` may follow, other columns are ignored";

/// Upper limit of ranks: no job has more processes, so a larger number is a typing error.
const MAX_RANK: u32 = 1 << 24;

/// Reason for a queue pair whose row is missing from the map.
const LEFT_OUT: &str = "the rank map does not list it";

/// Parses a rank map. `path` is for errors. Skips rows without a rank, which `ranks --format csv`
/// writes for unassigned queue pairs.
pub fn parse(path: &std::path::Path, text: &str) -> Result<Vec<RankRow>, RankmapError> {
    let mut rows: Vec<RankRow> = Vec::new();
    let mut places: HashMap<(Endpoint, Option<u32>, Option<u32>), JobRank> = HashMap::new();
    let mut columns: Option<RankmapColumns> = None;
    for (index, line) in text.lines().enumerate() {
        let error = |what: String| RankmapError { path: path.to_owned(), line: index + 1, what, expected: EXPECTED };
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let fields = fields(line).ok_or_else(|| error(format!("{} has an unclosed quote", quoted(line))))?;
        let Some(columns) = &columns else {
            columns =
                Some(RankmapColumns::of(&fields).ok_or_else(|| error(format!("{} is not a header", quoted(line))))?);
            continue;
        };
        let row = row(&fields, columns).map_err(error)?;
        let Some((endpoint, row)) = row else { continue };
        let rank = JobRank { job: row.job, rank: row.rank };
        // A queue pair belongs to one process; a port may serve several jobs, with one rank of
        // each.
        let job = row.qpn.is_none().then_some(row.job);
        let other = *places.entry((endpoint, row.qpn, job)).or_insert(rank);
        if other != rank {
            let of_job = if other.job == rank.job { String::new() } else { format!(" of job {}", other.job) };
            return Err(error(format!("endpoint {} is rank {}{of_job} already", row.endpoint, other.rank)));
        }
        rows.push(row);
    }
    if columns.is_none() {
        let what = "the file is empty".to_owned();
        return Err(RankmapError { path: path.to_owned(), line: 1, what, expected: EXPECTED });
    }
    rows.sort_by(|a, b| place(a).cmp(&place(b)));
    rows.dedup();
    Ok(rows)
}

/// Columns after the third.
struct RankmapColumns {
    job: Option<usize>,
}

impl RankmapColumns {
    /// The columns of a header line; `None` if it is no header.
    fn of(fields: &[String]) -> Option<Self> {
        let is_header =
            fields.len() > 1 && fields.iter().zip(["rank", "endpoint", "qpn"]).all(|(field, name)| field == name);
        is_header.then(|| Self { job: fields.iter().position(|field| field == "job") })
    }
}

/// The row of a line; `None` if it has no rank.
fn row(fields: &[String], columns: &RankmapColumns) -> Result<Option<(Endpoint, RankRow)>, String> {
    let [rank, endpoint, ..] = fields else {
        return Err(format!("{} has fewer than two fields", quoted(&fields.join(","))));
    };
    if rank.is_empty() {
        return Ok(None);
    }
    let rank =
        rank.parse().ok().filter(|rank| *rank < MAX_RANK).ok_or_else(|| format!("{} is not a rank", quoted(rank)))?;
    let endpoint: Endpoint = endpoint.parse().map_err(|problem| format!("{} is {problem}", quoted(endpoint)))?;
    let filled = |column: usize| fields.get(column).filter(|text| !text.is_empty());
    let qpn = |text: &String| number(text).ok_or_else(|| format!("{} is not a queue pair number", quoted(text)));
    let job = |text: &String| {
        let job = text.parse().ok().filter(|job| (1..=MAX_RANK).contains(job));
        job.ok_or_else(|| format!("{} is not a job: jobs are numbered from 1", quoted(text)))
    };
    let row = RankRow {
        rank,
        endpoint: endpoint.to_string(),
        qpn: filled(2).map(qpn).transpose()?,
        evidence: RankRow::OF_MAP.to_owned(),
        agreeing: 0,
        disagreeing: 0,
        job: columns.job.and_then(filled).map_or(Ok(1), job)?,
        inferred: false,
    };
    Ok(Some((endpoint, row)))
}

/// The fields of a line, trimmed. A quoted field may contain commas, and quotes as double quotes.
/// `None` if a quote is not closed.
fn fields(line: &str) -> Option<Vec<String>> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars().peekable();
    let mut is_quoted = false;
    while let Some(letter) = letters.next() {
        let field = fields.last_mut()?;
        match letter {
            '"' if is_quoted && letters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if is_quoted || field.trim().is_empty() => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => field.push(letter),
        }
    }
    (!is_quoted).then(|| fields.iter().map(|field| field.trim().to_owned()).collect())
}

fn number(text: &str) -> Option<u32> {
    let value = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => text.parse().ok()?,
    };
    (value < 1 << 24).then_some(value)
}

/// Identity of a row, which is also its sort key.
fn place(row: &RankRow) -> (u32, u32, &str, Option<u32>) {
    (row.job, row.rank, &row.endpoint, row.qpn)
}

/// Replaces the ranks of a profile by those of a map. Jobs of connections follow from the ranks of
/// their queue pairs; queue pairs that lose their rank are unassigned.
pub fn apply(profile: &mut Profile, rankmap: &[RankRow]) {
    let inferred_ranks: BTreeMap<_, RankRow> = profile.ranks.iter().map(|row| (place(row), row.clone())).collect();
    let by_queue_pair: InferredRanks<'_> =
        profile.ranks.iter().map(|row| ((row.job, row.endpoint.as_str(), row.qpn), row)).collect();
    let own = |row: &RankRow| inferred_ranks.get(&place(row)).cloned().unwrap_or_else(|| mapped(row, &by_queue_pair));
    let rows: Vec<RankRow> = rankmap.iter().map(own).collect();
    if rows.len() == inferred_ranks.len() && rows.iter().all(|row| inferred_ranks.contains_key(&place(row))) {
        return;
    }
    drop(inferred_ranks);
    // A rank map may assign different ranks to queue pairs that the series counts as one sender.
    profile.drop_senders();
    let before = RankIndex::of(profile);
    profile.ranks = rows;
    let after = RankIndex::of(profile);
    let has_jobs = !profile.jobs.is_empty();
    for connection in profile.connections.iter_mut().filter(|connection| connection.kind == TrafficKind::Data) {
        if changes(&before, &after, connection) && (!has_jobs || may_join(&after, connection)) {
            connection.job = after.job(connection).or(connection.job);
        }
    }
    unassign(profile, &before, &after);
    renew_jobs(profile);
}

/// The inferred ranks by job, endpoint and queue pair.
type InferredRanks<'a> = BTreeMap<(u32, &'a str, Option<u32>), &'a RankRow>;

/// A row of the map, with the number of messages that name another rank.
fn mapped(row: &RankRow, inferred: &InferredRanks<'_>) -> RankRow {
    let at = |qpn: Option<u32>| (row.job, row.endpoint.as_str(), qpn);
    // A row without a queue pair is for all queue pairs of its port.
    let same_queue_pair = inferred.range(at(row.qpn)..=at(row.qpn.or(Some(u32::MAX)))).map(|(_, other)| other);
    let others = same_queue_pair.chain(inferred.get(&at(None)));
    let others = others.filter(|other| !other.inferred && other.rank != row.rank);
    // The rows of a process have the same count.
    RankRow { disagreeing: others.map(|other| other.agreeing).max().unwrap_or(0), ..row.clone() }
}

/// True if the map changes the rank of an end of the connection.
fn changes(before: &RankIndex, after: &RankIndex, connection: &ConnectionRow) -> bool {
    ends(connection).into_iter().any(|(endpoint, qpn)| before.rank(endpoint, qpn) != after.rank(endpoint, qpn))
}

/// False for connections outside jobs that share a port with ranks, like storage: only their queue
/// pair numbers can name them.
fn may_join(after: &RankIndex, connection: &ConnectionRow) -> bool {
    let is_named =
        |(endpoint, qpn): (Endpoint, Option<Qpn>)| qpn.is_some_and(|qpn| after.has_queue_pair(endpoint, qpn));
    connection.job.is_some() || connection.stack.is_some() || ends(connection).into_iter().any(is_named)
}

fn ends(connection: &ConnectionRow) -> [(Endpoint, Option<Qpn>); 2] {
    [(connection.src, connection.src_qp), (connection.dst, Some(connection.dest_qp))]
}

/// Updates the list of unassigned queue pairs.
fn unassign(profile: &mut Profile, before: &RankIndex, after: &RankIndex) {
    let mut unassigned: BTreeMap<(Endpoint, Qpn), UnassignedRow> = BTreeMap::new();
    for row in profile.unassigned.drain(..) {
        let Ok(endpoint) = row.endpoint.parse::<Endpoint>() else { continue };
        let qpn = Qpn::new(row.qpn);
        let rank = after.rank(endpoint, Some(qpn));
        if rank.is_none() || rank == before.rank(endpoint, Some(qpn)) {
            unassigned.insert((endpoint, qpn), row);
        }
    }
    let is_mpi =
        |row: &&ConnectionRow| row.kind == TrafficKind::Data && (row.stack.is_some() || row.one_sided.is_some());
    for connection in profile.connections.iter().filter(is_mpi) {
        for (endpoint, qpn) in ends(connection) {
            let Some(qpn) = qpn else { continue };
            if before.rank(endpoint, Some(qpn)).is_some() && after.rank(endpoint, Some(qpn)).is_none() {
                unassigned.entry((endpoint, qpn)).or_insert_with(|| UnassignedRow {
                    job: connection.job,
                    endpoint: endpoint.to_string(),
                    qpn: qpn.value(),
                    reason: LEFT_OUT.to_owned(),
                });
            }
        }
    }
    profile.unassigned = unassigned.into_values().collect();
}

/// Rebuilds the table of jobs: the map may join jobs, split one, or name the first.
fn renew_jobs(profile: &mut Profile) {
    let mut jobs: BTreeMap<u32, JobRow> = BTreeMap::new();
    let mut stacks: BTreeMap<u32, BTreeMap<&str, u64>> = BTreeMap::new();
    for connection in &profile.connections {
        let Some(job) = connection.job else { continue };
        let (first_time_ns, last_time_ns) = (connection.first_time_ns, connection.last_time_ns);
        let row = jobs.entry(job).or_insert(JobRow { job, first_time_ns, last_time_ns, ..JobRow::default() });
        row.first_time_ns = row.first_time_ns.min(first_time_ns);
        row.last_time_ns = row.last_time_ns.max(last_time_ns);
        if let Some(stack) = &connection.stack {
            *stacks.entry(job).or_default().entry(stack).or_default() += connection.traffic.packets;
        }
    }
    for (job, stacks) in stacks {
        let busiest = stacks.into_iter().max_by_key(|(_, packets)| *packets);
        jobs.entry(job).and_modify(|row| row.stack = busiest.map_or_else(String::new, |(stack, _)| stack.to_owned()));
    }
    let ranks: BTreeSet<(u32, u32)> = profile.ranks.iter().map(|row| (row.job, row.rank)).collect();
    for (job, _) in ranks {
        jobs.entry(job).and_modify(|row| row.ranks += 1);
    }
    let has_several = jobs.len() > 1;
    for old in &profile.jobs {
        let keep = |row: &mut JobRow| {
            row.stack.clone_from(&old.stack);
            row.slurm_job_id.clone_from(&old.slurm_job_id);
            row.may_be_part = old.may_be_part && has_several;
            (row.lacks_common_clock, row.copy_delay_ns) = (old.lacks_common_clock, old.copy_delay_ns);
        };
        jobs.entry(old.job).and_modify(keep);
    }
    profile.jobs = jobs.into_values().collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::{PairCoverage, RetransmissionSums, Traffic};
    use std::path::Path;

    fn parsed(text: &str) -> Vec<RankRow> {
        parse(Path::new("map"), text).unwrap()
    }

    #[test]
    fn reads_ranks_with_and_without_queue_pairs() {
        let rows = parsed("rank,endpoint,qpn\n1,10.77.0.2,0x11\n0,17\n");
        let places: Vec<_> = rows.iter().map(place).collect();
        assert_eq!(places, [(1, 0, "17", None), (1, 1, "10.77.0.2", Some(17))]);
    }

    #[test]
    fn reads_what_ranks_writes() {
        let rows = parsed(
            "rank,endpoint,qpn,evidence,agreeing,disagreeing,job,inferred,reason\n\
             0,17,,envelope,9,0,1,no,\n\
             0,17,,communicator,0,0,2,yes,\"inferred, with \"\"a quote\"\"\"\n\
             ,18,99,,,,2,,\"no message, of any kind\"\n",
        );
        let places: Vec<_> = rows.iter().map(place).collect();
        assert_eq!(places, [(1, 0, "17", None), (2, 0, "17", None)], "two jobs at one endpoint are no conflict");
    }

    #[test]
    fn errors_name_the_line_and_the_expected_content() {
        for (text, line, what) in [
            ("", 1, "empty"),
            ("0,17\n", 1, "not a header"),
            ("rank,endpoint,job\n0,17,1\n", 1, "not a header"),
            ("rank,endpoint\nx,17\n", 2, "`x` is not a rank"),
            ("rank,endpoint\n0,node1\n", 2, "not an endpoint"),
            ("rank,endpoint\n0\n", 2, "fewer than two"),
            ("rank,endpoint\n0,17\n1,17\n", 3, "rank 0 already"),
            ("rank,endpoint,qpn\n0,17,0x1000000\n", 2, "queue pair"),
            ("rank,endpoint,qpn,job\n0,17,5,1\n0,17,5,2\n", 3, "rank 0 of job 1 already"),
            ("rank,endpoint,qpn,job\n0,17,,0\n", 2, "`0` is not a job"),
            ("rank,endpoint\n0,\"17\n", 2, "unclosed quote"),
        ] {
            let error = parse(Path::new("map.csv"), text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}");
            let message = error.to_string();
            assert!(message.contains("map.csv") && message.contains(what), "{message}");
            assert!(message.contains("expected"), "{message}");
        }
    }

    fn endpoint(text: &str) -> Endpoint {
        text.parse().unwrap()
    }

    fn connection(src: (&str, u32), dst: (&str, u32), job: Option<u32>) -> ConnectionRow {
        ConnectionRow {
            src: endpoint(src.0),
            dst: endpoint(dst.0),
            kind: TrafficKind::Data,
            service: 0,
            dest_qp: Qpn::new(dst.1),
            src_qp: Some(Qpn::new(src.1)),
            src_qp_evidence: None,
            first_time_ns: 5,
            last_time_ns: 6,
            traffic: Traffic { packets: 1, ..Traffic::default() },
            retransmissions: RetransmissionSums::default(),
            stack: job.map(|_| "a library".to_owned()),
            job,
            class: crate::model::ConnectionClass::default(),
            one_sided: None,
            coverage: PairCoverage::default(),
            sampled: None,
            paths: smallvec::SmallVec::default(),
            is_at_both_ports: None,
        }
    }

    fn inferred_rank(job: u32, rank: u32, endpoint: &str, qpn: Option<u32>) -> RankRow {
        let (endpoint, evidence) = (endpoint.to_owned(), "envelope".to_owned());
        RankRow { job, rank, endpoint, qpn, evidence, agreeing: 9, disagreeing: 1, inferred: rank == 1 }
    }

    /// Two jobs of two ranks on two nodes, and storage.
    fn profile() -> Profile {
        let job = |job| JobRow {
            job,
            stack: "a library".to_owned(),
            ranks: 2,
            first_time_ns: 5,
            last_time_ns: 6,
            slurm_job_id: None,
            may_be_part: false,
            lacks_common_clock: false,
            copy_delay_ns: None,
        };
        let mut profile = Profile {
            jobs: vec![job(1), job(2)],
            ranks: vec![
                inferred_rank(1, 0, "17", Some(10)),
                inferred_rank(1, 1, "18", Some(20)),
                inferred_rank(2, 0, "17", Some(11)),
                inferred_rank(2, 1, "18", Some(21)),
            ],
            ..Profile::default()
        };
        profile.connections.push(connection(("17", 10), ("18", 20), Some(1)));
        profile.connections.push(connection(("17", 11), ("18", 21), Some(2)));
        profile.connections.push(connection(("17", 11), ("18", 22), Some(2)));
        profile.connections.push(connection(("17", 90), ("18", 91), None));
        profile.unassigned.push(UnassignedRow {
            job: Some(2),
            endpoint: "18".to_owned(),
            qpn: 22,
            reason: "silent".to_owned(),
        });
        profile
    }

    #[test]
    fn an_unedited_map_changes_nothing() {
        let mut same = profile();
        let rows = parsed("rank,endpoint,qpn,job\n1,18,21,2\n0,17,11,2\n1,18,20,1\n0,17,10,1\n,18,22,2\n");
        apply(&mut same, &rows);
        assert_eq!(same, profile());
    }

    #[test]
    fn edited_rows_have_rankmap_evidence_and_others_keep_theirs() {
        let mut changed = profile();
        apply(&mut changed, &parsed("rank,endpoint,qpn,job\n0,17,10,1\n1,18,20,1\n0,17,11,2\n2,18,21,2\n1,18,22,2\n"));
        let rows: Vec<_> = changed
            .ranks
            .iter()
            .map(|row| {
                (row.job, row.rank, row.qpn, row.evidence.as_str(), [row.agreeing, row.disagreeing], row.inferred)
            })
            .collect();
        let expected = [
            (1, 0, Some(10), "envelope", [9, 1], false),
            (1, 1, Some(20), "envelope", [9, 1], true),
            (2, 0, Some(11), "envelope", [9, 1], false),
            (2, 1, Some(22), "rankmap", [0, 0], false),
            (2, 2, Some(21), "rankmap", [0, 0], false),
        ];
        assert_eq!(rows, expected);
        assert_eq!(changed.unassigned, [], "the map lists the queue pair");
        assert_eq!(changed.jobs.iter().map(|job| (job.job, job.ranks)).collect::<Vec<_>>(), [(1, 2), (2, 3)]);
        assert_eq!(changed.connections, profile().connections);
    }

    #[test]
    fn rows_against_messages_have_the_number_of_these_messages() {
        let mut changed = profile();
        apply(&mut changed, &parsed("rank,endpoint,qpn,job\n3,17,10,1\n2,18,20,1\n0,17,,2\n4,18,99,2\n"));
        let rows: Vec<_> = changed.ranks.iter().map(|row| (row.job, row.rank, row.disagreeing)).collect();
        // Rank 1 of job 1 is inferred, and queue pair 99 has no messages.
        assert_eq!(rows, [(1, 2, 0), (1, 3, 9), (2, 0, 0), (2, 4, 0)]);
        // Rows for a port against those of its queue pairs, and the other way round.
        let mut of_port = profile();
        apply(&mut of_port, &parsed("rank,endpoint,qpn,job\n5,17,,2\n"));
        assert_eq!(of_port.ranks.iter().map(|row| row.disagreeing).collect::<Vec<_>>(), [9]);
        let mut of_queue_pair = profile();
        of_queue_pair.ranks[0].qpn = None;
        apply(&mut of_queue_pair, &parsed("rank,endpoint,qpn,job\n5,17,77,1\n"));
        assert_eq!(of_queue_pair.ranks.iter().map(|row| row.disagreeing).collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn jobs_follow_from_ranks() {
        let mut joined = profile();
        // The queue pairs of job 2 belong to job 1 as ranks 2 and 3; the map omits an unassigned
        // one.
        apply(&mut joined, &parsed("rank,endpoint,qpn\n0,17,10\n1,18,20\n2,17,11\n3,18,21\n"));
        let jobs: Vec<_> = joined.connections.iter().map(|row| row.job).collect();
        assert_eq!(jobs, [Some(1), Some(1), Some(1), None], "storage belongs to no job");
        assert_eq!(joined.jobs.iter().map(|job| (job.job, job.ranks)).collect::<Vec<_>>(), [(1, 4)]);
        assert_eq!(joined.unassigned.len(), 1);
        // Rows that are missing from the map lose their ranks, and nothing else.
        let mut fewer = profile();
        apply(&mut fewer, &parsed("rank,endpoint,qpn,job\n0,17,10,1\n1,18,20,1\n0,17,11,2\n"));
        assert_eq!(fewer.connections, profile().connections);
        let reasons: Vec<_> = fewer.unassigned.iter().map(|row| (row.qpn, row.reason.as_str())).collect();
        assert_eq!(reasons, [(21, LEFT_OUT), (22, "silent")]);
    }

    #[test]
    fn whole_ports_may_serve_two_jobs() {
        let mut profile = profile();
        apply(&mut profile, &parsed("rank,endpoint,qpn,job\n0,17,,1\n1,18,,1\n0,17,,2\n"));
        let index = RankIndex::of(&profile);
        let ranks = |at: usize| index.connection(&profile.connections[at]);
        // The other end has a rank in job 1 only.
        assert_eq!((ranks(0).job, ranks(0).src, ranks(0).dst), (Some(1), Some(0), Some(1)));
        assert_eq!(ranks(3).job, None);
    }

    #[test]
    fn a_rank_beyond_the_limit_is_rejected() {
        let highest = MAX_RANK - 1;
        assert_eq!(parsed(&format!("rank,endpoint\n{highest},17\n"))[0].rank, highest);
        let error = parse(Path::new("map"), &format!("rank,endpoint\n{MAX_RANK},17\n")).unwrap_err();
        assert!(error.line == 2 && error.to_string().contains("`16777216` is not a rank"), "{error}");
    }
}
