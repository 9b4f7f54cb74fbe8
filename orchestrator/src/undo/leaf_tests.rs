//! The end of a job whose fabric changed: other LIDs, a switch that was rebooted, a sink with another
//! address. Nothing is written to another switch, and the manifest names no port wrongly.

use super::*;
use crate::capture::CaptureLimits;
use crate::config::CaptureBackend;
use crate::fabric::NodePort;
use crate::job::SlurmJob;
use crate::journal::{FetchedFile, RunOrigin};
use crate::manifest::Manifest;
use crate::mirror::{self, MirrorRequest};
use crate::plan::{CapturePlan, Sink};
use crate::remote::process::RemoteProcess;
use crate::remote::{CommandOutput, FilePart, LocalRunner, RemoteError, Runner, TransferTimeouts};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const LEAF: u64 = 0xb859_9f03_0000_1000;
const OTHER_LEAF: u64 = LEAF + 1;
/// LIDs of the plan.
const LEAF_LID: u16 = 2;
const OTHER_LID: u16 = 4;
/// GUIDs of the ports of n1, n2 and the sink, whose LIDs in the plan are 17, 18 and 25.
const PORTS: [u64; 3] = [0x1070_fd03_0000_0011, 0x1070_fd03_0000_0021, 0x1070_fd03_0000_0031];

/// A fabric with two leaves, and the registers `enable` of their ports by GUID, port and direction.
struct Switches {
    /// Lines of `ibnetdiscover -p`; `None` if it fails.
    fabric: Mutex<Option<String>>,
    /// LIDs of the leaves.
    leaves: Mutex<BTreeMap<u16, u64>>,
    registers: Mutex<BTreeMap<(u64, String), bool>>,
    /// LIDs that mstreg was called with.
    called: Mutex<Vec<String>>,
    here: LocalRunner,
}

/// `ibnetdiscover -p` of the leaves with these LIDs, and of n1, n2 and the sink with these LIDs.
fn fabric(leaves: [u16; 2], hosts: [u16; 3]) -> String {
    let mut text = String::new();
    for (guid, lid) in [LEAF, OTHER_LEAF].into_iter().zip(leaves) {
        writeln!(text, "SW {lid:5} 40 {guid:#018x} 4x SDR 'leaf'").unwrap();
    }
    for (place, (guid, lid)) in PORTS.into_iter().zip(hosts).enumerate() {
        let port = place + 1;
        writeln!(text, "CA {lid:5}  1 {guid:#018x} 4x HDR - SW {:5} {port:2} {LEAF:#018x} ( 'n' - 'leaf' )", leaves[0])
            .unwrap();
    }
    text
}

impl Switches {
    fn new() -> Self {
        let switches = Self {
            fabric: Mutex::default(),
            leaves: Mutex::default(),
            registers: Mutex::default(),
            called: Mutex::default(),
            here: LocalRunner::default(),
        };
        switches.set_lids([LEAF_LID, OTHER_LID], [17, 18, 25]);
        // Another job mirrors the same ports of the other leaf, by the same analyzer.
        for leaf in [LEAF, OTHER_LEAF] {
            for index in ["MPAT pa_id=0", "MPAR local_port=1,i_e=1,lp_msb=0", "MPAR local_port=2,i_e=1,lp_msb=0"] {
                switches.registers.lock().unwrap().insert((leaf, index.to_owned()), true);
            }
        }
        switches
    }

    fn set_lids(&self, leaves: [u16; 2], hosts: [u16; 3]) {
        *self.leaves.lock().unwrap() = leaves.into_iter().zip([LEAF, OTHER_LEAF]).collect();
        *self.fabric.lock().unwrap() = Some(fabric(leaves, hosts));
    }

    /// Number of registers of a leaf that are on.
    fn on(&self, leaf: u64) -> usize {
        self.registers.lock().unwrap().iter().filter(|((of, _), is_on)| *of == leaf && **is_on).count()
    }

    fn mstreg(&self, argv: &[&str]) -> Result<String, String> {
        let [_, "-d", device, "--yes", "--reg_name", register, "-i", index, "-o", _, access @ ..] = argv else {
            panic!("{argv:?}");
        };
        let lid = device.strip_prefix("lid-").expect("a LID");
        self.called.lock().unwrap().push(lid.to_owned());
        let leaf = self.leaves.lock().unwrap().get(&lid.parse().expect("a LID")).copied();
        let leaf = leaf.ok_or_else(|| format!("-E- {device}: Failed to read device ID"))?;
        let key = (leaf, format!("{register} {index}"));
        let mut registers = self.registers.lock().unwrap();
        match access {
            ["--set", "enable=0" | "e=0"] => _ = registers.insert(key, false),
            ["--get"] => {
                let is_on = u8::from(registers.get(&key).copied().unwrap_or(false));
                return Ok(format!(
                    "e | 0x{is_on:08x}\nenable | 0x{is_on:08x}\npa_id | 0x00000000\nsystem_port | 0x00000003\nspan_type | 0x00000004\n\
                     be | 0x00000001\n"
                ));
            }
            _ => panic!("{argv:?}"),
        }
        Ok(String::new())
    }
}

impl Runner for Switches {
    fn run(&self, node: Option<&str>, argv: &[String], timeout: Duration) -> Result<CommandOutput, RemoteError> {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let failed = |what: String| CommandOutput { status: 1, stdout: Vec::new(), stderr: what.into_bytes() };
        let succeeded = |text: String| CommandOutput { stdout: text.into_bytes(), ..CommandOutput::default() };
        Ok(match words[..] {
            ["/usr/bin/mstreg", ..] => self.mstreg(&words).map_or_else(failed, succeeded),
            ["/usr/sbin/ibnetdiscover", ..] => {
                let fabric = self.fabric.lock().unwrap().clone();
                fabric.map_or_else(|| failed("no port is active".to_owned()), succeeded)
            }
            ["/usr/sbin/ibstat", ..] => failed("no adapter".to_owned()),
            _ => return self.here.run(node, argv, timeout),
        })
    }
}

impl Files for Switches {
    fn read_file(
        &self,
        node: &str,
        part: FilePart<'_>,
        timeouts: TransferTimeouts,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<String, RemoteError> {
        self.here.read_file(node, part, timeouts, sink)
    }
}

/// A site with mstreg, and a run of job 7 that mirrors ports 1 and 2 of a leaf to port 3.
struct MirrorSite {
    folder: tempfile::TempDir,
    config: Config,
    switches: Switches,
    /// The capture of the run: a process with its arguments that waits for its input.
    capture: Child,
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn port(node: &str, port_guid: u64, lid: u16, leaf_port: u8) -> NodePort {
    NodePort {
        node: node.to_owned(),
        ca: "mlx5_0".to_owned(),
        port: 1,
        port_guid,
        lid,
        lmc: 0,
        rate_gbits: 200.0,
        leaf_guid: LEAF,
        leaf_lid: LEAF_LID,
        leaf_port,
    }
}

fn text_of_config(folder: &Path, mirror: &str, nodes: &str) -> String {
    let at = folder.display();
    format!(
        "[ssh]\nkey = \"/k\"\nknown_hosts = \"/h\"\n[sinks]\nnodes = [\"s1\"]\n{mirror}\n[capture]\nbackend = \"ibdump\"\n\
         directory = \"{at}/captures\"\n[collect]\ndirectory = \"{at}/runs\"\n[run]\nstate_dir = \"{at}/state\"\nsyslog = false\n{nodes}"
    )
}

const MSTREG: &str = "[mirror]\nbackend = \"mstreg\"\n[mirror.mstreg]\ndirections = \"ingress\"";

impl MirrorSite {
    /// Starts the run. `mirror` is the section of the configuration.
    fn start(mirror: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = text_of_config(folder.path(), mirror, "");
        let config = Config::parse(&text, Path::new("x")).unwrap();
        fs::create_dir(&config.capture.directory).unwrap();
        let file = config.capture.directory.join("ibscope-7-s1.pcap");
        let path = file.display().to_string();
        let sink = port("s1", PORTS[2], 25, 3);
        let compute = vec![port("n1", PORTS[0], 17, 1), port("n2", PORTS[1], 18, 2)];
        let sources: Vec<&NodePort> = compute.iter().collect();
        let request = MirrorRequest { sources: &sources, sink: &sink, job: 7, analyzer: Some(0) };
        let mut mirrored = mirror::step(&config, &request).unwrap().unwrap();
        if config.mirror.command.is_some() {
            mirrored = mirror::step(&config, &MirrorRequest { analyzer: None, ..request }).unwrap().unwrap();
        }
        let step = CaptureStep {
            node: "s1".to_owned(),
            argv: ["/usr/bin/ibdump", "-w", &path].map(str::to_owned).to_vec(),
            log: file.with_extension("log"),
            file: file.clone(),
            backend: CaptureBackend::Ibdump,
            limits: CaptureLimits::default(),
            ring_files: None,
            is_profile: false,
        };
        let captured = Sink {
            node: "s1".to_owned(),
            port: sink.clone(),
            leaf_guid: LEAF,
            sources: vec![1, 2],
            mirrored_gbits: 400.0,
            file: file.clone(),
        };
        let plan = CapturePlan {
            job: SlurmJob { id: 7, nodes: vec!["n1".to_owned(), "n2".to_owned()], ..SlurmJob::default() },
            started_s: 1,
            compute,
            sinks: vec![captured],
            steps: vec![PlanStep::Capture(step), PlanStep::Mirror(mirrored)],
            warnings: Vec::new(),
            hostfile: Vec::new(),
        };
        let mut command = Command::new("/bin/sh");
        let capture = command.args(["-c", "read -r line", "sh", "-w", &path]).stdin(Stdio::piped()).spawn().unwrap();
        fs::write(&file, "packets").unwrap();
        fs::write(file.with_extension("log"), "").unwrap();
        let site = Self { folder, config, switches: Switches::new(), capture };
        let state = State::open(&site.config.run.state_dir).unwrap();
        let lock = state.lock_job(7, soon()).unwrap();
        let origin = RunOrigin { config_path: "x".into(), config_text: text, program: None };
        let journal = state.lock_plan(soon()).unwrap().create(plan, Some(origin), lock).unwrap();
        journal.write(&JournalEntry::Doing { at_ns: 1, steps: vec![0, 1] }).unwrap();
        for (step, process) in [(0, Some(site.process())), (1, None)] {
            journal.write(&JournalEntry::Done { at_ns: 2, step, process, ran: Vec::new() }).unwrap();
        }
        journal.write(&JournalEntry::Started { at_ns: 3 }).unwrap();
        site
    }

    /// The capture's process, as its launch reports it.
    fn process(&self) -> RemoteProcess {
        let pid = self.capture.id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let start_ticks = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned();
        RemoteProcess { pid, start_ticks, boot_id }
    }

    fn undo(&self) -> UndoReport {
        job(&self.config, 7, &self.switches, soon()).unwrap().remove(0)
    }

    fn manifest(report: &UndoReport) -> Manifest {
        assert_eq!(report.left, [""; 0]);
        Manifest::read(report.manifest.as_ref().expect("a manifest")).unwrap()
    }

    fn remarks(report: &UndoReport) -> String {
        report.captures[0].ended.as_ref().expect("an end").remarks.join("\n")
    }
}

impl Drop for MirrorSite {
    fn drop(&mut self) {
        let _ = self.capture.kill();
        let _ = self.capture.wait();
    }
}

#[test]
fn nothing_is_remarked_if_the_fabric_is_the_same() {
    let site = MirrorSite::start(MSTREG);
    let report = site.undo();
    let manifest = MirrorSite::manifest(&report);
    assert_eq!((site.switches.on(LEAF), site.switches.on(OTHER_LEAF)), (0, 3));
    assert_eq!(manifest.ports.iter().map(|port| port.lid).collect::<Vec<_>>(), [17, 18]);
    assert!(manifest.notes.iter().all(|note| !note.contains("LID") && !note.contains("mirrored")), "{manifest:?}");
}

/// The subnet manager exchanges the LIDs of two leaves: the registers of the other one, which belong to
/// another job, stay as they are.
#[test]
fn a_leaf_with_another_lid_is_written_and_the_leaf_with_its_old_lid_is_not() {
    let site = MirrorSite::start(MSTREG);
    site.switches.set_lids([OTHER_LID, LEAF_LID], [17, 18, 25]);
    let report = site.undo();
    assert_eq!(report.left, [""; 0]);
    assert_eq!((site.switches.on(LEAF), site.switches.on(OTHER_LEAF)), (0, 3));
    assert!(site.switches.called.lock().unwrap().iter().all(|lid| *lid == OTHER_LID.to_string()));
}

/// The leaf's LID is one that no switch had.
#[test]
fn a_leaf_with_an_unused_lid_is_written() {
    let site = MirrorSite::start(MSTREG);
    site.switches.set_lids([30, OTHER_LID], [17, 18, 25]);
    assert_eq!(site.undo().left, [""; 0]);
    assert_eq!((site.switches.on(LEAF), site.switches.on(OTHER_LEAF)), (0, 3));
}

/// A leaf that is gone, and a fabric that cannot be read: nothing is written, and the report names the
/// leaf. A later attempt continues.
#[test]
fn nothing_is_written_to_a_leaf_that_cannot_be_found() {
    let site = MirrorSite::start(MSTREG);
    let all = fabric([LEAF_LID, OTHER_LID], [17, 18, 25]);
    let without: String =
        all.lines().filter(|line| !line.contains(&format!("{LEAF:#018x}"))).flat_map(|line| [line, "\n"]).collect();
    for (found, expected) in [
        (Some(without), "leaf 0xb8599f0300001000 was LID 2 and is not there now"),
        (None, "leaf 0xb8599f0300001000: the fabric does not show whether LID 2 is still this switch"),
    ] {
        *site.switches.fabric.lock().unwrap() = found;
        let report = site.undo();
        let what = "nothing was written, and its ports 1, 2 may still be mirrored";
        assert!(!report.is_restored && report.left.len() == 1, "{:?}", report.left);
        assert!(report.left[0].starts_with(expected) && report.left[0].contains(what), "{:?}", report.left);
        assert_eq!((site.switches.on(LEAF), site.switches.on(OTHER_LEAF)), (3, 3));
        assert_eq!(*site.switches.called.lock().unwrap(), [""; 0]);
    }
    site.switches.set_lids([LEAF_LID, OTHER_LID], [17, 18, 25]);
    assert_eq!(site.undo().left, [""; 0]);
    assert_eq!((site.switches.on(LEAF), site.switches.on(OTHER_LEAF)), (0, 3));
}

/// A command of the site with `{leaf_lid}` gets the LID of now; one with `{leaf_guid}` needs no fabric.
#[test]
fn a_command_with_the_lid_of_a_leaf_gets_the_present_one() {
    for (placeholder, is_readable, expected) in
        [("{leaf_lid}", true, "30"), ("{leaf_guid}", false, "0xb8599f0300001000")]
    {
        let written = tempfile::tempdir().unwrap();
        let at = written.path().display();
        let mirror = format!(
            "[mirror]\nbackend = \"command\"\n[mirror.command]\non = [\"/bin/true\", \"{{port}}\"]\noff = [\"/bin/mkdir\", \"{at}/{placeholder}-{{port}}\"]"
        );
        let site = MirrorSite::start(&mirror);
        site.switches.set_lids([30, OTHER_LID], [17, 18, 25]);
        if !is_readable {
            *site.switches.fabric.lock().unwrap() = None;
        }
        assert_eq!(site.undo().left, [""; 0]);
        let mut names: Vec<String> = fs::read_dir(written.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, [format!("{expected}-1"), format!("{expected}-2")]);
    }
}

/// The switch was rebooted: its registers are zero. The first attempt to undo the run finds this out, and
/// the manifest names the port.
#[test]
fn a_port_that_is_no_longer_mirrored_is_remarked() {
    let site = MirrorSite::start(MSTREG);
    let key = (LEAF, "MPAR local_port=2,i_e=1,lp_msb=0".to_owned());
    site.switches.registers.lock().unwrap().insert(key, false);
    let report = site.undo();
    let note = "port 2 of leaf 0xb8599f0300001000 (n2) was no longer mirrored at the end of the job: the capture misses its packets from an \
                unknown time on; check whether the switch was rebooted";
    assert!(MirrorSite::remarks(&report).lines().any(|line| line == note), "{}", MirrorSite::remarks(&report));
    let manifest = MirrorSite::manifest(&report);
    assert!(manifest.notes.contains(&format!("s1: {note}")), "{:?}", manifest.notes);
    assert_eq!(manifest.mirrors[0].lost_ports, [2]);
}

/// The LIDs of two nodes are exchanged: their packets cannot be told apart, so nobody gets a wrong name.
#[test]
fn nodes_whose_lids_were_exchanged_are_not_named() {
    let site = MirrorSite::start(MSTREG);
    site.switches.set_lids([LEAF_LID, OTHER_LID], [18, 17, 25]);
    let report = site.undo();
    let note = "LIDs changed during the capture: n1 from 17 to 18, n2 from 18 to 17; packets do not show when, so the manifest has no node names \
                for the old LIDs that other ports have now (17, 18)";
    assert!(MirrorSite::remarks(&report).lines().any(|line| line == note), "{}", MirrorSite::remarks(&report));
    let manifest = MirrorSite::manifest(&report);
    assert!(manifest.notes.contains(&note.to_owned()), "{:?}", manifest.notes);
    assert_eq!((manifest.ports.len(), manifest.sinks.len()), (0, 1));
}

/// A node gets a LID that nobody had: its old LID is only its own.
#[test]
fn a_node_whose_old_lid_is_unused_keeps_its_name() {
    let site = MirrorSite::start(MSTREG);
    site.switches.set_lids([LEAF_LID, OTHER_LID], [40, 18, 25]);
    let manifest = MirrorSite::manifest(&site.undo());
    let note = "LIDs changed during the capture: n1 from 17 to 40; packets with the new LIDs 40 have no node name";
    assert!(manifest.notes.contains(&note.to_owned()), "{:?}", manifest.notes);
    assert_eq!(manifest.ports.iter().map(|port| port.lid).collect::<Vec<_>>(), [17, 18]);
}

#[test]
fn a_fabric_that_cannot_be_read_at_the_end_is_noted() {
    let mirror = "[mirror]\nbackend = \"command\"\n[mirror.command]\non = [\"/bin/true\", \"{port}\"]\noff = [\"/bin/true\", \"{port}\"]";
    let site = MirrorSite::start(mirror);
    *site.switches.fabric.lock().unwrap() = None;
    let manifest = MirrorSite::manifest(&site.undo());
    let note = "whether LIDs changed during the capture is unknown: ibnetdiscover -p failed here: no port is active; if they did, names of nodes \
                are wrong";
    assert!(manifest.notes.contains(&note.to_owned()), "{:?}", manifest.notes);
    assert_eq!(manifest.ports.len(), 2);
}

/// The address of the sink was edited, and the machine there has another boot: the capture is not taken
/// for one that a reboot ended.
#[test]
fn another_machine_is_no_proof_of_a_reboot() {
    let mut site = MirrorSite::start(MSTREG);
    // The capture runs on the first machine.
    site.capture.kill().unwrap();
    site.capture.wait().unwrap();
    let path = fs::read_dir(&site.config.run.state_dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "journal"))
        .unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let without_checksums: String = text.lines().flat_map(|line| [line.split('\t').next().unwrap(), "\n"]).collect();
    fs::write(&path, without_checksums.replace(boot_id.trim(), "11111111-2222-3333-4444-555555555555")).unwrap();
    let before = site.config.clone();
    let text = text_of_config(site.folder.path(), MSTREG, "[nodes.s1]\naddress = \"10.0.0.9\"\n");
    site.config = Config::parse(&text, Path::new("x")).unwrap();
    let report = site.undo();
    let what = "s1: another machine may answer now: the address of s1 was s1:22 at the start of the run and is 10.0.0.9:22 now; ibdump was not \
                stopped and may run on at the old address; set nodes.s1 back until the run is undone";
    assert_eq!((report.is_restored, &report.left[..]), (false, &[what.to_owned()][..]));
    // At the old address, it is a reboot.
    site.config = before;
    let report = site.undo();
    assert_eq!(report.left, [""; 0]);
    assert!(MirrorSite::remarks(&report).contains("the node was rebooted"), "{report:?}");
}

/// An earlier attempt fetched the capture and could not write the journal: nobody is accused of having
/// removed it.
#[test]
fn a_capture_that_was_fetched_before_is_not_called_removed() {
    let mut site = MirrorSite::start(MSTREG);
    site.config.collect.fetch = true;
    site.capture.kill().unwrap();
    site.capture.wait().unwrap();
    let file = site.config.capture.directory.join("ibscope-7-s1.pcap");
    let run = site.config.collect.directory.join("ibscope-7-19700101T000001Z");
    fs::create_dir_all(&run).unwrap();
    fs::rename(&file, run.join("ibscope-7-s1.pcap")).unwrap();
    let remarks = MirrorSite::remarks(&site.undo());
    assert!(remarks.contains("an earlier attempt fetched it to") && remarks.contains("(7 bytes)"), "{remarks}");
    assert!(!remarks.contains("somebody removed it"), "{remarks}");
}

/// ibdump ended and printed nothing: the remark says so, and how much space its disk has.
#[test]
fn an_empty_log_is_called_empty() {
    let mut site = MirrorSite::start(MSTREG);
    site.capture.kill().unwrap();
    site.capture.wait().unwrap();
    let remarks = MirrorSite::remarks(&site.undo());
    let start = "ibdump had ended before it was stopped: its log is empty, and the disk is ";
    assert!(remarks.starts_with(start) && remarks.contains(" bytes free in "), "{remarks}");
}

/// Entries of the end of a job are read again, and an older journal has none.
#[test]
fn the_state_at_the_end_is_read_from_the_journal() {
    let change = crate::journal::LidChange { port_guid: PORTS[0], lid: Some(18), is_ambiguous: true };
    for entry in [
        JournalEntry::Unmirrored { at_ns: 1, step: 1, ports: vec![2] },
        JournalEntry::LidsAtEnd { at_ns: 1, changes: vec![change], unknown: Vec::new() },
        JournalEntry::Fetched {
            at_ns: 1,
            step: 0,
            fetched: FetchedFile { file: "/f".into(), bytes: 1, sha256: String::new() },
        },
    ] {
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<JournalEntry>(&text).unwrap(), entry, "{text}");
    }
}
