//! Hand-made profiles that the tests of several renderings share.

use crate::model::profile::{
    ConnectionRow, CoverageState, JobRow, PairCoverage, RankRow, RetransmissionSums, TimelineRow, Traffic,
    UnassignedRow,
};
use crate::model::{MessageRow, Profile, RawMessage, TrafficKind, Verb};
use ibscope_parsers::mpi::{Identity, Protocol};
use ibscope_parsers::{Endpoint, Lid, Qpn};

/// Traffic in proportion to `unit`.
pub(crate) fn traffic(unit: u64) -> Traffic {
    Traffic {
        packets: 10 * unit,
        wire_bytes: 4000 * unit,
        payload_bytes: 3000 * unit,
        messages: 5 * unit,
        p2p_messages: 2 * unit,
        p2p_mpi_bytes: 2000 * unit,
        collective_messages: unit,
        collective_mpi_bytes: 100 * unit,
    }
}

/// A connection of a job between two queue pairs, each given as (LID, QPN). Without a job, it
/// carries no MPI traffic.
pub(crate) fn connection(job: Option<u32>, src: (u16, u32), dst: (u16, u32), unit: u64) -> ConnectionRow {
    let whole = traffic(unit);
    let transport = Traffic {
        packets: whole.packets,
        wire_bytes: whole.wire_bytes,
        payload_bytes: whole.payload_bytes,
        messages: whole.messages,
        ..Traffic::default()
    };
    ConnectionRow {
        src: Endpoint::from_lid(Lid(src.0)),
        dst: Endpoint::from_lid(Lid(dst.0)),
        kind: TrafficKind::Data,
        service: 0,
        dest_qp: Qpn::new(dst.1),
        src_qp: Some(Qpn::new(src.1)),
        src_qp_evidence: None,
        first_time_ns: 0,
        last_time_ns: 1_000_000,
        traffic: if job.is_some() { whole } else { transport },
        retransmissions: RetransmissionSums::default(),
        stack: job.map(|_| "Open MPI UCX rc_verbs".to_owned()),
        job,
        class: crate::model::ConnectionClass::default(),
        one_sided: None,
        coverage: PairCoverage::default(),
        sampled: None,
        paths: smallvec::SmallVec::default(),
        is_at_both_ports: Some(true),
    }
}

/// A rank of a job at a queue pair.
pub(crate) fn rank(job: u32, rank: u32, endpoint: u16, qpn: Option<u32>) -> RankRow {
    let (endpoint, evidence) = (Lid(endpoint), "envelope".to_owned());
    let endpoint = Endpoint::from_lid(endpoint).to_string();
    RankRow { job, rank, endpoint, qpn, evidence, agreeing: 4, disagreeing: 0, inferred: false }
}

/// A job with its number of ranks.
pub(crate) fn job(job: u32, ranks: u32, slurm_job_id: Option<&str>) -> JobRow {
    let slurm_job_id = slurm_job_id.map(str::to_owned);
    let stack = "Open MPI UCX rc_verbs".to_owned();
    JobRow { job, stack, ranks, last_time_ns: 1_000_000, slurm_job_id, ..JobRow::default() }
}

/// A complete message without data of job 1 between two world ranks, sender and receiver, in one
/// packet over connection 0.
pub(crate) fn message(identity: Identity, ranks: (Option<u32>, Option<u32>), times_ns: (i64, i64)) -> MessageRow {
    MessageRow {
        connection: 0,
        job: Some(1),
        src_rank: ranks.0,
        dst_rank: ranks.1,
        mpi: Some((identity, Protocol::Eager)),
        raw: RawMessage {
            connection: 0,
            psn: 0,
            mpi: None,
            transfer_verb: Verb::Send,
            length_bytes: Some(0),
            wire_bytes: 0,
            packets: 1,
            times_ns,
            complete: true,
            receive: None,
        },
    }
}

/// Two jobs of two ranks each on LIDs 9 and 10. The capture missed packets from LID 10 to LID 9 of
/// job 2. One queue pair of job 2 has no rank. Storage on LID 11 belongs to no job.
pub(crate) fn two_jobs() -> Profile {
    let lost = PairCoverage { state: CoverageState::Incomplete, missing_packets: 3, missing_messages: 1 };
    let unknown = PairCoverage { state: CoverageState::Unknown, ..PairCoverage::default() };
    let mut profile = Profile {
        jobs: vec![job(1, 2, None), job(2, 2, Some("4711"))],
        ranks: vec![
            rank(1, 0, 9, Some(10)),
            rank(1, 1, 10, Some(9)),
            rank(2, 0, 9, Some(20)),
            rank(2, 1, 10, Some(19)),
        ],
        unassigned: vec![UnassignedRow {
            job: Some(2),
            endpoint: "10".to_owned(),
            qpn: 77,
            reason: "no message names it, whatever the communicator".to_owned(),
        }],
        connections: vec![
            connection(Some(1), (9, 10), (10, 9), 1),
            connection(Some(2), (9, 20), (10, 19), 2),
            ConnectionRow { coverage: lost, ..connection(Some(2), (10, 19), (9, 20), 3) },
            connection(Some(2), (10, 77), (9, 20), 4),
            ConnectionRow { coverage: unknown, ..connection(None, (9, 90), (11, 91), 5) },
        ],
        bin_ns: 1_000_000,
        mpi_read: true,
        ..Profile::default()
    };
    let bin = |(connection, row): (u32, &ConnectionRow)| TimelineRow {
        time_ns: 0,
        connection,
        traffic: row.traffic,
        ..TimelineRow::default()
    };
    profile.timeline = (0..).zip(&profile.connections).map(bin).collect();
    profile
}
