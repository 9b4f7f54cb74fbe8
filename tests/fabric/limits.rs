//! Limits of captures: their duration, how long and how much of them is kept, who is captured, and
//! bursts of jobs that need more sinks than there are.

use crate::analysis::files;
use crate::cases::{LONGEST, hook, lab, starts};
use crate::container::until;
use crate::jobs::{SAMPLE, clean, folder_of, install, manifest_of};
use crate::lab::HookLab;
use crate::site::SiteConfig;
use crate::slurm::Hooks;
use crate::sweeper::sweep;
use crate::tools;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A run that ended long ago.
const OLD: &str = "ibscope-1-20200101T000000Z";

/// Names in a folder of the lab that begin with a prefix, sorted.
fn names(lab: &HookLab, folder: &str, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(lab.path().join(folder)).expect("folder");
    let names = entries.map(|entry| entry.expect("entry").file_name().into_string().expect("a name"));
    let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort();
    names
}

/// Sets the time of the last change to 2020: a run without a journal ended when its newest file changed.
fn age(path: &Path) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_hours(438_288);
    fs::File::open(path).and_then(|file| file.set_modified(time)).expect("time of the last change");
}

/// Captures end after `capture.max_s`. Old runs, and the oldest ones beyond the quotas, are deleted;
/// those of a live job stay.
pub(crate) fn captures_are_limited_and_deleted_in_time() {
    let lab = lab(SiteConfig { capture: "max_s = 2\nkeep_days = 7", collect: "keep_days = 30", ..SiteConfig::PLAIN });
    for folder in ["captures", "runs"] {
        fs::create_dir(lab.path().join(folder).join(OLD)).expect("folder");
        fs::write(lab.path().join(folder).join(OLD).join("job.ibp"), "old").expect("file");
        fs::write(lab.path().join(folder).join("notes.txt"), "").expect("file");
    }
    let capture = lab.path().join(format!("captures/{OLD}-sink1a-ibsim0-1.pcap"));
    fs::write(&capture, "old").expect("file");
    age(&capture);
    for folder in ["captures", "runs"].map(|folder| lab.path().join(folder).join(OLD)) {
        age(&folder.join("job.ibp"));
        age(&folder);
    }
    starts(&lab, 740);
    until(LONGEST, "captures that are stopped", || lab.captures_running().is_empty().then_some(()));
    assert_eq!(lab.mirrored().len(), 4);
    hook(&lab, "epilog", 740);
    clean(&lab);
    let manifest = manifest_of(&lab, 740);
    for capture in manifest["captures"].as_array().expect("captures") {
        assert_eq!(capture["ended"]["limit"], "max_s", "{manifest}");
        let note =
            format!("{}: ibdump was stopped at the limit capture.max_s", capture["sink"].as_str().expect("sink"));
        assert!(
            manifest["notes"]
                .as_array()
                .expect("notes")
                .iter()
                .any(|found| found.as_str().is_some_and(|found| found.starts_with(&note)))
        );
    }
    let run = folder_of(&lab, 740);
    let manifest = run.join("manifest.json").display().to_string();
    let profile = lab.path().join("job.ibp");
    tools::result(&["analyze", "--manifest", &manifest, "-o", profile.to_str().expect("path")], &files(&run));
    let text = fs::read_to_string(profile.join("profile.json")).expect("profile");
    assert!(
        text.contains("sink1a: the capture ended at its limit, capture.max_s: later packets are missing"),
        "{text}"
    );
    assert_eq!(sweep(&lab).code, 0);
    for folder in ["captures", "runs"] {
        assert_eq!(names(&lab, folder, OLD), [""; 0], "{folder}: {}", lab.log_text());
        assert!(!names(&lab, folder, "ibscope-740-").is_empty() && !names(&lab, folder, "notes").is_empty());
    }
    // All sinks of the lab share one folder, so any of them may delete the run.
    let deletes = |line: &str| line.contains(" retention: sink") && line.ends_with(&format!(": deleted {OLD}"));
    assert!(lab.log_text().lines().any(deletes), "{}", lab.log_text());

    // Room for the two captures of one job: those of the job before go.
    lab.configure(SiteConfig {
        capture: "max_bytes = 1_000_000\ndisk_limit_bytes = 1_001_000",
        collect: "disk_limit_bytes = 1",
        ..SiteConfig::PLAIN
    });
    starts(&lab, 741);
    assert_eq!(names(&lab, "captures", "ibscope-740-"), [""; 0], "{}", lab.log_text());
    let live = names(&lab, "captures", "ibscope-741-");
    assert_eq!(live.len(), 4);
    let swept = sweep(&lab);
    assert_eq!(swept.code, 0, "{}{}", swept.stdout, swept.stderr);
    assert_eq!((names(&lab, "captures", "ibscope-741-"), names(&lab, "runs", "ibscope-740-").len()), (live, 0));
    hook(&lab, "epilog", 741);
    clean(&lab);
}

impl HookLab {
    /// Ids of all jobs that Slurm knows.
    fn job_ids(&self) -> Vec<u32> {
        let text = self.slurm_tool(&["squeue", "--noheader", "--states=all", "--format=%A"]);
        let mut ids: Vec<u32> = text.lines().map(|line| line.trim().parse().expect("a job id")).collect();
        ids.sort_unstable();
        ids
    }
}

/// Eight jobs start at once on nodes of two leaves with two sinks each: every job waits for a sink
/// and is captured. Then the lists of users and partitions, and `select = "all"`, which does not
/// capture the analysis of its captures.
pub(crate) fn a_burst_of_jobs_is_captured_and_lists_limit_who() {
    let lab = HookLab::start();
    lab.traffic(&tools::sample(SAMPLE));
    let slurm = format!("slurm_conf = \"{}/slurm/slurm.conf\"", lab.path().display());
    let configure = |run: &str| {
        let config = lab.configure(SiteConfig { run: &format!("{slurm}\n{run}"), ..SiteConfig::PLAIN });
        let text = fs::read_to_string(&config).expect("configuration");
        fs::write(&config, text.replace("[sinks]\n", "[sinks]\nwait_s = 40\n")).expect("configuration");
        config
    };
    let config = configure("");
    let lines = install(&lab, config.to_str().expect("path"));
    lab.slurm(Hooks { lines: &lines, timeout_s: 70 });
    let jobs: Vec<u32> = (0..8).map(|_| lab.submit(&["-N1", "--comment=ibscope=on"], "sleep 0.3")).collect();
    for id in &jobs {
        assert_eq!(lab.ended(*id).0, "COMPLETED", "{}", lab.log_text());
    }
    until(Duration::from_mins(1), "eight manifests", || {
        (lab.log_text().matches("undone; manifest").count() == 8).then_some(())
    });
    let log_text = lab.log_text();
    for id in &jobs {
        assert!(log_text.contains(&format!("job {id}: capturing: 1 capture, 1 port mirrored")), "{log_text}");
    }
    assert!(log_text.contains(" s for sinks of other runs (sinks.wait_s)"), "{log_text}");
    clean(&lab);

    for (run, reason) in [
        ("users = [\"daemon\", \"17\"]", Some("not captured: the user root is not one of run.users")),
        ("partitions = [\"other\"]", Some("not captured: the partition ib is not one of run.partitions")),
        ("users = [\"0\"]\npartitions = [\"ib\"]", None),
    ] {
        configure(run);
        let id = lab.submit(&["-N1", "--comment=ibscope=on"], "true");
        assert_eq!(lab.ended(id).0, "COMPLETED");
        let log_text = lab.log_text();
        let expected = reason.map_or(format!("job {id}: capturing"), |reason| format!("job {id}: warning: {reason}"));
        assert!(log_text.contains(&expected), "{log_text}");
        assert_eq!(log_text.contains(&format!("job {id}: capturing")), reason.is_none(), "{log_text}");
    }

    configure("select = \"all\"\n[analyze]\nafter = \"sbatch\"\nsbatch = [\"--output=/dev/null\"]");
    let before = lab.job_ids().len();
    let id = lab.submit(&["-N2"], "true");
    assert_eq!(lab.ended(id).0, "COMPLETED");
    let analysis =
        until(Duration::from_mins(1), "the analysis", || lab.job_ids().last().copied().filter(|last| *last > id));
    assert_eq!(lab.ended(analysis).0, "COMPLETED", "{}", lab.log_text());
    // An analysis that was captured would have submitted another one in its epilog.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(lab.job_ids().len(), before + 2, "{}", lab.log_text());
    assert!(lab.log_text().contains(&format!("job {id}: capturing")), "{}", lab.log_text());
    assert!(!lab.log_text().contains(&format!("job {analysis}:")), "{}", lab.log_text());
    clean(&lab);
}
