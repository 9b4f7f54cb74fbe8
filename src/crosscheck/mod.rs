//! Compares the messages on the wire with a trace of the application.
//!
//! 1. [`otf2`] reads an OTF2 archive with `otf2-print`, [`table`] a plain table. Both produce an
//!    [`AppTrace`]: sums by sender, receiver, communicator and tag. [`cubex`] reads a profile,
//!    which has sums by rank only.
//! 2. [`Placement`] identifies ranks that share a node, whose messages never reach the wire.
//! 3. `contexts` maps context ids to communicators, and finds the tracer's own context.
//! 4. [`crosscheck`] compares the messages and bytes of each pair of ranks and explains
//!    differences; [`crosscheck_sums`] does so by rank. Collective operations are listed without a
//!    verdict: the bytes expected from the trace, and the traffic on the wire.
//!
//! Neither a trace nor a capture is held in memory: both sides are sums by stream.

mod aligned;
mod archive;
mod clocks;
mod collectives;
mod compare;
mod contexts;
pub mod cubex;
mod edit_script;
mod eztrace;
mod jobs;
mod message_sums;
mod message_times;
mod one_sided;
mod operations;
pub mod otf2;
mod placement;
mod single_messages;
mod sums;
pub mod table;
mod trace;
mod trace_calls;
mod unidentified;
mod verdict;
mod wire;
mod wire_operation;

pub use clocks::{Clocks, Delays, RankClock};
pub use collectives::{CollectiveCalls, CollectivePair};
pub use compare::{Difference, PairComparison};
pub use message_sums::MessageSums;
pub use one_sided::{OneSidedPair, OneSidedResult};
pub use operations::{OperationComparison, OperationResult, OperationsComparison};
pub use otf2::TraceError;
pub use placement::Placement;
pub use single_messages::SingleMessages;
pub use sums::{RankDirection, RankSums};
pub use trace::{AppTrace, Tracer};
pub use trace_calls::TraceCalls;
pub use unidentified::UnidentifiedMessages;
pub use verdict::{Cause, CrosscheckOutcome, CrosscheckVerdict};
pub use wire_operation::WireOperation;

use crate::model::{Profile, count_either, count_of};
use contexts::Contexts;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use sums::RankComparison;
use unidentified::Accounts;
use wire::WireMessages;

/// The result of a cross-check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crosscheck {
    /// The trace, as the user named it.
    pub trace: String,
    /// Name of the tracer.
    pub tracer: String,
    /// Number of events in the trace; number of messages for a table.
    pub events: u64,
    /// The job of the capture that the trace is compared with.
    pub job: u32,
    /// Number of jobs in the capture.
    pub jobs: usize,
    /// Source of the placement of ranks on nodes.
    pub placement: &'static str,
    /// All traffic between identified ranks.
    pub traffic: RankTraffic,
    /// Node of each rank, if it is known.
    pub nodes: BTreeMap<u32, String>,
    /// Ranks of the trace without an identified queue pair on the wire.
    pub not_identified: BTreeSet<u32>,
    /// Differences up to this percentage of the trace's messages and bytes are tolerated.
    pub tolerance_percent: f64,
    /// Point-to-point messages by pair of ranks, sorted by sender and receiver.
    pub pairs: Vec<PairComparison>,
    /// Point-to-point bytes by rank, if a profile of sums is compared instead of a trace; `pairs`
    /// is empty then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankSums>,
    /// Messages on the wire with an unidentified sender or receiver, sorted by sender and receiver.
    pub unidentified: Vec<UnidentifiedMessages>,
    /// The clocks of the trace, relative to the capture's clock.
    pub clocks: Clocks,
    /// Calls of collective operations.
    pub collective_calls: Vec<CollectiveCalls>,
    /// Collective operations by pair of ranks on different nodes, sorted by operation, sender and
    /// receiver.
    pub collectives: Vec<CollectivePair>,
    /// Collective operations, one by one; `None` if a profile is compared, or if the operations on
    /// the wire are unknown.
    pub operations: Option<OperationsComparison>,
    /// One-sided operations in the trace.
    pub one_sided: Vec<OneSidedPair>,
    /// Notes for the reader of the result, one sentence each.
    pub notes: Vec<String>,
}

/// All captured traffic between identified ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RankTraffic {
    /// MPI bytes of point-to-point messages and collective operations.
    pub mpi_bytes: u64,
    /// InfiniBand payload bytes.
    pub payload_bytes: u64,
    /// Wire bytes: LRH to VCRC, or whole Ethernet frames.
    pub wire_bytes: u64,
    /// Wire bytes of retransmitted packets.
    pub retransmitted_wire_bytes: u64,
}

/// Reasons why a comparison would be meaningless.
#[derive(Debug, thiserror::Error)]
pub enum CrosscheckError {
    /// The profile has no table of streams.
    #[error(
        "the profile has no table of messages by communicator and tag, because an older version of ibscope wrote it: analyze the captures again, or give them \
         instead of the profile"
    )]
    NoStreams,
    /// The profile was written without MPI messages.
    #[error(
        "the profile has no MPI messages, because it was written by `analyze --no-mpi`; analyze the captures again without that option"
    )]
    NoMpi,
    /// No rank is identified.
    #[error(
        "no rank is identified on the wire, so nothing can be compared; if the capture does not show the ranks, give them with --rankmap"
    )]
    NoRanks,
    /// Several jobs match the trace equally well.
    #[error(
        "jobs {jobs} of the capture match the trace equally well: choose the traced job with --job (`ibscope ranks` shows the ranks of each)"
    )]
    SeveralJobs {
        /// The numbers of these jobs.
        jobs: String,
    },
    /// The trace has no messages, but the wire has.
    #[error(
        "the trace contains no point-to-point messages, but the wire carried {messages} of the program ({bytes} bytes): the tracer did not record them. {} Collective operations \
         alone can be compared with --collectives-only", tracer.how_to_record_messages()
    )]
    NoMessages {
        /// The tracer that wrote the trace.
        tracer: Tracer,
        /// Messages on the wire.
        messages: u64,
        /// Bytes of these messages.
        bytes: u64,
    },
    /// No pair of ranks has messages on both sides.
    #[error(
        "the trace and the capture have no messages in common: the trace has {in_trace} messages between ranks on different nodes and the wire {on_wire}, \
         but no pair of ranks has both. Are they of the same run, and are the ranks right (`ibscope ranks`, --rankmap)?"
    )]
    NothingInCommon {
        /// Messages in the trace.
        in_trace: u64,
        /// Messages on the wire.
        on_wire: u64,
    },
}

/// Options of a cross-check.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CrosscheckOptions {
    /// Differences up to this percentage of the trace's messages and bytes are tolerated.
    pub tolerance_percent: f64,
    /// Compare only collective operations.
    pub collectives_only: bool,
}

/// Compares a trace with a profile. `singles` contains the messages on the wire one by one, if
/// captures were read. Without `placement`, the trace or the profile provides the nodes of the
/// ranks.
pub fn crosscheck(
    trace: &AppTrace,
    profile: &Profile,
    singles: &SingleMessages,
    placement: Option<&Placement>,
    options: &CrosscheckOptions,
) -> Result<Crosscheck, CrosscheckError> {
    check_profile(profile)?;
    jobs::compare(profile, |job| with_job(trace, profile, singles, placement, options, job))
}

fn with_job(
    trace: &AppTrace,
    profile: &Profile,
    singles: &SingleMessages,
    placement: Option<&Placement>,
    options: &CrosscheckOptions,
    job: u32,
) -> Result<Crosscheck, CrosscheckError> {
    let wire = WireMessages::of(profile, job).ok_or(CrosscheckError::NoStreams)?;
    let placement = &*placement.map_or_else(|| Cow::Owned(Placement::of(trace, profile, job)), Cow::Borrowed);
    let contexts = Contexts::find(trace, &wire);
    let mut notes = trace.notes.clone();
    let jobs = jobs::of(profile).len();
    notes.extend(remark_on_jobs(jobs, job));
    let clocks = clocks::fit(trace, &wire, singles.of_job(job), &contexts);
    let outside = clocks::outside(trace, &clocks, captured_ns(profile));
    let known = compare::ComparisonContext { wire: &wire, contexts: &contexts, placement, outside: &outside };
    let mut accounts = Accounts::of(&wire, contexts.tracer);
    let mut pairs = compare::pairs(trace, &known, &mut accounts, options.tolerance_percent);
    if options.collectives_only {
        pairs.clear();
        accounts = Accounts::default();
    } else {
        check_common_messages(trace, &pairs, placement)?;
    }
    let unidentified = accounts.rows();
    notes.extend(remarks_on_ranks(trace, &wire, &unidentified, placement));
    notes.extend(remarks(trace, &pairs, placement, &placement::of_profile(profile, job)));
    let (collectives, is_incomplete) = collectives::pairs(trace, &wire, &contexts, placement);
    if is_incomplete {
        notes.push(
            "the expected bytes in the table by pair leave out collective operations on communicators of more than 1024 ranks"
                .to_owned(),
        );
    }
    let one_sided = one_sided::pairs(trace, singles.of_job(job), placement);
    let operations =
        singles.of_job(job).operations().map(|wire| operations::compare(trace, &wire, &clocks, &contexts, placement));
    let head = empty_crosscheck(trace, &wire, placement, options, job);
    Ok(Crosscheck { jobs, pairs, unidentified, clocks, collectives, operations, one_sided, notes, ..head })
}

/// Compares a profile of sums with the wire, rank by rank.
pub fn crosscheck_sums(
    sums: &cubex::CubeProfile,
    profile: &Profile,
    placement: Option<&Placement>,
    options: &CrosscheckOptions,
) -> Result<Crosscheck, CrosscheckError> {
    check_profile(profile)?;
    jobs::compare(profile, |job| sums_with_job(sums, profile, placement, options, job))
}

fn sums_with_job(
    sums: &cubex::CubeProfile,
    profile: &Profile,
    placement: Option<&Placement>,
    options: &CrosscheckOptions,
    job: u32,
) -> Result<Crosscheck, CrosscheckError> {
    let wire = WireMessages::of(profile, job).ok_or(CrosscheckError::NoStreams)?;
    let trace = &sums.trace;
    let placement = &*placement.map_or_else(|| Cow::Owned(Placement::of(trace, profile, job)), Cow::Borrowed);
    let compared = sums::ranks(sums, &wire, placement, options.tolerance_percent);
    let RankComparison { rows: mut ranks, tracer, mut unidentified } = compared;
    if options.collectives_only {
        ranks.clear();
        unidentified.clear();
    }
    let has_any = |row: &RankSums| row.trace_bytes > 0 || row.uncertain_bytes > 0 || row.calls != Some(0);
    let sent = || ranks.iter().filter(|row| row.direction == RankDirection::Sent);
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
    Ok(Crosscheck {
        jobs,
        ranks,
        unidentified,
        collectives,
        notes,
        ..empty_crosscheck(trace, &wire, placement, options, job)
    })
}

/// The fields that both kinds of cross-check share, without any comparison.
fn empty_crosscheck(
    trace: &AppTrace,
    wire: &WireMessages,
    placement: &Placement,
    options: &CrosscheckOptions,
    job: u32,
) -> Crosscheck {
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
        operations: None,
        one_sided: Vec::new(),
        notes: Vec::new(),
    }
}

/// Rejects a profile without MPI messages or ranks.
fn check_profile(profile: &Profile) -> Result<(), CrosscheckError> {
    if !profile.mpi_read {
        return Err(CrosscheckError::NoMpi);
    }
    if profile.ranks.is_empty() {
        return Err(CrosscheckError::NoRanks);
    }
    Ok(())
}

/// Node of each rank of the trace, if it is known.
fn nodes(trace: &AppTrace, placement: &Placement) -> BTreeMap<u32, String> {
    let node = |rank: u32| Some((rank, placement.node(rank)?.to_owned()));
    trace.all_ranks().into_iter().filter_map(node).collect()
}

/// Time of the first and the last captured packet.
fn captured_ns(profile: &Profile) -> (i64, i64) {
    let times = profile.connections.iter().map(|row| (row.first_time_ns, row.last_time_ns));
    times.fold((i64::MAX, i64::MIN), |all, row| (all.0.min(row.0), all.1.max(row.1)))
}

/// Saturates, because traces and profiles may contain arbitrary numbers.
fn saturating_sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// Fails if no pair has messages on both sides, instead of reporting every pair as different.
fn check_common_messages(
    trace: &AppTrace,
    pairs: &[PairComparison],
    placement: &Placement,
) -> Result<(), CrosscheckError> {
    let own = |pair: &PairComparison| MessageSums {
        messages: pair.wire.messages.saturating_sub(pair.tracer.messages),
        bytes: pair.wire.bytes.saturating_sub(pair.tracer.bytes),
    };
    let mut on_wire = MessageSums::default();
    pairs.iter().for_each(|pair| on_wire += own(pair));
    if on_wire.messages > 0 && trace.sends.total().messages == 0 {
        let MessageSums { messages, bytes } = on_wire;
        return Err(CrosscheckError::NoMessages { tracer: trace.tracer.clone(), messages, bytes });
    }
    let between = || pairs.iter().filter(|pair| !placement.is_same_node(pair.src, pair.dst));
    let in_trace = saturating_sum(between().map(|pair| pair.trace.messages));
    let is_found = |pair: &PairComparison| own(pair).messages > 0 || pair.unidentified.messages > 0;
    let has_both = between().any(|pair| pair.trace.messages > 0 && is_found(pair));
    if in_trace > 0 && !has_both {
        return Err(CrosscheckError::NothingInCommon { in_trace, on_wire: on_wire.messages });
    }
    Ok(())
}

/// Notes about the ranks.
fn remarks_on_ranks(
    trace: &AppTrace,
    wire: &WireMessages,
    unidentified: &[UnidentifiedMessages],
    placement: &Placement,
) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(remark_on_unidentified(unidentified));
    let collectives = wire.unidentified_collectives;
    if collectives.messages > 0 {
        notes.push(format!(
            "not counted here: {} of collective operations with a sender or receiver whose rank is not identified",
            describe(collectives)
        ));
    }
    let unplaced = trace.all_ranks().into_iter().filter(|rank| placement.node(*rank).is_none()).count();
    if unplaced > 0 {
        notes.push(format!(
            "{} no known node: give --placement",
            count_either(unplaced as u64, "rank has", "ranks have")
        ));
    }
    notes
}

/// A note about the choice of one of several jobs.
fn remark_on_jobs(jobs: usize, job: u32) -> Option<String> {
    (jobs > 1).then(|| {
        format!("the capture contains {jobs} jobs; job {job} has the most messages in common with the trace and was compared; choose another one with --job")
    })
}

/// A note about eztrace's own messages, for pairs in which these may cause the difference.
fn remark_on_eztrace(trace: &AppTrace, pair: &PairComparison) -> Option<String> {
    let [kinds, contents] = trace.own.get(&pair.src).filter(|_| pair.dst == 0)?;
    let is_theirs = |tag: Option<i32>| tag.is_some_and(|tag| eztrace::TAGS.contains(&tag));
    pair.differences.iter().any(|difference| is_theirs(difference.tag)).then(|| {
        let mut own = *kinds;
        own += *contents;
        format!(
            "according to the definitions in the trace, rank {} sends {} with tags 17 and 18 to rank 0 for eztrace itself; the messages with these tags on the wire differ from that",
            pair.src,
            describe(own)
        )
    })
}

/// `2 messages (8 bytes)`.
fn describe(sums: MessageSums) -> String {
    format!("{} ({})", count_of(sums.messages, "message"), count_of(sums.bytes, "byte"))
}

/// A note about messages on queue pairs whose rank is not identified: their number, the
/// differences that they explain, and the next step.
fn remark_on_unidentified(unidentified: &[UnidentifiedMessages]) -> Option<String> {
    let (mut all, mut explaining) = (MessageSums::default(), MessageSums::default());
    for row in unidentified {
        all += row.wire;
        explaining += row.explaining;
    }
    let rest = all.less(explaining);
    let use_of_them = match (explaining == MessageSums::default(), rest == MessageSums::default()) {
        (true, _) => "they match no missing message of the trace".to_owned(),
        (false, true) => "they explain messages that are missing between identified ranks".to_owned(),
        (false, false) => format!(
            "{} of them explain messages that are missing between identified ranks, {} explain nothing",
            describe(explaining),
            describe(rest)
        ),
    };
    (all.messages > 0).then(|| {
        format!(
            "messages on the wire with a sender or receiver whose rank is not identified: {}; {use_of_them}; `ibscope ranks --format csv` lists the queue pairs \
             without a rank; enter their ranks into this table and pass it with --rankmap",
            describe(all)
        )
    })
}

/// Notes about the pairs.
fn remarks(
    trace: &AppTrace,
    pairs: &[PairComparison],
    placement: &Placement,
    wire_nodes: &BTreeMap<u32, String>,
) -> Vec<String> {
    let mut notes = Vec::new();
    let unreceived = trace.sends.total().messages.saturating_sub(trace.receives.total().messages);
    if trace.receives.total().messages > 0 && unreceived > 0 {
        notes.push(format!(
            "according to the trace, {} sent but never received",
            count_either(unreceived, "message was", "messages were")
        ));
    }
    let together: Vec<&PairComparison> =
        pairs.iter().filter(|pair| pair.wire.messages > 0 && placement.is_same_node(pair.src, pair.dst)).collect();
    if let Some(first) = together.first() {
        notes.push(format!(
            "the wire has messages between ranks that share a node ({}) according to {}, for example ranks {} and {}: is the placement right?",
            count_of(together.len() as u64, "pair"),
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
            "ranks {} and {} share an endpoint in the capture, but are on different nodes according to {}",
            pair.src, pair.dst, placement.source
        ));
    }
    let bad = pairs.iter().filter(|pair| pair.verdict == CrosscheckVerdict::Unexplained).count();
    if bad > 1 && bad * 10 >= pairs.len() * 9 {
        notes.push("nearly all pairs differ: are the trace and the capture of the same run, and are the ranks right (`ibscope ranks`)?".to_owned());
    }
    notes.extend(pairs.iter().filter_map(|pair| remark_on_eztrace(trace, pair)));
    let missed = pairs.iter().filter(|pair| pair.causes.contains(&Cause::NotCaptured)).count();
    if missed > 0 {
        notes.push(format!(
            "{} no captured packets, because their ports were not captured",
            count_either(
                missed as u64,
                "pair of ranks on different nodes has",
                "pairs of ranks on different nodes have"
            )
        ));
    }
    notes
}
