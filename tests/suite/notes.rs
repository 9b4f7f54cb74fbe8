//! Notes are printed once per analysis: by `analyze`, `summary` and commands that read captures.

use crate::tools::{ibscope, sample};

/// Commands on a profile print one line that points to the notes, with the verdict.
#[test]
fn commands_on_a_profile_point_to_the_notes_in_one_line() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("job.ibp");
    let place = place.to_str().expect("path");
    let capture = sample("openib-mixed-4x1");
    let capture = capture.to_str().expect("path");
    let limited = ["--max-connections", "20"];
    let ran = ibscope([&["analyze", "-o", place, capture][..], &limited].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let summary = ibscope(["summary", place]).stdout;
    assert!(summary.contains("--max-connections 20: "), "{summary}");
    let lines =
        |text: &str| text.lines().filter(|line| line.starts_with("note: ")).map(str::to_owned).collect::<Vec<_>>();
    for command in ["matrix", "timeline", "ranks", "collectives", "health", "rates", "phases", "paths"] {
        let on_profile = lines(&ibscope([command, place]).stderr);
        let pointers = on_profile.iter().filter(|line| line.contains(&format!("`ibscope summary {place}` shows ")));
        assert_eq!(pointers.count(), 1, "{command}: {on_profile:?}");
        assert!(!on_profile.iter().any(|line| line.contains("--max-connections")), "{command}: {on_profile:?}");
        let on_capture = lines(&ibscope([&[command, capture][..], &limited].concat()).stderr);
        assert!(on_capture.iter().any(|line| line.contains("--max-connections 20: ")), "{command}: {on_capture:?}");
    }
    // Two profiles: one line for each.
    let compared = lines(&ibscope(["compare", place, place]).stderr);
    assert_eq!(compared.iter().filter(|line| line.contains("`ibscope summary ")).count(), 2, "{compared:?}");
}
