//! What of a document is run: its fenced blocks, and the comments that steer them. CONTRIBUTING.md tells writers.

/// A part of a document, in its order.
pub(crate) enum Part {
    /// ```` ```sh ````: a script, all of which succeeds.
    Script { line: usize, text: String },
    /// ```` ```console ````: commands behind `$ `, each with what it prints.
    Session { line: usize, steps: Vec<Step> },
    /// `<!-- before: SCRIPT -->`: what the reader is taken to have.
    Before { line: usize, text: String },
    /// `<!-- not run: WHY; covered by TEST -->`: the block behind it is left out.
    NotRun { line: usize, covered_by: Vec<String> },
}

/// A command and what it prints on standard output and standard error together.
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) printed: Vec<String>,
    /// The lines of `printed` in the document, from 0.
    pub(crate) at: std::ops::Range<usize>,
}

/// The parts of a document that are run, or say why not.
pub(crate) fn parts(text: &str) -> Vec<Part> {
    let lines: Vec<&str> = text.lines().collect();
    let mut parts = Vec::new();
    let mut at = 0;
    while let Some(&first) = lines.get(at) {
        let line = at + 1;
        if let Some(rest) = first.strip_prefix("<!-- ") {
            let end = (at..lines.len()).find(|&end| lines[end].ends_with("-->")).expect("a comment ends");
            let comment =
                if end == at { rest.to_owned() } else { [&[rest][..], &lines[at + 1..=end]].concat().join("\n") };
            let comment = comment.trim_end_matches("-->").trim();
            if let Some(script) = comment.strip_prefix("before:") {
                parts.push(Part::Before { line, text: script.trim().to_owned() });
            } else if let Some(reason) = comment.strip_prefix("not run:") {
                let (_, covered_by) =
                    reason.split_once("covered by ").unwrap_or_else(|| panic!("line {line}: covered by what?"));
                let covered_by = covered_by.split(", ").map(|name| name.trim().to_owned()).collect();
                parts.push(Part::NotRun { line, covered_by });
                at = (end + 1..lines.len()).find(|&next| lines[next].starts_with("```")).expect("a block follows");
                assert!(is_run(lines[at]) && at <= end + 2, "line {line}: no block of commands behind it");
                at = close(&lines, at);
                continue;
            }
            at = end + 1;
        } else if let Some(kind) = first.strip_prefix("```") {
            let end = close(&lines, at) - 1;
            let block = &lines[at + 1..end];
            match kind {
                "sh" => parts.push(Part::Script { line, text: block.join("\n") }),
                "console" => parts.push(Part::Session { line, steps: steps(block, at + 1) }),
                "text" | "toml" | "python" => {}
                other => panic!("line {line}: nobody said whether blocks of `{other}` are run"),
            }
            at = end + 1;
        } else {
            assert!(!first.trim_start().starts_with("```"), "line {line}: an indented block would not be run");
            at += 1;
        }
    }
    parts
}

fn is_run(fence: &str) -> bool {
    fence == "```sh" || fence == "```console"
}

/// The line behind the block that begins here.
fn close(lines: &[&str], at: usize) -> usize {
    (at + 1..lines.len()).find(|&end| lines[end] == "```").expect("a block ends") + 1
}

fn steps(block: &[&str], first: usize) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (index, line) in block.iter().enumerate() {
        let at = first + index + 1;
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), printed: Vec::new(), at: at..at });
            continue;
        }
        let step = steps.last_mut().expect("a session begins with a command");
        if step.printed.is_empty() && step.command.ends_with('\\') {
            step.command.push('\n');
            step.command.push_str(line);
            step.at = at..at;
        } else {
            step.printed.push((*line).to_owned());
            step.at.end = at;
        }
    }
    steps
}

/// True where the lines are those that are shown: `...` alone stands for any lines, `[..]` in a line for anything.
pub(crate) fn fits(shown: &[String], printed: &[&str]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line == "..." => (0..=printed.len()).any(|skip| fits(rest, &printed[skip..])),
        Some((line, rest)) => {
            printed.split_first().is_some_and(|(own, others)| line_fits(line, own) && fits(rest, others))
        }
    }
}

fn line_fits(shown: &str, printed: &str) -> bool {
    let mut pieces = shown.trim_end().split("[..]");
    let Some(mut rest) = pieces.next().and_then(|piece| printed.trim_end().strip_prefix(piece)) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some(found) = rest.find(piece) else { return false };
        rest = &rest[found + piece.len()..];
    }
    true
}
