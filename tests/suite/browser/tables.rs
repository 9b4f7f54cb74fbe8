//! Tables of the report: a person sorts and filters their rows, and the address keeps both.

use super::{has_browser, look, pictures, report_of_sample};
use serde_json::json;

#[test]
fn tables_are_sorted_and_filtered() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let page = report_of_sample(folder.path());
    let seen = look(&["--tables".as_ref(), &page, &pictures()]);
    assert_eq!(seen["complaints"], json!([]), "the console is silent");
    let rows = |state: &str| -> Vec<Vec<String>> { serde_json::from_value(seen[state].clone()).expect("rows") };
    let samples = |state: &str| -> Vec<u64> {
        let number = |row: &Vec<String>| row[3].replace('\u{202f}', "").parse().expect("number");
        rows(state).iter().map(number).collect()
    };
    let new = rows("new");
    assert!(new.len() > 50);
    // By value: as texts, 1 234 would be before 2.
    let mut expected = samples("new");
    expected.sort_unstable();
    assert_eq!(samples("up"), expected);
    expected.reverse();
    assert_eq!(samples("down"), expected);
    // Both words of the filter, the second one in its column only.
    let is_found = |row: &&Vec<String>| row.join(" ").to_lowercase().contains("ack") && row[1] == "SEND";
    let found: Vec<Vec<String>> = rows("down").iter().filter(is_found).cloned().collect();
    assert!(!found.is_empty() && found.len() < new.len());
    assert_eq!(rows("filtered"), found);
    assert_eq!(seen["count"], format!("{} of {} rows", found.len(), new.len()));
    assert!(seen["address"].as_str().expect("address").contains("table=latency-table.3.d.ack"), "{}", seen["address"]);
    assert_eq!(rows("reloaded"), found);
    assert_eq!(rows("again"), new, "the third click restores the order");
    assert_eq!(seen["last address"], "");
}
