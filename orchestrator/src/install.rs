//! Installs the hooks: writes the scripts that Slurm calls, prints the lines for `slurm.conf`, and
//! checks the existing setup.
//!
//! The checks change nothing; only [`Installation::write`] writes files.

use crate::config::{Config, Owner};
use crate::folder::{Folder, user_of};
use crate::origin;
use crate::quote;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// Whether something must be done before the hooks can work.
    pub verdict: FindingLevel,
    /// Description of the result, with the remedy if one is needed.
    pub text: String,
}

/// Severity of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingLevel {
    /// Correct.
    Fine,
    /// Must be done to install the hooks.
    ToDo,
    /// Must be corrected.
    Wrong,
}

/// Installation of the hooks at a site.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Installation {
    /// Scripts for Slurm, which passes no arguments to its hooks.
    pub scripts: Vec<Script>,
    /// Lines for `slurm.conf`.
    pub lines: Vec<String>,
    /// Results of the checks.
    pub findings: Vec<Finding>,
}

/// A script that Slurm calls.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Script {
    /// Path of the script.
    pub path: PathBuf,
    /// Content of the script.
    pub text: String,
    /// Command line that calls ibscope, for use in a script of the site.
    pub command: String,
}

/// First lines of the scripts, by which ibscope recognizes its own.
const SCRIPT_HEADER: &str =
    "#!/bin/sh\n# Slurm passes no arguments to its hooks. If the program is missing, jobs still run.\n";

/// Reason why the installation cannot be checked or written.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A file cannot be read or written.
    #[error("{}: {source}; check the path and its permissions", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A path that cannot be written in a script.
    #[error("{}: the path contains a control character or is not UTF-8; choose another one", .0.display())]
    Path(PathBuf),
}

/// Options of `slurm.conf` that are checked, in lower case because Slurm ignores case.
const OPTIONS: [&str; 4] = ["prologslurmctld", "epilogslurmctld", "prologepilogtimeout", "slurmuser"];

/// Maximum number of levels of nested includes.
const MAX_INCLUDE_DEPTH: usize = 8;

impl Installation {
    /// Runs all checks. `path` is the configuration file, `slurm` the `slurm.conf`, `program`
    /// ibscope itself, and `folder` the folder for the scripts.
    pub fn inspect(
        path: &Path,
        config: &Config,
        slurm: &Path,
        program: &Path,
        folder: &Path,
    ) -> Result<Self, InstallError> {
        let mut options = BTreeMap::new();
        read(slurm, &mut options, 0)?;
        let state_dir = config.run.state_dir.as_path();
        let calls = ["prolog", "epilog"].map(|hook| script(program, path, state_dir, folder, hook));
        let scripts = calls.into_iter().collect::<Result<Vec<_>, _>>()?;
        let lines = ["PrologSlurmctld", "EpilogSlurmctld"].iter().zip(&scripts);
        let lines = lines.map(|(option, script)| format!("{option}={}", script.path.display())).collect();
        let mut findings = Vec::new();
        for (option, script) in ["PrologSlurmctld", "EpilogSlurmctld"].iter().zip(&scripts) {
            findings.push(check_script(script));
            findings.push(check_option(option, options.get(&option.to_lowercase()), &script.path));
        }
        findings.push(check_timeout(config.run.deadline_s, options.get("prologepilogtimeout")));
        let user = options.get("slurmuser").map_or("root", |(value, _)| value.as_str());
        findings.push(check_secret(path, "configuration", user)?);
        findings.push(check_secret(&config.ssh.key, "ssh key", user)?);
        let folders = [
            ("state folder", Some(config.run.state_dir.as_path())),
            ("folder for manifests and captures", Some(config.collect.directory.as_path())),
            ("folder for hostfiles", config.sinks.hostfile_directory.as_deref()),
            ("folder of the log", config.run.log.as_deref().and_then(Path::parent)),
        ];
        for (what, folder) in folders {
            findings.extend(folder.map(|folder| check_folder(what, folder, user)));
        }
        findings.extend(check_owner(config.capture.owner.as_ref(), user));
        findings.push(check_program(program, user)?);
        findings.extend(check_path("program", program, user));
        findings.extend(check_path("scripts", &scripts[0].path, user));
        Ok(Self { scripts, lines, findings })
    }

    /// Writes the scripts, each atomically. A script of the site is not overwritten.
    pub fn write(&self) -> Result<(), InstallError> {
        let is_free = |script: &&Script| match fs::read(&script.path) {
            Ok(bytes) => is_ours(&String::from_utf8_lossy(&bytes)),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        for script in self.scripts.iter().filter(is_free) {
            let failed = |source| InstallError::File { path: script.path.clone(), source };
            let put = || {
                let folder = Folder::make(script.path.parent().unwrap_or(Path::new("/")), 0o755)?;
                folder.replace(script.path.file_name().unwrap_or_default(), script.text.as_bytes(), 0o755, None)
            };
            put().map_err(failed)?;
        }
        Ok(())
    }

    /// True if nothing must be corrected.
    pub fn has_no_fault(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict != FindingLevel::Wrong)
    }
}

/// Script that calls a hook. If the program is missing, the copy in the state folder undoes the
/// capture.
fn script(program: &Path, config: &Path, state_dir: &Path, folder: &Path, hook: &str) -> Result<Script, InstallError> {
    let word = |path: &Path| {
        let text = path.to_str().map(str::to_owned).filter(|text| !text.chars().any(char::is_control));
        text.map(|text| quote::quote(&text)).ok_or_else(|| InstallError::Path(path.to_owned()))
    };
    let copies = word(&state_dir.join(origin::PROGRAM_FOLDER))?;
    let (program, config, state_dir) = (word(program)?, word(config)?, word(state_dir)?);
    let arguments = format!("hook {hook} --config {config} --state-dir {state_dir}");
    let command = format!("{program} {arguments}");
    let text = format!(
        "{SCRIPT_HEADER}for program in {program} {copies}/ibscope-*; do\n\t[ -x \"$program\" ] && exec \"$program\" {arguments}\ndone\nexit 0\n"
    );
    Ok(Script { path: folder.join(hook), text, command })
}

/// Options of `slurm.conf`: the value, and the file and line.
type SlurmOptions = BTreeMap<String, (String, String)>;

/// Reads a `slurm.conf` and the files that it includes.
fn read(path: &Path, options: &mut SlurmOptions, depth: usize) -> Result<(), InstallError> {
    let text = fs::read_to_string(path).map_err(|source| InstallError::File { path: path.to_owned(), source })?;
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some((word, rest)) = line.split_once(char::is_whitespace)
            && word.eq_ignore_ascii_case("include")
        {
            let inner = path.parent().unwrap_or(Path::new("/")).join(rest.trim());
            if depth < MAX_INCLUDE_DEPTH {
                read(&inner, options, depth + 1)?;
            }
        } else if let Some((option, value)) = line.split_once('=') {
            let option = option.trim().to_lowercase();
            if OPTIONS.contains(&option.as_str()) {
                let place = format!("{}: line {}", path.display(), index + 1);
                options.insert(option, (value.trim().trim_matches('"').to_owned(), place));
            }
        }
    }
    Ok(())
}

fn fine(text: String) -> Finding {
    Finding { verdict: FindingLevel::Fine, text }
}

fn to_do(text: String) -> Finding {
    Finding { verdict: FindingLevel::ToDo, text }
}

fn wrong(text: String) -> Finding {
    Finding { verdict: FindingLevel::Wrong, text }
}

fn check_script(script: &Script) -> Finding {
    let path = script.path.display();
    match fs::read_to_string(&script.path) {
        Ok(text) if text == script.text => match fs::metadata(&script.path) {
            Ok(metadata) if metadata.mode() & 0o022 != 0 => {
                wrong(format!("{path} can be changed by users other than its owner; run `chmod 755 {path}`"))
            }
            Ok(metadata) if metadata.mode() & 0o111 == 0 => {
                wrong(format!("{path} is not executable; run `chmod 755 {path}`"))
            }
            _ => fine(format!("{path} is up to date")),
        },
        Ok(text) if is_ours(&text) => {
            to_do(format!("{path} is for another ibscope program or configuration; --write replaces it"))
        }
        Ok(_) => wrong(format!(
            "{path} is the site's own script, which --write does not overwrite: let it run `{}` as well, or choose another folder with --scripts",
            script.command
        )),
        Err(_) => to_do(format!("{path} does not exist yet; --write creates it")),
    }
}

/// True if any version of `--write` wrote this script.
fn is_ours(text: &str) -> bool {
    text.starts_with(SCRIPT_HEADER)
}

fn check_option(option: &str, found: Option<&(String, String)>, script: &Path) -> Finding {
    match found {
        Some((value, place)) if Path::new(value) == script => fine(format!("{place}: {option} is ibscope's script")),
        Some((value, place)) => wrong(format!(
            "{place}: {option} is already {value}, and Slurm runs only one script: let that script run {} as well",
            script.display()
        )),
        None => to_do(format!(
            "{option} is not set; add the line above and restart slurmctld, because `scontrol reconfigure` does not apply hooks"
        )),
    }
}

/// Value from which Slurm applies no limit.
const NO_LIMIT_S: u32 = 65534;

fn check_timeout(deadline_s: u32, found: Option<&(String, String)>) -> Finding {
    let Some((value, place)) = found else {
        return fine(format!(
            "PrologEpilogTimeout is not set: Slurm waits until the hooks end, which takes {deadline_s} s at most"
        ));
    };
    match value.parse::<u32>() {
        Ok(0) | Err(_) => wrong(format!(
            "{place}: PrologEpilogTimeout={value} is not a valid time; set more than {deadline_s} seconds"
        )),
        Ok(seconds) if seconds >= NO_LIMIT_S || seconds > deadline_s => {
            fine(format!("{place}: PrologEpilogTimeout={seconds} is longer than run.deadline_s, {deadline_s} s"))
        }
        Ok(seconds) => wrong(format!(
            "{place}: PrologEpilogTimeout={seconds} ends hooks before run.deadline_s, {deadline_s} s; raise it, or lower run.deadline_s"
        )),
    }
}

/// Checks that only `user` can read a file that grants access to the nodes: the configuration or
/// the ssh key.
fn check_secret(path: &Path, what: &str, user: &str) -> Result<Finding, InstallError> {
    let place = path.display();
    let metadata = fs::metadata(path).map_err(|source| InstallError::File { path: path.to_owned(), source })?;
    if !path.is_absolute() {
        return Ok(wrong(format!("{place}: hooks run in another folder; give the absolute path of the {what}")));
    }
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o777;
        return Ok(wrong(format!("{place}: the {what} has mode {mode:04o}; run `chmod 600 {place}`")));
    }
    let uid = uid(user);
    Ok(match uid {
        Some(uid) if uid != 0 && metadata.uid() != uid => wrong(format!(
            "{place}: hooks run as {user} (SlurmUser), who cannot read the {what}; run `chown {user} {place}`"
        )),
        Some(0) if metadata.uid() != 0 => {
            wrong(format!("{place}: the {what} does not belong to root; run `chown root {place}`"))
        }
        Some(_) => fine(format!("{place}: only {user} can read the {what}")),
        None => no_user(user, path),
    })
}

/// Checks that `user`, as whom the hooks run, can write to a folder, and nobody else.
fn check_folder(what: &str, folder: &Path, user: &str) -> Finding {
    let place = folder.display();
    let Some(uid) = uid(user) else { return no_user(user, folder) };
    match user_of(folder, uid) {
        Ok(owner) if owner == uid => fine(format!("{place}: only {user} can write to the {what}")),
        Ok(_) => wrong(format!(
            "{place}: hooks run as {user} (SlurmUser), who cannot write to the {what}; run `chown {user} {place}`"
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            to_do(format!("the {what} {place} does not exist yet; run `install -d -m 0700 -o {user} {place}`"))
        }
        Err(error) => wrong(format!("{what}: {error}")),
    }
}

fn no_user(user: &str, path: &Path) -> Finding {
    wrong(format!(
        "{user} (SlurmUser) is not a user of this machine, so access to {} cannot be checked",
        path.display()
    ))
}

fn uid(user: &str) -> Option<u32> {
    if user == "root" {
        return Some(0);
    }
    let output = Command::new("/usr/bin/id").args(["-u", "--", user]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// Checks that the hooks can give captures to their owner.
fn check_owner(owner: Option<&Owner>, user: &str) -> Option<Finding> {
    let own = uid(user)?;
    owner.and_then(|owner| chown_fault(owner, own)).map(wrong)
}

/// Reason why hooks that run as user `own` cannot give captures to this owner. Only root can give
/// files to others.
pub(crate) fn chown_fault(owner: &Owner, own: u32) -> Option<String> {
    (own != 0 && uid(&owner.user) != Some(own)).then(|| {
        format!(
            "capture.owner is {owner}, but hooks run as user {own}, who cannot give files to others; let slurmctld run \
             as root (SlurmUser), or remove capture.owner"
        )
    })
}

/// Checks that no other user can change names on the path of a file that Slurm runs, and so make
/// Slurm run another file.
fn check_path(what: &str, file: &Path, user: &str) -> Option<Finding> {
    let folder = file.parent()?;
    let fault = user_of(folder, uid(user)?).err().filter(|error| error.kind() != io::ErrorKind::NotFound)?;
    Some(wrong(format!("folder of the {what}: {fault}")))
}

fn check_program(program: &Path, user: &str) -> Result<Finding, InstallError> {
    let place = program.display();
    let metadata = fs::metadata(program).map_err(|source| InstallError::File { path: program.to_owned(), source })?;
    Ok(if metadata.mode() & 0o022 != 0 {
        wrong(format!("{place} can be changed by users other than its owner; run `chmod go-w {place}`"))
    } else if metadata.uid() != 0 && Some(metadata.uid()) != uid(user) {
        wrong(format!(
            "{place} belongs to user {}, who could change the program that hooks run; run `chown root {place}`",
            metadata.uid()
        ))
    } else {
        fine(format!("only its owner can change {place}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::os::unix::fs::PermissionsExt as _;

    /// A folder with a configuration, a key and a `slurm.conf`.
    struct SlurmFolder(tempfile::TempDir);

    impl SlurmFolder {
        fn new(slurm: &str) -> Self {
            let site = Self(tempfile::tempdir().unwrap());
            let key = site.at("key");
            site.file("key", "secret", 0o600);
            let text = format!(
                "[ssh]\nkey = \"{}\"\nknown_hosts = \"/etc/known\"\n[mirror]\nbackend = \"none\"\n\
                 [capture]\nbackend = \"ibdump\"\ndirectory = \"/scratch\"\n[collect]\ndirectory = \"{home}/runs\"\n\
                 [run]\ndeadline_s = 20\nstate_dir = \"{home}/state\"\n",
                key.display(),
                home = site.0.path().display()
            );
            for folder in ["runs", "state"] {
                fs::create_dir(site.at(folder)).unwrap();
            }
            site.file("capture.toml", &text, 0o600);
            site.file("slurm.conf", slurm, 0o644);
            site.file("ibscope", "program", 0o755);
            site
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn file(&self, name: &str, text: &str, mode: u32) {
            fs::write(self.at(name), text).unwrap();
            fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).unwrap();
        }

        fn inspect(&self) -> Installation {
            let path = self.at("capture.toml");
            let config = Config::read(&path).unwrap();
            Installation::inspect(&path, &config, &self.at("slurm.conf"), &self.at("ibscope"), &self.at("scripts"))
                .unwrap()
        }

        fn wrong(&self) -> Vec<String> {
            let wrong = self.inspect().findings.into_iter().filter(|finding| finding.verdict == FindingLevel::Wrong);
            wrong.map(|finding| finding.text).collect()
        }

        /// The user that runs the tests is `SlurmUser`.
        fn user() -> String {
            let output = Command::new("id").arg("-un").output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        }
    }

    #[test]
    fn written_scripts_and_lines_pass_all_checks() {
        let site = SlurmFolder::new(&format!(
            "ClusterName=x\nSlurmUser={} # who\nPrologEpilogTimeout=21\n",
            SlurmFolder::user()
        ));
        let before = site.inspect();
        assert!(before.has_no_fault(), "{before:#?}");
        let to_do = |found: &Installation| {
            found.findings.iter().filter(|finding| finding.verdict == FindingLevel::ToDo).count()
        };
        assert_eq!(to_do(&before), 4, "two scripts, two lines");
        before.write().unwrap();
        let lines = before.lines.join("\n");
        site.file(
            "slurm.conf",
            &format!("SlurmUser={}\nprologepilogtimeout = 65534\n{lines}\n", SlurmFolder::user()),
            0o644,
        );
        let after = site.inspect();
        assert!(after.has_no_fault() && to_do(&after) == 0, "{after:#?}");
        // A shell runs the script. If the program is missing, the script succeeds.
        fs::remove_file(site.at("ibscope")).unwrap();
        assert!(Command::new(&before.scripts[0].path).env_clear().status().unwrap().success());
        site.file("ibscope", "#!/bin/sh\necho \"$@\"\nexit 3\n", 0o755);
        let output = Command::new(&before.scripts[1].path).env_clear().output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        let [config, state] = ["capture.toml", "state"].map(|name| site.at(name).display().to_string());
        let expected = format!("hook epilog --config {config} --state-dir {state}\n");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }

    #[test]
    fn faults_are_named_with_their_remedy() {
        let user = SlurmFolder::user();
        for (slurm, what) in [
            ("PrologEpilogTimeout=20\n", "before run.deadline_s, 20 s; raise it"),
            ("PrologEpilogTimeout=soon\n", "is not a valid time"),
            ("PROLOGSLURMCTLD=/site/prolog\n", "PrologSlurmctld is already /site/prolog"),
        ] {
            let site = SlurmFolder::new(&format!("SlurmUser={user}\n{slurm}"));
            let wrong = site.wrong();
            assert!(
                wrong.len() == 1 && wrong[0].contains(what) && wrong[0].contains("slurm.conf: line 2"),
                "{wrong:?}"
            );
        }
        let site = SlurmFolder::new(&format!("SlurmUser={user}\n"));
        site.file("capture.toml", &fs::read_to_string(site.at("capture.toml")).unwrap(), 0o644);
        site.file("key", "secret", 0o640);
        site.file("ibscope", "program", 0o777);
        let wrong = site.wrong();
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        for (text, remedy) in
            wrong.iter().zip(["has mode 0644; run `chmod 600", "has mode 0640; run `chmod 600", "chmod go-w"])
        {
            assert!(text.contains(remedy), "{text}");
        }
    }

    #[test]
    fn a_script_of_the_site_is_not_overwritten() {
        let site = SlurmFolder::new(&format!("SlurmUser={}\n", SlurmFolder::user()));
        fs::create_dir(site.at("scripts")).unwrap();
        site.file("scripts/prolog", "#!/bin/sh\nexec /site/prolog\n", 0o755);
        site.file("scripts/epilog", &format!("{SCRIPT_HEADER}exec /old/ibscope hook epilog\n"), 0o755);
        let found = site.inspect();
        found.write().unwrap();
        assert_eq!(fs::read_to_string(site.at("scripts/prolog")).unwrap(), "#!/bin/sh\nexec /site/prolog\n");
        assert_eq!(fs::read_to_string(site.at("scripts/epilog")).unwrap(), found.scripts[1].text);
        let wrong = site.wrong();
        let names_command =
            |wrong: &String| wrong.contains("--write does not overwrite") && wrong.contains(&found.scripts[0].command);
        assert!(wrong.len() == 1 && wrong.iter().all(names_command), "{wrong:?}");
    }

    #[test]
    fn folders_must_belong_to_the_user_that_hooks_run_as() {
        let site = SlurmFolder::new(&format!("SlurmUser={}\n", SlurmFolder::user()));
        fs::set_permissions(site.at("state"), fs::Permissions::from_mode(0o770)).unwrap();
        fs::remove_dir(site.at("runs")).unwrap();
        let wrong = site.wrong();
        assert!(
            wrong.len() == 1 && wrong[0].contains("has mode 0770") && wrong[0].contains("state folder"),
            "{wrong:?}"
        );
        let missing = format!("run `install -d -m 0700 -o {} {}`", SlurmFolder::user(), site.at("runs").display());
        assert!(site.inspect().findings.iter().any(|finding| finding.text.contains(&missing)), "{:?}", site.inspect());
        // If Slurm runs as another user, files of root do not belong to it.
        site.file("slurm.conf", "SlurmUser=nobody\n", 0o644);
        let wrong = site.wrong();
        assert!(wrong.iter().any(|wrong| wrong.contains("state")), "{wrong:?}");
    }

    /// Root writes the scripts and Slurm runs them, so nobody else may be able to replace them or
    /// the program.
    #[test]
    fn folders_where_others_could_replace_scripts_or_the_program_are_faults() {
        let site = SlurmFolder::new(&format!("SlurmUser={}\n", SlurmFolder::user()));
        fs::create_dir(site.at("scripts")).unwrap();
        site.file("secret", "secret", 0o600);
        std::os::unix::fs::symlink(site.at("secret"), site.at("scripts/prolog.new")).unwrap();
        site.inspect().write().unwrap();
        assert_eq!(fs::read_to_string(site.at("secret")).unwrap(), "secret");
        assert!(site.inspect().has_no_fault(), "{:#?}", site.inspect());
        let open = fs::Permissions::from_mode(0o1777);
        fs::remove_file(site.at("scripts/epilog")).unwrap();
        fs::set_permissions(site.at("scripts"), open.clone()).unwrap();
        let found = site.inspect();
        assert!(found.write().unwrap_err().to_string().contains("has mode 1777"));
        assert!(!site.at("scripts/epilog").exists());
        let wrong = site.wrong();
        assert!(
            wrong.len() == 1 && wrong[0].contains("folder of the scripts") && wrong[0].contains("1777"),
            "{wrong:?}"
        );
        fs::set_permissions(site.at("scripts"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(site.0.path(), open).unwrap();
        let wrong = site.wrong();
        assert!(wrong.iter().any(|wrong| wrong.contains("folder of the program")), "{wrong:?}");
    }

    #[test]
    fn only_root_can_give_captures_to_an_owner() {
        let owner = |name: &str| Owner::try_from(name.to_owned()).unwrap();
        assert_eq!(chown_fault(&owner("nobody:nogroup"), 0), None);
        assert_eq!(chown_fault(&owner("root"), 0), None);
        let refused = chown_fault(&owner("root:adm"), 64_030).unwrap();
        assert!(refused.contains("root:adm") && refused.contains("user 64030"), "{refused}");
        assert_eq!(chown_fault(&owner("nobody"), uid("nobody").unwrap()), None);
    }

    #[test]
    fn included_files_are_read() {
        let site = SlurmFolder::new("include more.conf\n");
        site.file("more.conf", &format!("SlurmUser={}\nPrologEpilogTimeout=3\n", SlurmFolder::user()), 0o644);
        let wrong = site.wrong();
        assert!(wrong.len() == 1 && wrong[0].contains("more.conf: line 2"), "{wrong:?}");
        site.file("slurm.conf", "Include nowhere.conf\n", 0o644);
        let path = site.at("capture.toml");
        let config = Config::read(&path).unwrap();
        let error = Installation::inspect(&path, &config, &site.at("slurm.conf"), &site.at("ibscope"), Path::new("/x"));
        assert!(error.unwrap_err().to_string().contains("nowhere.conf"));
    }

    #[test]
    fn a_path_with_a_quote_stays_one_word_and_one_with_a_line_end_is_refused() {
        let of = |program: &str| {
            script(Path::new(program), Path::new("/c; rm"), Path::new("/s t"), Path::new("/x"), "prolog")
        };
        let text = of("/it's/ibscope").unwrap().text;
        assert!(text.contains(r"for program in '/it'\''s/ibscope' '/s t/program'/ibscope-*; do"), "{text}");
        assert!(text.contains(r#"exec "$program" hook prolog --config '/c; rm' --state-dir '/s t'"#), "{text}");
        assert!(of("/a\nb").is_err());
    }
}
