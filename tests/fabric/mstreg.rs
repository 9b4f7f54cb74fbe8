//! A stand-in for mstreg of mstflint, and for the switches whose registers it writes: MPAT
//! configures the analyzers, MPAR the ports that lead to them. It accepts the command line, the
//! fields and the order that the register descriptions of mstflint state, and refuses everything
//! else. It does not prove that a real switch accepts them.
//!
//! `mstreg -d lid-N[,ADAPTER] --yes --reg_name REGISTER -i INDEXES -o OPTIONS --set FIELDS|--get`.
//! Registers are lines of `switch/registers` in the lab's folder.

use crate::lab::HookLab;
use crate::switch::{self, CopiedTraffic, LeafPort, SwitchMirror};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::ExitCode;

pub(crate) const NAME: &str = "mstreg";

/// Ports of a leaf of the lab, and analyzers of a switch.
const PORTS: u64 = 64;
const ANALYSERS: u64 = 8;

/// Writable fields of MPAT with the largest value of each. Mirroring to a port of the same switch
/// (`span_type` 4) needs no more fields.
const MPAT: [(&str, u64); 9] = [
    ("system_port", PORTS),
    ("e", 1),
    ("c", 1),
    ("qos", 1),
    ("be", 1),
    ("tr", 1),
    ("span_type", 4),
    ("truncation_size", 0xffff),
    ("vl", 14),
];
/// Writable fields of MPAR.
const MPAR: [(&str, u64); 3] = [("enable", 1), ("pa_id", ANALYSERS - 1), ("probability_rate", u32::MAX as u64)];

/// Fields by name.
type RegisterFields = BTreeMap<String, u64>;
/// Registers by leaf, name and indexes, as in their lines.
type Registers = BTreeMap<String, RegisterFields>;

impl HookLab {
    /// Writes the LIDs of the switches, for programs that address switches by LID.
    pub(crate) fn switch_lids(&self) {
        let listed = self.tool("mgmt", &["ibnetdiscover", "-p"]);
        let mut lines = String::new();
        for line in listed.lines().filter(|line| line.starts_with("SW")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            writeln!(lines, "{} {}", words[1], words[3]).expect("a string takes all");
        }
        fs::write(self.path().join("switch-lids"), lines).expect("LIDs");
    }

    /// Registers of the switches that are not zero, one line each.
    pub(crate) fn registers(&self) -> String {
        fs::read_to_string(self.path().join("switch/registers")).unwrap_or_default()
    }
}

/// Mirrored traffic, from the registers.
pub(crate) fn copies(lab: &Path) -> Vec<CopiedTraffic> {
    let registers = read(&lab.join("switch"));
    let copy = |(name, fields): (&String, &RegisterFields)| {
        let words: Vec<&str> = name.split(' ').collect();
        let ["MPAR", leaf, port, direction] = words[..] else { return None };
        let analyzer = registers.get(&format!("MPAT {leaf} {}", value(fields, "pa_id")))?;
        let is_on = value(fields, "enable") == 1 && value(analyzer, "e") == 1;
        let leaf = u64::from_str_radix(leaf.strip_prefix("0x")?, 16).ok()?;
        is_on.then(|| CopiedTraffic {
            port: LeafPort { leaf, number: port.parse().expect("a port") },
            sink: value(analyzer, "system_port") as u8,
            // Into the switch (1) go the packets that the node sends.
            way: if direction == "1" { "sent" } else { "received" },
        })
    };
    registers.iter().filter_map(copy).collect()
}

/// Ports that are mirrored in at least one direction. No register has the job.
pub(crate) fn mirrored(lab: &Path) -> BTreeMap<LeafPort, SwitchMirror> {
    copies(lab).into_iter().map(|copy| (copy.port, SwitchMirror { sink: copy.sink, job: 0 })).collect()
}

fn value(fields: &RegisterFields, name: &str) -> u64 {
    fields.get(name).copied().unwrap_or_default()
}

/// The stand-in program.
pub(crate) fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match work(&words, &super::standin::folder()) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("-E- {what}");
            ExitCode::from(1)
        }
    }
}

/// Parses `a=1,b=0x2`.
fn fields(text: &str) -> Result<RegisterFields, String> {
    let field = |field: &str| {
        let (name, value) = field.split_once('=').ok_or(format!("{field}: no value"))?;
        let number = value.strip_prefix("0x").map_or_else(|| value.parse(), |digits| u64::from_str_radix(digits, 16));
        Ok((name.to_owned(), number.map_err(|_| format!("{field}: no number"))?))
    };
    let pairs: Vec<(String, u64)> = text.split(',').map(field).collect::<Result<_, String>>()?;
    let (count, fields) = (pairs.len(), RegisterFields::from_iter(pairs));
    if fields.len() == count { Ok(fields) } else { Err(format!("{text}: a field is listed twice")) }
}

/// The values of exactly these indexes.
fn indexes<const N: usize>(given: &RegisterFields, names: [&str; N]) -> Result<[u64; N], String> {
    if given.len() != N || names.iter().any(|name| !given.contains_key(*name)) {
        return Err(format!("indexes are {names:?}, not {given:?}"));
    }
    Ok(names.map(|name| given[name]))
}

fn work(words: &[String], lab: &Path) -> Result<String, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ["-d", device, "--yes", "--reg_name", register, "-i", index, "-o", options, access @ ..] = &words[..] else {
        return Err(format!(
            "usage: -d DEVICE --yes --reg_name REGISTER -i INDEXES -o OPTIONS --set FIELDS|--get, not {words:?}"
        ));
    };
    let device = device.split(',').next().unwrap_or_default();
    let lids = fs::read_to_string(lab.join("switch-lids")).map_err(|error| error.to_string())?;
    let lid = device.strip_prefix("lid-").ok_or(format!("{device}: not an in-band device"))?;
    let leaf = lids.lines().find_map(|line| line.strip_prefix(lid)?.strip_prefix(' '));
    let leaf = leaf.ok_or(format!("{device}: Failed to read device ID"))?;
    if *options != "mngr_type=1" {
        return Err(format!("{options}: ports are InfiniBand port numbers only with mngr_type=1"));
    }
    let index = fields(index)?;
    let (name, known): (String, &[(&str, u64)]) = match *register {
        "MPAT" => {
            let [analyzer] = indexes(&index, ["pa_id"])?;
            within("pa_id", analyzer, ANALYSERS - 1)?;
            (format!("MPAT {leaf} {analyzer}"), &MPAT)
        }
        "MPAR" => {
            let [port, direction, high] = indexes(&index, ["local_port", "i_e", "lp_msb"])?;
            within("local_port", port, PORTS)?;
            within("i_e", direction, 1)?;
            within("lp_msb", high, 0)?;
            if port == 0 {
                return Err("local_port=0: the switch's own port".to_owned());
            }
            (format!("MPAR {leaf} {port} {direction}"), &MPAR)
        }
        other => return Err(format!("{other}: unknown register")),
    };
    let folder = lab.join("switch");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    // One at a time, as a switch does.
    let lock = File::create(folder.join("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    let mut registers = read(&folder);
    let mut now = registers.get(&name).cloned().unwrap_or_default();
    match access {
        ["--get"] => Ok(table(&index, &now, known)),
        ["--set", change] => {
            for (field, new) in fields(change)? {
                let (_, most) = known
                    .iter()
                    .find(|(known, _)| *known == field)
                    .ok_or(format!("{field}: not a field of {register}"))?;
                within(&field, new, *most)?;
                now.insert(field, new);
            }
            allowed(&name, &now, &registers)?;
            let forgotten = index.get("local_port").is_some_and(|port| {
                fs::read_to_string(folder.join("fault")).is_ok_and(|fault| fault == format!("forget {port}"))
            });
            if !forgotten {
                now.retain(|_, value| *value != 0);
                registers.insert(name, now);
                write(&folder, &registers)?;
                crate::ibdump::deliver(lab);
            }
            Ok(String::new())
        }
        _ => Err(format!("--get or --set FIELDS, not {access:?}")),
    }
}

fn within(field: &str, value: u64, most: u64) -> Result<(), String> {
    if value > most { Err(format!("{field}={value}: at most {most}")) } else { Ok(()) }
}

/// Checks the rules of the register descriptions: an analyzer is not changed while it is on, or
/// switched off while a port leads to it, and no port is mirrored to an analyzer that is off, or to
/// itself.
fn allowed(name: &str, new: &RegisterFields, registers: &Registers) -> Result<(), String> {
    let words: Vec<&str> = name.split(' ').collect();
    let (leaf, old) = (words[1], registers.get(name).cloned().unwrap_or_default());
    let leads = |analyzer: u64| {
        registers.iter().any(|(other, fields)| {
            other.starts_with(&format!("MPAR {leaf} "))
                && value(fields, "enable") == 1
                && value(fields, "pa_id") == analyzer
        })
    };
    if words[0] == "MPAT" {
        let analyzer = words[2].parse().expect("a number");
        if value(new, "e") == 0 && leads(analyzer) {
            return Err(format!("analyzer {analyzer} is in use: MPAR first"));
        }
        if value(&old, "e") == 1 && value(new, "e") == 1 && old != *new {
            return Err(format!("analyzer {analyzer} is on: it cannot be changed"));
        }
        if value(new, "e") == 1 && (value(new, "span_type") != 4 || value(new, "system_port") == 0) {
            return Err("the analyzer has no local port as its destination".to_owned());
        }
    } else if value(new, "enable") == 1 {
        let analyzer = registers.get(&format!("MPAT {leaf} {}", value(new, "pa_id"))).cloned().unwrap_or_default();
        if value(&analyzer, "e") == 0 {
            return Err(format!("analyzer {} is off: MPAT first", value(new, "pa_id")));
        }
        if words[2] == value(&analyzer, "system_port").to_string() {
            return Err("a sink's port cannot be mirrored".to_owned());
        }
        if value(&old, "enable") == 1 && old != *new {
            return Err(format!("port {} leads to another analyzer", words[2]));
        }
    }
    Ok(())
}

/// Prints a register in the format of mstreg.
fn table(index: &RegisterFields, now: &RegisterFields, known: &[(&str, u64)]) -> String {
    let line = "=".repeat(43);
    let mut text = format!("Sending access register...\n\n{:<26}| Data\n{line}\n", "Field Name");
    let rows = index.iter().map(|(name, value)| (name.as_str(), *value));
    for (name, value) in rows.chain(known.iter().map(|(name, _)| (*name, value(now, name)))) {
        writeln!(text, "{name:<26}| {value:#010x}").expect("a string takes all");
    }
    text + &line + "\n"
}

/// Reads the lines `MPAT LEAF ANALYZER: FIELDS` and `MPAR LEAF PORT DIRECTION: FIELDS`.
fn read(folder: &Path) -> Registers {
    let text = fs::read_to_string(folder.join("registers")).unwrap_or_default();
    let register = |line: &str| {
        let (name, values) = line.split_once(": ").expect("a register");
        (name.to_owned(), fields(values).expect("fields"))
    };
    text.lines().map(register).collect()
}

fn write(folder: &Path, registers: &Registers) -> Result<(), String> {
    let mut text = String::new();
    for (name, fields) in registers.iter().filter(|(_, fields)| !fields.is_empty()) {
        let fields: Vec<String> = fields.iter().map(|(field, value)| format!("{field}={value}")).collect();
        writeln!(text, "{name}: {}", fields.join(",")).expect("a string takes all");
    }
    switch::replace(&folder.join("registers"), &text)
}
