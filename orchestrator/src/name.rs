//! Names that come from outside and become arguments, file names or text for people: what they may hold.

/// Bytes of the longest name that is taken.
const LONGEST: usize = 128;

/// A name that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {name:?} is refused: {why}; expected letters, digits, `-`, `_` and `.`, the first one a letter, a digit or `_`"
)]
pub struct NameError {
    /// What it would name.
    pub what: &'static str,
    /// The name.
    pub name: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Whether a name can be one of a host: letters, digits, `-`, `_`, and dots between parts. Nothing that passes can be an option, a
/// path, two arguments, or mean anything to a shell.
pub fn node(name: &str) -> Result<(), NameError> {
    check("node name", name)
}

/// The same for a device of a node, such as `mlx5_0`.
pub fn device(name: &str) -> Result<(), NameError> {
    check("device name", name)
}

fn check(what: &'static str, name: &str) -> Result<(), NameError> {
    let refuse = |why| Err(NameError { what, name: name.chars().take(LONGEST).collect(), why });
    let ordinary = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() {
        return refuse("it is empty");
    }
    if name.len() > LONGEST {
        return refuse("it is longer than 128 bytes");
    }
    if !name.bytes().all(|byte| ordinary(byte) || byte == b'-' || byte == b'.') {
        return refuse("it holds another character");
    }
    if !name.split('.').all(|part| part.bytes().next().is_some_and(ordinary)) {
        return refuse("a part of it is empty or begins with `-`");
    }
    Ok(())
}
