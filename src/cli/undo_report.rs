//! The report of an undone capture run as text, for `ibscope capture` and `ibscope hook sweep`.

use crate::model::count_of;
use ibscope_orchestrator::undo::UndoReport;
use std::fmt::Write as _;

pub(super) fn undone_text(undone: &UndoReport) -> String {
    let mut text = String::new();
    let job = undone.job_id;
    for capture in &undone.captures {
        let file = capture.fetched.as_ref().map_or(&capture.file, |fetched| &fetched.file);
        let counted = capture.ended.as_ref().and_then(|ended| ended.counted);
        let packets =
            counted.map_or("an unknown number of packets".to_owned(), |counted| count_of(counted.packets, "packet"));
        let part = capture.part_text();
        _ = writeln!(text, "job {job}: {}: {part}{packets} in {}", capture.node, file.display());
        for remark in capture.ended.iter().flat_map(|ended| &ended.remarks) {
            _ = writeln!(text, "job {job}: {}: {remark}", capture.node);
        }
    }
    if let Some(manifest) = &undone.manifest {
        _ = writeln!(text, "job {job}: manifest {}", manifest.display());
    }
    if let Some(warning) = undone.unverified_text() {
        _ = writeln!(text, "job {job}: {warning}");
    }
    _ = match (undone.left.is_empty(), undone.is_restored) {
        (true, _) => writeln!(text, "job {job}: undone"),
        (false, true) => writeln!(text, "job {job}: all captures and mirrors are stopped, but:"),
        (false, false) => writeln!(text, "job {job}: NOT everything is undone:"),
    };
    for left in &undone.left {
        _ = writeln!(text, "  - {left}");
    }
    text
}
