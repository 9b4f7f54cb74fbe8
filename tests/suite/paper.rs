//! The experiment of `docs/paper.md`: NAS BT on nine nodes and FT on eight, captured at three sinks by
//! the hooks of Slurm. The program's own log (`truth.c`), Score-P's trace and the wire must agree to
//! the byte.

use crate::crosscheck::{read, with_captures};
use crate::recorded::profile;
use ibscope::crosscheck::{Cause, Crosscheck, CrosscheckVerdict, Tracer};
use ibscope::pipeline::{AnalysisOptions, messages};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Messages and bytes by sender and receiver.
type PairSums = BTreeMap<(u32, u32), (u64, u64)>;

struct PaperRun {
    folder: PathBuf,
    ranks: u32,
}

const BT: (&str, u32) = ("bt.S-9x1", 9);
const FT: (&str, u32) = ("ft.S-8x1", 8);

impl PaperRun {
    fn open((name, ranks): (&str, u32)) -> Self {
        Self { folder: Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/paper").join(name), ranks }
    }

    fn sinks(&self) -> Vec<PathBuf> {
        (1..=3).map(|sink| self.folder.join(format!("sink{sink}.pcap.zst"))).collect()
    }

    fn rows(&self, file: &str) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(self.folder.join(file)).expect("csv");
        text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
    }

    /// The sends that the program logged.
    fn truth(&self) -> PairSums {
        let number = |field: &String| field.parse::<u64>().expect("number");
        let sums =
            |row: Vec<String>| ((number(&row[0]) as u32, number(&row[1]) as u32), (number(&row[2]), number(&row[3])));
        self.rows("truth.csv").into_iter().map(sums).collect()
    }

    /// Bytes that each rank passed to a collective operation, over all calls.
    fn collective_bytes(&self, call: &str) -> BTreeMap<u32, u64> {
        let rows = self.rows("collectives.csv").into_iter().filter(|row| row[1] == call);
        rows.map(|row| (row[0].parse().expect("rank"), row[3].parse().expect("bytes"))).collect()
    }

    fn crosscheck(&self) -> Crosscheck {
        let trace = read(&self.folder.join("trace/traces.otf2"));
        assert!(matches!(trace.tracer, Tracer::ScoreP(_)));
        with_captures(&trace, &self.sinks())
    }
}

fn sums_of(result: &Crosscheck, of: impl Fn(&ibscope::crosscheck::PairComparison) -> (u64, u64)) -> PairSums {
    result.pairs.iter().map(|pair| ((pair.src, pair.dst), of(pair))).filter(|(_, sums)| sums.0 > 0).collect()
}

/// Every packet is observed at the ports of both of its nodes: in two captures, or twice in one.
#[test]
fn the_sinks_have_every_packet_of_the_job_twice() {
    for run in [BT, FT].map(PaperRun::open) {
        let profile = profile(&run.sinks());
        let coverage = &profile.coverage;
        assert_eq!((coverage.failed(), coverage.records), (0, coverage.infiniband), "{}", run.folder.display());
        let packets: u64 = profile.connections.iter().map(|connection| connection.traffic.packets).sum();
        assert_eq!(coverage.infiniband, 2 * packets, "{}", run.folder.display());
    }
}

#[test]
fn bt_differs_from_the_trace_of_score_p_by_0_bytes() {
    let run = PaperRun::open(BT);
    let truth = run.truth();
    let result = run.crosscheck();
    assert_eq!((result.nodes.len() as u32, result.not_identified.len()), (run.ranks, 0));
    assert_eq!(sums_of(&result, |pair| (pair.trace.messages, pair.trace.bytes)), truth, "the trace");
    let without_tracer = |pair: &ibscope::crosscheck::PairComparison| {
        (pair.wire.messages - pair.tracer.messages, pair.wire.bytes - pair.tracer.bytes)
    };
    assert_eq!(sums_of(&result, without_tracer), truth, "the wire");
    for pair in &result.pairs {
        assert_ne!(pair.verdict, CrosscheckVerdict::Unexplained, "{pair:?}");
        assert!(pair.differences.is_empty() && pair.excess() == (0, 0), "{pair:?}");
        assert!(pair.causes.iter().all(|cause| matches!(cause, Cause::Tracer | Cause::Retransmission)), "{pair:?}");
    }
}

/// The same without the cross-check: the messages on the wire, except those on the communicator of
/// Score-P, which no call of the program names.
#[test]
fn bt_on_the_wire_equals_the_log_of_the_program() {
    let run = PaperRun::open(BT);
    let mut by_context: BTreeMap<u32, PairSums> = BTreeMap::new();
    for row in messages(&run.sinks(), &AnalysisOptions::default(), false, &|_| {}).expect("messages") {
        let row = row.expect("row");
        let (Some(identity), Some(src), Some(dst)) = (row.identity(), row.src_rank, row.dst_rank) else { continue };
        if !identity.collective {
            let sums = by_context.entry(identity.context).or_default().entry((src, dst)).or_default();
            *sums = (sums.0 + 1, sums.1 + row.mpi_bytes().expect("length"));
        }
    }
    // Score-P duplicates MPI_COMM_WORLD first: its context is the first after those of Open MPI.
    let own = by_context.remove(&SCORE_P_CONTEXT).expect("messages of Score-P");
    assert!(!own.is_empty());
    let mut program = PairSums::new();
    for (pair, sums) in by_context.into_values().flatten() {
        let sum = program.entry(pair).or_default();
        *sum = (sum.0 + sums.0, sum.1 + sums.1);
    }
    assert_eq!(program, run.truth());
}

/// Context id of Score-P's communicator under Open MPI 4.1.
const SCORE_P_CONTEXT: u32 = 3;

/// FT sends by collective operations only. Each rank passes the same number of bytes to
/// `MPI_Alltoall` for each rank, and sends all but its own share.
#[test]
fn each_pair_of_ft_exchanges_its_share_of_every_alltoall() {
    let run = PaperRun::open(FT);
    assert_eq!(run.truth(), PairSums::new(), "FT calls no send");
    let result = run.crosscheck();
    let own: Vec<_> = result.pairs.iter().map(|pair| (pair.wire.messages, pair.tracer.messages)).collect();
    assert!(own.iter().all(|(wire, tracer)| wire == tracer), "{own:?}");
    let passed = run.collective_bytes("alltoall");
    let ranks: BTreeSet<u32> = (0..run.ranks).collect();
    assert_eq!(passed.keys().copied().collect::<BTreeSet<u32>>(), ranks);
    let mut found = 0;
    for pair in result.collectives.iter().filter(|pair| pair.operation == "alltoall") {
        let share = passed[&pair.src] / u64::from(run.ranks);
        let wire = pair.wire_bytes - pair.tracer.bytes;
        assert_eq!((wire, pair.expected_bytes), (share, share), "{pair:?}");
        found += 1;
    }
    assert_eq!(found, run.ranks * (run.ranks - 1));
}
