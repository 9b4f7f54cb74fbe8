//! Stands in for ibdump where there is no InfiniBand hardware: takes its options as strictly, truncates its file before it looks at the device, writes its layout of
//! pcap (ERF records), buffers like stdio, and ends on SIGINT, SIGTERM, SIGHUP and SIGPIPE with `Captured: N packets, M bytes`.
//!
//! `IBDUMP_STANDIN_DEVICES`: devices that there are, with commas; `mlx5_0` without it.
//! `IBDUMP_STANDIN_PACKETS`: a pcap file of ibdump's layout, with the traffic that passes its port; made-up packets without it. In the file each packet stands
//! as often as it passed a port: first its sender's, then its receiver's, and so on.
//! `IBDUMP_STANDIN_SEEN`: a file with lines `sent LID` and `received LID`: which of these sights come by here. It is looked at again and again, since ports are
//! mirrored later, and what came by until the end is written then. All come by without it.
//! `IBDUMP_STANDIN_MODE_FILE`: a file that says how it misbehaves, words with commas: `fail` (cannot start), `die` (ends after half a second, also where
//! the word comes later), `deaf-int` and `deaf-term` (do not heed the signal).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that says what ibdump says")]

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
/// Bytes of pcap in front of a record.
const RECORD_BYTES: usize = 16;
/// Bytes of ERF in front of a packet.
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

/// What the command line asks for.
#[derive(Default)]
struct Options {
    device: Option<String>,
    port: Option<u8>,
    file: Option<String>,
    memory_bytes: Option<u64>,
    writer_thread_bytes: Option<u64>,
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, Box<dyn Error>> {
    let mut options = Options::default();
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
    // The file first, as ibdump does: a failed start leaves an empty one.
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
        Err(_) => (0..8).map(|psn| record(&made_up(psn))).collect(),
    };
    let mut output = Capture { file, packets: 0, bytes: 0 };
    output.file.write_all(&header())?;
    let began = Instant::now();
    let seen_file = std::env::var("IBDUMP_STANDIN_SEEN").ok();
    let mut seen = BTreeSet::new();
    let mut waiting = traffic.iter();
    while !stop.load(Ordering::SeqCst) {
        if is("die") && began.elapsed() > Duration::from_millis(500) {
            return Ok(3);
        }
        match &seen_file {
            Some(path) => seen.extend(std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned)),
            // A few at a time, so that a capture grows while it runs.
            None => waiting.by_ref().take(64).try_for_each(|record| output.take(record))?,
        }
        thread::sleep(Duration::from_millis(3));
    }
    if seen_file.is_some() {
        come_by(&traffic, &seen).try_for_each(|record| output.take(record))?;
    }
    output.file.flush()?;
    // Standard output is buffered where it is no terminal, so this comes when the program ends.
    println!("Ready to capture (Press ^c to stop):");
    eprintln!("\nInterrupted (signal) - exiting ...\nCaptured: {} packets, {} bytes", output.packets, output.bytes);
    Ok(0)
}

/// How it misbehaves.
fn mode() -> String {
    let path = std::env::var_os("IBDUMP_STANDIN_MODE_FILE");
    path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
}

/// What was captured so far.
struct Capture {
    file: BufWriter<Box<dyn Write>>,
    packets: u64,
    bytes: usize,
}

impl Capture {
    fn take(&mut self, record: &[u8]) -> io::Result<()> {
        self.packets += 1;
        self.bytes += record.len() - RECORD_BYTES - ERF_BYTES;
        self.file.write_all(record)
    }
}

/// The sights of packets that come by where these are seen.
fn come_by<'a>(traffic: &'a [Vec<u8>], seen: &'a BTreeSet<String>) -> impl Iterator<Item = &'a Vec<u8>> {
    let mut sights: BTreeMap<&[u8], usize> = BTreeMap::new();
    traffic.iter().filter(move |record| {
        let packet = &record[RECORD_BYTES + ERF_BYTES..];
        // LRH: the destination in bytes 2 and 3, the source in 6 and 7.
        let lid = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let sight = sights.entry(packet).or_insert(0);
        *sight += 1;
        let line = if *sight % 2 == 1 { format!("sent {}", lid(6)) } else { format!("received {}", lid(2)) };
        seen.contains(&line)
    })
}

/// The pcap file's header.
fn header() -> Vec<u8> {
    let mut header = 0xa1b2_c3d4_u32.to_ne_bytes().to_vec();
    header.extend_from_slice(&2_u16.to_ne_bytes());
    header.extend_from_slice(&4_u16.to_ne_bytes());
    for word in [0, 0, 65_535, DLT_ERF] {
        header.extend_from_slice(&word.to_ne_bytes());
    }
    header
}

/// A packet from the LRH on as ibdump writes it, with the time of now.
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

/// The records of a pcap file of ibdump's layout, in this machine's byte order.
fn records(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let word = |at: usize| {
        bytes
            .get(at..at + 4)
            .and_then(|word| word.try_into().ok())
            .map(u32::from_ne_bytes)
            .ok_or("the pcap file is cut short")
    };
    if (word(0)?, word(20)?) != (0xa1b2_c3d4, DLT_ERF) {
        return Err("no pcap file of ibdump's, or of another byte order".into());
    }
    let mut records = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let end = at + RECORD_BYTES + word(at + 8)? as usize;
        records.push(bytes.get(at..end).ok_or("the pcap file is cut short")?.to_vec());
        at = end;
    }
    Ok(records)
}

/// A packet of made-up content: LRH, BTH of a SEND only, 16 bytes, and room for the CRCs.
fn made_up(psn: u8) -> Vec<u8> {
    let mut packet = vec![0x00, 0x02, 0x00, 0x08, 0x00, 0x0a, 0x00, 0x09];
    packet.extend_from_slice(&[0x04, 0x00, 0xff, 0xff, 0, 0, 0, 0x48, 0, 0, 0, psn]);
    packet.extend_from_slice(&[psn; 16]);
    packet.extend_from_slice(&[0; 6]);
    packet
}
