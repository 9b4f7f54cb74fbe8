//! The documented way from a fresh install to the first captured job, with the commands of
//! `docs/slurm.md`.

use crate::container::until;
use crate::jobs::{SAMPLE, clean, folder_of};
use crate::lab::HookLab;
use crate::site::SiteConfig;
use crate::slurm::Hooks;
use crate::tools;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

/// Most steps that the documents may need.
const MAX_STEPS: usize = 6;

/// The commands of the first code block of a section.
pub(crate) fn commands(section: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/slurm.md");
    let text = fs::read_to_string(path).expect("document");
    let section = text.split_once(&format!("### {section}\n")).expect("section").1;
    let block = section.split_once("```sh\n").expect("block").1.split_once("```").expect("its end").0;
    block.lines().map(str::to_owned).collect()
}

/// Replaces folders of the machine, inside the lab only: `/etc` has neither a configuration nor hooks,
/// and `/usr/local/bin` has the program.
pub(crate) fn fresh_machine(lab: &HookLab) {
    let at = |name: &str| lab.path().join(name);
    lab.copy_programs();
    fs::create_dir_all(at("home")).expect("folder");
    lab.container.succeeds(["cp", "-a", "/etc", &at("etc").display().to_string()]);
    drop(fs::remove_dir_all(at("etc/ibscope")));
    drop(fs::remove_dir_all(at("etc/slurm")));
    fs::create_dir(at("etc/slurm")).expect("folder");
    symlink(at("slurm/slurm.conf"), at("etc/slurm/slurm.conf")).expect("link");
    for (folder, place) in [("etc", "/etc"), ("bin", "/usr/local/bin")] {
        lab.container.succeeds(["mount", "--bind", &at(folder).display().to_string(), place]);
    }
}

/// `systemctl restart slurmctld` without systemd.
pub(crate) const SYSTEMCTL: &str = r#"#!/bin/sh
[ "$*" = "restart slurmctld" ] || exit 1
id=$(cat LAB/slurm/slurmctld.pid)
kill "$id"
while kill -0 "$id" 2>/dev/null; do sleep 0.05; done
slurmctld || exit 1
until scontrol ping | grep -q UP; do sleep 0.05; done
"#;

/// Each command runs as it is written, in a folder with a configuration of the site and a job script.
pub(crate) fn six_steps_lead_to_the_first_captured_job() {
    let lab = HookLab::start();
    lab.traffic(&tools::sample(SAMPLE));
    fresh_machine(&lab);
    lab.slurm(Hooks { lines: "", timeout_s: 70 });
    let config = lab.configure(SiteConfig::PLAIN);
    let home = lab.path().join("home");
    fs::rename(config, home.join("capture.toml")).expect("configuration");
    fs::write(home.join("job.sh"), "#!/bin/sh\nsleep 1\n").expect("script");

    let systemctl = lab.path().join("bin/systemctl");
    fs::write(&systemctl, SYSTEMCTL.replace("LAB", &lab.path().display().to_string())).expect("script");
    fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).expect("permissions");

    let steps = commands("First captured job");
    assert!(steps.len() <= MAX_STEPS, "{steps:?}");
    let mut printed = String::new();
    for step in &steps {
        let words = ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "/bin/sh", "-c", step];
        let output = lab.container.command(&home, words).output().expect("nsenter");
        assert!(output.status.success(), "{step}: {output:?}");
        printed = String::from_utf8(output.stdout).expect("text");
    }
    let id =
        printed.trim().strip_prefix("Submitted batch job ").expect("the last step submits").parse().expect("an id");
    assert_eq!(lab.ended(id).0, "COMPLETED", "{}", lab.log_text());
    let manifest = until(Duration::from_secs(40), "a manifest", || {
        let done = lab.log_text().contains(&format!("job {id}: undone; manifest"));
        done.then(|| folder_of(&lab, id).join("manifest.json"))
    });
    assert!(manifest.exists());
    fs::rename(home.join("capture.toml"), lab.path().join("capture.toml")).expect("configuration");
    clean(&lab);
}
