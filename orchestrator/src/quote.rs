//! Arguments as a shell takes them whole.

/// An argument that cannot be passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuoteError {
    /// There is no program.
    #[error("an empty command; give the program in the configuration")]
    Empty,
    /// The program is not named by its full path.
    #[error("the program {0:?} is not an absolute path; give its full path in the configuration")]
    Relative(String),
    /// An argument holds a NUL or a line end.
    #[error("the argument {0:?} holds a NUL or a line end, which no name here has; it is not passed on")]
    Control(String),
}

/// Refuses what is no command: no program, a program that is looked up, arguments with a NUL or a line end.
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

/// One argument in single quotes: every shell that a login may have takes it as it stands.
pub fn quote(argument: &str) -> String {
    format!("'{}'", argument.replace('\'', r"'\''"))
}

/// A command line of quoted arguments.
pub fn join<'a>(argv: impl IntoIterator<Item = &'a str>) -> String {
    argv.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}
