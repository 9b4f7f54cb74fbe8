//! Reading a profile of Score-P (`profile.cubex`, format of Cube 4): sums by rank and call path, where there is no trace.
//!
//! ```text
//! profile.cubex   tar: anchor.xml, and for each metric that has values N.index and N.data
//! N.index         "CUBEX.INDEX" | 1 as u32, which tells the byte order | version u16 | 0 dense, 1 sparse u8 | sparse: count u32, places u32 ...
//! N.data          "CUBEX.DATA" | one row for each place in the index, with one value for each location
//! ```
//! A place of an exclusive metric is that of a node in the call tree, depth first, which is the order of the document.

mod anchor;

use super::otf2::TraceError;
use super::trace::{CollectiveKey, CollectiveSums, Trace, Tracer};
use crate::model::quoted;
use anchor::{Anchor, Call};
use ibscope_parsers::tools::otf2_print::Collective;
use roxmltree::Document;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Largest description that is read: 100 thousand processes take 40 MiB.
const MAX_ANCHOR_BYTES: u64 = 1 << 29;
const INDEX: &[u8] = b"CUBEX.INDEX";
const DATA: &[u8; 10] = b"CUBEX.DATA";
const COMPRESSED: &[u8; 10] = b"ZCUBEX.DAT";
/// Bytes of a value.
const VALUE_BYTES: usize = 8;

/// A profile: sums by rank.
#[derive(Clone, Debug, Default)]
pub struct CubeProfile {
    /// Name, tracer, hosts, and calls of collective operations. It has no messages.
    pub trace: Trace,
    /// Point-to-point, by rank.
    pub ranks: BTreeMap<u32, RankProfile>,
}

/// What a rank did point-to-point, all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankProfile {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received in calls that receive nothing else.
    pub received_bytes: u64,
    /// Bytes received in calls that complete requests: of messages, and of nonblocking collectives where the rank has called any.
    pub completed_bytes: u64,
    /// Calls of nonblocking collective operations.
    pub nonblocking: u64,
    /// Calls that send one message each, also to nobody (`MPI_PROC_NULL`).
    pub send_calls: u64,
    /// Calls that receive one message each, also from nobody.
    pub receive_calls: u64,
    /// Calls that start persistent requests, any number of them.
    pub start_calls: u64,
    /// Bytes put and got by one-sided operations.
    pub one_sided_bytes: u64,
}

/// True where a file begins as such an archive.
#[must_use]
pub fn is_archive(start: &[u8]) -> bool {
    start.get(257..262) == Some(b"ustar")
}

/// Reads a profile.
pub fn read(path: &Path) -> Result<CubeProfile, TraceError> {
    let io = |source: io::Error| TraceError::Io { path: path.to_owned(), source };
    let broken = |what: String| TraceError::Cube { path: path.to_owned(), what };
    let file = File::open(path).map_err(io)?;
    let mut archive = Members::of(file).map_err(|error| broken(format!("its files cannot be listed: {error}")))?;
    let (_, size) = *archive.places.get("anchor.xml").ok_or_else(|| broken("it has no anchor.xml".to_owned()))?;
    if size > MAX_ANCHOR_BYTES {
        return Err(broken(format!("anchor.xml has {size} bytes, more than are read")));
    }
    let text = archive.whole("anchor.xml").map_err(|error| broken(format!("anchor.xml cannot be read: {error}")))?;
    let text = String::from_utf8(text).map_err(|_| broken("anchor.xml is no text".to_owned()))?;
    if !anchor::is_plain(&text) {
        return Err(broken("anchor.xml has elements of more attributes than Cube knows".to_owned()));
    }
    let document = Document::parse(&text).map_err(|error| broken(format!("anchor.xml cannot be read: {error}")))?;
    let anchor = Anchor::read(&document).ok_or_else(|| broken("anchor.xml lacks definitions".to_owned()))?;
    let tracer = if anchor.creator.starts_with("Score-P") {
        Tracer::ScoreP(anchor.creator.clone())
    } else {
        Tracer::Other(anchor.creator.clone())
    };
    let trace = Trace { name: path.display().to_string(), tracer, ranks: anchor.hosts.clone(), ..Trace::default() };
    let mut profile =
        CubeProfile { trace, ranks: anchor.hosts.keys().map(|rank| (*rank, RankProfile::default())).collect() };
    for (name, add) in METRICS {
        let values = archive.values(&anchor, name, |call, rank, value| add(&mut profile, call, rank, value));
        values.map_err(|error| broken(format!("metric {name}: {error}")))?;
    }
    let one_sided = profile.ranks.values().fold(0_u64, |sum, rank| sum.saturating_add(rank.one_sided_bytes));
    if one_sided > 0 {
        profile.trace.notes.push(format!(
            "one-sided operations of {one_sided} bytes are compared with nothing: a profile does not say between which ranks"
        ));
    }
    Ok(profile)
}

/// What a value of a metric adds to a profile.
type Add = fn(&mut CubeProfile, Call, u32, u64);

/// Metrics that are read.
const METRICS: [(&str, Add); 5] = [
    ("visits", visits),
    ("bytes_sent", sent),
    ("bytes_received", received),
    ("bytes_put", |profile, _, rank, bytes| one_sided(profile.rank(rank), bytes)),
    ("bytes_get", |profile, _, rank, bytes| one_sided(profile.rank(rank), bytes)),
];

fn one_sided(sums: &mut RankProfile, bytes: u64) {
    add(&mut sums.one_sided_bytes, bytes);
}

/// Nobody vouches for the values of a file.
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
        // Of nonblocking collectives.
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
        // The profile does not say over which communicator.
        let key = CollectiveKey { operation, communicator: u32::MAX, root: None, rank };
        self.trace.collectives.entry(key).or_default()
    }
}

/// The files of an archive.
struct Members {
    file: File,
    /// Where each begins, and its size.
    places: BTreeMap<String, (u64, u64)>,
}

/// What is wrong with values.
#[derive(Debug, thiserror::Error)]
enum Wrong {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("its values are of type {0}, and whole numbers of 64 bits were expected")]
    Type(String),
    #[error("its values are compressed, which Score-P does not do and is not read")]
    Compressed,
    #[error("its files do not fit together: {0}")]
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

    /// A file, from its start; `None` where there is none.
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

    /// Gives every value of a metric to `add`, with the call and the rank that it is of. Metrics that the program never touched have no files.
    fn values(&mut self, anchor: &Anchor, name: &str, mut add: impl FnMut(Call, u32, u64)) -> Result<(), Wrong> {
        let Some(metric) = anchor.metrics.get(name) else { return Ok(()) };
        let (index, data) = (format!("{}.index", metric.id), format!("{}.data", metric.id));
        if !self.places.contains_key(&index) && !self.places.contains_key(&data) {
            return Ok(());
        }
        if metric.data_type != "UINT64" || metric.kind != "EXCLUSIVE" {
            return Err(Wrong::Type(quoted(&format!("{} ({})", metric.data_type, metric.kind))));
        }
        let index = self.whole(&index)?;
        let (is_big, places) = rows(&index, anchor.calls.len()).ok_or(Wrong::Damaged("the index cannot be read"))?;
        let (data, size) = self.open(&data)?.ok_or(Wrong::Damaged("there is an index and no data"))?;
        let mut data = BufReader::with_capacity(1 << 16, data);
        let mut mark = [0; DATA.len()];
        data.read_exact(&mut mark)?;
        if mark == *COMPRESSED {
            return Err(Wrong::Compressed);
        }
        let mut row = vec![0; anchor.locations.len() * VALUE_BYTES];
        let expected =
            (row.len() as u64).checked_mul(places.len() as u64).and_then(|bytes| bytes.checked_add(DATA.len() as u64));
        if mark != *DATA || expected != Some(size) {
            return Err(Wrong::Damaged("the data are not one value for each place of the index and each location"));
        }
        for place in places {
            let call = *anchor.calls.get(place).ok_or(Wrong::Damaged("the index names a call that is not there"))?;
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

/// The byte order of a metric (true: big-endian), and which node of the call tree each of its rows is of.
fn rows(index: &[u8], nodes: usize) -> Option<(bool, Vec<usize>)> {
    let (order, rest) = index.strip_prefix(INDEX)?.split_first_chunk::<4>()?;
    let is_big = match u32::from_le_bytes(*order) {
        1 => false,
        0x0100_0000 => true,
        _ => return None,
    };
    let number = |bytes: &[u8; 4]| if is_big { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) };
    // A version that nobody has ever counted up, and the form.
    let ([_, _, form], rest) = rest.split_first_chunk::<3>()?;
    if *form == 0 {
        return Some((is_big, (0..nodes).collect()));
    }
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let (places, left) = rest.as_chunks::<4>();
    let is_whole = *form == 1 && places.len() == number(count) as usize && left.is_empty();
    is_whole.then(|| (is_big, places.iter().map(|place| number(place) as usize).collect()))
}
