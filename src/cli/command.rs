//! The commands that there are, each with its arguments.

use super::{
    analyze, anonymize, capture, collectives, compare, crosscheck, health, hook, inspect, latency, manual, matrix,
    merge, messages, phases, ranks, rates, report, slurm, summary, timeline, trace, watch,
};
use clap::{Parser, Subcommand};

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
    Analyze(analyze::Analyze),
    /// Write captures that others may see: addresses exchanged, payload cleared, envelopes and check sums kept
    Anonymize(anonymize::Anonymize),
    /// Merge profiles of parts (`analyze --partial`) into what one analysis of all their captures gives
    Merge(merge::Merge),
    /// Show what a person reads in ten seconds: who, how much, how fast, what went wrong, what was not understood
    Summary(summary::Summary),
    /// Show InfiniBand packets, one line each, in the order of time
    Inspect(inspect::Inspect),
    /// Show the communication matrix: row = sender, column = receiver
    Matrix(matrix::Matrix),
    /// Show the traffic over time
    Timeline(timeline::Timeline),
    /// Show which MPI rank runs where, and what says so; the csv can be given back with --rankmap
    Ranks(ranks::Ranks),
    /// Show MPI messages, one line each, in the order in which they were complete
    Messages(messages::Messages),
    /// Show what each collective operation puts on the wire
    Collectives(collectives::Collectives),
    /// Show what goes wrong on the fabric and what the capture missed, the worst connections first
    Health(health::Health),
    /// Show times: request to acknowledgement or response, messages, transit, set-up of connections
    Latency(latency::Latency),
    /// Show rates over time, their peaks, and how large messages and packets are
    Rates(rates::Rates),
    /// Hold what the wire showed against a trace of the application: Score-P and others (OTF2), or a table
    Crosscheck(crosscheck::Crosscheck),
    /// Show the job's time cut where the communication pattern changes, and what each part does
    Phases(phases::Phases),
    /// Show two profiles side by side: what differs, by how much, and whether that may be chance
    Compare(compare::Compare),
    /// Write messages as trace events, which Perfetto opens: ranks as tracks, messages as flows
    Trace(trace::Trace),
    /// Show a capture while it grows: rates, pairs, sizes, what goes wrong; and its totals at the end
    Watch(watch::Watch),
    /// Write one HTML file that shows all of a profile; it needs no network
    Report(report::Report),
    /// Analyse captures on a cluster: a task of an array job of Slurm for each, and a job that merges
    SlurmAnalyze(slurm::analyze::SlurmAnalyze),
    /// What a task of slurm-analyze runs: one capture, unless it is done
    SlurmTask(slurm::task::SlurmTask),
    /// What the merging job of slurm-analyze runs
    SlurmMerge(slurm::merge::SlurmMerge),
    /// Make a capture of a job happen, and undo it: plan, start, stop, status, list, undo, selftest
    #[command(subcommand)]
    Capture(capture::Capture),
    /// What Slurm runs before and after a job, and how that is installed
    #[command(subcommand)]
    Hook(hook::Hook),
    /// Print what a shell needs to complete ibscope's commands and options
    Completions(manual::Completions),
    /// Write the manual: pages for `man`, one for each command
    Manual(manual::Manual),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn every_argument_has_help_and_none_clash() {
        Cli::command().debug_assert();
    }
}
