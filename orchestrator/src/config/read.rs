//! Parses a TOML file into a [`Config`], or into an error with its line number.

use super::{Config, ConfigError, ConfigSource, check};
use crate::folder::Folder;
use crate::text_file;
use std::io;
use std::ops::Range;
use std::path::Path;
use toml::de::{DeTable, DeValue};

impl Config {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = text_file::read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Reads the file for a hook, which acts for every user. A file that users other than root and
    /// the current one could change or replace is refused.
    pub fn read_trusted(path: &Path) -> Result<Self, ConfigError> {
        let bytes = std::path::absolute(path).and_then(|path| {
            let (folder, name) = Folder::parent_of(&path)?;
            folder.bytes(name)
        });
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        Self::parse(&text.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?, path)
    }

    /// Parses the text of the file at this path.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let fault = |at: Option<Range<usize>>, what: String| {
            let before = text.get(..at.map_or(0, |range| range.start)).unwrap_or_default();
            ConfigError::Content { path: path.to_owned(), line: before.matches('\n').count() + 1, what }
        };
        let mut config: Self =
            toml::from_str(text).map_err(|error| fault(error.span(), with_remedy(error.message())))?;
        config.source = ConfigSource { path: path.to_owned(), text: text.to_owned() };
        config.tools.complete();
        check::check(&config).map_err(|wrong| fault(key_span(text, wrong.key), wrong.what))?;
        Ok(config)
    }
}

/// The message of the TOML parser, with a remedy added if it has none.
fn with_remedy(message: &str) -> String {
    let message = message.trim().replace('\n', ", ");
    if message.contains("expected") || message.contains(';') {
        return message;
    }
    if message.contains("missing field") {
        return format!("{message}; add it to this section");
    }
    format!("{message}; expected TOML: `[section]`, then `key = value` with strings in double quotes")
}

/// Byte range of a key in the text, or of the longest prefix of its path that exists.
fn key_span(text: &str, key: &[&str]) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?;
    let mut table = table.get_ref();
    let mut span = None;
    for part in key {
        let Some((name, value)) = table.iter().find(|(name, _)| name.get_ref() == part) else { break };
        span = Some(name.span());
        let DeValue::Table(inner) = value.get_ref() else { break };
        table = inner;
    }
    span
}
