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
    let journal = state.lock_plan(soon()).unwrap().create(plan(), None, lock).unwrap();
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

/// With any one bit of the first line changed there is no plan. With any one bit of a later line
/// changed, the lines before it count, and all steps may have been begun. If the change removes the
/// end of the last line, that line counts as not written.
#[test]
fn a_changed_bit_is_noticed_and_the_plan_still_counts() {
    let (_folder, text) = sample_journal();
    let all = |text: &[u8]| read(Path::new("x"), text).map(|(record, used, _)| (record, used));
    let first = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let last = text.len() - text.split(|byte| *byte == b'\n').rev().nth(1).unwrap().len() - 1;
    for (place, bit) in (0..text.len()).flat_map(|place| (0..8).map(move |bit| (place, bit))) {
        let mut changed = text.clone();
        changed[place] ^= 1 << bit;
        let what = format!("bit {bit} of byte {place}");
        match all(&changed) {
            Err(error) => {
                assert!(place < first, "{what}: {error}");
                assert!(error.to_string().contains("undo the run by hand"), "{error}");
            }
            Ok(found) if place == text.len() - 1 => assert_eq!(found, all(&text[..last]).unwrap()),
            Ok((record, used)) => {
                assert!(place >= first, "{what} is not noticed");
                assert!(record.damage.is_some() && used >= first && used <= place, "{what}");
                assert!(!record.progress.contains(&StepProgress::Planned), "{what}");
                assert_eq!((record.plan, record.has_started), (plan(), true));
            }
        }
    }
}

/// Missing, duplicate and reordered lines, and zeros in place of the end.
#[test]
fn a_journal_without_some_of_its_lines_is_damaged() {
    let (_folder, text) = sample_journal();
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let zeros = [&text[..text.len() - 40], &[0; 40]].concat();
    for damaged in [
        [lines[0], lines[2], lines[3]].concat(),
        [lines[0], lines[1], lines[1], lines[2], lines[3]].concat(),
        [lines[0], lines[2], lines[1], lines[3]].concat(),
        zeros,
    ] {
        let (record, ..) = read(Path::new("x"), &damaged).unwrap();
        assert!(record.damage.is_some(), "{}", String::from_utf8_lossy(&damaged));
    }
    for headless in [lines[1..].concat(), lines[0][..lines[0].len() - 1].to_vec(), Vec::new()] {
        assert!(read(Path::new("x"), &headless).is_err(), "{}", String::from_utf8_lossy(&headless));
    }
}

/// A damaged journal is copied, and continued after its last good line.
#[test]
fn a_damaged_journal_is_continued_and_a_copy_stays() {
    let (folder, text) = sample_journal();
    let state = State::open(folder.path()).unwrap();
    let path = state.journals().unwrap().remove(0).path;
    let mut damaged = text.clone();
    let second = text.iter().position(|byte| *byte == b'\n').unwrap() + 5;
    damaged[second] ^= 1;
    fs::write(&path, &damaged).unwrap();
    drop(state.reopen(&path, state.lock_job(7, soon()).unwrap()).unwrap());
    let record = state.journals().unwrap().remove(0).record.unwrap();
    assert_eq!(record.progress, [StepProgress::Started, StepProgress::Started]);
    assert!(record.damage.as_ref().is_some_and(|what| what.contains("line 2: its checksum is wrong")), "{record:?}");
    let mut copy = path.into_os_string();
    copy.push(".damaged");
    assert_eq!(fs::read(copy).unwrap(), damaged);
}

/// A later version may add fields and kinds of entries: the plan still counts.
#[test]
fn a_journal_of_a_later_version_keeps_its_plan() {
    let (_folder, text) = sample_journal();
    let text = String::from_utf8(text).unwrap();
    let mut lines: Vec<String> = text.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect();
    lines[0] = lines[0].replacen("\"version\":2,", "\"version\":9,\"more\":[1],", 1);
    lines[1] = "{\"entry\":\"prepared\",\"at_ns\":2}".to_owned();
    let later: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    assert!(later.contains("\"version\":9"));
    let (record, ..) = read(Path::new("x"), later.as_bytes()).unwrap();
    assert_eq!((record.plan, record.progress), (plan(), vec![StepProgress::Started; 2]));
    assert!(record.damage.is_some_and(|what| what.contains("unknown variant `prepared`")));
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
    /// Any bytes are read or refused. The part that counts yields the same record without the rest,
    /// except for the damage.
    #[test]
    fn any_bytes_are_read_or_refused(place in 0..10_000_usize, bytes in prop::collection::vec(any::<u8>(), 0..40), keep in any::<bool>()) {
        thread_local!(static TEXT: Vec<u8> = sample_journal().1);
        let mut text = TEXT.with(Clone::clone);
        let place = place % (text.len() + 1);
        let end = if keep { place } else { (place + bytes.len()).min(text.len()) };
        text.splice(place..end, bytes);
        if let Ok((record, used, _)) = read(Path::new("x"), &text) {
            let (mut again, all, _) = read(Path::new("x"), &text[..used]).unwrap();
            if let Some(what) = &record.damage {
                again.damaged(again.changed_ns, what);
            }
            prop_assert_eq!(all, used);
            prop_assert_eq!(again, record);
        }
    }
}
