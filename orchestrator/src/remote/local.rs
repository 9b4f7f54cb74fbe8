//! Runs programs on the machine of the orchestrator.

use super::{CommandOutput, Files, MAX_OUTPUT_BYTES, PATH, RemoteError, Runner, script};
use crate::quote;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
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
    fn output(&self, argv: &[String], timeout: Duration) -> io::Result<CommandOutput> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", script::RUN, "sh", &seconds(timeout), &GRACE_S.to_string()])
            .args(argv)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("PATH", PATH)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
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
        path: &Path,
        offset: u64,
        _idle: Duration,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, RemoteError> {
        copy(path, offset, sink).map_err(|source| RemoteError::File {
            node: node.to_owned(),
            path: path.display().to_string(),
            source,
        })
    }
}

fn copy(path: &Path, offset: u64, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<u64> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    pump(&mut file, sink)
}

/// Passes the rest of `source` to `sink`; returns the number of bytes.
pub(super) fn pump(source: &mut impl Read, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<u64> {
    let mut buffer = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        let length = source.read(&mut buffer)?;
        if length == 0 {
            return Ok(total);
        }
        sink(&buffer[..length])?;
        total += length as u64;
    }
}
