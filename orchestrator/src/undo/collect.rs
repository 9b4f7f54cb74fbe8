//! Brings captures to their final place, and verifies by SHA-256 on both machines that they arrived
//! completely. Both hash a file while it is copied. An interrupted transfer is continued: the bytes
//! that are here already are hashed again on both machines, so that a file that was changed meanwhile
//! is an error.

use super::stop::{delete, failure_text};
use crate::context::{FailureText, RunContext};
use crate::folder::{Folder, OwnerIds, set_owner};
use crate::journal::{CaptureEnd, FetchedFile, RunRecord, StepProgress};
use crate::remote::process::RemoteNode;
use crate::remote::{FilePart, TransferTimeouts, parallel};
use crate::sink;
use crate::step::{CaptureStep, PlanStep};
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// A transfer without a byte for this long has failed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for hashing, in addition to the time that a slow disk needs.
const MIN_HASH_TIMEOUT: Duration = Duration::from_secs(10);
const SLOW_DISK_BYTES_PER_S: u64 = 20_000_000;
/// Received chunks, of at most 256 KiB each, that wait to be written.
const WAITING_CHUNKS: usize = 16;

/// Captures that were stopped, with their place in the plan.
pub(super) fn ended_captures(record: &RunRecord) -> impl Iterator<Item = (usize, &CaptureStep, &CaptureEnd)> {
    let steps = record.plan.steps.iter().zip(&record.progress).enumerate();
    steps.filter_map(|(place, both)| match both {
        (PlanStep::Capture(step), StepProgress::Undone(Some(ended))) => Some((place, step, ended)),
        _ => None,
    })
}

/// Brings the captures of a run to their final place, and reports each. Returns the reasons of failures.
pub(super) fn fetch_all(
    context: RunContext<'_>,
    record: &RunRecord,
    fetched: impl Fn(usize, FetchedFile) + Sync,
) -> Vec<FailureText> {
    let config = context.config.for_user(record.plan.job.user_id);
    let context = RunContext { config: &config, ..context };
    let owner = OnceLock::new();
    let captures: Vec<_> = ended_captures(record).filter(|(place, ..)| !record.fetched.contains_key(place)).collect();
    let failed = parallel(&captures, context.parallelism(), |&(place, step, ended)| {
        let Some(bytes) = ended.bytes else { return Ok(()) };
        let owner = owner.get_or_init(|| context.owner()).clone()?;
        let file = collect(context, step, bytes, owner, || run_folder(context, record, owner))?;
        fetched(place, file);
        Ok(())
    });
    failed.into_iter().filter_map(Result::err).collect()
}

/// Opens the run's own folder for its manifest and captures.
pub(super) fn run_folder(
    context: RunContext<'_>,
    record: &RunRecord,
    owner: Option<OwnerIds>,
) -> Result<Folder, FailureText> {
    let directory = &context.config.collect.directory;
    let name = record.plan.run_name();
    let made = Folder::make(directory, 0o700).and_then(|all| all.inside(OsStr::new(&name), 0o700, owner));
    made.map_err(|error| {
        format!("{} cannot be used: {error}; check collect.directory", directory.join(&name).display())
    })
}

/// Fetches a capture into the run's folder, or only hashes it on its sink. The file is given to
/// `owner`.
fn collect(
    context: RunContext<'_>,
    step: &CaptureStep,
    bytes: u64,
    owner: Option<OwnerIds>,
    folder: impl FnOnce() -> Result<Folder, FailureText>,
) -> Result<FetchedFile, FailureText> {
    let node = context.node(&step.node)?;
    // A second attempt may come long after the capture was stopped, and after a reboot of the node.
    sink::inspect(&node, &step.node, step.folder())?;
    if let Some(files) = step.ring_files {
        let timeout = context.remaining(MIN_HASH_TIMEOUT + hash_time(bytes))?;
        RemoteNode { timeout, ..node }.join(&step.file, files).map_err(failure_text)?;
    }
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
    delete(&context.node(&step.node)?, &step.files())
}

/// Deletes a useless capture and its log, unless the files may belong to somebody else.
pub(super) fn discard(context: RunContext<'_>, step: &CaptureStep, ended: &CaptureEnd) -> Result<(), FailureText> {
    if ended.exit_status.is_none() && ended.signal.is_none() && ended.bytes.is_none() {
        return Ok(());
    }
    delete(&context.node(&step.node)?, &step.files())
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
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        format!("{} of {} was not fetched: {what}: {error}", step.file.display(), step.node)
    };
    // It was fetched before, but the journal entry is missing.
    if let Some(there) = hash_of(context, folder, name, bytes)? {
        let sha256 = hex(&there.finalize());
        if hash_on_node(context, step, bytes)? == sha256 {
            return Ok(FetchedFile { file: whole, bytes, sha256 });
        }
    }
    let part = &partial_name(name);
    let (have, hasher) = resume(context, folder, part, bytes)?;
    context.check_free_space_here(folder.path(), bytes - have).map_err(|what| failed("not enough space", &what))?;
    let file = open_partial(folder, part, have, owner).map_err(|error| failed("it cannot be written", &error))?;
    let copy = PartialCopy { hasher, file, missing_bytes: bytes - have };
    let (copy, sha256) = transfer(context, step, bytes, copy).map_err(|error| failed("the transfer failed", &error))?;
    let here = hex(&copy.hasher.finalize());
    if copy.missing_bytes > 0 || here != sha256 {
        let _ = folder.remove(part);
        let what = if have > 0 {
            "it was changed since an earlier attempt, and the next attempt begins anew"
        } else {
            "the received bytes differ from those on the sink"
        };
        return Err(failed(what, &format!("SHA-256 {here} and {sha256}")));
    }
    folder.put_in_place(&copy.file, part, name).map_err(|error| failed("it cannot be written", &error))?;
    Ok(FetchedFile { file: whole, bytes, sha256 })
}

/// Copies the missing bytes, and returns SHA-256 of the whole file on the node. A thread of its own
/// hashes and writes, because decryption alone occupies a core.
fn transfer(
    context: RunContext<'_>,
    step: &CaptureStep,
    bytes: u64,
    mut copy: PartialCopy,
) -> Result<(PartialCopy, String), FailureText> {
    let offset = bytes - copy.missing_bytes;
    // The node hashes what is here already before it sends the rest.
    let timeouts = TransferTimeouts {
        idle: context.remaining(IDLE_TIMEOUT + hash_time(offset))?,
        whole: context.remaining(Duration::MAX)?,
    };
    let part = FilePart { path: &step.file, offset, bytes };
    thread::scope(|scope| {
        let (send, chunks) = mpsc::sync_channel::<Vec<u8>>(WAITING_CHUNKS);
        let write = move || {
            // The sender learns of an error, because the receiver is gone.
            chunks.into_iter().try_for_each(|chunk| copy.write(&chunk)).map(|()| copy)
        };
        let writer = thread::Builder::new().spawn_scoped(scope, write).map_err(|error| error.to_string())?;
        let read = context.runner.read_file(&step.node, part, timeouts, &mut |chunk| {
            if Instant::now() >= context.deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the deadline has passed (run.deadline_s); the next attempt continues the transfer",
                ));
            }
            send.send(chunk.to_vec()).map_err(|_| io::Error::other("its bytes cannot be written"))
        });
        drop(send);
        let written = writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")));
        let copy = written.map_err(|error| format!("{}: {error}", context.config.collect.directory.display()))?;
        Ok((copy, read.map_err(failure_text)?))
    })
}

/// A file that a transfer writes, and SHA-256 of its bytes.
struct PartialCopy {
    hasher: Sha256,
    file: File,
    missing_bytes: u64,
}

impl PartialCopy {
    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        let Some(missing_bytes) = self.missing_bytes.checked_sub(chunk.len() as u64) else {
            return Err(io::Error::other("the node sends more bytes than the file has"));
        };
        self.missing_bytes = missing_bytes;
        self.hasher.update(chunk);
        self.file.write_all(chunk)
    }
}

/// SHA-256 of the first bytes of a capture on its sink, in hex.
fn hash_on_node(context: RunContext<'_>, step: &CaptureStep, bytes: u64) -> Result<String, FailureText> {
    let timeout = context.remaining(MIN_HASH_TIMEOUT + hash_time(bytes))?;
    RemoteNode { timeout, ..context.node(&step.node)? }.hash(&step.file, bytes).map_err(failure_text)
}

/// Time that a slow disk needs to read bytes.
fn hash_time(bytes: u64) -> Duration {
    Duration::from_secs(bytes / SLOW_DISK_BYTES_PER_S)
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

/// Number of bytes that an earlier transfer has fetched, and their hash state to continue with. Its
/// end shows whether they are the start of the capture.
fn resume(context: RunContext<'_>, folder: &Folder, part: &OsStr, bytes: u64) -> Result<(u64, Sha256), FailureText> {
    let length = folder.read(part).and_then(|file| file.metadata()).map_or(0, |there| there.len());
    let have = length.min(bytes);
    Ok(hash_of(context, folder, part, have)?.map_or_else(|| (0, Sha256::new()), |hasher| (have, hasher)))
}

/// Hash state of the first bytes of a local file. `None` if the file is shorter or cannot be read.
fn hash_of(context: RunContext<'_>, folder: &Folder, name: &OsStr, bytes: u64) -> Result<Option<Sha256>, FailureText> {
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
    Ok((total == bytes).then_some(hasher))
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
