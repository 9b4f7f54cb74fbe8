//! What the wire showed, held against what a trace of the application says.
//!
//! 1. [`otf2`] reads an OTF2 archive by `otf2-print`, [`table`] a plain table; both come to a [`Trace`], sums by sender, receiver, communicator and
//!    tag. [`cubex`] reads a profile, which has sums by rank alone.
//! 2. [`Placement`] says which ranks share a node: their messages never reach the wire.
//! 3. `contexts` finds which context id on the wire is which communicator, and which is the tracer's own.
//! 4. [`crosscheck`] compares messages and bytes of each pair of ranks, and says what explains a difference; [`crosscheck_sums`] does so by rank.
//!    Collective operations stand apart: what the trace promises beside what the wire carried.
//!
//! Nothing here holds a trace or a capture in memory: both sides are sums by stream when they meet.

mod archive;
mod clocks;
mod collectives;
mod compare;
mod contexts;
pub mod cubex;
mod eztrace;
mod jobs;
mod message_sums;
mod moments;
mod one_sided;
pub mod otf2;
mod placement;
mod singles;
mod sums;
pub mod table;
mod trace;
mod unidentified;
mod verdict;
mod wire;

pub use clocks::{Clocks, Delays, RankClock};
pub use collectives::{CollectiveCalls, CollectivePair};
pub use compare::{Difference, Pair};
pub use message_sums::Sums;
pub use one_sided::{OneSided, OneSidedResult};
pub use otf2::TraceError;
pub use placement::Placement;
pub use singles::Singles;
pub use sums::{Direction, RankSums};
pub use trace::{Trace, Tracer};
pub use unidentified::Unidentified;
pub use verdict::{Cause, Outcome, Verdict};

use crate::model::Profile;
use contexts::Contexts;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use sums::Ranks;
use unidentified::Accounts;
use wire::Wire;

/// What the comparison came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crosscheck {
    /// The trace, as the user named it.
    pub trace: String,
    /// What wrote it.
    pub tracer: String,
    /// Events in it; of a table, messages.
    pub events: u64,
    /// The job of the capture that it is compared with.
    pub job: u32,
    /// Jobs of the capture.
    pub jobs: usize,
    /// What told which ranks share a node.
    pub placement: &'static str,
    /// All traffic between known ranks.
    pub traffic: Traffic,
    /// Node of each rank, where it is known.
    pub nodes: BTreeMap<u32, String>,
    /// Ranks of the trace that no queue pair on the wire is known to be.
    pub not_identified: BTreeSet<u32>,
    /// Differences up to this percentage of the trace's messages and bytes do not matter.
    pub tolerance_percent: f64,
    /// Pairs of ranks, point-to-point, sorted by sender and receiver.
    pub pairs: Vec<Pair>,
    /// Ranks, point-to-point, where a profile of sums stands in for the trace; there are no pairs then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankSums>,
    /// Messages on the wire between ranks of which at least one is not identified, sorted by sender
    /// and receiver.
    pub unidentified: Vec<Unidentified>,
    /// The clocks of the trace against that of the capture.
    pub clocks: Clocks,
    /// Collective operations called.
    pub collective_calls: Vec<CollectiveCalls>,
    /// Collective operations by pair of ranks on different nodes, sorted by operation, sender and receiver.
    pub collectives: Vec<CollectivePair>,
    /// One-sided operations in the trace.
    pub one_sided: Vec<OneSided>,
    /// Things the reader of the result must know, one sentence each.
    pub notes: Vec<String>,
}

/// All that was captured between ranks that are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// MPI bytes, of point-to-point messages and collective operations.
    pub mpi_bytes: u64,
    /// InfiniBand payload.
    pub payload_bytes: u64,
    /// LRH to VCRC, or whole Ethernet frames.
    pub wire_bytes: u64,
    /// Those of packets that were sent again.
    pub retransmitted_wire_bytes: u64,
}

/// A comparison that would say nothing.
#[derive(Debug, thiserror::Error)]
pub enum CrosscheckError {
    /// The profile has nothing to compare.
    #[error(
        "the profile has no table of messages by communicator and tag, because an older program wrote it: analyze the captures again, or name them \
         instead of the profile"
    )]
    NoStreams,
    /// MPI was not looked for.
    #[error(
        "MPI messages were not looked for: the profile was written by `analyze --no-mpi`; analyse the captures again without it"
    )]
    NoMpi,
    /// No rank is known.
    #[error(
        "no rank is known on the wire, so nothing can be compared: no MPI library was recognised; give --rankmap if the capture does not show ranks"
    )]
    NoRanks,
    /// Nothing says which job was traced.
    #[error(
        "jobs {jobs} of the capture have as much in common with the trace: name the one that was traced with --job (`ibscope ranks` shows the ranks of each)"
    )]
    SeveralJobs {
        /// The jobs.
        jobs: String,
    },
    /// The trace has no messages, and the wire has.
    #[error(
        "the trace holds no point-to-point message, and the wire shows {messages} of the program ({bytes} bytes): they were not recorded. {} Collective operations \
         alone can be compared with --collectives-only", tracer.how_to_record_messages()
    )]
    NoMessages {
        /// What wrote the trace.
        tracer: Tracer,
        /// On the wire.
        messages: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// The two have nothing in common.
    #[error(
        "the trace and the capture have no message in common: of {in_trace} messages between ranks on different nodes in the trace and {on_wire} on the wire \
         no pair of ranks has both. Are they of the same run, and are the ranks right (`ibscope ranks`, --rankmap)?"
    )]
    NothingInCommon {
        /// In the trace.
        in_trace: u64,
        /// On the wire.
        on_wire: u64,
    },
}

/// How to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Differences up to this percentage of the trace's messages and bytes do not matter.
    pub tolerance_percent: f64,
    /// Leave point-to-point messages alone.
    pub collectives_only: bool,
}

/// Compares a trace with a profile. `singles` are the messages on the wire, where captures were
/// read. Without a placement, the trace or the profile says where the ranks are.
pub fn crosscheck(
    trace: &Trace,
    profile: &Profile,
    singles: &Singles,
    placement: Option<&Placement>,
    options: &Options,
) -> Result<Crosscheck, CrosscheckError> {
    refuse_profile(profile)?;
    jobs::compare(profile, |job| with_job(trace, profile, singles, placement, options, job))
}

fn with_job(
    trace: &Trace,
    profile: &Profile,
    singles: &Singles,
    placement: Option<&Placement>,
    options: &Options,
    job: u32,
) -> Result<Crosscheck, CrosscheckError> {
    let wire = Wire::of(profile, job).ok_or(CrosscheckError::NoStreams)?;
    let placement = &*placement.map_or_else(|| Cow::Owned(Placement::of(trace, profile, job)), Cow::Borrowed);
    let contexts = Contexts::find(trace, &wire);
    let mut notes = trace.notes.clone();
    let jobs = jobs::of(profile).len();
    notes.extend(remark_on_jobs(jobs, job));
    let clocks = clocks::fit(trace, &wire, singles.of_job(job), &contexts);
    let outside = clocks::outside(trace, &clocks, captured_ns(profile));
    let known = compare::Known { wire: &wire, contexts: &contexts, placement, outside: &outside };
    let mut accounts = Accounts::of(&wire, contexts.tracer);
    let mut pairs = compare::pairs(trace, &known, &mut accounts, options.tolerance_percent);
    if options.collectives_only {
        pairs.clear();
        accounts = Accounts::default();
    } else {
        refuse(trace, &pairs, placement)?;
    }
    let unidentified = accounts.rows();
    notes.extend(remarks_on_ranks(trace, &wire, &unidentified, placement));
    notes.extend(remarks(trace, &pairs, placement, &placement::of_profile(profile, job)));
    let (collectives, is_cut) = collectives::pairs(trace, &wire, &contexts, placement);
    if is_cut {
        notes.push(
            "promises of collective operations on communicators of more than 1024 ranks are not told by pair"
                .to_owned(),
        );
    }
    let one_sided = one_sided::pairs(trace, singles.of_job(job), placement);
    let head = told(trace, &wire, placement, options, job);
    Ok(Crosscheck { jobs, pairs, unidentified, clocks, collectives, one_sided, notes, ..head })
}

/// Compares a profile of sums with a profile of the wire, rank by rank.
pub fn crosscheck_sums(
    sums: &cubex::CubeProfile,
    profile: &Profile,
    placement: Option<&Placement>,
    options: &Options,
) -> Result<Crosscheck, CrosscheckError> {
    refuse_profile(profile)?;
    jobs::compare(profile, |job| sums_with_job(sums, profile, placement, options, job))
}

fn sums_with_job(
    sums: &cubex::CubeProfile,
    profile: &Profile,
    placement: Option<&Placement>,
    options: &Options,
    job: u32,
) -> Result<Crosscheck, CrosscheckError> {
    let wire = Wire::of(profile, job).ok_or(CrosscheckError::NoStreams)?;
    let trace = &sums.trace;
    let placement = &*placement.map_or_else(|| Cow::Owned(Placement::of(trace, profile, job)), Cow::Borrowed);
    let compared = sums::ranks(sums, &wire, placement, options.tolerance_percent);
    let Ranks { rows: mut ranks, tracer, mut unidentified } = compared;
    if options.collectives_only {
        ranks.clear();
        unidentified.clear();
    }
    let has_any = |row: &RankSums| row.trace_bytes > 0 || row.uncertain_bytes > 0 || row.calls != Some(0);
    let sent = || ranks.iter().filter(|row| row.direction == Direction::Sent);
    let on_wire = saturating_sum(sent().map(|row| row.wire.messages - row.tracer.messages));
    if on_wire > 0 && !ranks.iter().any(has_any) {
        let bytes = saturating_sum(sent().map(|row| row.wire.bytes - row.tracer.bytes));
        return Err(CrosscheckError::NoMessages { tracer: trace.tracer.clone(), messages: on_wire, bytes });
    }
    let in_trace = saturating_sum(sent().filter_map(|row| row.calls));
    let is_found = on_wire > 0 || ranks.iter().any(|row| row.unidentified.bytes > 0);
    if in_trace > 0 && !is_found && placement.count() > 1 {
        return Err(CrosscheckError::NothingInCommon { in_trace, on_wire });
    }
    let mut notes = trace.notes.clone();
    let jobs = jobs::of(profile).len();
    notes.extend(remark_on_jobs(jobs, job));
    notes.extend(remarks_on_ranks(trace, &wire, &unidentified, placement));
    let (collectives, _) = collectives::pairs(trace, &wire, &Contexts::of_tracer(tracer), placement);
    Ok(Crosscheck { jobs, ranks, unidentified, collectives, notes, ..told(trace, &wire, placement, options, job) })
}

/// What both ways of comparing tell of trace and wire; nothing is compared yet.
fn told(trace: &Trace, wire: &Wire, placement: &Placement, options: &Options, job: u32) -> Crosscheck {
    Crosscheck {
        trace: trace.name.clone(),
        tracer: trace.tracer.name().to_owned(),
        events: trace.events,
        job,
        jobs: 1,
        placement: placement.source,
        traffic: wire.total(),
        nodes: nodes(trace, placement),
        not_identified: trace.all_ranks().into_iter().filter(|rank| !wire.is_identified(*rank)).collect(),
        tolerance_percent: options.tolerance_percent,
        pairs: Vec::new(),
        ranks: Vec::new(),
        unidentified: Vec::new(),
        clocks: Clocks::default(),
        collective_calls: collectives::calls(trace),
        collectives: Vec::new(),
        one_sided: Vec::new(),
        notes: Vec::new(),
    }
}

/// Refuses a profile that shows no ranks.
fn refuse_profile(profile: &Profile) -> Result<(), CrosscheckError> {
    if !profile.mpi_read {
        return Err(CrosscheckError::NoMpi);
    }
    if profile.ranks.is_empty() {
        return Err(CrosscheckError::NoRanks);
    }
    Ok(())
}

/// Node of each rank of the trace, where it is known.
fn nodes(trace: &Trace, placement: &Placement) -> BTreeMap<u32, String> {
    let node = |rank: u32| Some((rank, placement.node(rank)?.to_owned()));
    trace.all_ranks().into_iter().filter_map(node).collect()
}

/// Time of the first and last packet that was captured.
fn captured_ns(profile: &Profile) -> (i64, i64) {
    let times = profile.connections.iter().map(|row| (row.first_time_ns, row.last_time_ns));
    times.fold((i64::MAX, i64::MIN), |all, row| (all.0.min(row.0), all.1.max(row.1)))
}

/// Nobody vouches for the numbers of a trace or a profile.
fn saturating_sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// Refuses to call everything different.
fn refuse(trace: &Trace, pairs: &[Pair], placement: &Placement) -> Result<(), CrosscheckError> {
    let own = |pair: &Pair| Sums {
        messages: pair.wire.messages.saturating_sub(pair.tracer.messages),
        bytes: pair.wire.bytes.saturating_sub(pair.tracer.bytes),
    };
    let mut on_wire = Sums::default();
    pairs.iter().for_each(|pair| on_wire += own(pair));
    if on_wire.messages > 0 && trace.sends.total().messages == 0 {
        let Sums { messages, bytes } = on_wire;
        return Err(CrosscheckError::NoMessages { tracer: trace.tracer.clone(), messages, bytes });
    }
    let between = || pairs.iter().filter(|pair| !placement.is_same_node(pair.src, pair.dst));
    let in_trace = saturating_sum(between().map(|pair| pair.trace.messages));
    let is_found = |pair: &Pair| own(pair).messages > 0 || pair.unidentified.messages > 0;
    let has_both = between().any(|pair| pair.trace.messages > 0 && is_found(pair));
    if in_trace > 0 && !has_both {
        return Err(CrosscheckError::NothingInCommon { in_trace, on_wire: on_wire.messages });
    }
    Ok(())
}

/// What is worth a look of the ranks.
fn remarks_on_ranks(trace: &Trace, wire: &Wire, unidentified: &[Unidentified], placement: &Placement) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(remark_on_unidentified(unidentified));
    let collectives = wire.unidentified_collectives;
    if collectives.messages > 0 {
        notes.push(format!(
            "{} messages ({} bytes) of collective operations have a sender or receiver whose rank is not identified, and do not count here",
            collectives.messages, collectives.bytes
        ));
    }
    let unplaced = trace.all_ranks().into_iter().filter(|rank| placement.node(*rank).is_none()).count();
    if unplaced > 0 {
        notes.push(format!("of {unplaced} ranks it is not known on which node they run: give --placement"));
    }
    notes
}

/// Which of several jobs was compared.
fn remark_on_jobs(jobs: usize, job: u32) -> Option<String> {
    (jobs > 1).then(|| {
        format!("the capture holds {jobs} jobs; job {job} has most in common with the trace and is compared, --job names another")
    })
}

/// What eztrace must have sent itself, where messages differ that may be eztrace's.
fn remark_on_eztrace(trace: &Trace, pair: &Pair) -> Option<String> {
    let [kinds, contents] = trace.own.get(&pair.src).filter(|_| pair.dst == 0)?;
    let is_theirs = |tag: Option<i32>| tag.is_some_and(|tag| eztrace::TAGS.contains(&tag));
    pair.differences.iter().any(|difference| is_theirs(difference.tag)).then(|| {
        let mut own = *kinds;
        own += *contents;
        format!(
            "eztrace itself sends from rank {} to rank 0 {} messages ({} bytes) of tags 17 and 18, as its definitions say; on the wire are others",
            pair.src, own.messages, own.bytes
        )
    })
}

/// How many messages are on queue pairs whose rank is not identified, what they explain, and what
/// to do.
fn remark_on_unidentified(unidentified: &[Unidentified]) -> Option<String> {
    let (mut all, mut explaining) = (Sums::default(), Sums::default());
    for row in unidentified {
        all += row.wire;
        explaining += row.explaining;
    }
    let rest = all.less(explaining);
    let told = |sums: Sums| format!("{} messages ({} bytes)", sums.messages, sums.bytes);
    let use_of_them = match (explaining == Sums::default(), rest == Sums::default()) {
        (true, _) => "nothing in the trace is missing that they may be".to_owned(),
        (false, true) => "they explain messages that are missing between identified ranks".to_owned(),
        (false, false) => format!(
            "{} of them explain messages that are missing between identified ranks, {} explain nothing",
            told(explaining),
            told(rest)
        ),
    };
    (all.messages > 0).then(|| {
        format!(
            "{} on the wire have a sender or receiver whose rank is not identified: {use_of_them}; `ibscope ranks --format csv` lists the queue pairs \
             without a rank, and takes their ranks back with --rankmap",
            told(all)
        )
    })
}

/// What is worth a look beside the pairs.
fn remarks(trace: &Trace, pairs: &[Pair], placement: &Placement, wire_nodes: &BTreeMap<u32, String>) -> Vec<String> {
    let mut notes = Vec::new();
    let unreceived = trace.sends.total().messages.saturating_sub(trace.receives.total().messages);
    if trace.receives.total().messages > 0 && unreceived > 0 {
        notes.push(format!("{unreceived} messages of the trace were sent and, as it says, never received"));
    }
    let together: Vec<&Pair> =
        pairs.iter().filter(|pair| pair.wire.messages > 0 && placement.is_same_node(pair.src, pair.dst)).collect();
    if let Some(first) = together.first() {
        notes.push(format!(
            "{} pairs of ranks of one node, as {} says, have messages on the wire, ranks {} and {} among them: is the placement right?",
            together.len(),
            placement.source,
            first.src,
            first.dst
        ));
    }
    let differs = pairs.iter().find(|pair| {
        let [src, dst] = [pair.src, pair.dst].map(|rank| wire_nodes.get(&rank));
        src.is_some() && src == dst && pair.src != pair.dst && !placement.is_same_node(pair.src, pair.dst)
    });
    if let Some(pair) = differs {
        notes.push(format!(
            "ranks {} and {} are at one endpoint of the capture and on two nodes as {} says",
            pair.src, pair.dst, placement.source
        ));
    }
    let bad = pairs.iter().filter(|pair| pair.verdict == Verdict::Unexplained).count();
    if bad > 1 && bad * 10 >= pairs.len() * 9 {
        notes.push("nearly all pairs differ: are the trace and the capture of the same run, and are the ranks right (`ibscope ranks`)?".to_owned());
    }
    notes.extend(pairs.iter().filter_map(|pair| remark_on_eztrace(trace, pair)));
    let missed = pairs.iter().filter(|pair| pair.causes.contains(&Cause::NotCaptured)).count();
    if missed > 0 {
        notes.push(format!(
            "of {missed} pairs of ranks on different nodes nothing at all was captured, as their ports were not"
        ));
    }
    notes
}
