//! `ibscope collectives --view channels`: the distribution of NCCL's data over channels and rails.

use super::common::arguments::SourceArgs;
use super::common::choices::Format;
use super::common::{input, output};
use crate::analysis::nccl_collectives::NcclCollector;
use crate::model::ConnectionClass;
use crate::render::{self, nccl_channels as rendered};
use std::process::ExitCode;

/// Prints the channels and rails of NCCL.
pub(super) fn run(source: &SourceArgs) -> anyhow::Result<ExitCode> {
    input::check_captures("collectives --view channels", &source.inputs)?;
    let mut stream = input::messages_alone(&source.inputs, &source.reading, source.scope, false)?;
    let profile = stream.profile().clone();
    anyhow::ensure!(
        profile.sampling.is_none(),
        "the channels of NCCL are unknown, because the mirror sampled the packets, so most messages are incomplete"
    );
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
    output::notes(&render::collective_instances::nccl_notes(found.left_out, found.beyond_bound));
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}
