//! Compares `docs/columns.md` with the output of the program: every csv of every command and view,
//! the members of every JSON, `profile.json` and the Parquet tables. Each heading names an output;
//! the first cells of the tables below it name the columns.

use crate::manifest::two_leaves;
use crate::runs;
use crate::tools::{ibscope, listed_commands, sample};
use ibscope::model::column::{ColumnDescription, ColumnType, ColumnUnit, TableDescription};
use polars::prelude::{ParquetReader, SerReader as _};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type ColumnNames = BTreeSet<String>;

/// The content of a section.
#[derive(Default)]
struct ColumnSection {
    /// Names that must be there, and those that may be.
    always: ColumnNames,
    sometimes: ColumnNames,
    /// Objects whose keys are data.
    maps: ColumnNames,
    /// Sections whose names this section may contain as well.
    others: Vec<String>,
    /// The text below the heading.
    text: String,
}

fn document() -> BTreeMap<String, ColumnSection> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/columns.md")).expect("document");
    let mut sections: BTreeMap<String, ColumnSection> = BTreeMap::new();
    for part in text.split("\n### ").skip(1) {
        let part = part.split("\n## ").next().expect("section");
        let (heading, body) = part.split_once('\n').expect("a heading ends");
        let heading =
            heading.strip_prefix('`').and_then(|heading| heading.strip_suffix('`')).expect("a heading in code");
        let mut section = ColumnSection { text: body.to_owned(), ..ColumnSection::default() };
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
        assert!(sections.insert(heading.to_owned(), section).is_none(), "duplicate heading {heading}");
    }
    sections
}

/// Names that a section allows: its own, and those of the sections it refers to.
fn allowed(sections: &BTreeMap<String, ColumnSection>, section: &ColumnSection) -> ColumnNames {
    let mut names: ColumnNames = section.always.union(&section.sometimes).cloned().collect();
    for other in section.others.iter().filter_map(|other| sections.get(other)) {
        names.extend(allowed(sections, other));
    }
    names
}

/// A profile as the input of the commands.
struct Inputs {
    folder: tempfile::TempDir,
}

impl Inputs {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let inputs = Self { folder };
        // The manifest names leaf switches.
        let manifest = inputs.folder.path().join("manifest.json");
        fs::write(&manifest, two_leaves()).expect("manifest");
        let options = [Path::new("--manifest"), &manifest, Path::new("-o"), &inputs.profile()];
        let made = ibscope([&[Path::new("analyze"), &sample("openib-mixed-4x1")], &options[..]].concat());
        assert_eq!(made.code, 0, "{}", made.stderr);
        inputs
    }

    fn profile(&self) -> PathBuf {
        self.folder.path().join("job.ibp")
    }

    /// The output of a command.
    fn written(&self, words: &[&str]) -> String {
        let run = runs::named("scorep-ompi-rc-halo-4x1");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let inputs = match words[0] {
            "compare" => vec![self.profile(); if words.contains(&"C.ibp") { 3 } else { 2 }],
            "messages" | "inspect" => vec![sample("openib-mixed-4x1")],
            "diagnose" => vec![runs::named("ompi-rc-loss1-ring2").sink()],
            "waits" => vec![runs::of_second_set("straggler-rank2-20ms-4x1").folder.join("sink.ib.pcap.zst")],
            "map" => vec![self.profile(), "--fabric".into(), root.join("samples/fabric/ibnetdiscover.txt")],
            // Single operations are found in captures only.
            "collectives" if words.contains(&"instances") => vec![run.sink()],
            "collectives" if words.contains(&"channels") => {
                vec![runs::of_second_set("nccl2.30-ring-multirail-2x1").sink()]
            }
            "crosscheck" if words[1] == "profile.cubex" => vec![run.sink(), run.folder.join("trace/profile.cubex")],
            "crosscheck" => vec![run.sink(), run.folder.join("trace/traces.otf2")],
            _ => vec![self.profile()],
        };
        let is_input = |word: &str| ["profile.cubex", "A.ibp", "B.ibp", "C.ibp"].contains(&word);
        let words = words.iter().filter(|word| !is_input(word)).map(PathBuf::from);
        let ran = ibscope(words.chain(inputs));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    }
}

/// The names of all members, except in objects whose keys are data.
fn members(value: &Value, maps: &ColumnNames, names: &mut ColumnNames) {
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

fn json(text: &str, maps: &ColumnNames) -> ColumnNames {
    let mut names = ColumnNames::new();
    serde_json::Deserializer::from_str(text)
        .into_iter::<Value>()
        .for_each(|value| members(&value.expect("JSON"), maps, &mut names));
    names
}

/// Asserts that an output has all names of its section, and no others.
fn check_section(sections: &BTreeMap<String, ColumnSection>, heading: &str, names: &ColumnNames) {
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

/// The library's description of every csv.
fn described() -> Vec<TableDescription> {
    ibscope::render::column_tables()
}

/// The names of the columns, in their order.
fn names_of(table: &TableDescription) -> Vec<&'static str> {
    table.columns.iter().map(|column| column.name).collect()
}

/// The document with the table of columns under each heading as the library describes it.
fn with_tables(text: &str, tables: &[TableDescription]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for table in tables {
        let heading = format!("### `{}`", table.name);
        let start = lines.iter().position(|line| *line == heading).unwrap_or_else(|| panic!("no heading {heading}"));
        let end =
            lines[start + 1..].iter().position(|line| line.starts_with('#')).map_or(lines.len(), |at| start + 1 + at);
        let first = lines[start..end].iter().position(|line| line.starts_with("| column |")).map(|at| start + at);
        let first = first.unwrap_or_else(|| panic!("no table under {heading}"));
        let rows = lines[first..end].iter().take_while(|line| line.starts_with('|')).count();
        lines.splice(first..first + rows, table.markdown().lines().map(str::to_owned));
    }
    lines.join("\n") + "\n"
}

/// `IBSCOPE_BLESS=1` writes the tables of columns into the document.
#[test]
fn the_document_has_the_columns_of_the_library() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/columns.md");
    let text = fs::read_to_string(&place).expect("document");
    let tables = [described(), ibscope::profile::column_tables()].concat();
    let expected = with_tables(&text, &tables);
    if std::env::var_os("IBSCOPE_BLESS").is_some() {
        fs::write(&place, &expected).expect("document");
        return;
    }
    assert!(text == expected, "docs/columns.md is not as the library describes its columns: IBSCOPE_BLESS=1 writes it");
}

/// The descriptions of the profile's tables as the Python package has them: an object per table, with
/// type, unit and meaning of each column, in order.
fn for_python(tables: &[TableDescription]) -> String {
    let of_table = |table: &TableDescription| {
        let column = |column: &ColumnDescription| {
            let description = [column.column_type.name(), column.unit.name(), column.meaning];
            format!("  {:?}: {}", column.name, serde_json::to_string(&description).expect("JSON"))
        };
        let columns: Vec<String> = table.columns.iter().map(column).collect();
        let name = table.name.strip_suffix(".parquet").expect("a table of the profile");
        format!(" {name:?}: {{\n{}\n }}", columns.join(",\n"))
    };
    let tables: Vec<String> = tables.iter().map(of_table).collect();
    format!("{{\n{}\n}}\n", tables.join(",\n"))
}

/// `IBSCOPE_BLESS=1` writes the file.
#[test]
fn the_python_package_has_the_columns_of_the_profile() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("notebooks/ibscope/columns.json");
    let expected = for_python(&ibscope::profile::column_tables());
    if std::env::var_os("IBSCOPE_BLESS").is_some() {
        fs::write(&place, &expected).expect("file");
        return;
    }
    let text = fs::read_to_string(&place).expect("file");
    assert!(text == expected, "notebooks/ibscope/columns.json is outdated: IBSCOPE_BLESS=1 writes it");
    let tables: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(tables["cm"]["time_ns"][1], "ns since the epoch");
}

/// The units that the suffix of a name stands for.
fn unit_of_name(name: &str) -> Option<&'static [ColumnUnit]> {
    use ColumnUnit::{Bytes, BytesPerSecond, Nanoseconds, OfValue, PartsPerMillion, PerSecond, Percent, Timestamp};
    let units: [(&str, &[ColumnUnit]); 7] = [
        ("time_ns", &[Timestamp]),
        ("_ns", &[Nanoseconds, Timestamp]),
        ("bytes_per_s", &[BytesPerSecond]),
        ("_per_s", &[PerSecond, OfValue]),
        ("bytes", &[Bytes]),
        ("_percent", &[Percent]),
        ("_ppm", &[PartsPerMillion]),
    ];
    // An estimate and the ends of its interval have the unit of the total.
    let of = ["_estimate", "_low", "_high"].into_iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    units.into_iter().find(|(end, _)| of.ends_with(end)).map(|(_, units)| units)
}

#[test]
fn every_column_has_a_unit_and_a_meaning() {
    let tables = [described(), ibscope::profile::column_tables()].concat();
    assert_eq!(tables.len(), 47 + 13);
    for table in &tables {
        let distinct: BTreeSet<&str> = names_of(table).into_iter().collect();
        assert_eq!(distinct.len(), table.columns.len(), "{}: a column twice", table.name);
        for ColumnDescription { name, unit, meaning, column_type } in &table.columns {
            let place = format!("{}: {name}", table.name);
            assert!(
                meaning.len() >= 3
                    && meaning.trim() == *meaning
                    && (meaning.ends_with("...") || !meaning.ends_with('.')),
                "{place}: {meaning:?}"
            );
            assert!(!meaning.contains(['|', '\n']), "{place}: {meaning:?}");
            if let Some(units) = unit_of_name(name) {
                assert!(units.contains(unit), "{place}: the name promises {units:?}, not {unit:?}");
            }
            let has_suffix = matches!(unit, ColumnUnit::Bytes | ColumnUnit::Nanoseconds | ColumnUnit::Timestamp);
            let exempt = ["ns", "a_low", "a_high", "b_low", "b_high"];
            assert!(
                !has_suffix || unit_of_name(name).is_some() || exempt.contains(name),
                "{place}: no unit in the name"
            );
            let is_text = matches!(unit, ColumnUnit::Name | ColumnUnit::Prose);
            let is_number =
                matches!(column_type, ColumnType::U64 | ColumnType::U32 | ColumnType::I64 | ColumnType::F64);
            assert!(!(is_text && is_number), "{place}: {unit:?} of {column_type:?}");
        }
    }
}

#[test]
fn every_csv_has_the_columns_of_the_library() {
    let (inputs, tables) = (Inputs::new(), described());
    for table in &tables {
        let csv = inputs.written(&words(table.name));
        let header: Vec<&str> = csv.lines().next().expect("header").split(',').collect();
        if words(table.name)[0] == "summary" {
            // Its columns are rows.
            assert_eq!(header, ["name", "value"]);
            let names: Vec<&str> = csv.lines().skip(1).filter_map(|row| row.split(',').next()).collect();
            assert_eq!(names, names_of(table));
        } else {
            assert_eq!(header, names_of(table), "{}", table.name);
        }
    }
    // Whatever views a command has: each csv is one of those.
    let mut commands = 0;
    for command in commands_with_csv() {
        commands += 1;
        let own = || tables.iter().filter(|table| words(table.name)[0] == command);
        assert!(own().next().is_some(), "{command}: no csv is described");
        for more in variants(&command) {
            let words: Vec<&str> =
                [command.as_str(), "--format", "csv"].into_iter().chain(more.iter().map(String::as_str)).collect();
            let header = inputs.written(&words).lines().next().expect("header").to_owned();
            let is_known = header == "name,value" || own().any(|table| names_of(table).join(",") == header);
            assert!(is_known, "{words:?}: this csv is not described: {header}");
        }
    }
    assert!(commands >= 12, "{commands}");
}

/// Objects in lists of a document, and the document itself: the members of each.
fn rows_of(value: &Value, found: &mut Vec<ColumnNames>) {
    match value {
        Value::Object(object) => {
            found.push(object.keys().cloned().collect());
            object.values().for_each(|value| rows_of(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| rows_of(value, found)),
        _ => {}
    }
}

/// Tables that have another form in JSON: bins of rates as columns, and buckets as pairs of
/// numbers, because there may be millions of both.
const OTHER_FORM: [&str; 3] = [
    "ibscope rates --view bins --format csv",
    "ibscope rates --by link --view bins --format csv",
    "ibscope latency --view buckets --format csv",
];

/// Members that rows of JSON may have in addition to the columns of csv.
const BESIDE: [&str; 6] = ["bins", "findings", "buckets", "missing_packets", "missing_messages", "commands_apart"];

#[test]
fn rows_of_json_have_the_columns_of_csv() {
    let inputs = Inputs::new();
    let mut compared = 0;
    for table in described().iter().filter(|table| !OTHER_FORM.contains(&table.name)) {
        let csv = inputs.written(&words(table.name));
        if csv.lines().count() < 2 {
            continue;
        }
        // JSON has all views of most commands at once.
        let form = table.name.replace("--format csv", "--format json");
        let text = inputs.written(&words(&form));
        let mut rows = Vec::new();
        for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            rows_of(&value.expect("JSON"), &mut rows);
        }
        let columns: ColumnNames = names_of(table).into_iter().map(str::to_owned).collect();
        let has_all = |row: &&ColumnNames| {
            columns.is_subset(row) && row.difference(&columns).all(|name| BESIDE.contains(&name.as_str()))
        };
        assert!(rows.iter().any(|row| has_all(&row)), "{}: no object of JSON has these columns", table.name);
        compared += 1;
    }
    assert!(compared >= 24, "{compared}");
}

#[test]
fn every_json_is_as_documented() {
    let (sections, inputs) = (document(), Inputs::new());
    for (heading, section) in sections.iter().filter(|(heading, _)| heading.ends_with("--format json")) {
        check_section(&sections, heading, &json(&inputs.written(&words(heading)), &section.maps));
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
fn every_table_of_a_profile_is_as_described() {
    let (sections, inputs) = (document(), Inputs::new());
    let text = fs::read_to_string(inputs.profile().join("profile.json")).expect("profile");
    check_section(&sections, "profile.json", &json(&text, &sections["profile.json"].maps));
    let entries = fs::read_dir(inputs.profile()).expect("profile").map(|entry| entry.expect("entry").path());
    let written: BTreeSet<String> = entries
        .filter(|path| path.extension().is_some_and(|ending| ending == "parquet"))
        .map(|path| path.file_name().expect("name").to_string_lossy().into_owned())
        .collect();
    // Senders have a table if their bins are narrower than those of pairs.
    let narrow = inputs.folder.path().join("narrow.ibp");
    let few_rows = ["analyze", "--bin", "1ms", "--max-cells", "200", "-o"].map(PathBuf::from);
    let ran = ibscope(few_rows.into_iter().chain([narrow.clone(), sample("openib-mixed-4x1")]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let tables = ibscope::profile::column_tables();
    let usual = |table: &&TableDescription| table.name != "senders.parquet";
    assert_eq!(tables.iter().filter(usual).map(|table| table.name.to_owned()).collect::<BTreeSet<_>>(), written);
    for table in &tables {
        let place = if usual(&table) { inputs.profile() } else { narrow.clone() };
        assert_eq!(columns(&place.join(table.name)), types_of(table), "{}", table.name);
    }
    // `messages` has the columns of its csv.
    let place = inputs.folder.path().join("messages.parquet");
    let ran = ibscope([Path::new("messages"), Path::new("--parquet"), &place, &sample("openib-mixed-4x1")]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let tables = described();
    let messages = tables.iter().find(|table| words(table.name)[0] == "messages").expect("messages");
    assert_eq!(columns(&place), types_of(messages));
    assert!(sections["ibscope messages --format json"].text.contains("--parquet"));
}

/// Names and types of the columns of a Parquet file.
fn columns(table: &Path) -> Vec<(String, String)> {
    let mut reader = ParquetReader::new(fs::File::open(table).expect("table"));
    let fields = reader.schema().expect("schema").iter_values().cloned().collect::<Vec<_>>();
    fields.into_iter().map(|field| (field.name.to_string(), format!("{:?}", field.dtype))).collect()
}

/// The same as described, in the words of Arrow.
fn types_of(table: &TableDescription) -> Vec<(String, String)> {
    let name = |column_type| match column_type {
        ColumnType::U32 => "UInt32",
        ColumnType::U64 => "UInt64",
        ColumnType::I32 => "Int32",
        ColumnType::I64 => "Int64",
        ColumnType::F64 => "Float64",
        ColumnType::Bool => "Boolean",
        ColumnType::Text => "Utf8View",
        ColumnType::List | ColumnType::Label => panic!("no type of Parquet"),
    };
    table.columns.iter().map(|column| (column.name.to_owned(), name(column.column_type).to_owned())).collect()
}

/// Commands that can write csv, according to the help.
fn commands_with_csv() -> Vec<String> {
    let names = listed_commands(&ibscope(["--help"]).stdout);
    names.into_iter().filter(|name| values(name, "--format").iter().any(|value| value == "csv")).collect()
}

/// The values that an option may have, according to the help.
fn values(command: &str, option: &str) -> Vec<String> {
    let help = ibscope([command, "--help"]).stdout;
    let mut lines = help.lines().skip_while(|line| !line.trim_start().starts_with(&format!("{option} <"))).skip(1);
    let mut values = Vec::new();
    while let Some(line) = lines.next().filter(|line| !line.trim_start().starts_with("--")) {
        values.extend(line.trim_start().strip_prefix("- ").and_then(|rest| rest.split(':').next()).map(str::to_owned));
    }
    values
}

/// Every combination of the values of `--by` and `--view`.
fn variants(command: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    for option in ["--by", "--view"] {
        let values = values(command, option);
        let more = all.iter().flat_map(|words: &Vec<String>| {
            values.iter().map(|value| words.iter().cloned().chain([option.to_owned(), value.clone()]).collect())
        });
        all = all.iter().cloned().chain(more.collect::<Vec<_>>()).collect();
    }
    // A link has no sizes.
    all.retain(|words: &Vec<String>| *words != ["--by", "link", "--view", "sizes"]);
    all
}
