//! The bytes of one input: opened, counted, digested, and decompressed according to their magic
//! number.

use super::fifo::{EndCondition, FifoReader};
use super::{InputError, is_stdin};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufRead, Read, Seek as _, SeekFrom};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use xxhash_rust::xxh3::Xxh3;

/// Compressed bytes that are read at a time.
const READ_BYTES: usize = 256 << 10;
/// Largest window of a zstd frame, as a power of two: 128 MiB, zstd's own default limit. It limits
/// the memory that a hostile file can use.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Decompressed bytes that every compressed input may have, and the maximum ratio to its compressed
/// bytes beyond that. gzip reaches a ratio of at most 1032, packets in zstd about 500: even packets
/// full of zeros differ in numbers, times and checksums. A higher ratio means a file made to keep a
/// reader busy.
const MIN_DECOMPRESSED_LIMIT: u64 = 64 << 20;
const MAX_EXPANSION: u64 = 1100;

const GZIP_MAGIC: [u8; 2] = [0x1F, 0x8B];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Skippable zstd frames have the magic numbers 0x184D2A50 to 0x184D2A5F; a compressed file may
/// start with one.
const ZSTD_SKIPPABLE_MAGIC: [u8; 3] = [0x2A, 0x4D, 0x18];

/// Options for reading inputs.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// Compute XXH3-128.
    pub xxh3: bool,
    /// Compute SHA-256.
    pub sha256: bool,
    /// Counts the bytes read from all inputs, for a progress bar.
    pub bytes_read: Arc<AtomicU64>,
    /// Set by the caller to stop reading: only the bytes read before count. `None` if reading
    /// cannot be stopped.
    pub stop: Option<Arc<AtomicBool>>,
    /// Maximum number of decompressed bytes to read from a compressed input.
    pub max_decompressed_bytes: Option<u64>,
}

impl SourceOptions {
    /// True if the caller has stopped reading.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

/// Length and digests of the bytes read, before decompression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// Bytes read.
    pub length_bytes: u64,
    /// XXH3-128, hexadecimal; empty if not asked for.
    pub xxh3_128: String,
    /// SHA-256, hexadecimal, if asked for.
    pub sha256: Option<String>,
}

/// The decompressed stream of one input.
pub(super) struct InputSource {
    reader: Box<dyn Read + Send>,
    tally: Arc<Mutex<SourceTally>>,
    /// `plain`, `gzip` or `zstd`.
    pub(super) compression: &'static str,
    /// The file that is read, if it is a regular file.
    file: Option<Arc<File>>,
    bytes_read: Arc<AtomicU64>,
}

struct SourceTally {
    length_bytes: u64,
    digester: Digester,
}

/// The requested digests of the bytes so far.
#[derive(Clone, Default)]
pub(super) struct Digester {
    xxh3: Option<Xxh3>,
    sha256: Option<Sha256>,
}

impl Digester {
    fn new(options: &SourceOptions) -> Self {
        Self { xxh3: options.xxh3.then(Xxh3::new), sha256: options.sha256.then(Sha256::new) }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        if let Some(xxh3) = &mut self.xxh3 {
            xxh3.update(bytes);
        }
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(bytes);
        }
    }

    /// The digests, with the number of bytes that they cover.
    pub(super) fn digests(&self, length_bytes: u64) -> Digests {
        Digests {
            length_bytes,
            xxh3_128: self.xxh3.as_ref().map(|xxh3| format!("{:032x}", xxh3.digest128())).unwrap_or_default(),
            sha256: self.sha256.clone().map(|sha256| hex(&sha256.finalize())),
        }
    }
}

/// Counts and digests the bytes that are read through it.
struct DigestReader<R> {
    inner: R,
    tally: Arc<Mutex<SourceTally>>,
    bytes_read: Arc<AtomicU64>,
}

impl<R: Read> Read for DigestReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.length_bytes += count as u64;
        tally.digester.update(&buffer[..count]);
        self.bytes_read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Reason to stop reading a compressed input before its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadLimit {
    /// Its compression ratio is too high for packets.
    #[error(
        "its content is more than {MAX_EXPANSION} times as long as the file, which is impossible for packets; if it is a capture nevertheless, decompress it and analyze the \
         plain file"
    )]
    Ratio,
    /// The limit of the user is reached.
    #[error("the decompressed content exceeds --max-decompressed {0}")]
    UserLimit(u64),
}

impl ReadLimit {
    /// The reason that a read error carries, if any.
    pub(super) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// The output of a decompressor, up to a limit.
struct LimitedReader<R> {
    inner: R,
    tally: Arc<Mutex<SourceTally>>,
    length_bytes: u64,
    max_bytes: Option<u64>,
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let packed_bytes = self.tally.lock().unwrap_or_else(PoisonError::into_inner).length_bytes;
        if self.length_bytes >= MIN_DECOMPRESSED_LIMIT.max(packed_bytes.saturating_mul(MAX_EXPANSION)) {
            return Err(io::Error::other(ReadLimit::Ratio));
        }
        let count = match self.max_bytes {
            // Only a read shows whether there is more.
            Some(max_bytes) if self.length_bytes == max_bytes && !buffer.is_empty() => {
                match self.inner.read(&mut [0])? {
                    0 => 0,
                    _ => return Err(io::Error::other(ReadLimit::UserLimit(max_bytes))),
                }
            }
            Some(max_bytes) => {
                let left = usize::try_from(max_bytes - self.length_bytes).unwrap_or(usize::MAX).min(buffer.len());
                self.inner.read(&mut buffer[..left])?
            }
            None => self.inner.read(buffer)?,
        };
        self.length_bytes += count as u64;
        Ok(count)
    }
}

/// The content of the members of a gzip file, one after the other. Zeros behind a member are padding,
/// as in the files of some tape and backup programs; `gunzip` ignores them too.
enum GzipMembers<R> {
    /// Inside a member.
    Member(Box<flate2::bufread::GzDecoder<R>>),
    /// Behind a member.
    Behind(R),
    Ended,
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let has_next = match self {
                Self::Member(decoder) => match decoder.read(buffer)? {
                    0 if !buffer.is_empty() => false,
                    count => return Ok(count),
                },
                Self::Behind(input) => skip_zeros(input)?,
                Self::Ended => return Ok(0),
            };
            *self = match std::mem::replace(self, Self::Ended) {
                Self::Member(decoder) => Self::Behind(decoder.into_inner()),
                Self::Behind(input) if has_next => Self::Member(Box::new(flate2::bufread::GzDecoder::new(input))),
                Self::Behind(_) | Self::Ended => Self::Ended,
            };
        }
    }
}

/// Skips zeros. Returns false at the end of the input.
fn skip_zeros(input: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        let (zeros, length) = (bytes.iter().take_while(|byte| **byte == 0).count(), bytes.len());
        input.consume(zeros);
        if zeros < length || length == 0 {
            return Ok(length > 0);
        }
    }
}

impl InputSource {
    /// Opens a path, or standard input for `-`.
    pub(super) fn open(path: &Path, options: &SourceOptions) -> Result<Self, InputError> {
        let failed = |source| InputError::Open { path: path.to_owned(), source };
        let may_wait = || {
            let kind = std::fs::metadata(path).ok().map(|found| found.file_type());
            is_stdin(path) || kind.is_some_and(|kind| kind.is_fifo() || kind.is_char_device())
        };
        let mut regular = None;
        let raw: Box<dyn Read + Send> = if let Some(stop) = options.stop.as_ref().filter(|_| may_wait()) {
            // A read that blocks forever would also block a stop.
            Box::new(FifoReader::new(path.to_owned(), EndCondition { stop: Arc::clone(stop), until_now: false }))
        } else if is_stdin(path) {
            Box::new(io::stdin())
        } else {
            let file = Arc::new(File::open(path).map_err(failed)?);
            let found = file.metadata().map_err(failed)?;
            if found.is_dir() {
                return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
            }
            regular = found.is_file().then(|| Arc::clone(&file));
            Box::new(file)
        };
        let source = Self::new(raw, options).map_err(|source| InputError::Read {
            path: path.to_owned(),
            offset_bytes: 0,
            source,
            advice: "check the file and its disk",
        })?;
        Ok(Self { file: regular, ..source })
    }

    /// Reads from any stream.
    pub(super) fn new(raw: Box<dyn Read + Send>, options: &SourceOptions) -> io::Result<Self> {
        let tally = Arc::new(Mutex::new(SourceTally { length_bytes: 0, digester: Digester::new(options) }));
        let mut tallied =
            DigestReader { inner: raw, tally: Arc::clone(&tally), bytes_read: Arc::clone(&options.bytes_read) };
        let mut head = Vec::with_capacity(ZSTD_MAGIC.len());
        tallied.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut head)?;
        let is_zstd = head == ZSTD_MAGIC || head.get(1..) == Some(&ZSTD_SKIPPABLE_MAGIC) && head[0] & 0xF0 == 0x50;
        let is_gzip = head.starts_with(&GZIP_MAGIC);
        let whole = io::Cursor::new(head).chain(tallied);
        let unpacked_tally = Arc::clone(&tally);
        let max_bytes = options.max_decompressed_bytes;
        let unpacked = |inner| -> Box<dyn Read + Send> {
            Box::new(LimitedReader { inner, tally: unpacked_tally, length_bytes: 0, max_bytes })
        };
        let (reader, compression) = if is_zstd {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(io::BufReader::with_capacity(READ_BYTES, whole))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            (unpacked(Box::new(decoder) as Box<dyn Read + Send>), "zstd")
        } else if is_gzip {
            let buffered = io::BufReader::with_capacity(READ_BYTES, whole);
            (unpacked(Box::new(GzipMembers::Behind(buffered))), "gzip")
        } else {
            (Box::new(whole) as Box<dyn Read + Send>, "plain")
        };
        Ok(Self { reader, tally, compression, file: None, bytes_read: Arc::clone(&options.bytes_read) })
    }

    /// Length and digests of the bytes read so far.
    pub(super) fn digests(&self) -> Digests {
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.digester.digests(tally.length_bytes)
    }

    /// The file, if it is regular and not compressed, so that it can be read at several positions
    /// at once.
    pub(super) fn plain_file(&self) -> Option<&Arc<File>> {
        self.file.as_ref().filter(|_| self.compression == "plain")
    }

    /// Stops updating the digests and returns empty ones; bytes are still counted.
    pub(super) fn leave_digests(&mut self, options: &SourceOptions) -> Digester {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).digester = Digester::default();
        Digester::new(options)
    }

    /// Skips bytes of a plain file that workers have read.
    pub(super) fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let Some(mut file) = self.file.as_deref() else { return Ok(()) };
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.length_bytes += bytes;
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
        file.seek(SeekFrom::Start(tally.length_bytes)).map(drop)
    }
}

impl Read for InputSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn read(bytes: Vec<u8>) -> (io::Result<Vec<u8>>, Digests) {
        let options = SourceOptions { xxh3: true, sha256: true, ..SourceOptions::default() };
        let mut source = InputSource::new(Box::new(io::Cursor::new(bytes)), &options).unwrap();
        let mut all = Vec::new();
        let result = source.read_to_end(&mut all).map(|_| all);
        (result, source.digests())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn compression_is_detected_by_magic_and_members_are_concatenated() {
        let (first, second) = ([7u8].repeat(300_000), [9u8].repeat(10));
        let both = [first.clone(), second.clone()].concat();
        assert_eq!(read(both.clone()).0.unwrap(), both);
        assert_eq!(read([gzip(&first), gzip(&second)].concat()).0.unwrap(), both);
        let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
        assert_eq!(read([zstd(&first), zstd(&second)].concat()).0.unwrap(), both);
        let skippable = [0x50, 0x2A, 0x4D, 0x18, 2, 0, 0, 0, 1, 2];
        assert_eq!(read([&skippable[..], &zstd(&both)].concat()).0.unwrap(), both);
        assert_eq!(read(vec![1]).0.unwrap(), [1]);
        assert_eq!(read(Vec::new()).0.unwrap(), Vec::<u8>::new());
    }

    /// Files on tapes are padded to whole blocks; a member may follow.
    #[test]
    fn zeros_behind_a_gzip_member_are_padding() {
        let (first, second) = ([7u8].repeat(300_000), [9u8].repeat(10));
        for zeros in [1, 511, 2 * READ_BYTES] {
            let padding = vec![0; zeros];
            let (found, digests) = read([gzip(&first), padding.clone()].concat());
            assert_eq!(found.unwrap(), first, "{zeros}");
            // The digests cover the padding.
            assert_eq!(digests.length_bytes, (gzip(&first).len() + zeros) as u64);
            let (found, _) = read([gzip(&first), padding.clone(), gzip(&second), padding].concat());
            assert_eq!(found.unwrap(), [first.clone(), second.clone()].concat(), "{zeros}");
        }
        // Anything else is an error.
        let garbage = read([gzip(&second), vec![0, 0, 1]].concat()).0;
        assert!(garbage.is_err(), "{garbage:?}");
    }

    /// A frame of a few KiB that would decompress to 16 GiB.
    #[test]
    fn a_too_high_compression_ratio_ends_the_input() {
        let zeroes = [0].repeat(1 << 20);
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        (0..128).for_each(|_| encoder.write_all(&zeroes).unwrap());
        let bomb = encoder.finish().unwrap().repeat(128);
        let mut source = InputSource::new(Box::new(io::Cursor::new(bomb.clone())), &SourceOptions::default()).unwrap();
        let mut buffer = vec![0; 1 << 20];
        let mut length_bytes = 0;
        let error = loop {
            match source.read(&mut buffer) {
                Ok(count) => length_bytes += count as u64,
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("decompress it"), "{error}");
        // One read may exceed the limit, and compressed bytes that are read ahead count.
        let most = MIN_DECOMPRESSED_LIMIT.max(bomb.len().min(READ_BYTES + 4) as u64 * MAX_EXPANSION) + (1 << 20);
        assert!(length_bytes <= most, "{length_bytes} of {} KiB", bomb.len() / 1024);
        // The highest ratio of a file with some content.
        let plain: Vec<u8> =
            (0..1_000_000_u32).flat_map(|number| [number.to_le_bytes().as_slice(), &[0; 96]].concat()).collect();
        assert!(read(gzip(&plain)).0.unwrap() == plain);
    }

    #[test]
    fn at_most_max_decompressed_bytes_are_read() {
        let plain: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let length = plain.len();
        for packed in [gzip(&plain), zstd::encode_all(&plain[..], 1).unwrap()] {
            for (most, whole) in [(0, false), (1, false), (length - 1, false), (length, true), (length + 1, true)] {
                let options = SourceOptions { max_decompressed_bytes: Some(most as u64), ..SourceOptions::default() };
                let mut source = InputSource::new(Box::new(io::Cursor::new(packed.clone())), &options).unwrap();
                let mut read = Vec::new();
                let ended = source.read_to_end(&mut read);
                assert!(read == plain[..most.min(length)], "{most}: {}", read.len());
                let limit = ended.as_ref().err().and_then(ReadLimit::of);
                assert_eq!(limit.is_none(), whole, "{most}: {ended:?}");
                assert!(limit.is_none_or(|limit| limit.to_string().ends_with(&format!("--max-decompressed {most}"))));
            }
        }
        // A plain file has no such limit.
        let options = SourceOptions { max_decompressed_bytes: Some(1), ..SourceOptions::default() };
        let mut source = InputSource::new(Box::new(io::Cursor::new(plain.clone())), &options).unwrap();
        let mut read = Vec::new();
        source.read_to_end(&mut read).unwrap();
        assert!(read == plain);
    }

    #[test]
    fn digests_cover_the_bytes_on_disk() {
        // SHA-256 of "abc" (FIPS 180-2, B.1); XXH3-128 of "abc" (xxhsum -H2 of xxHash 0.8).
        let (_, digests) = read(b"abc".to_vec());
        assert_eq!(digests.length_bytes, 3);
        assert_eq!(digests.sha256.unwrap(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(digests.xxh3_128, "06b05ab6733a618578af5f94892f3950");
        let packed = gzip(&[1; 1000]);
        assert_eq!(read(packed.clone()).1.length_bytes, packed.len() as u64);
    }

    #[test]
    fn truncated_streams_report_an_unexpected_end() {
        let plain = [1].repeat(100_000);
        for packed in [gzip(&plain), zstd::encode_all(&plain[..], 1).unwrap()] {
            let (result, _) = read(packed[..packed.len() / 2].to_vec());
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
