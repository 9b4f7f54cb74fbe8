//! The user's file of endpoint names: csv `endpoint,name` with a header line.

use crate::model::{printable, quoted};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Error in a file of endpoint names.
#[derive(Debug, thiserror::Error)]
#[error("{}: line {line}: {what}", path.display())]
pub struct HostsError {
    /// The file.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// The reason.
    pub what: String,
}

/// Parses endpoint names. `path` is for errors.
pub fn parse(path: &Path, text: &str) -> Result<BTreeMap<Endpoint, String>, HostsError> {
    let error = |index: usize, what: String| HostsError { path: path.to_owned(), line: index + 1, what };
    let mut names = BTreeMap::new();
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    match lines.next() {
        Some((_, header)) if header.trim() == "endpoint,name" => {}
        _ => return Err(error(0, "expected the header `endpoint,name`".to_owned())),
    }
    for (index, line) in lines {
        let Some((endpoint, name)) = line.split_once(',') else {
            let what = format!("{} has no comma; expected `endpoint,name`, for example `17,node1`", quoted(line));
            return Err(error(index, what));
        };
        let endpoint = endpoint.trim();
        let endpoint: Endpoint =
            endpoint.parse().map_err(|problem| error(index, format!("{}: {problem}", quoted(endpoint))))?;
        if let Some(before) = names.insert(endpoint, name.trim()) {
            return Err(error(index, format!("{endpoint} is named {} already", quoted(before))));
        }
    }
    Ok(names.into_iter().map(|(endpoint, name)| (endpoint, printable(name))).collect())
}
