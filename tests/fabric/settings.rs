//! Settings of a site that change the work of hooks: a jump host, an owner, a later analysis, jobs
//! that do not run without their capture.

use crate::analysis::{check_counts, check_private, check_run};
use crate::cases::{hook, lab, starts};
use crate::container::until;
use crate::ibdump::IbdumpFault;
use crate::jobs::{SAMPLE, clean, expected, install, only_folder};
use crate::lab::{HookLab, JUMP_HOST, NODES, SSH_PORT, address};
use crate::site::SiteConfig;
use crate::slurm::Hooks;
use crate::tools;
use crate::topology::PWNED;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// All connections go through the jump host: those of commands, and those that fetch files.
pub(crate) fn nodes_are_reached_through_a_jump_host() {
    let jump = format!("jump_host = {{ address = \"{}\", port = {SSH_PORT} }}", address(JUMP_HOST));
    let lab = lab(SiteConfig { ssh: &jump, ..SiteConfig::PLAIN });
    starts(&lab, 800);
    assert_eq!(lab.mirrored(), expected(&lab, &NODES[..4], ["sink1a", "sink2a"], 800), "{}", lab.log_text());
    hook(&lab, "epilog", 800);
    clean(&lab);
    check_run(&lab, &only_folder(&lab.path().join("runs")), 2, (0, 0));
    let log = fs::read_to_string(lab.path().join("ssh").join(JUMP_HOST).join("log")).expect("log");
    for node in NODES[..4].iter().chain(&["sink1a", "sink2a"]) {
        let passed = format!("target {} port {SSH_PORT}", address(node));
        assert!(log.lines().any(|line| line.contains("direct-tcpip") || line.contains(&passed)), "{node}: {log}");
        assert!(log.contains(&passed), "{node} was not reached through it: {log}");
    }
    // Without the jump host no node is reached.
    lab.stop_ssh_server(JUMP_HOST);
    let log_text = hook(&lab, "prolog", 801);
    assert!(log_text.contains(&format!("no connection to {}:{SSH_PORT}", address(JUMP_HOST))), "{log_text}");
    clean(&lab);
}

/// Captures and manifests are given to their owner, also on the sinks, and each sink analyzes its
/// own capture.
pub(crate) fn captures_are_given_to_their_owner_and_analyzed_on_the_sinks() {
    let lab = lab(SiteConfig {
        capture: "owner = \"daemon:daemon\"",
        collect: "",
        run: "[analyze]\nafter = \"sink\"",
        ..SiteConfig::PLAIN
    });
    starts(&lab, 810);
    let log_text = hook(&lab, "epilog", 810);
    assert!(log_text.contains("analysis started on sink1a, sink2a"), "{log_text}");
    clean(&lab);
    // User and group 1 of Debian.
    check_run(&lab, &only_folder(&lab.path().join("runs")), 2, (1, 1));
    let (mut captures, mut profiles) = (Vec::new(), Vec::new());
    until(Duration::from_mins(1), "two profiles on the sinks", || {
        captures = named(&lab.path().join("captures"), "pcap");
        profiles = named(&lab.path().join("captures"), "ibp");
        profiles.retain(|profile| profile.join("profile.json").exists());
        (profiles.len() == 2).then_some(())
    });
    assert_eq!(captures.len(), 2);
    for (capture, profile) in captures.iter().zip(&profiles) {
        check_private(capture, (1, 1));
        check_private(&capture.with_extension("log"), (1, 1));
        assert_eq!(capture.with_extension("ibp"), *profile);
        let matrix = |input: &Path| tools::result(&["matrix", "--format", "csv"], &[input]);
        assert_eq!(matrix(profile), matrix(capture));
    }
}

/// Entries of a folder with this extension, sorted.
fn named(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").path());
    let mut named: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|of| of == extension)).collect();
    named.sort();
    named
}

/// With `run.fail_open = false`, a job whose capture cannot be started is requeued, or canceled
/// with `--no-requeue`, and nothing of the capture is left. The next start is captured, and
/// analyzed in a batch job that the epilog submits.
pub(crate) fn a_job_waits_for_its_capture_if_fail_open_is_false() {
    let lab = HookLab::start();
    lab.traffic(&tools::sample(SAMPLE));
    let run = format!(
        "fail_open = false\nslurm_conf = \"{}/slurm/slurm.conf\"\n[analyze]\nafter = \"sbatch\"\nsbatch = [\"--output=/dev/null\"]",
        lab.path().display()
    );
    let config = lab.configure(SiteConfig { run: &run, ..SiteConfig::PLAIN });
    let lines = install(&lab, config.to_str().expect("path"));
    lab.slurm(Hooks { lines: &lines, timeout_s: 70 });
    lab.ibdump_fault("sink1a", Some(IbdumpFault::Start));

    let name = format!("--job-name=-oProxyCommand=touch {PWNED}; `touch {PWNED}` 'x \"y");
    let comment = format!("--comment=ibscope=on ; $(touch {PWNED}) 'x \"y\n-oProxyCommand=x");
    let refused = lab.submit(&["-N4", "--no-requeue", &name, &comment], "echo ran");
    assert_eq!(lab.ended(refused).0, "CANCELLED", "{}", lab.log_text());
    let waiting = lab.submit(&["-N4", "--requeue", &name, &comment], "echo ran");
    until(Duration::from_mins(1), "a job that is requeued", || {
        let text = lab.slurm_tool(&["scontrol", "show", "job", &waiting.to_string()]);
        (text.contains("Restarts=1") && text.contains("JobState=PENDING")).then_some(())
    });
    until(Duration::from_mins(1), "epilogs of both", || {
        (lab.mirrored().is_empty() && lab.capture(&["list"]).stdout == "no runs\n").then_some(())
    });
    clean(&lab);
    let log_text = lab.log_text();
    for job in [refused, waiting] {
        assert!(
            log_text.contains(&format!("job {job}: error: job {job}: not captured: sink1a: ibdump ended")),
            "{log_text}"
        );
        assert_eq!(lab.printed(job), "", "it never ran");
    }
    assert_eq!(lab.drained().trim(), "");

    lab.ibdump_fault("sink1a", None);
    // Without this it would begin again only after two minutes.
    lab.slurm_tool(&["scontrol", "update", &format!("JobId={waiting}"), "StartTime=now"]);
    assert_eq!(lab.ended(waiting), ("COMPLETED".to_owned(), "0:0".to_owned()), "{}", lab.log_text());
    assert_eq!(lab.printed(waiting), "ran\n");
    let profile = until(Duration::from_mins(2), "the analysis in a batch job", || {
        let runs = fs::read_dir(lab.path().join("runs")).ok()?;
        let profiles = runs.map(|run| run.expect("run").path().join("job.ibp"));
        profiles.into_iter().find(|profile| profile.join("profile.json").exists())
    });
    check_counts(&profile);
    // The owner of the folder could write another script before Slurm reads it.
    let folder = profile.parent().expect("the run's folder");
    let mut names = fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").file_name());
    assert!(names.all(|name| name != "analyze.sh"), "the batch job has no script there");
    clean(&lab);
    assert!(!Path::new(PWNED).exists(), "a job's name was run");
}
