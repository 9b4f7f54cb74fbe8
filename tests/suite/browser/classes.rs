//! The timeline of the report, stacked by class.

use super::{has_browser, look, pictures};
use crate::runs;
use crate::tools::{csv_rows, result};
use serde_json::json;

/// The sums that the page draws for each class of a recorded run are those of `matrix --class`.
#[test]
fn the_timeline_is_stacked_by_class() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let page = folder.path().join("classes.html");
    let capture = runs::of_second_set("mixed-mpi-plus-nfs").sink();
    result(&["report", "-o", page.to_str().expect("path")], &[&capture]);
    let seen = look(&["--classes".as_ref(), &page, &pictures()]);
    assert_eq!(seen["complaints"], json!([]), "the console is silent");
    // MPI messages have no classes.
    assert_eq!(seen["mpi-bytes"]["series"].as_array().expect("series").len(), 1);
    assert!(seen["mpi-bytes"]["note"].as_str().expect("note").contains("to see the traffic of each class"));
    for (unit, column) in [("wire-bytes", "wire_bytes"), ("payload-bytes", "payload_bytes"), ("packets", "packets")] {
        let own = &seen[unit];
        assert!(own["title"].as_str().expect("title").ends_with("over time by class"), "{own}");
        let series = own["series"].as_array().expect("series");
        let names: Vec<&str> = series.iter().filter_map(|row| row[0].as_str()).collect();
        // The area of a later series covers a part of the one before it. MPI sent more than NFS.
        assert_eq!(names, ["nfs", "mpi"]);
        let sum_of = |class: &str| -> i64 {
            let arguments = ["matrix", "--by", "endpoint", "--class", class, "--format", "csv"];
            let cells = csv_rows(&result(&arguments, &[&capture]));
            cells.iter().map(|cell| cell[column].parse::<i64>().expect("number")).sum()
        };
        let sums = names.iter().map(|class| sum_of(class)).collect::<Vec<_>>();
        for (at, row) in series.iter().enumerate() {
            // The page draws rates.
            for (place, sum) in [(1, sums[at]), (2, sums[at..].iter().sum())] {
                let drawn = row[place].as_i64().expect("sum");
                assert!((drawn - sum).abs() <= 1, "{unit}: {row}, not {sum}");
            }
        }
    }
}
