//! The command `watch`: it follows growing input, and its totals equal those of `analyze`.

use crate::runs::{self, decompressed};
use crate::tools::{HEADER_BYTES, command, ibscope, sample, samples_folder, walk};
use ibscope::model::profile::{ConnectionRow, CoverageState};
use ibscope::model::sampling::Estimate;
use ibscope::model::{PairEstimators, TrafficKind, TrustVerdict};
use ibscope::pipeline;
use ibscope_samples::hard::Recording;
use ibscope_samples::hard::partial::{SamplingScheme, SamplingUnit, subsample};
use ibscope_samples::wrap::in_sflow;
use ibscope_samples::{Random, SampleFraming, SampleKind};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A summary without the line that names the input.
fn totals(text: &str) -> String {
    let from = text.find("input  ").unwrap_or_else(|| panic!("no totals in: {text}"));
    text[from..].lines().skip(1).flat_map(|line| [line, "\n"]).collect()
}

fn analyzed(path: &Path) -> String {
    let ran = ibscope(["analyze", path.to_str().expect("path")]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // `watch` shows no findings.
    totals(ran.stdout.split("findings  ").next().expect("text"))
}

fn fifo(folder: &Path) -> PathBuf {
    let place = folder.join("fifo");
    let made = Command::new("mkfifo").arg(&place).status().expect("mkfifo");
    assert!(made.success());
    place
}

/// Starts `watch` with these arguments.
fn watch(arguments: &[&str], place: &Path) -> Child {
    let mut command = command(["watch"].iter().chain(arguments));
    command.arg(place).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
}

fn signal(child: &Child, name: &str) {
    let done = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().expect("kill");
    assert!(done.success());
}

fn ended(child: Child) -> String {
    let output = child.wait_with_output().expect("ended");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.as_ref()), (Some(0), ""), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).expect("text")
}

/// Generated packets, each twice, at 100 000 per second, as a capture program writes them.
#[test]
fn a_fifo_is_followed_at_100_000_packets_a_second() {
    const PER_SECOND: usize = 100_000;
    let folder = tempfile::tempdir().expect("folder");
    let options = ibscope_samples::SampleOptions {
        framing: SampleFraming::Native,
        kind: SampleKind::Small,
        bytes: 20 << 20,
        lids: 6,
        mirror: 2,
        seed: 5,
        ..ibscope_samples::SampleOptions::default()
    };
    let mut bytes = Vec::new();
    let generated = ibscope_samples::generate(&options, &mut bytes).expect("generated");
    let file = folder.path().join("all.pcap");
    fs::write(&file, &bytes).expect("written");
    let place = fifo(folder.path());
    let child = watch(&["--interval", "200ms"], &place);
    let mut out = File::options().write(true).open(&place).expect("fifo");
    let records = walk(&bytes);
    out.write_all(&bytes[..HEADER_BYTES]).expect("header");
    let start = Instant::now();
    for (index, records) in records.chunks(PER_SECOND / 1000).enumerate() {
        let from = records.first().expect("records").place.start;
        out.write_all(&bytes[from..records.last().expect("records").place.end]).expect("records");
        let due = start + Duration::from_millis(index as u64 + 1);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    drop(out);
    let shown = ended(child);
    assert_eq!(totals(&shown), analyzed(&file));
    let packets =
        |line: &str| line[38..53].replace(' ', "").parse::<u64>().unwrap_or_else(|_| panic!("packets in: {line}"));
    let seen: Vec<u64> = shown.lines().skip(1).take_while(|line| !line.is_empty()).map(packets).collect();
    assert!(!seen.is_empty() && seen.is_sorted(), "{seen:?}");
    assert!(*seen.last().expect("looks") <= generated.records / 2, "copies are no packets: {seen:?}");
}

/// MPI, retransmissions, copies, other frames: for any content of a capture, in small pieces.
#[test]
fn totals_of_recorded_traffic_equal_those_of_analyze() {
    let folder = tempfile::tempdir().expect("folder");
    let place = fifo(folder.path());
    for name in ["ucx-rc-ring2-loss1", "openib-mixed-4x1", "ucx-rc-ring2.node1", "ucx-ud-ring2"] {
        let expected = analyzed(&sample(name));
        assert_eq!(totals(&ended(watch(&["--once"], &sample(name)))), expected, "{name}: the file as it is");
        let bytes = decompressed(&sample(name));
        let child = watch(&[], &place);
        let mut out = File::options().write(true).open(&place).expect("fifo");
        // Pieces that end anywhere: inside the header, inside records.
        for piece in bytes.chunks(977) {
            out.write_all(piece).expect("written");
        }
        drop(out);
        assert_eq!(totals(&ended(child)), expected, "{name}: from a FIFO");
    }
}

/// Reads lines until one satisfies `is_it`.
fn wait_for(lines: &mut impl Iterator<Item = std::io::Result<String>>, is_it: impl Fn(&str) -> bool) {
    assert!(lines.map(|line| line.expect("line")).any(|line| is_it(&line)), "it ended before");
}

/// A number of packets with groups of three digits, as in the output.
fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let parts: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|part| std::str::from_utf8(part).expect("digits")).collect();
    format!(" {} ", parts.join(" "))
}

/// A capture of a mebibyte in which every packet appears once.
fn generated() -> Vec<u8> {
    let options = ibscope_samples::SampleOptions {
        framing: SampleFraming::Roce,
        kind: SampleKind::Small,
        bytes: 1 << 20,
        lids: 4,
        mirror: 1,
        seed: 9,
        ..ibscope_samples::SampleOptions::default()
    };
    let mut bytes = Vec::new();
    ibscope_samples::generate(&options, &mut bytes).expect("generated");
    bytes
}

/// The number of packets that is shown after some records.
#[test]
fn a_file_is_followed_until_a_signal_and_a_folder_through_its_files() {
    let bytes = generated();
    let records = walk(&bytes);
    let cut = records[records.len() / 3].place.start;
    let second = records[records.len() / 2].place.start;
    for is_folder in [false, true] {
        let folder = tempfile::tempdir().expect("folder");
        let whole = folder.path().join("whole");
        fs::create_dir(&whole).expect("folder");
        let all = whole.join("all.pcap");
        fs::write(&all, &bytes).expect("written");
        let place = folder.path().join("live");
        fs::create_dir(&place).expect("folder");
        let first = place.join("sink.pcap9");
        // The file ends inside its header at first.
        fs::write(&first, &bytes[..10]).expect("written");
        let mut child = watch(&["--interval", "100ms"], if is_folder { &place } else { &first });
        let mut lines = BufReader::new(child.stdout.take().expect("output")).lines();
        let mut out = File::options().append(true).open(&first).expect("file");
        out.write_all(&bytes[10..cut - 5]).expect("written");
        // The last record is incomplete.
        wait_for(&mut lines, |line| line.contains(&grouped(records.len() / 3 - 1)));
        out.write_all(&bytes[cut - 5..second]).expect("written");
        wait_for(&mut lines, |line| line.contains(&grouped(records.len() / 2)));
        let rest = &bytes[second..];
        if is_folder {
            fs::write(place.join("notes.txt"), "not a capture, and longer than its header").expect("written");
            fs::write(place.join("sink.pcap10"), [&bytes[..HEADER_BYTES], rest].concat()).expect("written");
        } else {
            out.write_all(rest).expect("written");
        }
        wait_for(&mut lines, |line| line.contains(&grouped(records.len())));
        signal(&child, if is_folder { "INT" } else { "TERM" });
        let shown: String = lines.map(|line| line.expect("line") + "\n").collect();
        let mut expected = analyzed(&all);
        let mut found = totals(&shown);
        if is_folder {
            let (notes, others): (Vec<&str>, Vec<&str>) = found.lines().partition(|line| line.starts_with("note "));
            assert!(
                notes.len() == 1 && notes[0].contains("notes.txt") && notes[0].contains("not a capture"),
                "{notes:?}"
            );
            found = others.join("\n") + "\n";
        }
        assert_eq!(std::mem::take(&mut found), std::mem::take(&mut expected), "folder: {is_folder}");
        let status = child.wait().expect("ended");
        let mut stderr = String::new();
        child.stderr.take().expect("stderr").read_to_string(&mut stderr).expect("text");
        assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
    }
}

/// A capture program that starts again with the same file truncates it: the packets of both captures
/// count, no matter how much of the first one was there when `watch` began.
#[test]
fn a_capture_that_starts_again_in_its_file_is_followed() {
    let bytes = generated();
    let records = walk(&bytes);
    let half = records[records.len() / 2].place.start;
    let again = [&bytes[..HEADER_BYTES], &bytes[half..]].concat();
    // All at once, and with pauses in which the file is empty or ends after its header.
    for (at_open, pieces) in [
        (0, [].as_slice()),
        (HEADER_BYTES, [].as_slice()),
        (half, [].as_slice()),
        (0, [0, HEADER_BYTES].as_slice()),
        (HEADER_BYTES, [0, HEADER_BYTES, 1000].as_slice()),
    ] {
        let folder = tempfile::tempdir().expect("folder");
        let all = folder.path().join("all.pcap");
        fs::write(&all, &bytes).expect("written");
        let place = folder.path().join("sink.pcap");
        fs::write(&place, &bytes[..at_open]).expect("written");
        let mut child = watch(&["--interval", "100ms"], &place);
        let mut lines = BufReader::new(child.stdout.take().expect("output")).lines();
        // The program opens the file meanwhile.
        std::thread::sleep(Duration::from_millis(500));
        File::options().append(true).open(&place).expect("file").write_all(&bytes[at_open..half]).expect("written");
        wait_for(&mut lines, |line| line.contains(&grouped(records.len() / 2)));
        let mut out = File::create(&place).expect("truncated");
        let mut written = 0;
        for piece in pieces {
            out.write_all(&again[written..*piece]).expect("written");
            written = *piece;
            std::thread::sleep(Duration::from_secs(1));
        }
        out.write_all(&again[written..]).expect("written");
        wait_for(&mut lines, |line| line.contains(&grouped(records.len())));
        signal(&child, "INT");
        let shown: String = lines.map(|line| line.expect("line") + "\n").collect();
        assert_eq!(totals(&shown), analyzed(&all), "{at_open} bytes at first, then {pieces:?}");
        assert_eq!(child.wait().expect("ended").code(), Some(0));
    }
}

/// `tcpdump -z gzip` replaces each file by a compressed one when it is done.
#[test]
fn files_that_are_compressed_when_they_are_done_count_once() {
    let bytes = generated();
    let records = walk(&bytes);
    let third = records.len() / 3;
    let part = |from: usize, to: usize| {
        [&bytes[..HEADER_BYTES], &bytes[records[from].place.start..records[to - 1].place.end]].concat()
    };
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).expect("gzip");
        encoder.finish().expect("gzip")
    };
    let folder = tempfile::tempdir().expect("folder");
    let all = folder.path().join("all.pcap");
    fs::write(&all, &bytes).expect("written");
    let place = folder.path().join("live");
    fs::create_dir(&place).expect("folder");
    let at = |name: &str| place.join(name);
    let parts = [part(0, third), part(third, 2 * third), part(2 * third, records.len())];
    fs::write(at("sink.pcap0"), &parts[0]).expect("written");
    let mut child = watch(&["--interval", "100ms"], &place);
    let mut lines = BufReader::new(child.stdout.take().expect("output")).lines();
    wait_for(&mut lines, |line| line.contains(&grouped(third)));
    fs::write(at("sink.pcap1"), &parts[1]).expect("written");
    wait_for(&mut lines, |line| line.contains(&grouped(2 * third)));
    // Longer than the pause between two looks for a new file.
    let wait = || std::thread::sleep(Duration::from_millis(1500));
    fs::write(at("sink.pcap0.gz"), gzip(&parts[0])).expect("written");
    fs::remove_file(at("sink.pcap0")).expect("removed");
    wait();
    fs::write(at("sink.pcap2"), &parts[2]).expect("written");
    wait_for(&mut lines, |line| line.contains(&grouped(records.len())));
    fs::write(at("sink.pcap1.zst"), zstd::encode_all(&parts[1][..], 1).expect("zstd")).expect("written");
    fs::remove_file(at("sink.pcap1")).expect("removed");
    wait();
    signal(&child, "INT");
    let shown: String = lines.map(|line| line.expect("line") + "\n").collect();
    assert_eq!(totals(&shown), analyzed(&all));
    assert_eq!(child.wait().expect("ended").code(), Some(0));
}

/// A rotated capture whose files begin with the last records of the file before: `analyze` compares the
/// files, `watch` does not.
#[test]
fn packets_that_two_files_may_share_are_reported() {
    let bytes = decompressed(&runs::named("ompi-openib-ring2").node(1));
    let records = walk(&bytes);
    assert!(records.is_sorted_by_key(|record| record.time_ns));
    let third = records.len() / 3;
    let folder = tempfile::tempdir().expect("folder");
    for repeated in [0, 50] {
        let place = folder.path().join(repeated.to_string());
        fs::create_dir(&place).expect("folder");
        let mut shared = 0;
        for (part, from) in [0, third, 2 * third].into_iter().enumerate() {
            let to = if part == 2 { records.len() } else { from + third };
            let first = if part == 0 { 0 } else { from - repeated };
            let content = [&bytes[..HEADER_BYTES], &bytes[records[first].place.start..records[to - 1].place.end]];
            fs::write(place.join(format!("sink.pcap{part}")), content.concat()).expect("written");
            let own = records[first..from].iter();
            shared += own.filter(|record| runs::is_roce(record.data(&bytes))).count() as u64;
        }
        let job = folder.path().join(format!("{repeated}.ibp"));
        let ran = command(["watch", "--once", "-o"]).args([&job, &place]).output().expect("started");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let found = pipeline::load(&job).expect("a profile");
        assert_eq!(found.coverage.overlap_left_out, shared, "{repeated}");
        let is_unknown = |row: &ConnectionRow| row.coverage.state == CoverageState::Unknown;
        let mut rows = found.connections.iter().filter(|row| row.kind == TrafficKind::Data);
        assert_eq!(rows.all(is_unknown), repeated > 0, "{repeated}: {:?}", found.connections);
        let note = "a file begins before the end of the file before it";
        assert_eq!(found.notes.iter().any(|text| text.contains(note)), repeated > 0, "{:?}", found.notes);
        assert_eq!(found.trust.verdict == TrustVerdict::Complete, repeated == 0, "{:?}", found.trust);
    }
}

#[test]
fn invalid_inputs_are_errors() {
    let folder = tempfile::tempdir().expect("folder");
    let text = folder.path().join("notes.txt");
    fs::write(&text, "not a capture, and longer than its header").expect("written");
    let missing = folder.path().join("missing");
    for (place, expected) in [
        (folder.path(), "no file in this folder is a capture"),
        (&text, "not a capture file"),
        (&missing, "cannot be opened"),
    ] {
        let ran = ibscope(["watch", "--once", place.to_str().expect("path")]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
}

/// `watch` on a pseudo-terminal of 110 columns.
struct WatchScreen {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    /// Everything that it wrote.
    shown: Vec<u8>,
}

impl WatchScreen {
    fn start(file: &Path) -> Self {
        let program = format!(
            "stty rows 30 cols 110; exec {} watch --interval 100ms --hosts {} {}",
            env!("CARGO_BIN_EXE_ibscope"),
            samples_folder().join("hosts-native.csv").display(),
            file.display()
        );
        let mut child = Command::new("script")
            .args(["-qefc", &program, "/dev/null"])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script");
        let (keys, screen) = (child.stdin.take().expect("keys"), child.stdout.take().expect("screen"));
        Self { child, keys, screen, shown: Vec::new() }
    }

    /// Reads until the screen has shown the words, from byte `from` of its output on. Blank cells are
    /// not drawn, so only single words are contiguous.
    fn wait_for(&mut self, from: usize, words: &[&str]) {
        let mut bytes = [0; 4096];
        let start = Instant::now();
        loop {
            let new = self.shown.get(from..).unwrap_or_default();
            let has = |word: &&str| new.windows(word.len()).any(|part| part == word.as_bytes());
            if words.iter().all(has) {
                break;
            }
            // The program draws ten times per second, so reading does not block for long.
            let count = self.screen.read(&mut bytes).expect("screen");
            let is_running = count > 0 && start.elapsed() < Duration::from_mins(1);
            assert!(is_running, "no {words:?}: {}", String::from_utf8_lossy(&self.shown));
            self.shown.extend(&bytes[..count]);
        }
    }

    /// Process id of the program, which replaced the shell of `script`.
    fn program(&self) -> String {
        let program = format!("^{} watch", env!("CARGO_BIN_EXE_ibscope"));
        let parent = self.child.id().to_string();
        let found = Command::new("pgrep").args(["-f", "-P", &parent, &program]).output().expect("pgrep");
        String::from_utf8(found.stdout).expect("text").trim().to_owned()
    }

    /// Presses a key, and waits for words that were drawn after it.
    fn press(&mut self, key: &str, words: &[&str]) {
        let from = self.shown.len();
        self.keys.write_all(key.as_bytes()).expect("key");
        self.wait_for(from, words);
    }

    /// Everything that it wrote, until its end.
    fn end(mut self) -> String {
        self.screen.read_to_end(&mut self.shown).expect("screen");
        assert!(self.child.wait().expect("ended").success());
        String::from_utf8_lossy(&self.shown).into_owned()
    }
}

/// Each key draws the whole screen, so the words after it are those of the new view.
#[test]
fn keys_change_the_table() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("sink.pcap");
    fs::write(&file, decompressed(&sample("ucx-rc-ring2-loss1"))).expect("written");
    let mut screen = WatchScreen::start(&file);
    screen.wait_for(0, &["following", "node1", "rate"]);
    screen.press("l", &["received", "direction"]);
    screen.press("s", &["bytes"]);
    screen.press("p", &["paused"]);
    screen.press("l", &["sender"]);
    screen.press("p", &["following"]);
    screen.press("q", &[]);
    screen.end();
}

/// With a pseudo-terminal: the program draws, `q` ends it, and the terminal is restored.
#[test]
fn the_terminal_is_restored() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("sink.pcap");
    fs::write(&file, decompressed(&sample("ucx-rc-ring2-loss1"))).expect("written");
    for key in ["q", "\u{3}", "TERM"] {
        let mut screen = WatchScreen::start(&file);
        screen.wait_for(0, &["following", "node1"]);
        if key == "TERM" {
            assert!(Command::new("kill").args(["-s", "TERM", &screen.program()]).status().expect("kill").success());
        } else {
            screen.press(key, &[]);
        }
        let text = screen.end();
        let (screen, after) = text.rsplit_once("\u{1b}[?1049l").expect("the screen is left");
        assert!(screen.contains("\u{1b}[?1049h") && screen.contains("transport"), "{text}");
        assert!(after.contains("\u{1b}[?25h") || screen.ends_with("\u{1b}[?25h"), "the cursor is shown: {after}");
        // The totals of everything read until then.
        assert!(after.contains("every packet appears twice") && after.contains("rank 1"), "the totals follow: {after}");
    }
}

/// The terminal disappears, as when its window is closed: the program ends instead of reading its end
/// forever.
#[test]
fn a_closed_terminal_ends_the_program() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("sink.pcap");
    fs::write(&file, decompressed(&sample("ucx-rc-ring2-loss1"))).expect("written");
    for _ in 0..5 {
        let mut screen = WatchScreen::start(&file);
        screen.wait_for(0, &["following", "node1"]);
        let id = screen.program();
        screen.child.kill().expect("script");
        screen.child.wait().expect("ended");
        let place = Path::new("/proc").join(&id);
        let start = Instant::now();
        while place.exists() {
            if start.elapsed() > Duration::from_mins(1) {
                _ = Command::new("kill").args(["-s", "KILL", &id]).status();
                panic!("process {id} did not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Samples of one in three packets arrive at a socket; three datagrams are lost, and one is no sFlow.
#[test]
fn sflow_from_a_socket_has_estimates_and_counts_lost_datagrams() {
    const LOST: [usize; 3] = [5, 6, 20];
    let folder = tempfile::tempdir().expect("folder");
    let profile = folder.path().join("job.ibp");
    let whole = Recording::read(&runs::named("mpich-rc-ring2").node(1)).expect("a recording");
    let packets = whole.records.iter().filter(|record| runs::is_roce(&record.data)).count() as u64;
    let choice = (SamplingUnit::Record, SamplingScheme::Random);
    let sample = subsample(&[whole], 1, 3, choice, &mut Random::new(4)).remove(0);
    let datagrams = in_sflow(&sample, 3, 5);
    let mut child = command(["watch", "--sflow", "127.0.0.1:0", "--lines", "--interval", "100ms", "-o"])
        .arg(&profile)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut notes = BufReader::new(child.stderr.take().expect("stderr")).lines();
    let first = notes.next().expect("a line").expect("text");
    let address: SocketAddr = first.rsplit(' ').next().and_then(|text| text.parse().ok()).expect("an address");
    let agent = UdpSocket::bind("127.0.0.1:0").expect("socket");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    // After the headers of Ethernet, IP and UDP.
    let payload = |number: usize| &datagrams.records[number].data[14 + 20 + 8..];
    agent.send_to(b"no sFlow", address).expect("sent");
    for number in (0..datagrams.records.len()).filter(|number| !LOST.contains(number)) {
        agent.send_to(payload(number), address).expect("sent");
        // The socket has room for some sixty datagrams.
        std::thread::sleep(Duration::from_millis(10));
    }
    wait_for(&mut lines, |line| {
        line.contains("3 datagrams lost") && line.contains("counts of the sample; estimated total ~")
    });
    signal(&child, "INT");
    let rest: Vec<String> = lines.map(|line| line.expect("line")).collect();
    assert!(child.wait().expect("ended").success());
    let received = datagrams.records.len() - LOST.len() + 1;
    let note = format!(
        "{received} datagrams received, 3 datagrams lost between the agents and ibscope, by their sequence numbers; 1 datagram not sFlow version 5"
    );
    assert!(rest.iter().any(|line| line.contains(&note)), "{rest:#?}");
    let profile = pipeline::load(&profile).expect("a profile");
    let sampling = profile.sampling.expect("sampling");
    let lost: u64 =
        LOST.iter().map(|number| sample.records.chunks(5).nth(*number).expect("samples").len() as u64).sum();
    assert_eq!(profile.coverage.lost_mirrored_frames(), lost);
    // Samples of any frames were lost.
    let taken = sample.records.len() as f64 - lost as f64;
    assert!((sampling.one_in.expect("a rate") - 3.0 * (1.0 + lost as f64 / taken)).abs() < 1e-9);
    let mut all = PairEstimators::default();
    profile.connections.iter().for_each(|row| all.merge(&PairEstimators::of(row.sampled.as_deref().expect("samples"))));
    let Estimate::Known(value) = all.packets.result(all.quality) else { panic!("{:?}", profile.notes) };
    assert!((value.low..=value.high).contains(&packets), "{packets} {value:?}");
}

#[test]
fn an_address_of_another_machine_is_refused() {
    let ran = ibscope(["watch", "--sflow", "192.0.2.1:6343"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("cannot receive sFlow on 192.0.2.1:6343"), "{}", ran.stderr);
    let ran = ibscope(["watch", "--sflow", "127.0.0.1:0", "sink.pcap"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
}
