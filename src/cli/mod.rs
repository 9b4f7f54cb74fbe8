//! The command line: arguments -> options -> one call of the pipeline -> one rendering.
//!
//! Results go to standard output, everything else to standard error. A closed pipe is not an error.
//! Exit codes:
//!
//! - 0: complete
//! - 1: failed
//! - 2: usage
//! - 3: a result was written, but less than `--min-coverage` percent of the records were decoded
//! - 4: the wire differs from a trace without an explanation
//! - 129, 130, 143: ended early by SIGHUP, SIGINT or SIGTERM

mod analyze;
mod anonymize;
mod capture;
mod chakra;
mod collectives;
mod command;
mod common;
mod compare;
mod crosscheck;
mod dataset;
mod diagnose;
mod goal;
mod graph_files;
mod health;
mod hook;
mod inspect;
mod job_messages;
mod latency;
mod manual;
mod map;
mod matrix;
mod merge;
mod messages;
mod metrics;
mod nccl_channels;
mod otf2;
mod paths;
mod phases;
mod rank_operations;
mod ranks;
mod rates;
mod relay;
mod report;
mod slurm;
mod storage;
mod summary;
mod timeline;
mod trace;
mod undo_report;
mod waits;
mod watch;

use crate::scratch;
use command::{CliCommand, command_line};
use common::usage::UsageError;
use common::{input, output};
use std::panic;
use std::process::ExitCode;

/// Runs the program with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    silence_polars_panics();
    if let Err(error) = scratch::signals::fail_beyond_limit() {
        output::eprint_line(&format!("ibscope: SIGXFSZ cannot be handled: {error}"));
    }
    let mut cli = command::parse();
    let result = cli.command.inputs_mut().map_or(Ok(()), input::replace_folders).and_then(|()| run(&cli.command));
    match result {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::eprint_line(&format!("ibscope: {}", output::describe(&error)));
            if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn run(command: &CliCommand) -> anyhow::Result<ExitCode> {
    match command {
        CliCommand::Analyze(args) => analyze::run(args),
        CliCommand::Anonymize(args) => anonymize::run(args),
        CliCommand::Merge(args) => merge::run(args),
        CliCommand::Summary(args) => summary::run(args),
        CliCommand::Inspect(args) => inspect::run(args),
        CliCommand::Matrix(args) => matrix::run(args),
        CliCommand::Timeline(args) => timeline::run(args),
        CliCommand::Ranks(args) => ranks::run(args),
        CliCommand::Messages(args) => messages::run(args),
        CliCommand::Collectives(args) => collectives::run(args),
        CliCommand::Waits(args) => waits::run(args),
        CliCommand::Storage(args) => storage::run(args),
        CliCommand::Diagnose(args) => diagnose::run(args),
        CliCommand::Health(args) => health::run(args),
        CliCommand::Paths(args) => paths::run(args),
        CliCommand::Map(args) => map::run(args),
        CliCommand::Latency(args) => latency::run(args),
        CliCommand::Rates(args) => rates::run(args),
        CliCommand::Crosscheck(args) => crosscheck::run(args),
        CliCommand::Phases(args) => phases::run(args),
        CliCommand::Compare(args) => compare::run(args),
        CliCommand::Trace(args) => trace::run(args),
        CliCommand::Otf2(args) => otf2::run(args),
        CliCommand::Goal(args) => goal::run(args),
        CliCommand::Chakra(args) => chakra::run(args),
        CliCommand::Watch(args) => watch::run(args),
        CliCommand::Report(args) => report::run(args),
        CliCommand::SlurmAnalyze(args) => slurm::analyze::run(args),
        CliCommand::SlurmTask(args) => slurm::task::run(args),
        CliCommand::SlurmMerge(args) => slurm::merge::run(args),
        CliCommand::Capture(command) => capture::run(command),
        CliCommand::Hook(command) => hook::run(command),
        CliCommand::Completions(args) => manual::completions(args, command_line()),
        CliCommand::Manual(args) => manual::manual(args, command_line()),
    }
}

/// Silences panics in polars. Its Parquet reader panics at damaged files; the caller catches the
/// panic and reports the damage.
fn silence_polars_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !panic.location().is_some_and(|place| place.file().contains("polars")) {
            usual(panic);
        }
    }));
}
