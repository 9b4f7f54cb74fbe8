//! Races: a user swaps the entry at a path in a tight loop while root's code checks the path and
//! writes there, 1000 times for each of the smallest entry points. `attacks.rs` races whole hooks.

use crate::attacks::{FOLLOW, LINKS, OWNER, SWAP, Thief, Treasure, USER, holds_nothing_of_roots, open};
use ibscope_orchestrator::config::Config;
use ibscope_orchestrator::folder::{Folder, give};
use ibscope_orchestrator::install::{Installation, Script};
use ibscope_orchestrator::journal::State;
use ibscope_orchestrator::log::{Level, Log};
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;
use std::time::Instant;

const RACES: usize = 1000;

type Answer = Result<(), Box<dyn Error>>;
type Way = fn(&Path) -> Answer;

/// Uses that root makes of a path. Each fails where the path is not root's alone.
const WAYS: [(&str, Way); 5] = [
    ("files in a folder", files),
    ("the state folder", state),
    ("the log", log),
    ("the configuration", configuration),
    ("scripts of hooks", scripts),
];

fn files(path: &Path) -> Answer {
    let folder = Folder::make(path, 0o700)?;
    folder.create("new", 0o600)?.write_all(b"root's")?;
    folder.append_or_create("more", 0o600)?.write_all(b"root's")?;
    folder.put(OsStr::new("whole"), b"root's", 0o600, None)?;
    folder.rename(OsStr::new("whole"), OsStr::new("renamed"))?;
    Ok(folder.give(None)?)
}

/// A planted journal would have its commands run.
fn state(path: &Path) -> Answer {
    let state = State::open(path)?;
    let journals = state.journals()?;
    assert!(journals.is_empty(), "a user's journal is used: {journals:?}");
    drop(state.lock_job(7, Instant::now())?);
    Ok(())
}

/// A log that cannot be written is left out.
fn log(path: &Path) -> Answer {
    Log::open(Some(&path.join("log")), false, "job 7").say(Level::Info, "root's");
    Ok(Folder::open(path).map(drop)?)
}

fn configuration(path: &Path) -> Answer {
    let read = Config::read_trusted(&path.join("capture.toml"));
    assert!(read.is_err(), "a user's configuration is used");
    Ok(read.map(drop)?)
}

fn scripts(path: &Path) -> Answer {
    let script = Script { path: path.join("prolog"), text: "#!/bin/sh\n".to_owned(), command: String::new() };
    Ok(Installation { scripts: vec![script], lines: Vec::new(), findings: Vec::new() }.write()?)
}

/// A user prepares a folder with a journal and a configuration, links and FIFOs, and swaps them at
/// the path that root uses.
pub(crate) fn users_lose_the_race_for_a_path() {
    let arena = tempfile::tempdir().expect("folder");
    open(arena.path(), 0o755);
    let (shared, items) = (arena.path().join("shared"), arena.path().join("shared/items"));
    let (path, folder) = (shared.join("place"), items.join("folder"));
    let treasure = Treasure::lay(arena.path());
    open(&shared, 0o1777);
    open(&folder, 0o755);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/capture.toml");
    fs::copy(&example, folder.join("capture.toml")).expect("configuration");
    Config::read(&example).expect("a configuration that would be taken");
    fs::write(folder.join("job-7-1.journal"), "").expect("journal");
    for path in ["", "folder", "folder/capture.toml", "folder/job-7-1.journal"] {
        chown(items.join(path), Some(USER), Some(USER)).expect("owner");
    }
    let words = [&path, &items].map(|path| path.display().to_string());
    let thief = Thief::start(USER, &[], SWAP, &[&words[0], treasure.vault(), &words[1]]);
    for (name, way) in WAYS {
        let mut won = 0;
        for _ in 0..RACES {
            won += usize::from(way(&path).is_ok());
            treasure.is_untouched(name);
            if fs::symlink_metadata(&path).is_ok_and(|found| found.uid() == 0) {
                fs::remove_dir_all(&path).expect("root's folder");
            }
        }
        println!("{name}: root was first {won} times of {RACES}");
        assert!(won < RACES, "{name}: the thief was not there");
    }
    drop(thief);
    holds_nothing_of_roots(&shared);
}

/// A second try to fetch captures works in a run folder that belongs to the owner of captures.
pub(crate) fn the_owner_loses_the_race_for_files_of_a_run() {
    let arena = tempfile::tempdir().expect("folder");
    open(arena.path(), 0o755);
    let treasure = Treasure::lay(arena.path());
    let runs = arena.path().join("runs");
    open(&runs, 0o755);
    let (all, owner) = (Folder::open(&runs).expect("runs"), Some((OWNER, Some(OWNER))));
    let [run, whole, part] = ["run", "a.pcap", "a.pcap.part"].map(OsStr::new);
    all.inside(run, 0o700, owner).and_then(|run| run.give(owner)).expect("a run");
    let [place, loot] = [&runs, &treasure.loot].map(|path| path.display().to_string());
    let thief = Thief::start(OWNER, &LINKS, FOLLOW, &[&place, &treasure.secret(), &loot]);
    let (mut went_on, mut began) = (0, 0);
    for race in 0..RACES {
        let run = all.inside(run, 0o700, owner).expect("the run");
        for name in [whole, part] {
            let is_theirs = run.read(name).map_or(true, |file| file.metadata().expect("metadata").uid() == OWNER);
            assert!(is_theirs, "root reads a file that is not the owner's");
        }
        let went = run.append(part).and_then(|mut file| {
            file.set_len(0)?;
            file.write_all(b"packets")?;
            give(&file, owner)
        });
        let new = run.remove(part).and_then(|()| run.create(part, 0o600)).and_then(|mut file| {
            file.write_all(b"packets")?;
            give(&file, owner)?;
            run.rename(part, whole)
        });
        went_on += usize::from(went.is_ok());
        began += usize::from(new.is_ok());
        // Either may fail, in the folder of the owner. The first one waits for the disk.
        if race % 10 == 0 {
            drop(run.put(OsStr::new("manifest.json"), b"{}", 0o600, owner));
        }
        drop(run.append_or_create(part, 0o600).and_then(|mut file| file.write_all(b"packets")));
        run.give(owner).expect("the run");
        treasure.is_untouched("a run's files");
    }
    println!("{began} files were begun, {went_on} gone on with, of {RACES}");
    drop(thief);
    assert!(fs::read_to_string(treasure.loot.join("followed")).is_ok(), "the thief was not there");
}
