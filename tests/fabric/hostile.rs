//! Names that would do harm if a shell, an option parser or a path ever took them for anything but names. Those of switches and of a host of the fabric are in every
//! test (`topology.rs`, `lab.rs`).

use crate::cases::{NODELIST, hook, lab};
use crate::jobs::{clean, only_folder};
use crate::site::{Site, environment};
use crate::tools::Ran;
use crate::topology::PWNED;
use std::fs;
use std::path::Path;

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
