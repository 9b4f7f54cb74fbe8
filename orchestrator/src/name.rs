//! Checks of external names that become arguments, file names or printed text.

/// Maximum number of bytes of a name.
const LONGEST: usize = 128;

/// A name that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {name:?} is not valid: {why}; expected letters, digits, `-`, `_` and `.`, the first one a letter, a digit or `_`"
)]
pub struct NameError {
    /// Kind of the name.
    pub what: &'static str,
    /// The name, shortened.
    pub name: String,
    /// Description of the fault.
    pub why: &'static str,
}

/// Checks a host name: letters, digits, `-`, `_`, and dots between parts. A name that passes cannot
/// be an option, a path or several arguments, and has no meaning to a shell.
pub fn node(name: &str) -> Result<(), NameError> {
    check("node name", name)
}

/// Checks the name of a device, such as `mlx5_0`, by the same rules.
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
        return refuse("it contains a character that is not allowed");
    }
    if !name.split('.').all(|part| part.bytes().next().is_some_and(ordinary)) {
        return refuse("a part of it is empty or begins with `-`");
    }
    Ok(())
}
