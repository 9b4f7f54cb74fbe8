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
use document::{Document, TableDigest};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
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

/// Who may read a new profile: the folder keeps everybody else out.
const FOR_OWNER: u32 = 0o700;

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
    scratch: PathBuf,
}

impl Writer {
    /// Prepares `place`. A profile that is there is replaced when the new one is whole.
    pub fn create(place: &Path) -> Result<Self, ProfileError> {
        if place.file_name().is_none() {
            return Err(ProfileError::Nameless { path: place.to_owned() });
        }
        if place.exists() {
            in_the_way(place)?;
        }
        let scratch = beside(place, "part");
        // What captures hold is not for everybody's eyes, and neither is what is made of them.
        fs::DirBuilder::new().mode(FOR_OWNER).create(&scratch).map_err(io_error(&scratch, "cannot be created"))?;
        Ok(Self { place: place.to_owned(), scratch })
    }

    /// Writes the profile and puts it in its place.
    pub fn finish(self, profile: &Profile) -> Result<(), ProfileError> {
        let mut tables = Tables { folder: &self.scratch, digests: BTreeMap::new() };
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
        let mut digests = tables.digests;
        if let Some(parts) = &profile.parts {
            let path = self.scratch.join(PARTS);
            fs::write(&path, parts).map_err(io_error(&path, "cannot be written"))?;
            digests.insert(PARTS.to_owned(), TableDigest::of(parts));
        }
        let path = self.scratch.join(DOCUMENT);
        let mut text = serde_json::to_string_pretty(&Document::new(profile, digests))
            .map_err(|source| ProfileError::Document { path: path.clone(), source })?;
        text.push('\n');
        fs::write(&path, text).map_err(io_error(&path, "cannot be written"))?;
        // The old profile is put aside first, so that there is a whole one at any time.
        let old = beside(&self.place, "old");
        let replaces = self.place.exists();
        if replaces {
            in_the_way(&self.place)?;
            self.take_over_permissions()?;
            fs::rename(&self.place, &old).map_err(io_error(&self.place, "cannot be replaced"))?;
        }
        if let Err(error) = fs::rename(&self.scratch, &self.place) {
            if replaces {
                // Back to where it was; the error to tell is the first one.
                let _ = fs::rename(&old, &self.place);
            }
            return Err(io_error(&self.place, "cannot be put in place")(error));
        }
        if replaces {
            fs::remove_dir_all(&old).map_err(io_error(&old, "cannot be removed"))?;
        }
        Ok(())
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
        let bytes = tables::bytes(&path, groups, table)?;
        fs::write(&path, &bytes).map_err(io_error(&path, "cannot be written"))?;
        self.digests.insert(name.to_owned(), TableDigest::of(&bytes));
        Ok(())
    }
}

impl Writer {
    /// Whoever may read the profile that is replaced may read what replaces it.
    fn take_over_permissions(&self) -> Result<(), ProfileError> {
        let found = fs::metadata(&self.place).map_err(io_error(&self.place, "cannot be read"))?;
        let mode = found.permissions().mode() & 0o777;
        fs::set_permissions(&self.scratch, fs::Permissions::from_mode(mode))
            .map_err(io_error(&self.scratch, "its permissions cannot be set"))
    }
}

/// A name beside `place` that no other process uses.
fn beside(place: &Path, what: &str) -> PathBuf {
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{what}-{}", std::process::id()));
    place.with_file_name(name)
}

/// Refuses to replace anything but a profile with nothing else in its folder.
fn in_the_way(place: &Path) -> Result<(), ProfileError> {
    let refuse = |why: String| Err(ProfileError::InTheWay { path: place.to_owned(), why });
    if !is_profile(place) {
        return refuse(format!("is no profile (it has no {DOCUMENT} of ibscope's)"));
    }
    for entry in fs::read_dir(place).map_err(io_error(place, "cannot be read"))? {
        let name = entry.map_err(io_error(place, "cannot be read"))?.file_name();
        if !FILES.iter().any(|own| name == **own) {
            return refuse(format!("holds {} beside the profile", name.display()));
        }
    }
    Ok(())
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After `finish` it is gone already; a failure to tidy up must not hide the error that led here.
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// True where `path` is a profile's folder.
#[must_use]
pub fn is_profile(path: &Path) -> bool {
    let text = fs::read_to_string(path.join(DOCUMENT)).unwrap_or_default();
    serde_json::from_str::<document::Head>(&text).is_ok_and(|head| head.format == document::FORMAT)
}

/// True for a folder that has a document, whether that can be read or not.
#[must_use]
pub fn was_profile(path: &Path) -> bool {
    path.join(DOCUMENT).is_file()
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
    let text = fs::read_to_string(&path).map_err(io_error(&path, "cannot be read"))?;
    let document = |source| ProfileError::Document { path: path.clone(), source };
    // The version is looked at first: a later version may hold fields of other types.
    let head: document::Head = serde_json::from_str(&text).map_err(document)?;
    if head.version != VERSION {
        return Err(ProfileError::Version { path, found: head.version, writer: head.ibscope });
    }
    Ok(serde_json::from_str::<Document>(&text).map_err(document)?.into_profile())
}

/// A file of a profile, if it is the one that was written.
fn read_file(
    place: &Path,
    name: &str,
    digests: &BTreeMap<String, TableDigest>,
) -> Result<(PathBuf, Vec<u8>), ProfileError> {
    let path = place.join(name);
    let bytes = fs::read(&path).map_err(|source| ProfileError::Lacks { path: path.clone(), source })?;
    // Damaged Parquet can take its reader down, so it is not shown any.
    if digests.get(name) != Some(&TableDigest::of(&bytes)) {
        return Err(ProfileError::Damaged { path });
    }
    Ok((path, bytes))
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
