//! The log of the hooks, which have no terminal: a log file and syslog.

use crate::folder::Folder;
use crate::text::printable;
use crate::timestamp;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Once};

/// Socket of syslog.
const SYSLOG: &str = "/dev/log";

/// Facility "daemon" of RFC 3164.
const FACILITY: u8 = 3;

/// Severity of a line, as syslog numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// An action is needed.
    Error = 3,
    /// A fault that was handled.
    Warning = 4,
    /// Normal operation.
    Info = 6,
}

/// Log of one job. Faults of the log are ignored: they must not stop the work.
#[derive(Clone, Debug)]
pub struct Log {
    file: Option<Arc<File>>,
    syslog: Option<Arc<UnixDatagram>>,
    subject: String,
}

/// Warns on standard error and in the log, the first time that it is called with `once`: a process meets
/// some faults many times. `log` is the log file and whether there is syslog, `about` the prefix.
pub(crate) fn warn_once(once: &Once, log: (Option<&Path>, bool), about: &str, text: impl FnOnce() -> String) {
    once.call_once(|| {
        let text = text();
        Log::open(log.0, log.1, about).write(Level::Warning, &text);
        // If standard error is closed, the result of the command still counts.
        let _ = writeln!(io::stderr(), "ibscope: {text}");
    });
}

impl Log {
    /// Opens the log file and syslog, if possible. `about` is the prefix of every line.
    pub fn open(file: Option<&Path>, syslog: bool, about: &str) -> Self {
        let syslog = syslog.then(|| connect(Path::new(SYSLOG))).flatten();
        let open = |path| {
            let (folder, name) = Folder::parent_of(path).ok()?;
            folder.append_or_create(name, 0o600).ok().map(Arc::new)
        };
        Self { file: file.and_then(open), syslog, subject: about.to_owned() }
    }

    /// Writes one line; line breaks in the text are replaced.
    pub fn write(&self, level: Level, text: &str) {
        let text = printable(text.as_bytes());
        if let Some(file) = &self.file {
            let time = timestamp::now_s();
            let word = match level {
                Level::Error => "error: ",
                Level::Warning => "warning: ",
                Level::Info => "",
            };
            // One write, so that lines of concurrent hooks do not mix.
            let line = format!("{} {}: {word}{text}\n", timestamp::timestamp(time), self.subject);
            drop((&**file).write_all(line.as_bytes()));
        }
        if let Some(syslog) = &self.syslog {
            let line =
                format!("<{}>ibscope[{}]: {}: {text}", FACILITY * 8 + level as u8, std::process::id(), self.subject);
            drop(syslog.send(line.as_bytes()));
        }
    }
}

fn connect(path: &Path) -> Option<Arc<UnixDatagram>> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(path).ok()?;
    // A blocked syslog must not delay a job.
    socket.set_nonblocking(true).ok()?;
    Some(Arc::new(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_text_is_one_line_in_file_and_syslog() {
        let folder = tempfile::tempdir().unwrap();
        let (file, socket) = (folder.path().join("log"), folder.path().join("socket"));
        let listener = UnixDatagram::bind(&socket).unwrap();
        let log = Log { syslog: connect(&socket), ..Log::open(Some(&file), false, "job 7") };
        log.write(Level::Error, "no connection\nto n001 \u{1b}[31m");
        log.write(Level::Info, "done");
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
    fn a_log_that_cannot_be_opened_is_ignored() {
        let log = Log::open(Some(Path::new("/no/such/folder/log")), true, "job 7");
        log.write(Level::Info, "not written");
    }
}
