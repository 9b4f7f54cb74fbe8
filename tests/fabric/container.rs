//! Network, process and mount namespaces. Everything that a test starts in them ends with them,
//! also when the test dies.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The namespaces. Their first process is a shell that only waits; when it ends, the kernel ends
/// all others.
#[derive(Debug)]
pub(crate) struct Container {
    child: Child,
    pid: String,
}

/// Waits, and reaps orphaned processes.
const FIRST: &str = "trap : TERM; while :; do sleep 1000 & wait; done";

/// Enters the root folder `$1`, in which the folder `$2` of this machine is visible.
const ENTER: &str = r#"set -e
mkdir -p "$1$2"
for folder in /dev /sys "$2"; do mount --rbind "$folder" "$1$folder"; done
mount -t proc proc "$1/proc"
exec chroot "$1" bash -c "$3""#;

impl Container {
    /// Creates the namespaces. Needs root. Besides loopback there is one address, 10.77.0.1:
    /// without it slurmctld cannot resolve any name. Programs inside run in the root folder `root`,
    /// which is another system, or else on this one. They see the folder `shared` of this machine.
    pub(crate) fn start(root: Option<&Path>, shared: &Path) -> Self {
        let enter = [OsStr::new(ENTER), OsStr::new("bash"), root.unwrap_or(shared).as_os_str(), shared.as_os_str()];
        let first = root.iter().flat_map(|_| enter).chain([OsStr::new(FIRST)]);
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--net", "--pid", "--mount", "--fork", "--kill-child=KILL"])
            .args(["--mount-proc", "bash", "-c"])
            .args(first)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("unshare and setpriv (util-linux) are installed");
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let pid = until(Duration::from_secs(10), "the namespaces", || {
            assert_eq!(child.try_wait().expect("its state"), None, "unshare failed: no root, or no namespaces here");
            let pid = std::fs::read_to_string(&children).ok()?.trim().to_owned();
            // The shell starts after /proc is mounted, in the end in its root folder.
            let is_shell = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()? == "bash\n";
            let inside = std::fs::read_link(format!("/proc/{pid}/root")).ok()?;
            (is_shell && inside == root.unwrap_or(Path::new("/"))).then_some(pid)
        });
        let container = Self { child, pid };
        for line in [
            "link set lo up",
            "link add ve0 type veth peer name ve1",
            "addr add 10.77.0.1/24 dev ve0",
            "link set ve0 up",
            "link set ve1 up",
        ] {
            container.succeeds(["ip"].into_iter().chain(line.split(' ')));
        }
        container
    }

    /// A program that runs inside, in this folder. Its environment has only `PATH` and the
    /// variables that `NAME=value` arguments in front of it set.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, folder: &Path, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.pid, "--net", "--pid", "--mount", "--root", "--", "env", "-i", "-C"])
            .arg(folder);
        command.arg("PATH=/usr/sbin:/usr/bin:/sbin:/bin").args(words).stdin(Stdio::null());
        command
    }

    /// Runs a program to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Output {
        self.command(Path::new("/"), words).output().expect("nsenter is installed")
    }

    /// Runs a program that must succeed, and returns its standard output.
    pub(crate) fn succeeds<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> String {
        let words: Vec<S> = words.into_iter().collect();
        let output = self.run(words.iter());
        let line: Vec<_> = words.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        assert!(output.status.success(), "{line:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Processes inside, by their id there, with their arguments; neither zombies nor kernel
    /// threads.
    pub(crate) fn processes(&self) -> BTreeMap<u32, String> {
        let listed = self.succeeds(["ps", "-eo", "pid=,stat=,args="]);
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            let (pid, state) = (words.next()?.parse().ok()?, words.next()?);
            let arguments: Vec<&str> = words.collect();
            (!state.starts_with('Z') && !arguments.starts_with(&["ps"])).then(|| (pid, arguments.join(" ")))
        };
        listed.lines().filter_map(row).collect()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // The end of `unshare` ends its child, and so everything inside.
        let ended = self.child.kill().and_then(|()| self.child.wait());
        let first = format!("/proc/{}", self.pid);
        let start = Instant::now();
        while Path::new(&first).exists() && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !std::thread::panicking() {
            assert!(ended.is_ok() && !Path::new(&first).exists(), "the namespaces did not end");
        }
    }
}

/// Polls until there is a value; fails after `most`.
pub(crate) fn until<T>(most: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < most, "{what}: missing after {most:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
