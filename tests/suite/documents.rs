//! The commands of README.md and of the documents in docs/ run as written, each document in a
//! folder of its own, and print the output that the document shows. `IBSCOPE_BLESS=1` writes their
//! output into the documents; read it before you commit it.

mod parse;
mod scratch;

use crate::tools::ibscope;
use parse::{DocumentPart, parts};
use scratch::DocumentFolder;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a document from start to end.
fn run(name: &str) {
    let place = root().join(name);
    let text = fs::read_to_string(&place).expect("document");
    let scratch = DocumentFolder::new();
    let (mut printed, mut wrong) = (Vec::new(), Vec::new());
    let parts = parts(&text);
    assert!(!parts.is_empty(), "{name} has no commands");
    for part in &parts {
        wrong.extend(scratch.part(part, &mut printed).err());
    }
    if std::env::var_os("IBSCOPE_BLESS").is_some() && !printed.is_empty() {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (at, own) in printed.into_iter().rev() {
            lines.splice(at, own.lines().map(|line| line.trim_end().to_owned()));
        }
        fs::write(&place, lines.join("\n") + "\n").expect("document");
    }
    assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
}

/// Declares a test for each document, and the list of documents.
macro_rules! documents {
    ($($test:ident $name:literal)*) => {
        $(#[test]
        fn $test() {
            run($name);
        })*

        const RUN: &[&str] = &[$($name),*];
    };
}

documents! {
    readme_runs "README.md"
    tutorial_runs "docs/tutorial.md"
    post_mortem_runs "docs/post-mortem.md"
    slurm_runs "docs/slurm.md"
    cross_check_runs "docs/cross-check.md"
    watch_runs "docs/watch.md"
    exports_run "docs/exports.md"
    figures_run "docs/figures.md"
    commands_run "docs/commands.md"
    columns_run "docs/columns.md"
    analyses_run "docs/analyses.md"
    method_runs "docs/method.md"
    samples_run "samples/README.md"
    notebooks_run "notebooks/README.md"
}

/// README.md and all documents in docs/.
fn all() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("docs")).expect("docs").map(|entry| entry.expect("entry").path());
    let documents = entries.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let names = documents.map(|path| format!("docs/{}", path.file_name().expect("name").to_string_lossy()));
    names.chain(["README.md".to_owned()]).collect()
}

/// Documents without a test of their own run too.
#[test]
fn others_run() {
    for name in all().iter().filter(|name| !RUN.contains(&name.as_str())) {
        if !parts(&fs::read_to_string(root().join(name)).expect("document")).is_empty() {
            run(name);
        }
    }
}

/// All files in a folder with this extension.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path, ending) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|own| own == ending))
        .collect()
}

#[test]
fn blocks_that_do_not_run_name_the_test_that_covers_them() {
    let tests: String =
        files(&root().join("tests"), "rs").iter().map(|path| fs::read_to_string(path).expect("test")).collect();
    let makefile = fs::read_to_string(root().join("Makefile")).expect("Makefile");
    let mut seen = 0;
    for name in all().into_iter().chain(RUN.iter().map(|&name| name.to_owned())) {
        for part in parts(&fs::read_to_string(root().join(&name)).expect("document")) {
            let DocumentPart::NotRun { line, covered_by } = part else { continue };
            for covering in &covered_by {
                let exists = match covering.strip_prefix("make ") {
                    Some(target) => makefile.lines().any(|line| line.starts_with(&format!("{target}:"))),
                    None => tests.contains(&format!("fn {covering}(")),
                };
                assert!(exists, "{name}: line {line}: there is no `{covering}`");
                seen += 1;
            }
        }
    }
    assert!(seen > 0);
}

#[test]
fn every_command_has_its_help_in_the_document() {
    let help = ibscope(["--help"]).stdout;
    let (commands, _) = help.split_once("\nOptions:").expect("options after the commands");
    let (_, commands) = commands.split_once("Usage: ").expect("usage");
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let names: Vec<&str> = names.filter(|name| *name != "help").collect();
    assert!(names.len() > 25, "{names:?}");
    let document = fs::read_to_string(root().join("docs/commands.md")).expect("document");
    for name in names {
        assert!(document.contains(&format!("\n$ ibscope {name} --help\n")), "{name}");
    }
}

/// Local targets of links in documents exist.
#[test]
fn link_targets_exist() {
    let more = ["CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(str::to_owned);
    for name in all().into_iter().chain(more) {
        let text = fs::read_to_string(root().join(&name)).expect("document");
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split(')').next().expect("end");
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if target.contains("://") {
                continue;
            }
            let own = root().join(&name);
            let place = if file.is_empty() { own } else { own.with_file_name("").join(file) };
            assert!(place.exists(), "{name}: {target} does not exist");
            if !anchor.is_empty() {
                let other = fs::read_to_string(&place).expect("document");
                assert!(
                    other.lines().any(|line| heading(line).is_some_and(|own| own == anchor)),
                    "{name}: {target} does not exist"
                );
            }
        }
    }
}

/// The anchor of a heading, as Markdown viewers make it.
fn heading(line: &str) -> Option<String> {
    let text = line.strip_prefix('#')?.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|&c| c.is_alphanumeric() || c == ' ' || c == '-' || c == '_');
    Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect())
}

#[test]
fn lines_fit_as_shown() {
    let own = |shown: &[&str], printed: &[&str]| {
        parse::matches_output(&shown.iter().map(|&line| line.to_owned()).collect::<Vec<_>>(), printed)
    };
    assert!(own(&["a", "...", "z"], &["a", "b", "c", "z"]) && own(&["..."], &[]));
    assert!(own(&["took [..] s, [..] bytes"], &["took 3 s, 17 bytes"]));
    assert!(!own(&["a"], &["a", "b"]) && !own(&["a", "...", "z"], &["a", "b"]) && !own(&["a [..] c"], &["a b"]));
    assert!(!own(&["a"], &["ab"]) && !own(&["[..]b"], &["a"]));
}
