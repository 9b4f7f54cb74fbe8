//! Recorded runs, distorted as real fabrics and recorders distort captures. The result must have no
//! wrong rank, no pair above the truth, and no shortfall without a mark.
//!
//! A test run takes a few cases of each class, `make soak` all of them. Every case depends only on
//! its class and number. Environment:
//!
//! | variable | effect |
//! |---|---|
//! | `IBSCOPE_HARD_ONLY=late-start-17` | run this case or class, and print the failures |
//! | `IBSCOPE_HARD_KEEP=folder` | keep captures and truth of the cases in this folder |
//! | `IBSCOPE_HARD_SHARE=4` | run a quarter of all cases |
//! | `IBSCOPE_HARD_SEED=7` | draw the cases of lossy sinks from this seed |

mod cases;
mod check;
mod library;
mod report;
mod rotation;
mod scene;
mod sinks;

use cases::CaseClass;
use check::CaseOutcome;
use ibscope::pipeline::{AnalysisOptions, DigestChoice, analyze};
use library::Library;
use report::ReportRow;
use scene::Scene;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The allocator of the program. With the system's allocator, half of the time is spent in page
/// faults.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of cases at the same time; each analysis has one thread.
const THREADS: usize = 2;

/// Calls `work` for each item on this many threads.
pub(crate) fn in_parallel<T: Sync>(items: &[T], threads: usize, work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

/// One case: a class and a number.
#[derive(Clone, Copy)]
struct HardCase {
    class: &'static CaseClass,
    number: usize,
}

impl HardCase {
    fn name(&self) -> String {
        format!("{}-{}", self.class.name, self.number)
    }

    /// Builds the captures, analyzes them and compares the result with the truth.
    fn run(&self, library: &Library, keep: Option<&Path>) -> ReportRow {
        let scene = self.class.scene(library, self.number);
        let outcome = match keep {
            Some(folder) => {
                let own = folder.join(self.name());
                let outcome = analyzed(&scene, &own);
                scene.write_truth(&own);
                outcome
            }
            None => analyzed(&scene, tempfile::tempdir().expect("folder").path()),
        };
        ReportRow { class: self.class.name, case: self.name(), about: scene.about, outcome }
    }
}

fn analyzed(scene: &Scene, folder: &Path) -> CaseOutcome {
    let paths = scene.write(folder);
    let digests = DigestChoice { xxh3: false, sha256: false };
    let options = AnalysisOptions { threads: 1, digests, ..AnalysisOptions::default() };
    let failed = |why: String, complete: bool| CaseOutcome { failed: vec![why], complete, ..CaseOutcome::default() };
    match std::panic::catch_unwind(|| analyze(&paths, &options, &|_| {})) {
        Ok(Ok(profile)) => check::check(scene, &profile),
        Ok(Err(error)) => failed(error.to_string(), scene.complete),
        Err(_) => failed("panic".to_owned(), true),
    }
}

/// Runs `count` cases of each class; returns the rows and the report.
fn run(count: impl Fn(&CaseClass) -> usize) -> (Vec<ReportRow>, String) {
    let library = Library::open(THREADS);
    let only = std::env::var("IBSCOPE_HARD_ONLY").ok();
    let keep = std::env::var_os("IBSCOPE_HARD_KEEP").map(PathBuf::from);
    let numbers = |class: &'static CaseClass| (0..count(class)).map(move |number| HardCase { class, number });
    let mut cases: Vec<HardCase> = cases::ALL.iter().flat_map(numbers).collect();
    if let Some(only) = &only {
        let named = |case: &HardCase| case.name() == *only || case.class.name == *only;
        cases =
            cases::ALL.iter().flat_map(|class| (0..class.all).map(move |number| HardCase { class, number })).collect();
        cases.retain(named);
        assert!(!cases.is_empty(), "there is no case or class {only}");
    }
    let rows = Mutex::new(Vec::new());
    in_parallel(&cases, THREADS, |case| {
        let row = case.run(&library, keep.as_deref());
        rows.lock().expect("rows").push(row);
    });
    let mut rows = rows.into_inner().expect("rows");
    rows.sort_by(|a, b| (a.class, &a.case).cmp(&(b.class, &b.case)));
    let text = report::text(&library, &rows, only.is_some());
    (rows, text)
}

/// Only the classes that are marked as open in [`cases`] may fail.
fn assert_only_open_classes_fail(rows: &[ReportRow]) {
    let unexpected: Vec<String> = rows
        .iter()
        .filter(|row| !cases::class(row.class).is_open)
        .flat_map(|row| row.failures().map(|(kind, text)| format!("{}: {kind}: {text}", row.case)))
        .collect();
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

#[test]
fn a_few_of_each_class() {
    let (rows, text) = run(|class| class.few);
    println!("{text}");
    assert_only_open_classes_fail(&rows);
}

#[test]
#[ignore = "takes minutes; `make soak` runs it"]
fn all_cases() {
    let share: usize = std::env::var("IBSCOPE_HARD_SHARE").map_or(1, |text| text.parse().expect("a number"));
    let (rows, text) = run(|class| class.all.div_ceil(share));
    println!("{text}");
    assert_only_open_classes_fail(&rows);
}

/// A run whose analysis does not give its truth would drop out of all cases.
#[test]
fn every_run_with_a_truth_is_used() {
    let library = Library::open(THREADS);
    let refused: Vec<&(String, String)> = library.refused.iter().filter(|(_, why)| why != "no truth").collect();
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!((library.jobs.len(), library.storage.len()), (40, 2));
}

#[test]
fn there_are_enough_cases_and_class_names_are_unique() {
    assert!(cases::ALL.iter().map(|class| class.all).sum::<usize>() >= 20_000);
    let names: std::collections::BTreeSet<&str> = cases::ALL.iter().map(|class| class.name).collect();
    assert_eq!(names.len(), cases::ALL.len());
}
