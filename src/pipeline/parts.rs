//! What a profile keeps for a merge: the inputs as they ended, nothing decided, written down without loss.
//!
//! ```text
//! magic | version | head (JSON) | for each input: rest, shard, shard ... (postcard)
//! ```
//! Head, rests and shards are pieces of their own: length, stored length and XXH3-64, then the bytes, compressed with zstd where that makes them
//! shorter. So no more than one is held twice, and nothing is believed, nor room made for it, before its sum fits. Numbers are of variable length:
//! most are small.
//!
//! **Version**: whoever changes a type that is written down here, or what its values mean, raises [`VERSION`].

use super::readout::{Readout, SHARDS, ShardReadout};
use super::{Error, Options};
use crate::align::Sights;
use crate::model::Clock;
use crate::model::profile::{Input, RankRow};
use crate::reduce::OverTime;
use ibscope_parsers::Endpoint;
use rayon::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 8] = *b"ibsparts";
const VERSION: u32 = 3;
/// The second level is as good as higher ones on numbers like these, and several times as fast.
const ZSTD_LEVEL: i32 = 2;
/// No piece is compressed more than this: one that claims to be is no piece, and does not get room.
const MOST_COMPRESSED: usize = 256;
/// Numbers in front of a piece.
const PIECE_HEAD_BYTES: usize = 24;
/// Inputs that parts may claim to have: no run has more.
const MAX_INPUTS: usize = 1 << 16;

/// How the inputs were analysed. Only what was analysed alike can be merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "switches that have nothing to do with each other")]
pub(super) struct Settings {
    bin_ns: Option<i64>,
    max_cells: usize,
    max_connections: usize,
    mpi: bool,
    times: bool,
    sizes: bool,
    health: bool,
    icrc: bool,
    align: bool,
    /// Parts written before there was this had been looked into.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    no_payload: bool,
}

impl Settings {
    fn of(options: &Options) -> Self {
        Self {
            bin_ns: options.bin_ns,
            max_cells: options.max_cells,
            max_connections: options.max_connections,
            mpi: options.read_mpi,
            times: options.read_times,
            sizes: options.read_sizes,
            health: options.read_health,
            icrc: options.check_icrc,
            align: options.align,
            no_payload: !options.read_payload,
        }
    }

    /// Sets the options to these.
    pub(super) fn apply(&self, options: &mut Options) {
        (options.bin_ns, options.max_cells) = (self.bin_ns, self.max_cells);
        options.max_connections = self.max_connections;
        (options.read_mpi, options.read_times) = (self.mpi, self.times);
        (options.read_sizes, options.read_health) = (self.sizes, self.health);
        (options.check_icrc, options.align) = (self.icrc, self.align);
        options.read_payload = !self.no_payload;
    }

    /// The option of `analyze` in which two differ, if they do.
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
        ];
        let differs = same.into_iter().find_map(|(is_same, option)| (!is_same).then_some(option));
        differs.or((self != other).then_some("what is kept"))
    }
}

/// What stands in front.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) settings: Settings,
    /// Endpoints as text, with their names, their leaf switches, and the jobs of Slurm that they ran.
    names: Vec<(String, String)>,
    leaves: Vec<(String, String)>,
    slurm_jobs: Vec<(String, String)>,
    pub(super) rankmap: Option<Vec<RankRow>>,
    /// With their counts as they are before anything is decided.
    pub(super) inputs: Vec<Input>,
}

impl Head {
    /// Of inputs that were analysed with these options.
    pub(super) fn new(inputs: &[Input], options: &Options) -> Self {
        let text = |map: &BTreeMap<Endpoint, String>| {
            map.iter().map(|(endpoint, text)| (endpoint.to_string(), text.clone())).collect()
        };
        Self {
            settings: Settings::of(options),
            names: text(&options.names),
            leaves: text(&options.leaves),
            slurm_jobs: text(&options.slurm_jobs),
            rankmap: options.rankmap.clone(),
            inputs: inputs.to_vec(),
        }
    }

    /// What was said of endpoints.
    pub(super) fn said(&self) -> Result<EndpointInfo, Broken> {
        let endpoint = |(endpoint, text): &(String, String)| {
            Ok((endpoint.parse().map_err(|_| Broken("it names what is no endpoint"))?, crate::model::printable(text)))
        };
        let map = |said: &[(String, String)]| said.iter().map(endpoint).collect::<Result<_, Broken>>();
        Ok(EndpointInfo { names: map(&self.names)?, leaves: map(&self.leaves)?, slurm_jobs: map(&self.slurm_jobs)? })
    }
}

/// What was said of endpoints.
pub(super) struct EndpointInfo {
    pub(super) names: BTreeMap<Endpoint, String>,
    /// Leaf switches.
    pub(super) leaves: BTreeMap<Endpoint, String>,
    /// Ids of the jobs of Slurm that they ran.
    pub(super) slurm_jobs: BTreeMap<Endpoint, String>,
}

/// What an input has beside its shards.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Rest {
    /// How its file ended, where there is something to say of that.
    pub(super) note: Option<String>,
    /// What its times were corrected by.
    pub(super) clock: Option<Clock>,
    /// The same where the user knew it, and by how much it may be wrong.
    pub(super) given: Option<(Clock, u64)>,
    /// The same where a merge had found it together with those of other inputs.
    pub(super) found: Option<Found>,
    /// It could be read once only.
    pub(super) is_stream: bool,
    /// A sample of its packets by its own clock.
    pub(super) sights: Option<Sights>,
}

/// A clock that a merge had found.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Found {
    /// One that corrects nothing where none is needed.
    pub(super) clock: Clock,
    pub(super) uncertainty_ns: u64,
    /// Stands for all clocks that were found together: they are on one clock, those of others may not be.
    pub(super) set: u64,
}

/// One input as it was written down.
pub(super) struct Part {
    pub(super) input: Input,
    pub(super) rest: Rest,
    pub(super) shards: Vec<ShardReadout>,
}

/// Bytes that are no parts, or not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(&'static str);

const CUT: Broken = Broken("it ends too early");
const NOT_THESE: Broken = Broken("its numbers are not those of an analysis");

/// Samples as large as they would be had one run drawn them all.
pub(super) fn level(rests: &mut [Rest]) {
    let drawn = rests.iter().filter(|rest| rest.sights.is_some()).count();
    rests.par_iter_mut().filter_map(|rest| rest.sights.as_mut()).for_each(|sights| sights.narrow(drawn));
}

/// Writes down inputs that are level (see [`Readout::level`] and [`level`]).
pub(super) fn write(head: &Head, rests: &[Rest], readout: &Readout) -> Result<Vec<u8>, Error> {
    let mut head = head.clone();
    for (input, end) in head.inputs.iter_mut().zip(&readout.inputs) {
        input.clock = None;
        input.coverage = end.coverage.clone();
    }
    let failed = |error: &dyn std::fmt::Display| Error::Parts(error.to_string());
    let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
    bytes.extend(piece(serde_json::to_vec(&head).map_err(|error| failed(&error))?));
    for (rest, end) in rests.iter().zip(&readout.inputs) {
        bytes.extend(piece(postcard::to_allocvec(rest).map_err(|error| failed(&error))?));
        let shards: Vec<Vec<u8>> = end
            .shards
            .par_iter()
            .map(|shard| Ok(piece(postcard::to_allocvec(shard).map_err(|error| failed(&error))?)))
            .collect::<Result<_, Error>>()?;
        shards.iter().for_each(|shard| bytes.extend(shard));
    }
    Ok(bytes)
}

/// Reads what was written down. Nothing that the bytes say makes it take more room than some hundred times their length.
pub(super) fn read(bytes: &[u8]) -> Result<(Head, Vec<Part>), Broken> {
    let bytes = bytes.strip_prefix(&MAGIC).ok_or(Broken("it is not what analyze --partial writes"))?;
    let (version, mut left) = bytes.split_first_chunk().ok_or(CUT)?;
    if u32::from_le_bytes(*version) != VERSION {
        return Err(Broken("another version of ibscope wrote it"));
    }
    let head = possible(serde_json::from_slice(&take(&mut left)?).map_err(|_| NOT_THESE)?)?;
    let mut parts = Vec::new();
    for input in &head.inputs {
        let rest: Rest = decode(&take(&mut left)?)?;
        let pieces = (0..SHARDS).map(|_| cut(&mut left)).collect::<Result<Vec<Piece>, Broken>>()?;
        let shards = pieces.into_par_iter().map(|piece| sound(decode(&piece.unpack()?)?, &head.settings));
        parts.push(Part { input: input.clone(), rest, shards: shards.collect::<Result<_, Broken>>()? });
    }
    if left.is_empty() { Ok((head, parts)) } else { Err(Broken("something stands behind its end")) }
}

/// A head that can be one of an analysis.
fn possible(head: Head) -> Result<Head, Broken> {
    let is_possible = head.inputs.len() <= MAX_INPUTS && head.settings.bin_ns.is_none_or(|bin_ns| bin_ns > 0);
    if is_possible { Ok(head) } else { Err(NOT_THESE) }
}

/// A shard that can be one of an analysis with these settings.
fn sound(shard: ShardReadout, settings: &Settings) -> Result<ShardReadout, Broken> {
    let is_width = |which: OverTime| match (shard.sums.bin_ns(which), settings.bin_ns) {
        (Some(bin_ns), Some(first_ns)) => bin_ns % first_ns == 0 && (bin_ns / first_ns).count_ones() == 1,
        (bin_ns, first_ns) => bin_ns == first_ns,
    };
    let is_sound = shard.sums.is_sound()
        && shard.sums.partials().len() == shard.connections.len()
        && is_width(OverTime::Traffic)
        && is_width(OverTime::Times);
    if is_sound { Ok(shard) } else { Err(NOT_THESE) }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Broken> {
    let (value, left) = postcard::take_from_bytes(bytes).map_err(|_| NOT_THESE)?;
    if left.is_empty() { Ok(value) } else { Err(NOT_THESE) }
}

/// A piece as it is stored.
fn piece(bytes: Vec<u8>) -> Vec<u8> {
    let stored = zstd::bulk::compress(&bytes, ZSTD_LEVEL).ok();
    let is_shorter = |stored: &Vec<u8>| stored.len() < bytes.len() && bytes.len() / MOST_COMPRESSED < stored.len();
    let length = bytes.len() as u64;
    let stored = stored.filter(is_shorter).unwrap_or(bytes);
    let words = [length, stored.len() as u64, xxh3_64(&stored)];
    [words.map(u64::to_le_bytes).as_flattened(), &stored].concat()
}

/// A piece whose sum fits.
struct Piece<'a> {
    length: usize,
    stored: &'a [u8],
}

impl<'a> Piece<'a> {
    fn unpack(self) -> Result<Cow<'a, [u8]>, Broken> {
        if self.length == self.stored.len() {
            return Ok(Cow::Borrowed(self.stored));
        }
        let bytes = zstd::bulk::decompress(self.stored, self.length).map_err(|_| Broken("it is damaged"))?;
        if bytes.len() == self.length { Ok(Cow::Owned(bytes)) } else { Err(CUT) }
    }
}

/// Cuts the next piece off.
fn cut<'a>(left: &mut &'a [u8]) -> Result<Piece<'a>, Broken> {
    let (head, behind) = left.split_first_chunk::<PIECE_HEAD_BYTES>().ok_or(CUT)?;
    let (words, _) = head.as_chunks::<8>();
    let word = |index: usize| words.get(index).map_or(0, |&word| u64::from_le_bytes(word));
    let [length, stored_length] = [word(0), word(1)].map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    let (stored, behind) = behind.split_at_checked(stored_length).ok_or(CUT)?;
    if length / MOST_COMPRESSED > stored_length || length < stored_length || xxh3_64(stored) != word(2) {
        return Err(Broken("it is damaged"));
    }
    *left = behind;
    Ok(Piece { length, stored })
}

fn take<'a>(left: &mut &'a [u8]) -> Result<Cow<'a, [u8]>, Broken> {
    cut(left)?.unpack()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{analyze, merge};
    use std::path::PathBuf;

    /// Parts of two inputs, and a profile's folder.
    fn parts() -> Vec<u8> {
        let runs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("samples/runs/ompi-rc-halo-2x2");
        let paths = [1, 2].map(|node| runs.join(format!("node{node}.pcap.zst")));
        let options = Options { keep_parts: true, max_cells: 600, ..Options::default() };
        analyze(&paths, &options, &|_| {}).expect("profile").parts.expect("parts")
    }

    /// Where pieces begin, and their bytes.
    fn pieces(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut left = &bytes[MAGIC.len() + 4..];
        let mut pieces = Vec::new();
        while !left.is_empty() {
            pieces.push(take(&mut left).expect("a piece").into_owned());
        }
        pieces
    }

    fn joined(pieces: Vec<Vec<u8>>) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        pieces.into_iter().for_each(|own| bytes.extend(piece(own)));
        bytes
    }

    #[test]
    fn pieces_come_back() {
        for bytes in [Vec::new(), vec![7], vec![0; 1 << 20], (0..=255).collect()] {
            let stored = piece(bytes.clone());
            // So many equal bytes are stored as they are, as nothing else may claim so much room.
            assert!(stored.len() >= bytes.len() / MOST_COMPRESSED);
            let mut left = stored.as_slice();
            assert_eq!((take(&mut left).expect("a piece").into_owned(), left.len()), (bytes, 0));
        }
        let bytes = parts();
        assert_eq!(joined(pieces(&bytes)), bytes);
        assert_eq!(pieces(&bytes).len(), 1 + 2 * (1 + SHARDS));
    }

    #[test]
    fn what_is_cut_or_changed_is_refused() {
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
        // A piece that claims to be huge does not get room.
        let mut claims = bytes;
        claims[12..20].copy_from_slice(&(1u64 << 50).to_le_bytes());
        assert!(read(&claims).is_err());
    }

    /// Pieces whose sums fit and whose numbers are anything: an error or a profile, and no panic.
    #[test]
    fn any_numbers_end_without_panic() {
        let pieces = pieces(&parts());
        let folder = tempfile::tempdir().expect("folder");
        let place = folder.path().join("hostile.ibp");
        let mut state = 1u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let long: Vec<usize> = (1..pieces.len()).filter(|index| pieces[*index].len() > 100).collect();
        let mut merged = 0;
        for _ in 0..400 {
            let mut hostile = pieces.clone();
            for _ in 0..=random(3) {
                let piece = &mut hostile[long[random(long.len())]];
                let at = random(piece.len());
                piece[at] = [0, 1, 2, 0x7F, 0x80, 0xFF, piece[at].wrapping_add(1)][random(7)];
            }
            let bytes = joined(hostile);
            if read(&bytes).is_err() {
                continue;
            }
            let profile = crate::model::Profile { parts: Some(bytes), ..Default::default() };
            crate::profile::Writer::create(&place, &[]).expect("place").finish(&profile).expect("written");
            merged += u32::from(merge(std::slice::from_ref(&place), &Options::default()).is_ok());
        }
        assert!(merged > 10, "{merged} of them are profiles");
    }

    #[test]
    fn a_head_that_claims_more_inputs_than_any_run_has_is_refused() {
        let head: Head = serde_json::from_slice(&pieces(&parts())[0]).expect("a head");
        let with = |inputs: usize| Head { inputs: vec![head.inputs[0].clone(); inputs], ..head.clone() };
        assert!(possible(with(MAX_INPUTS)).is_ok());
        assert_eq!(possible(with(MAX_INPUTS + 1)).err(), Some(NOT_THESE));
    }

    #[test]
    fn a_piece_that_claims_to_be_compressed_more_than_any_is_refused() {
        let stored = [7; 10];
        // The last length that rounds down to the bound, and the next.
        let most = (MOST_COMPRESSED * stored.len() + MOST_COMPRESSED - 1) as u64;
        for (length, is_piece) in [(most, true), (most + 1, false)] {
            let words = [length, stored.len() as u64, xxh3_64(&stored)];
            let bytes = [words.map(u64::to_le_bytes).as_flattened(), &stored].concat();
            assert_eq!(cut(&mut bytes.as_slice()).is_ok(), is_piece);
        }
    }
}
