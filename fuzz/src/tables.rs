//! Target `tables`: the bytes are a table that a user or a command writes: hosts, rank map, clocks,
//! placement, trace.

use crate::{crosscheck, sample_profiles};
use ibscope::crosscheck::{Placement, table};
use ibscope::pipeline::{self, AnalysisOptions, EndpointInfo};
use std::collections::BTreeSet;
use std::path::Path;

/// Parses the bytes as each of the tables, and applies those that parse.
///
/// # Panics
/// If an error does not name its file, or clocks do not parse as written.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let path = Path::new("table.csv");
    let named = |error: String| assert!(error.contains("table.csv") && error.len() < 1000, "{error}");
    match pipeline::parse_hosts(path, &text) {
        Ok(names) => {
            let endpoints = EndpointInfo { names, ..EndpointInfo::default() };
            adapted(&AnalysisOptions { endpoints, ..AnalysisOptions::default() });
        }
        Err(error) => named(error.to_string()),
    }
    match pipeline::parse_rankmap(path, &text) {
        Ok(rows) => adapted(&AnalysisOptions { rankmap: Some(rows), ..AnalysisOptions::default() }),
        Err(error) => named(error.to_string()),
    }
    if let Ok(clocks) = pipeline::parse_clocks(&text) {
        let rows: Vec<_> = clocks.iter().map(|(path, (clock, ns))| (path.display().to_string(), *clock, *ns)).collect();
        // A name with a carriage return does not survive reading line by line.
        if rows.iter().all(|(name, ..)| !name.contains('\r')) {
            assert_eq!(pipeline::parse_clocks(&pipeline::clocks_csv(&rows)).expect("clocks"), clocks);
        }
    }
    let ranks: BTreeSet<u32> = (0..4).collect();
    if let Err(error) = Placement::parse(path, &text, &ranks) {
        named(error.to_string());
    }
    if table::is_table(bytes) {
        match table::read(path, &text) {
            Ok(trace) => crosscheck::trace(&trace),
            Err(error) => named(error.to_string()),
        }
    }
}

/// Renders a profile with the data of the table.
fn adapted(options: &AnalysisOptions) {
    let mut profile = sample_profiles::PLAIN.clone();
    if pipeline::adapt(&mut profile, options).is_ok() {
        let _ = ibscope::render::ranks::ranks_table(&profile, Some(80));
        let matrix = ibscope::analysis::matrix::matrix;
        let _ = matrix(&profile, ibscope::analysis::GroupBy::Rank, ibscope::analysis::matrix::Selection::All).total();
    }
}
