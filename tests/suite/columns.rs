//! `docs/columns.md` held against what the program writes: every csv of every command and view, the members of every JSON, `profile.json`
//! and the Parquet tables. Each heading says what it is of; tables below it name columns, in their first cells.

use crate::runs;
use crate::tools::{ibscope, listed_commands, sample};
use polars::prelude::{ParquetReader, SerReader as _};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Names = BTreeSet<String>;

/// What a section defines.
#[derive(Default)]
struct Section {
    /// Names that must be there, and those that may be.
    always: Names,
    sometimes: Names,
    /// Objects whose keys are data.
    maps: Names,
    /// Sections whose names may be there as well.
    others: Vec<String>,
    /// They are all there: the section says so of one csv with one more column.
    text: String,
}

fn document() -> BTreeMap<String, Section> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/columns.md")).expect("document");
    let mut sections: BTreeMap<String, Section> = BTreeMap::new();
    for part in text.split("\n### ").skip(1) {
        let part = part.split("\n## ").next().expect("section");
        let (heading, body) = part.split_once('\n').expect("a heading ends");
        let heading =
            heading.strip_prefix('`').and_then(|heading| heading.strip_suffix('`')).expect("a heading in code");
        let mut section = Section { text: body.to_owned(), ..Section::default() };
        for line in body.lines() {
            let Some(cell) = line.strip_prefix("| `").and_then(|row| row.split(" |").next()) else {
                let quoted = line.split('`').skip(1).step_by(2);
                section
                    .others
                    .extend(quoted.filter(|name| name.contains(' ') || name.contains('.')).map(str::to_owned));
                continue;
            };
            let cell = format!("`{cell} ");
            let mut pieces = cell.split('`').skip(1);
            while let (Some(name), Some(behind)) = (pieces.next(), pieces.next()) {
                let plain = name.trim_end_matches("[]").trim_end_matches("{}").to_owned();
                if name.ends_with("{}") {
                    section.maps.insert(plain.clone());
                }
                if behind.starts_with('?') {
                    section.sometimes.insert(plain)
                } else {
                    section.always.insert(plain)
                };
            }
        }
        assert!(sections.insert(heading.to_owned(), section).is_none(), "{heading} stands there twice");
    }
    sections
}

/// Names that a section allows beside its own.
fn allowed(sections: &BTreeMap<String, Section>, section: &Section) -> Names {
    let mut names: Names = section.always.union(&section.sometimes).cloned().collect();
    for other in section.others.iter().filter_map(|other| sections.get(other)) {
        names.extend(allowed(sections, other));
    }
    names
}

/// Inputs of a command, and where it reads a trace that.
struct Inputs {
    folder: tempfile::TempDir,
}

impl Inputs {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let inputs = Self { folder };
        let made = ibscope([Path::new("analyze"), &sample("openib-mixed-4x1"), Path::new("-o"), &inputs.profile()]);
        assert_eq!(made.code, 0, "{}", made.stderr);
        inputs
    }

    fn profile(&self) -> PathBuf {
        self.folder.path().join("job.ibp")
    }

    /// What a command writes.
    fn written(&self, words: &[&str]) -> String {
        let run = runs::named("scorep-ompi-rc-halo-4x1");
        let inputs = match words[0] {
            "compare" => vec![self.profile(), self.profile()],
            "messages" | "inspect" => vec![sample("openib-mixed-4x1")],
            "crosscheck" if words[1] == "profile.cubex" => vec![run.sink(), run.folder.join("trace/profile.cubex")],
            "crosscheck" => vec![run.sink(), run.folder.join("trace/traces.otf2")],
            _ => vec![self.profile()],
        };
        let words = words.iter().filter(|word| **word != "profile.cubex").map(PathBuf::from);
        let ran = ibscope(words.chain(inputs));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    }
}

fn header(csv: &str) -> Names {
    csv.lines().next().expect("header").split(',').map(str::to_owned).collect()
}

/// All names of members, not those of objects whose keys are data.
fn members(value: &Value, maps: &Names, names: &mut Names) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                names.insert(name.clone());
                if !maps.contains(name) {
                    members(value, maps, names);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| members(value, maps, names)),
        _ => {}
    }
}

fn json(text: &str, maps: &Names) -> Names {
    let mut names = Names::new();
    serde_json::Deserializer::from_str(text)
        .into_iter::<Value>()
        .for_each(|value| members(&value.expect("JSON"), maps, &mut names));
    names
}

/// Holds names against a section: its own are all there, and there are no others.
fn hold(sections: &BTreeMap<String, Section>, heading: &str, names: &Names) {
    let section = &sections[heading];
    let missing: Vec<_> = section.always.difference(names).collect();
    assert!(missing.is_empty(), "{heading}: documented and not written: {missing:?}");
    let allowed = allowed(sections, section);
    let unknown: Vec<_> = names.difference(&allowed).collect();
    assert!(unknown.is_empty(), "{heading}: written and not documented: {unknown:?}");
}

fn words(heading: &str) -> Vec<&str> {
    heading.strip_prefix("ibscope ").expect("a command").split(' ').collect()
}

#[test]
fn every_csv_is_as_documented() {
    let (sections, inputs) = (document(), Inputs::new());
    let mut seen: BTreeMap<&str, Vec<Names>> = BTreeMap::new();
    for (heading, section) in sections.iter().filter(|(heading, _)| heading.ends_with("--format csv")) {
        let words = words(heading);
        let csv = inputs.written(&words);
        let names = header(&csv);
        if words[0] == "summary" {
            // Its names stand in rows: below.
            assert_eq!(csv.lines().next(), Some("name,value"));
        } else {
            hold(&sections, heading, &names);
            // A csv that has the columns of another one has all of them.
            for other in section.others.iter().filter_map(|other| sections.get(other)) {
                assert!(other.always.is_subset(&names), "{heading}: {:?}", other.always);
            }
        }
        seen.entry(words[0]).or_default().push(names);
    }
    // Whatever views a command has: each csv is one of those.
    let mut commands = 0;
    for command in commands_with_csv() {
        commands += 1;
        let known = seen.get(command.as_str()).unwrap_or_else(|| panic!("{command}: no csv is documented"));
        for more in variants(&command) {
            let words: Vec<&str> =
                [command.as_str(), "--format", "csv"].into_iter().chain(more.iter().map(String::as_str)).collect();
            assert!(known.contains(&header(&inputs.written(&words))), "{words:?}: this csv is not documented");
        }
    }
    assert!(commands >= 12, "{commands}");
}

#[test]
fn every_json_is_as_documented() {
    let (sections, inputs) = (document(), Inputs::new());
    for (heading, section) in sections.iter().filter(|(heading, _)| heading.ends_with("--format json")) {
        hold(&sections, heading, &json(&inputs.written(&words(heading)), &section.maps));
    }
    for command in commands_with_csv() {
        let own = || sections.keys().filter(|heading| heading.ends_with("json") && words(heading)[0] == command);
        for more in variants(&command) {
            let words: Vec<&str> =
                [command.as_str(), "--format", "json"].into_iter().chain(more.iter().map(String::as_str)).collect();
            let text = inputs.written(&words);
            let fits = own()
                .any(|heading| json(&text, &sections[heading].maps).is_subset(&allowed(&sections, &sections[heading])));
            assert!(fits, "{words:?}: this JSON is not documented");
        }
    }
}

#[test]
fn every_name_of_the_summary_is_documented() {
    let (sections, inputs) = (document(), Inputs::new());
    let csv = inputs.written(&["summary", "--format", "csv"]);
    let mut names: Names = csv.lines().skip(1).map(|row| row.split(',').next().expect("name").to_owned()).collect();
    names.extend(["name", "value"].map(str::to_owned));
    hold(&sections, "ibscope summary --format csv", &names);
}

#[test]
fn every_table_of_a_profile_is_as_documented() {
    let (sections, inputs) = (document(), Inputs::new());
    let text = fs::read_to_string(inputs.profile().join("profile.json")).expect("profile");
    hold(&sections, "profile.json", &json(&text, &sections["profile.json"].maps));
    let entries = fs::read_dir(inputs.profile()).expect("profile").map(|entry| entry.expect("entry").path());
    let tables: BTreeMap<String, Names> = entries
        .filter(|path| path.extension().is_some_and(|ending| ending == "parquet"))
        .map(|path| (path.file_name().expect("name").to_string_lossy().into_owned(), columns(&path)))
        .collect();
    let documented: Vec<&String> = sections.keys().filter(|heading| heading.ends_with(".parquet")).collect();
    assert_eq!(documented, tables.keys().collect::<Vec<_>>());
    for (name, columns) in &tables {
        hold(&sections, name, columns);
    }
    // `messages` promises the columns of its csv.
    let place = inputs.folder.path().join("messages.parquet");
    let ran = ibscope([Path::new("messages"), Path::new("--parquet"), &place, &sample("openib-mixed-4x1")]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(columns(&place), sections["ibscope messages --format csv"].always);
    assert!(sections["ibscope messages --format json"].text.contains("--parquet"));
}

fn columns(table: &Path) -> Names {
    let mut reader = ParquetReader::new(fs::File::open(table).expect("table"));
    reader.schema().expect("schema").iter_names().map(ToString::to_string).collect()
}

/// Commands that can write csv, as the help says.
fn commands_with_csv() -> Vec<String> {
    let names = listed_commands(&ibscope(["--help"]).stdout);
    names.into_iter().filter(|name| values(name, "--format").iter().any(|value| value == "csv")).collect()
}

/// The values that an option may have, as the help says.
fn values(command: &str, option: &str) -> Vec<String> {
    let help = ibscope([command, "--help"]).stdout;
    let mut lines = help.lines().skip_while(|line| !line.trim_start().starts_with(&format!("{option} <"))).skip(1);
    let mut values = Vec::new();
    while let Some(line) = lines.next().filter(|line| !line.trim_start().starts_with("--")) {
        values.extend(line.trim_start().strip_prefix("- ").and_then(|rest| rest.split(':').next()).map(str::to_owned));
    }
    values
}

/// Every combination of what chooses what is shown.
fn variants(command: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    for option in ["--by", "--view"] {
        let values = values(command, option);
        let more = all.iter().flat_map(|words: &Vec<String>| {
            values.iter().map(|value| words.iter().cloned().chain([option.to_owned(), value.clone()]).collect())
        });
        all = all.iter().cloned().chain(more.collect::<Vec<_>>()).collect();
    }
    all
}
