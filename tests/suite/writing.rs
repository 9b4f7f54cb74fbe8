//! Commands that write files, and the files they leave when a signal ends them. `make soak` tests
//! more moments of each.

use crate::runs;
use crate::tools::{ProgramResult, command, ibscope};
use ibscope::pipeline::{is_profile, load};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

/// Every way to write, with `IN/` and `OUT/` for the folders of inputs and results.
pub(crate) const WRITERS: [&[&str]; 11] = [
    &["analyze", "IN/capture.pcap", "-o", "OUT/job.ibp"],
    &["analyze", "IN/capture.pcap", "--partial", "-o", "OUT/job.ibp"],
    &["watch", "--once", "IN/capture.pcap", "-o", "OUT/job.ibp"],
    &["merge", "IN/part.ibp", "-o", "OUT/job.ibp"],
    &["matrix", "IN/part.ibp", "--svg", "OUT/matrix.svg", "--png", "OUT/matrix.png"],
    &["report", "IN/part.ibp", "-o", "OUT/report.html"],
    &["messages", "IN/capture.pcap", "--parquet", "OUT/messages.parquet"],
    &["messages", "IN/capture.pcap", "--dataset", "OUT/dataset", "--file-rows", "50"],
    &["trace", "IN/capture.pcap", "-o", "OUT/trace.json"],
    &["anonymize", "IN/capture.pcap", "-o", "OUT/capture.pcap.zst", "--key", "key", "--names", "OUT/names.csv"],
    &SLURM_TASK,
];

/// Does nothing if its result exists.
pub(crate) const SLURM_TASK: [&str; 3] = ["slurm-task", "OUT/job.ibp.slurm", "0"];

/// Inputs of the commands, and a folder for their results.
pub(crate) struct WriteSite {
    folder: tempfile::TempDir,
}

impl WriteSite {
    pub(crate) fn new() -> Self {
        let site = Self { folder: tempfile::tempdir().expect("folder") };
        fs::create_dir(site.at("IN")).expect("folder");
        let capture = runs::decompressed(&runs::named("ompi-rc-ring2").sink());
        fs::write(site.at("IN/capture.pcap"), capture).expect("capture");
        let part = ibscope(site.arguments(&["analyze", "IN/capture.pcap", "--partial", "-o", "IN/part.ibp"]));
        assert_eq!(part.code, 0, "{}", part.stderr);
        site
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The arguments with the folders of this site.
    fn arguments(&self, arguments: &[&str]) -> Vec<String> {
        let place = |argument: &&str| {
            let is_place = ["IN/", "OUT/"].iter().any(|folder| argument.starts_with(folder));
            let path = if is_place { self.at(argument) } else { argument.into() };
            path.to_str().expect("path").to_owned()
        };
        arguments.iter().map(place).collect()
    }

    pub(crate) fn command(&self, writer: &[&str]) -> Command {
        let mut command = command(self.arguments(writer));
        command.current_dir(self.folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Removes all results, and creates the files that this command expects.
    pub(crate) fn clear(&self, writer: &[&str]) {
        let out = self.at("OUT");
        if out.exists() {
            fs::remove_dir_all(&out).expect("removed");
        }
        fs::create_dir(&out).expect("folder");
        if writer == SLURM_TASK {
            let planned = ibscope(self.arguments(&["slurm-analyze", "IN/capture.pcap", "-o", "OUT/job.ibp"]));
            assert_eq!(planned.code, 0, "{}", planned.stderr);
        }
    }

    /// The files in the folder of results, by path. Profiles and fingerprints, which contain times
    /// and input names, are without their content.
    pub(crate) fn results(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.at("OUT")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("folder") {
                let path = entry.expect("entry").path();
                let is_scratch = [".part-", ".old-"].iter().any(|what| path.to_string_lossy().contains(what));
                assert!(!is_scratch, "{} is left", path.display());
                if path.extension().is_some_and(|ending| ending == "ibp") {
                    assert!(is_profile(&path), "{} is a profile", path.display());
                    load(&path).unwrap_or_else(|error| panic!("{error}"));
                    found.insert(path, Vec::new());
                } else if path.is_dir() {
                    folders.push(path);
                } else {
                    let is_fingerprint =
                        path.extension().is_some_and(|ending| ending == "json") && path.with_extension("ibp").exists();
                    let content = if is_fingerprint { Vec::new() } else { fs::read(&path).expect("file") };
                    found.insert(path, content);
                }
            }
        }
        found
    }

    /// Asserts that the folder of results contains only complete results: each of `whole` unchanged
    /// or absent.
    pub(crate) fn assert_whole(&self, whole: &BTreeMap<PathBuf, Vec<u8>>, what: &str) {
        for (path, content) in self.results() {
            assert!(whole.get(&path) == Some(&content), "{what}: {} is whole", path.display());
        }
    }
}

/// Ends each writing command at `moments` moments of its run, by each of the signals in turn. Every
/// second time, the result of the previous run may exist.
pub(crate) fn end_at_random_moments(moments: u32) {
    const SIGNALS: [(&str, i32); 3] = [("HUP", 1), ("INT", 2), ("TERM", 15)];
    /// Fractions of the golden ratio: they cover the run evenly, in no order.
    const STEP: f64 = 0.618_033_988_749_895;
    let site = WriteSite::new();
    for writer in WRITERS {
        site.clear(writer);
        let start = Instant::now();
        let ran = ProgramResult::from(site.command(writer).output().expect("started"));
        let lasted = start.elapsed();
        assert_eq!(ran.code, 0, "{writer:?}: {}", ran.stderr);
        let whole = site.results();
        let mut ended = 0;
        for moment in 0..moments {
            let (name, number) = SIGNALS[moment as usize % SIGNALS.len()];
            let is_replaced = moment % 2 == 0;
            if !is_replaced {
                site.clear(writer);
            }
            let child = site.command(writer).spawn().expect("started");
            std::thread::sleep(lasted.mul_f64((f64::from(moment) * STEP).fract()));
            send(child.id(), name);
            let output = child.wait_with_output().expect("ended");
            let what = format!("{writer:?}, {name} at moment {moment}: {}", String::from_utf8_lossy(&output.stderr));
            assert!(is_usual(output.status, number), "{}: {what}", output.status);
            ended += u32::from(!output.status.success());
            site.assert_whole(&whole, &what);
        }
        assert!(ended > 0, "{writer:?} was ended {ended} times in {moments}");
    }
}

/// Ended by the signal, or by the signal's exit code with a partial result, or successfully: before
/// the signal arrived, or because the command ends like that.
pub(crate) fn is_usual(status: ExitStatus, signal: i32) -> bool {
    status.signal() == Some(signal) || status.code().is_some_and(|code| code == 0 || code == 128 + signal)
}

fn send(process: u32, signal: &str) {
    // The process may have ended already, but its number stays reserved until it is waited for.
    let kill = Command::new("kill").args(["-s", signal, &process.to_string()]).status().expect("kill");
    assert!(kill.success());
}

#[test]
fn a_command_ended_at_random_moments_leaves_old_results_intact() {
    end_at_random_moments(6);
}
