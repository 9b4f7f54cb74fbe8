//! The stored form of a readout: each input at its end, before any decision, without loss.
//!
//! ```text
//! magic | version | header (JSON) | for each input: extras, shard, shard ... (postcard)
//! ```
//! The header, the extras and each shard are one block each: length, stored length and XXH3-64,
//! then the bytes, compressed with zstd if that makes them shorter. Numbers have variable length,
//! because most are small.
//!
//! Invariant: no block is decoded, and no memory is reserved for it, before its XXH3-64 matches.
//!
//! **Version**: a change to a stored type, or to the meaning of its values, increments [`VERSION`].

use super::readout::{Readout, SHARDS, ShardReadout};
use super::{AnalysisMeasures, AnalysisOptions, EndpointInfo, PipelineError};
use crate::align::PacketSample;
use crate::model::profile::{Input, RankRow};
use crate::model::{Clock, ConnectionShare};
use crate::reduce::TimeSeriesKind;
use ibscope_parsers::Endpoint;
use rayon::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 8] = *b"ibsparts";
const VERSION: u32 = 27;
/// Higher levels compress such numbers no better and take several times as long.
const ZSTD_LEVEL: i32 = 2;
/// Largest ratio of compression. A larger ratio in a file means damage, and no memory is reserved
/// for it.
const MAX_COMPRESSION: usize = 256;
/// Length of the three numbers before a block.
const BLOCK_HEAD_BYTES: usize = 24;
/// Inputs that a header may list; no run has more.
const MAX_INPUTS: usize = 1 << 16;

/// Options that inputs must share to be merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
pub(super) struct MergeSettings {
    bin_ns: Option<i64>,
    max_cells: usize,
    max_connections: usize,
    mpi: bool,
    times: bool,
    sizes: bool,
    health: bool,
    icrc: bool,
    align: bool,
    /// Absent in files from before the option existed; these were analyzed with payload.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    no_payload: bool,
    /// Absent if not given.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    sampled: Option<u32>,
}

impl MergeSettings {
    fn of(options: &AnalysisOptions) -> Self {
        Self {
            bin_ns: options.bin_ns,
            max_cells: options.limits.max_cells,
            max_connections: options.limits.max_connections,
            mpi: options.measures.mpi,
            times: options.measures.times,
            sizes: options.measures.sizes,
            health: options.measures.health,
            icrc: options.measures.icrc,
            align: options.clocks.align,
            no_payload: !options.measures.payload,
            sampled: options.sampled,
        }
    }

    /// Sets the options to these settings.
    pub(super) fn apply(&self, options: &mut AnalysisOptions) {
        options.bin_ns = self.bin_ns;
        options.limits.max_cells = self.max_cells;
        options.limits.max_connections = self.max_connections;
        options.measures = AnalysisMeasures {
            mpi: self.mpi,
            times: self.times,
            sizes: self.sizes,
            health: self.health,
            icrc: self.icrc,
            payload: !self.no_payload,
        };
        options.clocks.align = self.align;
        options.sampled = self.sampled;
    }

    /// The first option of `analyze` that differs.
    pub(super) fn difference(&self, other: &Self) -> Option<&'static str> {
        let same = [
            (self.bin_ns == other.bin_ns, "--bin"),
            (self.max_cells == other.max_cells, "--max-cells"),
            (self.max_connections == other.max_connections, "--max-connections"),
            (self.mpi == other.mpi, "--no-mpi"),
            (self.times == other.times, "--no-times"),
            (self.icrc == other.icrc, "--no-icrc"),
            (self.align == other.align, "--no-align"),
            (self.no_payload == other.no_payload, "--no-payload"),
            (self.sampled == other.sampled, "--sampled"),
        ];
        let differs = same.into_iter().find_map(|(is_same, option)| (!is_same).then_some(option));
        differs.or((self != other).then_some("stored tables"))
    }
}

/// Header: the settings, the user's names, and the inputs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PartsHeader {
    pub(super) settings: MergeSettings,
    /// Endpoints as text, each with its name, leaf switch or Slurm job id.
    names: Vec<(String, String)>,
    leaves: Vec<(String, String)>,
    slurm_jobs: Vec<(String, String)>,
    /// Data rates of endpoints in bit/s. Absent in files from before they existed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    port_rates: Vec<(String, u64)>,
    pub(super) rankmap: Option<Vec<RankRow>>,
    /// With their coverage before any decision.
    pub(super) inputs: Vec<Input>,
    /// Positions in `inputs`: those of each stream in the order of time. The first one has the shards of
    /// its stream.
    pub(super) streams: Vec<Vec<usize>>,
}

impl PartsHeader {
    /// A header for inputs in these streams that were analyzed with these options.
    pub(super) fn new(inputs: &[Input], streams: &[Vec<usize>], options: &AnalysisOptions) -> Self {
        let text = |map: &BTreeMap<Endpoint, String>| {
            map.iter().map(|(endpoint, text)| (endpoint.to_string(), text.clone())).collect()
        };
        Self {
            settings: MergeSettings::of(options),
            names: text(&options.endpoints.names),
            leaves: text(&options.endpoints.leaves),
            slurm_jobs: text(&options.endpoints.slurm_jobs),
            port_rates: options.endpoints.port_rates.iter().map(|(own, rate)| (own.to_string(), *rate)).collect(),
            rankmap: options.rankmap.clone(),
            inputs: inputs.to_vec(),
            streams: streams.to_vec(),
        }
    }

    /// Names, leaf switches and Slurm job ids of endpoints.
    pub(super) fn endpoint_info(&self) -> Result<EndpointInfo, PartsError> {
        let parsed = |text: &str| text.parse().map_err(|_| PartsError("an endpoint in it is malformed"));
        let endpoint = |(endpoint, text): &(String, String)| Ok((parsed(endpoint)?, crate::model::printable(text)));
        let rates = self.port_rates.iter().map(|(endpoint, rate)| Ok((parsed(endpoint)?, *rate)));
        let map = |texts: &[(String, String)]| texts.iter().map(endpoint).collect::<Result<_, PartsError>>();
        Ok(EndpointInfo {
            names: map(&self.names)?,
            leaves: map(&self.leaves)?,
            port_rates: rates.collect::<Result<_, PartsError>>()?,
            slurm_jobs: map(&self.slurm_jobs)?,
        })
    }
}

/// Data of an input without its shards.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct InputExtras {
    /// The end of its file, if that needs a note.
    pub(super) note: Option<String>,
    /// The clock that corrected its times.
    pub(super) clock: Option<Clock>,
    /// The clock that the user gave, and its uncertainty in nanoseconds.
    pub(super) known_clock: Option<(Clock, u64)>,
    /// The clock that a merge found together with those of other inputs.
    pub(super) merge_clock: Option<MergeClock>,
    /// The input could be read only once.
    pub(super) is_pipe: bool,
    /// A sample of its packets, in the time of its own clock.
    pub(super) sample: Option<PacketSample>,
}

/// A clock that a merge found.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct MergeClock {
    /// The default clock, which corrects nothing, where no correction is needed.
    pub(super) clock: Clock,
    pub(super) uncertainty_ns: u64,
    /// Hash over all clocks that were found together; only clocks of one set agree with each other.
    pub(super) set: u64,
}

/// One stored input.
pub(super) struct InputPart {
    pub(super) input: Input,
    pub(super) rest: InputExtras,
    pub(super) shards: Vec<ShardReadout>,
}

/// Reason why bytes are not valid parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PartsError(&'static str);

const TRUNCATED: PartsError = PartsError("it is truncated");
const INVALID_VALUES: PartsError = PartsError("its values are out of range or inconsistent");

/// Reduces the samples to the size they would have in one run over all inputs.
pub(super) fn level(rests: &mut [InputExtras]) {
    let sampled_inputs = rests.iter().filter(|rest| rest.sample.is_some()).count();
    rests.par_iter_mut().filter_map(|rest| rest.sample.as_mut()).for_each(|sample| sample.narrow(sampled_inputs));
}

/// Serializes inputs that were leveled by [`Readout::level`] and [`level`].
pub(super) fn write(head: &PartsHeader, rests: &[InputExtras], readout: &Readout) -> Result<Vec<u8>, PipelineError> {
    let mut head = head.clone();
    for (input, end) in head.inputs.iter_mut().zip(&readout.inputs) {
        input.clock = None;
        input.coverage = end.coverage.clone();
    }
    let failed = |error: &dyn std::fmt::Display| PipelineError::Parts(error.to_string());
    let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
    bytes.extend(store_block(serde_json::to_vec(&head).map_err(|error| failed(&error))?));
    for (rest, end) in rests.iter().zip(&readout.inputs) {
        bytes.extend(store_block(postcard::to_allocvec(rest).map_err(|error| failed(&error))?));
        let shards: Vec<Vec<u8>> = end
            .shards
            .par_iter()
            .map(|shard| Ok(store_block(postcard::to_allocvec(shard).map_err(|error| failed(&error))?)))
            .collect::<Result<_, PipelineError>>()?;
        shards.iter().for_each(|shard| bytes.extend(shard));
    }
    Ok(bytes)
}

/// Reads stored inputs. Memory is bounded by a few hundred times the length of `bytes`.
pub(super) fn read(bytes: &[u8]) -> Result<(PartsHeader, Vec<InputPart>), PartsError> {
    let bytes = bytes.strip_prefix(&MAGIC).ok_or(PartsError("it was not written by analyze --partial"))?;
    let (version, mut left) = bytes.split_first_chunk().ok_or(TRUNCATED)?;
    if u32::from_le_bytes(*version) != VERSION {
        return Err(PartsError("it was written by another version of ibscope"));
    }
    let head = checked_header(serde_json::from_slice(&take_block(&mut left)?).map_err(|_| INVALID_VALUES)?)?;
    let mut parts = Vec::new();
    for input in &head.inputs {
        let rest: InputExtras = decode(&take_block(&mut left)?)?;
        let blocks = (0..SHARDS).map(|_| split_block(&mut left)).collect::<Result<Vec<StoredBlock>, PartsError>>()?;
        let shards = blocks.into_par_iter().map(|block| checked_shard(decode(&block.unpack()?)?, &head.settings));
        parts.push(InputPart { input: input.clone(), rest, shards: shards.collect::<Result<_, PartsError>>()? });
    }
    if left.is_empty() { Ok((head, parts)) } else { Err(PartsError("it has extra bytes at its end")) }
}

/// Checks the bounds of a header, and that each input is in exactly one stream.
fn checked_header(head: PartsHeader) -> Result<PartsHeader, PartsError> {
    let mut in_streams: Vec<usize> = head.streams.iter().flatten().copied().collect();
    in_streams.sort_unstable();
    let is_possible = head.inputs.len() <= MAX_INPUTS
        && in_streams.into_iter().eq(0..head.inputs.len())
        && head.streams.iter().all(|stream| !stream.is_empty())
        && head.settings.bin_ns.is_none_or(|bin_ns| bin_ns > 0)
        && head.inputs.iter().all(|input| input.share.is_none_or(ConnectionShare::is_sound));
    if is_possible { Ok(head) } else { Err(INVALID_VALUES) }
}

/// Checks a shard for consistency with itself and with the settings.
fn checked_shard(shard: ShardReadout, settings: &MergeSettings) -> Result<ShardReadout, PartsError> {
    let is_width = |which: TimeSeriesKind| match (shard.sums.bin_ns(which), settings.bin_ns) {
        (Some(bin_ns), Some(first_ns)) => bin_ns % first_ns == 0 && (bin_ns / first_ns).count_ones() == 1,
        (bin_ns, first_ns) => bin_ns == first_ns,
    };
    let is_sound = shard.sums.is_sound()
        && shard.sums.partials().len() == shard.connections.len()
        && is_width(TimeSeriesKind::Traffic)
        && is_width(TimeSeriesKind::Times);
    if is_sound { Ok(shard) } else { Err(INVALID_VALUES) }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, PartsError> {
    let (value, left) = postcard::take_from_bytes(bytes).map_err(|_| INVALID_VALUES)?;
    if left.is_empty() { Ok(value) } else { Err(INVALID_VALUES) }
}

/// A block in its stored form.
fn store_block(bytes: Vec<u8>) -> Vec<u8> {
    let stored = zstd::bulk::compress(&bytes, ZSTD_LEVEL).ok();
    let is_shorter = |stored: &Vec<u8>| stored.len() < bytes.len() && bytes.len() / MAX_COMPRESSION < stored.len();
    let length = bytes.len() as u64;
    let stored = stored.filter(is_shorter).unwrap_or(bytes);
    let words = [length, stored.len() as u64, xxh3_64(&stored)];
    [words.map(u64::to_le_bytes).as_flattened(), &stored].concat()
}

/// A block whose XXH3-64 matches.
struct StoredBlock<'a> {
    length: usize,
    stored: &'a [u8],
}

impl<'a> StoredBlock<'a> {
    fn unpack(self) -> Result<Cow<'a, [u8]>, PartsError> {
        if self.length == self.stored.len() {
            return Ok(Cow::Borrowed(self.stored));
        }
        let bytes = zstd::bulk::decompress(self.stored, self.length).map_err(|_| PartsError("it is damaged"))?;
        if bytes.len() == self.length { Ok(Cow::Owned(bytes)) } else { Err(TRUNCATED) }
    }
}

/// Splits the next block off `left` and checks its XXH3-64.
fn split_block<'a>(left: &mut &'a [u8]) -> Result<StoredBlock<'a>, PartsError> {
    let (head, behind) = left.split_first_chunk::<BLOCK_HEAD_BYTES>().ok_or(TRUNCATED)?;
    let (words, _) = head.as_chunks::<8>();
    let word = |index: usize| words.get(index).map_or(0, |&word| u64::from_le_bytes(word));
    let [length, stored_length] = [word(0), word(1)].map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    let (stored, behind) = behind.split_at_checked(stored_length).ok_or(TRUNCATED)?;
    if length / MAX_COMPRESSION > stored_length || length < stored_length || xxh3_64(stored) != word(2) {
        return Err(PartsError("it is damaged"));
    }
    *left = behind;
    Ok(StoredBlock { length, stored })
}

fn take_block<'a>(left: &mut &'a [u8]) -> Result<Cow<'a, [u8]>, PartsError> {
    split_block(left)?.unpack()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{AnalysisLimits, analyze, merge};
    use std::path::PathBuf;

    /// Parts of a profile of two inputs.
    fn parts() -> Vec<u8> {
        let runs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("samples/runs/ompi-rc-halo-2x2");
        let paths = [1, 2].map(|node| runs.join(format!("node{node}.pcap.zst")));
        let options = AnalysisOptions {
            keep_parts: true,
            limits: AnalysisLimits { max_cells: 600, ..AnalysisLimits::default() },
            ..AnalysisOptions::default()
        };
        analyze(&paths, &options, &|_| {}).expect("profile").parts.expect("parts")
    }

    /// The bytes of each block.
    fn blocks(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut left = &bytes[MAGIC.len() + 4..];
        let mut blocks = Vec::new();
        while !left.is_empty() {
            blocks.push(take_block(&mut left).expect("a block").into_owned());
        }
        blocks
    }

    fn joined(blocks: Vec<Vec<u8>>) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        blocks.into_iter().for_each(|own| bytes.extend(store_block(own)));
        bytes
    }

    #[test]
    fn blocks_are_read_back_unchanged() {
        for bytes in [Vec::new(), vec![7], vec![0; 1 << 20], (0..=255).collect()] {
            let stored = store_block(bytes.clone());
            // So many equal bytes are stored uncompressed, within `MAX_COMPRESSION`.
            assert!(stored.len() >= bytes.len() / MAX_COMPRESSION);
            let mut left = stored.as_slice();
            assert_eq!((take_block(&mut left).expect("a block").into_owned(), left.len()), (bytes, 0));
        }
        let bytes = parts();
        assert_eq!(joined(blocks(&bytes)), bytes);
        assert_eq!(blocks(&bytes).len(), 1 + 2 * (1 + SHARDS));
    }

    #[test]
    fn truncated_or_changed_bytes_are_rejected() {
        let bytes = parts();
        assert!(read(&bytes).is_ok());
        for end in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
            assert!(read(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in (0..bytes.len()).step_by(89).chain(0..200) {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(read(&changed).is_err(), "byte {at}");
        }
        assert!(read(&[bytes.as_slice(), &[0]].concat()).is_err());
        // A huge length reserves no memory.
        let mut claims = bytes;
        claims[12..20].copy_from_slice(&(1u64 << 50).to_le_bytes());
        assert!(read(&claims).is_err());
    }

    /// Pieces with valid checksums and arbitrary numbers: an error or a profile, and no panic.
    #[test]
    fn arbitrary_numbers_do_not_panic() {
        let blocks = blocks(&parts());
        let folder = tempfile::tempdir().expect("folder");
        let place = folder.path().join("hostile.ibp");
        let mut state = 1u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let long: Vec<usize> = (1..blocks.len()).filter(|index| blocks[*index].len() > 100).collect();
        let mut merged = 0;
        for _ in 0..400 {
            let mut hostile = blocks.clone();
            for _ in 0..=random(3) {
                let block = &mut hostile[long[random(long.len())]];
                let at = random(block.len());
                block[at] = [0, 1, 2, 0x7F, 0x80, 0xFF, block[at].wrapping_add(1)][random(7)];
            }
            let bytes = joined(hostile);
            if read(&bytes).is_err() {
                continue;
            }
            let profile = crate::model::Profile { parts: Some(bytes), ..Default::default() };
            crate::profile::ProfileWriter::create(&place, &[]).expect("place").finish(&profile).expect("written");
            merged += u32::from(merge(std::slice::from_ref(&place), &AnalysisOptions::default()).is_ok());
        }
        assert!(merged > 10, "{merged} of them are profiles");
    }

    #[test]
    fn a_header_with_too_many_inputs_is_rejected() {
        let head: PartsHeader = serde_json::from_slice(&blocks(&parts())[0]).expect("a head");
        let with = |inputs: usize| PartsHeader {
            inputs: vec![head.inputs[0].clone(); inputs],
            streams: (0..inputs).map(|input| vec![input]).collect(),
            ..head.clone()
        };
        assert!(checked_header(with(MAX_INPUTS)).is_ok());
        assert_eq!(checked_header(with(MAX_INPUTS + 1)).err(), Some(INVALID_VALUES));
    }

    #[test]
    fn a_header_whose_inputs_are_not_in_one_stream_each_is_rejected() {
        let head: PartsHeader = serde_json::from_slice(&blocks(&parts())[0]).expect("a head");
        let with = |streams: &[&[usize]]| {
            let streams = streams.iter().map(|stream| stream.to_vec()).collect();
            checked_header(PartsHeader { streams, ..head.clone() }).is_ok()
        };
        assert!(with(&[&[0], &[1]]) && with(&[&[1, 0]]));
        for wrong in [&[&[0][..]][..], &[&[0, 0, 1]], &[&[0], &[1], &[2]], &[&[0, 1], &[1]], &[&[0, 1], &[]]] {
            assert!(!with(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_block_with_too_large_a_compression_ratio_is_rejected() {
        let stored = [7; 10];
        // The last length that rounds down to the bound, and the next one.
        let most = (MAX_COMPRESSION * stored.len() + MAX_COMPRESSION - 1) as u64;
        for (length, is_block) in [(most, true), (most + 1, false)] {
            let words = [length, stored.len() as u64, xxh3_64(&stored)];
            let bytes = [words.map(u64::to_le_bytes).as_flattened(), &stored].concat();
            assert_eq!(split_block(&mut bytes.as_slice()).is_ok(), is_block);
        }
    }
}
