//! `ibscope merge`: profiles of parts -> the profile of all of it.

use super::args::Merge;
use super::files::Output;
use super::{files, input, output};
use crate::pipeline::{self, Mismatch, Options};
use crate::report::text;
use anyhow::anyhow;
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(args: &Merge) -> anyhow::Result<ExitCode> {
    let writer = pipeline::Writer::create(&args.output)?;
    let read: Vec<&Path> = args.hosts.iter().chain(&args.rankmap).map(AsRef::as_ref).collect();
    let clocks = Output::open(args.clocks.as_ref(), &read)?;
    let options = Options {
        threads: args.threads,
        names: files::hosts(args.hosts.as_deref())?,
        rankmap: files::rankmap(args.rankmap.as_deref())?,
        ..Options::default()
    };
    let profile = match pipeline::merge(&args.profiles, &options) {
        Ok(profile) => profile,
        Err(mismatch) => return Err(explained(mismatch, clocks)?),
    };
    writer.finish(&profile)?;
    let style = output::style(args.color);
    output::results(|out| out.write_all(text::summary(&profile, &style).as_bytes()))?;
    output::say(&format!("profile written to {}", args.output.display()));
    if args.rankmap.is_some() {
        output::notes(&files::rankmap_notes(&profile.ranks, &profile));
    }
    Ok(input::exit_code_for(args.min_coverage, &profile.coverage))
}

/// Where clocks are in the way: writes them down, and says what is to be done with them.
fn explained(mismatch: Mismatch, file: Option<Output>) -> anyhow::Result<anyhow::Error> {
    let Mismatch::Clocks { clocks } = &mismatch else { return Ok(mismatch.into()) };
    let Some(file) = file else {
        return Ok(anyhow!("{mismatch}; give --clocks FILE to this command, then analyse all captures again with it"));
    };
    let place = file.place().to_owned();
    file.finish(pipeline::clocks_csv(clocks).as_bytes())?;
    Ok(anyhow!(
        "{mismatch}; these are in {0} now: analyse all captures again with `analyze --partial --clocks {0}`, then merge",
        place.display()
    ))
}
