//! Files that the user names: tables to read, figures to write.

use crate::model::profile::RankRow;
use crate::pipeline;
use anyhow::{Context as _, bail};
use ibscope_parsers::Endpoint;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Reads a hosts file: csv `endpoint,name`, with a header line.
pub(super) fn hosts(path: Option<&Path>) -> anyhow::Result<BTreeMap<Endpoint, String>> {
    let Some(path) = path else { return Ok(BTreeMap::new()) };
    let text = read(path)?;
    let mut names = BTreeMap::new();
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    match lines.next() {
        Some((_, header)) if header.trim() == "endpoint,name" => {}
        _ => bail!("{}: line 1: expected the header `endpoint,name`", path.display()),
    }
    for (index, line) in lines {
        let place = || format!("{}: line {}", path.display(), index + 1);
        let Some((endpoint, name)) = line.split_once(',') else {
            bail!(
                "{}: {} has no comma; expected `endpoint,name`, for example `17,node1`",
                place(),
                pipeline::quoted(line)
            );
        };
        let endpoint: Endpoint =
            endpoint.trim().parse().with_context(|| format!("{}: {}", place(), pipeline::quoted(endpoint.trim())))?;
        if let Some(before) = names.insert(endpoint, name.trim().to_owned()) {
            bail!("{}: {endpoint} is named {before} already", place());
        }
    }
    Ok(names)
}

/// Reads a rank map.
pub(super) fn rankmap(path: Option<&Path>) -> anyhow::Result<Option<Vec<RankRow>>> {
    let Some(path) = path else { return Ok(None) };
    Ok(Some(pipeline::parse_rankmap(path, &read(path)?)?))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    // Spreadsheets put a byte order mark in front.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// A file that is opened before the work starts and stands in its place, whole, after it.
pub(super) struct Output {
    place: PathBuf,
    scratch: PathBuf,
    file: fs::File,
}

impl Output {
    /// Opens the files of those paths that are given.
    pub(super) fn open(path: Option<&PathBuf>) -> anyhow::Result<Option<Self>> {
        let Some(place) = path else { return Ok(None) };
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(format!(".part-{}", std::process::id()));
        let scratch = place.with_file_name(name);
        let file = fs::File::create(&scratch).with_context(|| format!("{}: cannot be written", place.display()))?;
        Ok(Some(Self { place: place.clone(), scratch, file }))
    }

    /// Where the file will stand.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Writes the content and puts the file in its place.
    pub(super) fn finish(self, content: &[u8]) -> anyhow::Result<()> {
        let place = self.place.clone();
        self.finish_with(|mut file| {
            file.write_all(content).with_context(|| format!("{}: cannot be written", place.display()))
        })
    }

    /// Lets the content be written and puts the file in its place.
    pub(super) fn finish_with(self, write: impl FnOnce(fs::File) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let file = self.file.try_clone().with_context(|| format!("{}: cannot be written", self.place.display()))?;
        write(file)?;
        fs::rename(&self.scratch, &self.place)
            .with_context(|| format!("{}: cannot be put in place", self.place.display()))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // Gone already where the work succeeded.
        let _ = fs::remove_file(&self.scratch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<BTreeMap<Endpoint, String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts.csv");
        fs::write(&path, text).unwrap();
        hosts(Some(&path))
    }

    #[test]
    fn hosts_files_name_endpoints() {
        let names = parse("endpoint,name\n# leaf 1\n17,node1\n\n10.77.0.2, node two, rack 3\n").unwrap();
        assert_eq!(names[&"17".parse().unwrap()], "node1");
        assert_eq!(names[&"10.77.0.2".parse().unwrap()], "node two, rack 3");
    }

    #[test]
    fn hosts_files_fail_with_line_and_remedy() {
        for (text, expected) in [
            ("17,node1\n", "line 1: expected the header"),
            ("endpoint,name\nnode1\n", "line 2: `node1` has no comma"),
            ("endpoint,name\nnode1,17\n", "line 2: `node1`"),
            ("endpoint,name\n17,a\n0x11,b\n", "line 3: 17 is named a already"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn unfinished_outputs_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figure.svg");
        drop(Output::open(Some(&path)).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        Output::open(Some(&path)).unwrap().unwrap().finish(b"<svg/>").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"<svg/>");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
