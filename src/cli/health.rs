//! `ibscope health`.

use super::args::{Format, Health};
use super::{input, output};
use crate::pipeline;
use crate::report::health;
use std::process::ExitCode;

/// Shows what goes wrong.
pub(super) fn run(args: &Health) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    if pipeline::is_profile(&source.inputs[0]) && (source.reading.from.is_some() || source.reading.to.is_some()) {
        anyhow::bail!(
            "{}: a profile keeps health as a whole, without time; give the captures to look at a part",
            source.inputs[0].display()
        );
    }
    let profile = input::profile_with(source, false, None, true)?;
    output::results(|out| match source.format {
        Format::Table => out.write_all(health::table(&profile).as_bytes()),
        Format::Csv => health::csv(&profile, out),
        Format::Json => health::json(&profile, out),
    })?;
    output::notes(&profile.notes);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
