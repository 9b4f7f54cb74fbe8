//! Names that would do harm if a shell, an option parser or a path ever took them for anything but names. Those of switches and of a host of the fabric are in every
//! test (`topology.rs`, `lab.rs`).

use crate::attacks::{SLURM, USER};
use crate::cases::{NODELIST, hook, lab, lab_as, starts};
use crate::jobs::{clean, only_folder};
use crate::lab::Lab;
use crate::site::{Site, environment};
use crate::tools::Ran;
use crate::topology::PWNED;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

/// Lists of nodes that no Slurm writes. `PWNED` stands for the file that must not be made.
const LISTS: [&str; 16] = [
    "-oProxyCommand=touch PWNED",
    "n001,-oProxyCommand=touch${IFS}PWNED",
    "n001;touch PWNED",
    "n001 $(touch PWNED)",
    "$(touch PWNED)",
    "`touch PWNED`",
    "n001|touch PWNED",
    "n001\ntouch PWNED",
    "n'001",
    "n\"001",
    "../../n001",
    "n001 n002",
    "n[001-004",
    "n[001-99999999]",
    "n\u{1b}[31m001",
    ",",
];

/// What else a job brings along: passed on literally, or not at all.
const TEXTS: [&str; 3] = [
    "-oProxyCommand=touch PWNED ibscope=on",
    "ibscope=on ; touch PWNED; $(touch PWNED) `touch PWNED` | 'x \"y",
    "ibscope=on\ntouch PWNED\r\n\u{1b}[2J-rf /",
];

pub(crate) fn hostile_names_are_refused_or_passed_literally() {
    let lab = lab(Site::PLAIN);
    let pwned = |text: &str| text.replace("PWNED", PWNED);
    for list in LISTS {
        for which in ["prolog", "epilog"] {
            let before = lab.told().len();
            // Open, as ever: the job is not held up.
            let Ran { code, stderr, .. } = lab.hook(which, 900, &pwned(list));
            let told = lab.told()[before..].to_owned();
            assert_eq!(code, 0, "{list:?}: {stderr}");
            assert!(told.lines().count() == 1 && told.contains("error: "), "{list:?}: {told}");
            assert!(!told.contains('\u{1b}'), "{told:?}");
        }
        for command in ["plan", "start"] {
            let ran = lab.capture(&[command, "--job", "900", "--nodelist", &pwned(list)]);
            assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{command} {list:?}: {}", ran.stderr);
        }
    }
    assert_eq!((lab.switch_calls().len(), lab.captures_running().len()), (0, 0));
    clean(&lab);

    for (index, text) in TEXTS.iter().enumerate() {
        let (job, text) = (901 + index as u32, pwned(text));
        let config = lab.path().join("capture.toml").display().to_string();
        let call = |which: &str| {
            let mut variables = environment(which, job, NODELIST);
            variables.retain(|line| {
                !["COMMENT=", "NAME=", "USER="].iter().any(|name| line.contains(&format!("_JOB_{name}")))
            });
            variables.extend(
                ["COMMENT", "NAME", "USER", "WORK_DIR", "STDOUT"].map(|name| format!("SLURM_JOB_{name}={text}")),
            );
            let ran = lab.ibscope(&variables, &["hook", which, "--config", &config]);
            assert_eq!(ran.code, 0, "{which} {text:?}: {}", ran.stderr);
        };
        call("prolog");
        assert!(lab.told().contains(&format!("job {job}: capturing: 2 captures, 4 ports mirrored")), "{}", lab.told());
        let listed = lab.capture(&["list"]).stdout;
        assert!(listed.lines().count() == 2 && !listed.contains('\u{1b}'), "{listed:?}");
        call("epilog");
        clean(&lab);
        let run = only_folder(&lab.path().join("runs"));
        let manifest = fs::read_to_string(run.join("manifest.json")).expect("manifest");
        assert!(serde_json::from_str::<serde_json::Value>(&manifest).is_ok(), "{manifest}");
        fs::remove_dir_all(run).expect("the run");
    }
    // The same id with a decent name.
    hook(&lab, "epilog", 900);
    assert!(!Path::new(PWNED).exists(), "a name was run");
}

/// What a user can prepare before a job's hooks run as root: folders, links, FIFOs, journals, a configuration. No file of root's changes, nothing runs,
/// and what was prepared is named; with it out of the way jobs are captured.
pub(crate) fn what_users_have_prepared_is_refused() {
    prepared(&lab(Site::PLAIN));
}

/// The same for hooks that run as Slurm's own user.
pub(crate) fn slurms_user_refuses_what_users_have_prepared() {
    prepared(&lab_as(SLURM, Site::PLAIN));
}

fn prepared(lab: &Lab) {
    let own = lab.uid(lab.user);
    let at = |name: &str| lab.path().join(name);
    let secret = at("secret");
    fs::write(&secret, "root's").expect("file");
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    let refused = |what: &str| {
        for which in ["prolog", "epilog"] {
            let told = hook(lab, which, 920);
            assert!(which == "epilog" || told.contains(what), "{what}: {told}");
        }
        assert_eq!((lab.switch_calls().len(), lab.captures_running().len()), (0, 0), "{what}");
        assert_eq!(fs::read_to_string(&secret).expect("file"), "root's", "{what}");
    };
    let captures = at("captures");
    assert!(fs::remove_dir_all(&captures).is_ok() || !captures.exists());

    // A folder of the user's, with whatever is in it.
    fs::create_dir(&captures).expect("folder");
    chown(&captures, Some(USER), None).expect("owner");
    refused("captures belongs to user 65534");
    // One of root's that all may write to, as /tmp.
    chown(&captures, Some(0), None).expect("owner");
    mode(&captures, 0o1777);
    refused("captures has mode 1777");
    // A link to a folder of root's.
    fs::remove_dir(&captures).expect("folder");
    fs::create_dir(at("elsewhere")).expect("folder");
    symlink(at("elsewhere"), &captures).expect("link");
    lchown(&captures, Some(USER), None).expect("owner");
    refused("captures is a link of user 65534");
    // A file, and a FIFO that nobody writes to.
    fs::remove_file(&captures).expect("link");
    fs::write(&captures, "").expect("file");
    refused("captures is no folder");
    fs::remove_file(&captures).expect("file");
    assert!(Command::new("mkfifo").arg(&captures).status().expect("mkfifo").success());
    refused("captures is no folder");
    fs::remove_file(&captures).expect("FIFO");
    assert_eq!(fs::read_dir(at("elsewhere")).expect("folder").count(), 0);

    // The state folder, with a journal that would run a command.
    let state = at("state");
    let planted = state.join("job-920-1.journal");
    fs::create_dir_all(&state).expect("folder");
    mode(&state, 0o777);
    fs::write(&planted, format!("{{\"argv\":[\"/bin/cp\",\"/etc/hostname\",\"{}\"]}}\n", secret.display()))
        .expect("journal");
    chown(&planted, Some(USER), None).expect("owner");
    refused("state has mode 0777");
    mode(&state, 0o700);
    let told = hook(lab, "prolog", 920);
    assert!(told.contains("belongs to user 65534") || told.contains("capturing"), "{told}");
    hook(lab, "epilog", 920);
    assert_eq!(fs::read_to_string(&secret).expect("file"), "root's");
    fs::remove_file(&planted).expect("journal");

    // The configuration: nothing in it is believed, not even where the log is.
    let config = at("capture.toml");
    for (bits, owner) in [(0o660, own), (0o606, own), (0o600, USER)] {
        mode(&config, bits);
        chown(&config, Some(owner), None).expect("owner");
        let before = lab.told().len();
        let Ran { code, stderr, .. } = lab.hook("prolog", 921, NODELIST);
        assert_eq!((code, lab.told().len()), (0, before), "{stderr}");
        let what = match owner {
            USER if own == 0 => "belongs to user 65534",
            // The system does not even let it read the file.
            USER => "Permission denied",
            _ => "can be written by others",
        };
        assert!(stderr.contains(what) && stderr.contains("capture.toml"), "{stderr}");
        assert_eq!(lab.captures_running().len(), 0);
    }
    mode(&config, 0o600);
    chown(&config, Some(own), None).expect("owner");

    // What is missing is made, for root alone.
    starts(lab, 922);
    let made = fs::metadata(&captures).expect("folder").permissions().mode();
    assert_eq!(made & 0o7777, 0o700);
    hook(lab, "epilog", 922);
    clean(lab);
}
