//! The program as a process, and captures parsed and built by hand.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The captures in `samples/`.
pub(crate) fn samples() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(samples_folder()).expect("samples").map(|entry| entry.expect("entry").path());
    let mut samples: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().ends_with(".pcap.zst")).collect();
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

/// True if these programs are installed. Root, as in continuous integration, must have installed them;
/// other users get a message with the missing ones, and with `skipped`, the part that is not tested.
#[allow(clippy::print_stderr, reason = "a skipped test prints a line")]
pub(crate) fn has_programs(programs: &[&str], skipped: &str) -> bool {
    let missing: Vec<&&str> = programs.iter().filter(|program| !Path::new(program).exists()).collect();
    if missing.is_empty() {
        return true;
    }
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    assert!(!is_root, "{missing:?} are missing: `make deps` installs them");
    eprintln!("SKIPPED: {skipped}, since {missing:?} are missing; `make deps` installs them");
    false
}

/// Result of a run of the program.
pub(crate) struct ProgramResult {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for ProgramResult {
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
pub(crate) fn ibscope<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> ProgramResult {
    command(arguments).output().expect("the program starts").into()
}

/// Runs the program with these bytes on its standard input.
pub(crate) fn ibscope_fed<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>, input: &[u8]) -> ProgramResult {
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

/// Runs a command of the program on inputs and returns its standard output; fails the test unless
/// the command succeeds.
pub(crate) fn result(arguments: &[&str], inputs: &[impl AsRef<Path>]) -> String {
    let inputs = inputs.iter().map(|input| input.as_ref().as_os_str());
    let ran = ibscope(arguments.iter().map(OsStr::new).chain(inputs));
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
    ran.stdout
}

/// A row of a csv by column.
pub(crate) type CsvRow = BTreeMap<String, String>;

/// Messages and bytes of `matrix --by rank --traffic all`, by sender and receiver.
pub(crate) fn matrix_by_rank(inputs: &[PathBuf]) -> BTreeMap<(u32, u32), (u64, u64)> {
    let text = result(&["matrix", "--by", "rank", "--traffic", "all", "--format", "csv"], inputs);
    let number = |text: &str| text.parse::<u64>().expect("number");
    let rows = csv_rows(&text);
    let pairs = rows.iter().filter(|row| row["messages"] != "0").map(|row| {
        (
            (number(&row["src"]) as u32, number(&row["dst"]) as u32),
            (number(&row["messages"]), number(&row["mpi_bytes"])),
        )
    });
    pairs.collect()
}

/// The rows of a csv with a header.
pub(crate) fn csv_rows(text: &str) -> Vec<CsvRow> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(|row| row.expect("csv")).collect()
}

/// Bytes of the header of a classic pcap file.
pub(crate) const HEADER_BYTES: usize = 24;

/// A record of a classic pcap file.
pub(crate) struct RawRecord {
    pub(crate) time_ns: i64,
    pub(crate) original_bytes: u32,
    /// Byte range of the record with its header in the file.
    pub(crate) place: Range<usize>,
}

impl RawRecord {
    /// The captured bytes, from those of the file.
    pub(crate) fn data<'a>(&self, file: &'a [u8]) -> &'a [u8] {
        &file[self.place.start + 16..self.place.end]
    }
}

/// The records of a little-endian classic pcap file.
pub(crate) fn walk(file: &[u8]) -> Vec<RawRecord> {
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
        records.push(RawRecord {
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

/// Writes the blocks of a pcapng file in one byte order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    pub(crate) big_endian: bool,
}

impl Blocks {
    fn u16(self, value: u16) -> [u8; 2] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|&word| self.u32(word)).collect()
    }

    /// A block of any type.
    pub(crate) fn block(self, block_type: u32, body: &[u8]) -> Vec<u8> {
        let padded = body.len().next_multiple_of(4);
        let total = self.u32(12 + padded as u32);
        let mut block = [&self.u32(block_type), &total, body].concat();
        block.resize(8 + padded, 0);
        block.extend(total);
        block
    }

    /// Section header, version 1.0, of unknown length.
    pub(crate) fn section(self) -> Vec<u8> {
        let version = [self.u16(1), self.u16(0)].concat();
        self.block(0x0A0D_0D0A, &[&self.u32(0x1A2B_3C4D)[..], &version, &[0xFF; 8]].concat())
    }

    /// Interface description with these options.
    pub(crate) fn interface(self, link_type: u16, snaplen: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = [self.u16(link_type), self.u16(0)].concat();
        body.extend(self.u32(snaplen));
        for (code, value) in options {
            body.extend([self.u16(*code), self.u16(value.len() as u16)].concat());
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        body.extend([0; 4]);
        self.block(1, &body)
    }

    /// Enhanced packet.
    pub(crate) fn packet(self, interface: u32, ticks: u64, data: &[u8], original_bytes: u32) -> Vec<u8> {
        let head = [interface, (ticks >> 32) as u32, ticks as u32, data.len() as u32, original_bytes];
        self.block(6, &[&self.words(&head), data].concat())
    }

    /// Simple packet.
    pub(crate) fn simple_packet(self, data: &[u8], original_bytes: u32) -> Vec<u8> {
        self.block(3, &[&self.words(&[original_bytes]), data].concat())
    }
}

/// A classic file rewritten as pcapng in nanoseconds.
pub(crate) fn as_pcapng(file: &[u8]) -> Vec<u8> {
    let blocks = Blocks { big_endian: false };
    let mut pcapng = [blocks.section(), blocks.interface(link_type(file), 0, &[(9, &[9])])].concat();
    for record in walk(file) {
        pcapng.extend(blocks.packet(0, record.time_ns.cast_unsigned(), record.data(file), record.original_bytes));
    }
    pcapng
}

/// Pseudo-random numbers, the same in every run.
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

/// Runs `work` for each item, on all cores. Not rayon: an analysis inside `work` waits for a pool
/// of its own, and a waiting worker of rayon starts another item on the same stack.
pub(crate) fn in_parallel<T: Sync>(items: &[T], work: impl Fn(usize, &T) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(item) = items.get(index)
                {
                    work(index, item);
                }
            });
        }
    });
}

/// The names of the commands in a help text.
pub(crate) fn listed_commands(help: &str) -> Vec<String> {
    let lists = help.split("\nOptions:").next().unwrap_or_default();
    let lines = lists.lines().filter_map(|line| line.strip_prefix("  "));
    let first_words = lines.filter_map(|line| line.split(' ').next());
    // Arguments are in angle brackets, and continued lines have a larger indent.
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    first_words.filter(is_name).map(str::to_owned).collect()
}
