//! The configuration of the lab, and calls of the program by an administrator and by Slurm.

use crate::lab::{HookLab, NODES, SSH_PORT, address};
use crate::tools::ProgramResult;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// `run.deadline_s`, long enough for a busy machine.
pub(crate) const DEADLINE_S: u64 = 60;

/// Settings that differ between sites: lines for sections of the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteConfig<'a> {
    /// `mirror.backend`
    pub(crate) backend: &'a str,
    /// `capture.backend`
    pub(crate) program: &'a str,
    /// Further lines of `[ssh]`.
    pub(crate) ssh: &'a str,
    /// The mirroring command takes all ports of a leaf at once.
    pub(crate) mirrors_once_per_leaf: bool,
    /// Further lines of `[mirror]`.
    pub(crate) mirror: &'a str,
    /// `capture.directory`, in the lab's folder.
    pub(crate) captures: &'a str,
    /// Further lines of `[capture]`, and sections below it.
    pub(crate) capture: &'a str,
    /// Further lines of `[collect]`.
    pub(crate) collect: &'a str,
    /// Further lines of `[run]`, and sections after it.
    pub(crate) run: &'a str,
}

impl SiteConfig<'_> {
    /// The site of most tests: a command mirrors ports, ibdump captures, and captures are fetched.
    pub(crate) const PLAIN: Self = Self {
        backend: "command",
        program: "ibdump",
        ssh: "",
        mirrors_once_per_leaf: false,
        mirror: "",
        captures: "captures",
        capture: "",
        collect: "delete_fetched = true",
        run: "",
    };
}

impl Default for SiteConfig<'_> {
    fn default() -> Self {
        Self::PLAIN
    }
}

/// Mirroring command of the site.
const COMMANDS: &str = r#"[mirror.command]
on = ["SWITCH", "on", "--leaf", "{leaf_guid}", "--port", "{port}", "--to", "{sink_port}", "--job", "{job}"]
off = ["SWITCH", "off", "--leaf", "{leaf_guid}", "--port", "{port}", "--to", "{sink_port}", "--job", "{job}"]
check = ["SWITCH", "show", "--leaf", "{leaf_guid}", "--port", "{port}"]
check_on = "port {port} mirrored to {sink_port} for job {job}"
check_off = "port {port} not mirrored"
"#;

impl HookLab {
    /// Writes the configuration. Sinks sink1a and sink1b are on the first leaf, sink2a and sink2b
    /// on the second.
    pub(crate) fn configure(&self, site: SiteConfig) -> PathBuf {
        let nodes: Vec<(String, String)> = NODES.iter().map(|node| ((*node).to_owned(), address(node))).collect();
        self.configure_for(site, &["sink1a", "sink1b", "sink2a", "sink2b"], &nodes)
    }

    /// Writes the configuration with other sinks, and with the addresses of these nodes.
    pub(crate) fn configure_for(&self, site: SiteConfig, sinks: &[&str], nodes: &[(String, String)]) -> PathBuf {
        let at = |name: &str| self.path().join(name).display().to_string();
        let sinks = match site.backend {
            "none" => String::new(),
            _ => format!("[sinks]\nnodes = {sinks:?}\nhostfile_directory = \"{}\"\n", at("hosts")),
        };
        let commands = match site.backend {
            "command" if site.mirrors_once_per_leaf => {
                COMMANDS.replace(r#""--port", "{port}""#, r#""--ports", "{ports}""#)
            }
            "command" => COMMANDS.to_owned(),
            _ => String::new(),
        };
        let commands = commands.replace("SWITCH", &at("bin/switchctl"));
        let SiteConfig { backend, program, ssh, mirrors_once_per_leaf: _, mirror, captures, capture, collect, run } =
            site;
        let mut text = format!(
            r#"[ssh]
key = "{key}"
known_hosts = "{known_hosts}"
port = {SSH_PORT}
# Hundreds of servers share the machine with the tests.
connect_timeout_s = 60
{ssh}

[tools]
ibstat = "{bin}/ibstat"
ibtracert = "{bin}/ibtracert"
ibnetdiscover = "{bin}/ibnetdiscover"
ibdump = "{bin}/ibdump"
mstreg = "{bin}/mstreg"
ibscope = "{bin}/ibscope"

{sinks}
[mirror]
backend = "{backend}"
{mirror}
{commands}
[collect]
directory = "{runs}"
fetch = true
{collect}

[capture]
backend = "{program}"
directory = "{captures}"
{capture}

[run]
state_dir = "{state}"
log = "{log}"
syslog = false
deadline_s = {DEADLINE_S}
{run}

"#,
            key = at("ssh/id"),
            known_hosts = at("ssh/known_hosts"),
            bin = at("bin"),
            runs = at("runs"),
            captures = at(captures),
            state = at("state"),
            log = at("log/ibscope"),
        );
        for (node, address) in nodes {
            write!(text, "[nodes.{node}]\naddress = \"{address}\"\n").expect("a string takes all");
        }
        for folder in ["hosts", "runs"] {
            fs::create_dir_all(self.path().join(folder)).expect("folder");
        }
        let path = self.path().join("capture.toml");
        fs::write(&path, text).expect("configuration");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("permissions");
        self.hand_over();
        path
    }

    /// Runs `ibscope` in the lab as the user that hooks run as, with these environment variables
    /// only.
    pub(crate) fn ibscope(&self, variables: &[String], arguments: &[&str]) -> ProgramResult {
        self.ibscope_as(self.user, variables, arguments)
    }

    /// Runs `ibscope` in the lab as another user.
    pub(crate) fn ibscope_as(&self, user: &str, variables: &[String], arguments: &[&str]) -> ProgramResult {
        let program = self.path().join("bin/ibscope").display().to_string();
        let (reuid, regid) = (format!("--reuid={user}"), format!("--regid={user}"));
        let words = ["setpriv", &reuid, &regid, "--clear-groups", &program];
        let words = variables.iter().map(String::as_str).chain(words).chain(arguments.iter().copied());
        self.container.run(words).into()
    }

    /// Runs `ibscope capture` with the lab's configuration.
    pub(crate) fn capture(&self, arguments: &[&str]) -> ProgramResult {
        let path = self.path().join("capture.toml").display().to_string();
        let (command, rest) = arguments.split_first().expect("a command");
        let words: Vec<&str> = ["capture", command, "--config", &path].iter().chain(rest).copied().collect();
        self.ibscope(&[], &words)
    }

    /// Calls a hook as slurmctld does.
    pub(crate) fn hook(&self, which: &str, job: u32, nodes: &str) -> ProgramResult {
        let path = self.path().join("capture.toml").display().to_string();
        self.ibscope(&environment(which, job, nodes), &["hook", which, "--config", &path])
    }

    /// Content of the hooks' log.
    pub(crate) fn log_text(&self) -> String {
        fs::read_to_string(self.path().join("log/ibscope")).unwrap_or_default()
    }

    /// Command lines of captures and their launchers.
    pub(crate) fn captures_running(&self) -> Vec<String> {
        let captures = self.path().join("captures").display().to_string();
        self.container.processes().into_values().filter(|arguments| arguments.contains(&captures)).collect()
    }
}

/// Environment that slurmctld gives its hooks, for a job that requests a capture.
pub(crate) fn environment(which: &str, job: u32, nodes: &str) -> Vec<String> {
    let lines = [
        format!("SLURM_JOB_ID={job}"),
        format!("SLURM_JOBID={job}"),
        format!("SLURM_JOB_NODELIST={nodes}"),
        format!("SLURM_SCRIPT_CONTEXT={which}_slurmctld"),
    ];
    let rest = [
        "SLURM_CLUSTER_NAME=lab",
        "SLURM_JOB_ACCOUNT=(null)",
        "SLURM_JOB_COMMENT=ibscope=on",
        "SLURM_JOB_NAME=a job; $(touch /tmp/pwned) `id` 'quoted' \"twice\"",
        "SLURM_JOB_USER=root",
        "SLURM_JOB_RESTART_COUNT=0",
        "SLURM_JOB_PARTITION=ib",
    ];
    lines.into_iter().chain(rest.map(str::to_owned)).collect()
}
