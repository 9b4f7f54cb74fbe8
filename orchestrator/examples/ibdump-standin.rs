//! Replaces ibdump on machines without InfiniBand hardware: accepts the same options as strictly,
//! truncates its file before it opens the device, writes the same pcap layout (ERF records),
//! buffers like stdio, and ends on SIGINT, SIGTERM, SIGHUP and SIGPIPE with `Captured: N packets, M
//! bytes`.
//!
//! Environment variables:
//!
//! - `IBDUMP_STANDIN_DEVICES`: names of the devices, separated by commas. Default: `mlx5_0`.
//! - `IBDUMP_STANDIN_PACKETS`: a pcap file in ibdump's layout with the traffic that passes the
//!   port. Each packet is in the file as often as it was observed at a port: first at its sender's
//!   port, then at its receiver's, and so on. Default: synthetic packets.
//! - `IBDUMP_STANDIN_SEEN`: a file with lines `sent LID` and `received LID`, which select the
//!   observations that pass this port. It is read repeatedly, because ports are mirrored later; the
//!   selected packets are written at the end. Default: all observations.
//! - `IBDUMP_STANDIN_MODE_FILE`: a file with the faults to simulate, separated by commas: `fail`
//!   (cannot start), `flash` (prints that it is ready, and ends at once), `die` (ends after half a second, also if the word is written later),
//!   `deaf-int` and `deaf-term` (ignore the signal).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints what ibdump prints")]

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Link type of ERF records.
const DLT_ERF: u32 = 197;
/// Bytes of the pcap header of a record.
const RECORD_BYTES: usize = 16;
/// Bytes of the ERF header of a packet.
const ERF_BYTES: usize = 16;

pub(crate) fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("-E- {error}");
            ExitCode::FAILURE
        }
    }
}

/// Options of the command line.
#[derive(Default)]
struct StandinOptions {
    device: Option<String>,
    port: Option<u8>,
    file: Option<String>,
    memory_bytes: Option<u64>,
    writer_thread_bytes: Option<u64>,
}

fn options(mut words: impl Iterator<Item = String>) -> Result<StandinOptions, Box<dyn Error>> {
    let mut options = StandinOptions::default();
    while let Some(word) = words.next() {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
            _ => (word, None),
        };
        let mut value =
            || inline.clone().or_else(|| words.next()).ok_or_else(|| format!("option {name} needs a value"));
        match name.as_str() {
            "-d" | "--ib-dev" => options.device = Some(value()?),
            "-i" | "--ib-port" => options.port = Some(value()?.parse()?),
            "-w" | "--write" | "-o" => options.file = Some(value()?),
            "-b" | "--max-burst" => {
                if !(0..=32).contains(&value()?.parse::<u32>()?) {
                    return Err("max-burst is out of range".into());
                }
            }
            "-M" | "--mem-mode" => options.memory_bytes = Some(value()?.parse()?),
            "-p" | "--writer-thread" => options.writer_thread_bytes = Some(value()?.parse()?),
            "-q" | "--src_qp" => drop(value()?.parse::<u32>()?),
            "-I" | "--direction" => {
                if !["tx", "rx"].contains(&value()?.as_str()) {
                    return Err("direction is tx or rx".into());
                }
            }
            "--erf" => {
                if value()? != "1" {
                    return Err("the stand-in writes ERF only".into());
                }
            }
            "-s" | "--silent" | "-T" | "--decap" | "-j" | "--jumbo-mtu" | "--a0-mode" if inline.is_none() => {}
            _ => return Err(format!("unknown option {name:?}").into()),
        }
    }
    if options.memory_bytes.is_some() && options.writer_thread_bytes.is_some() {
        return Err("mem-mode and writer-thread exclude each other".into());
    }
    Ok(options)
}

fn run() -> Result<u8, Box<dyn Error>> {
    let options = options(std::env::args().skip(1))?;
    let is = |word: &str| mode().trim().split(',').any(|given| given == word);
    let stop = Arc::new(AtomicBool::new(false));
    let ignored = Arc::new(AtomicBool::new(false));
    for (signal, deaf) in [(SIGINT, is("deaf-int")), (SIGTERM, is("deaf-term")), (SIGHUP, false), (SIGPIPE, false)] {
        signal_hook::flag::register(signal, Arc::clone(if deaf { &ignored } else { &stop }))?;
    }
    // Create the file first, as ibdump does: a failed start leaves an empty file.
    let path = options.file.unwrap_or_else(|| "sniffer.pcap".to_owned());
    let file: BufWriter<Box<dyn Write>> = BufWriter::with_capacity(
        4096,
        if path == "-" { Box::new(io::stdout()) } else { Box::new(File::create(&path)?) },
    );
    let device = options.device.unwrap_or_else(|| "mlx5_0".to_owned());
    let devices = std::env::var("IBDUMP_STANDIN_DEVICES").unwrap_or_else(|_| "mlx5_0".to_owned());
    if !devices.split(',').any(|there| there == device) || options.port.unwrap_or(1) != 1 {
        return Err(format!("IB device {device} not found").into());
    }
    if is("fail") {
        return Err("Failed to set port sniffer1: command interface bad param".into());
    }
    let traffic = match std::env::var("IBDUMP_STANDIN_PACKETS") {
        Ok(path) => records(&std::fs::read(path)?)?,
        Err(_) => (0..8).map(|psn| record(&synthetic(psn))).collect(),
    };
    let mut output = StandinCapture { file, packets: 0, bytes: 0 };
    output.file.write_all(&header())?;
    let began = Instant::now();
    let seen_file = std::env::var("IBDUMP_STANDIN_SEEN").ok();
    let mut seen = BTreeSet::new();
    let mut waiting = traffic.iter();
    let mut progress = (0, 0);
    while !stop.load(Ordering::SeqCst) {
        if is("flash") {
            // The line appears at once, as on a terminal.
            println!("Ready to capture (Press ^c to stop):");
            io::stdout().flush()?;
            thread::sleep(Duration::from_millis(100));
            return Ok(3);
        }
        // ibdump rewrites a line with its counts.
        if progress != (output.packets, output.bytes) {
            progress = (output.packets, output.bytes);
            print!("Captured: {:10} packets, {:11} bytes\r", progress.0, progress.1);
        }
        if is("die") && began.elapsed() > Duration::from_millis(500) {
            return Ok(3);
        }
        match &seen_file {
            Some(path) => seen.extend(std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned)),
            // A few packets at a time, so that the capture grows while it runs.
            None => waiting.by_ref().take(64).try_for_each(|record| output.take(record))?,
        }
        thread::sleep(Duration::from_millis(3));
    }
    if seen_file.is_some() {
        print!("Captured: {:10} packets, {:11} bytes\r", 3220, 412_160);
        observed_here(&traffic, &seen).try_for_each(|record| output.take(record))?;
    }
    output.file.flush()?;
    // Standard output is buffered unless it is a terminal, so this line appears when the program
    // ends.
    println!("Ready to capture (Press ^c to stop):");
    eprintln!("\nInterrupted (signal) - exiting ...\nCaptured: {} packets, {} bytes", output.packets, output.bytes);
    Ok(0)
}

/// Content of the mode file.
fn mode() -> String {
    let path = std::env::var_os("IBDUMP_STANDIN_MODE_FILE");
    path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
}

/// The capture file and the counts so far.
struct StandinCapture {
    file: BufWriter<Box<dyn Write>>,
    packets: u64,
    bytes: usize,
}

impl StandinCapture {
    fn take(&mut self, record: &[u8]) -> io::Result<()> {
        self.packets += 1;
        self.bytes += record.len() - RECORD_BYTES - ERF_BYTES;
        self.file.write_all(record)
    }
}

/// The packets whose observations are among the selected ones.
fn observed_here<'a>(traffic: &'a [Vec<u8>], seen: &'a BTreeSet<String>) -> impl Iterator<Item = &'a Vec<u8>> {
    let mut observations: BTreeMap<&[u8], usize> = BTreeMap::new();
    traffic.iter().filter(move |record| {
        let packet = &record[RECORD_BYTES + ERF_BYTES..];
        // LRH: the destination LID in bytes 2 and 3, the source LID in bytes 6 and 7.
        let lid = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let count = observations.entry(packet).or_insert(0);
        *count += 1;
        let line = if *count % 2 == 1 { format!("sent {}", lid(6)) } else { format!("received {}", lid(2)) };
        seen.contains(&line)
    })
}

/// Header of the pcap file.
fn header() -> Vec<u8> {
    let mut header = 0xa1b2_c3d4_u32.to_ne_bytes().to_vec();
    header.extend_from_slice(&2_u16.to_ne_bytes());
    header.extend_from_slice(&4_u16.to_ne_bytes());
    for word in [0, 0, 65_535, DLT_ERF] {
        header.extend_from_slice(&word.to_ne_bytes());
    }
    header
}

/// A packet (from the LRH on) as a record of ibdump, with the current time.
fn record(packet: &[u8]) -> Vec<u8> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, micros) = (now.as_secs() as u32, now.subsec_micros());
    let length = (packet.len() + ERF_BYTES) as u32;
    let mut record = Vec::with_capacity(packet.len() + 32);
    for word in [seconds, micros, length, length] {
        record.extend_from_slice(&word.to_ne_bytes());
    }
    record.extend_from_slice(&((u64::from(seconds) << 32) | (u64::from(micros) * 4295)).to_ne_bytes());
    record.extend_from_slice(&[21, 4]);
    record.extend_from_slice(&(length as u16).to_be_bytes());
    record.extend_from_slice(&0_u16.to_be_bytes());
    record.extend_from_slice(&(packet.len() as u16).to_be_bytes());
    record.extend_from_slice(packet);
    record
}

/// The records of a pcap file with ibdump's layout, in the byte order of this machine.
fn records(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let word = |at: usize| {
        bytes
            .get(at..at + 4)
            .and_then(|word| word.try_into().ok())
            .map(u32::from_ne_bytes)
            .ok_or("the pcap file is truncated")
    };
    if (word(0)?, word(20)?) != (0xa1b2_c3d4, DLT_ERF) {
        return Err("not a pcap file with ibdump's layout, or of another byte order".into());
    }
    let mut records = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let end = at + RECORD_BYTES + word(at + 8)? as usize;
        records.push(bytes.get(at..end).ok_or("the pcap file is truncated")?.to_vec());
        at = end;
    }
    Ok(records)
}

/// A synthetic packet: LRH, BTH of a SEND Only, 16 bytes of payload, and space for the CRCs.
fn synthetic(psn: u8) -> Vec<u8> {
    let mut packet = vec![0x00, 0x02, 0x00, 0x08, 0x00, 0x0a, 0x00, 0x09];
    packet.extend_from_slice(&[0x04, 0x00, 0xff, 0xff, 0, 0, 0, 0x48, 0, 0, 0, psn]);
    packet.extend_from_slice(&[psn; 16]);
    packet.extend_from_slice(&[0; 6]);
    packet
}
