//! The address of the report holds the state of the page.

use super::{has_browser, look, pictures, report_of_sample};
use std::path::Path;

#[test]
fn a_reload_keeps_the_state_of_the_page() {
    if !has_browser() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let page = report_of_sample(folder.path());
    let seen = look(&[Path::new("--state"), &page, &pictures()]);
    assert_eq!(seen["complaints"], serde_json::json!([]));
    assert_eq!(seen["new"]["address"], "", "a new page has no fragment");
    let (new, chosen, reloaded) = (&seen["new"], &seen["chosen"], &seen["reloaded"]);
    for (name, value) in [("by", "endpoint"), ("unit", "packets"), ("order", "traffic"), ("scaling", "log")] {
        assert_eq!(chosen["choices"][name], value);
        assert_ne!(new["choices"][name], value, "{name} was chosen");
    }
    assert!(
        chosen["command"].as_str().is_some_and(|text| text.contains("--from") && text.contains("--to")),
        "{chosen}"
    );
    assert_eq!(chosen, reloaded);
    assert_eq!(seen["linked"]["choices"], chosen["choices"]);
    let address = seen["linked"]["address"].as_str().expect("address");
    assert!(address.starts_with("#sizes?") && address.contains("unit=packets"), "{address}");
    assert_eq!(seen["foreign"]["choices"], new["choices"]);
}
