//! Reads a Score-P profile (`profile.cubex`, format of Cube 4): sums by rank and call path.
//!
//! ```text
//! profile.cubex   tar: anchor.xml, and for each metric that has values N.index and N.data
//! N.index         "CUBEX.INDEX" | u32 1 (byte order) | u16 version | u8 0 dense, 1 sparse |
//!                 sparse: u32 count, u32 places ...
//! N.data          "CUBEX.DATA" | one row per place in the index, with one value per location
//! ```
//! A place in an exclusive metric is the index of a call tree node in depth-first order, which is
//! the document order.

mod anchor;

use super::otf2::TraceError;
use super::trace::{AppTrace, CollectiveKey, CollectiveSums, Tracer};
use crate::model::quoted;
use anchor::{Call, CubeAnchor};
use ibscope_parsers::tools::otf2_print::Collective;
use roxmltree::Document;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Largest `anchor.xml` that is read; 100 thousand processes take 40 MiB.
const MAX_ANCHOR_BYTES: u64 = 1 << 29;
const INDEX: &[u8] = b"CUBEX.INDEX";
const DATA: &[u8; 10] = b"CUBEX.DATA";
const COMPRESSED: &[u8; 10] = b"ZCUBEX.DAT";
/// Size of a value in bytes.
const VALUE_BYTES: usize = 8;

/// A profile: sums by rank.
#[derive(Clone, Debug, Default)]
pub struct CubeProfile {
    /// Name, tracer, hosts, and calls of collective operations; without messages.
    pub trace: AppTrace,
    /// Point-to-point sums by rank.
    pub ranks: BTreeMap<u32, RankProfile>,
}

/// Point-to-point sums of a rank, all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankProfile {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received in calls that receive only messages.
    pub received_bytes: u64,
    /// Bytes received in calls that complete requests: of messages, and of nonblocking collectives
    /// if the rank called any.
    pub completed_bytes: u64,
    /// Calls of nonblocking collective operations.
    pub nonblocking: u64,
    /// Calls that send one message each, including those to `MPI_PROC_NULL`.
    pub send_calls: u64,
    /// Calls that receive one message each, including those from `MPI_PROC_NULL`.
    pub receive_calls: u64,
    /// Calls that start persistent requests, of unknown number.
    pub start_calls: u64,
    /// Bytes put and got by one-sided operations.
    pub one_sided_bytes: u64,
}

/// True if a file begins like a tar archive.
#[must_use]
pub fn is_archive(start: &[u8]) -> bool {
    start.get(257..262) == Some(b"ustar")
}

/// Reads a profile.
pub fn read(path: &Path) -> Result<CubeProfile, TraceError> {
    let io = |source: io::Error| TraceError::Io { path: path.to_owned(), source };
    let invalid = |what: String| TraceError::Cube { path: path.to_owned(), what };
    let file = File::open(path).map_err(io)?;
    let mut archive = Members::of(file).map_err(|error| invalid(format!("its files cannot be listed: {error}")))?;
    let (_, size) = *archive.places.get("anchor.xml").ok_or_else(|| invalid("it has no anchor.xml".to_owned()))?;
    if size > MAX_ANCHOR_BYTES {
        return Err(invalid(format!("anchor.xml has {size} bytes, which exceeds the limit of {MAX_ANCHOR_BYTES}")));
    }
    let text = archive.whole("anchor.xml").map_err(|error| invalid(format!("anchor.xml cannot be read: {error}")))?;
    let text = String::from_utf8(text).map_err(|_| invalid("anchor.xml is not UTF-8 text".to_owned()))?;
    if !anchor::is_plain(&text) {
        return Err(invalid("anchor.xml has elements with more attributes than Cube uses".to_owned()));
    }
    let document = Document::parse(&text).map_err(|error| invalid(format!("anchor.xml cannot be read: {error}")))?;
    let anchor =
        CubeAnchor::read(&document).ok_or_else(|| invalid("anchor.xml is missing required definitions".to_owned()))?;
    let tracer = if anchor.creator.starts_with("Score-P") {
        Tracer::ScoreP(anchor.creator.clone())
    } else {
        Tracer::Other(anchor.creator.clone())
    };
    let trace =
        AppTrace { name: path.display().to_string(), tracer, ranks: anchor.hosts.clone(), ..AppTrace::default() };
    let mut profile =
        CubeProfile { trace, ranks: anchor.hosts.keys().map(|rank| (*rank, RankProfile::default())).collect() };
    for (name, add) in METRICS {
        let values = archive.values(&anchor, name, |call, rank, value| add(&mut profile, call, rank, value));
        values.map_err(|error| invalid(format!("metric {name}: {error}")))?;
    }
    let one_sided = profile.ranks.values().fold(0_u64, |sum, rank| sum.saturating_add(rank.one_sided_bytes));
    if one_sided > 0 {
        profile.trace.notes.push(format!(
            "one-sided operations of {one_sided} bytes are not compared: a profile does not contain their target ranks"
        ));
    }
    Ok(profile)
}

/// Adds a value of a metric to a profile.
type AddValue = fn(&mut CubeProfile, Call, u32, u64);

/// Metrics that are read.
const METRICS: [(&str, AddValue); 5] = [
    ("visits", visits),
    ("bytes_sent", sent),
    ("bytes_received", received),
    ("bytes_put", |profile, _, rank, bytes| one_sided(profile.rank(rank), bytes)),
    ("bytes_get", |profile, _, rank, bytes| one_sided(profile.rank(rank), bytes)),
];

fn one_sided(sums: &mut RankProfile, bytes: u64) {
    add(&mut sums.one_sided_bytes, bytes);
}

/// Saturates, because a file may contain arbitrary values.
fn add(sum: &mut u64, value: u64) {
    *sum = sum.saturating_add(value);
}

fn visits(profile: &mut CubeProfile, call: Call, rank: u32, visits: u64) {
    if call != Call::Other {
        add(&mut profile.trace.events, visits);
    }
    let sums = profile.rank(rank);
    match call {
        Call::Send => add(&mut sums.send_calls, visits),
        Call::Receive => add(&mut sums.receive_calls, visits),
        Call::SendReceive => {
            add(&mut sums.send_calls, visits);
            add(&mut sums.receive_calls, visits);
        }
        Call::Start => add(&mut sums.start_calls, visits),
        Call::Nonblocking(operation) => {
            add(&mut sums.nonblocking, visits);
            add(&mut profile.collective(operation, rank).calls, visits);
        }
        Call::Collective(operation) => add(&mut profile.collective(operation, rank).calls, visits),
        Call::Complete | Call::Mpi | Call::Other => {}
    }
}

fn sent(profile: &mut CubeProfile, call: Call, rank: u32, bytes: u64) {
    match call {
        Call::Collective(operation) => add(&mut profile.collective(operation, rank).sent, bytes),
        // Bytes of nonblocking collectives.
        Call::Nonblocking(_) | Call::Complete => {}
        _ => add(&mut profile.rank(rank).sent_bytes, bytes),
    }
}

fn received(profile: &mut CubeProfile, call: Call, rank: u32, bytes: u64) {
    match call {
        Call::Collective(operation) => add(&mut profile.collective(operation, rank).received, bytes),
        Call::Nonblocking(_) => {}
        Call::Complete => add(&mut profile.rank(rank).completed_bytes, bytes),
        _ => add(&mut profile.rank(rank).received_bytes, bytes),
    }
}

impl CubeProfile {
    fn rank(&mut self, rank: u32) -> &mut RankProfile {
        self.ranks.entry(rank).or_default()
    }

    fn collective(&mut self, operation: Collective, rank: u32) -> &mut CollectiveSums {
        // The profile does not contain the communicator.
        let key = CollectiveKey { operation, communicator: u32::MAX, root: None, rank };
        self.trace.collectives.entry(key).or_default()
    }
}

/// The files of an archive.
struct Members {
    file: File,
    /// Offset and size of each file.
    places: BTreeMap<String, (u64, u64)>,
}

/// Errors in the values of a metric.
#[derive(Debug, thiserror::Error)]
enum CubeFileError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("its values are of type {0} instead of unsigned 64-bit integers")]
    Type(String),
    #[error("its values are compressed, which is not supported (Score-P does not compress them)")]
    Compressed,
    #[error("its files are inconsistent: {0}")]
    Damaged(&'static str),
}

impl Members {
    fn of(file: File) -> io::Result<Self> {
        let mut archive = tar::Archive::new(file);
        let mut places = BTreeMap::new();
        for entry in archive.entries_with_seek()? {
            let entry = entry?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            places.insert(name, (entry.raw_file_position(), entry.size()));
        }
        Ok(Self { file: archive.into_inner(), places })
    }

    /// A reader of a file and its size; `None` if the file does not exist.
    fn open(&mut self, name: &str) -> io::Result<Option<(io::Take<&mut File>, u64)>> {
        let Some(&(at, size)) = self.places.get(name) else { return Ok(None) };
        self.file.seek(SeekFrom::Start(at))?;
        Ok(Some(((&mut self.file).take(size), size)))
    }

    fn whole(&mut self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some((mut member, _)) = self.open(name)? {
            member.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// Passes every value of a metric to `add`, with its call and rank. Metrics without values have
    /// no files.
    fn values(
        &mut self,
        anchor: &CubeAnchor,
        name: &str,
        mut add: impl FnMut(Call, u32, u64),
    ) -> Result<(), CubeFileError> {
        let Some(metric) = anchor.metrics.get(name) else { return Ok(()) };
        let (index, data) = (format!("{}.index", metric.id), format!("{}.data", metric.id));
        if !self.places.contains_key(&index) && !self.places.contains_key(&data) {
            return Ok(());
        }
        if metric.data_type != "UINT64" || metric.kind != "EXCLUSIVE" {
            return Err(CubeFileError::Type(quoted(&format!("{} ({})", metric.data_type, metric.kind))));
        }
        let index = self.whole(&index)?;
        let (is_big, places) =
            rows(&index, anchor.calls.len()).ok_or(CubeFileError::Damaged("the index cannot be read"))?;
        let (data, size) = self.open(&data)?.ok_or(CubeFileError::Damaged("the data file is missing"))?;
        let mut data = BufReader::with_capacity(1 << 16, data);
        let mut mark = [0; DATA.len()];
        data.read_exact(&mut mark)?;
        if mark == *COMPRESSED {
            return Err(CubeFileError::Compressed);
        }
        let mut row = vec![0; anchor.locations.len() * VALUE_BYTES];
        let expected =
            (row.len() as u64).checked_mul(places.len() as u64).and_then(|bytes| bytes.checked_add(DATA.len() as u64));
        if mark != *DATA || expected != Some(size) {
            return Err(CubeFileError::Damaged(
                "the data does not have one value for each entry of the index and each location",
            ));
        }
        for place in places {
            let call = *anchor
                .calls
                .get(place)
                .ok_or(CubeFileError::Damaged("the index refers to a call that does not exist"))?;
            data.read_exact(&mut row)?;
            for (value, rank) in row.as_chunks::<VALUE_BYTES>().0.iter().zip(&anchor.locations) {
                let value = if is_big { u64::from_be_bytes(*value) } else { u64::from_le_bytes(*value) };
                if let (Some(rank), true) = (*rank, value > 0) {
                    add(call, rank, value);
                }
            }
        }
        Ok(())
    }
}

/// The byte order of a metric (true: big-endian), and the call tree node of each of its rows.
fn rows(index: &[u8], nodes: usize) -> Option<(bool, Vec<usize>)> {
    let (order, rest) = index.strip_prefix(INDEX)?.split_first_chunk::<4>()?;
    let is_big = match u32::from_le_bytes(*order) {
        1 => false,
        0x0100_0000 => true,
        _ => return None,
    };
    let number = |bytes: &[u8; 4]| if is_big { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) };
    // The version, which never changed, and the form.
    let ([_, _, form], rest) = rest.split_first_chunk::<3>()?;
    if *form == 0 {
        return Some((is_big, (0..nodes).collect()));
    }
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let (places, left) = rest.as_chunks::<4>();
    let is_whole = *form == 1 && places.len() == number(count) as usize && left.is_empty();
    is_whole.then(|| (is_big, places.iter().map(|place| number(place) as usize).collect()))
}
