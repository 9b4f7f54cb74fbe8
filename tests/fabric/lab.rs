//! A lab for the orchestrator: ibsim and opensm, an ssh server per node, and stand-ins for ibdump
//! and the switches.

use crate::container::{Container, until};
use crate::topology::Topology;
use crate::{gate, ibdump, mstreg, simulated, switch};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// Port of every ssh server; each node has an address of its own.
pub(crate) const SSH_PORT: u16 = 2222;

/// Larger fabrics do not change while a test runs.
const MANY_HOSTS: usize = 100;

/// First of the LIDs that the nodes of the sample capture had.
pub(crate) const FIRST_LID: u16 = 17;

/// The user that hooks of a lab run as, and the system that the lab runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabSetting<'a> {
    /// `SlurmUser`
    pub(crate) user: &'static str,
    /// Root folder of another system, which has the packages of the lab; `None` is this machine.
    pub(crate) root: Option<&'a Path>,
}

impl LabSetting<'_> {
    /// Hooks of root on this machine.
    pub(crate) const ROOT: Self = Self { user: "root", root: None };
    /// Hooks of Slurm's own user on this machine.
    pub(crate) const SLURM: Self = Self { user: "slurm", root: None };
}

/// The lab. Everything in it ends when it is dropped.
pub(crate) struct HookLab {
    pub(crate) container: Container,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) topology: Topology,
    /// `SlurmUser`, the user that hooks run as.
    pub(crate) user: &'static str,
    console: ChildStdin,
    daemons: Vec<Child>,
}

/// The fabric of most tests: compute nodes n001 to n008 on two leaves with two sinks each, and a
/// leaf with the subnet manager, the machine of Slurm's controller, and a host with a hostile name.
pub(crate) fn topology() -> Topology {
    let leaf = |names: &[&str]| names.iter().copied().map(str::to_owned).collect();
    Topology {
        leaves: vec![
            leaf(&["n001", "n002", "n005", "n006", "sink1a", "sink1b"]),
            leaf(&["n003", "n004", "n007", "n008", "sink2a", "sink2b"]),
            leaf(&["sm", "mgmt", "x';$(touch /tmp/pwned)"]),
        ],
        spines: 2,
    }
}

/// Nodes that have an ssh server.
pub(crate) const NODES: [&str; 12] =
    ["n001", "n002", "n003", "n004", "n005", "n006", "n007", "n008", "sink1a", "sink1b", "sink2a", "sink2b"];

/// The node whose ssh server is the jump host.
pub(crate) const JUMP_HOST: &str = "sink2b";

/// Address of a node's ssh server.
pub(crate) fn address(node: &str) -> String {
    let index = NODES.iter().position(|name| *name == node).expect("a node of the lab");
    format!("127.0.0.{}", 11 + index)
}

impl HookLab {
    /// Starts the fabric of [`topology`] with its ssh servers.
    pub(crate) fn start() -> Self {
        Self::start_in(LabSetting::ROOT)
    }

    /// Starts the lab for hooks that run as this user.
    pub(crate) fn start_as(user: &'static str) -> Self {
        Self::start_in(LabSetting { user, ..LabSetting::ROOT })
    }

    /// Starts the lab in this setting.
    pub(crate) fn start_in(setting: LabSetting) -> Self {
        let mut lab = Self::fabric_in(setting.root, topology());
        lab.ssh_servers();
        lab.user = setting.user;
        if setting.user != "root" {
            lab.let_users_in();
            lab.copy_programs();
            simulated::let_users_in(lab.path());
        }
        lab
    }

    /// Lets other users than root enter the lab's folder.
    pub(crate) fn let_users_in(&self) {
        fs::set_permissions(self.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    }

    /// Copies the programs into the lab. The build folder may be closed to other users, or writable
    /// for them.
    pub(crate) fn copy_programs(&self) {
        copy_programs(&self.path().join("bin"));
    }

    /// Number of a user.
    pub(crate) fn uid(&self, user: &str) -> u32 {
        self.container.succeeds(["id", "-u", user]).trim().parse().expect("a number")
    }

    /// Gives the files that hooks read and write to the user that hooks run as.
    pub(crate) fn hand_over(&self) {
        let user = self.uid(self.user);
        for name in ["state", "runs", "hosts", "log", "switch", "seen", "ssh/id", "capture.toml"] {
            chown(self.path().join(name), Some(user), Some(user)).expect("owner");
        }
    }

    /// Starts only a fabric on this machine, and waits until its last host is active.
    pub(crate) fn fabric(topology: Topology) -> Self {
        Self::fabric_in(None, topology)
    }

    fn fabric_in(root: Option<&Path>, topology: Topology) -> Self {
        let folder = tempfile::Builder::new().prefix("ibscope-lab-").tempdir().expect("folder");
        let path = folder.path();
        for name in ["bin", "run", "slots", "osm", "log", "ssh", "captures", "state", "seen", "switch"] {
            fs::create_dir(path.join(name)).expect("folder");
        }
        let program = std::env::current_exe().expect("the test program");
        for name in simulated::TOOLS.into_iter().chain([switch::NAME, ibdump::NAME, mstreg::NAME, gate::NAME]) {
            symlink(&program, path.join("bin").join(name)).expect("link");
        }
        symlink(env!("CARGO_BIN_EXE_ibscope"), path.join("bin/ibscope")).expect("link");
        fs::write(path.join("fabric.net"), topology.text()).expect("topology");

        if root.is_some() {
            // The build folder is not part of that system.
            copy_programs(&path.join("bin"));
        }
        let container = Container::start(root, path.parent().expect("the folder of temporary files"));
        let hosts = topology.hosts().count();
        let mut ibsim = container
            .command(&path.join("run"), ["ibsim", "-s", "-N", "4096", "-S", "512", "-P", "65536"])
            .arg(path.join("fabric.net"))
            .stdin(Stdio::piped())
            .stdout(log(path, "ibsim"))
            .stderr(log(path, "ibsim.err"))
            .spawn()
            .expect("nsenter");
        let console = ibsim.stdin.take().expect("its console");
        until(Duration::from_secs(10), "ibsim", || {
            fs::read_to_string(path.join("log/ibsim")).ok()?.contains("simulator ready").then_some(())
        });

        // The nodes of a job have the LIDs of the traffic that their sinks appear to capture.
        let mut lids = String::new();
        for (index, name) in NODES.iter().take(8).enumerate() {
            if let Some((.., guid)) = topology.hosts().find(|(host, ..)| host == name) {
                let lid = FIRST_LID + index as u16;
                writeln!(lids, "{:#018x} {lid:#06x} {lid:#06x}\n", guid + 1).expect("a string takes all");
            }
        }
        fs::write(path.join("osm/guid2lid"), lids).expect("LIDs");
        // Large fabrics do not change, so opensm need not sweep them: a sweep of thousands of hosts
        // makes their ports inactive for a moment.
        let sweep_s = if hosts > MANY_HOSTS { 0 } else { 2 };
        fs::write(path.join("osm/conf"), format!("honor_guid2lid_file TRUE\nsweep_interval {sweep_s}\n"))
            .expect("configuration");
        let manager = topology.leaves.last().and_then(|leaf| leaf.first()).expect("a host");
        let cache = [
            format!("OSM_TMP_DIR={}", path.join("osm").display()),
            format!("OSM_CACHE_DIR={}", path.join("osm").display()),
        ];
        let words = simulated::at(manager).into_iter().chain(cache);
        let opensm = container
            .command(&path.join("run"), words.chain(["opensm", "-F"].map(str::to_owned)))
            .arg(path.join("osm/conf"))
            .arg("-f")
            .arg(path.join("osm/log"))
            .stdout(log(path, "opensm"))
            .stderr(log(path, "opensm.err"))
            .spawn()
            .expect("nsenter");
        let lab = Self { container, topology, user: "root", console, daemons: vec![ibsim, opensm], folder };
        let (last, ..) = lab.topology.hosts().last().expect("a host");
        until(Duration::from_secs(30), &format!("an active port of the last of {hosts} hosts"), || {
            lab.tool(last, &["ibstat"]).contains("State: Active").then_some(())
        });
        if hosts > MANY_HOSTS {
            // opensm activates the ports of a large fabric in several rounds.
            until(Duration::from_mins(1), &format!("active ports of all {hosts} hosts"), || {
                let links = lab.tool(last, &["iblinkinfo", "-l"]);
                let is_waiting = ["Init/", "Armed/"].iter().any(|state| links.contains(state));
                (links.contains("Active/") && !is_waiting).then_some(())
            });
        }
        lab
    }

    /// Standard output of a fabric tool that runs at a host.
    pub(crate) fn tool(&self, host: &str, words: &[&str]) -> String {
        let view = format!("SIM_HOST={}", crate::topology::description(host));
        let program = self.path().join("bin").join(words[0]);
        let words =
            [view, program.display().to_string()].into_iter().chain(words[1..].iter().map(|word| (*word).to_owned()));
        String::from_utf8(self.container.run(words).stdout).expect("text")
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Takes a host's link down, or up again.
    pub(crate) fn link(&mut self, host: &str, up: bool) {
        let (.., port_guid) = self.topology.place(host);
        let verb = if up { "ReLink" } else { "Unlink" };
        writeln!(self.console, "{verb} \"H-{:016x}\"", port_guid - 1).expect("ibsim reads");
        self.console.flush().expect("ibsim reads");
    }

    /// Starts one ssh server per node, each with a host key and an address of its own, and with the
    /// view of the fabric from its node.
    fn ssh_servers(&mut self) {
        let folder = self.ssh_folder();
        std::thread::scope(|scope| {
            for node in NODES {
                let folder = &folder;
                scope.spawn(move || {
                    fs::create_dir(folder.join(node)).expect("folder");
                    key(&folder.join(node).join("key"));
                });
            }
        });
        let mut known_hosts = String::new();
        for node in NODES {
            let home = folder.join(node);
            let own = [
                format!("ListenAddress {}", address(node)),
                // At this log level the jump host logs the connections through it.
                format!("LogLevel {}", if node == JUMP_HOST { "DEBUG1" } else { "INFO" }),
                format!("SetEnv {}", self.variables(node)),
            ];
            fs::write(home.join("config"), self.ssh_configuration(node, &own)).expect("configuration");
            known_hosts += &known(&home, &address(node));
            self.start_ssh_server(node);
        }
        fs::write(folder.join("known_hosts"), known_hosts).expect("known hosts");
    }

    /// Starts one ssh server for many nodes, each of which has an address and a view of the fabric
    /// of its own.
    pub(crate) fn one_ssh_server(&self, nodes: &[(String, String)]) {
        let home = self.ssh_folder().join("all");
        fs::create_dir(&home).expect("folder");
        key(&home.join("key"));
        let mut own = vec!["ListenAddress 0.0.0.0".to_owned()];
        let mut known_hosts = String::new();
        for (node, address) in nodes {
            own.push(format!("Match LocalAddress {address}\n  SetEnv {}", self.variables(node)));
            known_hosts += &known(&home, address);
        }
        fs::write(home.join("config"), self.ssh_configuration("all", &own)).expect("configuration");
        fs::write(self.path().join("ssh/known_hosts"), known_hosts).expect("known hosts");
        self.start_ssh_server("all");
    }

    /// Creates the folder of all ssh servers, with the key that they accept.
    fn ssh_folder(&self) -> PathBuf {
        // sshd needs this folder, which otherwise only Debian's service creates.
        self.container.succeeds(["mkdir", "-p", "/run/sshd"]);
        let folder = self.path().join("ssh");
        key(&folder.join("id"));
        fs::copy(folder.join("id.pub"), folder.join("authorized_keys")).expect("key");
        folder
    }

    /// Environment variables of programs on a node.
    fn variables(&self, node: &str) -> String {
        // The nodes must not read the .bashrc of this machine's root.
        let home = self.path().join("ssh");
        format!(
            "SIM_HOST=\"{}\" HOME={} {}",
            crate::topology::description(node),
            home.display(),
            ibdump::variables(self.path(), node)
        )
    }

    /// Starts the ssh server of a node, also after it was stopped.
    pub(crate) fn start_ssh_server(&self, node: &str) {
        let home = self.path().join("ssh").join(node);
        let words = [
            "/usr/sbin/sshd".as_ref(),
            "-f".as_ref(),
            home.join("config").as_os_str(),
            "-E".as_ref(),
            home.join("log").as_os_str(),
        ]
        .map(std::ffi::OsStr::to_owned);
        self.container.succeeds(words);
    }

    /// Stops the ssh server of a node, but nothing that was started through it.
    pub(crate) fn stop_ssh_server(&self, node: &str) {
        let pid = self.path().join("ssh").join(node).join("pid");
        let pid = fs::read_to_string(&pid).expect("its process id");
        self.container.succeeds(["kill", pid.trim()]);
        until(Duration::from_secs(5), "end of the ssh server", || {
            (!self.container.run(["kill", "-0", pid.trim()]).status.success()).then_some(())
        });
    }

    fn ssh_configuration(&self, name: &str, own: &[String]) -> String {
        let home = self.path().join("ssh").join(name);
        let lines = [
            format!("Port {SSH_PORT}"),
            format!("HostKey {}", home.join("key").display()),
            format!("PidFile {}", home.join("pid").display()),
            format!("AuthorizedKeysFile {}", self.path().join("ssh/authorized_keys").display()),
            "PasswordAuthentication no".to_owned(),
            "KbdInteractiveAuthentication no".to_owned(),
            "UsePAM no".to_owned(),
            "StrictModes no".to_owned(),
            "PermitRootLogin prohibit-password".to_owned(),
            "MaxStartups 1000".to_owned(),
        ];
        lines.iter().chain(own).flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    /// Ends of the logs of the lab's programs, for the message of a failed test.
    pub(crate) fn logs(&self) -> String {
        let mut text = String::new();
        for folder in ["log", "state"] {
            let entries = fs::read_dir(self.path().join(folder)).into_iter().flatten().flatten();
            let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
            files.sort();
            for file in files {
                let content = fs::read_to_string(&file).unwrap_or_default();
                let tail: Vec<&str> = content.lines().rev().take(40).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                writeln!(text, "--- {}\n{}", file.display(), tail.join("\n")).expect("a string takes all");
            }
        }
        text
    }
}

impl Drop for HookLab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        // `nsenter` waits for its program; the container is dropped next and ends everything.
        for daemon in &mut self.daemons {
            drop(daemon.kill());
            drop(daemon.wait());
        }
    }
}

/// Replaces links to programs by links to copies of them.
fn copy_programs(bin: &Path) {
    for name in fs::read_dir(bin).expect("bin").map(|entry| entry.expect("entry").path()) {
        let Ok(program) = fs::read_link(&name) else { continue };
        fs::remove_file(&name).expect("link");
        let copy = bin.join(format!(".{}", program.file_name().and_then(|name| name.to_str()).expect("a name")));
        if !copy.exists() {
            fs::copy(&program, &copy).expect("copy");
        }
        symlink(&copy, &name).expect("link");
    }
}

/// Line of `known_hosts` for an address with the key in this folder.
fn known(home: &Path, address: &str) -> String {
    let public = fs::read_to_string(home.join("key.pub")).expect("key");
    let public: Vec<&str> = public.split(' ').take(2).collect();
    format!("[{address}]:{SSH_PORT} {}\n", public.join(" "))
}

pub(crate) fn log(lab: &Path, name: &str) -> Stdio {
    fs::File::create(lab.join("log").join(name)).expect("log").into()
}

fn key(path: &Path) {
    let status =
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f"]).arg(path).status();
    assert!(status.is_ok_and(|status| status.success()), "ssh-keygen");
}
