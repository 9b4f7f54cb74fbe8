//! Attacks of an unprivileged user on running hooks: planted links and FIFOs, swapped folders,
//! processes with the arguments of a capture, changes in folders that root gave away. No file of
//! root changes, nobody reads another user's packets, and no program of the user runs as root.

use crate::cases::{NODELIST, hook, lab_as, starts};
use crate::container::{Container, until};
use crate::jobs::{SAMPLE, clean, install};
use crate::lab::HookLab;
use crate::site::SiteConfig;
use crate::slurm::Hooks;
use crate::tools;
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A user of the cluster: `nobody` on Debian.
pub(crate) const USER: u32 = 65_534;
/// `SlurmUser` if it is not root: a user that Debian's slurm-wlm creates.
pub(crate) const SLURM: &str = "slurm";
/// Owner of captures: `daemon` on Debian.
pub(crate) const OWNER: u32 = 1;

const PLANT: &str = include_str!("attacks/plant.pl");
pub(crate) const SWAP: &str = include_str!("attacks/swap.pl");
pub(crate) const FOLLOW: &str = include_str!("attacks/follow.pl");

/// Number of raced hooks in a test run, and in `make soak`.
const RACES: u32 = 3;
const MANY_RACES: u32 = 1000;

/// Capture folder on nodes that users work on too: in a folder that everyone may write to.
const SHARED: SiteConfig = SiteConfig { captures: "captures/ibscope", ..SiteConfig::PLAIN };
const SHARED_AND_GIVEN: SiteConfig = SiteConfig { capture: "owner = \"daemon:daemon\"", collect: "", ..SHARED };

/// A program that an unprivileged user runs, until this value is dropped.
pub(crate) struct AttackProcess(Child);

impl AttackProcess {
    fn words(user: u32, how: &[&str], script: &str, arguments: &[&str]) -> Vec<String> {
        let ids = [format!("--reuid={user}"), format!("--regid={user}")];
        let fixed = ["--clear-groups", "--pdeathsig=KILL"].into_iter().chain(how.iter().copied());
        let script = ["perl", "-e", script, "--"].into_iter().chain(arguments.iter().copied());
        let words = ids.iter().map(String::as_str).chain(fixed).chain(script);
        ["setpriv"].into_iter().chain(words).map(str::to_owned).collect()
    }

    /// Starts the program on this machine.
    pub(crate) fn start(user: u32, how: &[&str], script: &str, arguments: &[&str]) -> Self {
        let words = Self::words(user, how, script, arguments);
        let mut command = Command::new(&words[0]);
        Self(command.args(&words[1..]).current_dir("/").stdin(Stdio::null()).spawn().expect("setpriv and perl"))
    }

    /// Starts the program in the lab.
    fn start_in(container: &Container, user: u32, how: &[&str], script: &str, arguments: &[&str]) -> Self {
        let words = Self::words(user, how, script, arguments);
        Self(container.command(Path::new("/"), words).stdout(Stdio::piped()).spawn().expect("nsenter"))
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("its state").is_none()
    }
}

impl Drop for AttackProcess {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
        // In the lab, the process is nsenter, and the kernel ends the program a moment later. Its
        // output is closed when it has ended.
        let output = self.0.stdout.take();
        drop(output.map(|mut output| std::io::copy(&mut output, &mut std::io::sink())));
    }
}

/// A file and a folder of root that nobody else may touch, and a folder for the attackers' output.
pub(crate) struct RootFiles {
    vault: PathBuf,
    pub(crate) loot: PathBuf,
}

/// Text of the secret file. No other file of the lab contains it.
const SECRET: &str = "a secret of root that no attacker may see";

impl RootFiles {
    pub(crate) fn lay(folder: &Path) -> Self {
        let (vault, loot) = (folder.join("vault"), folder.join("loot"));
        fs::DirBuilder::new().mode(0o700).create(&vault).expect("folder");
        fs::write(vault.join("secret"), SECRET).expect("file");
        fs::set_permissions(vault.join("secret"), fs::Permissions::from_mode(0o600)).expect("mode");
        open(&loot, 0o777);
        Self { vault, loot }
    }

    pub(crate) fn vault(&self) -> &str {
        self.vault.to_str().expect("path")
    }

    pub(crate) fn secret(&self) -> String {
        self.vault.join("secret").display().to_string()
    }

    /// Checks that the vault is unchanged, and that the loot folder has nothing but notes.
    pub(crate) fn is_untouched(&self, when: &str) {
        let names: Vec<_> =
            fs::read_dir(&self.vault).expect("vault").map(|entry| entry.expect("entry").file_name()).collect();
        assert_eq!(names, ["secret"], "{when}");
        assert_eq!(fs::read_to_string(self.vault.join("secret")).expect("file"), SECRET, "{when}");
        for (path, mode) in [(&self.vault, 0o700), (&self.vault.join("secret"), 0o600)] {
            let found = fs::metadata(path).expect("metadata");
            assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (mode, 0, 0), "{when}: {}", path.display());
        }
        assert!(!self.loot.join("stolen").exists(), "{when}: packets were read");
        let ran = fs::read_to_string(self.loot.join("ran")).unwrap_or_default();
        assert!(ran.lines().all(|user| user != "0"), "{when}: a user's script was run as root: {ran}");
    }
}

/// Checks that no file below a folder contains the secret.
fn is_nowhere_in(folder: &Path) {
    for entry in fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").path()) {
        let metadata = fs::symlink_metadata(&entry).expect("metadata");
        if metadata.is_dir() {
            is_nowhere_in(&entry);
        } else if metadata.is_file() && metadata.nlink() == 1 {
            let bytes = fs::read(&entry).expect("file");
            let has_it = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
            assert!(!has_it, "{} holds the secret", entry.display());
        }
    }
}

/// Checks that nothing below a folder belongs to root, under any name.
pub(crate) fn holds_nothing_of_root(folder: &Path) {
    for entry in fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").path()) {
        let metadata = fs::symlink_metadata(&entry).expect("metadata");
        assert_ne!(metadata.uid(), 0, "root has written into a user's folder: {}", entry.display());
        if metadata.is_dir() {
            holds_nothing_of_root(&entry);
        }
    }
}

/// Creates a folder that others can write to.
pub(crate) fn open(folder: &Path, mode: u32) {
    fs::create_dir_all(folder).expect("folder");
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("mode");
}

/// A lab whose nodes users work on too.
fn shared(user: &'static str, site: SiteConfig) -> (HookLab, RootFiles) {
    let lab = lab_as(user, site);
    lab.let_users_in();
    open(&lab.path().join("captures"), 0o1777);
    let treasure = RootFiles::lay(lab.path());
    (lab, treasure)
}

pub(crate) fn attacks_on_hooks_of_root_fail() {
    damaged_journals_are_undone_or_refused(&attacked("root"));
}

pub(crate) fn attacks_on_hooks_of_slurms_user_fail() {
    attacked(SLURM);
}

fn attacked(user: &'static str) -> HookLab {
    let (lab, treasure) = shared(user, SHARED);
    planted_captures_are_refused(&lab, &treasure);
    processes_of_users_are_left_alone(&lab);
    folders_that_change_during_a_job_are_refused(&lab, &treasure);
    raced(&lab, &treasure, RACES);
    lab
}

/// Captures that run, without the processes of attackers.
fn real_captures(lab: &HookLab) -> Vec<String> {
    lab.captures_running().into_iter().filter(|line| !line.starts_with("perl ")).collect()
}

/// Folder of the lab's captures.
fn folder(lab: &HookLab) -> PathBuf {
    lab.path().join("captures/ibscope")
}

fn remove(path: &Path) {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let removed = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    assert!(removed.is_ok() || !path.exists(), "{}: {removed:?}", path.display());
}

/// Every name that a capture can get in the next minute is a link to a file of root, or a FIFO with
/// a reader.
fn planted_captures_are_refused(lab: &HookLab, treasure: &RootFiles) {
    let captures = folder(lab);
    for (job, kind) in [(930, "links"), (931, "fifos")] {
        let (place, secret, loot) =
            (captures.display().to_string(), treasure.secret(), treasure.loot.display().to_string());
        let job_id = job.to_string();
        let words = [kind, &place, &secret, &loot, &job_id, "sink1a", "sink1b", "sink2a", "sink2b"];
        let thief = AttackProcess::start_in(&lab.container, USER, &[], PLANT, &words);
        until(Duration::from_secs(10), "the planted names", || {
            (fs::read_dir(&captures).is_ok_and(|names| names.count() == 61 * 8)).then_some(())
        });
        let log_text = hook(lab, "prolog", job);
        assert!(log_text.contains("ibscope belongs to user 65534"), "{log_text}");
        hook(lab, "epilog", job);
        assert_eq!((lab.switch_calls().len(), real_captures(lab).len()), (0, 0));
        drop(thief);
        treasure.is_untouched(kind);
        remove(&captures);
    }
    starts(lab, 932);
    hook(lab, "epilog", 932);
    clean(lab);
}

/// A user runs a process with the arguments of a capture, and one that looks like a launch of it.
fn processes_of_users_are_left_alone(lab: &HookLab) {
    starts(lab, 935);
    let running = real_captures(lab);
    let line =
        running.iter().find(|line| line.contains("bin/ibdump -d") && !line.contains("/bin/sh")).expect("a capture");
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    let mut thieves = [&[][..], &[": ibscope-launch; x"]]
        .map(|before| AttackProcess::start_in(&lab.container, USER, &[], "sleep 1000", &[before, &words].concat()));
    until(Duration::from_secs(10), "the imitations", || {
        (lab.captures_running().len() == running.len() + thieves.len() && real_captures(lab).len() == running.len())
            .then_some(())
    });
    let log_text = hook(lab, "epilog", 935);
    assert!(log_text.contains("undone; manifest") && !log_text.contains("error: "), "{log_text}");
    assert!(thieves.iter_mut().all(AttackProcess::is_alive), "a user's process was ended: {log_text}");
    drop(thieves);
    clean(lab);
}

/// A node reboots during the job and loses its capture folder. A user creates another one, in which
/// the names of capture and log are links to a file of root.
fn folders_that_change_during_a_job_are_refused(lab: &HookLab, treasure: &RootFiles) {
    let (captures, job) = (folder(lab), 940);
    starts(lab, job);
    let names: Vec<_> =
        fs::read_dir(&captures).expect("captures").map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(names.len(), 4, "captures and logs: {names:?}");
    let pids = lab.container.processes().into_iter().filter(|(_, line)| line.contains("bin/ibdump -d"));
    for (pid, _) in pids {
        lab.container.run(["kill", "-KILL", &pid.to_string()]);
    }
    remove(&captures);
    fs::create_dir(&captures).expect("folder");
    for name in &names {
        symlink(treasure.secret(), captures.join(name)).expect("link");
    }
    chown(&captures, Some(USER), Some(USER)).expect("owner");
    let log_text = hook(lab, "epilog", job);
    assert!(log_text.contains("not undone: sink1a") && log_text.contains("belongs to user 65534"), "{log_text}");
    assert!(!log_text.contains(SECRET), "{log_text}");
    treasure.is_untouched("another folder of captures");
    is_nowhere_in(&lab.path().join("runs"));
    assert!(names.iter().all(|name| captures.join(name).is_symlink()), "root must not delete links of the user");
    assert!(lab.mirrored().is_empty(), "the switches are restored nevertheless");
    remove(&captures);
    let undone = lab.capture(&["undo", "--job", &job.to_string()]);
    assert_eq!(undone.code, 0, "{}{}", undone.stdout, undone.stderr);
    clean(lab);
}

/// Changed and truncated journals. With a changed first line the journal is refused. With a changed
/// later line the run is undone. If lines are missing unnoticed, the check of the switches finds
/// the mirrors that the journal does not mention.
fn damaged_journals_are_undone_or_refused(lab: &HookLab) {
    let job = 950;
    let begun = || {
        starts(lab, job);
        let mut journals =
            fs::read_dir(lab.path().join("state")).expect("state").map(|entry| entry.expect("entry").path());
        let path = journals.find(|path| path.extension().is_some_and(|of| of == "journal")).expect("a journal");
        (fs::read(&path).expect("journal"), path)
    };
    let undo = || lab.capture(&["undo", "--job", &job.to_string()]);
    let (mut whole, mut path) = begun();
    let flipped = [0.05, 0.2, 0.4, 0.6, 0.8, 0.97].map(|part| (format!("a bit at {part} of it"), Damage::Bit(part)));
    let zeros = [10, 400, 4000].map(|count| (format!("{count} zeros at its end"), Damage::Zeros(count)));
    let lines = [0, 1, 2, 3].map(|lines| (format!("its first {lines} lines"), Damage::Lines(lines)));
    let more = ("an additional line".to_owned(), Damage::More);
    for (what, damage) in flipped.into_iter().chain(zeros).chain(lines).chain([more]) {
        let damaged = damage.applied_to(&whole);
        fs::write(&path, &damaged).expect("journal");
        let undone = undo();
        let printed = undone.stdout + &undone.stderr;
        let first = whole.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
        let has_plan = damaged.get(..first) == whole.get(..first);
        let is_noticed = !matches!(damage, Damage::Lines(_));
        if has_plan && is_noticed {
            assert_eq!(undone.code, 0, "{what}: {printed}");
            clean(lab);
            (whole, path) = begun();
            continue;
        }
        assert_eq!(undone.code, 1, "{what}: {printed}");
        let expected = if has_plan { "lines of the journal are missing" } else { "undo the run by hand" };
        assert!(printed.contains(expected), "{what}: {printed}");
        assert_eq!(lab.mirrored().len(), 4, "{what}");
    }
    fs::write(&path, whole).expect("journal");
    hook(lab, "epilog", job);
    clean(lab);
}

/// Damage of a journal.
#[derive(Clone, Copy)]
enum Damage {
    /// A changed bit, at this part of the file.
    Bit(f64),
    /// Zeros in place of this many bytes at the end.
    Zeros(usize),
    /// Only so many lines are left, and five bytes of the next one.
    Lines(usize),
    /// A line of something else at the end.
    More,
}

impl Damage {
    fn applied_to(self, whole: &[u8]) -> Vec<u8> {
        let mut bytes = whole.to_vec();
        match self {
            Self::Bit(part) => bytes[(whole.len() as f64 * part) as usize] ^= 1,
            Self::Zeros(count) => bytes[whole.len() - count..].fill(0),
            Self::Lines(lines) => {
                let length: usize = whole.split_inclusive(|byte| *byte == b'\n').take(lines).map(<[u8]>::len).sum();
                bytes.truncate(length + 5);
            }
            Self::More => bytes.extend(b"garbage\n"),
        }
        bytes
    }
}

/// While hooks run, a user swaps the capture folder for other folders, links and FIFOs.
fn raced(lab: &HookLab, treasure: &RootFiles, races: u32) {
    let (captures, items) = (folder(lab), lab.path().join("captures/items"));
    open(&items, 0o755);
    open(&items.join("folder"), 0o755);
    for path in [items.join("folder"), items.clone()] {
        chown(path, Some(USER), Some(USER)).expect("owner");
    }
    remove(&captures);
    let words = [&captures, &items].map(|path| path.display().to_string());
    let thief = AttackProcess::start_in(&lab.container, USER, &[], SWAP, &[&words[0], treasure.vault(), &words[1]]);
    let mut refused = 0;
    for race in 0..races {
        let job = 10_000 + race;
        let log_text = hook(lab, "prolog", job);
        // Once the folder belongs to root, the attacker has lost until it is removed.
        refused += u32::from(!log_text.contains("capturing"));
        let log_text = hook(lab, "epilog", job);
        assert!(!log_text.contains("not undone: "), "{log_text}");
        treasure.is_untouched("raced hooks");
        if fs::symlink_metadata(&captures).is_ok_and(|found| found.uid() == 0) {
            remove(&captures);
        }
    }
    println!("{races} prologs, {refused} of them refused a folder");
    drop(thief);
    holds_nothing_of_root(&lab.path().join("captures"));
    remove(&captures);
    is_nowhere_in(&lab.path().join("runs"));
    clean(lab);
}

/// For `make soak`.
pub(crate) fn a_thousand_hooks_are_raced() {
    for user in ["root", SLURM] {
        let (lab, treasure) = shared(user, SHARED);
        raced(&lab, &treasure, MANY_RACES);
    }
}

/// The owner of captures follows root into the run folders and swaps every entry there: while hooks
/// fetch captures, while a second attempt fetches the rest, and while Slurm runs the analysis.
pub(crate) fn the_owner_of_captures_gains_nothing_by_following_root() {
    let (lab, treasure) = shared("root", SHARED_AND_GIVEN);
    followed(&lab, &treasure, 1);
    let run = format!(
        "slurm_conf = \"{}/slurm/slurm.conf\"\n[analyze]\nafter = \"sbatch\"\nsbatch = [\"--output=/dev/null\"]",
        lab.path().display()
    );
    let config = lab.configure(SiteConfig { run: &run, ..SHARED_AND_GIVEN });
    let lines = install(&lab, config.to_str().expect("path"));
    lab.slurm(Hooks { lines: &lines, timeout_s: 70 });
    let thief = follower(&lab, &treasure);
    let id = lab.submit(&["-N4", "--comment=ibscope=on"], "true");
    assert_eq!(lab.ended(id).0, "COMPLETED", "{}", lab.log_text());
    let analysis = until(Duration::from_secs(30), "an analysis", || {
        let log_text = lab.log_text();
        log_text.split("analysis submitted as job ").nth(1)?.lines().next()?.trim().parse().ok()
    });
    // The analysis runs as the owner, who may hold up its own job by putting a FIFO in place of an
    // input: the analysis waits there for a writer until Slurm ends it.
    let start = Instant::now();
    while lab.is_active(analysis) && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(100));
    }
    lab.slurm_tool(&["scancel", &analysis.to_string()]);
    lab.ended(analysis);
    drop(thief);
    treasure.is_untouched("an analysis by Slurm");
    let shown = lab.slurm_tool(&["scontrol", "show", "job", &analysis.to_string()]);
    assert!(shown.contains("UserId=daemon(1)"), "{shown}");
}

/// For `make soak`.
pub(crate) fn a_thousand_runs_are_followed() {
    let (lab, treasure) = shared("root", SHARED_AND_GIVEN);
    followed(&lab, &treasure, MANY_RACES);
}

/// Whether users can hard-link files of root depends on `fs.protected_hardlinks`. This capability
/// allows it, as the setting 0 does.
pub(crate) const LINKS: [&str; 2] = ["--inh-caps=+fowner", "--ambient-caps=+fowner"];

fn follower(lab: &HookLab, treasure: &RootFiles) -> AttackProcess {
    let [runs, loot] = [&lab.path().join("runs"), &treasure.loot].map(|path| path.display().to_string());
    AttackProcess::start_in(&lab.container, OWNER, &LINKS, FOLLOW, &[&runs, &treasure.secret(), &loot])
}

/// The first attempt leaves a capture on its sink, so the second one works in a folder that belongs
/// to the owner already.
fn followed(lab: &HookLab, treasure: &RootFiles, runs: u32) {
    let (all, seen) = (lab.path().join("runs"), lab.path().join("seen-by-the-thief"));
    open(&seen, 0o700);
    let thief = follower(lab, treasure);
    for run in 0..runs {
        let job = 20_000 + run;
        starts(lab, job);
        lab.stop_ssh_server("sink2a");
        hook(lab, "epilog", job);
        lab.start_ssh_server("sink2a");
        // The owner can prevent its own captures from being fetched, and nothing else.
        for _ in 0..2 {
            lab.capture(&["undo", "--job", &job.to_string()]);
        }
        treasure.is_untouched("a run that is followed");
        // Move the run away from the attacker, who follows the next run.
        for run in fs::read_dir(&all).expect("runs").map(|entry| entry.expect("entry")) {
            fs::rename(run.path(), seen.join(run.file_name())).expect("a run's folder");
        }
    }
    drop(thief);
    let notes = fs::read_to_string(treasure.loot.join("followed")).unwrap_or_default();
    for run in 0..runs {
        assert!(notes.contains(&format!("ibscope-{}-", 20_000 + run)), "the attacker did not run: {notes}");
    }
    is_nowhere_in(&seen);
    remove(&seen);
    for run in 0..runs {
        let undone = lab.capture(&["undo", "--job", &(20_000 + run).to_string()]);
        assert_eq!(undone.code, 0, "{}{}", undone.stdout, undone.stderr);
    }
    clean(lab);
}

/// Hooks run as `SlurmUser=slurm`, from `sbatch` to the analysis. `hook install` and `selftest`
/// refuse settings that need root.
pub(crate) fn hooks_run_as_slurms_own_user() {
    let lab = HookLab::start_as(SLURM);
    lab.traffic(&tools::sample(SAMPLE));
    let config = lab.configure(SiteConfig::PLAIN);
    let config = config.to_str().expect("path");
    let lines = install(&lab, config);
    lab.slurm(Hooks { lines: &lines, timeout_s: 70 });
    let tested = lab.capture(&["selftest", "--nodelist", NODELIST]);
    assert_eq!(tested.code, 0, "{}{}", tested.stdout, tested.stderr);

    let id = lab.submit(&["-N4", "--comment=ibscope=on"], "sleep 1");
    assert_eq!(lab.ended(id), ("COMPLETED".to_owned(), "0:0".to_owned()), "{}", lab.log_text());
    until(Duration::from_secs(30), "the epilog", || lab.log_text().contains("undone; manifest").then_some(()));
    clean(&lab);
    assert_eq!(lab.drained().trim(), "");
    let user = lab.uid(SLURM);
    let run = crate::jobs::only_folder(&lab.path().join("runs"));
    crate::analysis::check_run(&lab, &run, 2, (user, user));
    crate::slurm_failures::running_jobs_are_canceled_and_requeued(&lab);

    for (site, owner, what) in [
        (SiteConfig { capture: "owner = \"daemon\"", ..SiteConfig::PLAIN }, user, "capture.owner is daemon"),
        (SiteConfig::PLAIN, 0, "cannot write to the state folder"),
    ] {
        lab.configure(site);
        chown(lab.path().join("state"), Some(owner), None).expect("owner");
        let ran = checked(&lab, config);
        assert!(ran.code == 1 && ran.stdout.contains("WRONG") && ran.stdout.contains(what), "{}", ran.stdout);
        let ran = lab.capture(&["selftest", "--nodelist", NODELIST]);
        assert_eq!(ran.code, 1, "{what}: {}", ran.stdout);
    }
}

fn checked(lab: &HookLab, config: &str) -> tools::ProgramResult {
    let [slurm, scripts] = ["before.conf", "scripts"].map(|name| lab.path().join(name).display().to_string());
    lab.ibscope_as("root", &[], &["hook", "install", "--config", config, "--slurm-conf", &slurm, "--scripts", &scripts])
}
