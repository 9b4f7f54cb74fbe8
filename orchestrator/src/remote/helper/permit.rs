//! Checks requests to the helper. Each word of a request is compared with a fixed word, or must have
//! the form of its place.

use super::{CHOWN, HelperAction, HelperRules, LAUNCH, REMOVE, SCRIPTS, capture_name};
use crate::config::Owner;
use crate::name;
use crate::remote::{process, script};
use std::path::Path;
use std::{fs, io};

/// Reason for a refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The argument is not a request.
    #[error("the argument is not a request of ibscope")]
    NoRequest,
    /// The verb or the number of words is wrong.
    #[error("{0:?} is not a request with these arguments")]
    Form(String),
    /// A path is not that of a capture.
    #[error("{0:?} is not a file of a capture in the folder of node.toml")]
    File(String),
    /// A path is not that of a file that an owner may have.
    #[error(
        "{0:?} is not a capture, an archive of a profile, or a log: with any other file, folder or link, its owner could make root read other files"
    )]
    OwnedFile(String),
    /// The folder is not the one of the rules.
    #[error("{0:?} is not the folder of node.toml")]
    Directory(String),
    /// The folder of the rules cannot be used.
    #[error("the folder of node.toml cannot be used: {0}")]
    Untrusted(String),
    /// The command line is not that of a capture.
    #[error("{0:?} does not belong into the command line of a capture with the programs of node.toml")]
    Word(String),
    /// The process is not a capture.
    #[error("process {0} is not a capture")]
    Process(String),
}

/// The command for a request, or the reason why root does not run it. `folder` is the result of opening
/// the folder of the rules.
pub(super) fn permit(rules: &HelperRules, folder: io::Result<()>, words: &[String]) -> Result<HelperAction, Refusal> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let permitted = permit_form(rules, &words)?;
    let Err(error) = folder else {
        // Nobody else can change a file of this folder into a link now.
        if let [CHOWN, _, ref files @ ..] = words[..] {
            files.iter().try_for_each(|path| regular(path))?;
        }
        return Ok(permitted);
    };
    // A user who creates the folder in this moment gains nothing: these requests read and change no files.
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    match words[..] {
        ["folders" | "make" | "find" | "signal", ..] | ["status", _, _, "", ""] => Ok(permitted),
        ["cancel" | "list", ..] if is_missing => Ok(permitted),
        ["status", pid, start, ..] if is_missing => permit_form(rules, &["status", pid, start, "", ""]),
        [REMOVE, ..] if is_missing => Ok(HelperAction::Answer("")),
        _ => Err(Refusal::Untrusted(error.to_string())),
    }
}

fn permit_form(rules: &HelperRules, words: &[&str]) -> Result<HelperAction, Refusal> {
    let file = |path: &str| match capture_name(&rules.directory, path) {
        Some(_) => Ok(()),
        None => Err(Refusal::File(path.to_owned())),
    };
    let none_or_file = |path: &str| if path.is_empty() { Ok(()) } else { file(path) };
    match *words {
        [LAUNCH, log, path, max_bytes, max_s, ref argv @ ..] => {
            [log, path].into_iter().try_for_each(file)?;
            [max_bytes, max_s].into_iter().try_for_each(number)?;
            program(rules, argv)?;
            capture(rules, argv, path)?;
            let own = ["/bin/sh", "-c", script::LAUNCH, "sh", script::SUPERVISE, script::EXEC_PROGRAM, log];
            return Ok(command(&own, &[&[script::WATCH, path, max_bytes, max_s], argv].concat()));
        }
        [REMOVE, ref files @ ..] if !files.is_empty() => {
            files.iter().try_for_each(|path| file(path))?;
            return Ok(command(&["/bin/rm", "-rf", "--"], files));
        }
        [CHOWN, owner, ref files @ ..] if !files.is_empty() => {
            Owner::try_from(owner.to_owned()).map_err(|_| Refusal::Word(owner.to_owned()))?;
            files.iter().try_for_each(|path| file(path).and_then(|()| given(path)))?;
            return Ok(command(&["/bin/chown", "-h", "--", owner], files));
        }
        ["cancel", log] => file(log)?,
        ["status", pid, start, path, log] => {
            [pid, start].into_iter().try_for_each(number)?;
            [path, log].into_iter().try_for_each(none_or_file)?;
        }
        ["signal", pid, start, "INT" | "TERM" | "KILL", polls] => {
            [pid, start, polls].into_iter().try_for_each(number)?;
            if !is_capture(rules, pid, start)? {
                return Ok(HelperAction::Answer("gone\n"));
            }
        }
        ["find", "-e", path] => file(path)?,
        ["hash" | "join", path, bytes] => file(path).and_then(|()| number(bytes))?,
        ["fetch", path, first, bytes] => file(path).and_then(|()| [first, bytes].into_iter().try_for_each(number))?,
        ["folders" | "make" | "list", folder] => {
            if Path::new(folder) != rules.directory {
                return Err(Refusal::Directory(folder.to_owned()));
            }
        }
        _ => return Err(Refusal::Form(words.first().copied().unwrap_or_default().to_owned())),
    }
    let (verb, rest) = words.split_first().ok_or(Refusal::NoRequest)?;
    let script = SCRIPTS.iter().find(|(name, _)| name == verb).ok_or(Refusal::NoRequest)?.1;
    Ok(command(&["/bin/sh", "-c", script, "sh"], rest))
}

/// Endings of the files that another user may own: captures, archives of profiles, and logs.
const GIVEN: [&str; 3] = [".pcap", ".ibp.tar", ".log"];

/// Checks the name of a file that is given to another user. The folder of a running relay is never given:
/// the owner could put links into it. The relay refuses such a folder too; this is the first check.
fn given(path: &str) -> Result<(), Refusal> {
    let is_given = GIVEN.iter().any(|ending| path.ends_with(ending));
    if is_given { Ok(()) } else { Err(Refusal::OwnedFile(path.to_owned())) }
}

/// Checks that a file is neither a folder nor a link. A missing file is left to chown.
fn regular(path: &str) -> Result<(), Refusal> {
    let is_regular = fs::symlink_metadata(path).map_or(true, |found| found.is_file());
    if is_regular { Ok(()) } else { Err(Refusal::OwnedFile(path.to_owned())) }
}

fn command(own: &[&str], rest: &[&str]) -> HelperAction {
    HelperAction::Command(own.iter().chain(rest).map(|&word| word.to_owned()).collect())
}

fn number(word: &str) -> Result<(), Refusal> {
    let is_number = !word.is_empty() && word.len() <= 20 && word.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { Ok(()) } else { Err(Refusal::Word(word.to_owned())) }
}

fn device(word: &str) -> Result<(), Refusal> {
    name::device(word).map_err(|_| Refusal::Word(word.to_owned()))
}

/// Checks that the programs of a command line are those of the rules.
fn program(rules: &HelperRules, argv: &[&str]) -> Result<(), Refusal> {
    let program = argv.first().copied().unwrap_or_default();
    let is_permitted = match relayed(argv) {
        Some((_, inner)) => Path::new(program) == rules.ibscope && program_of_capture(rules, inner),
        None => program_of_capture(rules, argv),
    };
    if is_permitted { Ok(()) } else { Err(Refusal::Word(program.to_owned())) }
}

fn program_of_capture(rules: &HelperRules, argv: &[&str]) -> bool {
    let path = if argv.get(1) == Some(&"-d") { &rules.ibdump } else { &rules.tcpdump };
    argv.first().is_some_and(|program| Path::new(program) == path)
}

/// FIFO and archive of a relay, and the command line of its capture program.
fn relayed<'a>(argv: &'a [&'a str]) -> Option<([&'a str; 2], &'a [&'a str])> {
    match argv {
        [_, "capture", "relay", "--packets", packets, "--profile", archive, rest @ ..] => match rest {
            ["--queue-bytes", queue, "--memory-bytes", memory, "--cpus", cpus, "--", inner @ ..]
                if [queue, memory, cpus].into_iter().all(|word| number(word).is_ok()) =>
            {
                Some(([packets, archive], inner))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Checks the arguments of a capture of this file, whatever the names of its programs.
fn capture(rules: &HelperRules, argv: &[&str], path: &str) -> Result<(), Refusal> {
    let refused = |word: &str| Err(Refusal::Word(word.to_owned()));
    if let Some(([packets, archive], inner)) = relayed(argv) {
        let is_archive = archive == path && capture_name(&rules.directory, archive).is_some();
        let base = archive.strip_suffix(".ibp.tar");
        if !is_archive || base.is_none_or(|base| packets != format!("{base}.relay/packets")) {
            return refused(packets);
        }
        return plain_capture(inner, packets);
    }
    if capture_name(&rules.directory, path).is_none() {
        return Err(Refusal::File(path.to_owned()));
    }
    plain_capture(argv, path)
}

/// Checks the arguments of ibdump or tcpdump, which have no other output than this file.
fn plain_capture(argv: &[&str], path: &str) -> Result<(), Refusal> {
    match argv {
        [_, "-d", adapter, "-i", port, "-w", file, rest @ ..] if *file == path => {
            device(adapter)?;
            number(port)?;
            options(rest, &["-b", "-p", "-M"]).and_then(|rest| match rest {
                [] => Ok(()),
                [word, ..] => Err(Refusal::Word((*word).to_owned())),
            })
        }
        [_, "--time-stamp-precision=nano", "-n", "-Z", "root", "-i", interface, "-w", file, rest @ ..]
            if *file == path =>
        {
            device(interface)?;
            match options(rest, &["-s", "-B", "-C", "-W"])? {
                [] => Ok(()),
                // tcpdump would accept options after the filter.
                [filter] if !filter.starts_with('-') && !filter.chars().any(char::is_control) => Ok(()),
                [word, ..] => Err(Refusal::Word((*word).to_owned())),
            }
        }
        _ => Err(Refusal::Word(argv.get(1).copied().unwrap_or_default().to_owned())),
    }
}

/// Checks options with a number each, and returns the words after them.
fn options<'a>(mut words: &'a [&'a str], known: &[&str]) -> Result<&'a [&'a str], Refusal> {
    while let [option, value, rest @ ..] = words {
        if !known.contains(option) {
            break;
        }
        number(value)?;
        words = rest;
    }
    Ok(words)
}

/// True if the process runs and is a capture. A process that is gone, or has another start time, is
/// not signaled.
fn is_capture(rules: &HelperRules, pid: &str, start: &str) -> Result<bool, Refusal> {
    let at = |name: &str| Path::new("/proc").join(pid).join(name);
    let stat = fs::read(at("stat")).unwrap_or_default();
    let found = process::parse_stat(&String::from_utf8_lossy(&stat));
    if found.is_none_or(|(_, ticks)| ticks.to_string() != start) {
        return Ok(false);
    }
    // A zombie has ended. A process that executes a program has no arguments for a moment.
    if String::from_utf8_lossy(&stat).rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with(['Z', 'X'])) {
        return Ok(false);
    }
    let arguments = fs::read(at("cmdline")).unwrap_or_default();
    let arguments = String::from_utf8_lossy(&arguments);
    let words: Vec<&str> = arguments.trim_end_matches('\0').split('\0').collect();
    if is_capture_line(rules, &words) { Ok(true) } else { Err(Refusal::Process(pid.to_owned())) }
}

/// True if the last arguments are those of a capture. A script has its interpreter before them, and a
/// capture that is being launched has the words of its launch.
fn is_capture_line(rules: &HelperRules, words: &[&str]) -> bool {
    (0..words.len()).any(|first| {
        let argv = &words[first..];
        let path = match relayed(argv) {
            Some(([_, archive], _)) => Some(archive),
            None => argv.iter().position(|word| *word == "-w").and_then(|place| argv.get(place + 1)).copied(),
        };
        path.is_some_and(|path| capture(rules, argv, path).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture;
    use crate::config::Config;
    use std::process::Command;

    const CAPTURE: &str = "/c/ibscope-7-20261101T000000Z-n1-mlx5_0-1.pcap";
    const LOG: &str = "/c/ibscope-7-20261101T000000Z-n1-mlx5_0-1.log";
    const ARCHIVE: &str = "/c/ibscope-7-20261101T000000Z-n1-mlx5_0-1.ibp.tar";

    fn rules() -> HelperRules {
        toml::from_str("directory = \"/c\"").unwrap()
    }

    fn asked(words: &[&str]) -> Result<HelperAction, Refusal> {
        permit(&rules(), Ok(()), &words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    fn config(more: &str) -> Config {
        let text = format!(
            "[ssh]\nkey = \"/k\"\nknown_hosts = \"/h\"\n[mirror]\nbackend = \"none\"\n[collect]\ndirectory = \"/r\"\n\
             [capture]\ndirectory = \"/c\"\n{more}"
        );
        Config::parse(&text, Path::new("x")).unwrap()
    }

    fn launched(argv: &[String], file: &str) -> Result<HelperAction, Refusal> {
        asked(
            &[&["launch", LOG, file, "0", "60"], argv.iter().map(String::as_str).collect::<Vec<_>>().as_slice()]
                .concat(),
        )
    }

    /// Every command line that a configuration can lead to is permitted, and recognized in a process.
    #[test]
    fn captures_of_all_configurations_are_permitted() {
        for more in [
            "backend = \"ibdump\"",
            "backend = \"ibdump\"\n[capture.ibdump]\nmax_burst_log2 = 17\nwriter_thread_bytes = 4000",
            "backend = \"ibdump\"\n[capture.ibdump]\nmemory_bytes = 4000",
            "backend = \"tcpdump\"",
            "backend = \"tcpdump\"\nmax_bytes = 8_000_000\nring_files = 4",
            "backend = \"tcpdump\"\n[capture.tcpdump]\ninterface = \"eth0.7\"\nsnaplen = 256\nbuffer_kib = 9\nfilter = \"udp port 4791\"",
        ] {
            let config = config(more);
            let argv = capture::argv(&config, "mlx5_0", 1, Path::new(CAPTURE));
            let relay = capture::profile_argv(&config, "mlx5_0", 1, Path::new(ARCHIVE));
            for (argv, file) in [(&argv, CAPTURE), (&relay, ARCHIVE)] {
                let Ok(HelperAction::Command(command)) = launched(argv, file) else { panic!("{argv:?}") };
                assert!(command.ends_with(argv) && command[2] == script::LAUNCH, "{command:?}");
                let words: Vec<&str> = ["/bin/sh"].into_iter().chain(argv.iter().map(String::as_str)).collect();
                assert!(is_capture_line(&rules(), &words), "{argv:?}");
            }
        }
    }

    #[test]
    fn other_command_lines_are_refused() {
        let tcpdump = |more: &[&str]| {
            let argv = capture::argv(&config("backend = \"tcpdump\""), "mlx5_0", 1, Path::new(CAPTURE));
            argv.into_iter().chain(more.iter().map(|&word| word.to_owned())).collect::<Vec<String>>()
        };
        assert!(launched(&tcpdump(&[]), CAPTURE).is_ok());
        for more in [
            &["-z", "/tmp/x"][..],
            &["-s"],
            &["-s", "1", "-z", "/tmp/x"],
            &["-s", "-z"],
            &["--", "-z"],
            &["udp", "-z"],
            &["udp", "/tmp/x"],
            &["-w", "/etc/cron.d/x"],
            &["-Z", "user"],
            &["udp\nport"],
        ] {
            assert!(launched(&tcpdump(more), CAPTURE).is_err(), "{more:?}");
        }
        for (place, word) in [
            (0, "/bin/sh"),
            (0, "/tmp/tcpdump"),
            (1, "-z"),
            (5, "-z"),
            (6, "../x"),
            (6, "-w"),
            (8, "/etc/shadow"),
            (8, LOG),
        ] {
            let mut argv = tcpdump(&[]);
            word.clone_into(&mut argv[place]);
            assert!(launched(&argv, CAPTURE).is_err(), "{argv:?}");
        }
        let relay = capture::profile_argv(&config("backend = \"ibdump\""), "mlx5_0", 1, Path::new(ARCHIVE));
        for place in 0..relay.len() {
            for word in ["/tmp/x", "-z", "", "--", "/c/ibscope-8-20261101T000000Z-n1-mlx5_0-1.ibp.tar"] {
                let mut argv = relay.clone();
                word.clone_into(&mut argv[place]);
                assert!(argv == relay || launched(&argv, ARCHIVE).is_err(), "{argv:?}");
            }
            assert!(launched(&relay[..place], ARCHIVE).is_err());
        }
    }

    #[test]
    fn only_the_fixed_requests_are_permitted() {
        for fine in [
            &["cancel", LOG][..],
            &["status", "12", "34", "", ""],
            &["status", "12", "34", CAPTURE, LOG],
            &["find", "-e", CAPTURE],
            &["hash", CAPTURE, "7"],
            &["join", CAPTURE, "4"],
            &["fetch", CAPTURE, "1", "7"],
            &["folders", "/c"],
            &["make", "/c"],
            &["list", "/c"],
            &["remove", CAPTURE, LOG],
            &["chown", "1000:100", CAPTURE, LOG],
        ] {
            assert!(matches!(asked(fine), Ok(HelperAction::Command(_))), "{fine:?}");
            assert!(asked(&[fine, &["more"]].concat()).is_err(), "{fine:?}");
            assert!(asked(&fine[..fine.len() - 1]).is_err() || fine[0] == "remove" || fine[0] == "chown", "{fine:?}");
            // No place takes a path elsewhere, an option or a command.
            for (place, &word) in fine.iter().enumerate() {
                for other in
                    ["/etc/shadow", "/c/../etc/ibscope-1", "/c/x/ibscope-1", "/c/notes", "-rf", "$(id)", "1;id", "\n"]
                {
                    let mut words = fine.to_vec();
                    words[place] = other;
                    let is_refused = asked(&words).is_err();
                    assert!(is_refused, "{words:?} instead of {word}");
                }
            }
        }
        for words in [
            &[][..],
            &["remove"],
            &["chown", "root"],
            &["chown", "a b", CAPTURE],
            &["signal", "1", "2", "HUP", "1"],
            &["launch", LOG, CAPTURE, "0", "0"],
            &["sh", "-c", "id"],
        ] {
            assert!(asked(words).is_err(), "{words:?}");
        }
    }

    /// Only captures, archives and logs are given to another user, neither folders of relays nor links.
    #[test]
    fn only_regular_files_of_captures_are_given_away() {
        let folder = tempfile::tempdir().unwrap();
        let rules = HelperRules { directory: folder.path().to_owned(), ..rules() };
        let at = |name: &str| folder.path().join(name).display().to_string();
        let words = |name: &str| ["chown".to_owned(), "7".to_owned(), at(name)];
        let chown = |name: &str| permit(&rules, Ok(()), &words(name));
        let base = "ibscope-7-20261101T000000Z-n1-mlx5_0-1";
        for ending in ["pcap", "log", "ibp.tar"] {
            let name = format!("{base}.{ending}");
            assert!(chown(&name).is_ok(), "{ending}: chown itself reports a missing file");
            fs::write(at(&name), "").unwrap();
            assert!(chown(&name).is_ok(), "{ending}");
        }
        for ending in ["relay", "ibp", "pcap0", "pcap.join", "log2", "json"] {
            let name = format!("{base}.{ending}");
            assert_eq!(chown(&name), Err(Refusal::OwnedFile(at(&name))), "{ending}");
        }
        let (link, inner) = ("ibscope-8.pcap", "ibscope-9.log");
        std::os::unix::fs::symlink("/etc/shadow", at(link)).unwrap();
        fs::create_dir(at(inner)).unwrap();
        for name in [link, inner] {
            assert_eq!(chown(name), Err(Refusal::OwnedFile(at(name))));
        }
        // One refused file refuses all.
        let files = [at(&format!("{base}.pcap")), at(&format!("{base}.relay"))];
        assert!(permit_form(&rules, &["chown", "7", &files[0], &files[1]]).is_err());
    }

    /// No file is used in a folder that others can change. In a missing one there are no captures, but a
    /// process may still run.
    #[test]
    fn folders_that_others_can_change_are_not_used() {
        let [missing, untrusted] = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
        let status = &["status", "1", "2", CAPTURE, LOG][..];
        let asked = |kind: io::ErrorKind, words: &[&str]| {
            permit(&rules(), Err(kind.into()), &words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
        };
        for kind in [missing, untrusted] {
            for words in [
                &["hash", CAPTURE, "7"][..],
                &["fetch", CAPTURE, "1", "7"],
                &["join", CAPTURE, "4"],
                &["chown", "7", LOG],
            ] {
                assert!(matches!(asked(kind, words), Err(Refusal::Untrusted(_))), "{words:?}");
            }
            let argv = capture::argv(&config("backend = \"ibdump\""), "mlx5_0", 1, Path::new(CAPTURE));
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            assert!(asked(kind, &[&["launch", LOG, CAPTURE, "0", "0"], &argv[..]].concat()).is_err());
            for words in
                [&["find", "-e", CAPTURE][..], &["folders", "/c"], &["make", "/c"], &["status", "1", "2", "", ""]]
            {
                assert!(asked(kind, words).is_ok(), "{words:?}");
            }
        }
        assert!(asked(untrusted, status).is_err() && asked(untrusted, &["remove", LOG]).is_err());
        assert!(asked(untrusted, &["list", "/c"]).is_err() && asked(untrusted, &["cancel", LOG]).is_err());
        assert_eq!(asked(missing, status), asked(missing, &["status", "1", "2", "", ""]));
        assert_eq!(asked(missing, &["remove", LOG]), Ok(HelperAction::Answer("")));
        assert!(asked(missing, &["list", "/c"]).is_ok() && asked(missing, &["cancel", LOG]).is_ok());
    }

    /// A process that is no capture is not signaled, and neither is one whose id was used again.
    #[test]
    fn only_captures_are_signaled() {
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = other.id().to_string();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let start = process::parse_stat(&stat).unwrap().1.to_string();
        let signal = |start: &str| asked(&["signal", &pid, start, "KILL", "1"]);
        assert_eq!(signal(&start), Err(Refusal::Process(pid.clone())));
        assert_eq!(signal("1"), Ok(HelperAction::Answer("gone\n")));
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(signal(&start), Ok(HelperAction::Answer("gone\n")));
    }
}
