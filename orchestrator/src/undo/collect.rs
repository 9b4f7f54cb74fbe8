//! Captures go where they are to stay, and it is made sure that they arrive whole: SHA-256 is worked out on both ends. A transfer that was cut off is gone on with.

use super::stop::{delete, refusal};
use crate::effort::{Effort, Refusal};
use crate::folder::{Folder, Ids, give};
use crate::journal::{Ended, Fetched};
use crate::remote::process::Node;
use crate::sink;
use crate::step::CaptureStep;
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

/// A transfer without a byte for so long has failed.
const IDLE: Duration = Duration::from_secs(20);
/// Hashing takes no longer than this and what a slow disk needs.
const HASHING: Duration = Duration::from_secs(10);
const SLOW_DISK_BYTES_PER_S: u64 = 20_000_000;

/// Fetches a capture into the run's folder, or only has it hashed where it is. It belongs to `owner` then.
pub(super) fn collect(
    effort: Effort<'_>,
    step: &CaptureStep,
    bytes: u64,
    owner: Option<Ids>,
    folder: impl FnOnce() -> Result<Folder, Refusal>,
) -> Result<Fetched, Refusal> {
    let node = effort.node(&step.node)?;
    // A second try may come long after the capture was stopped, and after a restart of the node.
    sink::inspect(&node, &step.node, step.folder())?;
    if let Some(owner) = &effort.config.capture.owner {
        let (file, log) = (step.file.to_string_lossy(), step.log.to_string_lossy());
        node.ask(&["/bin/chown", "-h", "--", &owner.to_string(), &file, &log]).map_err(refusal)?;
    }
    if effort.config.collect.fetch {
        return fetch(effort, step, bytes, owner, &folder()?);
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

fn fetch(
    effort: Effort<'_>,
    step: &CaptureStep,
    bytes: u64,
    owner: Option<Ids>,
    folder: &Folder,
) -> Result<Fetched, Refusal> {
    let name = step.file.file_name().unwrap_or(step.file.as_os_str());
    let whole = folder.path().join(name);
    let sha256 = hash_there(effort, step, bytes)?;
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        format!("{} of {} is not fetched: {what}: {error}", step.file.display(), step.node)
    };
    // Fetched before, but nobody could write it down any more.
    if hash_of(effort, folder, name, bytes)?.is_some_and(|(_, there)| there == sha256) {
        return Ok(Fetched { file: whole, bytes, sha256 });
    }
    let part = &part_of(name);
    let (have, mut hasher) = resume(effort, folder, part, step, bytes)?;
    effort.room_here(folder.path(), bytes - have).map_err(|what| failed("no room", &what))?;
    let mut file = begun(folder, part, have, owner).map_err(|error| failed("it cannot be written", &error))?;
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
        let _ = folder.remove(part);
        return Err(failed("what arrived differs from what is there", &format!("SHA-256 {here} and {sha256}")));
    }
    let settle = || {
        file.sync_all()?;
        folder.rename(part, name)?;
        folder.sync()
    };
    settle().map_err(|error| failed("it cannot be written", &error))?;
    Ok(Fetched { file: whole, bytes, sha256 })
}

/// Hash of the first bytes of a capture on its sink, in hex.
fn hash_there(effort: Effort<'_>, step: &CaptureStep, bytes: u64) -> Result<String, Refusal> {
    let timeout = effort.time(HASHING + Duration::from_secs(bytes / SLOW_DISK_BYTES_PER_S))?;
    Node { timeout, ..effort.node(&step.node)? }.hash(&step.file, bytes).map_err(refusal)
}

fn part_of(whole: &OsStr) -> OsString {
    let mut name = whole.to_owned();
    name.push(".part");
    name
}

/// The file that a transfer continues, or a new one where nothing is here yet. It belongs to the
/// owner from the start: the folder may belong to the owner already, and there a file of root's is
/// not continued.
fn begun(folder: &Folder, part: &OsStr, have: u64, owner: Option<Ids>) -> io::Result<File> {
    let file = if have > 0 {
        folder.append(part)?
    } else {
        folder.remove(part)?;
        folder.create(part, 0o600)?
    };
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    give(&file, owner)?;
    file.set_len(have)?;
    Ok(file)
}

/// How much of a file is here already, and the hash of it to go on with. What differs from the start of the file counts as nothing.
fn resume(
    effort: Effort<'_>,
    folder: &Folder,
    part: &OsStr,
    step: &CaptureStep,
    bytes: u64,
) -> Result<(u64, Sha256), Refusal> {
    let length = folder.read(part).and_then(|file| file.metadata()).map_or(0, |there| there.len());
    let have = length.min(bytes);
    if have > 0
        && let Some((hasher, here)) = hash_of(effort, folder, part, have)?
        && hash_there(effort, step, have)? == here
    {
        return Ok((have, hasher));
    }
    Ok((0, Sha256::new()))
}

/// Hash of the first bytes of a file here: to go on with, and in hex. None where there are not so many.
fn hash_of(effort: Effort<'_>, folder: &Folder, name: &OsStr, bytes: u64) -> Result<Option<(Sha256, String)>, Refusal> {
    let Ok(file) = folder.read(name) else { return Ok(None) };
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
