//! `ibscope capture relay`: runs a capture program on a sink and analyzes its packets while they
//! arrive. No packet is written to a file. The result is a partial profile in a tar archive.
//!
//! The capture program writes into a FIFO. The relay reads it, so that the program never waits, and
//! passes the records on to `ibscope analyze --partial`, which runs under a limit of memory and
//! CPU. Records that the analysis cannot keep up with are dropped and counted.
//!
//! The relay runs as root, and what it archives can be read by others. It therefore follows no link, and
//! archives nothing from a folder that another user can change.

mod records;

use super::common::output;
use anyhow::{Context as _, bail};
use clap::Args;
use ibscope_orchestrator::capture::ProfileCounts;
use records::RecordTotals;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A capture program that does not end within this time after a signal gets the next signal.
const PATIENCE: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub(super) struct RelayArgs {
    /// FIFO that the capture program writes to; its folder is created for this run
    #[arg(long, value_name = "FIFO")]
    packets: PathBuf,
    /// Archive with the partial profile, named NAME.ibp.tar
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,
    /// Hold at most this many bytes of records for the analysis
    #[arg(long, value_name = "BYTES")]
    queue_bytes: u64,
    /// Limit of the memory of the analysis
    #[arg(long, value_name = "BYTES")]
    memory_bytes: u64,
    /// Cores of the analysis
    #[arg(long, value_name = "N")]
    cpus: u32,
    /// The capture program and its arguments
    #[arg(last = true, required = true)]
    capture: Vec<String>,
}

/// Signals that the relay received.
struct RelaySignals {
    /// End the capture, and complete the profile.
    stop: Arc<AtomicBool>,
    /// End the analysis too, with a profile of the records so far.
    hurry: Arc<AtomicBool>,
}

pub(super) fn run(args: &RelayArgs) -> anyhow::Result<ExitCode> {
    let signals = RelaySignals { stop: Arc::default(), hurry: Arc::default() };
    for (signal, flag) in [(SIGINT, &signals.stop), (SIGHUP, &signals.stop), (SIGTERM, &signals.hurry)] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    let folder = args.packets.parent().context("the FIFO has no folder")?;
    DirBuilder::new().mode(0o700).create(folder).with_context(|| folder.display().to_string())?;
    let ran = relay(args, folder, &signals);
    // The profile is in its archive by now.
    fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    ran
}

fn relay(args: &RelayArgs, folder: &Path, signals: &RelaySignals) -> anyhow::Result<ExitCode> {
    run_tool(Command::new("/usr/bin/mkfifo").args(["-m", "600", "--"]).arg(&args.packets))?;
    // Open at both ends: neither the relay nor the capture program waits for the other to open it.
    let both_ends = OpenOptions::new().read(true).write(true).open(&args.packets)?;
    let from = File::open(&args.packets)?;
    let base = args.profile.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let base = base.strip_suffix(".ibp.tar").context("the profile must be named NAME.ibp.tar")?;
    // The profile names its input by this path.
    let input = folder.join(format!("{base}.pcap"));
    symlink("/dev/stdin", &input)?;
    let profile = folder.join(format!("{base}.ibp"));
    let (mut analysis, limited_by) = start_analysis(args, &input, &profile)?;
    let to = analysis.stdin.take().context("the analysis has no input")?;
    let mut archive = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.profile)?;
    // The capture ends if the relay is killed.
    let mut capture =
        Command::new("/usr/bin/setpriv").args(["--pdeathsig", "INT", "--"]).args(&args.capture).spawn()?;
    let (all, analyzed, captured) = pass_on(args, (from, both_ends, to), &mut capture, signals)?;
    let status = wait(&mut analysis, || signals.hurry.load(Ordering::SeqCst))?;
    let counts = ProfileCounts {
        packets: analyzed.packets,
        bytes: analyzed.bytes,
        dropped_packets: all.packets - analyzed.packets,
        dropped_bytes: all.bytes - analyzed.bytes,
        limited_by,
    };
    output::eprint_line(&format!("{}{}", ProfileCounts::PREFIX, serde_json::to_string(&counts)?));
    if !profile.exists() {
        drop(archive);
        bail!("the analysis wrote no profile: it ended with {status}");
    }
    write_archive(&mut archive, folder, &profile)?;
    Ok(ExitCode::from(captured.code().map_or(1, |code| code as u8)))
}

/// Mode bits that let others write.
const OTHERS_WRITE: u32 = 0o022;

/// Archives the profile in the folder. Refuses a folder that another user can change, who could put links
/// to other files there: the archive may be given to that user. Archives links as links.
fn write_archive(archive: &mut File, folder: &Path, profile: &Path) -> anyhow::Result<()> {
    let own = fs::metadata("/proc/self").context("/proc/self")?.uid();
    for path in [folder, profile] {
        let found = fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
        let is_trusted = (found.uid() == 0 || found.uid() == own) && found.mode() & OTHERS_WRITE == 0;
        if !found.is_dir() || !is_trusted {
            bail!(
                "{}: no profile is archived: it must be a folder that only root or the user of the relay can change",
                path.display()
            );
        }
    }
    let mut tar = tar::Builder::new(&mut *archive);
    tar.follow_symlinks(false);
    tar.append_dir_all(profile.file_name().unwrap_or_default(), profile)?;
    tar.finish()?;
    drop(tar);
    archive.sync_all()?;
    Ok(())
}

/// Passes records on until the capture has ended. Returns those of the stream, those that the
/// analysis took, and how the capture ended.
fn pass_on(
    args: &RelayArgs,
    (from, both_ends, to): (File, File, ChildStdin),
    capture: &mut Child,
    signals: &RelaySignals,
) -> anyhow::Result<(RecordTotals, RecordTotals, ExitStatus)> {
    let (queue, source) = records::queue(usize::try_from(args.queue_bytes).unwrap_or(usize::MAX));
    thread::scope(|scope| {
        let reader = scope.spawn(move || records::read(from, &queue));
        let writer = scope.spawn(move || records::write(&source, to));
        let is_stopped = || signals.stop.load(Ordering::SeqCst) || signals.hurry.load(Ordering::SeqCst);
        let captured = wait(capture, is_stopped)?;
        // The reader reads the rest, and then the end.
        drop(both_ends);
        let (all, read) = reader.join().map_err(|_| anyhow::anyhow!("the thread that reads packets panicked"))?;
        if let Err(error) = read {
            output::eprint_line(&format!("ibscope: {error}"));
        }
        let analyzed = writer.join().map_err(|_| anyhow::anyhow!("the thread that passes packets on panicked"))?;
        Ok((all, analyzed, captured))
    })
}

/// Waits for a program. Once it shall stop, it gets SIGINT, SIGTERM and SIGKILL, each after a while.
fn wait(program: &mut Child, shall_stop: impl Fn() -> bool) -> anyhow::Result<ExitStatus> {
    let mut left = ["INT", "TERM", "KILL"].into_iter();
    let mut last: Option<Instant> = None;
    loop {
        if let Some(status) = program.try_wait()? {
            return Ok(status);
        }
        if shall_stop()
            && last.is_none_or(|last| last.elapsed() >= PATIENCE)
            && let Some(signal) = left.next()
        {
            last = Some(Instant::now());
            let id = program.id().to_string();
            let script = "kill -s \"$1\" \"$2\"";
            // A program that has just ended is not signaled.
            let _ = Command::new("/bin/sh").args(["-c", script, "sh", signal, &id]).stderr(Stdio::null()).status();
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Starts the analysis under its limits, and names them.
fn start_analysis(args: &RelayArgs, input: &Path, profile: &Path) -> anyhow::Result<(Child, String)> {
    let (memory, cpus) = (args.memory_bytes, args.cpus);
    let program = std::env::current_exe()?;
    let (mut command, limited_by) = match scope(memory, cpus) {
        Ok(command) => (command, format!("systemd-run: {memory} bytes of memory, {cpus} CPUs")),
        Err(why) => {
            let mut command = Command::new("/usr/bin/prlimit");
            command.args([&format!("--data={memory}"), "--", "/usr/bin/nice", "-n", "19"]);
            let limits = format!("{memory} bytes of data, {cpus} threads, no limit of CPU time");
            (command, format!("prlimit and nice: {limits} ({why})"))
        }
    };
    command.arg(program).args(["analyze", "--partial", "--threads", &cpus.to_string()]).arg(input);
    command.arg("-o").arg(profile).stdin(Stdio::piped()).stdout(Stdio::null());
    let child = command.spawn().context("the analysis cannot be started")?;
    Ok((child, limited_by))
}

/// A command that runs the program after it in a scope of systemd with these limits, or the reason
/// why there is none.
fn scope(memory_bytes: u64, cpus: u32) -> Result<Command, String> {
    // systemd runs services only if it is process 1 (sd_booted(3)).
    if !Path::new("/run/systemd/system").is_dir() {
        return Err("systemd does not run here".to_owned());
    }
    let command = || {
        let mut command = Command::new("/usr/bin/systemd-run");
        command.args(["--scope", "--quiet", "--collect", "-p", &format!("MemoryMax={memory_bytes}")]);
        command.args(["-p", "MemorySwapMax=0", "-p", &format!("CPUQuota={}%", u64::from(cpus) * 100), "--"]);
        command
    };
    // Only root, or a user whom polkit allows it, may create a scope.
    let tried = command().arg("/bin/true").stdin(Stdio::null()).output();
    let tried = tried.map_err(|error| format!("systemd-run cannot be started: {error}"))?;
    if tried.status.success() {
        return Ok(command());
    }
    let printed = String::from_utf8_lossy(&tried.stderr);
    let first = printed.lines().next().unwrap_or_default();
    Err(format!("systemd-run ended with {}: {first}", tried.status))
}

fn run_tool(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, chown};

    /// Writes an archive of a profile with one file and a link to a secret. Returns its entries, or the
    /// error.
    fn archived(folder: &Path) -> Result<Vec<(String, tar::EntryType, u64)>, String> {
        let path = folder.with_extension("tar");
        let mut archive = File::create(&path).expect("archive");
        write_archive(&mut archive, folder, &folder.join("a.ibp")).map_err(|error| error.to_string())?;
        let mut tar = tar::Archive::new(File::open(&path).expect("archive"));
        let entries = tar.entries().expect("entries").map(|entry| {
            let entry = entry.expect("entry");
            let name = entry.path().expect("path").display().to_string();
            (name, entry.header().entry_type(), entry.size())
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    #[test]
    fn a_link_is_archived_as_a_link_and_folders_of_others_are_refused() {
        let home = tempfile::tempdir().expect("folder");
        let folder = home.path().join("relay");
        let profile = folder.join("a.ibp");
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
        fs::create_dir_all(&profile).expect("folder");
        mode(&folder, 0o700);
        mode(&profile, 0o700);
        fs::create_dir(home.path().join("secret")).expect("folder");
        fs::write(home.path().join("secret/key"), "secret").expect("secret");
        fs::write(profile.join("profile.json"), "{}").expect("file");
        symlink(home.path().join("secret/key"), profile.join("key")).expect("link");
        symlink(home.path().join("secret"), profile.join("tables")).expect("link");
        let entries = archived(&folder).expect("an archive");
        let kinds: Vec<_> = entries.iter().map(|(name, kind, size)| (name.as_str(), *kind, *size)).collect();
        let link = tar::EntryType::Symlink;
        let expected =
            [("a.ibp/key", link, 0), ("a.ibp/profile.json", tar::EntryType::Regular, 2), ("a.ibp/tables", link, 0)];
        assert_eq!(kinds.iter().filter(|(_, kind, _)| !kind.is_dir()).copied().collect::<Vec<_>>(), expected);

        for path in [&folder, &profile] {
            for bits in [0o770, 0o707] {
                mode(path, bits);
                assert!(archived(&folder).unwrap_err().contains("no profile is archived"), "{bits:o}");
            }
            mode(path, 0o700);
        }
        fs::rename(&profile, home.path().join("moved")).expect("moved");
        symlink(home.path().join("secret"), &profile).expect("link");
        assert!(archived(&folder).unwrap_err().contains("no profile is archived"));
        if chown(&folder, Some(65_534), None).is_ok() {
            assert!(archived(&folder).unwrap_err().contains("no profile is archived"));
        } else {
            println!("SKIPPED: only root can give folders to others");
        }
    }
}
