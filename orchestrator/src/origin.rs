//! The data that are needed to undo a run, kept in its journal and in the state folder: the
//! configuration, and a copy of the program.
//!
//! The copy is made by [`keep_program`] after a hook has reported its outcome, because it takes
//! time.

use crate::config::{Config, ConfigError};
use crate::folder::Folder;
use crate::journal::{RunOrigin, State};
use crate::scratch::is_scratch;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// Folder of the copies, in the state folder.
pub const PROGRAM_FOLDER: &str = "program";

/// The running program, even if its file was replaced or removed.
const RUNNING_PROGRAM: &str = "/proc/self/exe";

/// The origin of a run that this program begins.
pub(crate) fn of_run(config: &Config, state: &Folder) -> RunOrigin {
    let program = File::open(RUNNING_PROGRAM).and_then(|file| file.metadata());
    RunOrigin {
        config_path: config.source.path.clone(),
        config_text: config.source.text.clone(),
        program: program.ok().map(|program| state.path().join(PROGRAM_FOLDER).join(copy_name(&program))),
    }
}

impl RunOrigin {
    /// The configuration of the run.
    pub fn config(&self) -> Result<Config, ConfigError> {
        Config::parse(&self.config_text, &self.config_path)
    }
}

/// Name of a program's copy: another one for each version that was installed.
fn copy_name(program: &Metadata) -> OsString {
    let changed_ns = i128::from(program.mtime()) * 1_000_000_000 + i128::from(program.mtime_nsec());
    format!("ibscope-{:x}-{changed_ns:x}", program.len()).into()
}

/// Copies the running program into the state folder, and removes copies that no open run needs.
pub fn keep_program(state: &State) -> io::Result<PathBuf> {
    let mut program = File::open(RUNNING_PROGRAM)?;
    let name = copy_name(&program.metadata()?);
    let folder = state.folder().inside(OsStr::new(PROGRAM_FOLDER), 0o700, None)?;
    if folder.read(&name).is_err() {
        folder.place(&name, 0o700, |file| {
            program.rewind()?;
            io::copy(&mut program, file).map(drop)
        })?;
    }
    folder.remove_abandoned(None);
    let kept = folder.path().join(&name);
    remove_others(state, &folder, &name);
    Ok(kept)
}

/// A copy that cannot be removed only takes space.
fn remove_others(state: &State, folder: &Folder, name: &OsStr) {
    let Ok(journals) = state.journals() else { return };
    // The run of an unreadable journal may need any copy.
    let Ok(records) = journals.into_iter().map(|stored| stored.record).collect::<Result<Vec<_>, _>>() else { return };
    let needed: Vec<PathBuf> = records.into_iter().filter_map(|record| record.origin?.program).collect();
    let is_needed =
        |other: &OsStr| other == name || needed.iter().any(|path| path.file_name() == Some(other)) || is_scratch(other);
    for other in folder.names().unwrap_or_default().iter().filter(|other| !is_needed(other)) {
        let _ = folder.remove(other);
    }
}
