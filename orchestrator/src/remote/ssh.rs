//! Runs programs and reads files on nodes over ssh. Each node has one session, which is opened when
//! it is first used and kept open.

use super::connect::{Connector, NodeAddress, milliseconds_until};
use super::helper;
use super::local::{
    GRACE_S, LocalRunner, digest_of, file_error, pump, seconds, timeout_error_or_output, transfer_argv,
};
use super::{CommandOutput, FilePart, Files, MAX_OUTPUT_BYTES, RemoteError, Runner, TransferTimeouts, script};
use crate::config::{self, Config};
use crate::quote;
use ssh2::{Channel, Session};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time added to a command's time limit before its connection counts as broken. By then `timeout`
/// on the node has ended the command.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(GRACE_S + 1);

/// Bytes that a node may send before this machine confirms that it received some: enough for 1 GB/s
/// over a round trip of 16 ms.
const WINDOW_BYTES: u32 = 16 << 20;
/// Largest packet of ssh: that of OpenSSH.
const PACKET_BYTES: u32 = 32 << 10;

/// Longest text that startup files of a login shell may print before a transfer.
const STARTUP_TEXT_BYTES: usize = 64 << 10;

/// Session of a node, once it is open. Locked while a call uses the node.
type SessionSlot = Arc<Mutex<Option<Session>>>;

/// Access to nodes over ssh, and to the orchestrator's machine.
pub struct SshRunner {
    connector: Connector,
    options: config::SshConfig,
    nodes: BTreeMap<String, config::NodeConfig>,
    /// Folder of captures on the sinks.
    captures: PathBuf,
    here: LocalRunner,
    slots: Mutex<HashMap<String, SessionSlot>>,
}

impl SshRunner {
    /// Reads keys and `known_hosts`. Connects to no node yet.
    pub fn new(config: &Config) -> Result<Self, RemoteError> {
        let here = LocalRunner {
            environment: config
                .run
                .slurm_conf
                .iter()
                .map(|path| ("SLURM_CONF".to_owned(), path.display().to_string()))
                .collect(),
        };
        Ok(Self {
            connector: Connector::new(config)?,
            options: config.ssh.clone(),
            nodes: config.nodes.clone(),
            captures: config.capture.directory.clone(),
            here,
            slots: Mutex::default(),
        })
    }

    fn address(&self, node: &str) -> NodeAddress {
        let special = self.nodes.get(node);
        NodeAddress {
            node: node.to_owned(),
            host: special.and_then(|special| special.address.clone()).unwrap_or_else(|| node.to_owned()),
            port: special.and_then(|special| special.port).unwrap_or(self.options.port),
            user: self.options.user.clone(),
        }
    }

    /// Words of a command on a node: the program under [`script::RUN`], or the helper, which runs it in
    /// the same way.
    fn words(&self, argv: &[String], limit_s: &str) -> Vec<String> {
        let helper = self.options.helper.as_ref();
        if let Some((program, request)) =
            helper.and_then(|program| Some((program, helper::request(argv, &self.captures)?)))
        {
            return helper::call(program, limit_s, &request);
        }
        let own = ["/bin/sh", "-c", script::RUN, "sh", limit_s].map(str::to_owned).into_iter();
        own.chain([GRACE_S.to_string()]).chain(argv.iter().cloned()).collect()
    }

    fn slot(&self, node: &str) -> SessionSlot {
        Arc::clone(self.slots.lock().unwrap_or_else(PoisonError::into_inner).entry(node.to_owned()).or_default())
    }

    /// Does work in the node's session. A session that breaks is dropped, and the next call opens a
    /// new one.
    fn with_session<T>(
        &self,
        node: &str,
        command: &str,
        work: impl FnOnce(&Session, Channel) -> Result<T, ConnectionError>,
    ) -> Result<T, RemoteError> {
        let slot = self.slot(node);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |what: String| RemoteError::Command { node: node.to_owned(), command: command.to_owned(), what };
        let by = || Instant::now() + Duration::from_secs(u64::from(self.options.connect_timeout_s));
        let kept = slot.take().and_then(|session| open(&session, by()).ok().map(|channel| (session, channel)));
        let (session, channel) = if let Some(both) = kept {
            both
        } else {
            let session = self.connector.connect(&self.address(node), by())?;
            let channel = open(&session, by()).map_err(|error| failed(format!("no channel: {error}")))?;
            (session, channel)
        };
        match work(&session, channel) {
            Ok(result) => {
                *slot = Some(session);
                Ok(result)
            }
            Err(ConnectionError(what)) => {
                // Close the rest of the session without waiting for the node.
                session.set_timeout(100);
                Err(failed(what))
            }
        }
    }
}

/// Reason why a session is not used again.
struct ConnectionError(String);

impl From<ssh2::Error> for ConnectionError {
    fn from(error: ssh2::Error) -> Self {
        Self(format!("the connection broke: {error}"))
    }
}

fn open(session: &Session, deadline: Instant) -> Result<Channel, ssh2::Error> {
    session.set_blocking(true);
    session.set_timeout(milliseconds_until(deadline));
    session.channel_open("session", WINDOW_BYTES, PACKET_BYTES, None)
}

impl Runner for SshRunner {
    fn run(&self, node: Option<&str>, argv: &[String], timeout: Duration) -> Result<CommandOutput, RemoteError> {
        let Some(node) = node else { return self.here.run(None, argv, timeout) };
        quote::check(argv).map_err(|source| RemoteError::Argument { node: node.to_owned(), source })?;
        let words = self.words(argv, &seconds(timeout));
        let line = format!("exec {}", quote::join(words.iter().map(String::as_str)));
        let (output, took) = self.with_session(node, &argv[0], |session, channel| {
            let began = Instant::now();
            exec(session, channel, &line, began + timeout + TIMEOUT_MARGIN).map(|output| (output, began.elapsed()))
        })?;
        let output = without_startup_text(output, self.options.helper.is_some())
            .map_err(|what| RemoteError::Command { node: node.to_owned(), command: argv[0].clone(), what })?;
        timeout_error_or_output(node, argv, timeout, took, output)
    }
}

/// Place after [`script::OUTPUT_MARK`], where the output of a command begins.
fn output_start(printed: &[u8]) -> Option<usize> {
    let mark = script::OUTPUT_MARK.as_bytes();
    printed.windows(mark.len()).position(|bytes| bytes == mark).map(|start| start + mark.len())
}

/// Fault of a command whose output has no mark.
const NOT_RUN: &str = "the command did not run: a startup file of the login shell, such as .bashrc, or the shell itself ended first; let \
                       startup files end only interactive shells";

/// The output of a command without what startup files of the login shell printed before it. An error if
/// there is no mark: the command did not run, whatever the status of the shell. With a helper, sudo or
/// the helper may refuse the command with a status: then the whole text is the reason.
fn without_startup_text(mut output: CommandOutput, has_helper: bool) -> Result<CommandOutput, String> {
    match output_start(&output.stdout) {
        Some(start) => {
            output.stdout = output.stdout.split_off(start);
            Ok(output)
        }
        None if has_helper && !output.is_success() => Ok(output),
        None => {
            let printed = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
            let printed = crate::text::printable(printed);
            let printed = if printed.is_empty() { "it printed nothing".to_owned() } else { printed };
            Err(format!("{NOT_RUN} (status {}: {printed})", output.status))
        }
    }
}

/// Drops what startup files of the login shell printed before a file.
#[derive(Default)]
struct StartupFilter {
    has_begun: bool,
    /// What was received before the file begins.
    received: Vec<u8>,
}

impl StartupFilter {
    /// Passes the bytes of the file on to `sink`.
    fn pass(&mut self, chunk: &[u8], sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if self.has_begun {
            return sink(chunk);
        }
        self.received.extend_from_slice(chunk);
        if let Some(start) = output_start(&self.received) {
            self.has_begun = true;
            let received = std::mem::take(&mut self.received);
            return if start < received.len() { sink(&received[start..]) } else { Ok(()) };
        }
        if self.received.len() > STARTUP_TEXT_BYTES {
            return Err(io::Error::other(
                "a startup file of the login shell, such as .bashrc, prints more than 64 KiB; let it print only if the \
                 shell is interactive",
            ));
        }
        Ok(())
    }
}

/// Runs a command line in a channel. Reads both outputs as they arrive: if one were not read, it
/// would block the other.
fn exec(
    session: &Session,
    mut channel: Channel,
    line: &str,
    deadline: Instant,
) -> Result<CommandOutput, ConnectionError> {
    session.set_timeout(milliseconds_until(deadline));
    channel.exec(line)?;
    session.set_blocking(false);
    let mut output = CommandOutput::default();
    let mut errors = channel.stderr();
    let mut buffer = vec![0; 32 << 10];
    let mut pause = Duration::ZERO;
    loop {
        let length = read_available(&mut channel, &mut buffer, &mut output.stdout)?
            + read_available(&mut errors, &mut buffer, &mut output.stderr)?;
        if output.stdout.len() + output.stderr.len() > MAX_OUTPUT_BYTES {
            return Err(ConnectionError("it prints more than 64 MiB".to_owned()));
        }
        if length > 0 {
            pause = Duration::ZERO;
            continue;
        }
        if channel.eof() {
            break;
        }
        if Instant::now() >= deadline {
            return Err(ConnectionError("the node no longer answers".to_owned()));
        }
        pause = (pause * 2).clamp(Duration::from_micros(200), Duration::from_millis(4));
        thread::sleep(pause);
    }
    session.set_blocking(true);
    session.set_timeout(milliseconds_until(deadline));
    channel.wait_close()?;
    output.status = channel.exit_status()?;
    if let Some(signal) = channel.exit_signal()?.exit_signal {
        output.status = SIGNALS.iter().find(|(name, _)| *name == signal).map_or(255, |(_, number)| 128 + number);
    }
    Ok(output)
}

/// Signal names of ssh, with the numbers of Linux.
const SIGNALS: [(&str, i32); 12] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("ABRT", 6),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("TERM", 15),
];

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn broken(error: io::Error) -> ConnectionError {
    ConnectionError(format!("the connection broke: {error}"))
}

/// Appends the bytes that are available now to `into`; returns their number.
fn read_available(stream: &mut impl Read, buffer: &mut [u8], into: &mut Vec<u8>) -> Result<usize, ConnectionError> {
    match stream.read(buffer) {
        Ok(length) => {
            into.extend_from_slice(&buffer[..length]);
            Ok(length)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(broken(error)),
    }
}

impl Files for SshRunner {
    fn read_file(
        &self,
        node: &str,
        part: FilePart<'_>,
        timeouts: TransferTimeouts,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<String, RemoteError> {
        let words = self.words(&transfer_argv(part), &seconds(timeouts.whole));
        quote::check(&words).map_err(|source| RemoteError::Argument { node: node.to_owned(), source })?;
        let line = format!("exec {}", quote::join(words.iter().map(String::as_str)));
        let mut refused = None;
        let copied = self.with_session(node, "the transfer", |session, mut channel| {
            session.set_timeout(u32::try_from(timeouts.idle.as_millis()).unwrap_or(u32::MAX).max(1));
            channel.exec(&line)?;
            // If the sink ends the transfer, the session ends too: nobody waits for what is on its way.
            let mut filter = StartupFilter::default();
            let mut receive =
                |chunk: &[u8]| filter.pass(chunk, sink).map_err(|error| refused.insert(error).kind().into());
            pump(&mut channel, &mut receive).map_err(broken)?;
            let mut printed = Vec::new();
            let stderr = channel.stderr();
            stderr.take(MAX_OUTPUT_BYTES as u64).read_to_end(&mut printed).map_err(broken)?;
            channel.wait_close()?;
            let is_success = channel.exit_status()? == 0;
            if is_success && !filter.has_begun {
                return Err(ConnectionError(NOT_RUN.to_owned()));
            }
            Ok((is_success, printed))
        });
        if let Some(source) = refused {
            return Err(file_error(node, part, source));
        }
        let (is_success, printed) = copied?;
        digest_of(is_success, &printed).map_err(|source| file_error(node, part, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a node sends, in pieces of each length, for a file behind a startup file that prints a text.
    fn received(startup: &str, file: &[u8], piece: usize) -> io::Result<Vec<u8>> {
        let sent = [startup.as_bytes(), script::OUTPUT_MARK.as_bytes(), file].concat();
        let (mut filter, mut passed) = (StartupFilter::default(), Vec::new());
        for chunk in sent.chunks(piece) {
            filter.pass(chunk, &mut |bytes| {
                assert!(!bytes.is_empty());
                passed.extend_from_slice(bytes);
                Ok(())
            })?;
        }
        Ok(passed)
    }

    #[test]
    fn a_text_of_a_startup_file_is_no_output() {
        let mark = script::OUTPUT_MARK;
        // A text without a line end, and a file that has the mark too.
        for startup in ["", "Welcome to n1\n", "no line end", "ibscope-output-begin", "a\n\nb\r\n"] {
            for file in ["", "packets", "\0\u{1}", &format!("{mark}more"), &format!("a{mark}")] {
                let stdout = [startup, mark, file].concat().into_bytes();
                let output = CommandOutput { stdout, ..CommandOutput::default() };
                assert_eq!(without_startup_text(output, false).unwrap().stdout, file.as_bytes(), "{startup:?}");
                for piece in 1..40 {
                    assert_eq!(received(startup, file.as_bytes(), piece).unwrap(), file.as_bytes(), "{startup:?}");
                }
            }
        }
    }

    /// A startup file that ends the shell, whatever its status. sudo, which starts the helper, refuses a
    /// command with a status.
    #[test]
    fn a_command_whose_shell_ended_first_did_not_run() {
        let output = |status: i32, stdout: &str, stderr: &str| CommandOutput {
            status,
            stdout: stdout.as_bytes().to_vec(),
            stderr: stderr.as_bytes().to_vec(),
        };
        for (status, stdout, stderr, printed) in [
            (0, "", "", "(status 0: it printed nothing)"),
            (0, "Welcome\n", "", "(status 0: Welcome)"),
            (
                1,
                "",
                "This account is currently not available.\n",
                "(status 1: This account is currently not available.)",
            ),
        ] {
            let what = without_startup_text(output(status, stdout, stderr), false).unwrap_err();
            assert!(what.starts_with("the command did not run: a startup file") && what.ends_with(printed), "{what}");
        }
        let refused = output(1, "", "sudo: a password is required\n");
        assert_eq!(without_startup_text(refused.clone(), true), Ok(refused));
        assert!(without_startup_text(output(0, "", ""), true).is_err());
    }

    #[test]
    fn an_endless_text_of_a_startup_file_ends_a_transfer() {
        let startup = "Welcome! ".repeat(STARTUP_TEXT_BYTES / 9 + 1000);
        let error = received(&startup, b"packets", 4096).unwrap_err().to_string();
        assert!(error.contains("prints more than 64 KiB"), "{error}");
        assert_eq!(received(&startup[..STARTUP_TEXT_BYTES - 4096], b"packets", 4096).unwrap(), b"packets");
    }
}
