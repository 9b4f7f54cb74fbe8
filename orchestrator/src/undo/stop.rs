//! The end of a capture: SIGINT, time to write the file's end, SIGTERM, and SIGKILL only where nothing else helps.

use crate::effort::{Effort, Refusal};
use crate::journal::Ended;
use crate::remote::RemoteError;
use crate::remote::process::{Claim, Found, Node, Process, Signal, exit_status};
use crate::sink;
use crate::step::CaptureStep;
use std::thread;
use std::time::{Duration, Instant};

/// A launch that is under way has become the program after so long, or something is very wrong with the node.
const LAUNCHING: Duration = Duration::from_secs(5);
/// The supervisor has added the exit status to the log so long after the program's end.
const SUPERVISOR: Duration = Duration::from_secs(1);
/// After SIGKILL.
const KILLED: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Stops a capture, whatever is known of it: its process, or only that it may have been launched. One that has captured something of the job's is given time for its
/// last packets.
pub(super) fn stop(
    effort: Effort<'_>,
    step: &CaptureStep,
    known: Option<&Process>,
    has_failed: bool,
    has_captured: bool,
) -> Result<Ended, Refusal> {
    let node = effort.node(&step.node)?;
    let name = step.backend.name();
    let mut ended = Ended::default();
    // The folder was checked before the capture began. A node that was restarted since may have
    // lost it, and a user of the node may have created another one.
    let is_trusted = sink::inspect(&node, &step.node, step.folder());
    if known.is_none() && is_trusted.is_ok() {
        match node.claim(&step.log).map_err(refusal)? {
            Claim::Begun => {}
            Claim::Nowhere => return Ok(ended),
            Claim::Claimed => {
                // The log keeps a launch from starting that may still be on its way, unless it is known to have failed.
                if has_failed {
                    delete(&node, &[&step.log.to_string_lossy()])?;
                } else {
                    ended.remarks.push(format!("{name} was not started; {} may be deleted", step.log.display()));
                }
                return Ok(ended);
            }
        }
    }
    let found = settle(effort, step)?;
    let mut processes = found.processes;
    if let Some(known) = known
        && known.boot_id == found.boot_id
        && !processes.contains(known)
    {
        processes.push(known.clone());
    }
    if has_captured && !processes.is_empty() {
        thread::sleep(effort.time(step.backend.behind())?);
    }
    ended.signal = end(effort, &step.node, &processes)?;
    is_trusted?;
    let process =
        known.or(processes.first()).cloned().unwrap_or(Process { pid: 0, start_ticks: 0, boot_id: String::new() });
    let began = Instant::now();
    let sight = loop {
        let sight = effort.node(&step.node)?.look(step, &process).map_err(refusal)?;
        ended.exit_status = exit_status(&sight.log);
        if ended.exit_status.is_some() || began.elapsed() >= SUPERVISOR {
            break sight;
        }
        thread::sleep(LOOK_EVERY);
    };
    ended.counted = step.backend.counted(&sight.log);
    ended.bytes = sight.bytes;
    match ended.signal {
        None if known.is_some() => ended
            .remarks
            .push(format!("{name} had ended before it was stopped: {}", crate::text::printable(sight.log.as_bytes()))),
        Some(Signal::Int) => {
            // A full disk, mostly.
            if let Some(status) = ended.exit_status.filter(|status| *status != 0) {
                let said = crate::text::printable(sight.log.as_bytes());
                ended.remarks.push(format!("{name} ended with status {status}: {said}"));
            }
        }
        Some(Signal::Term) => ended.remarks.push(format!("{name} did not heed SIGINT; SIGTERM ended it")),
        Some(Signal::Kill) => ended
            .remarks
            .push(format!("{name} heeded neither SIGINT nor SIGTERM and was killed: the end of its file is lost")),
        _ => {}
    }
    if sight.bytes == Some(0) {
        delete(&node, &[&step.file.to_string_lossy()])?;
        ended.bytes = None;
        // What ends well tells its status in the log, if there is room for that.
        let why =
            if ended.exit_status.is_none() { ": nothing could be written; look whether the disk is full" } else { "" };
        ended.remarks.push(format!("its file was empty and is deleted{why}"));
    }
    Ok(ended)
}

/// The capture's processes, once no launch is under way any more.
fn settle(effort: Effort<'_>, step: &CaptureStep) -> Result<Found, Refusal> {
    let began = Instant::now();
    loop {
        let found = effort.node(&step.node)?.find(step).map_err(refusal)?;
        // The supervisor of a program that runs is a launch too.
        if !found.launching || !found.processes.is_empty() {
            return Ok(found);
        }
        if began.elapsed() >= LAUNCHING {
            return Err(format!("{}: the launch of {} does not come to an end", step.node, step.backend.name()));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Signals processes until they have ended; the last signal that was needed.
fn end(effort: Effort<'_>, node: &str, processes: &[Process]) -> Result<Option<Signal>, Refusal> {
    let patience = Duration::from_secs(u64::from(effort.config.capture.stop_s));
    let mut needed = None;
    let mut running = Vec::new();
    for process in processes {
        // Signal 0 would not tell a zombie from the living; looking does.
        if effort.node(node)?.is_alive(process).map_err(refusal)? {
            running.push(process.clone());
        }
    }
    for (signal, wait) in [(Signal::Int, patience), (Signal::Term, patience), (Signal::Kill, KILLED)] {
        if running.is_empty() {
            return Ok(needed);
        }
        needed = Some(signal);
        let mut still = Vec::new();
        for process in running {
            if !effort.node(node)?.signal(&process, signal, effort.time(wait)?).map_err(refusal)? {
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
        "{node}: even SIGKILL does not end process {}: it hangs in the kernel; look at the node",
        ids.join(", ")
    ))
}

/// Deletes files on a node, if they are there.
pub(super) fn delete(node: &Node<'_>, files: &[&str]) -> Result<(), Refusal> {
    let argv: Vec<&str> = ["/bin/rm", "-f", "--"].into_iter().chain(files.iter().copied()).collect();
    node.ask(&argv).map(drop).map_err(refusal)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn refusal(error: RemoteError) -> Refusal {
    error.to_string()
}
