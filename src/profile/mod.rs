//! The profile on disk: a folder `NAME.ibp/`, the only format between an analysis and its outputs.
//!
//! - `profile.json`: format version, inputs with digests, coverage, notes, endpoints, ranks.
//! - `connections.parquet`: one row per directed connection, sorted by source, destination, queue
//!   pair.
//! - `paths.parquet`: packets per connection and combination of SL, VL, P_Key, DSCP, ECN, PCP and UDP
//!   source port. Missing in profiles from before the table existed.
//! - `timeline.parquet`: sums per bin and connection, sorted by time, with columns for the
//!   retransmissions among them; `connection` is a row number of the table above.
//! - `senders.parquet`: the same sums by sender, job and class in narrower bins; missing if the bins of
//!   the timeline are as narrow.
//! - `collectives.parquet`: messages of collective operations per connection and operation.
//! - `streams.parquet`: MPI messages per connection, context, sender's rank in the communicator,
//!   tag and operation; messages beyond the bound on tags have no context and tag. Missing in
//!   profiles from before the table existed.
//! - `latencies.parquet`: latencies per connection, interval, verb and size class: extremes, sums,
//!   quantiles.
//! - `latency_buckets.parquet`: their histograms; `latency` is a row number of the table above.
//! - `latency_timeline.parquet`: time series of the latencies that end with a response, in coarse
//!   buckets, sorted by time; `latency` as above.
//! - `sizes.parquet`: packets (on the wire), transport messages (payload) and MPI messages per
//!   connection and power of two in size, each counted once.
//! - `health.parquet`: faults per connection, and the packets that the capture missed; columns as
//!   in [`Health`](crate::model::Health).
//! - `cm.parquet`: connection management messages, sorted by time.
//! - `parts.bin`: data for `merge`, if requested: the inputs at their end, before any decision.
//!
//! Column names contain the unit. Invariants: the same captures and options give the same bytes on
//! any machine with any number of threads; and a profile exists completely or not at all, because
//! it is written to a scratch folder and renamed.
//!
//! **Version**: a change to the meaning, name or type of a field or column increments [`VERSION`].

mod connections;
mod dataset;
mod decode;
mod document;
mod encode;
mod latencies;
mod messages;
mod parquet_check;
mod path_columns;
mod paths;
mod sizes;
mod storage;
mod streams;
mod tables;
mod threads;

pub use dataset::DatasetWriter;
pub use messages::MessageWriter;

use crate::model::column::TableDescription;
use crate::model::table::Table;
use crate::model::{ConnectionShare, Profile};
use crate::scratch::{self, Scratch};
use document::{ProfileDocument, TableDigest};
use latencies::HistogramRow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Format version that this program writes and reads.
pub const VERSION: u32 = 4;

const DOCUMENT: &str = "profile.json";
const CONNECTIONS: &str = "connections.parquet";
const TIMELINE: &str = "timeline.parquet";
const SENDERS: &str = "senders.parquet";
const COLLECTIVES: &str = "collectives.parquet";
const LATENCIES: &str = "latencies.parquet";
const LATENCY_BUCKETS: &str = "latency_buckets.parquet";
const SIZES: &str = "sizes.parquet";
const STREAMS: &str = "streams.parquet";
const STORAGE: &str = "storage.parquet";
const PATHS: &str = "paths.parquet";
const LATENCY_TIMELINE: &str = "latency_timeline.parquet";
const HEALTH: &str = "health.parquet";
const CM: &str = "cm.parquet";
const PARTS: &str = "parts.bin";

/// Maximum length of the document: a thousand times that of a job of a thousand ranks.
const MAX_DOCUMENT_BYTES: u64 = 1 << 30;
/// Maximum length of every other file of a profile, each of which is read into memory as a whole.
const MAX_FILE_BYTES: u64 = 1 << 34;

/// Names of all files that a profile may have.
const FILES: [&str; 15] = [
    DOCUMENT,
    CONNECTIONS,
    TIMELINE,
    SENDERS,
    COLLECTIVES,
    STREAMS,
    STORAGE,
    PATHS,
    LATENCIES,
    LATENCY_BUCKETS,
    LATENCY_TIMELINE,
    SIZES,
    HEALTH,
    CM,
    PARTS,
];

/// Failure to write or read a profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// An operation of the file system failed.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The failed operation.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Another file or folder exists at the place.
    #[error("{}: exists and {why}; choose another name with -o or remove it", path.display())]
    InTheWay {
        /// The place.
        path: PathBuf,
        /// Its kind.
        why: String,
    },
    /// The place contains an input of the command.
    #[error("{}: cannot be replaced: the command reads {}; choose another name with -o", path.display(), input.display())]
    InputInTheWay {
        /// The place.
        path: PathBuf,
        /// The input.
        input: PathBuf,
    },
    /// A file of the profile is not a regular file.
    #[error("{}: not a regular file; analyze the captures again", path.display())]
    NotARegularFile {
        /// The place.
        path: PathBuf,
    },
    /// A file of the profile exceeds the maximum length.
    #[error("{}: {length_bytes} bytes long, the maximum is {most_bytes}; analyze the captures again, fewer at a time", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        length_bytes: u64,
        /// The maximum.
        most_bytes: u64,
    },
    /// The threads that compress and decompress tables cannot be started.
    #[error("cannot start the threads for tables; raise the limit on processes (`ulimit -u`)")]
    Threads,
    /// The path has no file name.
    #[error("{}: a profile needs a name, for example job.ibp", path.display())]
    Nameless {
        /// The place.
        path: PathBuf,
    },
    /// The document is malformed.
    #[error("{}: not a profile: {source}; analyze the captures again", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
    /// The profile has another format version.
    #[error(
        "{}: profile version {found}, this ibscope reads version {VERSION}; use the ibscope that wrote it ({writer}) or \
         analyze the captures again", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version of the profile.
        found: u32,
        /// Program that wrote the profile.
        writer: String,
    },
    /// A table cannot be read or written.
    #[error("{}: table cannot be {action}: {source}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// "read" or "written".
        action: &'static str,
        /// The reason.
        source: polars::error::PolarsError,
    },
    /// A file differs from its digest in the document.
    #[error("{}: damaged: the table is not the one that was written with this profile; analyze the captures again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A file of the profile cannot be read.
    #[error("{}: cannot be read: {source}; if it is gone, analyze the captures again", path.display())]
    MissingFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The profile has no data for a merge.
    #[error("{}: has no data for a merge; analyze its captures again with `analyze --partial`", path.display())]
    NoParts {
        /// The profile.
        path: PathBuf,
    },
    /// The profile has a share of the connections only.
    #[error(
        "{}: it has share {share} of the connections of its capture; merge all shares with `ibscope merge`, and read the result",
        path.display()
    )]
    Share {
        /// The profile.
        path: PathBuf,
        /// The share.
        share: ConnectionShare,
    },
    /// A table contains an invalid value.
    #[error("{}: row {row}: {what}; the profile is damaged: analyze the captures again", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Row, from 0.
        row: usize,
        /// The reason.
        what: String,
    },
}

/// The columns of every table of a profile.
#[must_use]
pub fn column_tables() -> Vec<TableDescription> {
    vec![
        connections::table().describe(),
        paths::table().describe(),
        tables::timeline().describe(),
        tables::senders().describe(),
        tables::collectives().describe(),
        streams::table().describe(),
        storage::table().describe(),
        latencies::table().describe(),
        latencies::buckets().describe(),
        latencies::timeline().describe(),
        sizes::table().describe(),
        tables::health().describe(),
        tables::cm().describe(),
    ]
}

/// Writer of a profile; created before the work starts, so that a bad path fails at once.
#[derive(Debug)]
pub struct ProfileWriter {
    place: PathBuf,
    /// A scratch folder that only its owner may read, because captures may be confidential.
    scratch: Scratch,
}

impl ProfileWriter {
    /// Prepares `place`. [`ProfileWriter::finish`] replaces an existing profile there. Fails if it
    /// contains one of `inputs`, which the command reads.
    pub fn create(place: &Path, inputs: &[&Path]) -> Result<Self, ProfileError> {
        if place.file_name().is_none() {
            return Err(ProfileError::Nameless { path: place.to_owned() });
        }
        threads::start()?;
        let resolved = scratch::resolve(place).map_err(io_error(place, "cannot be written"))?;
        if resolved.exists() {
            check_replaceable(&resolved)?;
        }
        if let Some(input) = scratch::read_within(&resolved, inputs) {
            return Err(ProfileError::InputInTheWay { path: place.to_owned(), input: input.to_owned() });
        }
        let scratch = Scratch::folder(&resolved).map_err(io_error(place, "cannot be created"))?;
        Ok(Self { place: resolved, scratch })
    }

    /// Writes the profile and puts it in place.
    pub fn finish(self, profile: &Profile) -> Result<(), ProfileError> {
        let digests = write_tables(profile, self.scratch.path())?;
        let path = self.scratch.path().join(DOCUMENT);
        let mut text = serde_json::to_vec_pretty(&ProfileDocument::new(profile, digests))
            .map_err(|source| ProfileError::Document { path: path.clone(), source })?;
        text.push(b'\n');
        put(&path, &text, MAX_DOCUMENT_BYTES)?;
        self.put_in_place()
    }

    /// Syncs all files before the profile gets its name, and the name before the command ends.
    fn put_in_place(self) -> Result<(), ProfileError> {
        let Self { place, scratch: written } = self;
        let replaces = place.exists();
        if replaces {
            check_replaceable(&place)?;
            take_over_permissions(&place, written.path())?;
        }
        sync(written.path())?;
        // The old profile is only renamed at first, so that a complete one exists at all times.
        let old = written.sibling(&place, "old");
        written.commit(|written| {
            if replaces {
                fs::rename(&place, &old).map_err(io_error(&place, "cannot be replaced"))?;
            }
            if let Err(error) = fs::rename(written, &place) {
                if replaces {
                    // Restore the old profile; the first error is the one to report.
                    let _ = fs::rename(&old, &place);
                }
                return Err(io_error(&place, "cannot be renamed to its final name")(error));
            }
            sync(scratch::folder_of(&place))?;
            if replaces {
                fs::remove_dir_all(&old).map_err(io_error(&old, "cannot be removed"))?;
            }
            Ok(())
        })
    }
}

/// Writes a file and syncs it to disk.
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

/// Syncs the names in a folder to disk. Some file systems cannot sync folders, and a folder that
/// may be written may not be readable; both count as success.
fn sync(folder: &Path) -> Result<(), ProfileError> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if !matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported) => {
            Err(io_error(folder, "cannot be written to the disk")(error))
        }
        _ => Ok(()),
    }
}

/// A file of a profile: its name and its digest.
type WrittenFile = (String, TableDigest);

/// Writes all files of a profile but the document, several at a time.
fn write_tables(profile: &Profile, folder: &Path) -> Result<BTreeMap<String, TableDigest>, ProfileError> {
    let to = TableFolder(folder);
    let mut writes: Vec<threads::Task<'_, Result<WrittenFile, ProfileError>>> = vec![
        // The largest first, so that no thread is left alone with them.
        Box::new(|| {
            to.write_groups(&latencies::table(), encode::groups(profile.latencies.iter().map(HistogramRow::from)))
        }),
        Box::new(|| to.write(&connections::table(), &profile.connections)),
        Box::new(|| to.write_groups(&tables::health(), encode::groups(profile.health.iter()))),
        Box::new(|| to.write_groups(&sizes::table(), encode::groups(profile.sizes.iter()))),
        Box::new(|| to.write_groups(&paths::table(), encode::groups(paths::rows(&profile.connections)))),
        Box::new(|| {
            to.write_groups(&latencies::buckets(), encode::groups(latencies::bucket_rows(profile.latencies.iter())))
        }),
        Box::new(|| to.write(&tables::timeline(), &profile.timeline)),
        Box::new(|| to.write(&latencies::timeline(), &profile.latency_timeline)),
        Box::new(|| to.write(&tables::collectives(), &profile.collectives)),
        Box::new(|| to.write(&tables::cm(), &profile.cm)),
    ];
    if let Some(streams) = &profile.streams {
        writes.push(Box::new(|| to.write(&streams::table(), streams)));
    }
    if let Some(storage) = &profile.storage {
        writes.push(Box::new(|| to.write(&storage::table(), storage)));
    }
    if profile.sender_bin_ns > 0 {
        writes.push(Box::new(|| to.write(&tables::senders(), &profile.senders)));
    }
    if let Some(parts) = &profile.parts {
        writes.push(Box::new(|| to.put(PARTS, parts)));
    }
    threads::in_parallel(writes).into_iter().collect()
}

/// The folder that the files of a profile are written to.
struct TableFolder<'a>(&'a Path);

impl TableFolder<'_> {
    fn write<R>(&self, table: &Table<R>, rows: &[R]) -> Result<WrittenFile, ProfileError> {
        self.write_groups(table, rows.chunks(encode::GROUP))
    }

    fn write_groups<R>(
        &self,
        table: &Table<R>,
        groups: impl Iterator<Item = impl AsRef<[R]>>,
    ) -> Result<WrittenFile, ProfileError> {
        let path = self.0.join(table.name);
        self.put(table.name, &encode::bytes(&path, groups, table)?)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<WrittenFile, ProfileError> {
        put(&self.0.join(name), bytes, MAX_FILE_BYTES)?;
        Ok((name.to_owned(), TableDigest::of(bytes)))
    }
}

/// Copies the permissions of the old profile: its readers may read the new one.
fn take_over_permissions(old: &Path, new: &Path) -> Result<(), ProfileError> {
    let found = fs::metadata(old).map_err(io_error(old, "cannot be read"))?;
    let mode = found.permissions().mode() & 0o777;
    let set = fs::set_permissions(new, fs::Permissions::from_mode(mode));
    set.map_err(io_error(new, "its permissions cannot be set"))
}

/// Fails unless `place` is a profile with no other files in its folder.
fn check_replaceable(place: &Path) -> Result<(), ProfileError> {
    let refuse = |why: String| Err(ProfileError::InTheWay { path: place.to_owned(), why });
    if !is_profile(place) {
        return refuse(format!("is not a profile (it has no {DOCUMENT} of ibscope)"));
    }
    for entry in fs::read_dir(place).map_err(io_error(place, "cannot be read"))? {
        let entry = entry.map_err(io_error(place, "cannot be read"))?;
        let name = entry.file_name();
        if !FILES.iter().any(|own| name == **own) {
            return refuse(format!("contains {} beside the profile", name.display()));
        }
        // ibscope creates no folder or link with such a name, and replacing would remove its
        // contents.
        if !entry.file_type().map_err(io_error(place, "cannot be read"))?.is_file() {
            return refuse(format!("contains {}, which is not a regular file", name.display()));
        }
    }
    Ok(())
}

/// True if `path` is the folder of a profile.
#[must_use]
pub fn is_profile(path: &Path) -> bool {
    let head = |text: Vec<u8>| serde_json::from_slice::<document::DocumentHeader>(&text).ok();
    let head = open(&path.join(DOCUMENT)).and_then(|file| file.contents(MAX_DOCUMENT_BYTES)).ok().and_then(head);
    head.is_some_and(|head| head.format == document::FORMAT)
}

/// True if the folder has a document, readable or not.
#[must_use]
pub fn has_profile_document(path: &Path) -> bool {
    path.join(DOCUMENT).symlink_metadata().is_ok()
}

/// Reads the data of a profile for a merge.
pub fn read_parts(place: &Path) -> Result<Vec<u8>, ProfileError> {
    let (_, digests) = read_document(place)?;
    if !digests.contains_key(PARTS) {
        return Err(ProfileError::NoParts { path: place.to_owned() });
    }
    read_file(place, PARTS, &digests).map(|(_, bytes)| bytes)
}

/// Reads the document of a profile: the profile without tables, and the digests of the other files.
fn read_document(place: &Path) -> Result<(Profile, BTreeMap<String, TableDigest>), ProfileError> {
    let path = place.join(DOCUMENT);
    let text = open(&path)?.contents(MAX_DOCUMENT_BYTES)?;
    let document = |source| ProfileError::Document { path: path.clone(), source };
    // Check the version first: a later version may have fields of other types.
    let head: document::DocumentHeader = serde_json::from_slice(&text).map_err(document)?;
    if head.version != VERSION {
        return Err(ProfileError::Version { path, found: head.version, writer: head.ibscope });
    }
    Ok(serde_json::from_slice::<ProfileDocument>(&text).map_err(document)?.into_profile())
}

/// Reads a file of a profile, and checks it against its digest.
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
    let bytes = file.contents(MAX_FILE_BYTES)?;
    // Damaged Parquet can crash its reader, so the digest is checked first.
    if *digest != TableDigest::of(&bytes) {
        return Err(ProfileError::Damaged { path });
    }
    Ok((path, bytes))
}

/// An open file of a profile.
struct OpenFile {
    path: PathBuf,
    file: File,
    length_bytes: u64,
}

/// Opens a file of a profile. A profile may come from anybody, so kind and length are checked
/// before the file is opened or read: a FIFO blocks, a device has no end, and a sparse file may
/// exceed the memory.
fn open(path: &Path) -> Result<OpenFile, ProfileError> {
    // A profile that does not exist at all is named instead of a file in it.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    let path = folder.unwrap_or(path).to_owned();
    let found = match fs::metadata(&path) {
        Ok(found) if !found.is_file() => return Err(ProfileError::NotARegularFile { path }),
        found => found.and_then(|found| Ok((File::open(&path)?, found.len()))),
    };
    match found {
        Ok((file, length_bytes)) => Ok(OpenFile { path, file, length_bytes }),
        Err(source) => Err(ProfileError::MissingFile { path, source }),
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
        // Read at most the length at the time of opening.
        match reserved.and_then(|()| file.take(length_bytes).read_to_end(&mut bytes)) {
            Ok(_) => Ok(bytes),
            Err(source) => Err(ProfileError::MissingFile { path, source }),
        }
    }
}

/// Reads a profile.
pub fn read(place: &Path) -> Result<Profile, ProfileError> {
    let (mut profile, digests) = read_document(place)?;
    if let Some(share) = profile.inputs.iter().find_map(|input| input.share) {
        return Err(ProfileError::Share { path: place.to_owned(), share });
    }
    let table = |name: &str| read_file(place, name, &digests);
    let (path, bytes) = table(CONNECTIONS)?;
    profile.connections = connections::read(&path, bytes)?;
    let quality = profile.sampling.map(|sampling| sampling.quality()).unwrap_or_default();
    profile.connections.iter_mut().filter_map(|row| row.sampled.as_mut()).for_each(|row| row.quality = quality);
    // Profiles of earlier states of this version do not have the table.
    if digests.contains_key(PATHS) {
        let (path, bytes) = table(PATHS)?;
        paths::read(&path, bytes, &mut profile.connections)?;
    }
    let (path, bytes) = table(TIMELINE)?;
    let (timeline, has_congestion) = tables::read_timeline(&path, bytes, profile.connections.len())?;
    (profile.timeline, profile.is_without_congestion) = (timeline, !has_congestion);
    if profile.sender_bin_ns > 0 && digests.contains_key(SENDERS) {
        let (path, bytes) = table(SENDERS)?;
        (profile.senders, _) = tables::read_timeline(&path, bytes, profile.connections.len())?;
    } else {
        profile.drop_senders();
    }
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
    if digests.contains_key(STORAGE) {
        let (path, bytes) = table(STORAGE)?;
        profile.storage = Some(storage::read(&path, bytes, profile.connections.len())?);
    }
    let (path, bytes) = table(CM)?;
    profile.cm = tables::read_cm(&path, bytes)?;
    Ok(profile)
}

fn io_error(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> ProfileError {
    let path = path.to_owned();
    move |source| ProfileError::Io { path, action, source }
}
