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

/// Stops a capture whose process is known, or which may have been launched. A capture that has
/// packets of the job gets time for its last packets.
pub(super) fn stop(
    context: RunContext<'_>,
    step: &CaptureStep,
    known: Option<&RemoteProcess>,
    is_refused: bool,
    has_captured: bool,
) -> Result<CaptureEnd, FailureText> {
    let node = context.node(&step.node)?;
    let name = step.backend.name();
    let mut ended = CaptureEnd::default();
    // The folder was checked before the capture began. A node that was rebooted since may have lost
    // it, and a user of the node may have created another one.
    let is_trusted = sink::inspect(&node, &step.node, step.folder());
    if known.is_none() && is_trusted.is_ok() {
        match node.cancel_launch(&step.log).map_err(failure_text)? {
            LaunchCancellation::AlreadyStarted => {}
            LaunchCancellation::NoFolder => return Ok(ended),
            LaunchCancellation::Canceled => {
                // The log keeps a launch that may still be in progress from starting, unless the node
                // answered that the launch failed.
                if is_refused {
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
    if let Some(known) = known
        && known.boot_id == found.boot_id
        && !processes.contains(known)
    {
        processes.push(known.clone());
    }
    if has_captured && !processes.is_empty() {
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
    match ended.signal {
        None if was_rebooted => {
            let what = format!(
                "the node was rebooted during the capture, which ended {name}: the end of its file may be missing"
            );
            ended.remarks.push(what);
        }
        None if known.is_some() && ended.limit.is_none() => ended
            .remarks
            .push(format!("{name} had ended before it was stopped: {}", crate::text::printable(status.log.as_bytes()))),
        Some(Signal::Int) => {
            // In most cases a full disk.
            if let Some(code) = ended.exit_status.filter(|code| *code != 0) {
                let printed = crate::text::printable(status.log.as_bytes());
                ended.remarks.push(format!("{name} ended with status {code}: {printed}"));
            }
        }
        Some(Signal::Term) => ended.remarks.push(format!("{name} ignored SIGINT; SIGTERM ended it")),
        Some(Signal::Kill) => ended
            .remarks
            .push(format!("{name} ignored SIGINT and SIGTERM and was killed: the end of the capture file is missing")),
        _ => {}
    }
    if known.is_some() && status.bytes.is_none() {
        ended.remarks.push(format!(
            "the capture file {} is missing: somebody removed it during the capture",
            step.file.display()
        ));
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
