//! Files that the user names: tables to read, figures to write.

use super::arguments::FigureArgs;
use crate::model::profile::RankRow;
use crate::model::{Clock, Profile, count_either, count_of};
use crate::pipeline;
use crate::render::figure::Drawing;
use crate::scratch::{self, Scratch};
use anyhow::{Context as _, anyhow, bail};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Reads a hosts file: csv `endpoint,name`, with a header line.
pub(in crate::cli) fn hosts(path: Option<&Path>) -> anyhow::Result<BTreeMap<Endpoint, String>> {
    let Some(path) = path else { return Ok(BTreeMap::new()) };
    Ok(pipeline::parse_hosts(path, &read(path).context("--hosts")?)?)
}

/// Reads a rank map.
pub(in crate::cli) fn rankmap(path: Option<&Path>) -> anyhow::Result<Option<Vec<RankRow>>> {
    let Some(path) = path else { return Ok(None) };
    Ok(Some(pipeline::parse_rankmap(path, &read(path).context("--rankmap")?)?))
}

/// Reads which captures form one stream.
pub(in crate::cli) fn streams(path: Option<&Path>, inputs: &[PathBuf]) -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let Some(path) = path else { return Ok(BTreeMap::new()) };
    Ok(pipeline::parse_streams(path, &read(path).context("--streams")?, inputs)?)
}

/// Reads the clocks that `merge --clocks` wrote.
pub(in crate::cli) fn clocks(path: Option<&Path>) -> anyhow::Result<Option<BTreeMap<PathBuf, (Clock, u64)>>> {
    let Some(path) = path else { return Ok(None) };
    pipeline::parse_clocks(&read(path).context("--clocks")?)
        .map(Some)
        .map_err(|why| anyhow!("{}: {why}", path.display()))
}

/// Notes on a rank map that is valid but looks wrong.
pub(in crate::cli) fn rankmap_notes(rows: &[RankRow], profile: &Profile) -> Vec<String> {
    /// Ranks that notes name one by one.
    const MAX_RANKS: usize = 5;
    let mut notes = Vec::new();
    let endpoints: BTreeSet<&str> = rows.iter().map(|row| row.endpoint.as_str()).collect();
    let traffic: BTreeSet<String> =
        profile.connections.iter().flat_map(|row| [row.src.to_string(), row.dst.to_string()]).collect();
    if !traffic.is_empty() && !endpoints.iter().any(|endpoint| traffic.contains(*endpoint)) {
        notes.push(format!("rank map: none of its {} endpoints is in the traffic", endpoints.len()));
    }
    let mut places: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.qpn.is_none()) {
        places.entry(row.rank).or_default().insert(&row.endpoint);
    }
    places.retain(|_, endpoints| endpoints.len() > 1);
    for (rank, endpoints) in places.iter().take(MAX_RANKS) {
        let endpoints: Vec<&str> = endpoints.iter().copied().collect();
        notes.push(format!(
            "rank map: rank {rank} is on several endpoints ({}); this is correct only if they are ports of one node",
            endpoints.join(", ")
        ));
    }
    if places.len() > MAX_RANKS {
        notes.push(format!(
            "rank map: {} on several endpoints",
            count_either((places.len() - MAX_RANKS) as u64, "more rank is", "more ranks are")
        ));
    }
    let refuted: Vec<&RankRow> =
        rows.iter().filter(|row| row.evidence == RankRow::OF_MAP && row.disagreeing > 0).collect();
    for row in refuted.iter().take(MAX_RANKS) {
        let queue_pair = row.qpn.map(|qpn| format!(" queue pair {qpn:#x}")).unwrap_or_default();
        notes.push(format!(
            "rank map: rank {} at {}{queue_pair}: {} another rank; `ibscope ranks` without the map shows it",
            row.rank,
            row.endpoint,
            count_either(row.disagreeing, "message names", "messages name")
        ));
    }
    if refuted.len() > MAX_RANKS {
        let more = count_of((refuted.len() - MAX_RANKS) as u64, "more row");
        notes.push(format!("rank map: messages name other ranks than {more}"));
    }
    notes
}

/// True if `wanted` accepts the first 512 bytes of the file.
pub(in crate::cli) fn starts_with(path: &Path, wanted: impl FnOnce(&[u8]) -> bool) -> bool {
    use std::io::Read as _;
    let mut start = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(512).read_to_end(&mut start));
    read.is_ok() && wanted(&start)
}

/// The path of a new folder for results, which must not exist: a folder of the user is never replaced.
pub(in crate::cli) fn new_folder(output: &Path) -> anyhow::Result<PathBuf> {
    let failed = || format!("{}: cannot be written", output.display());
    let place = scratch::resolve(output).with_context(failed)?;
    if place.file_name().is_none() {
        bail!("{}: it is not the name of a folder", failed());
    }
    if fs::symlink_metadata(&place).is_ok() {
        bail!("{}: already exists; remove it, or give another name", failed());
    }
    Ok(place)
}

/// Reads a text file.
pub(in crate::cli) fn read(path: &Path) -> anyhow::Result<String> {
    let text = ibscope_orchestrator::text_file::read(path).map_err(|error| {
        let what = format!("{}: cannot be read", path.display());
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                anyhow!("{what}: {error}; check the path and its permissions")
            }
            _ => anyhow::Error::from(error).context(what),
        }
    })?;
    // Spreadsheets write a byte order mark first.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The readers of an output file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadAccess {
    /// As the umask allows; for an existing file, its permissions.
    All,
    /// The owner only; for an existing file, its permissions.
    Owner,
    /// The owner only, even if an existing file has other permissions.
    OwnerAlways,
}

impl ReadAccess {
    const fn mode(self) -> u32 {
        match self {
            Self::All => 0o666,
            Self::Owner | Self::OwnerAlways => 0o600,
        }
    }
}

/// An output file, opened before the work starts and renamed into place when it is whole.
///
/// A FIFO or a device is written directly, because its reader would never see a file renamed over
/// it. Links are followed: the file they point to is replaced, and the links stay.
pub(in crate::cli) struct OutputFile {
    place: PathBuf,
    file: fs::File,
    /// The scratch file and the path it is renamed to; `None` if the file is written directly.
    rename: Option<(Scratch, PathBuf)>,
}

impl OutputFile {
    /// Opens the file at `path`, if given. `inputs` are the files that the command reads; the
    /// output may replace none of them.
    pub(in crate::cli) fn open(path: Option<&PathBuf>, inputs: &[&Path]) -> anyhow::Result<Option<Self>> {
        Self::open_with(path, inputs, ReadAccess::All)
    }

    /// Like [`Self::open`], for individual messages: a new file is readable by the owner only.
    pub(in crate::cli) fn open_private(path: Option<&PathBuf>, inputs: &[&Path]) -> anyhow::Result<Option<Self>> {
        Self::open_with(path, inputs, ReadAccess::Owner)
    }

    /// Like [`Self::open`], for real names: the file is readable by the owner only.
    pub(in crate::cli) fn open_secret(path: Option<&PathBuf>, inputs: &[&Path]) -> anyhow::Result<Option<Self>> {
        Self::open_with(path, inputs, ReadAccess::OwnerAlways)
    }

    fn open_with(path: Option<&PathBuf>, inputs: &[&Path], readers: ReadAccess) -> anyhow::Result<Option<Self>> {
        let Some(place) = path else { return Ok(None) };
        let failed = || format!("{}: cannot be written", place.display());
        let mut permissions = None;
        match fs::metadata(place) {
            Ok(found) => {
                permissions = Some(found.permissions()).filter(|_| readers != ReadAccess::OwnerAlways);
                if found.is_dir() {
                    bail!("{}: it is a folder; give the name of a file", failed());
                }
                if let Some(input) = inputs.iter().find(|input| scratch::is_read_from(&found, input)) {
                    bail!("{}: the command reads it ({}); give another name for the output", failed(), input.display());
                }
                if !found.is_file() {
                    let file = fs::OpenOptions::new().write(true).open(place).with_context(failed)?;
                    return Ok(Some(Self { place: place.clone(), file, rename: None }));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(failed),
        }
        let target = scratch::resolve(place).with_context(failed)?;
        let is_folder = [&b"/"[..], b"/."].iter().any(|end| target.as_os_str().as_encoded_bytes().ends_with(end));
        if is_folder || target.file_name().is_none() {
            bail!("{}: it is not a file name", failed());
        }
        let (scratch, file) = Scratch::file(&target, readers.mode()).with_context(failed)?;
        // Readers of the old file may read the new one.
        if let Some(permissions) = permissions {
            file.set_permissions(permissions).with_context(failed)?;
        }
        Ok(Some(Self { place: place.clone(), file, rename: Some((scratch, target)) }))
    }

    /// The path that the user gave.
    pub(in crate::cli) fn place(&self) -> &Path {
        &self.place
    }

    /// True if both outputs have the same target, even under different names.
    pub(in crate::cli) fn is_same_as(&self, other: &Self) -> bool {
        let folder_and_name = |output: &Self| {
            let (_, target) = output.rename.as_ref()?;
            Some((fs::canonicalize(scratch::folder_of(target)).ok()?, target.file_name()?.to_owned()))
        };
        folder_and_name(self).is_some_and(|place| Some(place) == folder_and_name(other))
    }

    /// Writes the content and renames the file into place.
    pub(in crate::cli) fn finish(self, content: &[u8]) -> anyhow::Result<()> {
        let place = self.place.clone();
        self.finish_with(|mut file| file.write_all(content).map_err(|error| write_error(&place, &error)))
    }

    /// Calls `write` with the file, then renames the file into place.
    pub(in crate::cli) fn finish_with(self, write: impl FnOnce(fs::File) -> anyhow::Result<()>) -> anyhow::Result<()> {
        write(self.file)?;
        let Some((scratch, target)) = self.rename else { return Ok(()) };
        let renamed = scratch.commit(|scratch| fs::rename(scratch, target));
        renamed.with_context(|| format!("{}: the complete file cannot be renamed to this name", self.place.display()))
    }
}

/// The files of a figure, one per format.
pub(in crate::cli) struct FigureFiles {
    svg: Option<OutputFile>,
    png: Option<OutputFile>,
    pdf: Option<OutputFile>,
    title: Option<String>,
}

impl FigureFiles {
    /// Opens the requested files. `inputs` are the files that the command reads; a figure may
    /// replace none of them.
    pub(in crate::cli) fn open(figures: &FigureArgs, inputs: &[&Path]) -> anyhow::Result<Self> {
        figures.check()?;
        let open = |file: &Option<PathBuf>| OutputFile::open(file.as_ref(), inputs);
        let [svg, png, pdf] = [open(&figures.svg)?, open(&figures.png)?, open(&figures.pdf)?];
        Ok(Self { svg, png, pdf, title: figures.title.clone() })
    }

    /// True if a figure was requested.
    pub(in crate::cli) const fn are_wanted(&self) -> bool {
        self.svg.is_some() || self.png.is_some() || self.pdf.is_some()
    }

    /// Draws the figure, if requested, and writes its files.
    pub(in crate::cli) fn finish(self, draw: impl FnOnce() -> anyhow::Result<Drawing>) -> anyhow::Result<()> {
        if !self.are_wanted() {
            return Ok(());
        }
        let figure = draw()?.headed(self.title);
        if let Some(svg) = self.svg {
            svg.finish(figure.svg()?.as_bytes())?;
        }
        if let Some(png) = self.png {
            png.finish(&figure.png()?)?;
        }
        self.pdf.map_or(Ok(()), |pdf| pdf.finish(&figure.pdf()?))
    }
}

/// Describes why a file could not be written, by the error of the operating system.
///
/// The Parquet writer wraps that error in text of its own, which is misleading. The result has no
/// cause, so that a FIFO without a reader does not count as a closed standard output.
pub(in crate::cli) fn write_error(place: &Path, error: &dyn std::error::Error) -> anyhow::Error {
    let text = error.to_string();
    match text.rsplit_once("IO error: ") {
        Some((_, why)) => anyhow!("{}: cannot be written: {why}", place.display()),
        None if text.starts_with(&place.display().to_string()) => anyhow!(text),
        None => anyhow!("{}: cannot be written: {text}", place.display()),
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
            ("endpoint,name\n17,a\n0x11,b\n", "line 3: 17 is named `a` already"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
        let long = parse(&format!("endpoint,name\n17,{}\n17,b\n", "a".repeat(1000))).unwrap_err();
        assert!(format!("{long:#}").len() < 200, "{long:#}");
        let foreign = parse("endpoint,name\n17,\u{1b}[2J\n17,b\n").unwrap_err();
        assert!(format!("{foreign:#}").ends_with("named `\\u{1b}[2J` already"), "{foreign:#}");
    }

    #[test]
    fn unfinished_outputs_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figure.svg");
        drop(OutputFile::open(Some(&path), &[]).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        OutputFile::open(Some(&path), &[]).unwrap().unwrap().finish(b"<svg/>").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"<svg/>");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
