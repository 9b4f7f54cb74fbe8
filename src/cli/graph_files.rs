//! The files in which `ibscope matrix` writes the matrix as a graph.

use super::common::arguments::GraphArgs;
use super::common::files::OutputFile;
use super::common::input;
use crate::analysis::GroupBy;
use crate::analysis::matrix::{Matrix, TrafficUnit};
use crate::model::Profile;
use crate::render::graph::{self, MAX_DENSE_RANKS, RankGraph};
use anyhow::bail;
use std::path::{Path, PathBuf};

/// The files of graphs, one per format.
pub(super) struct GraphFiles {
    graphml: Option<OutputFile>,
    dot: Option<OutputFile>,
    scotch: Option<OutputFile>,
    dense: Option<OutputFile>,
}

impl GraphFiles {
    /// Opens the requested files. `inputs` are the files that the command reads; a graph may replace
    /// none of them.
    pub(super) fn open(args: &GraphArgs, inputs: &[&Path]) -> anyhow::Result<Self> {
        let open = |path: &Option<PathBuf>| OutputFile::open(path.as_ref(), inputs);
        Ok(Self {
            graphml: open(&args.graphml)?,
            dot: open(&args.dot)?,
            scotch: open(&args.scotch)?,
            dense: open(&args.dense)?,
        })
    }

    /// Writes the requested files. Returns notes on content that is missing from the graphs.
    pub(super) fn finish(self, profile: &Profile, matrix: &Matrix, unit: TrafficUnit) -> anyhow::Result<Vec<String>> {
        if let Some(file) = self.graphml {
            file.finish(graph::graphml(matrix).as_bytes())?;
        }
        if let Some(file) = self.dot {
            file.finish(graph::dot(matrix, unit).as_bytes())?;
        }
        if self.scotch.is_none() && self.dense.is_none() {
            return Ok(Vec::new());
        }
        if matrix.by != GroupBy::Rank {
            bail!("--scotch and --dense have a vertex per rank; add --by rank");
        }
        input::one_job(profile, "the ranks of --scotch and --dense")?;
        let ranks = RankGraph::of(matrix, unit);
        if ranks.ranks() == 0 {
            bail!("no rank is known, so --scotch and --dense have nothing to write; `ibscope ranks` shows the reasons");
        }
        let mut notes = ranks.notes();
        if let Some(file) = self.scotch {
            let (text, scale) = ranks.scotch();
            file.finish(text.as_bytes())?;
            if scale > 1 {
                notes.push(format!("weights of --scotch are in units of {scale} {}, to fit 32 bits", unit.name()));
            }
        }
        if let Some(file) = self.dense {
            let Some(text) = ranks.dense() else {
                bail!("--dense holds at most {MAX_DENSE_RANKS} ranks, and the job has {}; use --scotch", ranks.ranks());
            };
            file.finish(text.as_bytes())?;
        }
        Ok(notes)
    }
}
