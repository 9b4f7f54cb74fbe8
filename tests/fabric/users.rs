//! What the user of a job sees: the job's `AdminComment`, and files that only this user can read.

use crate::analysis::{check_counts, check_run};
use crate::container::until;
use crate::ibdump::IbdumpFault;
use crate::jobs::{SAMPLE, clean, install, only_folder};
use crate::lab::HookLab;
use crate::site::SiteConfig;
use crate::slurm::Hooks;
use crate::tools;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

/// User 1 of Debian.
const USER: &str = "daemon";
const USER_ID: u32 = 1;

impl HookLab {
    /// The `AdminComment` of a job.
    fn admin_comment(&self, id: u32) -> String {
        let text = self.slurm_tool(&["scontrol", "show", "job", &id.to_string()]);
        text.lines().find_map(|line| line.trim().strip_prefix("AdminComment=")).unwrap_or_default().to_owned()
    }

    /// Waits for an `AdminComment` with this text.
    fn wait_for_comment(&self, id: u32, what: &str) {
        let mut found = String::new();
        until(Duration::from_secs(40), what, || {
            found = self.admin_comment(id);
            if found.contains(what) { Some(()) } else { None }
        });
        println!("job {id}: {found}");
    }
}

/// A job of a user is captured for this user alone, and says where. A mistyped word and a capture
/// that cannot be started are said too.
pub(crate) fn users_see_whether_their_job_is_captured() {
    let lab = HookLab::start();
    lab.traffic(&tools::sample(SAMPLE));
    let run = format!(
        "admin_comment = true\nslurm_conf = \"{}/slurm/slurm.conf\"\n[analyze]\nafter = \"sbatch\"\n\
         sbatch = [\"--output=/dev/null\", \"--chdir=/\"]",
        lab.path().display()
    );
    let config = lab.configure(SiteConfig { run: &run, capture: "owner = \"job\"", ..SiteConfig::PLAIN });
    let lines = install(&lab, config.to_str().expect("path"));
    lab.slurm(Hooks { lines: &lines, timeout_s: 70 });
    // As the documents advise, so that users reach their own runs.
    fs::set_permissions(lab.path().join("runs"), fs::Permissions::from_mode(0o711)).expect("permissions");
    let user = format!("--uid={USER}");
    let submit = |comment: &str, script: &str| {
        let comment = format!("--comment={comment}");
        lab.submit(&["-N4", &user, "--output=/dev/null", "--chdir=/", &comment], script)
    };

    let id = submit("ibscope=on", "sleep 3");
    lab.wait_for_comment(
        id,
        &format!("ibscope: capturing: 2 captures, 4 ports mirrored; result in {}", lab.path().join("runs").display()),
    );
    assert_eq!(lab.ended(id).0, "COMPLETED", "{}", lab.log_text());
    until(Duration::from_secs(40), "the epilog", || lab.log_text().contains("undone; manifest").then_some(()));
    clean(&lab);
    let folder = only_folder(&lab.path().join("runs"));
    assert!(lab.admin_comment(id).ends_with(&folder.display().to_string()), "{}", lab.admin_comment(id));
    check_run(&lab, &folder, 2, (USER_ID, 0));
    // The batch job runs as the user, and so the profile is the user's.
    let profile = folder.join("job.ibp/profile.json");
    until(Duration::from_secs(40), "the profile", || profile.exists().then_some(()));
    assert_eq!(fs::metadata(&profile).expect("profile").uid(), USER_ID);
    check_counts(&folder.join("job.ibp"));

    for (mistyped, is_said) in [("IBSCOPE=ON", true), ("ibscope:on", true), ("nothing", false)] {
        let id = submit(mistyped, "true");
        assert_eq!(lab.ended(id).0, "COMPLETED", "{}", lab.log_text());
        let expected =
            format!("not captured: the job has \"{mistyped}\", but a capture is requested with \"ibscope=on\"");
        assert_eq!(lab.log_text().contains(&format!("job {id}: warning: {expected}")), is_said, "{}", lab.log_text());
        assert_eq!(lab.admin_comment(id).contains(&expected), is_said, "{}", lab.admin_comment(id));
    }

    lab.ibdump_fault("sink1a", Some(IbdumpFault::Start));
    let id = submit("ibscope=on", "sleep 1");
    lab.wait_for_comment(id, "ibscope: not captured: sink1a: ibdump ended right after its start");
    assert_eq!(lab.ended(id).0, "COMPLETED", "{}", lab.log_text());
    clean(&lab);
}
