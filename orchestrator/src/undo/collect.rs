//! Brings captures to their final place, and verifies by SHA-256 on both machines that they arrived
//! completely. An interrupted transfer is continued.

use super::stop::{delete, failure_text};
use crate::context::{FailureText, RunContext};
use crate::folder::{Folder, OwnerIds, set_owner};
use crate::journal::{CaptureEnd, FetchedFile};
use crate::remote::process::RemoteNode;
use crate::sink;
use crate::step::CaptureStep;
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

/// A transfer without a byte for this long has failed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for hashing, in addition to the time that a slow disk needs.
const MIN_HASH_TIMEOUT: Duration = Duration::from_secs(10);
const SLOW_DISK_BYTES_PER_S: u64 = 20_000_000;

/// Fetches a capture into the run's folder, or only hashes it on its sink. The file is given to
/// `owner`.
pub(super) fn collect(
    context: RunContext<'_>,
    step: &CaptureStep,
    bytes: u64,
    owner: Option<OwnerIds>,
    folder: impl FnOnce() -> Result<Folder, FailureText>,
) -> Result<FetchedFile, FailureText> {
    let node = context.node(&step.node)?;
    // A second attempt may come long after the capture was stopped, and after a reboot of the node.
    sink::inspect(&node, &step.node, step.folder())?;
    if let Some(owner) = &context.config.capture.owner {
        let (file, log) = (step.file.to_string_lossy(), step.log.to_string_lossy());
        node.query(&["/bin/chown", "-h", "--", &owner.to_string(), &file, &log]).map_err(failure_text)?;
    }
    if context.config.collect.fetch {
        return fetch(context, step, bytes, owner, &folder()?);
    }
    let sha256 = hash_on_node(context, step, bytes)?;
    Ok(FetchedFile { file: step.file.clone(), bytes, sha256 })
}

/// Deletes a fetched capture on its sink, if the configuration requests it.
pub(super) fn delete_fetched(context: RunContext<'_>, step: &CaptureStep) -> Result<(), FailureText> {
    if !context.config.collect.delete_fetched {
        return Ok(());
    }
    delete(&context.node(&step.node)?, &[&step.file.to_string_lossy(), &step.log.to_string_lossy()])
}

/// Deletes a useless capture and its log, unless the files may belong to somebody else.
pub(super) fn discard(context: RunContext<'_>, step: &CaptureStep, ended: &CaptureEnd) -> Result<(), FailureText> {
    if ended.exit_status.is_none() && ended.signal.is_none() && ended.bytes.is_none() {
        return Ok(());
    }
    delete(&context.node(&step.node)?, &[&step.file.to_string_lossy(), &step.log.to_string_lossy()])
}

fn fetch(
    context: RunContext<'_>,
    step: &CaptureStep,
    bytes: u64,
    owner: Option<OwnerIds>,
    folder: &Folder,
) -> Result<FetchedFile, FailureText> {
    let name = step.file.file_name().unwrap_or(step.file.as_os_str());
    let whole = folder.path().join(name);
    let sha256 = hash_on_node(context, step, bytes)?;
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        format!("{} of {} was not fetched: {what}: {error}", step.file.display(), step.node)
    };
    // It was fetched before, but the journal entry is missing.
    if hash_of(context, folder, name, bytes)?.is_some_and(|(_, there)| there == sha256) {
        return Ok(FetchedFile { file: whole, bytes, sha256 });
    }
    let part = &partial_name(name);
    let (have, mut hasher) = resume(context, folder, part, step, bytes)?;
    context.check_free_space_here(folder.path(), bytes - have).map_err(|what| failed("not enough space", &what))?;
    let mut file = open_partial(folder, part, have, owner).map_err(|error| failed("it cannot be written", &error))?;
    let mut wanted = bytes - have;
    let mut sink = |chunk: &[u8]| {
        if Instant::now() >= context.deadline {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the deadline has passed (run.deadline_s); the next attempt continues the transfer",
            ));
        }
        let chunk = &chunk[..chunk.len().min(usize::try_from(wanted).unwrap_or(usize::MAX))];
        wanted -= chunk.len() as u64;
        hasher.update(chunk);
        file.write_all(chunk)
    };
    context
        .runner
        .read_file(&step.node, &step.file, have, context.remaining(IDLE_TIMEOUT)?, &mut sink)
        .map_err(|error| failed("the transfer failed", &error))?;
    let here = hex(&hasher.finalize());
    if here != sha256 {
        // A corrupt file is not worth continuing.
        let _ = folder.remove(part);
        return Err(failed(
            "the received file differs from the one on the sink",
            &format!("SHA-256 {here} and {sha256}"),
        ));
    }
    folder.put_in_place(&file, part, name).map_err(|error| failed("it cannot be written", &error))?;
    Ok(FetchedFile { file: whole, bytes, sha256 })
}

/// SHA-256 of the first bytes of a capture on its sink, in hex.
fn hash_on_node(context: RunContext<'_>, step: &CaptureStep, bytes: u64) -> Result<String, FailureText> {
    let timeout = context.remaining(MIN_HASH_TIMEOUT + Duration::from_secs(bytes / SLOW_DISK_BYTES_PER_S))?;
    RemoteNode { timeout, ..context.node(&step.node)? }.hash(&step.file, bytes).map_err(failure_text)
}

fn partial_name(whole: &OsStr) -> OsString {
    let mut name = whole.to_owned();
    name.push(".part");
    name
}

/// Opens the file of an interrupted transfer, or creates a new one. The file is given to its owner
/// at once: the folder may belong to the owner already, and there a file of root is not continued.
fn open_partial(folder: &Folder, part: &OsStr, have: u64, owner: Option<OwnerIds>) -> io::Result<File> {
    let file = if have > 0 {
        folder.append(part)?
    } else {
        folder.remove(part)?;
        folder.create(part, 0o600)?
    };
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    set_owner(&file, owner)?;
    file.set_len(have)?;
    Ok(file)
}

/// Number of bytes that an earlier transfer has fetched, and the hash state to continue with. Bytes
/// that differ from the start of the capture do not count.
fn resume(
    context: RunContext<'_>,
    folder: &Folder,
    part: &OsStr,
    step: &CaptureStep,
    bytes: u64,
) -> Result<(u64, Sha256), FailureText> {
    let length = folder.read(part).and_then(|file| file.metadata()).map_or(0, |there| there.len());
    let have = length.min(bytes);
    if have > 0
        && let Some((hasher, here)) = hash_of(context, folder, part, have)?
        && hash_on_node(context, step, have)? == here
    {
        return Ok((have, hasher));
    }
    Ok((0, Sha256::new()))
}

/// Hash of the first bytes of a local file: its state, to continue with, and its hex text. `None`
/// if the file is shorter or cannot be read.
fn hash_of(
    context: RunContext<'_>,
    folder: &Folder,
    name: &OsStr,
    bytes: u64,
) -> Result<Option<(Sha256, String)>, FailureText> {
    let Ok(file) = folder.read(name) else { return Ok(None) };
    let (mut hasher, mut file, mut total) = (Sha256::new(), file.take(bytes), 0);
    let mut buffer = vec![0; 256 << 10];
    loop {
        context.remaining(IDLE_TIMEOUT)?;
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
