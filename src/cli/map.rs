//! `ibscope map`: the traffic on the links of a fabric.

use super::common::arguments::SourceArgs;
use super::common::choices::Format;
use super::common::files::{self, OutputFile};
use super::common::input::{self, AnalysisNeeds};
use super::common::output;
use crate::analysis::fabric_map::{FabricGraph, FabricMap, ForwardingTables, fabric_map, mapping_target};
use crate::model::{Profile, TrafficKind};
use crate::render::fabric_map as rendered;
use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use ibscope_parsers::tools::{forwarding, ibnetdiscover, scotch};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Examples in the long help.
const EXAMPLES: &str = "Examples:
  ibscope map job.ibp --fabric ibnetdiscover.txt --routes dump_fts.txt
  ibscope map sink.pcap --hosts hosts.csv --fabric ibnetdiscover.txt --format csv
  ibscope map job.ibp --fabric ibnetdiscover.txt --mapping ranks.map";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct MapArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// Read the cables of the subnet from FILE: output of `ibnetdiscover -p`
    #[arg(long, value_name = "FILE")]
    pub(super) fabric: PathBuf,
    /// Read the forwarding tables from FILE: output of `dump_fts`, or of `ibroute` for each switch
    /// [default: assume shortest paths]
    #[arg(long, value_name = "FILE")]
    pub(super) routes: Option<PathBuf>,
    /// Compare the placement with FILE: output of `scotch_gmap`, the number of a node for each rank
    #[arg(long, value_name = "FILE")]
    pub(super) mapping: Option<PathBuf>,
    /// Write the nodes with traffic to FILE as a target of Scotch, for `scotch_gmap`
    #[arg(long, value_name = "FILE")]
    pub(super) scotch: Option<PathBuf>,
}

/// Runs `ibscope map`.
pub(super) fn run(args: &MapArgs) -> anyhow::Result<ExitCode> {
    let source = &args.source;
    input::check(&source.inputs)?;
    let fabric = read_fabric(&args.fabric)?;
    let tables = args.routes.as_deref().map(read_tables).transpose()?;
    let mapping = args.mapping.as_deref().map(read_mapping).transpose()?;
    let profile = input::profile(&source.inputs, &source.reading, source.scope, AnalysisNeeds::default())?;
    check(&profile)?;
    if mapping.is_some() {
        input::one_job(&profile, "the traffic that is mapped")?;
    }
    let map = fabric_map(&profile, &fabric, tables.as_ref(), mapping.as_ref());
    let inputs = input::files(&source.inputs, &source.reading);
    if let Some(file) = OutputFile::open(args.scotch.as_ref(), &inputs)? {
        let target = mapping_target(&profile, &fabric, tables.as_ref())
            .map_err(|reason| anyhow!("there is no tree of nodes for Scotch, because {}", reason.because()))?;
        file.finish(rendered::scotch(&target).as_bytes())?;
    }
    output::results(|out| match source.format {
        Format::Table => out.write_all(rendered::text(&map).as_bytes()),
        Format::Csv => rendered::csv(&map, out),
        Format::Json => rendered::json(&map, out),
    })?;
    notes(&map);
    input::ports_note(&profile, "each link may carry more bytes");
    input::notes(&source.inputs, &source.reading, &profile);
    Ok(input::exit_code(&source.reading, &profile.coverage))
}

fn read_fabric(path: &Path) -> anyhow::Result<FabricGraph> {
    let in_file = || path.display().to_string();
    let lines = ibnetdiscover::parse_ports(&files::read(path).context("--fabric")?).with_context(in_file)?;
    FabricGraph::of(&lines).with_context(in_file)
}

fn read_tables(path: &Path) -> anyhow::Result<ForwardingTables> {
    let tables = forwarding::parse_tables(&files::read(path).context("--routes")?)
        .with_context(|| path.display().to_string())?;
    if tables.is_empty() {
        bail!("{}: no line begins a forwarding table; give the output of dump_fts", path.display());
    }
    Ok(ForwardingTables::of(&tables))
}

/// The number of a node by rank.
fn read_mapping(path: &Path) -> anyhow::Result<BTreeMap<u32, u32>> {
    scotch::parse_mapping(&files::read(path).context("--mapping")?).with_context(|| path.display().to_string())
}

/// Refuses profiles whose traffic cannot be on the links of an InfiniBand fabric, or is only a sample.
fn check(profile: &Profile) -> anyhow::Result<()> {
    if profile.sampling.is_some() {
        bail!("the bytes of each link are unknown, because the mirror sampled the packets");
    }
    let mut data = profile.connections.iter().filter(|row| row.kind == TrafficKind::Data).peekable();
    if data.peek().is_some() && data.all(|row| row.src.lid().is_none() && row.dst.lid().is_none()) {
        bail!("no endpoint has a LID: `map` needs captures of native InfiniBand, because RoCE packets have no LIDs");
    }
    Ok(())
}

fn notes(map: &FabricMap) {
    let mut notes = rendered::left_out(map);
    if !map.has_tables {
        notes.push("routes are assumed to be shortest paths; --routes reads the forwarding tables".to_owned());
    }
    output::notes(&notes);
}
