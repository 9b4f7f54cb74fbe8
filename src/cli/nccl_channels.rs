//! `ibscope collectives --view channels`: how NCCL divides its data over channels and rails.

use super::collectives::left_out;
use super::common::arguments::SourceArgs;
use super::common::choices::Format;
use super::common::{input, output};
use crate::analysis::nccl_collectives::{MAX_TRANSFERS, NcclCollector};
use crate::model::ConnectionClass;
use crate::render::nccl_channels as rendered;
use std::process::ExitCode;

/// Runs `ibscope collectives --view channels`.
pub(super) fn run(source: &SourceArgs) -> anyhow::Result<ExitCode> {
    input::check_captures("collectives --view channels", &source.inputs)?;
    let mut stream = input::messages_alone(&source.inputs, &source.reading, source.scope, false)?;
    let profile = stream.profile().clone();
    let mut collector = NcclCollector::default();
    for row in stream.by_ref() {
        let row = row?;
        let connection = profile.connections.get(row.connection as usize);
        if connection.is_some_and(|connection| connection.class == ConnectionClass::Nccl) {
            collector.add(&row);
        }
    }
    let found = collector.shares(&profile);
    output::results(|out| match source.format {
        Format::Table => out.write_all(rendered::table(&found.shares).as_bytes()),
        Format::Csv => rendered::csv(&found.shares, out),
        Format::Json => rendered::json(&found.shares, out),
    })?;
    left_out(
        found.left_out,
        "NCCL message",
        "the rows of channels do not count them: the capture does not have all their packets, or not their receive",
    );
    left_out(
        found.beyond_bound,
        "NCCL message",
        &format!("more than {MAX_TRANSFERS} NCCL messages; choose a window with --from and --to"),
    );
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
