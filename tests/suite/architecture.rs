//! The import rules: the table of allowed imports in ARCHITECTURE.md compared with the imports of
//! the code, no import cycles, and one definition of each type name.

mod cycles;
mod type_names;

use cycles::Crate;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Rows `| from | to, to |` of the table under "Allowed imports".
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let section = text.split("## Allowed imports").nth(1).expect("the table").split("\n## ").next().expect("section");
    let names = |cell: &str| -> BTreeSet<String> {
        cell.split(',').map(|name| name.trim().trim_matches('`').to_owned()).filter(|name| !name.is_empty()).collect()
    };
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let from = names(cells.first()?).pop_first()?;
        Some((from, names(cells.get(1)?)))
    };
    section.lines().filter(|line| line.starts_with("| `")).filter_map(row).collect()
}

/// Every `NAME` in a path `PREFIX::NAME` of the code, without comments.
fn named_after(prefix: &str, text: &str) -> BTreeSet<String> {
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| [line, "\n"]).collect();
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        if let Some(group) = rest.strip_prefix('{') {
            // `use crate::{a, b::c}`: the first name of each part of the outermost braces.
            let mut depth = 0;
            let mut part = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        found.insert(name(std::mem::take(&mut part).trim()));
                    }
                    _ if depth == 0 => part.push(c),
                    _ => {}
                }
            }
            found.insert(name(part.trim()));
        } else {
            found.insert(name(rest));
        }
    }
    found.remove("");
    found
}

#[test]
fn stages_import_only_what_the_table_allows() {
    let allowed = allowed();
    let mut modules = BTreeSet::new();
    let mut faults = Vec::new();
    for path in sources(&root().join("src")) {
        let inside = path.strip_prefix(root().join("src")).expect("below src");
        let module = inside.components().next().expect("component").as_os_str().to_string_lossy().replace(".rs", "");
        if module == "lib" || module == "main" {
            continue;
        }
        modules.insert(module.clone());
        let text = std::fs::read_to_string(&path).expect("source");
        let mut imports = named_after("crate::", &text);
        for (name, row) in [
            ("ibscope_parsers::", "parsers"),
            ("ibscope_orchestrator::", "orchestrator"),
            ("polars::", "polars"),
            ("polars_parquet_format::", "polars"),
        ] {
            if !named_after(name, &text).is_empty() {
                imports.insert(row.to_owned());
            }
        }
        let permitted = allowed.get(&module).unwrap_or_else(|| panic!("{module} is not in the table"));
        for import in imports.into_iter().filter(|import| *import != module && !permitted.contains(import)) {
            faults.push(format!("{}: {module} may not use {import}", inside.display()));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    let listed: BTreeSet<String> =
        allowed.into_keys().filter(|name| !["parsers", "orchestrator"].contains(&name.as_str())).collect();
    assert_eq!(modules, listed, "the table lists the modules that there are");
}

#[test]
fn parsers_and_orchestrator_import_no_other_crate() {
    for path in sources(&root().join("parsers/src")) {
        let text = std::fs::read_to_string(&path).expect("source");
        assert!(
            named_after("std::", text.split("#[cfg(test)]").next().expect("code")).is_empty(),
            "{}",
            path.display()
        );
        assert!(!text.contains("ibscope_orchestrator"), "{}", path.display());
    }
    for path in sources(&root().join("orchestrator/src")) {
        let text = std::fs::read_to_string(&path).expect("source");
        let used = named_after("ibscope_parsers::", &text);
        assert!(used.is_subset(&BTreeSet::from(["tools".to_owned()])), "{}: {used:?}", path.display());
    }
}

/// Two modules with the same parent, files or folders, never import each other, directly or through
/// other modules. An import is a `use`, or a path in the code, that begins with `crate`, `self`,
/// `super` or a module that the file declares. It counts as an import of the module that defines
/// the item, even if the path names a re-export. An import by a file in a folder also counts as an
/// import by the folder.
///
/// Declarations of modules, re-exports, code compiled for tests only, and imports between a module
/// and its submodules do not count: in most folders the parent holds the types of its children and
/// calls them.
#[test]
fn no_modules_import_each_other() {
    for folder in ["src", "parsers/src", "orchestrator/src", "samples/src", "fuzz/src"] {
        let cycles = Crate::read(&root().join(folder)).cycles();
        assert!(cycles.is_empty(), "{folder}: {cycles:#?}");
    }
}

#[test]
fn cycles_are_found_through_re_exports_and_folders() {
    let cycles = |files: &[(&str, &str)]| {
        let module = |name: &str| name.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Crate::of(files.iter().map(|(name, text)| (module(name), (*text).to_owned())).collect()).cycles()
    };
    let root = ("", "mod a;\nmod b;\npub use b::{Thing, other::{self, X as Y}};\n");
    let a = ("a", "pub fn a() {}\n");
    // By a re-export, by a path in the code, by an alias, and from a file deep in a folder.
    let uses =
        ["use crate::Thing;", "fn f() { let _ = crate::b::f; }", "use super::Y;", "use {super::b as c, std::fmt};"];
    for own in uses {
        let files = [root, ("a", own), ("b", "mod other;\npub struct Thing;"), ("b/other", "use crate::a::a;")];
        let expected = ["a imports", "b/other imports crate::a::a"];
        let found = cycles(&files);
        assert_eq!(found.len(), 2, "{own}: {found:?}");
        assert!(found.iter().zip(expected).all(|(found, expected)| found.starts_with(expected)), "{own}: {found:?}");
    }
    // None of these is an import of `b` by `a`.
    let others = [
        "// use crate::b;",
        "fn f() -> &'static str { \"crate::b::f\" }",
        "fn f() { let _ = ('\"', r#\"crate::b::\"x\"#, '\\'', \"\\\"crate::b::x\"); }",
        "#[cfg(test)]\nmod tests { use crate::b::Thing; fn f() {} }",
        "pub use crate::b::Thing;",
    ];
    for own in others {
        let files =
            [root, ("a", own), ("b", "mod other;\nuse crate::a;\nuse other::X;"), ("b/other", "use super::Thing;")];
        assert_eq!(cycles(&files), [""; 0], "{own}");
    }
    assert_eq!(cycles(&[root, a, ("b", "use crate::a::a;")]), [""; 0]);
}

#[test]
fn imports_are_found_in_every_way_of_writing_them() {
    let text = "use crate::model::{A, B};\nuse crate::{flow, reduce::{self, X}, ranks};\nlet x = crate::input::open();\n// crate::cli\n";
    let expected = ["flow", "input", "model", "ranks", "reduce"].map(str::to_owned);
    assert_eq!(named_after("crate::", text), BTreeSet::from(expected));
}
