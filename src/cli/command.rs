//! The commands and their arguments: one definition for parsing, help, completions and manual
//! pages.

use super::{
    analyze, anonymize, capture, chakra, collectives, compare, crosscheck, diagnose, goal, health, hook, inspect,
    latency, manual, map, matrix, merge, messages, otf2, paths, phases, ranks, rates, report, slurm, storage, summary,
    timeline, trace, waits, watch,
};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Show which MPI ranks and ports communicate on InfiniBand or RoCE, from captures.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, help_expected = true, max_term_width = 100)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum CliCommand {
    /// Print a summary of captures, and write a profile
    Analyze(analyze::AnalyzeArgs),
    /// Write captures that can be shared: no payload, new addresses
    Anonymize(anonymize::AnonymizeArgs),
    /// Merge partial profiles into the profile of all captures
    Merge(merge::MergeArgs),
    /// Show the summary of a profile: traffic, rates, ranks, health
    Summary(summary::SummaryArgs),
    /// Show InfiniBand packets, one per line
    Inspect(inspect::InspectArgs),
    /// Show the communication matrix: row = sender, column = receiver
    Matrix(matrix::MatrixArgs),
    /// Show the traffic over time
    Timeline(timeline::TimelineArgs),
    /// Show the location of each MPI rank, with the evidence
    Ranks(ranks::RanksArgs),
    /// Show MPI messages, one per line
    Messages(messages::MessagesArgs),
    /// Show messages and bytes of each collective operation
    Collectives(collectives::CollectivesArgs),
    /// Show iterations, stragglers, and waits between ranks
    Waits(waits::WaitsArgs),
    /// Show storage commands: clients, servers, bytes, latencies
    Storage(storage::StorageArgs),
    /// Show ranked findings: problems of fabric, jobs and capture
    Diagnose(diagnose::DiagnoseArgs),
    /// Show retransmissions, NAKs, congestion and capture loss
    Health(health::HealthArgs),
    /// Show traffic classes, partitions and ECMP paths of the packets
    Paths(paths::PathsArgs),
    /// Show bytes per link of a fabric, and a better placement
    Map(map::MapArgs),
    /// Show latencies: request to response, messages, transit
    Latency(latency::LatencyArgs),
    /// Show rates, peak rates, and sizes of messages and packets
    Rates(rates::RatesArgs),
    /// Compare a capture with a trace: OTF2, Score-P, or a table
    Crosscheck(crosscheck::CrosscheckArgs),
    /// Show the phases of a job and their communication patterns
    Phases(phases::PhasesArgs),
    /// Compare profiles, and mark differences beyond chance
    Compare(compare::CompareArgs),
    /// Write messages as trace events for Perfetto
    Trace(trace::TraceArgs),
    /// Write messages, operations and link rates as an OTF2 archive
    Otf2(otf2::Otf2Args),
    /// Write messages as a GOAL schedule for LogGOPSim and ATLAHS
    Goal(goal::GoalArgs),
    /// Write messages or collective operations as Chakra traces
    Chakra(chakra::ChakraArgs),
    /// Watch a growing capture: rates, pairs, sizes, health
    Watch(watch::WatchArgs),
    /// Write a profile as one self-contained HTML page
    Report(report::ReportArgs),
    /// Analyze captures in a Slurm array job, and merge the profiles
    SlurmAnalyze(slurm::analyze::SlurmAnalyzeArgs),
    /// Run one array task of slurm-analyze (internal)
    #[command(hide = true)]
    SlurmTask(slurm::task::SlurmTaskArgs),
    /// Run the merging job of slurm-analyze (internal)
    #[command(hide = true)]
    SlurmMerge(slurm::merge::SlurmMergeArgs),
    /// Capture the traffic of a job, and undo all fabric changes
    #[command(subcommand)]
    Capture(capture::CaptureCommand),
    /// Run and install the Slurm prolog and epilog hooks
    #[command(subcommand)]
    Hook(hook::HookCommand),
    /// Print the completion script of a shell
    Completions(manual::CompletionsArgs),
    /// Write manual pages, one per command
    Manual(manual::ManualArgs),
}

impl CliCommand {
    /// The captures or profiles that the command reads; `None` if it reads none, or handles folders
    /// itself.
    pub(super) const fn inputs_mut(&mut self) -> Option<&mut Vec<PathBuf>> {
        match self {
            Self::Analyze(args) => Some(&mut args.inputs),
            Self::Anonymize(args) => Some(&mut args.inputs),
            Self::Summary(args) => Some(&mut args.source.inputs),
            Self::Inspect(args) => Some(&mut args.inputs),
            Self::Matrix(args) => Some(&mut args.source.inputs),
            Self::Timeline(args) => Some(&mut args.source.inputs),
            Self::Ranks(args) => Some(&mut args.source.inputs),
            Self::Messages(args) => Some(&mut args.captures.inputs),
            Self::Collectives(args) => Some(&mut args.source.inputs),
            Self::Waits(args) => Some(&mut args.captures.inputs),
            Self::Storage(args) => Some(&mut args.source.inputs),
            Self::Diagnose(args) => Some(&mut args.source.inputs),
            Self::Health(args) => Some(&mut args.source.inputs),
            Self::Paths(args) => Some(&mut args.source.inputs),
            Self::Map(args) => Some(&mut args.source.inputs),
            Self::Latency(args) => Some(&mut args.inputs),
            Self::Rates(args) => Some(&mut args.source.inputs),
            Self::Crosscheck(args) => Some(&mut args.inputs),
            Self::Phases(args) => Some(&mut args.source.inputs),
            Self::Trace(args) => Some(&mut args.inputs),
            Self::Otf2(args) => Some(&mut args.captures.inputs),
            Self::Goal(args) => Some(&mut args.captures.inputs),
            Self::Chakra(args) => Some(&mut args.captures.inputs),
            Self::Report(args) => Some(&mut args.inputs),
            Self::Merge(_)
            | Self::Compare(_)
            | Self::Watch(_)
            | Self::SlurmAnalyze(_)
            | Self::SlurmTask(_)
            | Self::SlurmMerge(_)
            | Self::Capture(_)
            | Self::Hook(_)
            | Self::Completions(_)
            | Self::Manual(_) => None,
        }
    }
}

/// The commands in the order of `ibscope --help`, by the tasks of users.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Analyze", &["analyze", "merge", "watch"]),
    (
        "Show",
        &[
            "summary",
            "diagnose",
            "matrix",
            "timeline",
            "ranks",
            "messages",
            "collectives",
            "waits",
            "storage",
            "rates",
            "latency",
            "health",
            "paths",
            "map",
            "phases",
            "inspect",
        ],
    ),
    ("Compare", &["compare", "crosscheck"]),
    ("Share", &["report", "trace", "otf2", "goal", "chakra", "anonymize"]),
    ("On a cluster", &["slurm-analyze"]),
    ("Capture", &["capture", "hook"]),
    ("This program", &["completions", "manual", "help"]),
];

/// Help text of `help`, which clap adds only when it has parsed the command line.
const HELP: &str = "Print this message or the help of the given command";

/// A first session, printed below the commands.
const START: &str = "Start with:
  ibscope analyze sink.pcap -o job.ibp
  ibscope matrix job.ibp --by rank
  ibscope report job.ibp -o report.html";

/// The command line, with a help that lists the commands by group; clap has no setting for groups.
pub(super) fn command_line() -> clap::Command {
    let command = Cli::command();
    let mut groups = String::new();
    for (group, names) in GROUPS {
        let _ = writeln!(groups, "{group}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about).map(ToString::to_string);
            let _ = writeln!(groups, "  {name:<13}  {}", about.as_deref().unwrap_or(HELP));
        }
        groups.push('\n');
    }
    let template = format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}\n\n{START}\n");
    with_figure_needs(command).help_template(template)
}

/// Commands that draw figures of some results only, and what these figures need.
const FIGURE_NEEDS: [(&str, &str); 2] =
    [("compare", "; needs three or more profiles"), ("storage", "; needs --view timeline")];

/// Adds to the help of the figure options what they need.
fn with_figure_needs(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|own| {
        let Some((_, needs)) = FIGURE_NEEDS.iter().find(|(name, _)| *name == own.get_name()) else { return own };
        own.mut_args(|arg| {
            let is_figure = ["svg", "png", "pdf"].contains(&arg.get_id().as_str());
            match arg.get_help().filter(|_| is_figure).map(|help| format!("{help}{needs}")) {
                Some(help) => arg.help(help),
                None => arg,
            }
        })
    })
}

/// Parses the arguments of the process; exits with 2 if they are invalid.
pub(super) fn parse() -> Cli {
    let matches = command_line().get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_has_help_and_none_clash() {
        command_line().debug_assert();
    }

    /// Each visible command is in one group, and no help line is wider than a usual terminal.
    #[test]
    fn the_help_lists_every_command_once() {
        let mut command = command_line();
        command.build();
        let shown = command.get_subcommands().filter(|own| !own.is_hide_set());
        let mut visible: Vec<String> = shown.map(|own| own.get_name().to_owned()).collect();
        let mut listed: Vec<String> =
            GROUPS.iter().flat_map(|(_, names)| *names).map(|&name| name.to_owned()).collect();
        visible.sort_unstable();
        listed.sort_unstable();
        assert_eq!(visible, listed);
        let help = command.render_help().to_string();
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }

    /// Each command and subcommand has two or three examples, and all of them parse.
    #[test]
    fn every_command_has_examples_that_can_be_parsed() {
        let mut command = command_line();
        command.build();
        let commands: Vec<&clap::Command> = visible(&command).collect();
        assert!(commands.len() > 20);
        for own in commands.iter().copied().chain(commands.iter().flat_map(|own| visible(own))) {
            let examples = own.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = examples.lines().filter_map(|line| line.strip_prefix("  ")).collect();
            assert!((2..=3).contains(&lines.len()), "{}: {examples}", own.get_name());
            for line in lines {
                let parsed = command_line().try_get_matches_from(words(line));
                assert!(parsed.is_ok(), "{line}: {}", parsed.err().map(|error| error.to_string()).unwrap_or_default());
            }
        }
    }

    /// The commands that help shows, except `help` itself.
    fn visible(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
        command.get_subcommands().filter(|own| !own.is_hide_set() && own.get_name() != "help")
    }

    /// The words of a command line, without its redirections, which the shell handles.
    fn words(line: &str) -> Vec<String> {
        let command = line.split(['<', '>']).next().unwrap_or_default();
        let mut words = vec![];
        for (at, part) in command.split('"').enumerate() {
            match at % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        words
    }
}
