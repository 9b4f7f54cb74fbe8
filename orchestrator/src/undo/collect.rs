//! Captures go where they are to stay, and it is made sure that they arrive whole: SHA-256 is worked out on both ends. A transfer that was cut off is gone on with.

use super::stop::{delete, refusal};
use crate::effort::{Effort, Refusal, chown_argv};
use crate::journal::{Ended, Fetched};
use crate::remote::process::Node;
use crate::step::CaptureStep;
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A transfer without a byte for so long has failed.
const IDLE: Duration = Duration::from_secs(20);
/// Hashing takes no longer than this and what a slow disk needs.
const HASHING: Duration = Duration::from_secs(10);
const SLOW_DISK_BYTES_PER_S: u64 = 20_000_000;

/// Fetches a capture into `folder`, or only has it hashed where it is.
pub(super) fn collect(effort: Effort<'_>, step: &CaptureStep, bytes: u64, folder: &Path) -> Result<Fetched, Refusal> {
    let node = effort.node(&step.node)?;
    if let Some(owner) = &effort.config.capture.owner {
        let [program, end, name] = chown_argv(owner);
        let (file, log) = (step.file.to_string_lossy(), step.log.to_string_lossy());
        node.ask(&[&program, &end, &name, &file, &log]).map_err(refusal)?;
    }
    if effort.config.collect.fetch {
        return fetch(effort, step, bytes, folder);
    }
    let sha256 = hash_there(effort, step, bytes)?;
    Ok(Fetched { file: step.file.clone(), bytes, sha256 })
}

/// Deletes what was fetched, where that is wanted.
pub(super) fn tidy(effort: Effort<'_>, step: &CaptureStep) -> Result<(), Refusal> {
    if !effort.config.collect.delete_fetched {
        return Ok(());
    }
    delete(&effort.node(&step.node)?, &[&step.file.to_string_lossy(), &step.log.to_string_lossy()])
}

/// Deletes a capture that is worth nothing, and its log; not one that may be somebody else's.
pub(super) fn discard(effort: Effort<'_>, step: &CaptureStep, ended: &Ended) -> Result<(), Refusal> {
    if ended.exit_status.is_none() && ended.signal.is_none() && ended.bytes.is_none() {
        return Ok(());
    }
    delete(&effort.node(&step.node)?, &[&step.file.to_string_lossy(), &step.log.to_string_lossy()])
}

/// Makes a run's folder.
pub(super) fn make_folder(effort: Effort<'_>, folder: &Path) -> Result<(), Refusal> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| format!("{} cannot be made: {error}; check collect.directory", folder.display()))?;
    own(effort, folder)
}

/// Gives a file to its owner.
pub(super) fn own(effort: Effort<'_>, path: &Path) -> Result<(), Refusal> {
    let Some(owner) = &effort.config.capture.owner else { return Ok(()) };
    let [program, end, name] = chown_argv(owner);
    effort.here(&[&program, &end, &name, &path.to_string_lossy()]).map(drop)
}

/// Opens a file that nobody else may read, also where it is there already.
fn private(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.create(true).mode(0o600).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

fn fetch(effort: Effort<'_>, step: &CaptureStep, bytes: u64, folder: &Path) -> Result<Fetched, Refusal> {
    make_folder(effort, folder)?;
    let name = step.file.file_name().unwrap_or(step.file.as_os_str());
    let whole = folder.join(name);
    let sha256 = hash_there(effort, step, bytes)?;
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        format!("{} of {} is not fetched: {what}: {error}", step.file.display(), step.node)
    };
    // Fetched before, but nobody could write it down any more.
    if hash_of(effort, &whole, bytes)?.is_some_and(|(_, there)| there == sha256) {
        return Ok(Fetched { file: whole, bytes, sha256 });
    }
    let part = part_of(&whole);
    let (have, mut hasher) = resume(effort, &part, step, bytes)?;
    effort.room_here(folder, bytes - have).map_err(|what| failed("no room", &what))?;
    let mut file =
        private(OpenOptions::new().append(true), &part).map_err(|error| failed("it cannot be written", &error))?;
    file.set_len(have).map_err(|error| failed("it cannot be written", &error))?;
    let mut wanted = bytes - have;
    let mut sink = |chunk: &[u8]| {
        if Instant::now() >= effort.deadline {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "no time is left (run.deadline_s); the next try goes on from here",
            ));
        }
        let chunk = &chunk[..chunk.len().min(usize::try_from(wanted).unwrap_or(usize::MAX))];
        wanted -= chunk.len() as u64;
        hasher.update(chunk);
        file.write_all(chunk)
    };
    effort
        .runner
        .read_file(&step.node, &step.file, have, effort.time(IDLE)?, &mut sink)
        .map_err(|error| failed("it broke off", &error))?;
    let here = hex(&hasher.finalize());
    if here != sha256 {
        // Not worth going on from.
        let _ = fs::remove_file(&part);
        return Err(failed("what arrived differs from what is there", &format!("SHA-256 {here} and {sha256}")));
    }
    own(effort, &part)?;
    let settled =
        file.sync_all().and_then(|()| fs::rename(&part, &whole)).and_then(|()| File::open(folder)?.sync_all());
    settled.map_err(|error| failed("it cannot be written", &error))?;
    Ok(Fetched { file: whole, bytes, sha256 })
}

/// Hash of the first bytes of a capture on its sink, in hex.
fn hash_there(effort: Effort<'_>, step: &CaptureStep, bytes: u64) -> Result<String, Refusal> {
    let timeout = effort.time(HASHING + Duration::from_secs(bytes / SLOW_DISK_BYTES_PER_S))?;
    Node { timeout, ..effort.node(&step.node)? }.hash(&step.file, bytes).map_err(refusal)
}

fn part_of(whole: &Path) -> PathBuf {
    let mut name = whole.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

/// How much of a file is here already, and the hash of it to go on with. What differs from the start of the file counts as nothing.
fn resume(effort: Effort<'_>, part: &Path, step: &CaptureStep, bytes: u64) -> Result<(u64, Sha256), Refusal> {
    let have = fs::metadata(part).map_or(0, |there| there.len()).min(bytes);
    if have > 0
        && let Some((hasher, here)) = hash_of(effort, part, have)?
        && hash_there(effort, step, have)? == here
    {
        return Ok((have, hasher));
    }
    Ok((0, Sha256::new()))
}

/// Hash of the first bytes of a file here: to go on with, and in hex. None where there are not so many.
fn hash_of(effort: Effort<'_>, path: &Path, bytes: u64) -> Result<Option<(Sha256, String)>, Refusal> {
    let Ok(file) = File::open(path) else { return Ok(None) };
    let (mut hasher, mut file, mut total) = (Sha256::new(), file.take(bytes), 0);
    let mut buffer = vec![0; 256 << 10];
    loop {
        effort.time(IDLE)?;
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                hasher.update(&buffer[..length]);
                total += length as u64;
            }
            Err(_) => return Ok(None),
        }
    }
    Ok((total == bytes).then(|| (hasher.clone(), hex(&hasher.finalize()))))
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
