//! Names that would do harm if a shell, an option parser or a path treated them as anything but
//! names. Hostile names of switches and hosts are in the fabric of every test (`topology.rs`,
//! `lab.rs`).

use crate::attacks::{SLURM, USER};
use crate::cases::{NODELIST, hook, lab, lab_as, starts};
use crate::jobs::{clean, only_folder};
use crate::lab::HookLab;
use crate::site::{SiteConfig, environment};
use crate::tools::ProgramResult;
use crate::topology::PWNED;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

/// Node lists that Slurm never writes. `PWNED` stands for a file that must not be created.
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

/// Other texts of a job: passed on literally, or not at all.
const TEXTS: [&str; 3] = [
    "-oProxyCommand=touch PWNED ibscope=on",
    "ibscope=on ; touch PWNED; $(touch PWNED) `touch PWNED` | 'x \"y",
    "ibscope=on\ntouch PWNED\r\n\u{1b}[2J-rf /",
];

pub(crate) fn hostile_names_are_refused_or_passed_literally() {
    let lab = lab(SiteConfig::PLAIN);
    let pwned = |text: &str| text.replace("PWNED", PWNED);
    for list in LISTS {
        for which in ["prolog", "epilog"] {
            let before = lab.log_text().len();
            // `run.fail_open` is true, so the job runs.
            let ProgramResult { code, stderr, .. } = lab.hook(which, 900, &pwned(list));
            let log_text = lab.log_text()[before..].to_owned();
            assert_eq!(code, 0, "{list:?}: {stderr}");
            assert!(log_text.lines().count() == 1 && log_text.contains("error: "), "{list:?}: {log_text}");
            assert!(!log_text.contains('\u{1b}'), "{log_text:?}");
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
        assert!(
            lab.log_text().contains(&format!("job {job}: capturing: 2 captures, 4 ports mirrored")),
            "{}",
            lab.log_text()
        );
        let listed = lab.capture(&["list"]).stdout;
        assert!(listed.lines().count() == 2 && !listed.contains('\u{1b}'), "{listed:?}");
        call("epilog");
        clean(&lab);
        let run = only_folder(&lab.path().join("runs"));
        let manifest = fs::read_to_string(run.join("manifest.json")).expect("manifest");
        assert!(serde_json::from_str::<serde_json::Value>(&manifest).is_ok(), "{manifest}");
        fs::remove_dir_all(run).expect("the run");
    }
    // The same job id with a valid node list.
    hook(&lab, "epilog", 900);
    assert!(!Path::new(PWNED).exists(), "a name was run");
}

/// Things that a user can prepare before a job's hooks run as root: folders, links, FIFOs,
/// journals, a configuration. No file of root changes, nothing runs, and the error names the
/// prepared item. Without it, jobs are captured.
pub(crate) fn items_that_users_prepare_are_refused() {
    prepared(&lab(SiteConfig::PLAIN));
}

/// The same for hooks that run as `SlurmUser=slurm`.
pub(crate) fn hooks_of_slurms_user_refuse_items_that_users_prepare() {
    prepared(&lab_as(SLURM, SiteConfig::PLAIN));
}

fn prepared(lab: &HookLab) {
    let own = lab.uid(lab.user);
    let at = |name: &str| lab.path().join(name);
    let secret = at("secret");
    fs::write(&secret, "root's").expect("file");
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    let refused = |what: &str| {
        for which in ["prolog", "epilog"] {
            let log_text = hook(lab, which, 920);
            assert!(which == "epilog" || log_text.contains(what), "{what}: {log_text}");
        }
        assert_eq!((lab.switch_calls().len(), lab.captures_running().len()), (0, 0), "{what}");
        assert_eq!(fs::read_to_string(&secret).expect("file"), "root's", "{what}");
    };
    let captures = at("captures");
    assert!(fs::remove_dir_all(&captures).is_ok() || !captures.exists());

    // A folder of the user, with anything in it.
    fs::create_dir(&captures).expect("folder");
    chown(&captures, Some(USER), None).expect("owner");
    refused("captures belongs to user 65534");
    // A folder of root that everyone may write to, like /tmp.
    chown(&captures, Some(0), None).expect("owner");
    mode(&captures, 0o1777);
    refused("captures has mode 1777");
    // A link to a folder of root.
    fs::remove_dir(&captures).expect("folder");
    fs::create_dir(at("elsewhere")).expect("folder");
    symlink(at("elsewhere"), &captures).expect("link");
    lchown(&captures, Some(USER), None).expect("owner");
    refused("captures is a symbolic link of user 65534");
    // A file, and a FIFO that nobody writes to.
    fs::remove_file(&captures).expect("link");
    fs::write(&captures, "").expect("file");
    refused("captures is not a folder");
    fs::remove_file(&captures).expect("file");
    assert!(Command::new("mkfifo").arg(&captures).status().expect("mkfifo").success());
    refused("captures is not a folder");
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
    let log_text = hook(lab, "prolog", 920);
    assert!(log_text.contains("belongs to user 65534") || log_text.contains("capturing"), "{log_text}");
    hook(lab, "epilog", 920);
    assert_eq!(fs::read_to_string(&secret).expect("file"), "root's");
    fs::remove_file(&planted).expect("journal");

    // The configuration: no value in it is used, not even the path of the log.
    let config = at("capture.toml");
    for (bits, owner) in [(0o660, own), (0o606, own), (0o600, USER)] {
        mode(&config, bits);
        chown(&config, Some(owner), None).expect("owner");
        let before = lab.log_text().len();
        let ProgramResult { code, stderr, .. } = lab.hook("prolog", 921, NODELIST);
        assert_eq!((code, lab.log_text().len()), (0, before), "{stderr}");
        let what = match owner {
            USER if own == 0 => "belongs to user 65534",
            // The operating system refuses to open the file for this user.
            USER => "Permission denied",
            _ => "can be written by users other than",
        };
        assert!(stderr.contains(what) && stderr.contains("capture.toml"), "{stderr}");
        assert_eq!(lab.captures_running().len(), 0);
    }
    mode(&config, 0o600);
    chown(&config, Some(own), None).expect("owner");

    // Missing folders are created, for root only.
    starts(lab, 922);
    let made = fs::metadata(&captures).expect("folder").permissions().mode();
    assert_eq!(made & 0o7777, 0o700);
    hook(lab, "epilog", 922);
    clean(lab);
}
