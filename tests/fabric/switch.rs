//! A stand-in for the switches and for a site's mirroring command: it mirrors ports, stores the
//! mirrors, and refuses invalid requests as a switch does.
//!
//! `switchctl on|off --leaf GUID --port N --to N --job N` and `switchctl show --leaf GUID --port
//! N`; `--ports N,N` instead of `--port N` changes or shows several ports in one call. State, log and
//! faults are files in the lab's folder `switch`.

use crate::gate::{self, GateDecision};
use crate::lab::HookLab;
use crate::mstreg;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

pub(crate) const NAME: &str = "switchctl";

/// A port of a leaf switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeafPort {
    pub(crate) leaf: u64,
    pub(crate) number: u8,
}

/// Destination of a port's packets, and the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SwitchMirror {
    pub(crate) sink: u8,
    pub(crate) job: u32,
}

/// Packets of a port that are mirrored to a sink: those that its node has `sent`, or has
/// `received`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopiedTraffic {
    pub(crate) port: LeafPort,
    pub(crate) sink: u8,
    pub(crate) way: &'static str,
}

/// A call of the mirroring command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SwitchCall {
    pub(crate) on: bool,
    pub(crate) port: LeafPort,
    pub(crate) mirror: SwitchMirror,
}

/// Fault of the switches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SwitchFault {
    /// Mirroring this port of any leaf is refused.
    Refuse(u8),
    /// Ending the mirroring of this port is refused.
    Keep(u8),
    /// The switch does not answer while this fault is set.
    Hang,
    /// This leaf does not answer while this fault is set.
    HangAt(u64),
    /// The caller is killed after the change, at the call of this number (from 1).
    Kill(usize),
    /// Registers of this port of any leaf do not keep their values. For `mstreg`.
    Forget(u8),
}

impl HookLab {
    /// Ports that are mirrored at the moment, by the site's command or by registers.
    pub(crate) fn mirrored(&self) -> BTreeMap<LeafPort, SwitchMirror> {
        let mut ports = state(self.path());
        ports.extend(mstreg::mirrored(self.path()));
        ports
    }

    /// Calls so far, in order.
    pub(crate) fn switch_calls(&self) -> Vec<SwitchCall> {
        let text = fs::read_to_string(self.path().join("switch/log")).unwrap_or_default();
        let call = |line: &str| {
            let mut words = line.split(' ').skip(1);
            let on = words.next()? == "on";
            let (port, mirror) = row(&words.collect::<Vec<_>>())?;
            Some(SwitchCall { on, port, mirror })
        };
        text.lines().map(|line| call(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    /// Sets a fault; `None` clears it. Calls are counted from here.
    pub(crate) fn switch_fault(&self, fault: Option<SwitchFault>) {
        let folder = self.path().join("switch");
        fs::create_dir_all(&folder).expect("folder");
        fs::write(folder.join("log"), "").expect("log");
        let text = match fault {
            None => String::new(),
            Some(SwitchFault::Refuse(port)) => format!("refuse {port}"),
            Some(SwitchFault::Keep(port)) => format!("keep {port}"),
            Some(SwitchFault::Hang) => "hang".to_owned(),
            Some(SwitchFault::HangAt(leaf)) => format!("hang {leaf:#018x}"),
            Some(SwitchFault::Kill(call)) => format!("kill {call}"),
            Some(SwitchFault::Forget(port)) => format!("forget {port}"),
        };
        fs::write(folder.join("fault"), text).expect("fault");
        let user = self.uid(self.user);
        std::os::unix::fs::chown(folder.join("log"), Some(user), Some(user)).expect("owner");
    }
}

/// Ports that are mirrored in this lab.
pub(crate) fn state(lab: &Path) -> BTreeMap<LeafPort, SwitchMirror> {
    parse(&fs::read_to_string(lab.join("switch/state")).unwrap_or_default())
}

/// Parses `LEAF PORT SINK JOB`.
fn row(words: &[&str]) -> Option<(LeafPort, SwitchMirror)> {
    let [leaf, number, sink, job] = words else { return None };
    let leaf = u64::from_str_radix(leaf.strip_prefix("0x")?, 16).ok()?;
    Some((
        LeafPort { leaf, number: number.parse().ok()? },
        SwitchMirror { sink: sink.parse().ok()?, job: job.parse().ok()? },
    ))
}

fn parse(state: &str) -> BTreeMap<LeafPort, SwitchMirror> {
    state.lines().map(|line| row(&line.split(' ').collect::<Vec<_>>()).expect("a line of the state")).collect()
}

/// The stand-in program.
pub(crate) fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match work(&words, &super::standin::folder()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{NAME}: {what}");
            ExitCode::from(3)
        }
    }
}

fn work(words: &[String], lab: &Path) -> Result<(), String> {
    let folder = &lab.join("switch");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let decision = gate::pass(lab, &format!("{NAME}-{}", words.first().copied().unwrap_or_default()));
    if decision == GateDecision::Fail {
        return Err("the test lets this fail".to_owned());
    }
    if let ["show", "--leaf", leaf, ports @ ("--port" | "--ports"), numbers] = words[..] {
        let mut numbers = port_numbers(ports, numbers).into_iter();
        return numbers.try_for_each(|number| show(folder, leaf, number, decision == GateDecision::Lie));
    }
    if decision == GateDecision::Lie {
        return Ok(());
    }
    let [verb @ ("on" | "off"), "--leaf", leaf, ports @ ("--port" | "--ports"), numbers, "--to", sink, "--job", job] =
        words[..]
    else {
        return Err(format!("usage: {NAME} on|off --leaf GUID --port N|--ports N,N --to N --job N, not {words:?}"));
    };
    let changes = port_numbers(ports, numbers).into_iter().map(|number| {
        let (port, mirror) = row(&[leaf, number, sink, job]).ok_or_else(|| format!("not numbers: {words:?}"))?;
        Ok(SwitchCall { on: verb == "on", port, mirror })
    });
    change(lab, leaf, &changes.collect::<Result<Vec<_>, String>>()?)
}

/// The port numbers of a call; several only with `--ports`.
fn port_numbers<'a>(option: &str, numbers: &'a str) -> Vec<&'a str> {
    if option == "--ports" { numbers.split(',').collect() } else { vec![numbers] }
}

/// Changes some ports of a leaf, one after the other until the first error.
fn change(lab: &Path, leaf: &str, changes: &[SwitchCall]) -> Result<(), String> {
    let folder = &lab.join("switch");
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let fault = fs::read_to_string(folder.join("fault")).unwrap_or_default();
    if fault == "hang" || fault == format!("hang {leaf}") {
        changes.iter().for_each(|call| _ = log(folder, call));
        // Wait until the fault is cleared.
        while fs::read_to_string(folder.join("fault")).is_ok_and(|fault| fault.starts_with("hang")) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        return Err("no answer from the switch".to_owned());
    }
    // One at a time, as a switch does.
    let lock = File::create(folder.join("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    let mut ports = parse(&fs::read_to_string(folder.join("state")).unwrap_or_default());
    let (mut is_killing, mut outcome) = (false, Ok(()));
    for call in changes {
        let calls = log(folder, call);
        outcome = change_port(&mut ports, call, &fault);
        if outcome.is_err() {
            break;
        }
        is_killing |= fault == format!("kill {calls}");
    }
    let mut lines = String::new();
    for (port, mirror) in &ports {
        writeln!(lines, "{}", state_line(*port, *mirror)).expect("a string takes all");
    }
    replace(&folder.join("state"), &lines)?;
    crate::ibdump::deliver(lab);
    if is_killing {
        kill_callers();
    }
    outcome
}

/// Changes one port, unless the switch refuses it.
fn change_port(ports: &mut BTreeMap<LeafPort, SwitchMirror>, call: &SwitchCall, fault: &str) -> Result<(), String> {
    let SwitchCall { on, port, mirror } = *call;
    let LeafPort { leaf, number } = port;
    match fault.split_once(' ').unwrap_or((fault, "")) {
        ("refuse", which) if on && which == number.to_string() => return Err(format!("port {number}: refused")),
        ("keep", which) if !on && which == number.to_string() => return Err(format!("port {number}: busy")),
        _ => {}
    }
    if let Some(other) = ports.get(&port).filter(|other| **other != mirror) {
        let SwitchMirror { sink, job } = other;
        return Err(format!("port {number} of {leaf:#018x} is mirrored to port {sink} for job {job}"));
    }
    let is_sink = |of: &LeafPort, sink: u8| of.leaf == leaf && of.number == sink;
    let feeds_sink = |(other, to): (&LeafPort, &SwitchMirror)| is_sink(other, mirror.sink) || is_sink(&port, to.sink);
    if on && (is_sink(&port, mirror.sink) || ports.iter().any(feeds_sink)) {
        return Err("a sink's port cannot be mirrored".to_owned());
    }
    if on {
        ports.insert(port, mirror);
    } else {
        ports.remove(&port);
    }
    Ok(())
}

/// `LEAF PORT SINK JOB`, as [`row`] parses it.
fn state_line(port: LeafPort, mirror: SwitchMirror) -> String {
    format!("{:#018x} {} {} {}", port.leaf, port.number, mirror.sink, mirror.job)
}

/// Replaces a file atomically, because others read it without the lock.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), String> {
    let new = path.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, path)).map_err(|error| error.to_string())
}

/// Prints the state of a port, or the opposite.
fn show(folder: &Path, leaf: &str, number: &str, is_lie: bool) -> Result<(), String> {
    let (port, _) = row(&[leaf, number, "0", "0"]).ok_or_else(|| format!("not a port: {leaf} {number}"))?;
    let ports = parse(&fs::read_to_string(folder.join("state")).unwrap_or_default());
    match ports.get(&port) {
        Some(_) if is_lie => println!("port {number} not mirrored"),
        None if is_lie => println!("port {number} mirrored to 1 for job 1"),
        Some(mirror) => println!("port {number} mirrored to {} for job {}", mirror.sink, mirror.job),
        None => println!("port {number} not mirrored"),
    }
    Ok(())
}

/// Logs a call for a port, and returns the number of calls so far.
fn log(folder: &Path, call: &SwitchCall) -> usize {
    let mut log: File = OpenOptions::new().create(true).append(true).open(folder.join("log")).expect("log");
    let time = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos();
    let verb = if call.on { "on" } else { "off" };
    // One write for the line, because several of these programs write to the file at the same time.
    let line = format!("{time} {verb} {}\n", state_line(call.port, call.mirror));
    log.write_all(line.as_bytes()).expect("log");
    fs::read_to_string(folder.join("log")).expect("log").lines().count()
}

/// Kills the ibscope process that called this program, through all processes in between, and the
/// hook that started it.
fn kill_callers() {
    let mut pid = std::os::unix::process::parent_id().to_string();
    let mut callers = Vec::new();
    while let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
        let (name, rest) = stat.split_once(')').expect("a name");
        let parent = rest.split_whitespace().nth(1).expect("a parent").to_owned();
        // A copy of the program is called `.ibscope`.
        if name.ends_with("ibscope") {
            callers.push(pid);
        }
        pid = parent;
    }
    assert!(!callers.is_empty(), "no caller to kill");
    // Kill the hook first: it might notice the end of its worker, and succeed.
    callers.reverse();
    Command::new("kill").arg("-KILL").args(&callers).status().expect("kill");
}
