//! Bytes as the tables that a user writes or that a command has written: names, ranks, clocks, placements, traces.

use crate::{base, checked};
use ibscope::crosscheck::{Placement, table};
use ibscope::pipeline::{self, Options};
use std::collections::BTreeSet;
use std::path::Path;

/// Read as each of them, and used where it can be.
///
/// # Panics
/// Where an error does not name its file, or clocks do not come back as they were written.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let path = Path::new("table.csv");
    let named = |error: String| assert!(error.contains("table.csv") && error.len() < 1000, "{error}");
    match pipeline::parse_hosts(path, &text) {
        Ok(names) => adapted(&Options { names, ..Options::default() }),
        Err(error) => named(error.to_string()),
    }
    match pipeline::parse_rankmap(path, &text) {
        Ok(rows) => adapted(&Options { rankmap: Some(rows), ..Options::default() }),
        Err(error) => named(error.to_string()),
    }
    if let Ok(clocks) = pipeline::parse_clocks(&text) {
        let rows: Vec<_> = clocks.iter().map(|(path, (clock, ns))| (path.display().to_string(), *clock, *ns)).collect();
        // A name may hold what ends a line for one that reads lines.
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
            Ok(trace) => checked::trace(&trace),
            Err(error) => named(error.to_string()),
        }
    }
}

/// A profile shown with what the table says.
fn adapted(options: &Options) {
    let mut profile = base::PLAIN.clone();
    if pipeline::adapt(&mut profile, options).is_ok() {
        let _ = ibscope::render::ranks::ranks_table(&profile);
        let matrix = ibscope::analysis::matrix::matrix;
        let _ = matrix(&profile, ibscope::analysis::By::Rank, ibscope::analysis::matrix::Selection::All).total();
    }
}
