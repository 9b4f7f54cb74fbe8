//! Runs programs on the machine of the orchestrator.

use super::{CommandOutput, FilePart, Files, MAX_OUTPUT_BYTES, PATH, RemoteError, Runner, TransferTimeouts, script};
use crate::quote;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Name of the orchestrator's machine in errors.
pub const HERE: &str = "here";

/// Seconds between the end of a command's time limit and SIGKILL.
pub(super) const GRACE_S: u64 = 2;

/// Runs everything on the orchestrator's machine, for any node name. The environment has only a
/// fixed `PATH` and the given variables.
#[derive(Clone, Debug, Default)]
pub struct LocalRunner {
    /// Environment variables besides `PATH`.
    pub environment: Vec<(String, String)>,
}

impl LocalRunner {
    /// A program with the environment of all programs of this runner. `timeout` ends it in time, also if
    /// ibscope is killed meanwhile. Without the shell of [`script::RUN`](super::script::RUN): the ports of
    /// a job take a thousand programs.
    fn command(&self, argv: &[String], time_limit: Duration) -> Command {
        let mut command = Command::new("/usr/bin/timeout");
        command
            .args(["-k", &GRACE_S.to_string(), &seconds(time_limit)])
            .args(argv)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("PATH", PATH)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn output(&self, argv: &[String], timeout: Duration) -> io::Result<CommandOutput> {
        let mut child = self.command(argv, timeout).spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let read = thread::scope(|scope| {
            let stderr = thread::Builder::new().spawn_scoped(scope, || bounded(stderr))?;
            Ok((bounded(stdout), stderr.join().unwrap_or_else(|_| Err(io::Error::other("the reader panicked")))))
        });
        let (stdout, stderr) = match read {
            Ok(read) => read,
            Err(error) => {
                // Nothing reads the program's output from here on. The program may have ended already.
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        let status = child.wait()?;
        let status = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255);
        Ok(CommandOutput { status, stdout: stdout?, stderr: stderr? })
    }
}

/// Reads to the end. Closes the pipe if the program prints too much, which ends the program.
fn bounded(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MAX_OUTPUT_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() > MAX_OUTPUT_BYTES {
        return Err(io::Error::other("it prints more than 64 MiB"));
    }
    Ok(bytes)
}

/// A time limit for `timeout`; never 0, which would mean no limit.
pub(super) fn seconds(timeout: Duration) -> String {
    format!("{:.3}", timeout.as_secs_f64().max(0.001))
}

/// The output of a command that [`script::RUN`] ran, or an error if the command exceeded its time
/// limit.
pub(super) fn timeout_error_or_output(
    node: &str,
    argv: &[String],
    timeout: Duration,
    took: Duration,
    output: CommandOutput,
) -> Result<CommandOutput, RemoteError> {
    // 124: timeout ended the command. 137: timeout had to kill it. A command that ends earlier with
    // one of these statuses set it itself.
    if took >= timeout && (output.status == 124 || output.status == 137) {
        let command = argv.first().cloned().unwrap_or_default();
        return Err(RemoteError::Timeout { node: node.to_owned(), command, seconds: timeout.as_secs_f64() });
    }
    Ok(output)
}

impl Runner for LocalRunner {
    fn run(&self, node: Option<&str>, argv: &[String], timeout: Duration) -> Result<CommandOutput, RemoteError> {
        let node = node.unwrap_or(HERE);
        quote::check(argv).map_err(|source| RemoteError::Argument { node: node.to_owned(), source })?;
        let began = Instant::now();
        let output = self.output(argv, timeout).map_err(|error| RemoteError::Command {
            node: node.to_owned(),
            command: argv[0].clone(),
            what: error.to_string(),
        })?;
        timeout_error_or_output(node, argv, timeout, began.elapsed(), output)
    }
}

impl Files for LocalRunner {
    fn read_file(
        &self,
        node: &str,
        part: FilePart<'_>,
        timeouts: TransferTimeouts,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<String, RemoteError> {
        let mut copy = || {
            let mut child = self.command(&transfer_argv(part), timeouts.whole).spawn()?;
            let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
            // If the sink fails, the end of the pipe ends the programs.
            let pumped = stdout.map_or(Ok(()), |mut stdout| pump(&mut stdout, sink));
            let printed = bounded(stderr);
            let is_success = child.wait()?.success();
            pumped.and_then(|()| digest_of(is_success, &printed?))
        };
        copy().map_err(|source| file_error(node, part, source))
    }
}

/// The command that reads a part of a file: [`script::FETCH`].
pub(super) fn transfer_argv(part: FilePart<'_>) -> Vec<String> {
    let numbers = [part.offset + 1, part.bytes].map(|number| number.to_string());
    let path = part.path.to_string_lossy().into_owned();
    let own = ["/bin/sh", "-c", script::FETCH, "sh"].map(str::to_owned);
    own.into_iter().chain([path]).chain(numbers).collect()
}

/// SHA-256 that [`script::FETCH`] printed, or the reason why there is none.
pub(super) fn digest_of(is_success: bool, printed: &[u8]) -> io::Result<String> {
    let text = String::from_utf8_lossy(printed);
    let is_digest = |word: &&str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digest = text.lines().filter_map(|line| line.split(' ').next()).find(is_digest);
    match digest.filter(|_| is_success) {
        Some(digest) => Ok(digest.to_owned()),
        None if printed.is_empty() => Err(io::Error::other("the node prints no digest")),
        None => Err(io::Error::other(crate::text::printable(printed))),
    }
}

pub(super) fn file_error(node: &str, part: FilePart<'_>, source: io::Error) -> RemoteError {
    RemoteError::File { node: node.to_owned(), path: part.path.display().to_string(), source }
}

/// Passes all bytes of `source` to `sink`.
pub(super) fn pump(source: &mut impl Read, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        let length = source.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        sink(&buffer[..length])?;
    }
}
