//! Each type name has one definition in the workspace, so that a search for it has one result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Associated types of traits of the standard library and of nom. They have no meaning of their
/// own.
const ASSOCIATED: [&str; 5] = ["Err", "Error", "IntoIter", "Item", "Output"];

/// The name of the type that a line of code defines.
fn defined(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub")).peekable();
    // `pub(in crate::cli)` has a space.
    words.next_if(|word| word.starts_with("crate"));
    let is_definition = matches!(words.next()?, "struct" | "enum" | "trait" | "type" | "union");
    let name = words.next().filter(|_| is_definition)?;
    let name = name.split(|c: char| !c.is_alphanumeric()).next()?;
    name.starts_with(|c: char| c.is_uppercase()).then_some(name)
}

#[test]
fn definitions_are_recognized() {
    assert_eq!(defined("pub(in crate::cli) struct Source<'a> {"), Some("Source"));
    assert_eq!(defined("    enum Place;"), Some("Place"));
    assert_eq!(defined("type Names = BTreeSet<String>;"), Some("Names"));
    assert_eq!(defined("// struct Old"), None);
    assert_eq!(defined("let enum_name = 1;"), None);
}

#[test]
fn each_type_name_has_one_definition() {
    let folders = ["src", "orchestrator/src", "parsers/src", "crc/src", "samples/src", "fuzz/src", "benches"];
    let files = folders.into_iter().flat_map(|folder| super::sources(&super::root().join(folder)));
    let is_test = |path: &Path| path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
    let mut places: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in files.filter(|path| !is_test(path)) {
        let text = std::fs::read_to_string(&path).expect("source");
        for name in text.lines().filter_map(defined).filter(|name| !ASSOCIATED.contains(name)) {
            places.entry(name.to_owned()).or_default().push(path.clone());
        }
    }
    assert!(places.len() > 800, "{} types", places.len());
    let several: Vec<_> = places.iter().filter(|(_, paths)| paths.len() > 1).collect();
    assert!(several.is_empty(), "{several:#?}");
}
