//! Quotes arguments for a shell.

/// Reason why a command is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuoteError {
    /// The command is empty.
    #[error("the command is empty; name the program in the configuration")]
    Empty,
    /// The program is not given by its absolute path.
    #[error("the program {0:?} is not an absolute path; write its absolute path in the configuration")]
    Relative(String),
    /// An argument contains a NUL or a line end.
    #[error("the argument {0:?} contains a NUL or a line end; the command is not run")]
    Control(String),
}

/// Refuses an empty command, a program without an absolute path, and arguments with a NUL or a line
/// end.
pub fn check(argv: &[String]) -> Result<(), QuoteError> {
    let program = argv.first().ok_or(QuoteError::Empty)?;
    if !program.starts_with('/') {
        return Err(QuoteError::Relative(program.clone()));
    }
    match argv.iter().find(|argument| argument.contains(['\0', '\n', '\r'])) {
        Some(argument) => Err(QuoteError::Control(argument.clone())),
        None => Ok(()),
    }
}

/// Puts an argument in single quotes. Every login shell passes it on unchanged.
pub fn quote(argument: &str) -> String {
    format!("'{}'", argument.replace('\'', r"'\''"))
}

/// Formats arguments as one would type them, on one line: control characters are escaped. Only for
/// display.
pub fn argv_text(argv: &[String]) -> String {
    let plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.,:=+@%".contains(&byte))
    };
    let shown = |text: &String| match text {
        text if plain(text) => text.clone(),
        text if text.contains(char::is_control) => format!("{text:?}"),
        text => quote(text),
    };
    argv.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// Joins quoted arguments to a command line.
pub fn join<'a>(argv: impl IntoIterator<Item = &'a str>) -> String {
    argv.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_with_quotes_where_they_matter() {
        let argv = ["/usr/bin/a", "-p=1", "x y", "$(id)", "it's", "a\nb", ""].map(str::to_owned);
        assert_eq!(argv_text(&argv), r#"/usr/bin/a -p=1 'x y' '$(id)' 'it'\''s' "a\nb" ''"#);
    }
}
