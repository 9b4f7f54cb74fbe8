//! The plan of the jobs: the captures, the options, and the files of each task.
//!
//! In: captures and options. Out: `plan.json`, which the jobs read. Invariant: every path in the
//! plan is absolute and fits in a job script.

use crate::cli::common::{files, output};
use crate::model::{ConnectionShare, count_of};
use anyhow::{Context as _, bail};
use ibscope_orchestrator::manifest::Manifest;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf, absolute};
use xxhash_rust::xxh3::xxh3_64;

/// File name of the plan in its folder.
const PLAN: &str = "plan.json";
/// File name of the clocks that the merge writes to the same folder.
const CLOCKS: &str = "clocks.csv";

/// The plan of all tasks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SlurmPlan {
    /// By capture: the absolute paths of its files, sorted.
    pub(super) captures: Vec<Vec<PathBuf>>,
    /// Absolute path of the output profile.
    pub(super) output: PathBuf,
    /// Options of `analyze` for every capture.
    pub(super) options: Vec<String>,
    /// Tasks that share each capture.
    pub(super) shares: u32,
}

impl SlurmPlan {
    pub(super) fn new(
        captures: Vec<Vec<PathBuf>>,
        output: &Path,
        options: Vec<String>,
        shares: u32,
    ) -> anyhow::Result<Self> {
        let output = absolute(output).with_context(|| format!("{}: is not a path", output.display()))?;
        captures.iter().flatten().chain([&output]).try_for_each(|path| text(path).map(drop))?;
        Ok(Self { captures, output, options, shares })
    }

    /// The folder of the plan for this output.
    fn folder(&self) -> PathBuf {
        let mut name = self.output.as_os_str().to_owned();
        name.push(".slurm");
        name.into()
    }

    /// Writes the plan and returns its folder.
    pub(super) fn write(&self) -> anyhow::Result<PathBuf> {
        let folder = self.folder();
        fs::create_dir_all(&folder).with_context(|| format!("{}: cannot be created", folder.display()))?;
        replace(&folder.join(PLAN), &serde_json::to_vec_pretty(self)?)?;
        Ok(folder)
    }

    /// Reads the plan in a folder.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(PLAN);
        serde_json::from_str(&files::read(&path)?)
            .with_context(|| format!("{}: is not a plan; give the folder that slurm-analyze wrote", path.display()))
    }

    /// The tasks: one per capture, or per share of a capture.
    pub(super) fn tasks(&self, folder: &Path) -> Vec<PlanTask<'_>> {
        let part = |files: &[PathBuf], share: Option<ConnectionShare>| -> PathBuf {
            let capture = files.first().map_or(Path::new(""), PathBuf::as_path);
            let name = capture.file_name().unwrap_or_default().to_string_lossy();
            let share = share.map(|share| format!("-{}-of-{}", share.number, share.of)).unwrap_or_default();
            // Captures of several nodes may have the same file name.
            folder.join(format!("{name}-{:08x}{share}", xxh3_64(capture.as_os_str().as_encoded_bytes()) as u32))
        };
        let with = |place: &Path, ending: &str| {
            let mut name = place.as_os_str().to_owned();
            name.push(ending);
            name.into()
        };
        let shares = || ConnectionShare::all(self.shares).map(|share| Some(share).filter(|_| self.shares > 1));
        let all = self.captures.iter().flat_map(|files| shares().map(move |share| (files, share)));
        all.map(|(files, share)| {
            let place = part(files, share);
            PlanTask { files, share, profile: with(&place, ".ibp"), fingerprint: with(&place, ".json") }
        })
        .collect()
    }

    /// Path of the clocks that the merge writes.
    pub(super) fn clocks(folder: &Path) -> PathBuf {
        folder.join(CLOCKS)
    }
}

/// One capture, or a share of it, and the files of its task.
pub(super) struct PlanTask<'a> {
    /// The files of the capture.
    pub(super) files: &'a [PathBuf],
    /// `None` if one task analyzes the whole capture.
    pub(super) share: Option<ConnectionShare>,
    pub(super) profile: PathBuf,
    /// Path of the fingerprint of `profile`.
    pub(super) fingerprint: PathBuf,
}

impl PlanTask<'_> {
    /// The capture in messages: its first file, and the number of further ones.
    pub(super) fn capture(&self) -> String {
        let first = self.files.first().map(|file| file.display().to_string()).unwrap_or_default();
        match self.files.len().saturating_sub(1) {
            0 => first,
            more => format!("{first} and {}", count_of(more as u64, "more file")),
        }
    }
}

/// Replaces a file by a whole new one, or leaves it as it is.
pub(super) fn replace(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let path = path.to_owned();
    match files::OutputFile::open(Some(&path), &[])? {
        Some(output) => output.finish(content),
        None => Ok(()),
    }
}

/// A path as text that job scripts and Slurm's file name patterns can contain.
pub(super) fn text(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().filter(|text| !text.contains(|c: char| c.is_control() || "%\"\\".contains(c)));
    text.map(str::to_owned).with_context(|| {
        format!(
            "{}: a job script cannot contain this path; choose a path without %, quotes, \\ and line breaks",
            path.display()
        )
    })
}

/// First bytes of captures: pcap in four forms, pcapng, gzip, zstd.
const MAGICS: [&[u8]; 7] = [
    &[0xD4, 0xC3, 0xB2, 0xA1],
    &[0xA1, 0xB2, 0xC3, 0xD4],
    &[0x4D, 0x3C, 0xB2, 0xA1],
    &[0xA1, 0xB2, 0x3C, 0x4D],
    &[0x0A, 0x0D, 0x0D, 0x0A],
    &[0x1F, 0x8B],
    &[0x28, 0xB5, 0x2F, 0xFD],
];

/// Absolute paths of the captures in `places`: files as they are, and files in folders that start
/// like a capture.
pub(super) fn captures(places: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut captures = Vec::new();
    for place in places {
        let failed = || format!("{}: cannot be read", place.display());
        if fs::metadata(place).with_context(failed)?.is_dir() {
            for entry in fs::read_dir(place).with_context(failed)? {
                let path = entry.with_context(failed)?.path();
                if files::starts_with(&path, |start| MAGICS.iter().any(|magic| start.starts_with(magic))) {
                    captures.push(absolute(&path).with_context(failed)?);
                } else if path.is_file() {
                    output::eprint_line(&format!(
                        "note: {}: skipped, because its first bytes are not those of a capture",
                        path.display()
                    ));
                }
            }
        } else {
            captures.push(absolute(place).with_context(failed)?);
        }
    }
    Ok(captures)
}

/// Absolute paths of the captures of a manifest.
pub(super) fn captures_of(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let manifest = Manifest::read(path)?;
    if let Some(left) = manifest.captures.iter().find(|capture| capture.on_sink) {
        bail!(
            "{}: {} was left on {}; analyze it there with `analyze --partial`, or fetch it and give the captures as files",
            path.display(),
            left.file.display(),
            left.sink
        );
    }
    let full = |path: &PathBuf| absolute(path).with_context(|| format!("{}: is not a path", path.display()));
    manifest.captures.iter().map(|capture| full(&capture.file)).collect()
}
