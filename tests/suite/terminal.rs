//! Output on a terminal of 80 columns, which `script` of util-linux provides.

use crate::runs;
use crate::tools::result;
use std::path::Path;
use std::process::Command;

/// The lines that a command writes to a terminal of 80 columns, without colors and progress bars.
fn on_terminal(arguments: &[&str]) -> Vec<String> {
    let words: Vec<String> = arguments.iter().map(|argument| format!("'{argument}'")).collect();
    let program = env!("CARGO_BIN_EXE_ibscope");
    let command = format!("stty rows 24 cols 80; '{program}' {} 2> /dev/null", words.join(" "));
    let output = Command::new("script").args(["-qec", &command, "/dev/null"]).env("NO_COLOR", "1").output();
    let output = output.expect("script, of Debian's essential package bsdutils");
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).expect("text").lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
}

/// The words of a text, whatever the width of its lines.
fn words<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    lines.into_iter().flat_map(str::split_whitespace).collect()
}

fn fits(line: &str) -> bool {
    line.chars().count() <= 80
}

/// A terminal gets the same words as a file.
#[test]
fn prose_is_wrapped_on_a_terminal_only() {
    let sink = runs::named("ompi-rc-loss1-ring2").sink();
    let place = sink.to_str().expect("path");
    for command in ["summary", "health"] {
        let shown = on_terminal(&[command, place]);
        let file = result(&[command], &[Path::new(place)]);
        assert!(file.lines().any(|line| !fits(line)), "{command}: no long line to wrap");
        let long: Vec<&String> = shown.iter().filter(|line| !fits(line) && !line.contains(place)).collect();
        assert!(long.is_empty(), "{command}: {long:?}");
        assert_eq!(words(shown.iter().map(String::as_str)), words(file.lines()), "{command}");
    }
}

/// Columns are left out in the documented order, and `--wide` shows all.
#[test]
fn latency_leaves_out_columns_on_a_narrow_terminal() {
    let sink = runs::named("ompi-rc-loss1-ring2").sink();
    let place = sink.to_str().expect("path");
    let shown = on_terminal(&["latency", place]);
    assert!(shown.iter().all(|line| fits(line)), "{shown:#?}");
    let text = shown.join(" ");
    let (_, left_out) = text.split_once("not shown at this width: ").expect("a line");
    let (names, _) = left_out.split_once("; --wide shows all").expect("the option");
    assert!("deviation, > 10.0 µs, mean, min, p90, max".starts_with(names), "{names}");
    let headings = |lines: &[String]| words(lines.first().map(String::as_str)).join(" ");
    assert!(headings(&shown).contains("median") && !headings(&shown).contains("deviation"), "{shown:#?}");
    let wide = on_terminal(&["latency", "--wide", place]);
    let file = result(&["latency"], &[Path::new(place)]);
    assert_eq!(words(wide.iter().map(String::as_str)), words(file.lines()));
}
