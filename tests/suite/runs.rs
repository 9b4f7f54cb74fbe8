//! The recorded runs in `samples/runs`, and an independent, simple reader of their captures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Runs of different libraries and services, with loss, with connection messages, truncated.
pub(crate) const VARIED: [&str; 6] = [
    "mpich-rc-ring2",
    "ompi-openib-ring2",
    "ompi-rc-loss1-ring2",
    "ompi-rc-mixed-2x2",
    "ompi-ud-ring2",
    "perf-cm-write-lat",
];

/// One recorded run.
pub(crate) struct RecordedRun {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    /// Nodes, from 1.
    pub(crate) nodes: u8,
}

/// All recorded runs.
pub(crate) fn all() -> Vec<RecordedRun> {
    of_set("runs", 32)
}

/// The runs of a set, by name.
fn of_set(set: &str, count: usize) -> Vec<RecordedRun> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples").join(set);
    let entries = std::fs::read_dir(folder).expect("a set of runs").map(|entry| entry.expect("entry").path());
    let mut runs: Vec<RecordedRun> = entries.filter(|path| path.is_dir()).map(at).collect();
    runs.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(runs.len(), count, "recorded runs");
    assert!(runs.iter().all(|run| run.nodes > 0), "{set}: a folder without captures of ports");
    runs
}

/// The run of this name.
pub(crate) fn named(name: &str) -> RecordedRun {
    all().into_iter().find(|run| run.name == name).expect("a recorded run")
}

/// The run of this name of the second set, `samples/runs2`.
pub(crate) fn of_second_set(name: &str) -> RecordedRun {
    let run = at(Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/runs2").join(name));
    assert!(run.nodes > 0, "{name} is a recorded run");
    run
}

/// The run of this name of the third set, `samples/runs3`, which has captures of the ports only.
pub(crate) fn of_third_set(name: &str) -> RecordedRun {
    let run = at(Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/runs3").join(name));
    assert!(run.nodes > 0, "{name} is a recorded run");
    run
}

/// All runs of the fourth set, `samples/runs4`, which has captures of the ports only.
pub(crate) fn of_fourth_set() -> Vec<RecordedRun> {
    of_set("runs4", 9)
}

/// The run of this name of the first or second set.
pub(crate) fn of_any_set(name: &str) -> RecordedRun {
    all().into_iter().find(|run| run.name == name).unwrap_or_else(|| of_second_set(name))
}

/// All recorded runs of the first three sets.
pub(crate) fn of_all_sets() -> Vec<RecordedRun> {
    [("runs", 32), ("runs2", 22), ("runs3", 20)].into_iter().flat_map(|(set, count)| of_set(set, count)).collect()
}

fn at(folder: PathBuf) -> RecordedRun {
    RecordedRun {
        name: folder.file_name().expect("name").to_string_lossy().into_owned(),
        nodes: (1..=9).take_while(|node| !ports(&folder, *node).is_empty()).count() as u8,
        folder,
    }
}

/// The captures at the ports of a node, which may have several.
fn ports(folder: &Path, node: u8) -> Vec<PathBuf> {
    let names =
        [format!("node{node}.pcap.zst"), format!("node{node}.rail0.pcap.zst"), format!("node{node}.rail1.pcap.zst")];
    names.into_iter().map(|name| folder.join(name)).filter(|path| path.exists()).collect()
}

impl RecordedRun {
    /// The capture at the port of a node, from 1.
    pub(crate) fn node(&self, node: u8) -> PathBuf {
        self.folder.join(format!("node{node}.pcap.zst"))
    }

    /// The captures of all ports.
    pub(crate) fn every_node(&self) -> Vec<PathBuf> {
        (1..=self.nodes).flat_map(|node| ports(&self.folder, node)).collect()
    }

    /// The RoCE packets of all ports, re-framed as native InfiniBand; every packet appears twice.
    pub(crate) fn sink(&self) -> PathBuf {
        self.folder.join("sink.ib.pcap.zst")
    }

    /// A csv `src,dst,messages,bytes` of the run, by rank pair.
    pub(crate) fn truth(&self, file: &str) -> Option<BTreeMap<(u32, u32), (u64, u64)>> {
        let text = std::fs::read_to_string(self.folder.join(file)).ok()?;
        let row = |line: &str| {
            let mut fields = line.split(',').map(|field| field.parse::<u64>().expect("number"));
            let mut next = || fields.next().expect("field");
            ((next() as u32, next() as u32), (next(), next()))
        };
        Some(text.lines().skip(1).map(row).collect())
    }

    /// Messages and bytes on the wire, by rank pair with messages.
    pub(crate) fn wire_messages(&self) -> BTreeMap<(u32, u32), (u64, u64)> {
        let mut truth = self.truth("wire.csv").expect("wire.csv");
        truth.retain(|_, (messages, _)| *messages > 0);
        truth
    }

    /// Node of each rank, from 1.
    pub(crate) fn node_of_rank(&self) -> BTreeMap<u32, u8> {
        let text = std::fs::read_to_string(self.folder.join("rankmap.csv")).unwrap_or_default();
        let row = |line: &str| {
            let mut fields = line.split(',');
            let rank = fields.next().expect("rank").parse().expect("rank");
            (rank, fields.next().expect("host").strip_prefix("node").expect("node").parse().expect("node"))
        };
        text.lines().skip(1).map(row).collect()
    }
}

/// The bytes of every record in a classic pcap file.
pub(crate) fn records(path: &Path) -> Vec<Vec<u8>> {
    let bytes = decompressed(path);
    let mut records = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().expect("length")) as usize;
        records.push(bytes[at + 16..at + 16 + length].to_vec());
        at += 16 + length;
    }
    records
}

/// The records of a nanosecond file, with their times in nanoseconds since the epoch.
pub(crate) fn timed_records(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let bytes = decompressed(path);
    let word = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("word")));
    assert_eq!(word(0), 0xA1B2_3C4D, "nanoseconds, little-endian");
    let mut records = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let length = word(at + 8) as usize;
        records.push((word(at) * 1_000_000_000 + word(at + 4), bytes[at + 16..at + 16 + length].to_vec()));
        at += 16 + length;
    }
    records
}

/// The decompressed bytes of a `.zst` file.
pub(crate) fn decompressed(path: &Path) -> Vec<u8> {
    zstd::decode_all(std::fs::File::open(path).expect("capture")).expect("zstd")
}

/// True for an Ethernet frame with a UDP datagram to port 4791 over IPv4 or IPv6, without options
/// or tags.
pub(crate) fn is_roce(frame: &[u8]) -> bool {
    let (protocol, ports) = match frame.get(12..14) {
        Some([0x08, 0x00]) => (23, 34),
        Some([0x86, 0xDD]) => (20, 54),
        _ => return false,
    };
    frame.get(protocol) == Some(&17) && frame.get(ports + 2..ports + 4) == Some(&[0x12, 0xB7])
}
