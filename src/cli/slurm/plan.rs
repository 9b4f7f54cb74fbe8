//! Which captures are analysed, and where the parts of the profile are: `plan.json`, which the jobs read.

use crate::cli::common::{files, output};
use anyhow::{Context as _, bail};
use ibscope_orchestrator::manifest::Manifest;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf, absolute};
use xxhash_rust::xxh3::xxh3_64;

/// The plan in its folder.
const PLAN: &str = "plan.json";
/// Clocks that the merge has found, in the same folder.
const CLOCKS: &str = "clocks.csv";

/// What the jobs do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Full paths, sorted.
    pub(super) captures: Vec<PathBuf>,
    /// Full path of the profile to come.
    pub(super) output: PathBuf,
    /// Options of `analyze` for each of them.
    pub(super) options: Vec<String>,
}

impl Plan {
    pub(super) fn new(captures: Vec<PathBuf>, output: &Path, options: Vec<String>) -> anyhow::Result<Self> {
        let output = absolute(output).with_context(|| format!("{}: is no path", output.display()))?;
        captures.iter().chain([&output]).try_for_each(|path| text(path).map(drop))?;
        Ok(Self { captures, output, options })
    }

    /// The folder of a plan for this output.
    fn folder(&self) -> PathBuf {
        let mut name = self.output.as_os_str().to_owned();
        name.push(".slurm");
        name.into()
    }

    /// Writes the plan, and gives its folder.
    pub(super) fn write(&self) -> anyhow::Result<PathBuf> {
        let folder = self.folder();
        fs::create_dir_all(&folder).with_context(|| format!("{}: cannot be created", folder.display()))?;
        replace(&folder.join(PLAN), &serde_json::to_vec_pretty(self)?)?;
        Ok(folder)
    }

    /// Reads the plan of a folder.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(PLAN);
        serde_json::from_str(&files::read(&path)?)
            .with_context(|| format!("{}: is no plan; give the folder that slurm-analyze has made", path.display()))
    }

    /// The parts, one for each capture.
    pub(super) fn parts(&self, folder: &Path) -> Vec<Part<'_>> {
        let part = |capture: &PathBuf| -> PathBuf {
            let name = capture.file_name().unwrap_or_default().to_string_lossy();
            // Captures of several nodes may have one name.
            folder.join(format!("{name}-{:08x}", xxh3_64(capture.as_os_str().as_encoded_bytes()) as u32))
        };
        let with = |place: &Path, ending: &str| {
            let mut name = place.as_os_str().to_owned();
            name.push(ending);
            name.into()
        };
        let all = self.captures.iter().map(|capture| (capture, part(capture)));
        all.map(|(capture, place)| Part { capture, profile: with(&place, ".ibp"), stamp: with(&place, ".json") })
            .collect()
    }

    /// Where the merge puts clocks.
    pub(super) fn clocks(folder: &Path) -> PathBuf {
        folder.join(CLOCKS)
    }
}

/// One capture and what becomes of it.
pub(super) struct Part<'a> {
    pub(super) capture: &'a Path,
    pub(super) profile: PathBuf,
    /// Says of what the profile is.
    pub(super) stamp: PathBuf,
}

/// Writes a file that is whole or not there.
pub(super) fn replace(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let path = path.to_owned();
    match files::Output::open(Some(&path), &[])? {
        Some(output) => output.finish(content),
        None => Ok(()),
    }
}

/// A path as Slurm's scripts and patterns of file names can have it.
pub(super) fn text(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().filter(|text| !text.contains(|c: char| c.is_control() || "%\"\\".contains(c)));
    text.map(str::to_owned).with_context(|| {
        format!(
            "{}: a job script cannot hold this path; choose one without %, quotes, \\ and line ends",
            path.display()
        )
    })
}

/// What captures begin with: pcap in its four forms, pcapng, gzip, zstd.
const MAGICS: [&[u8]; 7] = [
    &[0xD4, 0xC3, 0xB2, 0xA1],
    &[0xA1, 0xB2, 0xC3, 0xD4],
    &[0x4D, 0x3C, 0xB2, 0xA1],
    &[0xA1, 0xB2, 0x3C, 0x4D],
    &[0x0A, 0x0D, 0x0D, 0x0A],
    &[0x1F, 0x8B],
    &[0x28, 0xB5, 0x2F, 0xFD],
];

/// Full paths of captures that were named, and of those in folders that were.
pub(super) fn captures(places: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut captures = Vec::new();
    for place in places {
        let failed = || format!("{}: cannot be read", place.display());
        if fs::metadata(place).with_context(failed)?.is_dir() {
            for entry in fs::read_dir(place).with_context(failed)? {
                let path = entry.with_context(failed)?.path();
                if files::begins(&path, |start| MAGICS.iter().any(|magic| start.starts_with(magic))) {
                    captures.push(absolute(&path).with_context(failed)?);
                } else if path.is_file() {
                    output::say(&format!("note: {}: does not begin as a capture, and is left out", path.display()));
                }
            }
        } else {
            captures.push(absolute(place).with_context(failed)?);
        }
    }
    Ok(captures)
}

/// Full paths of the captures of a manifest.
pub(super) fn captures_of(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let manifest = Manifest::read(path)?;
    if let Some(left) = manifest.captures.iter().find(|capture| capture.on_sink) {
        bail!(
            "{}: {} was left on {}; analyse it there with `analyze --partial`, or fetch it, and give what is here as files",
            path.display(),
            left.file.display(),
            left.sink
        );
    }
    let full = |path: &PathBuf| absolute(path).with_context(|| format!("{}: is no path", path.display()));
    manifest.captures.iter().map(|capture| full(&capture.file)).collect()
}
