//! The rules of accessibility that axe-core checks.

use super::{has_browser, look, pictures, place, report_of_sample};
use crate::runs;
use crate::tools::result;
use serde_json::json;
use std::path::Path;

/// No rule is violated, in either theme, on a wide and on a narrow window.
fn assert_accessible(page: &Path) {
    let seen = look(&["--axe".as_ref(), page, &pictures()]);
    assert_eq!(seen["complaints"], json!([]), "the console is silent");
    for shown in ["light 1280", "light 390", "dark 1280", "dark 390"] {
        let found = &seen[shown];
        assert_eq!(found["violations"], json!([]), "{}: {shown}", page.display());
        assert!(found["passes"].as_u64().is_some_and(|rules| rules > 10), "{found}");
    }
}

#[test]
fn the_report_of_a_profile_violates_no_rule_of_accessibility() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    assert_accessible(&report_of_sample(folder.path()));
}

/// The page of captures with losses, collective operations, another run and a trace.
#[test]
fn the_report_of_captures_violates_no_rule_of_accessibility() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let [other, compared, traced] = ["other.ibp", "compared.html", "traced.html"].map(|name| folder.path().join(name));
    result(&["analyze", "-o", place(&other)], &[runs::named("ompi-rc-ring2").sink()]);
    let lossy = runs::named("ompi-rc-loss1-ring2").sink();
    result(&["report", "-o", place(&compared), "--compare", place(&other)], &[&lossy]);
    assert_accessible(&compared);
    let run = runs::named("scorep-ompi-rc-coll-4x1");
    let trace = run.folder.join("trace/traces.otf2");
    result(&["report", "-o", place(&traced), "--trace", place(&trace)], &[run.sink()]);
    assert_accessible(&traced);
}
