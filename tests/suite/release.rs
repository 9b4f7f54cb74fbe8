//! Promises of a release about its build: all dependencies support the oldest Rust, and manual and
//! completions contain every command. `make release-check` has the slow checks.

use crate::python::run;
use crate::tools::{ibscope, listed_commands};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// `1.95` or `1.95.0` as numbers.
fn version(text: &str) -> Vec<u32> {
    let mut parts: Vec<u32> = text.split('.').map(|part| part.parse().expect("number")).collect();
    parts.resize(3, 0);
    parts
}

#[test]
fn no_dependency_wants_a_newer_rust() {
    let mut command = Command::new(env!("CARGO"));
    // Dependencies of other systems may be missing.
    command.args([
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--offline",
        "--filter-platform",
        "x86_64-unknown-linux-gnu",
    ]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let metadata: Value = serde_json::from_str(&run(&mut command, "cargo fetch --locked")).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let own = packages.iter().find(|package| package["name"] == "ibscope").expect("ibscope");
    let own = version(own["rust_version"].as_str().expect("version"));
    let mut stated = 0;
    for package in packages {
        if let Some(wanted) = package["rust_version"].as_str() {
            assert!(version(wanted) <= own, "{} wants Rust {wanted}", package["name"]);
            stated += 1;
        }
    }
    assert!(stated > 50, "{stated}");
}

/// Commands and subcommands, as the help lists them.
fn commands(above: &[&str]) -> Vec<String> {
    let help = ibscope(above.iter().chain(&["--help"])).stdout;
    let mut found = Vec::new();
    for name in listed_commands(&help).iter().filter(|name| *name != "help") {
        let words = [above, &[name.as_str()]].concat();
        found.push(words.join("-"));
        found.extend(commands(&words));
    }
    found
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("man1");
    let ran = ibscope(["manual", place.to_str().expect("path")]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    let mut pages: Vec<String> = fs::read_dir(&place)
        .expect("pages")
        .map(|entry| entry.expect("entry").file_name().into_string().expect("name"))
        .collect();
    pages.sort();
    let mut wanted: Vec<String> = commands(&[]).into_iter().map(|name| format!("ibscope-{name}.1")).collect();
    wanted.push("ibscope.1".to_owned());
    wanted.sort();
    assert!(wanted.len() > 30, "{wanted:?}");
    assert_eq!(pages, wanted);
    for page in pages {
        let text = fs::read_to_string(place.join(&page)).expect("page");
        assert!(text.contains("EXIT STATUS"), "{page}");
        let title = format!(".TH {} 1", page.trim_end_matches(".1"));
        assert!(text.contains(&title), "{page}: no {title}");
    }
    // A file is in the way.
    let file = folder.path().join("file");
    fs::write(&file, "").expect("file");
    let ran = ibscope(["manual", file.to_str().expect("path")]);
    assert!(ran.code == 1 && ran.stderr.contains("file: cannot be written"), "{}", ran.stderr);
}

/// `docs/commands.md` and the manual have the same exit codes.
#[test]
fn exit_codes_are_the_same_everywhere() {
    let folder = tempfile::tempdir().expect("folder");
    assert_eq!(ibscope(["manual", folder.path().to_str().expect("path")]).code, 0);
    let page = fs::read_to_string(folder.path().join("ibscope.1")).expect("page");
    let status = page.split("EXIT STATUS").nth(1).and_then(|rest| rest.split(".SH").next()).expect("section");
    let in_manual: Vec<&str> = status.split(".TP\n").skip(1).filter_map(|entry| entry.lines().next()).collect();
    let place = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md");
    let text = fs::read_to_string(place).expect("document");
    let table = text.split("## Exit codes").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("table");
    let rows = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| code"));
    let documented: Vec<&str> = rows.filter_map(|line| line.split('|').nth(1)).map(str::trim).collect();
    assert_eq!(in_manual, documented);
    assert!(documented.len() >= 5, "{documented:?}");
}

#[test]
fn bash_completes_commands_options_and_values() {
    let folder = tempfile::tempdir().expect("folder");
    let script = folder.path().join("ibscope.bash");
    fs::write(&script, ibscope(["completions", "bash"]).stdout).expect("script");
    let complete = r#". "$0"; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
        _ibscope ibscope "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; echo "${COMPREPLY[@]}""#;
    for (typed, completed) in [
        ("ibscope mat", "matrix"),
        ("ibscope matrix --traf", "--traffic"),
        ("ibscope matrix --traffic col", "collective"),
        ("ibscope capture self", "selftest"),
    ] {
        let mut command = Command::new("bash");
        command.args(["-c", complete]).arg(&script).arg(typed);
        assert_eq!(run(&mut command, "bash").trim(), completed, "{typed}");
    }
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let ran = ibscope(["completions", shell]);
        assert!(ran.code == 0 && ran.stdout.contains("crosscheck"), "{shell}");
    }
}
