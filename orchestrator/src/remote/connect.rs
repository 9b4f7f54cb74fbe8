//! Opens ssh sessions: connects to a node, through a jump host if one is configured, checks the
//! host key, and logs in by public key.

use super::RemoteError;
use crate::config::{self, Config};
use crate::log;
use crate::text::plural;
use ssh2::{Channel, CheckResult, HashType, HostKeyType, KnownHostFileKind, MethodType, Session};
use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Host key types, requested one after the other. A server has keys of several types, and
/// `known_hosts` may have any of them.
const KEY_KINDS: [&str; 3] =
    ["ssh-ed25519", "ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521", "rsa-sha2-512,rsa-sha2-256"];

/// Maximum number of simultaneous logins at the jump host. sshd drops connections at random if more
/// than ten have not logged in yet.
const MAX_JUMPS: usize = 8;

/// Address and user of a node.
#[derive(Clone, Debug)]
pub(super) struct NodeAddress {
    /// Name of the node, for errors and `known_hosts`.
    pub(super) node: String,
    /// Host name or IP address.
    pub(super) host: String,
    /// Port of the ssh daemon.
    pub(super) port: u16,
    /// User to log in as.
    pub(super) user: String,
}

impl NodeAddress {
    /// The address as `known_hosts` has it.
    fn known_hosts_name(&self) -> String {
        if self.port == 22 { self.host.clone() } else { format!("[{}]:{}", self.host, self.port) }
    }

    fn failed(&self, what: impl Display) -> RemoteError {
        let address = format!("{}:{}", self.host, self.port);
        RemoteError::Connect { node: self.node.clone(), address, what: what.to_string() }
    }
}

/// Opens sessions.
pub(super) struct Connector {
    ssh: config::SshConfig,
    known_hosts: String,
    /// Lines of `known_hosts` that cannot be read, from 1. They are skipped, as ssh does.
    unreadable: Vec<usize>,
    /// Log file, and whether there is syslog, for a warning.
    log: (Option<PathBuf>, bool),
    jumps: Mutex<usize>,
    jump_ended: Condvar,
}

impl Connector {
    /// Reads `known_hosts` and checks the private key, so that their faults are reported once and
    /// not per node.
    pub(super) fn new(config: &Config) -> Result<Self, RemoteError> {
        let ssh = &config.ssh;
        let wrong = |path: &Path, what: String| RemoteError::KeyFile { path: path.display().to_string(), what };
        let known_hosts = fs::read(&ssh.known_hosts)
            .map_err(|error| wrong(&ssh.known_hosts, format!("known_hosts cannot be read: {error}")))?;
        // Only comments may have other characters than ASCII.
        let known_hosts = String::from_utf8_lossy(&known_hosts).into_owned();
        let unreadable = unreadable_lines(&known_hosts)
            .map_err(|error| wrong(&ssh.known_hosts, format!("known_hosts cannot be used: {error}")))?;
        let (mode, key) = fs::metadata(&ssh.key)
            .and_then(|meta| Ok((meta.permissions().mode(), fs::read(&ssh.key)?)))
            .map_err(|error| wrong(&ssh.key, format!("the private key cannot be read: {error}")))?;
        if mode & 0o077 != 0 {
            return Err(wrong(
                &ssh.key,
                format!("other users can read the private key (mode {:o}); run `chmod 600` on it", mode & 0o777),
            ));
        }
        if ssh.agent.is_none() && has_passphrase(&String::from_utf8_lossy(&key)) {
            return Err(wrong(
                &ssh.key,
                "the private key has a passphrase; set ssh.agent to the socket of an agent that holds it, or use a key \
                 without passphrase"
                    .to_owned(),
            ));
        }
        let (ssh, jumps, jump_ended) = (ssh.clone(), Mutex::new(0), Condvar::new());
        let log = (config.run.log.clone(), config.run.syslog);
        Ok(Self { ssh, known_hosts, unreadable, log, jumps, jump_ended })
    }

    /// Warns on standard error and in the log about lines of `known_hosts` that are skipped; once per
    /// process, because a process opens many sessions.
    fn warn_once(&self) {
        static WARNED: Once = Once::new();
        let Some(lines) = lines_text(&self.unreadable) else { return };
        log::warn_once(&WARNED, (self.log.0.as_deref(), self.log.1), "ssh", || {
            format!(
                "{}: {lines} skipped: libssh2 finds no host with a valid key there; correct the file, because a host \
                 whose key is nowhere else in it is refused",
                self.ssh.known_hosts.display()
            )
        });
    }

    /// Opens a session and logs in.
    pub(super) fn connect(&self, address: &NodeAddress, deadline: Instant) -> Result<Session, RemoteError> {
        let deadline = deadline.min(Instant::now() + Duration::from_secs(u64::from(self.ssh.connect_timeout_s)));
        self.warn_once();
        let mut refused = None;
        for kinds in KEY_KINDS {
            match self.session(address, kinds, deadline) {
                Ok(session) => {
                    self.login(address, &session)?;
                    return Ok(session);
                }
                // `known_hosts` may have a key of another type. If the server has no other key, the
                // first error is reported.
                Err(error @ (RemoteError::HostKeyChanged { .. } | RemoteError::HostKeyUnknown { .. })) => {
                    refused.get_or_insert(error);
                }
                Err(error) if refused.is_none() && kinds != KEY_KINDS[2] && is_no_common_key(&error) => {}
                Err(error) => return Err(refused.unwrap_or(error)),
            }
        }
        Err(refused.unwrap_or_else(|| address.failed("it has no host key of a supported type")))
    }

    fn session(&self, address: &NodeAddress, kinds: &str, deadline: Instant) -> Result<Session, RemoteError> {
        match &self.ssh.jump_host {
            Some(jump) if address.node != jump.address => {
                let through = self.open_jump_tunnel(jump, address, deadline)?;
                self.handshake(address, through, kinds, deadline)
            }
            _ => self.handshake(address, dial(address, deadline)?, kinds, deadline),
        }
    }

    /// Starts ssh on a connection and checks the host key.
    fn handshake(
        &self,
        address: &NodeAddress,
        stream: impl AsRawFd + 'static,
        kinds: &str,
        deadline: Instant,
    ) -> Result<Session, RemoteError> {
        let mut session = Session::new().map_err(|error| address.failed(error))?;
        session.set_timeout(milliseconds_until(deadline));
        session.set_tcp_stream(stream);
        session.method_pref(MethodType::HostKey, kinds).map_err(|error| address.failed(error))?;
        session.handshake().map_err(|error| address.failed(format!("{error} (key exchange)")))?;
        self.check_host_key(address, &session)?;
        Ok(session)
    }

    /// Checks the host key, because libssh2 itself refuses none.
    fn check_host_key(&self, address: &NodeAddress, session: &Session) -> Result<(), RemoteError> {
        let unreadable = |error: ssh2::Error| RemoteError::KeyFile {
            path: self.ssh.known_hosts.display().to_string(),
            what: format!("known_hosts cannot be used: {error}"),
        };
        let (key, _): (&[u8], HostKeyType) = session.host_key().ok_or_else(|| address.failed("it has no host key"))?;
        let mut known = session.known_hosts().map_err(unreadable)?;
        for (number, line) in (1..).zip(self.known_hosts.lines()) {
            if is_plain(line) && !self.unreadable.contains(&number) {
                known.read_str(line, KnownHostFileKind::OpenSSH).map_err(unreadable)?;
            }
        }
        // Look up the address, as ssh does, then the name of the node.
        let mut answer = known.check_port(&address.host, address.port, key);
        if matches!(answer, CheckResult::NotFound) && address.node != address.host {
            answer = known.check_port(&address.node, address.port, key);
        }
        let has_authorities = self.known_hosts.lines().any(|line| marked(line, "@cert-authority").is_some());
        let fingerprint = || {
            let bytes = session.host_key_hash(HashType::Sha256).unwrap_or_default();
            format!("SHA256:{}", base64(bytes))
        };
        let known_hosts = self.ssh.known_hosts.display().to_string();
        if self.known_hosts.lines().any(|line| revokes(line, key)) {
            let fingerprint = fingerprint();
            return Err(address.failed(format!("{known_hosts} revokes its host key {fingerprint} (@revoked)")));
        }
        match answer {
            CheckResult::Match => Ok(()),
            CheckResult::Mismatch => Err(RemoteError::HostKeyChanged {
                node: address.node.clone(),
                address: address.known_hosts_name(),
                fingerprint: fingerprint(),
                known_hosts,
            }),
            CheckResult::NotFound => Err(RemoteError::HostKeyUnknown {
                node: address.node.clone(),
                address: address.known_hosts_name(),
                fingerprint: fingerprint(),
                known_hosts: self.with_skipped_lines(known_hosts, has_authorities),
            }),
            CheckResult::Failure => Err(address.failed("its host key cannot be checked")),
        }
    }

    /// The path of `known_hosts`, with the lines in it that do not count.
    fn with_skipped_lines(&self, path: String, has_authorities: bool) -> String {
        let authorities = "whose lines with @cert-authority do not count because libssh2 cannot check certificates";
        let unreadable = lines_text(&self.unreadable).map(|lines| format!("in which {lines} cannot be read"));
        let skipped = has_authorities.then(|| authorities.to_owned()).into_iter().chain(unreadable);
        let skipped = skipped.collect::<Vec<_>>().join(" and ");
        if skipped.is_empty() { path } else { format!("{path}, {skipped},") }
    }

    fn login(&self, address: &NodeAddress, session: &Session) -> Result<(), RemoteError> {
        let logged_in = match &self.ssh.agent {
            Some(socket) => self.login_by_agent(socket, &address.user, session),
            None => session.userauth_pubkey_file(&address.user, None, &self.ssh.key, None),
        };
        logged_in.map_err(|error| RemoteError::Login {
            node: address.node.clone(),
            user: address.user.clone(),
            key: self.ssh.key.display().to_string(),
            what: match &self.ssh.agent {
                Some(socket) => format!("the agent at {}: {}", socket.display(), refusal_text(error.message())),
                None => refusal_text(error.message()),
            },
        })
    }

    /// Logs in with the keys of an agent: with that of `KEY.pub` beside the private key, or with all of
    /// them if there is no such file. Servers accept a few attempts only.
    fn login_by_agent(&self, socket: &Path, user: &str, session: &Session) -> Result<(), ssh2::Error> {
        let mut public = self.ssh.key.clone().into_os_string();
        public.push(".pub");
        let public = fs::read_to_string(public).ok();
        let wanted = public.as_deref().and_then(|line| line.split_ascii_whitespace().nth(1));
        let mut agent = session.agent()?;
        agent.set_identity_path(socket)?;
        agent.connect()?;
        agent.list_identities()?;
        let mut last = ssh2::Error::new(ssh2::ErrorCode::Session(AUTHENTICATION_FAILED), "it does not hold this key");
        for identity in agent.identities()? {
            if wanted.is_some_and(|wanted| !is_base64_of(wanted, identity.blob())) {
                continue;
            }
            match agent.userauth(user, &identity) {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Connects to a node from the jump host. libssh2 needs a socket, so a thread forwards the
    /// bytes between a socket and the channel.
    fn open_jump_tunnel(
        &self,
        jump: &config::JumpHost,
        address: &NodeAddress,
        deadline: Instant,
    ) -> Result<UnixStream, RemoteError> {
        let _slot = self.acquire_jump_slot();
        let user = jump.user.clone().unwrap_or_else(|| address.user.clone());
        let jump = NodeAddress { node: jump.address.clone(), host: jump.address.clone(), port: jump.port, user };
        let session = self.connect(&jump, deadline)?;
        session.set_timeout(milliseconds_until(deadline));
        let channel = session
            .channel_direct_tcpip(&address.host, address.port, None)
            .map_err(|error| address.failed(format!("{error} (from the jump host {})", jump.host)))?;
        let (near, far) = UnixStream::pair().map_err(|error| address.failed(error))?;
        far.set_nonblocking(true).map_err(|error| address.failed(error))?;
        session.set_blocking(false);
        let forward_bytes = move || forward(&session, channel, far);
        thread::Builder::new()
            .spawn(forward_bytes)
            .map_err(|error| address.failed(format!("a thread cannot be started: {error}")))?;
        Ok(near)
    }

    fn acquire_jump_slot(&self) -> JumpSlot<'_> {
        let mut jumps = self.jumps.lock().unwrap_or_else(PoisonError::into_inner);
        while *jumps >= MAX_JUMPS {
            jumps = self.jump_ended.wait(jumps).unwrap_or_else(PoisonError::into_inner);
        }
        *jumps += 1;
        JumpSlot(self)
    }
}

/// A slot for a login at the jump host.
struct JumpSlot<'a>(&'a Connector);

impl Drop for JumpSlot<'_> {
    fn drop(&mut self) {
        *self.0.jumps.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.jump_ended.notify_one();
    }
}

/// The message of a refused login. sshd refuses the right key in the same way if the login shell of the
/// user is missing.
fn refusal_text(message: &str) -> String {
    format!("{message} (sshd also refuses users whose login shell is not installed there, see `getent passwd`)")
}

/// `LIBSSH2_ERROR_AUTHENTICATION_FAILED`.
const AUTHENTICATION_FAILED: i32 = -18;

/// True if a private key is encrypted: PEM names its cipher, and the format of OpenSSH (`PROTOCOL.key`)
/// begins with a fixed text and the name of the cipher.
fn has_passphrase(key: &str) -> bool {
    /// `openssh-key-v1`, zero, and the length of a name, in base 64; then with the name `none`.
    const FORMAT: &str = "b3BlbnNzaC1rZXktdjEAAAAA";
    const PLAIN: &str = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU";
    let mut lines = key.lines();
    match lines.next().unwrap_or_default().trim_end() {
        "-----BEGIN OPENSSH PRIVATE KEY-----" => {
            let first = lines.next().unwrap_or_default();
            first.starts_with(FORMAT) && !first.starts_with(PLAIN)
        }
        "-----BEGIN ENCRYPTED PRIVATE KEY-----" => true,
        _ => key.lines().any(|line| line.starts_with("Proc-Type:") && line.contains("ENCRYPTED")),
    }
}

/// The rest of a line of `known_hosts` with this mark.
fn marked<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.trim_start().strip_prefix(mark).filter(|rest| rest.starts_with([' ', '\t']))
}

/// True if a line of `known_hosts` revokes a key. Its hosts do not matter: a key that is revoked for one
/// host is not accepted from another.
fn revokes(line: &str, key: &[u8]) -> bool {
    let words = marked(line, "@revoked").map(str::split_ascii_whitespace);
    words.and_then(|mut words| words.nth(2)).is_some_and(|revoked| is_base64_of(revoked, key))
}

/// Numbers, from 1, of the lines of `known_hosts` that cannot be read: libssh2 cannot parse them, or they
/// revoke no key.
fn unreadable_lines(text: &str) -> Result<Vec<usize>, ssh2::Error> {
    let session = Session::new()?;
    let mut known = session.known_hosts()?;
    let mut is_unreadable = |line: &str| match marked(line, "@revoked") {
        Some(rest) => rest.split_ascii_whitespace().nth(2).is_none(),
        None => is_plain(line) && known.read_str(line, KnownHostFileKind::OpenSSH).is_err(),
    };
    Ok((1..).zip(text.lines()).filter_map(|(number, line)| is_unreadable(line).then_some(number)).collect())
}

/// Lines by their numbers: `line 7`, `lines 7 and 9`, or the first few and how many more there are.
fn lines_text(numbers: &[usize]) -> Option<String> {
    const SHOWN: usize = 5;
    let shown: Vec<String> = numbers.iter().take(SHOWN).map(ToString::to_string).collect();
    let shown = match &shown[..] {
        [] => return None,
        [one] => return Some(format!("line {one}")),
        [first @ .., last] if numbers.len() <= SHOWN => format!("{} and {last}", first.join(", ")),
        some => format!("{} and {}", some.join(", "), plural(numbers.len() - SHOWN, "more line")),
    };
    Some(format!("lines {shown}"))
}

fn is_base64_of(text: &str, bytes: &[u8]) -> bool {
    text.trim_end_matches('=') == base64(bytes)
}

/// True for a line with a host and its key. libssh2 does not understand marked lines (revoked keys,
/// authorities).
fn is_plain(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with(['#', '@'])
}

/// True if the server has no key of the requested types.
fn is_no_common_key(error: &RemoteError) -> bool {
    matches!(error, RemoteError::Connect { what, .. } if what.contains("exchange encryption keys"))
}

fn dial(address: &NodeAddress, deadline: Instant) -> Result<TcpStream, RemoteError> {
    let places = (address.host.as_str(), address.port).to_socket_addrs().map_err(|error| address.failed(error))?;
    let mut last = address.failed("its name has no IP address");
    for place in places {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&place, left) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(|error| address.failed(error))?;
                return Ok(stream);
            }
            Err(error) => last = address.failed(error),
        }
    }
    Err(last)
}

/// Time until the deadline for libssh2; at least 1, because 0 means no limit.
pub(super) fn milliseconds_until(deadline: Instant) -> u32 {
    u32::try_from(deadline.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(u32::MAX).max(1)
}

/// Forwards bytes between a channel and a socket until one of them ends. There is no call that
/// waits for both, so they are polled, with a pause that grows while no bytes arrive.
fn forward(session: &Session, mut channel: Channel, mut socket: UnixStream) {
    let mut pause = Duration::ZERO;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let from = match channel.read(&mut buffer) {
            Ok(0) if channel.eof() => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => break,
        };
        if write_all_with_retry(&mut socket, &buffer[..from]).is_err() {
            break;
        }
        let to = match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => break,
        };
        if write_all_with_retry(&mut channel, &buffer[..to]).is_err() {
            break;
        }
        pause = if from + to > 0 {
            Duration::ZERO
        } else {
            (pause * 2).clamp(Duration::from_micros(100), Duration::from_millis(5))
        };
        thread::sleep(pause);
    }
    // Close the channel at the jump host, but do not wait long for the reply.
    session.set_blocking(true);
    session.set_timeout(500);
    let _ = channel.close();
}

/// Writes all bytes to a non-blocking target.
fn write_all_with_retry(target: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match target.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_micros(200)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Base 64 without padding, as ssh prints fingerprints.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let value = group.iter().chain([0, 0].iter()).take(3).fold(0u32, |value, byte| value << 8 | u32::from(*byte));
        for digit in 0..=group.len() {
            text.push(char::from(DIGITS[(value >> (18 - 6 * digit)) as usize & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, text) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn comments_and_marked_lines_are_skipped() {
        for line in ["", "  ", "# a", " # a", "@revoked n1 ssh-ed25519 A", "@cert-authority *.c ssh-rsa A"] {
            assert!(!is_plain(line), "{line}");
        }
        assert!(is_plain("|1|abc=|def= ssh-ed25519 AAAA") && is_plain("[n1]:2222 ssh-ed25519 AAAA"));
    }

    /// An ed25519 key of OpenSSH.
    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

    #[test]
    fn lines_that_cannot_be_read_are_found_by_their_number() {
        let lines = [
            "# a comment of J\u{fffd}rg".to_owned(),
            format!("n1 {KEY}"),
            "n099 ssh-ed25519".to_owned(),
            String::new(),
            format!("[n2]:2222,10.0.0.2 {KEY} a comment"),
            "n3".to_owned(),
            format!("@revoked * {KEY}"),
            "@revoked *".to_owned(),
            format!("@cert-authority * {KEY}"),
            format!("|1|tOfrNwFsc8eVUfyPFUyp4d1UkJk=|BuKm9uwwPV3jzXSQnOl+H28N7nA= {KEY}"),
        ];
        assert_eq!(unreadable_lines(&lines.join("\n")).unwrap(), [3, 6, 8]);
        assert_eq!(unreadable_lines("").unwrap(), [0; 0]);
    }

    #[test]
    fn lines_are_named_by_their_numbers() {
        let text = |numbers: std::ops::Range<usize>| lines_text(&numbers.collect::<Vec<_>>()).unwrap_or_default();
        assert_eq!(
            [text(3..3), text(3..4), text(3..5), text(3..8)],
            ["", "line 3", "lines 3 and 4", "lines 3, 4, 5, 6 and 7"]
        );
        assert_eq!(text(3..9), "lines 3, 4, 5, 6, 7 and 1 more line");
        assert_eq!(text(3..20), "lines 3, 4, 5, 6, 7 and 12 more lines");
    }
}
