//! `ibscope collectives --view channels`: how NCCL divides its data over channels and rails.

use super::common::arguments::SourceArgs;
use super::common::choices::Format;
use super::common::{input, output};
use crate::analysis::nccl_collectives::NcclCollector;
use crate::model::ConnectionClass;
use crate::render::nccl_channels as rendered;
use std::process::ExitCode;

/// Messages that the rows do not count.
pub(super) struct NcclLeftOut {
    pub(super) left_out: u64,
    pub(super) beyond_bound: u64,
}

/// Prints the channels and rails of NCCL; `note_left_out` prints the notes on messages that belong to no
/// row.
pub(super) fn run(source: &SourceArgs, note_left_out: impl FnOnce(NcclLeftOut)) -> anyhow::Result<ExitCode> {
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
    note_left_out(NcclLeftOut { left_out: found.left_out, beyond_bound: found.beyond_bound });
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
