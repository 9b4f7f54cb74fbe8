//! Findings as terminal text, csv and JSON.

use super::table::Table;
use super::units::{count_of, group, time, wrap};
use crate::analysis::diagnose::{Diagnosis, DiagnosisFinding};
use crate::model::column::ColumnUnit::{Name, Prose};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Columns of the terminal.
const WIDTH: usize = 80;
/// Indent of the lines below the heading of a finding.
const INDENT: &str = "    ";

/// A finding with the inputs of the command.
pub(super) struct FindingRow<'a> {
    finding: &'a DiagnosisFinding,
    inputs: &'a str,
}

impl FindingRow<'_> {
    fn evidence(&self) -> String {
        format!("ibscope {} {}", self.finding.evidence, self.inputs)
    }
}

/// The columns of `diagnose --format csv`.
pub(super) fn findings_table<'a>() -> Table<FindingRow<'a>> {
    Table::new("ibscope diagnose --format csv")
        .column("finding", Name, "kind of the finding", |row: &FindingRow<'_>| row.finding.kind.name())
        .column("severity", Name, "`info`, `warning` or `critical`", |row| row.finding.severity.name())
        .column("confidence", Name, "confidence in the cause: `low`, `medium` or `high`", |row| {
            row.finding.confidence.name()
        })
        .name("subject", "the port, path, rank or capture", |row| Some(&row.finding.subject))
        .list("numbers", Name, "numbers of the finding, as `name=value`", |row| {
            row.finding.numbers.iter().map(|(name, value)| Cow::Owned(format!("{name}={}", plain(*value)))).collect()
        })
        .column("evidence", Prose, "the command that shows it", FindingRow::evidence)
        .column("advice", Prose, "recommended action", |row| row.finding.advice)
}

/// A number without a fraction if it has none.
fn plain(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { json!(value as i64) } else { json!((value * 1e9).round() / 1e9) }
}

fn rows<'a>(diagnosis: &'a Diagnosis, inputs: &'a str) -> impl Iterator<Item = FindingRow<'a>> {
    diagnosis.findings.iter().map(move |finding| FindingRow { finding, inputs })
}

/// The terminal text; `inputs` are those of the command line. One line if there is no finding.
#[must_use]
pub fn text(diagnosis: &Diagnosis, inputs: &str) -> String {
    if diagnosis.findings.is_empty() {
        let which = if diagnosis.unchecked.is_empty() { "all checks" } else { "all checks that were made" };
        return format!("no findings: {which} passed\n");
    }
    let mut text = format!("{}, most severe first\n", count_of(diagnosis.findings.len() as u64, "finding"));
    for (number, row) in (1..).zip(rows(diagnosis, inputs)) {
        let finding = row.finding;
        let heading = format!(
            "{number} {} {}: {} (confidence: {})",
            finding.severity.name(),
            finding.kind.name(),
            finding.subject,
            finding.confidence.name()
        );
        _ = writeln!(text, "\n{}", wrap(&heading, WIDTH));
        let numbers: Vec<String> = finding.numbers.iter().map(|(name, value)| number_text(name, *value)).collect();
        for line in [finding.sentence.clone(), numbers.join(", "), finding.advice.to_owned()] {
            text.push_str(&indented(&line));
        }
        // One line, so that it can be copied.
        _ = writeln!(text, "{INDENT}{}", row.evidence());
    }
    text
}

/// Findings that a summary shows.
const TOP: usize = 3;
/// Numbers of a finding that a summary shows.
const TOP_NUMBERS: usize = 2;
/// Width of the labels of a summary, with the space behind them.
const LABEL: usize = 14;

/// The first findings as lines of a summary, and the command that shows all; `inputs` are those of
/// the command line.
#[must_use]
pub fn top(diagnosis: &Diagnosis, inputs: &str) -> String {
    let command = format!("`ibscope diagnose {inputs}`");
    let label = |label: &str, line: &str| format!("{label:<LABEL$}{line}\n");
    if diagnosis.findings.is_empty() {
        return label("findings", &format!("none in the profile; {command} checks more"));
    }
    let line = |finding: &DiagnosisFinding| {
        let numbers = finding.numbers.iter().take(TOP_NUMBERS).map(|(name, value)| number_text(name, *value));
        let numbers = numbers.collect::<Vec<_>>().join(", ");
        let numbers = if numbers.is_empty() { numbers } else { format!(" ({numbers})") };
        format!("{} {}: {}{numbers}", finding.severity.name(), finding.kind.name(), finding.subject)
    };
    let listed = diagnosis.findings.iter().take(TOP).map(line);
    let all = count_of(diagnosis.findings.len() as u64, "finding");
    let lines = listed.chain([format!("{all}; {command} shows numbers, evidence and advice")]);
    lines.enumerate().map(|(index, line)| label(if index == 0 { "findings" } else { "" }, &line)).collect()
}

/// The findings of a report as JSON: the first ones, how many there are, and the checks that were not
/// made.
pub(super) fn top_json(diagnosis: &Diagnosis) -> Value {
    let finding = |finding: &DiagnosisFinding| {
        let numbers: Vec<String> = finding.numbers.iter().map(|(name, value)| number_text(name, *value)).collect();
        json!({
            "severity": finding.severity.name(),
            "finding": finding.kind.name(),
            "subject": finding.subject,
            "sentence": finding.sentence,
            "numbers": numbers.join(", "),
            "advice": finding.advice,
        })
    };
    json!({
        "top": diagnosis.findings.iter().take(TOP).map(finding).collect::<Vec<_>>(),
        "count": diagnosis.findings.len(),
        "unchecked": diagnosis.unchecked,
    })
}

fn indented(line: &str) -> String {
    wrap(line, WIDTH - INDENT.len()).lines().flat_map(|line| [INDENT, line, "\n"]).collect()
}

/// A number for people: its name without the unit, and its value with it.
fn number_text(name: &str, value: f64) -> String {
    let words = |name: &str| name.replace('_', " ");
    if let Some(name) = name.strip_suffix("_ns") {
        return format!("{} {}", words(name), time(value));
    }
    if name.contains("share") || name.contains("utilization") {
        return format!("{} {:.2} %", words(name), 100.0 * value);
    }
    let number = if value.fract() == 0.0 { group(value as u64) } else { format!("{value:.1}") };
    match name.strip_prefix("one_in_") {
        Some(unit) => format!("one in {number} {}", words(unit)),
        None => format!("{} {number}", words(name)),
    }
}

/// Writes one csv row per finding.
pub fn csv(diagnosis: &Diagnosis, inputs: &str, out: &mut dyn Write) -> io::Result<()> {
    findings_table().csv(rows(diagnosis, inputs), out)
}

/// Writes a JSON list with one object per finding; empty without findings.
pub fn json(diagnosis: &Diagnosis, inputs: &str, out: &mut dyn Write) -> io::Result<()> {
    let object = |row: FindingRow<'_>| {
        let mut object = findings_table().object(&row);
        let numbers: Map<String, Value> =
            row.finding.numbers.iter().map(|(name, value)| ((*name).to_owned(), plain(*value))).collect();
        object.insert("numbers".to_owned(), Value::Object(numbers));
        Value::Object(object)
    };
    let findings: Vec<Value> = rows(diagnosis, inputs).map(object).collect();
    writeln!(out, "{:#}", Value::Array(findings))
}

/// Notes on the checks that were not made.
#[must_use]
pub fn notes(diagnosis: &Diagnosis) -> Vec<String> {
    diagnosis.unchecked.iter().map(|what| format!("not checked: {what}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::diagnose::{FindingConfidence, FindingKind, FindingSeverity};

    fn of_capture(numbers: Vec<(&'static str, f64)>) -> Diagnosis {
        let finding = DiagnosisFinding {
            kind: FindingKind::CaptureIncomplete,
            severity: FindingSeverity::Info,
            confidence: FindingConfidence::High,
            subject: "capture".to_owned(),
            sentence: "It is sampled.".to_owned(),
            numbers,
            evidence: "summary",
            advice: "Mirror all packets.",
        };
        Diagnosis { findings: vec![finding], ..Diagnosis::default() }
    }

    #[test]
    fn a_rate_of_sampling_reads_as_a_sentence() {
        for (one_in, expected) in [(5.04, "one in 5.0 packets"), (1000.0, "one in 1 000 packets")] {
            let sampled = of_capture(vec![("one_in_packets", one_in)]);
            assert!(text(&sampled, "job.ibp").contains(&format!("\n    {expected}\n")), "{expected}");
            let line = top(&sampled, "job.ibp").lines().next().unwrap_or_default().to_owned();
            assert_eq!(line, format!("findings      info capture_incomplete: capture ({expected})"));
        }
    }

    #[test]
    fn a_finding_without_numbers_has_no_parentheses() {
        let line = top(&of_capture(Vec::new()), "job.ibp").lines().next().unwrap_or_default().to_owned();
        assert_eq!(line, "findings      info capture_incomplete: capture");
    }
}
