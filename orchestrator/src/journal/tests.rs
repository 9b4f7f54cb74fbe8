use super::*;
use crate::step::{HostfileStep, PlanStep};
use proptest::prelude::*;
use std::fs;
use std::time::{Duration, Instant};

fn plan() -> CapturePlan {
    let hostfile =
        |name: &str| PlanStep::Hostfile(HostfileStep { path: PathBuf::from(name), lines: vec!["n1".to_owned()] });
    CapturePlan {
        job: crate::job::SlurmJob { id: 7, ..Default::default() },
        started_s: 1,
        compute: Vec::new(),
        sinks: Vec::new(),
        steps: vec![hostfile("/a"), hostfile("/b")],
        warnings: Vec::new(),
        hostfile: Vec::new(),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// A folder with a journal of some entries, and the journal's bytes.
fn sample_journal() -> (tempfile::TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path()).unwrap();
    let lock = state.lock_job(7, soon()).unwrap();
    let journal = state.lock_plan(soon()).unwrap().create(plan(), lock).unwrap();
    journal.write(&JournalEntry::Doing { at_ns: 2, steps: vec![0, 1] }).unwrap();
    journal.write(&JournalEntry::Done { at_ns: 3, step: 0, process: None, ran: Vec::new() }).unwrap();
    journal.write(&JournalEntry::Undone { at_ns: 4, step: 1, ended: None, ran: Vec::new() }).unwrap();
    let text = fs::read(journal.path()).unwrap();
    (folder, text)
}

#[test]
fn a_written_journal_reads_back() {
    let (folder, text) = sample_journal();
    let (record, used, _) = read(Path::new("x"), &text).unwrap();
    assert_eq!((used, record.phase, record.has_started), (text.len(), RunPhase::Starting, false));
    assert_eq!(record.progress, [StepProgress::Done(None), StepProgress::Undone(None)]);
    // An undone step occupies nothing.
    assert_eq!(record.occupying_steps().collect::<Vec<_>>(), [&plan().steps[0]]);
    // The lock file is removed with the lock; the journal stays.
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|item| item.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name == "job-7.lock"), "{names:?}");
}

/// A new line replaces an incomplete last line instead of following it.
#[test]
fn an_incomplete_last_line_is_dropped() {
    let (folder, text) = sample_journal();
    let state = State::open(folder.path()).unwrap();
    let path = state.journals().unwrap().remove(0).path;
    fs::write(&path, &text[..text.len() - 3]).unwrap();
    let journal = state.reopen(&path, state.lock_job(7, soon()).unwrap()).unwrap();
    journal.write(&JournalEntry::Undoing { at_ns: 5 }).unwrap();
    let record = state.journals().unwrap().remove(0).record.unwrap();
    assert_eq!((record.phase, &record.progress[1]), (RunPhase::Undoing, &StepProgress::Started));
}

#[test]
fn only_the_newest_closed_journals_are_kept() {
    let (folder, text) = sample_journal();
    let state = State::open(folder.path()).unwrap();
    for opened_ns in 1..=250 {
        fs::write(folder.path().join(format!("closed/job-1-{opened_ns}.journal")), &text).unwrap();
    }
    let path = state.journals().unwrap().remove(0).path;
    state.move_to_closed(&path).unwrap();
    let closed = state.closed_journals().unwrap();
    assert_eq!(closed.len(), 200);
    assert_eq!((closed[199].job_id, closed[0].job_id), (7, 1));
    assert!(closed[0].path.ends_with("job-1-52.journal"), "{:?}", closed[0].path);
    assert!(state.journals().unwrap().is_empty());
}

/// A journal with any one bit changed is refused. If the change removes the end of the last line,
/// that line counts as not written.
#[test]
fn a_journal_with_a_changed_bit_is_refused() {
    let (_folder, text) = sample_journal();
    let all = |text: &[u8]| read(Path::new("x"), text).map(|(record, used, _)| (record, used));
    let last = text.len() - text.split(|byte| *byte == b'\n').rev().nth(1).unwrap().len() - 1;
    for (place, bit) in (0..text.len()).flat_map(|place| (0..8).map(move |bit| (place, bit))) {
        let mut changed = text.clone();
        changed[place] ^= 1 << bit;
        match all(&changed) {
            Err(error) => assert!(error.to_string().contains("undo the run by hand"), "{error}"),
            Ok(found) => {
                assert_eq!(place, text.len() - 1, "bit {bit} of byte {place} is not noticed");
                assert_eq!(found, all(&text[..last]).unwrap());
            }
        }
    }
}

/// Missing, duplicate and reordered lines, and zeros in place of the end.
#[test]
fn a_journal_without_some_of_its_lines_is_refused() {
    let (_folder, text) = sample_journal();
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let zeros = [&text[..text.len() - 40], &[0; 40]].concat();
    for damaged in [
        [lines[0], lines[2], lines[3]].concat(),
        [lines[0], lines[1], lines[1], lines[2], lines[3]].concat(),
        [lines[0], lines[2], lines[1], lines[3]].concat(),
        lines[1..].concat(),
        lines[0][..lines[0].len() - 1].to_vec(),
        Vec::new(),
        zeros,
    ] {
        assert!(read(Path::new("x"), &damaged).is_err(), "{}", String::from_utf8_lossy(&damaged));
    }
}

/// A run that an earlier version began, without checksums, is undone by this version.
#[test]
fn a_journal_without_checksums_is_continued_without() {
    let (folder, text) = sample_journal();
    let state = State::open(folder.path()).unwrap();
    let path = state.journals().unwrap().remove(0).path;
    let text = String::from_utf8(text).unwrap();
    let without: String = text.lines().flat_map(|line| [line.split('\t').next().unwrap(), "\n"]).collect();
    fs::write(&path, without).unwrap();
    let journal = state.reopen(&path, state.lock_job(7, soon()).unwrap()).unwrap();
    journal.write(&JournalEntry::Undoing { at_ns: 5 }).unwrap();
    let record = state.journals().unwrap().remove(0).record.unwrap();
    assert_eq!(
        (record.phase, record.progress),
        (RunPhase::Undoing, vec![StepProgress::Done(None), StepProgress::Undone(None)])
    );
    assert!(!fs::read_to_string(&path).unwrap().contains('\t'));
}

proptest! {
    /// Any bytes are read or refused. The part that was read yields the same record without the
    /// rest.
    #[test]
    fn any_bytes_are_read_or_refused(place in 0..10_000_usize, bytes in prop::collection::vec(any::<u8>(), 0..40), keep in any::<bool>()) {
        thread_local!(static TEXT: Vec<u8> = sample_journal().1);
        let mut text = TEXT.with(Clone::clone);
        let place = place % (text.len() + 1);
        let end = if keep { place } else { (place + bytes.len()).min(text.len()) };
        text.splice(place..end, bytes);
        if let Ok((record, used, _)) = read(Path::new("x"), &text) {
            let (again, all, _) = read(Path::new("x"), &text[..used]).unwrap();
            prop_assert_eq!(all, used);
            prop_assert_eq!(again, record);
        }
    }
}
