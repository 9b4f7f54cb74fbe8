//! Another Debian than this machine's, in a folder, with the packages of the lab: a lab runs there
//! as it runs on this machine, with that Debian's Slurm.

use crate::lab::LabSetting;
use crate::{failover, jobs, slurm_failures, spank, sweeper};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The newest stable Debian.
const SUITE: &str = "trixie";

/// Description of a source of packages, as `apt-get` prints it.
const MIRROR_FORMAT: &str = "$(ORIGIN) $(LABEL) $(COMPONENT) $(REPO_URI)";

/// The Makefile has the only list of the packages that a lab needs.
const MAKEFILE: &str = include_str!("../../Makefile");

/// Packages that this machine has, but a minimal Debian does not: programs that tests and stand-ins
/// call.
const FURTHER_PACKAGES: [&str; 3] = ["openssh-client", "perl", "procps"];

/// Installs the newest Debian, or what its mirror has newly, into a folder of the build, and returns
/// the folder. Prints the version of Slurm.
///
/// # Panics
/// If the mirror cannot be reached: a test that did not run must not pass.
fn newest() -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("debian-{SUITE}"));
    if !root.exists() {
        let unfinished = root.with_extension("unfinished");
        drop(fs::remove_dir_all(&unfinished));
        let folder = unfinished.to_str().expect("path");
        apart(&["debootstrap", "--variant=minbase", SUITE, folder, &mirror()]);
        fs::rename(&unfinished, &root).expect("folder");
    }
    for name in ["hosts", "resolv.conf"] {
        fs::copy(Path::new("/etc").join(name), root.join("etc").join(name)).expect("a file of every system");
    }
    let inside = |script: &str| {
        let folder = root.to_str().expect("path");
        let mounted = format!("mount -t proc proc {folder}/proc && exec chroot {folder} sh -c '{script}'");
        apart(&["sh", "-c", &mounted])
    };
    inside("apt-get -qq -o APT::Update::Error-Mode=any update");
    // RUNLEVEL=1 keeps Debian from starting services.
    let packages = packages().join(" ");
    inside(&format!(
        "RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install {packages} && \
         apt-get clean"
    ));
    println!("{}", inside("slurmctld -V").trim());
    root
}

/// Runs a test with hooks of root and of Slurm's own user.
fn with_newest(test: fn(LabSetting)) {
    let root = newest();
    for user in ["root", "slurm"] {
        println!("SlurmUser={user}");
        test(LabSetting { user, root: Some(&root) });
    }
}

pub(crate) fn the_newest_slurm_captures_a_job() {
    with_newest(jobs::a_job_is_captured_from_its_prolog_to_its_analysis);
}

pub(crate) fn the_newest_slurm_cancels_and_kills_prologs() {
    with_newest(slurm_failures::slurm_cancels_and_kills_prologs_and_the_fabric_is_restored);
}

pub(crate) fn the_newest_slurmctld_is_restarted() {
    with_newest(slurm_failures::slurmctld_is_restarted_and_the_fabric_is_restored);
}

pub(crate) fn the_newest_slurm_has_the_option() {
    with_newest(spank::an_option_of_sbatch_requests_a_capture);
}

pub(crate) fn a_second_controller_of_the_newest_slurm_takes_over() {
    with_newest(failover::a_second_controller_takes_over);
}

pub(crate) fn what_the_newest_slurm_leaves_is_swept() {
    with_newest(sweeper::what_an_epilog_leaves_is_swept);
}

fn packages() -> Vec<&'static str> {
    let line = MAKEFILE.lines().find_map(|line| line.strip_prefix("FABRIC_PACKAGES := ")).expect("the list");
    line.split(' ').chain(FURTHER_PACKAGES).collect()
}

/// The mirror that this machine installs Debian's packages from.
fn mirror() -> String {
    let ran = Command::new("apt-get").args(["indextargets", "--format", MIRROR_FORMAT]).output().expect("apt-get");
    let text = String::from_utf8(ran.stdout).expect("text");
    let found = text.lines().find_map(|line| line.strip_prefix("Debian Debian main "));
    found.expect("a mirror of Debian in the configuration of apt; run `apt-get update`").to_owned()
}

/// Runs a program in mount and process namespaces of its own, so that nothing stays mounted or
/// running. Returns its standard output.
fn apart(words: &[&str]) -> String {
    let ran = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child=KILL", "env", "LC_ALL=C.UTF-8"])
        .arg("PATH=/usr/sbin:/usr/bin:/sbin:/bin")
        .args(words)
        .output()
        .expect("unshare");
    let [printed, errors] = [&ran.stdout, &ran.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(
        ran.status.success(),
        "CANNOT INSTALL DEBIAN {SUITE}, so its Slurm is NOT TESTED: {words:?}: {}\n{printed}\n{errors}",
        ran.status
    );
    printed
}
