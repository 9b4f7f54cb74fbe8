//! The runnable parts of a document: its fenced blocks, and the comments that control them.
//! CONTRIBUTING.md documents both.

/// A part of a document, in document order.
pub(crate) enum DocumentPart {
    /// ```` ```sh ````: a script, all of which succeeds.
    Script { line: usize, text: String },
    /// ```` ```console ````: commands after `$ `, each with its output.
    Session { line: usize, steps: Vec<DocumentStep> },
    /// `<!-- before: SCRIPT -->`: prepares the files that the reader already has.
    Before { line: usize, text: String },
    /// `<!-- not run: WHY; covered by TEST -->`: skips the next block.
    NotRun { line: usize, covered_by: Vec<String> },
}

/// A command, and its output on standard output and standard error together.
pub(crate) struct DocumentStep {
    pub(crate) command: String,
    pub(crate) printed: Vec<String>,
    /// The line numbers of `printed` in the document, from 0.
    pub(crate) at: std::ops::Range<usize>,
}

/// The parts of a document that run, or that give a reason why not.
pub(crate) fn parts(text: &str) -> Vec<DocumentPart> {
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
                parts.push(DocumentPart::Before { line, text: script.trim().to_owned() });
            } else if let Some(reason) = comment.strip_prefix("not run:") {
                let (_, covered_by) =
                    reason.split_once("covered by ").unwrap_or_else(|| panic!("line {line}: covered by what?"));
                let covered_by = covered_by.split(", ").map(|name| name.trim().to_owned()).collect();
                parts.push(DocumentPart::NotRun { line, covered_by });
                at = (end + 1..lines.len()).find(|&next| lines[next].starts_with("```")).expect("a block follows");
                assert!(is_run(lines[at]) && at <= end + 2, "line {line}: no block of commands follows");
                at = close(&lines, at);
                continue;
            }
            at = end + 1;
        } else if let Some(kind) = first.strip_prefix("```") {
            let end = close(&lines, at) - 1;
            let block = &lines[at + 1..end];
            match kind {
                "sh" => parts.push(DocumentPart::Script { line, text: block.join("\n") }),
                "console" => parts.push(DocumentPart::Session { line, steps: steps(block, at + 1) }),
                "text" | "toml" | "python" => {}
                other => panic!("line {line}: unknown block language `{other}`"),
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

/// The line after the block that begins here.
fn close(lines: &[&str], at: usize) -> usize {
    (at + 1..lines.len()).find(|&end| lines[end] == "```").expect("a block ends") + 1
}

fn steps(block: &[&str], first: usize) -> Vec<DocumentStep> {
    let mut steps: Vec<DocumentStep> = Vec::new();
    for (index, line) in block.iter().enumerate() {
        let at = first + index + 1;
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(DocumentStep { command: command.to_owned(), printed: Vec::new(), at: at..at });
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

/// True if the output matches: a line `...` matches any lines, and `[..]` in a line any text.
pub(crate) fn matches_output(shown: &[String], printed: &[&str]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line == "..." => (0..=printed.len()).any(|skip| matches_output(rest, &printed[skip..])),
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(own, others)| line_matches_output(line, own) && matches_output(rest, others)),
    }
}

fn line_matches_output(shown: &str, printed: &str) -> bool {
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
