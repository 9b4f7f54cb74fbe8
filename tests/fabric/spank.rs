//! The option `--ibscope` of sbatch and srun, which the plugin in `packaging/spank` adds: compiled
//! and installed as `docs/slurm.md` says.

use crate::first_steps::commands;
use crate::jobs::{SAMPLE, clean, install};
use crate::lab::{HookLab, LabSetting};
use crate::site::SiteConfig;
use crate::slurm::Hooks;
use crate::tools;
use std::fs;
use std::path::Path;
use std::process::Output;

impl HookLab {
    /// Compiles and installs the plugin by the documented commands, with the lab's paths. Returns the
    /// last command, which submits a job.
    fn install_spank_plugin(&self) -> String {
        let at = |name: &str| self.path().join(name).display().to_string();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/spank/ibscope.c");
        fs::copy(source, self.path().join("ibscope.c")).expect("source");
        let mut steps = commands("An option of sbatch");
        let submit = steps.pop().expect("a job");
        for step in steps {
            let step = step
                .replace("/usr/share/ibscope/spank/ibscope.c", &at("ibscope.c"))
                .replace("/usr/local/lib/ibscope-spank.so", &at("ibscope-spank.so"))
                .replace("/etc/slurm/plugstack.conf", &at("plugstack.conf"));
            self.container.succeeds(["sh", "-c", &step]);
        }
        submit
    }

    fn slurm_command(&self, words: &[&str]) -> Output {
        let configuration = format!("SLURM_CONF={}/slurm/slurm.conf", self.path().display());
        let words = ["env", &configuration, "timeout", "60"].into_iter().chain(words.iter().copied());
        self.container.command(&self.path().join("slurm"), words).output().expect("nsenter")
    }
}

/// Jobs with and without the option, and with a wrong value of it.
pub(crate) fn an_option_of_sbatch_requests_a_capture(setting: LabSetting) {
    let lab = HookLab::start_in(setting);
    lab.traffic(&tools::sample(SAMPLE));
    let config = lab.configure(SiteConfig::PLAIN);
    let hooks = install(&lab, config.to_str().expect("path"));
    // Users find no fault in the plugin that a compiler finds.
    let documented = lab.install_spank_plugin();
    let strict = ["gcc", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"];
    lab.container.succeeds(strict.into_iter().chain([lab.path().join("ibscope.c").to_str().expect("path")]));
    let lines = format!("{hooks}\nPlugStackConfig={}/plugstack.conf", lab.path().display());
    lab.slurm(Hooks { lines: &lines, timeout_s: 70 });

    let is_captured = |id: u32| lab.log_text().contains(&format!("job {id}: capturing: "));
    let options = documented.strip_prefix("sbatch ").and_then(|rest| rest.strip_suffix(" job.sh")).expect("a job");
    let options: Vec<&str> = options.split(' ').collect();
    for (options, expected) in [
        (&options[..], true),
        (&["-N1", "--ibscope"], true),
        (&["-N1"], false),
        (&["-N1", "--ibscope=off", "--comment=ibscope=on"], false),
        (&["-N1", "--ibscope=on", "--comment=ibscope=off"], false),
    ] {
        let id = lab.submit(options, "true");
        assert_eq!(lab.ended(id).0, "COMPLETED", "{options:?}: {}", lab.log_text());
        assert_eq!(is_captured(id), expected, "{options:?}: {}", lab.log_text());
    }

    let ran = lab.slurm_command(&["srun", "-N1", "--ibscope", "sh", "-c", "echo $SLURM_JOB_ID"]);
    let printed = String::from_utf8(ran.stdout).expect("text");
    let id = printed.trim().parse().unwrap_or_else(|_| panic!("{printed}{}", String::from_utf8_lossy(&ran.stderr)));
    assert_eq!(lab.ended(id).0, "COMPLETED");
    assert!(is_captured(id), "{}", lab.log_text());

    let ran = lab.slurm_command(&["srun", "-N1", "--ibscope=yes", "true"]);
    let errors = String::from_utf8(ran.stderr).expect("text");
    assert!(!ran.status.success() && errors.contains("--ibscope=yes: expected on or off"), "{errors}");
    let help = String::from_utf8(lab.slurm_command(&["sbatch", "--help"]).stdout).expect("text");
    assert!(help.contains("--ibscope=on|off"), "{help}");
    clean(&lab);
    for entry in fs::read_dir(lab.path().join("log")).expect("logs") {
        let log = fs::read(entry.expect("entry").path()).expect("log");
        let log = String::from_utf8_lossy(&log);
        assert!(!log.contains("error: spank"), "{log}");
    }
    assert_eq!(lab.drained().trim(), "");
}
