//! A start that is killed after each line of its journal or at any moment, and a journal that is
//! truncated at any byte. Afterwards everything can be undone.

use crate::lab::{SinkLab, in_seconds, names, open, start};
use ibscope_orchestrator::journal::State;
use ibscope_orchestrator::{run, undo};
use std::fs;
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Variable that names the lab's folder to the child.
const LAB: &str = "IBSCOPE_TEST_LAB";
/// A deadline that no start exceeds.
const LONG: Duration = Duration::from_mins(1);
/// Variable with the child's task: `start N` aborts after the N-th line, `start` and `undo` do all
/// of it.
const TASK: &str = "IBSCOPE_TEST_TASK";

/// Runs the task of the child, the process that the tests kill: this program, started for one test.
/// True in the child, once its task is done.
fn is_child() -> bool {
    let (Ok(folder), Ok(task)) = (std::env::var(LAB), std::env::var(TASK)) else { return false };
    let lab = SinkLab::of(Path::new(&folder));
    let (config, runner) = (lab.config(""), lab.runner());
    if task == "undo" {
        undo::job(&config, 7, &runner, in_seconds(60)).unwrap();
        return true;
    }
    let mut plan = lab.plan(7, "a", ["s1", "s2"], false);
    if fs::read_to_string(lab.mode_file()).unwrap() == "slow-switch" {
        lab.slow_down(&mut plan);
    }
    let journal = open(&config, &runner, plan, in_seconds(60)).unwrap();
    let mut left: usize = task.strip_prefix("start ").map_or(usize::MAX, |left| left.parse().unwrap());
    if left == 0 {
        process::abort();
    }
    journal.observe(Box::new(move |_| {
        left -= 1;
        if left == 0 {
            process::abort();
        }
    }));
    run::start(&config, &runner, journal, in_seconds(60)).unwrap();
    true
}

fn spawn(lab: &SinkLab, task: &str) -> process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed_start::after_each_line", "--nocapture"])
        .env(LAB, &lab.folder)
        .env(TASK, task)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn undo(lab: &SinkLab, when: &str) {
    let undone = undo::job(&lab.config(""), 7, &lab.runner(), in_seconds(60)).unwrap();
    for undone in undone {
        assert_eq!(undone.left, [""; 0], "{when}");
    }
    lab.assert_restored(when);
}

/// Lines: two clocks, two captures (doing, done, done), two mirrors (the same), the hostfile
/// (doing, done), started.
const LINES: usize = 2 + 3 + 3 + 2 + 1;

/// This is also the test that children run: there it only does their task.
#[test]
fn after_each_line() {
    if is_child() {
        return;
    }
    for line in 0..=LINES {
        let lab = SinkLab::new();
        let status = spawn(&lab, &format!("start {line}")).wait().unwrap();
        assert!(!status.success(), "the journal has no {line} lines");
        undo(&lab, &format!("killed after line {line}"));
    }
    // The journal has no further line.
    let lab = SinkLab::new();
    assert!(spawn(&lab, &format!("start {}", LINES + 1)).wait().unwrap().success());
    undo(&lab, "not killed");
}

#[test]
fn at_any_moment_of_the_start() {
    for step in 0..16 {
        let lab = SinkLab::new();
        let mut child = spawn(&lab, "start");
        thread::sleep(Duration::from_millis(step * 45));
        child.kill().unwrap();
        child.wait().unwrap();
        undo(&lab, &format!("killed after {} ms of the start", step * 45));
    }
}

#[test]
fn at_any_moment_of_the_end() {
    for step in 0..12 {
        let lab = SinkLab::new();
        let config = lab.config("");
        start(&config, &lab.runner(), lab.plan(7, "a", ["s1", "s2"], false), LONG).unwrap();
        let mut child = spawn(&lab, "undo");
        thread::sleep(Duration::from_millis(step * 45));
        child.kill().unwrap();
        child.wait().unwrap();
        undo(&lab, &format!("killed after {} ms of the end", step * 45));
        // However often it was attempted, all captures are there, and in one manifest.
        let captures = names(&lab.folder.join("captures"));
        assert_eq!(captures, ["a-s1.log", "a-s1.pcap", "a-s2.log", "a-s2.pcap"]);
    }
}

/// A process that is killed while it writes the hostfile leaves the content under another name.
#[test]
fn in_the_middle_of_the_hostfile() {
    let lab = SinkLab::new();
    let mut child = spawn(&lab, &format!("start {}", LINES - 2));
    assert!(!child.wait().unwrap().success());
    let hostfile = lab.hostfile(7);
    let name = hostfile.file_name().unwrap().to_string_lossy();
    fs::write(hostfile.with_file_name(format!(".{name}.part-{}", child.id())), "n1\n").unwrap();
    undo(&lab, "killed in the middle of the hostfile");
}

/// A launch whose outcome is unknown: whoever undoes it either finds the process, or keeps it from
/// starting.
#[test]
fn a_canceled_launch_does_not_start_later() {
    use ibscope_orchestrator::remote::process::{LaunchCancellation, RemoteNode};
    let lab = SinkLab::new();
    let runner = lab.runner();
    let node = RemoteNode { runner: &runner, name: Some("s1"), timeout: Duration::from_secs(10) };
    for round in 0..20 {
        let step = lab.capture(&format!("r{round}"), "s1");
        let (claimed, launched) = thread::scope(|scope| {
            let launched = scope.spawn(|| node.launch(&step));
            thread::sleep(Duration::from_micros(round * 700));
            (node.cancel_launch(&step.log).unwrap(), launched.join().unwrap())
        });
        // One of the two has created the log.
        assert_eq!(
            claimed == LaunchCancellation::AlreadyStarted,
            launched.is_ok(),
            "round {round}: {claimed:?} {launched:?}"
        );
        if let Ok(process) = launched {
            // The process prints its id just before it becomes the program. Until then it is found
            // as a launch, so that nobody takes it for ended.
            let found = loop {
                let found = node.find_capture(&step).unwrap();
                assert!(found.launching, "round {round}: the supervisor is not found");
                if !found.processes.is_empty() {
                    break found.processes;
                }
            };
            assert_eq!(found, std::slice::from_ref(&process));
            assert!(
                node.signal(&process, ibscope_orchestrator::remote::process::Signal::Int, Duration::from_secs(10))
                    .unwrap()
            );
            // Another process with the same id would have another start time: it is not signaled.
            let other = ibscope_orchestrator::remote::process::RemoteProcess { pid: process::id(), ..process };
            assert!(!node.is_alive(&other).unwrap());
            assert!(node.signal(&other, ibscope_orchestrator::remote::process::Signal::Kill, Duration::ZERO).unwrap());
        } else {
            assert!(node.find_capture(&step).unwrap().processes.is_empty());
        }
    }
    crate::lab::wait_until("supervisors end", || lab.processes().is_empty());
}

/// If the process that runs a command to mirror a port is killed, the command continues. It must
/// not switch the port on after the port was switched off.
#[test]
fn in_the_middle_of_a_slow_command() {
    let lab = SinkLab::new();
    lab.misbehave("slow-switch");
    let mut child = spawn(&lab, "start");
    let state = lab.folder.join("state");
    // Until the mirrors are begun, which writes the second entry `doing`.
    let is_mirroring = || {
        let journal = names(&state).into_iter().find(|name| name.ends_with(".journal"));
        let text = journal.map(|name| fs::read_to_string(state.join(name)).unwrap()).unwrap_or_default();
        text.matches("\"doing\"").count() == 2
    };
    crate::lab::wait_until("the mirrors are begun", is_mirroring);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(lab.mirrored(), [""; 0], "the switch is slower than this test");
    undo(&lab, "killed in the middle of a slow command");
    // Longer than the command takes.
    thread::sleep(Duration::from_millis(2500));
    assert_eq!(lab.mirrored(), [""; 0]);
}

/// The journal that a start left, truncated at every byte: without its first line it is refused,
/// and nothing panics.
#[test]
fn with_a_journal_truncated_at_any_byte() {
    let lab = SinkLab::new();
    let config = lab.config("");
    start(&config, &lab.runner(), lab.plan(7, "a", ["s1", "s2"], false), LONG).unwrap();
    let state = State::open(&config.run.state_dir).unwrap();
    let path = state.journals().unwrap().remove(0).path;
    let whole = fs::read(&path).unwrap();
    let lines = |bytes: &[u8]| bytes.split(|byte| *byte == b'\n').count() - 1;
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let record = state.journals().unwrap().remove(0).record;
        // A journal has its name once its first line is on the disk; after that, each complete line
        // counts.
        assert_eq!(record.is_ok(), lines(&whole[..length]) > 0, "{length} bytes");
    }
    // Truncated within the line that records the start.
    fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    undo(&lab, "journal truncated in its last line");
}

/// A change of a journal's text.
type Change = fn(&str) -> String;

/// Without its plan, a journal is refused and stays, and nothing changes. A fault in a later line
/// does not keep the run from being undone.
#[test]
fn a_damaged_journal_is_undone_if_it_has_its_plan() {
    let lab = SinkLab::new();
    let config = lab.config("");
    let begun = || {
        start(&config, &lab.runner(), lab.plan(7, "a", ["s1", "s2"], false), LONG).unwrap();
        let path = State::open(&config.run.state_dir).unwrap().journals().unwrap().remove(0).path;
        (fs::read_to_string(&path).unwrap(), path)
    };
    let (summed, path) = begun();
    let refused = |text: &str, what: &str| {
        fs::write(&path, text).unwrap();
        let message = undo::job(&config, 7, &lab.runner(), in_seconds(60)).unwrap_err().to_string();
        assert!(message.contains(what) && message.contains("undo the run by hand"), "{message}");
        assert_eq!(lab.mirrored().len(), 4, "nothing changes without a plan");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "the journal stays");
    };
    // Other ports and paths would be undone instead of the right ones.
    for (right, wrong) in [("1000-1\"", "1000-3\""), ("captures/a-s1", "captures/a-s3")] {
        refused(&summed.replace(right, wrong), "line 1: its checksum is wrong");
    }
    let first = summed.find('\n').unwrap();
    for length in [0, 1, first / 2, first] {
        refused(&summed[..length], "line 1: it is missing or truncated");
    }
    refused(&summed[first + 1..], "line 1: its checksum is wrong");
    // In the format of earlier versions, without checksums.
    let without =
        |text: &str| -> String { text.lines().flat_map(|line| [line.split('\t').next().unwrap(), "\n"]).collect() };
    let second = without(&summed).lines().nth(1).unwrap().to_owned();
    refused(&format!("{second}\n"), "line 1: it does not begin with the plan");
    fs::write(&path, &summed).unwrap();
    undo(&lab, "journal repaired");
    let remove_captures = || {
        for name in names(&lab.folder.join("captures")) {
            fs::remove_file(lab.folder.join("captures").join(name)).unwrap();
        }
    };
    remove_captures();

    let later: [(&str, bool, Change); 4] = [
        ("a changed word", true, |text| text.replace("\"done\"", "\"doing\"")),
        ("an unknown entry", false, |text| text.replacen("\"doing\"", "\"did\"", 1)),
        ("a step that the plan does not have", false, |text| text.replacen("\"step\":0", "\"step\":99", 1)),
        ("another version", false, |text| text.replacen("\"version\":2", "\"version\":9", 1)),
    ];
    for (what, has_sums, change) in later {
        let (summed, path) = begun();
        let text = if has_sums { summed } else { without(&summed) };
        let damaged = change(&text);
        assert_ne!(damaged, text, "{what}");
        fs::write(&path, &damaged).unwrap();
        undo(&lab, what);
        // The captures may have packets of the job, so they are kept.
        assert_eq!(names(&lab.folder.join("captures")), ["a-s1.log", "a-s1.pcap", "a-s2.log", "a-s2.pcap"], "{what}");
        remove_captures();
    }
}
