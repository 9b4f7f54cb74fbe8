//! What can be typed.

mod compare;
mod dataset;
mod latency;
mod manual;
mod merge;
mod phases;
mod summary;
mod trace;
mod watch;

pub(super) use compare::Compare;
pub(super) use dataset::Dataset;
pub(super) use latency::{Latency, LatencyFormat, View};
pub(super) use manual::{Completions, Manual};
pub(super) use merge::Merge;
pub(super) use phases::{Phases, PhasesView};
pub(super) use summary::Summary;
pub(super) use trace::Trace;
pub(super) use watch::Watch;

use crate::model::link::Speed;
use crate::pipeline::{self, Moment};
use crate::report::By;
use crate::report::matrix::{Selection, Unit};
use crate::report::packets::Form;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Who talks to whom on an InfiniBand fabric, how much and how fast, from packet captures.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, help_expected = true, max_term_width = 100)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Analyse captures: print a summary and, with -o, write a profile for the other commands
    Analyze(Analyze),
    /// Write captures that others may see: addresses exchanged, payload cleared, envelopes and check sums kept
    Anonymize(super::anonymize::Anonymize),
    /// Merge profiles of parts (`analyze --partial`) into what one analysis of all their captures gives
    Merge(Merge),
    /// Show what a person reads in ten seconds: who, how much, how fast, what went wrong, what was not understood
    Summary(Summary),
    /// Show InfiniBand packets, one line each, in the order of time
    Inspect(Inspect),
    /// Show the communication matrix: row = sender, column = receiver
    Matrix(Matrix),
    /// Show the traffic over time
    Timeline(Timeline),
    /// Show which MPI rank runs where, and what says so; the csv can be given back with --rankmap
    Ranks(Ranks),
    /// Show MPI messages, one line each, in the order in which they were complete
    Messages(Messages),
    /// Show what each collective operation puts on the wire
    Collectives(Collectives),
    /// Show what goes wrong on the fabric and what the capture missed, the worst connections first
    Health(Health),
    /// Show times: request to acknowledgement or response, messages, transit, set-up of connections
    Latency(Latency),
    /// Show rates over time, their peaks, and how large messages and packets are
    Rates(Rates),
    /// Hold what the wire showed against a trace of the application: Score-P and others (OTF2), or a table
    Crosscheck(super::crosscheck::Crosscheck),
    /// Show the job's time cut where the communication pattern changes, and what each part does
    Phases(Phases),
    /// Show two profiles side by side: what differs, by how much, and whether that may be chance
    Compare(Compare),
    /// Write messages as trace events, which Perfetto opens: ranks as tracks, messages as flows
    Trace(Trace),
    /// Show a capture while it grows: rates, pairs, sizes, what goes wrong; and its totals at the end
    Watch(Watch),
    /// Write one HTML file that shows all of a profile; it needs no network
    Report(super::report::Report),
    /// Analyse captures on a cluster: a task of an array job of Slurm for each, and a job that merges
    SlurmAnalyze(super::slurm::SlurmAnalyze),
    /// What a task of slurm-analyze runs: one capture, unless it is done
    SlurmTask(super::slurm::SlurmTask),
    /// What the merging job of slurm-analyze runs
    SlurmMerge(super::slurm::SlurmMerge),
    /// Make a capture of a job happen, and undo it: plan, start, stop, status, list, undo, selftest
    #[command(subcommand)]
    Capture(super::capture::Capture),
    /// What Slurm runs before and after a job, and how that is installed
    #[command(subcommand)]
    Hook(super::hook::Hook),
    /// Print what a shell needs to complete ibscope's commands and options
    Completions(Completions),
    /// Write the manual: pages for `man`, one for each command
    Manual(Manual),
}

/// Options of every command that reads.
#[derive(Debug, Args)]
pub(super) struct Reading {
    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = threads)]
    pub(super) threads: usize,
    /// Names of endpoints: csv `endpoint,name`, for example `17,node1`
    #[arg(long, value_name = "FILE")]
    pub(super) hosts: Option<PathBuf>,
    /// Ranks of endpoints, instead of those learnt from the traffic: csv `rank,endpoint[,qpn]`
    #[arg(long, value_name = "FILE")]
    pub(super) rankmap: Option<PathBuf>,
    /// Start of the time that counts: seconds from the first packet, or RFC 3339
    #[arg(long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub(super) from: Option<Moment>,
    /// End of the time that counts, itself not included: seconds from the first packet, or RFC 3339
    #[arg(long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub(super) to: Option<Moment>,
    /// Manifest of the run: names of endpoints, and clocks of captures where it knows them to 100 us
    #[arg(long, value_name = "FILE")]
    pub(super) manifest: Option<PathBuf>,
    /// Leave the clocks of several captures as they are [default: held against each other by the packets that two captures hold]
    #[arg(long)]
    pub(super) no_align: bool,
    /// Track at most N directed connections per capture; count the packets of others in the totals only
    #[arg(long, value_name = "N", default_value_t = pipeline::DEFAULT_MAX_CONNECTIONS, value_parser = positive)]
    pub(super) max_connections: usize,
    /// Content of each compressed capture that is read at most (512MiB, 4GiB); what follows does not count [default: all]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(super) max_decompressed: Option<u64>,
    /// Exit with code 3 if less than this percentage of the records could be decoded
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub(super) min_coverage: f64,
}

/// Which ranks the commands that show them take into account.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Scope {
    /// Show job N alone; `ibscope ranks` lists the jobs [default: all]
    #[arg(long, value_name = "N", default_value = "all", hide_default_value = true, value_parser = job)]
    pub(super) job: JobChoice,
    /// Leave out inferred ranks: their queue pairs are unassigned
    #[arg(long)]
    pub(super) strict: bool,
}

/// A job, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobChoice {
    /// Each for itself.
    All,
    /// The job of this number.
    Only(u32),
}

/// What the commands that show a profile read.
#[derive(Debug, Args)]
pub(super) struct Source {
    /// One profile (NAME.ibp), or captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "PROFILE|CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) reading: Reading,
    #[command(flatten)]
    pub(super) scope: Scope,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

/// How the commands that draw show it.
#[derive(Debug, Args)]
pub(super) struct Drawing {
    /// When to colour tables
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(super) color: Color,
    #[command(flatten)]
    pub(super) figures: Figures,
}

/// Where figures go.
#[derive(Debug, Args)]
pub(super) struct Figures {
    /// Draw the figure as SVG
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Draw the figure as PNG
    #[arg(long, value_name = "FILE")]
    pub(super) png: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "flags that have nothing to do with each other")]
pub(super) struct Analyze {
    /// Captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    /// Write the profile to this folder, usually NAME.ibp; a profile that is there is replaced
    #[arg(short, long, value_name = "PROFILE")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) reading: Reading,
    /// Width of the timeline's bins
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = bin_ns)]
    pub(super) bin: i64,
    /// Cells of the timeline that are kept at most, 48 bytes each: where there would be more, its bins are made wider. Of the latencies over time, a quarter as many
    #[arg(long, value_name = "N", default_value_t = pipeline::DEFAULT_MAX_CELLS, value_parser = positive)]
    pub(super) max_cells: usize,
    /// Do not look for MPI messages: faster, and the MPI columns stay empty
    #[arg(long)]
    pub(super) no_mpi: bool,
    /// Do not measure the times between packets: faster, and `latency` has nothing to show
    #[arg(long)]
    pub(super) no_times: bool,
    /// Do not verify the ICRC of the packets: faster
    #[arg(long)]
    pub(super) no_icrc: bool,
    /// Look at headers alone and keep nothing taken out of payload: no MPI messages, ranks or connection set-up
    #[arg(long)]
    pub(super) no_payload: bool,
    /// Note the SHA-256 of each input in the profile, beside its XXH3-128
    #[arg(long)]
    pub(super) sha256: bool,
    /// Keep in the profile what `merge` needs to join it with others; a capture without InfiniBand is no error then
    #[arg(long, requires = "output", conflicts_with_all = ["from", "to"])]
    pub(super) partial: bool,
    /// Clocks of captures that `merge --clocks` has written
    #[arg(long, value_name = "FILE", requires = "partial")]
    pub(super) clocks: Option<PathBuf>,
    /// When to colour tables
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(super) color: Color,
}

#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// Captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) reading: Reading,
    /// Form of the result; json is one object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Matrix {
    #[command(flatten)]
    pub(super) source: Source,
    #[command(flatten)]
    pub(super) drawing: Drawing,
    /// Do not look for MPI messages (captures only): faster, and the MPI columns stay empty
    #[arg(long)]
    pub(super) no_mpi: bool,
    /// What rows and columns are
    #[arg(long, value_enum, default_value_t = ByArg::Endpoint)]
    pub(super) by: ByArg,
    /// Which MPI messages count [default: p2p by rank, all by endpoint]
    #[arg(long, value_enum)]
    pub(super) traffic: Option<TrafficArg>,
    /// What the table and the figures show; csv and json hold everything [default: MPI bytes by rank, payload by endpoint]
    #[arg(long, value_enum)]
    pub(super) unit: Option<UnitArg>,
}

#[derive(Debug, Args)]
pub(super) struct Timeline {
    #[command(flatten)]
    pub(super) source: Source,
    #[command(flatten)]
    pub(super) drawing: Drawing,
    /// Do not look for MPI messages (captures only): faster, and the MPI columns stay empty
    #[arg(long)]
    pub(super) no_mpi: bool,
    /// Width of the bins; of a profile, a multiple of its own [default: 10ms, or the profile's]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) bin: Option<i64>,
    /// What sender and receiver are
    #[arg(long, value_enum, default_value_t = ByArg::Endpoint)]
    pub(super) by: ByArg,
    /// Which MPI messages count [default: p2p by rank, all by endpoint]
    #[arg(long, value_enum)]
    pub(super) traffic: Option<TrafficArg>,
}

#[derive(Debug, Args)]
pub(super) struct Ranks {
    #[command(flatten)]
    pub(super) source: Source,
}

#[derive(Debug, Args)]
pub(super) struct Messages {
    /// Captures: pcap or pcapng, plain, gzip or zstd; `-` for standard input
    #[arg(required = true, value_name = "CAPTURE")]
    pub(super) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) reading: Reading,
    #[command(flatten)]
    pub(super) scope: Scope,
    /// Also transport messages that belong to no MPI message: one-sided operations, credits, storage ...
    #[arg(long)]
    pub(super) transport: bool,
    /// Form of the result; json is one object per line
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    /// Write the messages to this file as a Parquet table, and nothing to standard output
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub(super) parquet: Option<PathBuf>,
    #[command(flatten)]
    pub(super) dataset: Dataset,
}

#[derive(Debug, Args)]
pub(super) struct Collectives {
    #[command(flatten)]
    pub(super) source: Source,
    /// What sender and receiver are; csv and json have a row for each pair of them
    #[arg(long, value_enum, default_value_t = ByArg::Rank)]
    pub(super) by: ByArg,
}

#[derive(Debug, Args)]
pub(super) struct Health {
    #[command(flatten)]
    pub(super) source: Source,
    /// What has a row; json holds connections, links and pauses together, or time alone
    #[arg(long, value_enum, default_value_t = HealthBy::Connection)]
    pub(super) by: HealthBy,
    /// Speed of the links, for the time of pauses: width and rate (`4x EDR`) or a data rate (`100Gb/s`)
    #[arg(long, value_name = "SPEED")]
    pub(super) link: Option<Speed>,
    #[command(flatten)]
    pub(super) figures: Figures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum HealthBy {
    /// Directed connections between queue pairs
    Connection,
    /// Links between a port and its switch, each direction for itself
    Link,
    /// Bins of time: what was sent again, by sender
    Time,
    /// Senders of pause and PFC frames (RoCE), and the classes that they pause
    Pause,
}

#[derive(Debug, Args)]
pub(super) struct Rates {
    #[command(flatten)]
    pub(super) source: Source,
    /// Keep pairs of these apart [default: all together]
    #[arg(long, value_enum)]
    pub(super) by: Option<ByArg>,
    /// Width of the bins; those of a profile are shared out where it is no multiple of theirs [default: 10ms, or the profile's, or
    /// wider where they would be more than a million]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) bin: Option<i64>,
    /// What csv holds; json holds everything
    #[arg(long, value_enum, default_value_t = RatesView::Bins)]
    pub(super) view: RatesView,
    /// Length of the window whose highest rate is the peak [default: 100ms, or all where that is shorter]
    #[arg(long, value_name = "DURATION", value_parser = bin_ns)]
    pub(super) window: Option<i64>,
    #[command(flatten)]
    pub(super) figures: Figures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RatesView {
    /// Sums and rates over time
    Bins,
    /// Sums, means and peaks
    Peaks,
    /// How large messages and packets are
    Sizes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Table,
    /// Comma-separated values
    Csv,
    /// JSON
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Color {
    /// On a terminal, unless `NO_COLOR` is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ByArg {
    /// Ports: LID, GID or IP address
    Endpoint,
    /// MPI ranks
    Rank,
}

impl From<Format> for Form {
    fn from(format: Format) -> Self {
        match format {
            Format::Table => Self::Table,
            Format::Csv => Self::Csv,
            Format::Json => Self::Json,
        }
    }
}

impl From<ByArg> for By {
    fn from(by: ByArg) -> Self {
        match by {
            ByArg::Endpoint => Self::Endpoint,
            ByArg::Rank => Self::Rank,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TrafficArg {
    /// Point-to-point messages
    P2p,
    /// Messages of collective operations
    Collective,
    /// Point-to-point and collective
    All,
    /// One-sided operations: WRITE and READ payload between processes of a job; no part of the others, nor of `all`
    OneSided,
}

impl From<TrafficArg> for Selection {
    fn from(traffic: TrafficArg) -> Self {
        match traffic {
            TrafficArg::P2p => Self::P2p,
            TrafficArg::Collective => Self::Collective,
            TrafficArg::All => Self::All,
            TrafficArg::OneSided => Self::OneSided,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum UnitArg {
    /// Messages: of MPI by rank, of the transport by endpoint
    Messages,
    /// MPI payload
    MpiBytes,
    /// InfiniBand payload
    PayloadBytes,
    /// Bytes on the wire
    WireBytes,
    /// Packets
    Packets,
}

impl From<UnitArg> for Unit {
    fn from(unit: UnitArg) -> Self {
        match unit {
            UnitArg::Messages => Self::Messages,
            UnitArg::MpiBytes => Self::MpiBytes,
            UnitArg::PayloadBytes => Self::PayloadBytes,
            UnitArg::WireBytes => Self::WireBytes,
            UnitArg::Packets => Self::Packets,
        }
    }
}

/// Seconds with up to nine decimals, exactly, or a time stamp.
fn moment(text: &str) -> Result<Moment, String> {
    if let Some(ns) = decimal_seconds_ns(text) {
        return Ok(Moment::SinceStart(ns));
    }
    let timestamp: jiff::Timestamp = text
        .parse()
        .map_err(|_| "expected seconds from the first packet (1.5) or RFC 3339 (2026-11-20T10:00:00Z)".to_owned())?;
    i64::try_from(timestamp.as_nanosecond())
        .map(Moment::Absolute)
        .map_err(|_| "this time lies outside the years 1678 to 2262".to_owned())
}

fn decimal_seconds_ns(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 9 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let nanoseconds: i64 = format!("{fraction:0<9}").parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

fn job(text: &str) -> Result<JobChoice, String> {
    if text == "all" {
        return Ok(JobChoice::All);
    }
    let job = text.parse().ok().filter(|job| *job > 0).map(JobChoice::Only);
    job.ok_or_else(|| "expected the number of a job, from 1, or `all`".to_owned())
}

fn bin_ns(text: &str) -> Result<i64, String> {
    let expected = || "expected a duration like 10ms, 500us or 1s".to_owned();
    let duration: jiff::SignedDuration = text.parse().map_err(|_| expected())?;
    let ns = i64::try_from(duration.as_nanos()).map_err(|_| expected())?;
    if ns > 0 { Ok(ns) } else { Err("expected a duration of at least 1ns".to_owned()) }
}

/// More threads than any machine has cores only take memory.
const MAX_THREADS: usize = 1024;

pub(super) fn threads(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|&count: &usize| count <= MAX_THREADS);
    count.ok_or_else(|| format!("expected a number from 0 (one per core) to {MAX_THREADS}"))
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "expected a whole number above 0".to_owned())
}

/// A number of bytes, with a unit or without.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].trim_start() {
        "" | "B" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        "TiB" => Some(40),
        _ => None,
    };
    let bytes = digits.parse().ok().zip(shift).and_then(|(number, shift): (u64, _)| number.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "expected a size like 512MiB or 4GiB".to_owned())
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number from 0 to 100".to_owned())?;
    if (0.0..=100.0).contains(&value) { Ok(value) } else { Err("expected a number from 0 to 100".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn every_argument_has_help_and_none_clash() {
        Cli::command().debug_assert();
    }

    #[test]
    fn moments_are_exact() {
        assert_eq!(moment("0"), Ok(Moment::SinceStart(0)));
        assert_eq!(moment("1.5"), Ok(Moment::SinceStart(1_500_000_000)));
        assert_eq!(moment("0.000000001"), Ok(Moment::SinceStart(1)));
        assert_eq!(moment("1970-01-01T00:00:01.000000002Z"), Ok(Moment::Absolute(1_000_000_002)));
        assert_eq!(moment("1970-01-01T02:00:00+02:00"), Ok(Moment::Absolute(0)));
        for text in ["", ".", "-1", "1.0000000001", "yesterday", "99999999999"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_have_binary_units() {
        for (text, expected) in [("1", 1), ("700B", 700), ("64KiB", 65_536), ("512 MiB", 512 << 20), ("4GiB", 4 << 30)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "0", "0GiB", "MiB", "1.5GiB", "-1", "1G", "1 2", "16777216TiB", "\u{664}KiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bins_are_positive_durations() {
        assert_eq!(bin_ns("10ms"), Ok(10_000_000));
        assert_eq!(bin_ns("1s"), Ok(1_000_000_000));
        assert_eq!(bin_ns("500us"), Ok(500_000));
        for text in ["0s", "-1ms", "10", "soon"] {
            assert!(bin_ns(text).is_err(), "{text}");
        }
    }
}
