//! The role of Ansible in `packaging/ansible`: a dry run changes nothing, the second run changes nothing
//! more, and the installed hooks capture a job.

use crate::container::until;
use crate::first_steps::{SYSTEMCTL, fresh_machine};
use crate::jobs::{SAMPLE, clean};
use crate::lab::{HookLab, LabSetting};
use crate::site::SiteConfig;
use crate::slurm::Hooks;
use crate::tools;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

impl HookLab {
    /// Installs the files of the package, inside the lab only.
    fn install_package(&self) {
        let at = |name: &str| self.path().join(name).display().to_string();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").display().to_string();
        let script = format!(
            "set -e; mkdir {0}; mount -t tmpfs tmpfs {0}; mkdir {0}/upper {0}/work
            mount -t overlay overlay -o lowerdir=/usr,upperdir={0}/upper,workdir={0}/work /usr
            ln -s {1} /usr/bin/ibscope
            install -D -m 644 {from}/logrotate/ibscope /usr/share/ibscope/logrotate/ibscope
            install -m 644 {from}/systemd/* /usr/lib/systemd/system",
            at("overlay"),
            at("bin/ibscope")
        );
        self.container.succeeds(["sh", "-c", &script]);
    }

    /// Runs the playbook, and returns its output and the number of changes; or only the output, if it
    /// failed.
    fn play(&self, options: &[&str]) -> Result<(String, usize), String> {
        let home = self.path().join("home");
        let inventory = home.join("inventory").display().to_string();
        let playbook = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/ansible/site.yml").display().to_string();
        let variables = format!("@{}", home.join("variables.json").display());
        let environment = [
            format!("HOME={}", home.display()),
            "LC_ALL=C.UTF-8".to_owned(),
            "ANSIBLE_NOCOLOR=1".to_owned(),
            // There is no systemd here.
            "SYSTEMD_OFFLINE=1".to_owned(),
        ];
        let words = ["ansible-playbook", "-i", &inventory, "-e", &variables, &playbook];
        let words = environment.iter().map(String::as_str).chain(words).chain(options.iter().copied());
        let output = self.container.command(&home, words).output().expect("nsenter");
        let [printed, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
        if !output.status.success() {
            return Err(printed + &errors);
        }
        let changes = printed.split("changed=").last().and_then(|rest| rest.split(' ').next()?.parse().ok());
        let changes = changes.unwrap_or_else(|| panic!("{printed}"));
        Ok((printed, changes))
    }

    /// Names, lengths and times of change of all files in `/etc`, and the configuration of Slurm.
    fn settings(&self) -> String {
        let listed = self.container.succeeds(["find", "/etc/", "-printf", "%p %s %m %u %T@\n"]);
        listed + &fs::read_to_string(self.path().join("slurm/slurm.conf")).expect("configuration")
    }
}

pub(crate) fn an_ansible_role_installs_the_hooks(setting: LabSetting) {
    assert!(Path::new("/usr/bin/ansible-playbook").exists(), "ansible-core is missing: `make soak` installs it");
    let lab = HookLab::start_in(setting);
    lab.traffic(&tools::sample(SAMPLE));
    fresh_machine(&lab);
    lab.install_package();
    lab.slurm(Hooks { lines: "", timeout_s: 70 });
    let config = lab.configure(SiteConfig::PLAIN);
    let home = lab.path().join("home");
    fs::rename(config, home.join("capture.toml")).expect("configuration");
    fs::write(home.join("inventory"), "[slurm_controllers]\nlocalhost ansible_connection=local\n").expect("file");
    let restart = lab.path().join("restart");
    fs::write(&restart, SYSTEMCTL.replace("LAB", &lab.path().display().to_string())).expect("script");
    fs::set_permissions(&restart, fs::Permissions::from_mode(0o755)).expect("permissions");
    let variables = serde_json::json!({
        "ibscope_config": home.join("capture.toml"),
        "ibscope_user": lab.user,
        "ibscope_state_dir": lab.path().join("state"),
        "ibscope_restart_slurmctld": format!("{} restart slurmctld", restart.display()),
        // The role needs no other user than the test's.
        "ansible_become": false,
    });
    fs::write(home.join("variables.json"), variables.to_string()).expect("file");

    let before = lab.settings();
    let (printed, changes) = lab.play(&["--check", "--diff"]).expect("a dry run");
    assert!(changes > 0 && printed.contains("+PrologSlurmctld=/etc/ibscope/prolog"), "{printed}");
    assert_eq!(lab.settings(), before, "a dry run changes nothing");
    let (printed, changes) = lab.play(&[]).expect("an installation");
    assert!(changes > 0, "{printed}");
    let enabled = ["multi-user.target.wants/ibscope-sweep.service", "timers.target.wants/ibscope-sweep.timer"];
    for name in enabled {
        lab.container.succeeds(["test", "-L", &format!("/etc/systemd/system/{name}")]);
    }
    let after = lab.settings();
    let (printed, changes) = lab.play(&["--diff"]).expect("a second run");
    assert_eq!((changes, lab.settings()), (0, after), "{printed}");

    let id = lab.submit(&["-N4", "--comment=ibscope=on"], "true");
    assert_eq!(lab.ended(id).0, "COMPLETED", "{}", lab.log_text());
    until(Duration::from_secs(40), "a manifest", || {
        lab.log_text().contains(&format!("job {id}: undone; manifest")).then_some(())
    });
    fs::copy(home.join("capture.toml"), lab.path().join("capture.toml")).expect("configuration");
    lab.hand_over();
    clean(&lab);

    // Hooks of the site are not replaced.
    let path = lab.path().join("slurm/slurm.conf");
    let text = fs::read_to_string(&path).expect("configuration");
    fs::write(&path, text.replace("/etc/ibscope/prolog", "/opt/site/prolog")).expect("configuration");
    let refused = lab.play(&[]).expect_err("another prolog");
    assert!(refused.contains("has another PrologSlurmctld or EpilogSlurmctld"), "{refused}");
    let text = fs::read_to_string(&path).expect("configuration");
    assert!(!text.contains("/etc/ibscope/prolog"), "{text}");
}
