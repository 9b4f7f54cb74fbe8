//! The command line: arguments -> options -> one call of the pipeline -> one rendering.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 complete, 1 failed, 2 usage, 3 a result
//! was written but less than `--min-coverage` percent of the records were decoded, 4 the wire differs from a
//! trace and nothing explains it, 129, 130 and 143 ended early by SIGHUP, SIGINT or SIGTERM. A closed pipe is not an error.

mod anonymize;
mod args;
mod capture;
mod commands;
mod compare;
mod crosscheck;
mod files;
mod health;
mod hook;
mod input;
mod latency;
mod manifest;
mod manual;
mod merge;
mod messages;
mod output;
mod phases;
mod rates;
mod report;
mod slurm;
mod summary;
mod trace;
mod watch;

use crate::scratch;
use args::{Cli, Command};
use clap::Parser as _;
use std::panic;
use std::process::ExitCode;

/// Runs the program with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    quiet_about_damaged_tables();
    if let Err(error) = scratch::signals::fail_beyond_limit() {
        output::say(&format!("ibscope: SIGXFSZ cannot be handled: {error}"));
    }
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Analyze(args) => commands::analyze(args),
        Command::Anonymize(args) => anonymize::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Summary(args) => summary::run(args),
        Command::Inspect(args) => commands::inspect(args),
        Command::Matrix(args) => commands::matrix(args),
        Command::Timeline(args) => commands::timeline(args),
        Command::Ranks(args) => commands::ranks(args),
        Command::Messages(args) => messages::run(args),
        Command::Collectives(args) => commands::collectives(args),
        Command::Health(args) => health::run(args),
        Command::Latency(args) => latency::run(args),
        Command::Rates(args) => rates::run(args),
        Command::Crosscheck(args) => crosscheck::run(args),
        Command::Phases(args) => phases::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Watch(args) => watch::run(args),
        Command::Report(args) => report::run(args),
        Command::SlurmAnalyze(args) => slurm::run(args),
        Command::SlurmTask(args) => slurm::task(args),
        Command::SlurmMerge(args) => slurm::merge(args),
        Command::Capture(command) => capture::run(command),
        Command::Hook(command) => hook::run(command),
        Command::Completions(args) => manual::completions(args),
        Command::Manual(args) => manual::manual(args),
    };
    match result {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::say(&format!("ibscope: {}", output::describe(&error)));
            if error.is::<input::UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
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
