//! Recognizes the commands that need the rights of root on a sink, for a user who may call the
//! [helper](super) there with sudo. All other commands run as the user.

use super::{CHOWN, LAUNCH, REMOVE, SCRIPTS, capture_name};
use crate::remote::script;
use std::path::Path;

/// Words of the request to the helper for this command; `None` if the user runs the command. `folder`
/// is that of the captures: files elsewhere are not the helper's.
pub(in crate::remote) fn request(argv: &[String], folder: &Path) -> Option<Vec<String>> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let are_captures = |files: &[&str]| files.iter().all(|file| capture_name(folder, file).is_some());
    let with_verb = |verb: &str, rest: &[&str]| [&[verb][..], rest].concat().into_iter().map(str::to_owned).collect();
    match words[..] {
        // The scripts that this one starts are those of the helper.
        ["/bin/sh", "-c", script::LAUNCH, "sh", _, _, log, _, ref rest @ ..] => {
            Some(with_verb(LAUNCH, &[&[log], rest].concat()))
        }
        // Commands that mirror ports belong to the user.
        ["/bin/sh", "-c", script::FIND, "sh", ref rest @ ..]
            if !are_captures(&rest.iter().copied().filter(|word| *word != "-e").collect::<Vec<_>>()) =>
        {
            None
        }
        ["/bin/sh", "-c", text, "sh", ref rest @ ..] => {
            SCRIPTS.iter().find(|(_, script)| *script == text).map(|(verb, _)| with_verb(verb, rest))
        }
        ["/bin/rm", "-f" | "-rf", "--", ref files @ ..] if are_captures(files) => Some(with_verb(REMOVE, files)),
        ["/bin/chown", "-h", "--", owner, ref files @ ..] if are_captures(files) => {
            Some(with_verb(CHOWN, &[&[owner], files].concat()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_on_captures_need_the_helper() {
        let folder = Path::new("/c");
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<String>>();
        let asked = |command: &[&str]| request(&words(command), folder);
        let capture = "/c/ibscope-7-20261101T000000Z-n1-mlx5_0-1.pcap";
        assert_eq!(asked(&["/bin/rm", "-f", "--", capture]), Some(words(&["remove", capture])));
        assert_eq!(asked(&["/bin/chown", "-h", "--", "7:8", capture]), Some(words(&["chown", "7:8", capture])));
        assert_eq!(asked(&["/bin/sh", "-c", script::FIND, "sh", "-e", capture]), Some(words(&["find", "-e", capture])));
        assert_eq!(
            asked(&["/bin/sh", "-c", script::LAUNCH, "sh", "a", "b", "LOG", "c", "FILE", "0", "3", "/bin/x", "-w"]),
            Some(words(&["launch", "LOG", "FILE", "0", "3", "/bin/x", "-w"]))
        );
        for others in [
            &["/bin/rm", "-rf", "--", "/switch/port"][..],
            &["/bin/rm", "-rf", "--", "/c/../etc/passwd"],
            &["/bin/sh", "-c", script::FIND, "sh", "-e", "on", "-e", capture],
            &["/bin/sh", "-c", "reboot", "sh"],
            &["/bin/date", "+%s%N"],
            &["/usr/sbin/ibstat"],
        ] {
            assert_eq!(asked(others), None, "{others:?}");
        }
    }
}
