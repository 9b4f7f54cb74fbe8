//! The program as a process, and captures taken apart and put together by hand.

use std::ffi::OsStr;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The captures in `samples/`.
pub(crate) fn samples() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(samples_folder()).expect("samples").map(|entry| entry.expect("entry").path());
    let mut samples: Vec<PathBuf> =
        entries.filter(|path| path.to_string_lossy().ends_with(".pcap.zst")).collect();
    samples.sort();
    assert_eq!(samples.len(), 8, "captures in samples/");
    samples
}

/// The sample of this name, without `.pcap.zst`.
pub(crate) fn sample(name: &str) -> PathBuf {
    samples_folder().join(format!("{name}.pcap.zst"))
}

pub(crate) fn samples_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("samples")
}

/// What a run of the program gave.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("ended by itself, not by a signal"),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }
}

/// The program with these arguments, not yet started.
pub(crate) fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ibscope"));
    command.args(arguments).env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub(crate) fn ibscope<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    command(arguments).output().expect("the program starts").into()
}

/// Runs the program with something on its standard input.
pub(crate) fn ibscope_fed<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>, input: &[u8]) -> Ran {
    let mut command = command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("its standard input");
    std::thread::scope(|scope| {
        // The program may end before it has read all.
        scope.spawn(move || stdin.write_all(input).ok());
        child.wait_with_output().expect("it ends").into()
    })
}

/// Runs a command of the program on inputs and gives its standard output; anything but success fails the test.
pub(crate) fn result(arguments: &[&str], inputs: &[impl AsRef<Path>]) -> String {
    let inputs = inputs.iter().map(|input| input.as_ref().as_os_str());
    let ran = ibscope(arguments.iter().map(OsStr::new).chain(inputs));
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
    ran.stdout
}

/// Bytes of the header of a classic pcap file.
pub(crate) const HEADER_BYTES: usize = 24;

/// A record of a classic pcap file.
pub(crate) struct Raw {
    pub(crate) time_ns: i64,
    pub(crate) original_bytes: u32,
    /// Where the record with its header stands in the file.
    pub(crate) place: Range<usize>,
}

impl Raw {
    /// The captured bytes, out of those of the file.
    pub(crate) fn data<'a>(&self, file: &'a [u8]) -> &'a [u8] {
        &file[self.place.start + 16..self.place.end]
    }
}

/// The records of a little-endian classic pcap file, found by walking it.
pub(crate) fn walk(file: &[u8]) -> Vec<Raw> {
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    let unit_ns = match number(0) {
        0xA1B2_C3D4 => 1000,
        0xA1B2_3C4D => 1,
        magic => panic!("magic {magic:#x}"),
    };
    let mut records = Vec::new();
    let mut at = HEADER_BYTES;
    while at < file.len() {
        let end = at + 16 + number(at + 8) as usize;
        records.push(Raw {
            time_ns: i64::from(number(at)) * 1_000_000_000 + i64::from(number(at + 4)) * unit_ns,
            original_bytes: number(at + 12),
            place: at..end,
        });
        at = end;
    }
    assert_eq!(at, file.len(), "the last record is whole");
    records
}

/// Link type of a little-endian classic pcap file.
pub(crate) fn link_type(file: &[u8]) -> u16 {
    u16::from_le_bytes([file[20], file[21]])
}

/// A block of a little-endian pcapng file.
pub(crate) fn block(block_type: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let total = (12 + padded as u32).to_le_bytes();
    let mut block = [&block_type.to_le_bytes(), &total, body].concat();
    block.resize(8 + padded, 0);
    block.extend(total);
    block
}

/// Section header of a little-endian pcapng file.
pub(crate) fn section_header() -> Vec<u8> {
    let mut body = vec![0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0];
    body.extend([0xFF; 8]);
    block(0x0A0D_0D0A, &body)
}

/// Interface description with `if_tsresol` and, where it is not 0, `if_tsoffset`.
pub(crate) fn interface(link_type: u16, tsresol: u8, offset_s: i64) -> Vec<u8> {
    let mut body = [&link_type.to_le_bytes()[..], &[0; 6]].concat();
    body.extend([9, 0, 1, 0, tsresol, 0, 0, 0]);
    if offset_s != 0 {
        body.extend([14, 0, 8, 0]);
        body.extend(offset_s.to_le_bytes());
    }
    body.extend([0; 4]);
    block(1, &body)
}

/// Enhanced packet.
pub(crate) fn packet(interface: u32, ticks: u64, data: &[u8], original_bytes: u32) -> Vec<u8> {
    let words = [interface, (ticks >> 32) as u32, ticks as u32, data.len() as u32, original_bytes];
    let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    body.extend(data);
    block(6, &body)
}

/// A classic file re-written as pcapng in nanoseconds.
pub(crate) fn as_pcapng(file: &[u8]) -> Vec<u8> {
    let mut pcapng = [section_header(), interface(link_type(file), 9, 0)].concat();
    for record in walk(file) {
        pcapng.extend(packet(0, record.time_ns.cast_unsigned(), record.data(file), record.original_bytes));
    }
    pcapng
}

/// Numbers that look random and are the same in every run.
pub(crate) fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        // SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = state;
        value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((value ^ value >> 31) % below as u64) as usize
    }
}
