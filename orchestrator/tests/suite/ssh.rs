//! Nodes over ssh, with daemons of OpenSSH.

use crate::lab::{SinkLab, in_seconds, names, start, wait_until};
use crate::sshd::{SshdNode, is_there, keygen, know, make_key, ssh_lines};
use ibscope_orchestrator::config::Config;
use ibscope_orchestrator::journal::State;
use ibscope_orchestrator::plan::CapturePlan;
use ibscope_orchestrator::remote::{
    CommandOutput, FilePart, Files, RemoteError, Runner, SshRunner, TransferTimeouts, parallel,
};
use ibscope_orchestrator::{status, sweep, undo};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);
const TIMEOUTS: TransferTimeouts = TransferTimeouts { idle: LONG, whole: LONG };

fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn sha256sum(file: &Path) -> String {
    let printed = Command::new("sha256sum").arg(file).output().unwrap();
    String::from_utf8(printed.stdout).unwrap()[..64].to_owned()
}

/// A lab with one node whose host key is known.
fn one_node() -> (SinkLab, SshdNode, Config) {
    let lab = SinkLab::new();
    make_key(&lab);
    let node = SshdNode::start(&lab, "n1", &["ed25519"]);
    know(&lab, &node.known("ed25519"));
    let config = lab.config_with(&ssh_lines(&[&node], ""), "");
    (lab, node, config)
}

/// A lab with two nodes whose host keys are known.
fn two_nodes() -> (SinkLab, [SshdNode; 2], Config) {
    let lab = SinkLab::new();
    make_key(&lab);
    let nodes = ["n1", "n2"].map(|name| SshdNode::start(&lab, name, &["ed25519"]));
    know(&lab, &nodes.each_ref().map(|node| node.known("ed25519")).concat());
    let config = lab.config_with(&ssh_lines(&nodes.each_ref(), ""), "");
    (lab, nodes, config)
}

/// The plan of a run with one sink.
fn one_sink(lab: &SinkLab, job_id: u32, run: &str, node: &str, over_ssh: bool) -> CapturePlan {
    let mut plan = lab.plan(job_id, run, [node, node], over_ssh);
    plan.steps.remove(1);
    plan.sinks.remove(1);
    plan
}

#[test]
fn commands_run_on_nodes() {
    if !is_there() {
        return;
    }
    let (_lab, node, config) = one_node();
    let ssh = SshRunner::new(&config).unwrap();
    let run = |words: &[&str]| ssh.run(Some("n1"), &argv(words), LONG).unwrap();
    let output = run(&["/bin/sh", "-c", "echo out; echo err >&2; echo $NODE $PATH; exit 7"]);
    assert_eq!(output.status, 7);
    assert_eq!(output.stdout, b"out\nn1 /usr/sbin:/usr/bin:/sbin:/bin\n");
    assert_eq!(output.stderr, b"err\n");
    // Large outputs on both streams at the same time, standard error first: 3 MiB each, more than a
    // window of libssh2.
    let output = run(&["/bin/sh", "-c", "head -c 3145728 /dev/zero >&2; head -c 3145728 /dev/zero"]);
    assert_eq!((output.stdout.len(), output.stderr.len()), (3 << 20, 3 << 20));
    // A program that a signal ends.
    assert_eq!(run(&["/bin/sh", "-c", "kill -TERM $$"]).status, 128 + 15);
    assert_eq!(run(&["/no/such/program"]).status, 127);
    // All of these use one connection.
    assert_eq!(node.log().matches("Accepted publickey").count(), 1, "{}", node.log());
    // Without a node the program runs on this machine, with neither the node's environment nor the
    // test's.
    let output = ssh.run(None, &argv(&["/usr/bin/env"]), LONG).unwrap();
    assert!(!String::from_utf8_lossy(&output.stdout).contains("NODE="));
}

/// Every argument reaches the program unchanged, and no shell interprets it.
#[test]
fn arguments_arrive_unchanged() {
    if !is_there() {
        return;
    }
    let (lab, _node, config) = one_node();
    let ssh = SshRunner::new(&config).unwrap();
    let trap = lab.folder.join("trap").display().to_string();
    let hostile = [
        "",
        " ",
        "a b",
        "'",
        "''",
        "\"",
        "\\",
        "\\'",
        "`touch T`",
        "$(touch T)",
        "; touch T",
        "| touch T",
        "& touch T",
        "&& touch T",
        "> T",
        "$HOME",
        "*",
        "~",
        "-oProxyCommand=touch T",
        "--",
        "-n",
        "!!",
        "#",
        "é\u{1f980}",
        "\t",
        "{a,b}",
        "%s",
        "a'$(touch T)'b",
        "'; touch T; '",
    ];
    let hostile: Vec<String> = hostile.iter().map(|word| word.replace('T', &trap)).collect();
    for runner in [&ssh as &dyn Runner, &lab.runner()] {
        let mut words = argv(&["/usr/bin/printf", "%s\\0"]);
        words.extend(hostile.iter().cloned());
        let output = runner.run(Some("n1"), &words, LONG).unwrap();
        let arrived: Vec<String> =
            String::from_utf8(output.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect();
        assert_eq!(arrived, hostile);
        for refused in ["a\nb", "a\0b", "a\rb"] {
            let error = runner.run(Some("n1"), &argv(&["/bin/echo", refused]), LONG).unwrap_err();
            assert!(matches!(error, RemoteError::Argument { .. }), "{error}");
        }
        for program in [&[][..], &["echo"], &["A=b"], &["-x"]] {
            let error = runner.run(Some("n1"), &argv(program), LONG).unwrap_err();
            assert!(matches!(error, RemoteError::Argument { .. }), "{error}");
        }
    }
    assert!(!Path::new(&trap).exists());
}

#[test]
fn a_command_that_takes_too_long_is_terminated_on_the_node() {
    if !is_there() {
        return;
    }
    let (_lab, _node, config) = one_node();
    let ssh = SshRunner::new(&config).unwrap();
    // A number that no other command line has.
    let error = ssh.run(Some("n1"), &argv(&["/bin/sleep", "64738.25"]), Duration::from_millis(300)).unwrap_err();
    assert!(matches!(&error, RemoteError::Timeout { node, .. } if node == "n1"), "{error}");
    let left = || {
        fs::read_dir("/proc").unwrap().flatten().any(|process| {
            fs::read(process.path().join("cmdline")).is_ok_and(|printed| printed == b"/bin/sleep\x0064738.25\x00")
        })
    };
    wait_until("the command is terminated", || !left());
    // The session stays usable.
    assert_eq!(ssh.run(Some("n1"), &argv(&["/bin/echo", "x"]), LONG).unwrap().stdout, b"x\n");
}

/// A connection that breaks is an error, not the end of the command. The next command opens a new
/// connection.
#[test]
fn a_connection_that_breaks_is_an_error() {
    if !is_there() {
        return;
    }
    let (_lab, node, config) = one_node();
    let ssh = SshRunner::new(&config).unwrap();
    // The daemon of the session is the parent of the login shell, which becomes the program.
    let error = ssh
        .run(
            Some("n1"),
            &argv(&["/bin/sh", "-c", "kill -KILL $(cut -d ' ' -f 4 /proc/$PPID/stat) $PPID; sleep 5"]),
            LONG,
        )
        .unwrap_err();
    assert!(matches!(&error, RemoteError::Command { node, .. } if node == "n1"), "{error}");
    assert!(error.to_string().contains("connection broke"), "{error}");
    assert_eq!(ssh.run(Some("n1"), &argv(&["/bin/echo", "x"]), LONG).unwrap().stdout, b"x\n");
    assert_eq!(node.log().matches("Accepted publickey").count(), 2);
}

/// `known_hosts` decides: plain and hashed names, a key of another type than the server's first
/// one, by the node's name or its address.
#[test]
fn host_keys_are_checked() {
    if !is_there() {
        return;
    }
    let lab = SinkLab::new();
    make_key(&lab);
    let node = SshdNode::start(&lab, "n1", &["ed25519", "ecdsa", "rsa"]);
    let other = SshdNode::start(&lab, "n2", &["ed25519"]);
    let config = lab.config_with(&ssh_lines(&[&node, &other], ""), "");
    let try_it = || SshRunner::new(&config).unwrap().run(Some("n1"), &argv(&["/bin/echo", "x"]), LONG);
    let known_hosts = lab.folder.join("ssh/known_hosts");
    for kind in ["ed25519", "ecdsa", "rsa"] {
        know(
            &lab,
            &format!("# a comment\n\n@revoked * ssh-ed25519 AAAA\n{}{}", other.known("ed25519"), node.known(kind)),
        );
        assert_eq!(try_it().unwrap().stdout, b"x\n", "{kind}");
        keygen(&["-q", "-H", "-f", &known_hosts.display().to_string()]);
        assert!(fs::read_to_string(&known_hosts).unwrap().contains("|1|"));
        assert_eq!(try_it().unwrap().stdout, b"x\n", "{kind}, hashed");
    }
    // By the node's name instead of the address.
    know(&lab, &node.known("ed25519").replace("127.0.0.1", "n1"));
    assert_eq!(try_it().unwrap().stdout, b"x\n");
    // Another key under this name.
    let changed = other.known("ed25519").replace(&other.port.to_string(), &node.port.to_string());
    know(&lab, &changed);
    let error = try_it().unwrap_err();
    let printed = error.to_string();
    assert!(matches!(error, RemoteError::HostKeyChanged { .. }), "{printed}");
    assert!(
        printed.contains(&format!("ssh-keygen -f {} -R '[127.0.0.1]:{}'", known_hosts.display(), node.port)),
        "{printed}"
    );
    // The fingerprint is the one that ssh-keygen prints.
    let shown =
        Command::new("ssh-keygen").args(["-l", "-f"]).arg(lab.folder.join("ssh/n1/ed25519.pub")).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(printed.contains(shown.split(' ').nth(1).unwrap()), "{printed} {shown}");
    // No key.
    know(&lab, &other.known("ed25519"));
    let error = try_it().unwrap_err();
    assert!(matches!(error, RemoteError::HostKeyUnknown { .. }), "{error}");
    // Certificates cannot be checked.
    know(&lab, &format!("@cert-authority * {}", node.known("ed25519").split_once(' ').unwrap().1));
    let error = try_it().unwrap_err();
    assert!(matches!(error, RemoteError::HostKeyUnknown { .. }), "{error}");
    assert!(error.to_string().contains("lines with @cert-authority do not count"), "{error}");
    // A key that is revoked, for all hosts or for another one.
    for hosts in ["*", "n9"] {
        let key = node.known("ed25519");
        know(&lab, &format!("{key}@revoked {hosts} {}", key.split_once(' ').unwrap().1));
        let error = try_it().unwrap_err().to_string();
        assert!(error.contains("revokes its host key SHA256:"), "{error}");
    }
    // Only the expected logins succeeded.
    assert_eq!(node.log().matches("Accepted publickey").count(), 7, "{}", node.log());
}

#[test]
fn reasons_of_failed_logins_are_named() {
    if !is_there() {
        return;
    }
    let (lab, node, config) = one_node();
    let key = lab.folder.join("ssh/id");
    let run = |config: &Config, node: &str| {
        SshRunner::new(config).and_then(|ssh| ssh.run(Some(node), &argv(&["/bin/echo", "x"]), LONG))
    };
    // A key that the node does not accept.
    fs::write(lab.folder.join("ssh/authorized_keys"), "").unwrap();
    let error = run(&config, "n1").unwrap_err();
    assert!(matches!(&error, RemoteError::Login { node, .. } if node == "n1"), "{error}");
    assert!(error.to_string().contains(&key.display().to_string()), "{error}");
    // A key that others can read.
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let error = run(&config, "n1").unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
    fs::remove_file(&key).unwrap();
    let error = run(&config, "n1").unwrap_err().to_string();
    assert!(error.contains("the private key cannot be read"), "{error}");
    make_key_again(&lab);
    // A port where nothing listens, and a server that never sends anything.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let more = format!(
        "[nodes.off]\naddress = \"127.0.0.1\"\nport = {closed}\n[nodes.silent]\naddress = \"127.0.0.1\"\nport = {}\n",
        silent.local_addr().unwrap().port()
    );
    let ssh = ssh_lines(&[&node], "").replace("connect_timeout_s = 5", "connect_timeout_s = 1");
    let config = lab.config_with(&format!("{ssh}{more}"), "");
    for (node, what) in [("off", "refused"), ("silent", "key exchange"), ("no-such-node.invalid", "lookup")] {
        let error = run(&config, node).unwrap_err();
        assert!(matches!(&error, RemoteError::Connect { node: named, .. } if named == node), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    // Other nodes are not affected.
    assert_eq!(run(&config, "n1").unwrap().stdout, b"x\n");
}

/// Ends an agent.
struct AgentProcess(Child);

impl AgentProcess {
    fn start(socket: &Path) -> Self {
        let agent = Command::new("ssh-agent").arg("-D").arg("-a").arg(socket).stdout(Stdio::null()).spawn().unwrap();
        wait_until("ssh-agent listens", || UnixStream::connect(socket).is_ok());
        Self(agent)
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Adds a key without passphrase to an agent.
fn add_to_agent(key: &str, socket: &Path) {
    let added = Command::new("ssh-add").args(["-q", key]).env("SSH_AUTH_SOCK", socket).status().unwrap();
    assert!(added.success());
}

#[test]
fn a_key_with_a_passphrase_needs_an_agent_that_holds_it() {
    if !is_there() {
        return;
    }
    let (lab, node, config) = one_node();
    let key = lab.folder.join("ssh/id").display().to_string();
    let socket = lab.folder.join("agent");
    let with_agent = lab.config_with(&ssh_lines(&[&node], &format!("agent = \"{}\"", socket.display())), "");
    let run =
        |config: &Config| SshRunner::new(config).and_then(|ssh| ssh.run(Some("n1"), &argv(&["/bin/echo", "x"]), LONG));
    let error = run(&with_agent).unwrap_err().to_string();
    assert!(error.contains(&format!("the agent at {}", socket.display())), "{error}");
    let _agent = AgentProcess::start(&socket);
    // More keys than a server lets a client try (MaxAuthTries), before the right one.
    for index in 0..7 {
        let other = lab.folder.join(format!("ssh/other{index}")).display().to_string();
        keygen(&["-q", "-t", "ed25519", "-N", "", "-f", &other]);
        add_to_agent(&other, &socket);
    }
    let error = run(&with_agent).unwrap_err().to_string();
    assert!(error.contains("it does not hold this key"), "{error}");
    add_to_agent(&key, &socket);
    for kind in ["ed25519", "rsa", "ecdsa"] {
        for format in ["RFC4716", "PEM", "PKCS8"] {
            let other = lab.folder.join(format!("ssh/{kind}-{format}")).display().to_string();
            keygen(&["-q", "-t", kind, "-N", "secret", "-m", format, "-f", &other]);
            fs::copy(&other, &key).unwrap();
            let error = run(&config).unwrap_err().to_string();
            assert!(error.contains("the private key has a passphrase; set ssh.agent"), "{kind} {format}: {error}");
            // The agent holds the key of `id.pub`, whatever the file of the private key.
            assert_eq!(run(&with_agent).unwrap().stdout, b"x\n", "{kind} {format}");
        }
    }
}

fn make_key_again(lab: &SinkLab) {
    fs::write(lab.folder.join("ssh/id"), "").unwrap();
    fs::remove_file(lab.folder.join("ssh/id.pub")).unwrap();
    make_key(lab);
}

/// Through a jump host: commands, files, several nodes at the same time. Its host key is checked
/// too.
#[test]
fn nodes_are_reached_through_a_jump_host() {
    if !is_there() {
        return;
    }
    let lab = SinkLab::new();
    make_key(&lab);
    let (jump, node, other) = (
        SshdNode::start(&lab, "jump", &["ed25519"]),
        SshdNode::start(&lab, "n1", &["ed25519"]),
        SshdNode::start(&lab, "n2", &["ed25519"]),
    );
    know(&lab, &format!("{}{}{}", jump.known("ed25519"), node.known("ed25519"), other.known("ed25519")));
    let more = format!("jump_host = {{ address = \"127.0.0.1\", port = {} }}", jump.port);
    let config = lab.config_with(&ssh_lines(&[&node, &other], &more), "");
    let ssh = SshRunner::new(&config).unwrap();
    let printed = parallel(&["n1", "n2", "n1", "n2"], 4, |name| {
        ssh.run(Some(name), &argv(&["/bin/sh", "-c", "echo $NODE"]), LONG).unwrap().stdout
    });
    assert_eq!(printed, [b"n1\n", b"n2\n", b"n1\n", b"n2\n"]);
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let file = lab.folder.join("captures/x");
    fs::write(&file, &bytes).unwrap();
    let mut got = Vec::new();
    let part = FilePart { path: &file, offset: 1000, bytes: 5_000_000 };
    let sha256 = ssh
        .read_file("n1", part, TIMEOUTS, &mut |chunk| {
            got.extend_from_slice(chunk);
            Ok(())
        })
        .unwrap();
    assert!(got == bytes[1000..]);
    assert_eq!(sha256, sha256sum(&file), "of the whole file");
    assert_eq!(jump.log().matches("Accepted publickey").count(), 2);
    know(&lab, &node.known("ed25519"));
    let error = SshRunner::new(&config).unwrap().run(Some("n1"), &argv(&["/bin/true"]), LONG).unwrap_err();
    assert!(matches!(&error, RemoteError::HostKeyUnknown { node, .. } if node == "127.0.0.1"), "{error}");
}

#[test]
fn a_missing_file_is_named() {
    if !is_there() {
        return;
    }
    let (_lab, _node, config) = one_node();
    let ssh = SshRunner::new(&config).unwrap();
    let part = FilePart { path: Path::new("/no/such/file"), offset: 0, bytes: 1 };
    let error = ssh.read_file("n1", part, TIMEOUTS, &mut |_| Ok(())).unwrap_err();
    assert!(
        matches!(&error, RemoteError::File { node, path, .. } if node == "n1" && path == "/no/such/file"),
        "{error}"
    );
    assert_eq!(ssh.run(Some("n1"), &argv(&["/bin/echo", "x"]), LONG).unwrap().stdout, b"x\n");
}

/// Captures on two nodes, from the start to the fetched file. Parts that were fetched before are
/// not fetched again if they are the same; otherwise they are discarded.
#[test]
fn captures_are_fetched_from_nodes() {
    if !is_there() {
        return;
    }
    let (lab, [_first, _second], mut config) = two_nodes();
    config.collect.fetch = true;
    config.collect.delete_fetched = true;
    let folder = lab.folder.join("collected/ibscope-7-20261121T200022Z");
    // 24 bytes of header, and 8 packets of 42 bytes with 32 bytes before each.
    let whole_bytes = 24 + 8 * (42 + 32);
    for (run, before) in [("a", None), ("b", Some(true)), ("c", Some(false))] {
        let ssh = SshRunner::new(&config).unwrap();
        let started = start(&config, &ssh, lab.plan(7, run, ["n1", "n2"], true), LONG).unwrap();
        eprintln!("two captures and four ports over ssh: {:.3} s", started.duration.as_secs_f64());
        assert_eq!(lab.mirrored().len(), 4);
        let file = lab.capture(run, "n1").file;
        if let Some(is_same) = before {
            // A part was fetched before: of this file (its header, which is always the same), or of
            // another file.
            fs::create_dir_all(&folder).unwrap();
            let mut part = fs::read(folder.join("a-n1.pcap")).unwrap()[..24].to_vec();
            part[0] = if is_same { part[0] } else { !part[0] };
            fs::write(folder.join(format!("{run}-n1.pcap.part")), part).unwrap();
        }
        // Another process than the one that started the run undoes it.
        drop(ssh);
        let ssh = SshRunner::new(&config).unwrap();
        let mut undone = undo::job(&config, 7, &ssh, in_seconds(60)).unwrap();
        if before == Some(false) {
            assert!(undone[0].left[0].contains("changed since an earlier attempt"), "{:?}", undone[0].left);
            assert!(!folder.join("c-n1.pcap").exists());
            undone = undo::job(&config, 7, &ssh, in_seconds(60)).unwrap();
        }
        assert_eq!(undone[0].left, [""; 0]);
        lab.assert_restored(run);
        for capture in &undone[0].captures {
            let fetched = capture.fetched.as_ref().unwrap();
            let bytes = fs::read(&fetched.file).unwrap();
            assert_eq!((bytes.len(), fetched.bytes), (whole_bytes, whole_bytes as u64));
            assert_eq!(fetched.sha256, sha256sum(&fetched.file));
            assert_eq!(fs::metadata(&fetched.file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(!file.exists());
        assert_eq!(names(&lab.folder.join("captures")), [""; 0]);
    }
    assert_eq!(
        names(&folder),
        ["a-n1.pcap", "a-n2.pcap", "b-n1.pcap", "b-n2.pcap", "c-n1.pcap", "c-n2.pcap", "manifest.json"]
    );
}

/// A sink that cannot be reached: the start fails and names the sink, and the other sink is undone.
#[test]
fn a_sink_that_is_down_is_named_and_the_rest_undone() {
    if !is_there() {
        return;
    }
    let (lab, [_first, mut second], config) = two_nodes();
    let ssh = SshRunner::new(&config).unwrap();
    let plan = lab.plan(7, "a", ["n1", "n2"], true);
    start(&config, &ssh, plan.clone(), LONG).unwrap();
    // The sink goes down while the job runs, with all of its connections.
    drop(ssh);
    let port = second.port;
    second.go_down();
    let ssh = SshRunner::new(&config).unwrap();
    let undone = undo::job(&config, 7, &ssh, in_seconds(60)).unwrap();
    assert!(!undone[0].is_restored);
    assert_eq!(undone[0].left.len(), 2, "{:?}", undone[0].left);
    assert!(
        undone[0].left.iter().all(|what| what.contains(&format!("n2: no connection to 127.0.0.1:{port}"))),
        "{:?}",
        undone[0].left
    );
    // The leaf and the capture of the other sink are undone.
    assert!(lab.mirrored().iter().all(|port| port.contains("1001-")) && lab.mirrored().len() == 2);
    // A start notices this before it changes anything. For the same job, the earlier run prevents
    // the start.
    let error = start(&config, &ssh, lab.plan(8, "b", ["n1", "n2"], true), LONG).unwrap_err().to_string();
    assert!(error.contains("n2: no connection") && error.contains("all changes are undone"), "{error}");
    let error = start(&config, &ssh, plan, LONG).unwrap_err().to_string();
    assert!(error.contains("an earlier run cannot be undone"), "{error}");
    second.come_back();
    let undone = undo::job(&config, 7, &ssh, in_seconds(60)).unwrap();
    assert_eq!(undone[0].left, [""; 0]);
    assert!(undone[0].captures.iter().all(|capture| capture.fetched.is_some()), "{:?}", undone[0].captures);
    lab.assert_restored("when the sink is back");
}

/// A runner whose connections to a node break, or which does something else, once a transfer has
/// passed 8 MiB.
struct BreakingRunner<'a> {
    ssh: &'a SshRunner,
    act: &'a (dyn Fn() + Sync),
    offsets: Mutex<Vec<u64>>,
}

impl Runner for BreakingRunner<'_> {
    fn run(&self, node: Option<&str>, argv: &[String], timeout: Duration) -> Result<CommandOutput, RemoteError> {
        self.ssh.run(node, argv, timeout)
    }
}

impl Files for BreakingRunner<'_> {
    fn read_file(
        &self,
        node: &str,
        part: FilePart<'_>,
        timeouts: TransferTimeouts,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<String, RemoteError> {
        self.offsets.lock().unwrap().push(part.offset);
        let (mut passed, mut is_done) = (0, false);
        self.ssh.read_file(node, part, timeouts, &mut |chunk| {
            sink(chunk)?;
            passed += chunk.len();
            if passed > 8 << 20 && !is_done {
                is_done = true;
                (self.act)();
            }
            Ok(())
        })
    }
}

/// A connection breaks in the middle of a transfer, and the next attempt continues there. A file that
/// is changed meanwhile is an error, not a mixture of both, and so is one that is changed during a
/// transfer. Afterwards the file as it is now is fetched.
#[test]
fn a_transfer_that_breaks_is_continued_and_a_changed_file_is_an_error() {
    if !is_there() {
        return;
    }
    let (lab, node, mut config) = one_node();
    config.collect.fetch = true;
    let ssh = SshRunner::new(&config).unwrap();
    start(&config, &ssh, one_sink(&lab, 7, "a", "n1", false), LONG).unwrap();
    let file = lab.capture("a", "n1").file;
    // The capture program writes at its own place, so what is appended stays: more than is on its way
    // when a connection breaks.
    let appended: Vec<u8> = (0..64_u32 << 20).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    OpenOptions::new().append(true).open(&file).unwrap().write_all(&appended).unwrap();
    let folder = lab.folder.join("collected/ibscope-7-20261121T200022Z");
    let (part, whole) = (folder.join("a-n1.pcap.part"), folder.join("a-n1.pcap"));
    let fetch = |act: &(dyn Fn() + Sync)| {
        let runner = BreakingRunner { ssh: &ssh, act, offsets: Mutex::default() };
        let mut undone = undo::job_without_deadline(&config, 7, &runner, in_seconds(60)).unwrap();
        (undone.remove(0).left, runner.offsets.into_inner().unwrap())
    };
    let change = |place: u64| {
        let changed = OpenOptions::new().write(true).open(&file).unwrap();
        changed.write_all_at(b"changed", place).unwrap();
    };
    let have = || fs::metadata(&part).unwrap().len();
    let breaks: &(dyn Fn() + Sync) = &|| node.break_connections();

    let (left, offsets) = fetch(breaks);
    assert!(left.len() == 1 && left[0].contains("connection broke") && offsets == [0], "{left:?} {offsets:?}");
    let (first, bytes) = (have(), fs::metadata(&file).unwrap().len());
    assert!(first >= 8 << 20 && first < bytes, "{first} of {bytes}");
    // It breaks again.
    let (left, offsets) = fetch(breaks);
    assert!(left.len() == 1 && offsets == [first], "{left:?} {offsets:?} {first}");
    let second = have();
    assert!(second >= first + (8 << 20), "{second}");

    // The bytes that are here already are changed at the sink.
    change(1 << 20);
    let (left, offsets) = fetch(&|| ());
    assert!(left.len() == 1 && left[0].contains("changed since an earlier attempt"), "{left:?}");
    assert_eq!(offsets, [second]);
    assert!(!part.exists() && !whole.exists());
    // The file is changed while it is read.
    let (left, _) = fetch(&|| change(2 << 20));
    assert!(left.len() == 1 && left[0].contains("changed while it was read"), "{left:?}");
    assert!(!whole.exists());
    // It has become shorter.
    OpenOptions::new().write(true).open(&file).unwrap().set_len(1 << 20).unwrap();
    let (left, _) = fetch(&|| ());
    assert!(left.len() == 1 && left[0].contains("it has 1048576 bytes, and had"), "{left:?}");
    assert!(!whole.exists());

    // The file of the last transfer is gone, so its bytes are discarded.
    fs::write(&file, &appended).unwrap();
    OpenOptions::new().write(true).open(&file).unwrap().set_len(bytes).unwrap();
    let (left, _) = fetch(&|| ());
    assert!(left.len() == 1 && left[0].contains("changed since an earlier attempt"), "{left:?}");
    assert_eq!(fetch(&|| ()), (vec![], vec![0]));
    assert!(fs::read(&whole).unwrap() == fs::read(&file).unwrap());
    lab.assert_restored("after the transfer");
}

/// While the sweeper fetches a capture, which may take hours, it undoes the runs that occur.
#[test]
fn a_long_transfer_does_not_keep_the_sweeper_from_other_runs() {
    if !is_there() {
        return;
    }
    let (lab, [first, mut second], _) = two_nodes();
    // The sweeper takes the configuration from the journal.
    let path = lab.folder.join("ibscope.toml");
    let text = fs::read_to_string(&path).unwrap().replace("[collect]\n", "[collect]\nfetch = true\n");
    fs::write(&path, text).unwrap();
    let config = Config::read(&path).unwrap();
    let ssh = SshRunner::new(&config).unwrap();
    // The captures of a job stay on the sink, because the time of the epilog has passed.
    start(&config, &ssh, one_sink(&lab, 7, "a", "n1", true), LONG).unwrap();
    let file = lab.capture("a", "n1").file;
    OpenOptions::new().append(true).open(&file).unwrap().write_all(&vec![7; 256 << 20]).unwrap();
    let runner = BreakingRunner { ssh: &ssh, act: &|| first.break_connections(), offsets: Mutex::default() };
    let undone = undo::job(&config, 7, &runner, in_seconds(60)).unwrap();
    assert!(undone[0].is_restored && undone[0].left.len() == 1, "{undone:?}");
    // The sink of another job is down at its end.
    start(&config, &ssh, one_sink(&lab, 8, "b", "n2", true), LONG).unwrap();
    second.go_down();
    drop(ssh);
    let undone = undo::job(&config, 8, &SshRunner::new(&config).unwrap(), in_seconds(60)).unwrap();
    assert!(!undone[0].is_restored && !lab.mirrored().is_empty(), "{undone:?}");

    let part = lab.folder.join("collected/ibscope-7-20261121T200022Z/a-n1.pcap.part");
    let begun = fs::metadata(&part).unwrap().len();
    let interval = Duration::from_millis(500);
    std::thread::scope(|scope| {
        let swept = scope.spawn(|| sweep::sweep(&config.run.state_dir, Some(&config), None, interval).unwrap());
        wait_until("the transfer goes on", || fs::metadata(&part).unwrap().len() > begun);
        first.signal_sessions("-STOP");
        second.come_back();
        wait_until("the other run is undone", || {
            let is_capturing = lab.processes().iter().any(|(_, line)| line.contains("b-n2.pcap"));
            lab.mirrored().is_empty() && !is_capturing
        });
        assert!(part.exists() && !swept.is_finished(), "the transfer waits");
        // A prolog of the same job gets its lock, and the transfer is no fault.
        let state = State::open(&config.run.state_dir).unwrap();
        drop(state.lock_job(7, in_seconds(1)).expect("the lock on the job"));
        let run = status::runs(&config, Some(7)).unwrap().remove(0);
        assert!(run.state() == "fetching" && !run.is_left(), "{run:?}");
        first.signal_sessions("-CONT");
        let swept = swept.join().unwrap();
        assert!(swept.iter().any(|run| run.job_id == 7 && !run.is_left()), "{swept:?}");
    });
    // The next sweep fetches the other capture.
    let undone = undo::job(&config, 8, &SshRunner::new(&config).unwrap(), in_seconds(60)).unwrap();
    assert_eq!(undone[0].left, [""; 0]);
    lab.assert_restored("after both");
}
