//! What stands for the switches and a site's command: it mirrors ports, remembers which, and refuses what a switch would refuse.
//!
//! `switchctl on|off --leaf GUID --port N --to N --job N` and `switchctl show --leaf GUID --port N`. State, log and faults are files in the lab's folder `switch`.

use crate::lab::Lab;
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
pub(crate) struct Port {
    pub(crate) leaf: u64,
    pub(crate) number: u8,
}

/// Where the packets of a port go, and for which job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    pub(crate) sink: u8,
    pub(crate) job: u32,
}

/// Packets of a port that go to a sink: what its node has `sent`, or what it has `received`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) port: Port,
    pub(crate) sink: u8,
    pub(crate) way: &'static str,
}

/// What a call asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) on: bool,
    pub(crate) port: Port,
    pub(crate) mirror: Mirror,
}

/// What goes wrong, from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Mirroring this port of any leaf is refused.
    Refuse(u8),
    /// Ending the mirroring of this port is refused.
    Keep(u8),
    /// Nothing is answered as long as this is so.
    Hang,
    /// The caller is killed after the change, at the call of this number (from 1).
    Kill(usize),
    /// Registers of this port of any leaf do not keep what is written. For `mstreg`.
    Forget(u8),
}

impl Lab {
    /// Ports that are mirrored at the moment, by the site's command or by registers.
    pub(crate) fn mirrored(&self) -> BTreeMap<Port, Mirror> {
        let mut ports = state(self.path());
        ports.extend(mstreg::mirrored(self.path()));
        ports
    }

    /// What was asked of the switches so far, in order.
    pub(crate) fn switch_calls(&self) -> Vec<Call> {
        let text = fs::read_to_string(self.path().join("switch/log")).unwrap_or_default();
        let call = |line: &str| {
            let mut words = line.split(' ').skip(1);
            let on = words.next()? == "on";
            let (port, mirror) = row(&words.collect::<Vec<_>>())?;
            Some(Call { on, port, mirror })
        };
        text.lines().map(|line| call(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    /// Lets something go wrong, or nothing any more. Calls are counted from here.
    pub(crate) fn switch_fault(&self, fault: Option<Fault>) {
        let folder = self.path().join("switch");
        fs::create_dir_all(&folder).expect("folder");
        fs::write(folder.join("log"), "").expect("log");
        let text = match fault {
            None => String::new(),
            Some(Fault::Refuse(port)) => format!("refuse {port}"),
            Some(Fault::Keep(port)) => format!("keep {port}"),
            Some(Fault::Hang) => "hang".to_owned(),
            Some(Fault::Kill(call)) => format!("kill {call}"),
            Some(Fault::Forget(port)) => format!("forget {port}"),
        };
        fs::write(folder.join("fault"), text).expect("fault");
    }
}

/// Ports that are mirrored in this lab.
pub(crate) fn state(lab: &Path) -> BTreeMap<Port, Mirror> {
    parse(&fs::read_to_string(lab.join("switch/state")).unwrap_or_default())
}

/// `LEAF PORT SINK JOB`
fn row(words: &[&str]) -> Option<(Port, Mirror)> {
    let [leaf, number, sink, job] = words else { return None };
    let leaf = u64::from_str_radix(leaf.strip_prefix("0x")?, 16).ok()?;
    Some((Port { leaf, number: number.parse().ok()? }, Mirror { sink: sink.parse().ok()?, job: job.parse().ok()? }))
}

fn parse(state: &str) -> BTreeMap<Port, Mirror> {
    state.lines().map(|line| row(&line.split(' ').collect::<Vec<_>>()).expect("a line of the state")).collect()
}

/// The program.
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
    if let ["show", "--leaf", leaf, "--port", number] = words[..] {
        return show(folder, leaf, number);
    }
    let [verb @ ("on" | "off"), "--leaf", leaf, "--port", number, "--to", sink, "--job", job] = words[..] else {
        return Err(format!("usage: {NAME} on|off --leaf GUID --port N --to N --job N, not {words:?}"));
    };
    let (port, mirror) = row(&[leaf, number, sink, job]).ok_or_else(|| format!("no numbers: {words:?}"))?;
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let fault = fs::read_to_string(folder.join("fault")).unwrap_or_default();
    if fault == "hang" {
        log(folder, &format!("{verb} {leaf} {number} {sink} {job}"));
        // Until the connection breaks, which is when the fault is over.
        while fs::read_to_string(folder.join("fault")).is_ok_and(|fault| fault == "hang") {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        return Err("no answer from the switch".to_owned());
    }
    // One at a time, as at a switch.
    let lock = File::create(folder.join("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    let calls = log(folder, &format!("{verb} {leaf} {number} {sink} {job}"));
    match fault.split_once(' ').unwrap_or((&fault, "")) {
        ("refuse", which) if verb == "on" && which == number => return Err(format!("port {number}: refused")),
        ("keep", which) if verb == "off" && which == number => return Err(format!("port {number}: busy")),
        _ => {}
    }
    let mut ports = parse(&fs::read_to_string(folder.join("state")).unwrap_or_default());
    match (verb, ports.get(&port)) {
        (_, Some(other)) if *other != mirror => {
            return Err(format!("port {number} of {leaf} is mirrored to port {} for job {}", other.sink, other.job));
        }
        ("on", _) => _ = ports.insert(port, mirror),
        _ => _ = ports.remove(&port),
    }
    let is_sink = |of: &Port| ports.iter().any(|(port, mirror)| port.leaf == of.leaf && mirror.sink == of.number);
    if ports.keys().any(is_sink) {
        return Err("a sink's port cannot be mirrored".to_owned());
    }
    let mut lines = String::new();
    for (port, mirror) in &ports {
        writeln!(lines, "{:#018x} {} {} {}", port.leaf, port.number, mirror.sink, mirror.job)
            .expect("a string takes all");
    }
    replace(&folder.join("state"), &lines)?;
    crate::ibdump::deliver(lab);
    if fault == format!("kill {calls}") {
        kill_callers();
    }
    Ok(())
}

/// Replaces a file in one step, because others read it without the lock.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), String> {
    let new = path.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, path)).map_err(|error| error.to_string())
}

/// Says how it is with a port.
fn show(folder: &Path, leaf: &str, number: &str) -> Result<(), String> {
    let (port, _) = row(&[leaf, number, "0", "0"]).ok_or_else(|| format!("no port: {leaf} {number}"))?;
    let ports = parse(&fs::read_to_string(folder.join("state")).unwrap_or_default());
    match ports.get(&port) {
        Some(mirror) => println!("port {number} mirrored to {} for job {}", mirror.sink, mirror.job),
        None => println!("port {number} not mirrored"),
    }
    Ok(())
}

/// Notes a call, and gives the number of calls so far.
fn log(folder: &Path, line: &str) -> usize {
    let mut log: File = OpenOptions::new().create(true).append(true).open(folder.join("log")).expect("log");
    let time = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos();
    // One write for the line: several of these programs write to the file at once.
    log.write_all(format!("{time} {line}\n").as_bytes()).expect("log");
    fs::read_to_string(folder.join("log")).expect("log").lines().count()
}

/// Kills the program that this is called by, through whatever lies in between, and the hook that has started it.
fn kill_callers() {
    let mut pid = std::os::unix::process::parent_id().to_string();
    let mut callers = Vec::new();
    while let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
        let (name, rest) = stat.split_once(')').expect("a name");
        let parent = rest.split_whitespace().nth(1).expect("a parent").to_owned();
        if name.ends_with("(ibscope") {
            callers.push(pid);
        }
        pid = parent;
    }
    assert!(!callers.is_empty(), "nobody to kill");
    // The hook first: else it might see that its work has ended, and end well.
    callers.reverse();
    Command::new("kill").arg("-KILL").args(&callers).status().expect("kill");
}
