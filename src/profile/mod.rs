//! The profile on disk: a folder `NAME.ibp/`, the one file format between an analysis and everything that shows it.
//!
//! | file | content |
//! |---|---|
//! | `profile.json` | format version, inputs with digests, coverage, notes, endpoints, ranks |
//! | `connections.parquet` | one row per directed connection, sorted by source, destination, queue pair |
//! | `timeline.parquet` | sums per bin and connection (`connection` is the row number in the table above), sorted by time; `repeated_*` is what of them was sent again |
//! | `collectives.parquet` | messages of collective operations per connection and operation |
//! | `streams.parquet` | MPI messages per connection, context, sender's rank in the communicator, tag and operation; without context and tag what has more tags than are kept apart. Profiles written before there was this table lack it |
//! | `latencies.parquet` | times between packets per connection, interval, verb and size class: extremes, sums, quantiles |
//! | `latency_buckets.parquet` | their histograms: `latency` is the row number in the table above |
//! | `sizes.parquet` | sizes of packets (on the wire), transport messages (payload) and MPI messages per connection and power of two, each thing once |
//! | `latency_timeline.parquet` | those that end with an answer over time, in coarse buckets; `latency` as above, sorted by time |
//! | `health.parquet` | what went wrong per connection, and what the capture missed of it; columns as in [`Health`](crate::model::Health) |
//! | `cm.parquet` | connection management messages, sorted by time |
//! | `parts.bin` | what `merge` needs, where it was asked for: the inputs as they ended, before anything was decided |
//!
//! Units stand in the column names. The same captures and options give the same bytes on any machine with any number of
//! threads. A profile is written beside its place and renamed, so that it is whole or not there.
//!
//! **Version**: whoever changes the meaning, name or type of a field or column raises [`VERSION`].

mod claims;
mod dataset;
mod document;
mod latencies;
mod messages;
mod sizes;
mod streams;
mod tables;

pub use dataset::DatasetWriter;
pub use messages::MessageWriter;

use crate::model::Profile;
use crate::scratch::{self, Scratch};
use document::{Document, TableDigest};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Version of the format that this program writes and reads.
pub const VERSION: u32 = 3;

const DOCUMENT: &str = "profile.json";
const CONNECTIONS: &str = "connections.parquet";
const TIMELINE: &str = "timeline.parquet";
const COLLECTIVES: &str = "collectives.parquet";
const LATENCIES: &str = "latencies.parquet";
const LATENCY_BUCKETS: &str = "latency_buckets.parquet";
const SIZES: &str = "sizes.parquet";
const STREAMS: &str = "streams.parquet";
const LATENCY_TIMELINE: &str = "latency_timeline.parquet";
const HEALTH: &str = "health.parquet";
const CM: &str = "cm.parquet";
const PARTS: &str = "parts.bin";

/// Longest document that is written and read: a thousand times that of a job of a thousand ranks.
const MOST_DOCUMENT_BYTES: u64 = 1 << 30;
/// Longest other file of a profile that is written and read. Each is in memory as a whole then.
const MOST_FILE_BYTES: u64 = 1 << 34;

/// Everything that a profile may hold.
const FILES: [&str; 12] = [
    DOCUMENT,
    CONNECTIONS,
    TIMELINE,
    COLLECTIVES,
    STREAMS,
    LATENCIES,
    LATENCY_BUCKETS,
    LATENCY_TIMELINE,
    SIZES,
    HEALTH,
    CM,
    PARTS,
];

/// A profile that could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file system refused.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Something else is in the way.
    #[error("{}: exists and {why}; choose another name with -o or remove it", path.display())]
    InTheWay {
        /// The place.
        path: PathBuf,
        /// What it is.
        why: String,
    },
    /// The command reads what stands there.
    #[error("{}: cannot be replaced: the command reads {}; choose another name with -o", path.display(), input.display())]
    IsRead {
        /// The place.
        path: PathBuf,
        /// The input.
        input: PathBuf,
    },
    /// Something else stands where a file of the profile should be.
    #[error("{}: not a regular file; analyse the captures again", path.display())]
    NoFile {
        /// The place.
        path: PathBuf,
    },
    /// A file of the profile is longer than those that are read.
    #[error("{}: {length_bytes} bytes long, and at most {most_bytes} are read; analyse the captures again, fewer at a time", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        length_bytes: u64,
        /// Longest file that is read.
        most_bytes: u64,
    },
    /// The threads that pack and unpack tables cannot be started.
    #[error("the threads for tables cannot be started; raise the limit on processes (`ulimit -u`)")]
    Threads,
    /// The place has no name of its own.
    #[error("{}: a profile needs a name, for example job.ibp", path.display())]
    Nameless {
        /// The place.
        path: PathBuf,
    },
    /// It is not a profile.
    #[error("{}: not a profile: {source}; analyse the captures again", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// It was written by another version.
    #[error(
        "{}: profile version {found}, this ibscope reads version {VERSION}; use the ibscope that wrote it ({writer}) or \
         analyse the captures again", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version found.
        found: u32,
        /// Program that wrote it.
        writer: String,
    },
    /// A table is damaged.
    #[error("{}: table cannot be {action}: {source}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// "read" or "written".
        action: &'static str,
        /// What is wrong.
        source: polars::error::PolarsError,
    },
    /// A table is not the one that was written.
    #[error("{}: damaged: it is not the table that was written with this profile; analyse the captures again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// One of its files cannot be read.
    #[error("{}: cannot be read: {source}; if it is gone, analyse the captures again", path.display())]
    Lacks {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It keeps nothing to merge it by.
    #[error("{}: keeps nothing that it could be merged by; analyse its captures again with `analyze --partial`", path.display())]
    NoParts {
        /// The profile.
        path: PathBuf,
    },
    /// A value in a table cannot be.
    #[error("{}: row {row}: {what}; the profile is damaged: analyse the captures again", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Row, from 0.
        row: usize,
        /// What is wrong.
        what: String,
    },
}

/// A place for a profile, made before the work starts so that a bad path fails at once.
#[derive(Debug)]
pub struct Writer {
    place: PathBuf,
    /// What captures hold is not for everybody's eyes, and neither is what is made of them: a scratch folder is its owner's alone.
    scratch: Scratch,
}

impl Writer {
    /// Prepares `place`. A profile that is there is replaced when the new one is whole, unless it holds one of `inputs`, which the command reads.
    pub fn create(place: &Path, inputs: &[&Path]) -> Result<Self, ProfileError> {
        if place.file_name().is_none() {
            return Err(ProfileError::Nameless { path: place.to_owned() });
        }
        tables::start_threads()?;
        let resolved = scratch::resolve(place).map_err(io_error(place, "cannot be written"))?;
        if resolved.exists() {
            in_the_way(&resolved)?;
        }
        if let Some(input) = scratch::read_within(&resolved, inputs) {
            return Err(ProfileError::IsRead { path: place.to_owned(), input: input.to_owned() });
        }
        let scratch = Scratch::folder(&resolved).map_err(io_error(place, "cannot be created"))?;
        Ok(Self { place: resolved, scratch })
    }

    /// Writes the profile and puts it in its place.
    pub fn finish(self, profile: &Profile) -> Result<(), ProfileError> {
        let mut tables = Tables { folder: self.scratch.path(), digests: BTreeMap::new() };
        tables.write(CONNECTIONS, &profile.connections, tables::connections)?;
        tables.write(TIMELINE, &profile.timeline, tables::timeline)?;
        tables.write(COLLECTIVES, &profile.collectives, tables::collectives)?;
        tables.write_groups(LATENCIES, tables::groups(profile.latencies.iter()), latencies::table)?;
        let buckets = latencies::bucket_rows(profile.latencies.iter());
        tables.write_groups(LATENCY_BUCKETS, tables::groups(buckets), latencies::buckets)?;
        tables.write_groups(SIZES, tables::groups(profile.sizes.iter()), sizes::table)?;
        tables.write(LATENCY_TIMELINE, &profile.latency_timeline, latencies::timeline)?;
        tables.write_groups(HEALTH, tables::groups(profile.health.iter()), tables::health)?;
        tables.write(CM, &profile.cm, tables::cm)?;
        if let Some(streams) = &profile.streams {
            tables.write(STREAMS, streams, streams::table)?;
        }
        if let Some(parts) = &profile.parts {
            tables.put(PARTS, parts)?;
        }
        let path = self.scratch.path().join(DOCUMENT);
        let mut text = serde_json::to_vec_pretty(&Document::new(profile, tables.digests))
            .map_err(|source| ProfileError::Document { path: path.clone(), source })?;
        text.push(b'\n');
        put(&path, &text, MOST_DOCUMENT_BYTES)?;
        self.put_in_place()
    }

    /// All files are on the disk before the profile has its name, and the name is before the command ends.
    fn put_in_place(self) -> Result<(), ProfileError> {
        let Self { place, scratch: written } = self;
        let replaces = place.exists();
        if replaces {
            in_the_way(&place)?;
            take_over_permissions(&place, written.path())?;
        }
        sync(written.path())?;
        // The old profile is put aside first, so that there is a whole one at any time.
        let old = written.sibling(&place, "old");
        written.commit(|written| {
            if replaces {
                fs::rename(&place, &old).map_err(io_error(&place, "cannot be replaced"))?;
            }
            if let Err(error) = fs::rename(written, &place) {
                if replaces {
                    // Back to where it was; the error to tell is the first one.
                    let _ = fs::rename(&old, &place);
                }
                return Err(io_error(&place, "cannot be put in place")(error));
            }
            sync(scratch::folder_of(&place))?;
            if replaces {
                fs::remove_dir_all(&old).map_err(io_error(&old, "cannot be removed"))?;
            }
            Ok(())
        })
    }
}

/// Writes a file of a profile to the disk.
fn put(path: &Path, bytes: &[u8], most_bytes: u64) -> Result<(), ProfileError> {
    let length_bytes = bytes.len() as u64;
    if length_bytes > most_bytes {
        return Err(ProfileError::TooLong { path: path.to_owned(), length_bytes, most_bytes });
    }
    let written = File::create_new(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(io_error(path, "cannot be written"))
}

/// Waits until the names in a folder are on the disk, where that can be waited for: not all file systems sync folders, and one that may be written may not be
/// opened.
fn sync(folder: &Path) -> Result<(), ProfileError> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if !matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported) => {
            Err(io_error(folder, "cannot be written to the disk")(error))
        }
        _ => Ok(()),
    }
}

/// The tables of a profile as they are written.
struct Tables<'a> {
    folder: &'a Path,
    digests: BTreeMap<String, TableDigest>,
}

impl Tables<'_> {
    fn write<T>(&mut self, name: &str, rows: &[T], table: impl Fn(&[T]) -> tables::Frame) -> Result<(), ProfileError> {
        self.write_groups(name, rows.chunks(tables::GROUP), table)
    }

    fn write_groups<T>(
        &mut self,
        name: &str,
        groups: impl Iterator<Item = impl AsRef<[T]>>,
        table: impl Fn(&[T]) -> tables::Frame,
    ) -> Result<(), ProfileError> {
        let path = self.folder.join(name);
        self.put(name, &tables::bytes(&path, groups, table)?)
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), ProfileError> {
        put(&self.folder.join(name), bytes, MOST_FILE_BYTES)?;
        self.digests.insert(name.to_owned(), TableDigest::of(bytes));
        Ok(())
    }
}

/// Whoever may read the profile that is replaced may read what replaces it.
fn take_over_permissions(old: &Path, new: &Path) -> Result<(), ProfileError> {
    let found = fs::metadata(old).map_err(io_error(old, "cannot be read"))?;
    let mode = found.permissions().mode() & 0o777;
    let set = fs::set_permissions(new, fs::Permissions::from_mode(mode));
    set.map_err(io_error(new, "its permissions cannot be set"))
}

/// Refuses to replace anything but a profile with nothing else in its folder.
fn in_the_way(place: &Path) -> Result<(), ProfileError> {
    let refuse = |why: String| Err(ProfileError::InTheWay { path: place.to_owned(), why });
    if !is_profile(place) {
        return refuse(format!("is no profile (it has no {DOCUMENT} of ibscope's)"));
    }
    for entry in fs::read_dir(place).map_err(io_error(place, "cannot be read"))? {
        let entry = entry.map_err(io_error(place, "cannot be read"))?;
        let name = entry.file_name();
        if !FILES.iter().any(|own| name == **own) {
            return refuse(format!("holds {} beside the profile", name.display()));
        }
        // A folder or a link of such a name is not of ibscope's making, and would be removed with all that it holds.
        if !entry.file_type().map_err(io_error(place, "cannot be read"))?.is_file() {
            return refuse(format!("holds {}, which is not a regular file", name.display()));
        }
    }
    Ok(())
}

/// True where `path` is a profile's folder.
#[must_use]
pub fn is_profile(path: &Path) -> bool {
    let head = |text: Vec<u8>| serde_json::from_slice::<document::Head>(&text).ok();
    let head = open(&path.join(DOCUMENT)).and_then(|file| file.contents(MOST_DOCUMENT_BYTES)).ok().and_then(head);
    head.is_some_and(|head| head.format == document::FORMAT)
}

/// True for a folder that has a document, whether that can be read or not.
#[must_use]
pub fn was_profile(path: &Path) -> bool {
    path.join(DOCUMENT).symlink_metadata().is_ok()
}

/// Reads what a profile keeps for a merge.
pub fn read_parts(place: &Path) -> Result<Vec<u8>, ProfileError> {
    let (_, digests) = read_document(place)?;
    if !digests.contains_key(PARTS) {
        return Err(ProfileError::NoParts { path: place.to_owned() });
    }
    read_file(place, PARTS, &digests).map(|(_, bytes)| bytes)
}

/// What the document of a profile says, and the digests of the files beside it.
fn read_document(place: &Path) -> Result<(Profile, BTreeMap<String, TableDigest>), ProfileError> {
    let path = place.join(DOCUMENT);
    let text = open(&path)?.contents(MOST_DOCUMENT_BYTES)?;
    let document = |source| ProfileError::Document { path: path.clone(), source };
    // The version is looked at first: a later version may hold fields of other types.
    let head: document::Head = serde_json::from_slice(&text).map_err(document)?;
    if head.version != VERSION {
        return Err(ProfileError::Version { path, found: head.version, writer: head.ibscope });
    }
    Ok(serde_json::from_slice::<Document>(&text).map_err(document)?.into_profile())
}

/// A file of a profile, if it is the one that was written.
fn read_file(
    place: &Path,
    name: &str,
    digests: &BTreeMap<String, TableDigest>,
) -> Result<(PathBuf, Vec<u8>), ProfileError> {
    let path = place.join(name);
    let file = open(&path)?;
    let Some(digest) = digests.get(name).filter(|digest| digest.length_bytes == file.length_bytes) else {
        return Err(ProfileError::Damaged { path });
    };
    let bytes = file.contents(MOST_FILE_BYTES)?;
    // Damaged Parquet can take its reader down, so it is not shown any.
    if *digest != TableDigest::of(&bytes) {
        return Err(ProfileError::Damaged { path });
    }
    Ok((path, bytes))
}

/// A file of a profile that can be read to its end.
struct OpenFile {
    path: PathBuf,
    file: File,
    length_bytes: u64,
}

/// Opens a file of a profile. A profile may come from anybody, so kind and length are looked at before anything is opened or read: a FIFO has no writer, a
/// device no end, and a sparse file may be longer than the memory.
fn open(path: &Path) -> Result<OpenFile, ProfileError> {
    let path = path.to_owned();
    let found = match fs::metadata(&path) {
        Ok(found) if !found.is_file() => return Err(ProfileError::NoFile { path }),
        found => found.and_then(|found| Ok((File::open(&path)?, found.len()))),
    };
    match found {
        Ok((file, length_bytes)) => Ok(OpenFile { path, file, length_bytes }),
        Err(source) => Err(ProfileError::Lacks { path, source }),
    }
}

impl OpenFile {
    fn contents(self, most_bytes: u64) -> Result<Vec<u8>, ProfileError> {
        let Self { path, file, length_bytes } = self;
        if length_bytes > most_bytes {
            return Err(ProfileError::TooLong { path, length_bytes, most_bytes });
        }
        let mut bytes = Vec::new();
        let reserved = bytes.try_reserve_exact(length_bytes as usize).map_err(io::Error::from);
        // No more than was there when it was opened.
        match reserved.and_then(|()| file.take(length_bytes).read_to_end(&mut bytes)) {
            Ok(_) => Ok(bytes),
            Err(source) => Err(ProfileError::Lacks { path, source }),
        }
    }
}

/// Reads a profile.
pub fn read(place: &Path) -> Result<Profile, ProfileError> {
    let (mut profile, digests) = read_document(place)?;
    let table = |name: &str| read_file(place, name, &digests);
    let (path, bytes) = table(CONNECTIONS)?;
    profile.connections = tables::read_connections(&path, bytes)?;
    let (path, bytes) = table(TIMELINE)?;
    profile.timeline = tables::read_timeline(&path, bytes, profile.connections.len())?;
    let (path, bytes) = table(COLLECTIVES)?;
    profile.collectives = tables::read_collectives(&path, bytes, profile.connections.len())?;
    let (latencies, buckets) = (table(LATENCIES)?, table(LATENCY_BUCKETS)?);
    profile.latencies = latencies::read(latencies, buckets, profile.connections.len())?;
    let (path, bytes) = table(SIZES)?;
    profile.sizes = sizes::read(&path, bytes, profile.connections.len())?;
    let (path, bytes) = table(LATENCY_TIMELINE)?;
    profile.latency_timeline = latencies::read_timeline(&path, bytes, profile.latencies.len())?;
    let (path, bytes) = table(HEALTH)?;
    profile.health = tables::read_health(&path, bytes, profile.connections.len())?;
    if digests.contains_key(STREAMS) {
        let (path, bytes) = table(STREAMS)?;
        profile.streams = Some(streams::read(&path, bytes, profile.connections.len())?);
    }
    let (path, bytes) = table(CM)?;
    profile.cm = tables::read_cm(&path, bytes)?;
    Ok(profile)
}

fn io_error(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> ProfileError {
    let path = path.to_owned();
    move |source| ProfileError::Io { path, action, source }
}
