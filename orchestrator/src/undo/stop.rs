//! Stops a capture: SIGINT, time to complete the file, then SIGTERM, and SIGKILL as the last
//! resort.

use crate::capture::{CaptureRing, ProfileCounts};
use crate::context::{FailureText, RunContext};
use crate::journal::CaptureEnd;
use crate::remote::RemoteError;
use crate::remote::process::{
    CaptureProcesses, CaptureStatus, LaunchCancellation, RemoteNode, RemoteProcess, Signal, exit_status, reached_limit,
};
use crate::sink;
use crate::step::CaptureStep;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Time limit until a launch has become the program. A longer launch means a fault of the node.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit until the supervisor has appended the exit status to the log.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit until the analysis on a sink has written its profile. After it, the analysis leaves out
/// the records that it has not read.
const PROFILE_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Free space below which a disk counts as full.
const FULL_BYTES: u64 = 1 << 20;

/// A copy of a capture in the folder of the run.
pub(super) struct FetchedCopy {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// What is known of a capture before it is stopped.
pub(super) struct CaptureHistory<'a> {
    /// Its process.
    pub(super) known: Option<&'a RemoteProcess>,
    /// True if the node answered that the launch failed.
    pub(super) is_refused: bool,
    /// True if it may have packets of the job.
    pub(super) has_captured: bool,
    /// True if an earlier attempt may have stopped it.
    pub(super) is_tried: bool,
    /// Clause on another address of its node than at its start.
    pub(super) address_change: Option<String>,
    /// Its copy here, which no entry of the journal records.
    pub(super) fetched: Option<FetchedCopy>,
}

/// Stops a capture whose process is known, or which may have been launched. A capture that has
/// packets of the job gets time for its last packets.
pub(super) fn stop(
    context: RunContext<'_>,
    step: &CaptureStep,
    history: &CaptureHistory<'_>,
) -> Result<CaptureEnd, FailureText> {
    let known = history.known;
    let node = context.node(&step.node)?;
    let name = step.backend.name();
    let mut ended = CaptureEnd::default();
    // The folder was checked before the capture began. A node that was rebooted since may have lost
    // it, and a user of the node may have created another one.
    let is_trusted = sink::inspect(&node, &step.node, step.folder());
    if known.is_none() && is_trusted.is_ok() {
        // Another machine would answer that the capture was never launched.
        if let Some(change) = &history.address_change {
            return Err(another_machine(step, change));
        }
        match node.cancel_launch(&step.log).map_err(failure_text)? {
            LaunchCancellation::AlreadyStarted => {}
            LaunchCancellation::NoFolder => return Ok(ended),
            LaunchCancellation::Canceled => {
                // The log keeps a launch that may still be in progress from starting, unless the node
                // answered that the launch failed.
                if history.is_refused {
                    delete(&node, &[step.log.to_string_lossy().into_owned()])?;
                } else {
                    ended
                        .remarks
                        .push(format!("{name} was not started; you can delete its log {}", step.log.display()));
                }
                return Ok(ended);
            }
        }
    }
    let found = wait_for_launch(context, step)?;
    let mut processes = found.processes;
    // The id of the boot proves a reboot only if the machine is the same.
    if let (Some(known), Some(change)) = (known, &history.address_change)
        && known.boot_id != found.boot_id
        && processes.is_empty()
    {
        return Err(another_machine(step, change));
    }
    if let Some(known) = known
        && known.boot_id == found.boot_id
        && !processes.contains(known)
    {
        processes.push(known.clone());
    }
    if history.has_captured && !processes.is_empty() {
        thread::sleep(context.remaining(step.backend.buffering_delay())?);
    }
    let stop_s = Duration::from_secs(u64::from(context.config.capture.stop_s));
    let patience = if step.is_profile { stop_s.max(PROFILE_TIMEOUT) } else { stop_s };
    ended.signal = terminate(context, &step.node, &processes, patience)?;
    is_trusted?;
    let process = known.or(processes.first()).cloned().unwrap_or(RemoteProcess {
        pid: 0,
        start_ticks: 0,
        boot_id: String::new(),
    });
    let began = Instant::now();
    let status = loop {
        let status = context.node(&step.node)?.capture_status(step, &process).map_err(failure_text)?;
        ended.exit_status = exit_status(&status.log);
        if ended.exit_status.is_some() || began.elapsed() >= SUPERVISOR_TIMEOUT {
            break status;
        }
        thread::sleep(POLL_INTERVAL);
    };
    remove_relay(context, step, ended.exit_status)?;
    // The last line of a program that was killed is a count in the middle of the capture.
    ended.counted = step.backend.packet_counts(&status.log).filter(|_| ended.signal != Some(Signal::Kill));
    ended.bytes = status.bytes;
    note_of_ring(&mut ended, step, &status);
    note_of_log(&mut ended, name, &status.log);
    let was_rebooted = known.is_some_and(|known| known.boot_id != found.boot_id);
    ended.remarks.extend(remark_on_end(context, step, history, (&ended, was_rebooted), &status.log));
    if known.is_some() && status.bytes.is_none() {
        ended.remarks.push(remark_on_missing_file(step, history));
    }
    if status.bytes == Some(0) {
        delete(&node, &step.packet_files())?;
        ended.bytes = None;
        // A program that ends has an exit status in the log, unless the disk is full.
        let why =
            if ended.exit_status.is_none() { ": nothing could be written; check whether the disk is full" } else { "" };
        ended.remarks.push(format!("the capture file was empty and was deleted{why}"));
    }
    Ok(ended)
}

/// Fault of a node that answers at another address, where another boot runs.
fn another_machine(step: &CaptureStep, change: &str) -> FailureText {
    let (node, name) = (&step.node, step.backend.name());
    format!(
        "{node}: another machine may answer now: {change}; {name} was not stopped and may run on at the old address; set nodes.{node} back until \
         the run is undone"
    )
}

/// Remark on how a capture ended, unless it ended as it should.
fn remark_on_end(
    context: RunContext<'_>,
    step: &CaptureStep,
    history: &CaptureHistory<'_>,
    (ended, was_rebooted): (&CaptureEnd, bool),
    log: &str,
) -> Option<String> {
    let (name, printed) = (step.backend.name(), crate::text::printable(log.as_bytes()));
    match ended.signal {
        None if was_rebooted => Some(format!(
            "the node was rebooted during the capture, which ended {name}: the end of its file may be missing"
        )),
        // An earlier attempt stopped it.
        None if history.is_tried && ended.exit_status == Some(0) => None,
        None if history.known.is_some() && ended.limit.is_none() => {
            let why = if printed.is_empty() { reason_of_empty_log(context, step) } else { printed };
            Some(format!("{name} had ended before it was stopped: {why}"))
        }
        // In most cases a full disk.
        Some(Signal::Int) => {
            let code = ended.exit_status.filter(|code| *code != 0)?;
            Some(format!("{name} ended with status {code}: {printed}"))
        }
        Some(Signal::Term) => Some(format!("{name} ignored SIGINT; SIGTERM ended it")),
        Some(Signal::Kill) => {
            Some(format!("{name} ignored SIGINT and SIGTERM and was killed: the end of the capture file is missing"))
        }
        None => None,
    }
}

/// Reason why a capture ended and its log is empty. On a full disk, nothing can be written to the log.
fn reason_of_empty_log(context: RunContext<'_>, step: &CaptureStep) -> String {
    let folder = step.folder().display().to_string();
    let free = context.node(&step.node).ok().and_then(|node| {
        let printed = node.query(&["/usr/bin/stat", "-f", "-c", "%a %S", "--", &folder]).ok()?;
        let (blocks, block_bytes) = printed.trim().split_once(' ')?;
        blocks.parse::<u64>().ok()?.checked_mul(block_bytes.parse().ok()?)
    });
    match free {
        Some(free) if free < FULL_BYTES => format!(
            "its log is empty, and the disk is full ({free} bytes free in {folder}): later packets are missing; free some space there, and set \
             capture.max_bytes or capture.disk_limit_bytes"
        ),
        Some(free) => format!(
            "its log is empty, and the disk is not full ({free} bytes free in {folder}); check in the log of the node whether it was killed"
        ),
        None => format!("its log is empty; check the node, and whether the disk of {folder} is full"),
    }
}

/// Remark on a capture without a file on its sink.
fn remark_on_missing_file(step: &CaptureStep, history: &CaptureHistory<'_>) -> String {
    let file = step.file.display();
    if let Some(FetchedCopy { path, bytes }) = &history.fetched {
        return format!(
            "the capture file {file} is no longer there: an earlier attempt fetched it to {} ({bytes} bytes) and could not record this in the journal",
            path.display()
        );
    }
    if history.is_tried {
        return format!("the capture file {file} is missing: an earlier attempt to undo the run may have deleted it");
    }
    format!("the capture file {file} is missing: somebody removed it during the capture")
}

/// Removes the folder of a relay that was killed. A relay that ends by itself removes it.
fn remove_relay(context: RunContext<'_>, step: &CaptureStep, exit_status: Option<i32>) -> Result<(), FailureText> {
    // The shell adds 128 to the number of a signal.
    let is_killed = exit_status.is_none_or(|status| status >= 128);
    let Some(folder) = step.relay_folder().filter(|_| is_killed) else { return Ok(()) };
    let argv = ["/bin/rm", "-rf", "--", &folder.to_string_lossy()];
    context.node(&step.node)?.query(&argv).map(drop).map_err(failure_text)
}

/// Notes whether the ring of a capture was full, and remarks on the packets that may be missing.
fn note_of_ring(ended: &mut CaptureEnd, step: &CaptureStep, status: &CaptureStatus) {
    let Some(files) = step.ring_files else { return };
    // An earlier attempt may have joined the files, whose number is unknown then.
    let has_packets = status.bytes.is_some_and(|bytes| bytes > 0);
    let is_full = has_packets && (status.ring_files == 0 || status.ring_files >= files);
    ended.ring = Some(CaptureRing { files, is_full });
    if is_full {
        let name = step.backend.name();
        ended
            .remarks
            .push(format!("{name} kept the newest {files} files (capture.ring_files): earlier packets may be missing"));
    }
}

/// Takes the limit and the counts of an analysis from the log of a capture, and remarks on the packets
/// that are missing.
fn note_of_log(ended: &mut CaptureEnd, name: &str, log: &str) {
    ended.limit = reached_limit(log);
    ended.profile = ProfileCounts::of_log(log);
    if let Some(limit) = ended.limit {
        let key = limit.key();
        ended.remarks.push(format!("{name} was stopped at the limit capture.{key}: later packets are missing"));
    }
    if let Some(ProfileCounts { packets, dropped_packets, dropped_bytes, .. }) =
        ended.profile.as_ref().filter(|counts| counts.dropped_packets > 0)
    {
        let all = packets + dropped_packets;
        ended.remarks.push(format!(
            "the analysis could not keep up: {dropped_packets} of {all} packets ({dropped_bytes} bytes) are missing in the profile"
        ));
    }
}

/// Waits until no launch is in progress, and returns the capture's processes.
fn wait_for_launch(context: RunContext<'_>, step: &CaptureStep) -> Result<CaptureProcesses, FailureText> {
    let began = Instant::now();
    loop {
        let found = context.node(&step.node)?.find_capture(step).map_err(failure_text)?;
        // While the program runs, its supervisor looks like a launch.
        if !found.launching || !found.processes.is_empty() {
            return Ok(found);
        }
        if began.elapsed() >= LAUNCH_TIMEOUT {
            return Err(format!("{}: {} is still being launched; check the node", step.node, step.backend.name()));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Signals processes until they have ended. Returns the last signal that was needed.
fn terminate(
    context: RunContext<'_>,
    node: &str,
    processes: &[RemoteProcess],
    time_limit: Duration,
) -> Result<Option<Signal>, FailureText> {
    let mut needed = None;
    let mut running = Vec::new();
    for process in processes {
        // Signal 0 does not distinguish a zombie from a running process.
        if context.node(node)?.is_alive(process).map_err(failure_text)? {
            running.push(process.clone());
        }
    }
    for (signal, wait) in [(Signal::Int, time_limit), (Signal::Term, time_limit), (Signal::Kill, KILL_TIMEOUT)] {
        if running.is_empty() {
            return Ok(needed);
        }
        needed = Some(signal);
        let mut still = Vec::new();
        for process in running {
            if !context.node(node)?.signal(&process, signal, context.remaining(wait)?).map_err(failure_text)? {
                still.push(process);
            }
        }
        running = still;
    }
    if running.is_empty() {
        return Ok(needed);
    }
    let ids: Vec<String> = running.iter().map(|process| process.pid.to_string()).collect();
    Err(format!(
        "{node}: SIGKILL does not end the capture (process id {}), because the process is blocked in the kernel; check the node",
        ids.join(", ")
    ))
}

/// Deletes files on a node if they exist.
pub(super) fn delete(node: &RemoteNode<'_>, files: &[String]) -> Result<(), FailureText> {
    let argv: Vec<&str> = ["/bin/rm", "-f", "--"].into_iter().chain(files.iter().map(String::as_str)).collect();
    node.query(&argv).map(drop).map_err(failure_text)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn failure_text(error: RemoteError) -> FailureText {
    error.to_string()
}
