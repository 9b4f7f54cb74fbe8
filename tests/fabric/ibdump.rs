//! What stands for ibdump: takes its options, behaves as its source says, and captures what the switch stand-in mirrors to its node.
//!
//! The traffic is that of a recorded job on the LIDs of n001 to n004. Where a port is mirrored to the sink, its packets come: the first sight of each at its
//! sender's port, the second at its receiver's.

use crate::lab::{FIRST_LID, Lab, NODES};
use crate::{switch, tools};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) const NAME: &str = "ibdump";

/// What goes wrong at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The device cannot be opened. An empty file is left, as by ibdump.
    Start,
    /// It ends by itself after a moment.
    Die,
    /// SIGINT is ignored.
    DeafToInt,
    /// SIGINT and SIGTERM are ignored.
    Deaf,
}

impl Fault {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Start, "start"), (Self::Die, "die"), (Self::DeafToInt, "deaf-to-int"), (Self::Deaf, "deaf")];
}

impl Lab {
    /// Lays out the traffic of the sample, and who is at which port.
    pub(crate) fn traffic(&self, sample: &Path) {
        let packed = fs::read(sample).expect("sample");
        fs::write(self.path().join("traffic.pcap"), zstd::decode_all(&packed[..]).expect("zstd")).expect("traffic");
        let mut ports = String::new();
        for (index, node) in NODES.iter().enumerate() {
            let (leaf, port, _) = self.topology.place(node);
            let leaf = crate::topology::leaf_guid(leaf);
            writeln!(ports, "{node} {leaf:#018x} {port} {}", FIRST_LID + index as u16).expect("a string takes all");
        }
        fs::write(self.path().join("ports"), ports).expect("ports");
    }

    /// Lets something go wrong at a node, or nothing any more.
    pub(crate) fn ibdump_fault(&self, node: &str, fault: Option<Fault>) {
        let word = Fault::ALL.iter().find(|(known, _)| Some(*known) == fault).map_or("", |(_, word)| word);
        fs::write(self.path().join(format!("fault-{node}")), word).expect("fault");
    }
}

/// A run of the program.
struct Run {
    lab: PathBuf,
    node: String,
    file: PathBuf,
    fault: Option<Fault>,
}

/// The program.
pub(crate) fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (device, port, file) = match options(&words) {
        Ok(options) => options,
        Err(what) => {
            eprintln!("-E- {what}");
            return ExitCode::from(1);
        }
    };
    let lab = super::standin::folder();
    let node = std::env::var("LAB_NODE").expect("started at a node");
    let word = fs::read_to_string(lab.join(format!("fault-{node}"))).unwrap_or_default();
    let fault = Fault::ALL.iter().find(|(_, known)| *known == word).map(|(fault, _)| *fault);
    // ibdump truncates its file before it looks for the device.
    let mut output = match File::create(&file) {
        Ok(output) => output,
        Err(error) => {
            eprintln!("-E- Can't open {}: {error}", file.display());
            return ExitCode::from(1);
        }
    };
    if device != "ibsim0" || port != 1 || fault == Some(Fault::Start) {
        eprintln!("-E- Failed to open device {device} port {port}");
        return ExitCode::from(1);
    }
    let run = Run { lab, node, file, fault };
    match run.capture(&mut output) {
        Ok((packets, bytes)) => {
            // Its standard output is no terminal, so that this comes when it ends.
            println!("Ready to capture (Press ^c to stop):");
            eprintln!("\nCaptured: {packets} packets, {bytes} bytes");
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("-E- {what}");
            ExitCode::from(1)
        }
    }
}

/// Device, port and file.
fn options(words: &[String]) -> Result<(String, u8, PathBuf), String> {
    let (mut device, mut port, mut file) = ("mlx5_0".to_owned(), 1, PathBuf::from("sniffer.pcap"));
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{word}: {text} is no number"));
        match word.as_str() {
            "-d" | "--ib-dev" => device = value()?,
            "-i" | "--ib-port" => port = number(value()?)? as u8,
            "-w" | "--write" => file = value()?.into(),
            "-b" | "--max-burst" | "-p" | "--writer-thread" | "-M" | "--mem-mode" => drop(number(value()?)?),
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok((device, port, file))
}

impl Run {
    /// Until a signal comes; packets and bytes.
    fn capture(&self, output: &mut File) -> Result<(u64, u64), String> {
        let stop = Arc::new(AtomicBool::new(false));
        let ignored = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            let is_deaf = match self.fault {
                Some(Fault::DeafToInt) => signal == signal_hook::consts::SIGINT,
                Some(Fault::Deaf) => true,
                _ => false,
            };
            let flag = if is_deaf { &ignored } else { &stop };
            signal_hook::flag::register(signal, Arc::clone(flag)).map_err(|error| error.to_string())?;
        }
        let traffic = fs::read(self.lab.join("traffic.pcap")).map_err(|error| error.to_string())?;
        let failed = |error: std::io::Error| format!("{}: {error}", self.file.display());
        output.write_all(&traffic[..tools::HEADER_BYTES]).map_err(failed)?;
        let start = Instant::now();
        let mut lids = BTreeSet::new();
        while !stop.load(Ordering::Relaxed) {
            if self.fault == Some(Fault::Die) && start.elapsed() > Duration::from_secs(1) {
                return Err("Segmentation fault".to_owned());
            }
            lids.extend(self.mirrored_lids());
            std::thread::sleep(Duration::from_millis(5));
        }
        let (mut packets, mut bytes) = (0, 0);
        let mut sights: BTreeMap<&[u8], usize> = BTreeMap::new();
        for record in tools::walk(&traffic) {
            let data = record.data(&traffic);
            // After the header of ERF: LRH with the destination in bytes 2 and 3, the source in 6 and 7.
            let lid = |at: usize| u16::from_be_bytes([data[16 + at], data[17 + at]]);
            let sight = sights.entry(&data[16..]).or_insert(0);
            let port = if sight.is_multiple_of(2) { lid(6) } else { lid(2) };
            *sight += 1;
            if lids.contains(&port) {
                output.write_all(&traffic[record.place.clone()]).map_err(failed)?;
                packets += 1;
                bytes += data.len() as u64;
            }
        }
        Ok((packets, bytes))
    }

    /// LIDs behind the ports that are mirrored to this node at the moment.
    fn mirrored_lids(&self) -> Vec<u16> {
        let rows = fs::read_to_string(self.lab.join("ports")).unwrap_or_default();
        let rows: Vec<Vec<&str>> = rows.lines().map(|row| row.split(' ').collect()).collect();
        let Some(own) = rows.iter().find(|row| row[0] == self.node) else { return Vec::new() };
        let mirrored = switch::state(&self.lab);
        let here = rows.iter().filter(|row| {
            let at = |(port, mirror): (&switch::Port, &switch::Mirror)| {
                format!("{:#018x}", port.leaf) == row[1]
                    && port.number.to_string() == row[2]
                    && row[1] == own[1]
                    && mirror.sink.to_string() == own[2]
            };
            mirrored.iter().any(at)
        });
        here.filter_map(|row| row[3].parse().ok()).collect()
    }
}
