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

/// Joins quoted arguments to a command line.
pub fn join<'a>(argv: impl IntoIterator<Item = &'a str>) -> String {
    argv.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}
