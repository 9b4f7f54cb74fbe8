//! Races: a user swaps the entry at a path in a tight loop while root's code checks the path and
//! writes there, 1000 times for each of the smallest entry points. `attacks.rs` races whole hooks.

use crate::attacks::{AttackProcess, FOLLOW, LINKS, OWNER, RootFiles, SWAP, USER, holds_nothing_of_root, open};
use ibscope_orchestrator::config::Config;
use ibscope_orchestrator::folder::{Folder, set_owner};
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

type RaceResult = Result<(), Box<dyn Error>>;
type EntryPoint = fn(&Path) -> RaceResult;

/// Ways in which root uses a path. Each fails if others can change the path.
const ENTRY_POINTS: [(&str, EntryPoint); 5] = [
    ("files in a folder", files),
    ("the state folder", state),
    ("the log", log),
    ("the configuration", configuration),
    ("scripts of hooks", scripts),
];

fn files(path: &Path) -> RaceResult {
    let folder = Folder::make(path, 0o700)?;
    folder.create("new", 0o600)?.write_all(b"root's")?;
    folder.append_or_create("more", 0o600)?.write_all(b"root's")?;
    folder.replace(OsStr::new("whole"), b"root's", 0o600, None)?;
    folder.rename(OsStr::new("whole"), OsStr::new("renamed"))?;
    Ok(folder.set_owner(None)?)
}

/// The commands of a planted journal would be run.
fn state(path: &Path) -> RaceResult {
    let state = State::open(path)?;
    let journals = state.journals()?;
    assert!(journals.is_empty(), "a user's journal is used: {journals:?}");
    drop(state.lock_job(7, Instant::now())?);
    Ok(())
}

/// A log that cannot be written is ignored.
fn log(path: &Path) -> RaceResult {
    Log::open(Some(&path.join("log")), false, "job 7").write(Level::Info, "root's");
    Ok(Folder::open(path).map(drop)?)
}

fn configuration(path: &Path) -> RaceResult {
    let read = Config::read_trusted(&path.join("capture.toml"));
    assert!(read.is_err(), "a user's configuration is used");
    Ok(read.map(drop)?)
}

fn scripts(path: &Path) -> RaceResult {
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
    let treasure = RootFiles::lay(arena.path());
    open(&shared, 0o1777);
    open(&folder, 0o755);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/capture.toml");
    fs::copy(&example, folder.join("capture.toml")).expect("configuration");
    Config::read(&example).expect("a valid configuration");
    fs::write(folder.join("job-7-1.journal"), "").expect("journal");
    for path in ["", "folder", "folder/capture.toml", "folder/job-7-1.journal"] {
        chown(items.join(path), Some(USER), Some(USER)).expect("owner");
    }
    let words = [&path, &items].map(|path| path.display().to_string());
    let thief = AttackProcess::start(USER, &[], SWAP, &[&words[0], treasure.vault(), &words[1]]);
    for (name, way) in ENTRY_POINTS {
        let mut won = 0;
        for _ in 0..RACES {
            won += usize::from(way(&path).is_ok());
            treasure.is_untouched(name);
            if fs::symlink_metadata(&path).is_ok_and(|found| found.uid() == 0) {
                fs::remove_dir_all(&path).expect("root's folder");
            }
        }
        println!("{name}: root was first {won} times of {RACES}");
        assert!(won < RACES, "{name}: the attacker did not run");
    }
    drop(thief);
    holds_nothing_of_root(&shared);
}

/// A second attempt to fetch captures works in a run folder that belongs to the owner of captures.
pub(crate) fn the_owner_loses_the_race_for_files_of_a_run() {
    let arena = tempfile::tempdir().expect("folder");
    open(arena.path(), 0o755);
    let treasure = RootFiles::lay(arena.path());
    let runs = arena.path().join("runs");
    open(&runs, 0o755);
    let (all, owner) = (Folder::open(&runs).expect("runs"), Some((OWNER, Some(OWNER))));
    let [run, whole, part] = ["run", "a.pcap", "a.pcap.part"].map(OsStr::new);
    all.inside(run, 0o700, owner).and_then(|run| run.set_owner(owner)).expect("a run");
    let [place, loot] = [&runs, &treasure.loot].map(|path| path.display().to_string());
    let thief = AttackProcess::start(OWNER, &LINKS, FOLLOW, &[&place, &treasure.secret(), &loot]);
    let (mut continued, mut begun) = (0, 0);
    for race in 0..RACES {
        let run = all.inside(run, 0o700, owner).expect("the run");
        for name in [whole, part] {
            let is_theirs = run.read(name).map_or(true, |file| file.metadata().expect("metadata").uid() == OWNER);
            assert!(is_theirs, "root reads a file that does not belong to the owner");
        }
        let appended = run.append(part).and_then(|mut file| {
            file.set_len(0)?;
            file.write_all(b"packets")?;
            set_owner(&file, owner)
        });
        let new = run.remove(part).and_then(|()| run.create(part, 0o600)).and_then(|mut file| {
            file.write_all(b"packets")?;
            set_owner(&file, owner)?;
            run.rename(part, whole)
        });
        continued += usize::from(appended.is_ok());
        begun += usize::from(new.is_ok());
        // Both can fail in the folder of the owner. `replace` waits for the disk, so it is tried
        // less often.
        if race % 10 == 0 {
            drop(run.replace(OsStr::new("manifest.json"), b"{}", 0o600, owner));
        }
        drop(run.append_or_create(part, 0o600).and_then(|mut file| file.write_all(b"packets")));
        run.set_owner(owner).expect("the run");
        treasure.is_untouched("a run's files");
    }
    println!("of {RACES} files, {begun} were begun and {continued} continued");
    drop(thief);
    assert!(fs::read_to_string(treasure.loot.join("followed")).is_ok(), "the attacker did not run");
}
