//! What the hooks tell: a line in the log file and one for the system's log, because a hook has no terminal.

use crate::folder::Folder;
use crate::stamp;
use crate::text::printable;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// Where the system's log listens.
const SYSLOG: &str = "/dev/log";

/// Facility "daemon" of RFC 3164.
const FACILITY: u8 = 3;

/// How much a line matters, as syslog numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Somebody has to do something.
    Error = 3,
    /// Something was not as it should be, and was dealt with.
    Warning = 4,
    /// What was done.
    Info = 6,
}

/// A log of one job. A log that cannot be written never keeps anybody from going on.
#[derive(Clone, Debug)]
pub struct Log {
    file: Option<Arc<File>>,
    syslog: Option<Arc<UnixDatagram>>,
    about: String,
}

impl Log {
    /// A log into these, as far as they can be opened. `about` stands in front of every line.
    pub fn open(file: Option<&Path>, syslog: bool, about: &str) -> Self {
        let syslog = syslog.then(|| connected(Path::new(SYSLOG))).flatten();
        let open = |path| {
            let (folder, name) = Folder::of(path).ok()?;
            folder.append_or_create(name, 0o600).ok().map(Arc::new)
        };
        Self { file: file.and_then(open), syslog, about: about.to_owned() }
    }

    /// One line, whatever the text holds.
    pub fn say(&self, level: Level, text: &str) {
        let text = printable(text.as_bytes());
        if let Some(file) = &self.file {
            let time = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
            let word = match level {
                Level::Error => "error: ",
                Level::Warning => "warning: ",
                Level::Info => "",
            };
            // One write, so that lines of hooks that run at once stay whole.
            let line = format!("{} {}: {word}{text}\n", stamp::stamp(time), self.about);
            drop((&**file).write_all(line.as_bytes()));
        }
        if let Some(syslog) = &self.syslog {
            let line =
                format!("<{}>ibscope[{}]: {}: {text}", FACILITY * 8 + level as u8, std::process::id(), self.about);
            drop(syslog.send(line.as_bytes()));
        }
    }
}

fn connected(path: &Path) -> Option<Arc<UnixDatagram>> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(path).ok()?;
    // A log that is stuck must not hold up a job.
    socket.set_nonblocking(true).ok()?;
    Some(Arc::new(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_line_goes_to_file_and_system_and_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, socket) = (folder.path().join("log"), folder.path().join("socket"));
        let listener = UnixDatagram::bind(&socket).unwrap();
        let log = Log { syslog: connected(&socket), ..Log::open(Some(&file), false, "job 7") };
        log.say(Level::Error, "no connection\nto n001 \u{1b}[31m");
        log.say(Level::Info, "done");
        let mut buffer = [0; 200];
        let length = listener.recv(&mut buffer).unwrap();
        let expected = format!("<27>ibscope[{}]: job 7: no connection; to n001 ?[31m", std::process::id());
        assert_eq!(std::str::from_utf8(&buffer[..length]).unwrap(), expected);
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        assert_eq!(lines, ["job 7: error: no connection; to n001 ?[31m", "job 7: done"]);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_log_that_cannot_be_written_is_no_fault() {
        let log = Log::open(Some(Path::new("/no/such/folder/log")), true, "job 7");
        log.say(Level::Info, "said to nobody");
    }
}
