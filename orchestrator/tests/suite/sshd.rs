//! Daemons of OpenSSH that a test starts and ends.

use crate::lab::{SinkLab, wait_until};
use std::fmt::Write;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SSHD: &str = "/usr/sbin/sshd";

/// A node: a daemon on a port of its own.
pub(crate) struct SshdNode {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
    folder: PathBuf,
    daemon: Child,
}

impl Drop for SshdNode {
    fn drop(&mut self) {
        // Sessions end together with their connections.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// False if there is no sshd, so the test must be skipped. Prints the reason; an error for root,
/// who can install it.
pub(crate) fn is_there() -> bool {
    if Path::new(SSHD).exists() {
        return true;
    }
    let is_root = user() == "root";
    assert!(!is_root, "{SSHD} does not exist; run `apt-get install openssh-server`");
    eprintln!("SKIPPED: {SSHD} does not exist; `make deps` installs it");
    false
}

pub(crate) fn user() -> String {
    let printed = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(printed.stdout).unwrap().trim().to_owned()
}

pub(crate) fn keygen(arguments: &[&str]) {
    let status =
        Command::new("ssh-keygen").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(status.success(), "ssh-keygen {arguments:?}");
}

/// Creates the key for logins.
pub(crate) fn make_key(lab: &SinkLab) {
    let key = lab.folder.join("ssh/id");
    fs::remove_file(&key).unwrap();
    keygen(&["-q", "-t", "ed25519", "-N", "", "-f", &key.display().to_string()]);
    fs::copy(key.with_extension("pub"), lab.folder.join("ssh/authorized_keys")).unwrap();
}

impl SshdNode {
    /// Starts a daemon with host keys of these types, which accepts the lab's key. Because of
    /// `SHLVL` bash does not read `.bashrc` for each command, which would take longer than all the
    /// rest.
    pub(crate) fn start(lab: &SinkLab, name: &'static str, kinds: &[&str]) -> Self {
        let folder = lab.folder.join("ssh").join(name);
        fs::create_dir(&folder).unwrap();
        if user() == "root" {
            // sshd needs this folder if it runs as root.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let mut text = String::new();
        for kind in kinds {
            let key = folder.join(kind).display().to_string();
            keygen(&["-q", "-t", kind, "-N", "", "-f", &key]);
            writeln!(text, "HostKey {key}").unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        write!(
            text,
            "Port {port}\nListenAddress 127.0.0.1\nPidFile none\nAuthorizedKeysFile {}\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             UsePAM no\nStrictModes no\nPermitRootLogin prohibit-password\nSetEnv SHLVL=1 NODE={name} IBDUMP_STANDIN_MODE_FILE={}\n",
            lab.folder.join("ssh/authorized_keys").display(),
            lab.mode_file().display()
        )
        .unwrap();
        fs::write(folder.join("config"), text).unwrap();
        let daemon = Self::spawn(&folder, port);
        Self { name, port, folder, daemon }
    }

    fn spawn(folder: &Path, port: u16) -> Child {
        let (config, log) = (folder.join("config").display().to_string(), folder.join("log").display().to_string());
        let daemon = Command::new(SSHD).args(["-D", "-f", &config, "-E", &log]).stdin(Stdio::null()).spawn().unwrap();
        wait_until("sshd listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        daemon
    }

    /// Stops the daemon. Open sessions end together with their connections.
    pub(crate) fn go_down(&mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
    }

    /// Kills the sessions of the daemon, which breaks their connections.
    pub(crate) fn break_connections(&self) {
        self.signal_sessions("-KILL");
    }

    /// Sends a signal to the sessions of the daemon.
    pub(crate) fn signal_sessions(&self, signal: &str) {
        let daemon = self.daemon.id().to_string();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(stat) = fs::read_to_string(process.path().join("stat")) else { continue };
            let parent = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(1));
            if parent == Some(&daemon) {
                Command::new("kill").args([signal, process.file_name().to_str().unwrap()]).status().unwrap();
            }
        }
    }

    /// Starts the daemon again, with the same host keys.
    pub(crate) fn come_back(&mut self) {
        self.daemon = Self::spawn(&self.folder, self.port);
    }

    /// A line of `known_hosts` with one of its keys.
    pub(crate) fn known(&self, kind: &str) -> String {
        let key = fs::read_to_string(self.folder.join(kind).with_extension("pub")).unwrap();
        let mut words = key.split(' ');
        format!("[127.0.0.1]:{} {} {}\n", self.port, words.next().unwrap(), words.next().unwrap())
    }

    /// Log of the daemon.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Section of the node in the configuration.
    pub(crate) fn lines(&self) -> String {
        format!("[nodes.{}]\naddress = \"127.0.0.1\"\nport = {}\n", self.name, self.port)
    }
}

pub(crate) fn know(lab: &SinkLab, lines: &str) {
    fs::write(lab.folder.join("ssh/known_hosts"), lines).unwrap();
}

/// The ssh part of the configuration.
pub(crate) fn ssh_lines(nodes: &[&SshdNode], more: &str) -> String {
    let nodes: String = nodes.iter().map(|node| node.lines()).collect();
    format!("user = \"{}\"\nconnect_timeout_s = 5\n{more}\n{nodes}", user())
}
