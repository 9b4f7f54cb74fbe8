//! The command line: arguments -> options -> one call of the pipeline -> one rendering.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 complete, 1 failed, 2 usage, 3 a result
//! was written but less than `--min-coverage` percent of the records were decoded, 4 the wire differs from a
//! trace and nothing explains it, 129, 130 and 143 ended early by SIGHUP, SIGINT or SIGTERM. A closed pipe is not an error.

mod analyze;
mod anonymize;
mod capture;
mod collectives;
mod command;
mod common;
mod compare;
mod crosscheck;
mod dataset;
mod health;
mod hook;
mod inspect;
mod latency;
mod manual;
mod matrix;
mod merge;
mod messages;
mod phases;
mod ranks;
mod rates;
mod report;
mod slurm;
mod summary;
mod timeline;
mod trace;
mod watch;

use crate::scratch;
use command::{Command, command_line};
use common::output;
use common::usage::UsageError;
use std::panic;
use std::process::ExitCode;

/// Runs the program with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    quiet_about_damaged_tables();
    if let Err(error) = scratch::signals::fail_beyond_limit() {
        output::say(&format!("ibscope: SIGXFSZ cannot be handled: {error}"));
    }
    let cli = command::parse();
    let result = match &cli.command {
        Command::Analyze(args) => analyze::run(args),
        Command::Anonymize(args) => anonymize::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Summary(args) => summary::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Matrix(args) => matrix::run(args),
        Command::Timeline(args) => timeline::run(args),
        Command::Ranks(args) => ranks::run(args),
        Command::Messages(args) => messages::run(args),
        Command::Collectives(args) => collectives::run(args),
        Command::Health(args) => health::run(args),
        Command::Latency(args) => latency::run(args),
        Command::Rates(args) => rates::run(args),
        Command::Crosscheck(args) => crosscheck::run(args),
        Command::Phases(args) => phases::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Watch(args) => watch::run(args),
        Command::Report(args) => report::run(args),
        Command::SlurmAnalyze(args) => slurm::analyze::run(args),
        Command::SlurmTask(args) => slurm::task::run(args),
        Command::SlurmMerge(args) => slurm::merge::run(args),
        Command::Capture(command) => capture::run(command),
        Command::Hook(command) => hook::run(command),
        Command::Completions(args) => manual::completions(args, command_line()),
        Command::Manual(args) => manual::manual(args, command_line()),
    };
    match result {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::say(&format!("ibscope: {}", output::describe(&error)));
            if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// The reader of Parquet panics at damage, which is caught and told as what it is: what it says of itself would be in the way.
fn quiet_about_damaged_tables() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !panic.location().is_some_and(|place| place.file().contains("polars")) {
            usual(panic);
        }
    }));
}
