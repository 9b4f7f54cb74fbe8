//! Installing the hooks: the scripts that Slurm is to run, the lines of `slurm.conf`, and whether what is there fits.

use crate::config::{Config, Owner};
use crate::folder::{Folder, user_of};
use crate::quote;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What was looked at, and how it is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// Whether something must be done before the hooks can work.
    pub verdict: Verdict,
    /// What was found, and what to do where that is needed.
    pub text: String,
}

/// How a [`Finding`] is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// To be done when the hooks are installed.
    ToDo,
    /// Must be put right.
    Wrong,
}

/// How the hooks are installed at a site.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Installation {
    /// Scripts for Slurm, which passes no arguments to its hooks.
    pub scripts: Vec<Script>,
    /// Lines for `slurm.conf`.
    pub lines: Vec<String>,
    /// What was looked at.
    pub findings: Vec<Finding>,
}

/// A script that Slurm is to run.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Script {
    /// Where it is to be.
    pub path: PathBuf,
    /// What it holds.
    pub text: String,
    /// The line that calls ibscope, for a script of the site's.
    pub command: String,
}

/// How the scripts begin.
const OURS: &str =
    "#!/bin/sh\n# Slurm passes no arguments to its hooks. Where the program is missing, jobs run all the same.\n";

/// Why it cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A file cannot be read or written.
    #[error("{}: {source}; check the path and who may use it", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A path that no script can hold.
    #[error("{}: a path with a line end or no UTF-8; choose another one", .0.display())]
    Path(PathBuf),
}

/// The options of `slurm.conf` that matter here, in small letters as Slurm does not care.
const OPTIONS: [&str; 4] = ["prologslurmctld", "epilogslurmctld", "prologepilogtimeout", "slurmuser"];

/// How deep files may include each other.
const DEEPEST: usize = 8;

impl Installation {
    /// Looks at what is there; changes nothing. `program` is ibscope itself, `folder` the one for the scripts.
    pub fn inspect(
        path: &Path,
        config: &Config,
        slurm: &Path,
        program: &Path,
        folder: &Path,
    ) -> Result<Self, InstallError> {
        let mut options = BTreeMap::new();
        read(slurm, &mut options, 0)?;
        let scripts = vec![script(program, path, folder, "prolog")?, script(program, path, folder, "epilog")?];
        let lines = ["PrologSlurmctld", "EpilogSlurmctld"].iter().zip(&scripts);
        let lines = lines.map(|(option, script)| format!("{option}={}", script.path.display())).collect();
        let mut findings = Vec::new();
        for (option, script) in ["PrologSlurmctld", "EpilogSlurmctld"].iter().zip(&scripts) {
            findings.push(on_script(script));
            findings.push(on_option(option, options.get(&option.to_lowercase()), &script.path));
        }
        findings.push(on_timeout(config.run.deadline_s, options.get("prologepilogtimeout")));
        let user = options.get("slurmuser").map_or("root", |(value, _)| value.as_str());
        findings.push(on_secret(path, "configuration", user)?);
        findings.push(on_secret(&config.ssh.key, "key of ssh", user)?);
        let folders = [
            ("state folder", Some(config.run.state_dir.as_path())),
            ("folder for manifests and captures", Some(config.collect.directory.as_path())),
            ("folder for hostfiles", config.sinks.hostfile_directory.as_deref()),
            ("folder of the log", config.run.log.as_deref().and_then(Path::parent)),
        ];
        for (what, folder) in folders {
            findings.extend(folder.map(|folder| on_folder(what, folder, user)));
        }
        findings.extend(on_owner(config.capture.owner.as_ref(), user));
        findings.push(on_program(program, user)?);
        findings.extend(on_way("program", program, user));
        findings.extend(on_way("scripts", &scripts[0].path, user));
        Ok(Self { scripts, lines, findings })
    }

    /// Writes the scripts, each whole or not at all. One that is not ours is left.
    pub fn write(&self) -> Result<(), InstallError> {
        let is_free = |script: &&Script| match fs::read(&script.path) {
            Ok(bytes) => is_ours(&String::from_utf8_lossy(&bytes)),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        for script in self.scripts.iter().filter(is_free) {
            let failed = |source| InstallError::File { path: script.path.clone(), source };
            let put = || {
                let folder = Folder::make(script.path.parent().unwrap_or(Path::new("/")), 0o755)?;
                folder.put(script.path.file_name().unwrap_or_default(), script.text.as_bytes(), 0o755, None)
            };
            put().map_err(failed)?;
        }
        Ok(())
    }

    /// True where nothing must be put right.
    pub fn is_right(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict != Verdict::Wrong)
    }
}

fn script(program: &Path, config: &Path, folder: &Path, hook: &str) -> Result<Script, InstallError> {
    let word = |path: &Path| {
        let text = path.to_str().map(str::to_owned).filter(|text| !text.chars().any(char::is_control));
        text.map(|text| quote::quote(&text)).ok_or_else(|| InstallError::Path(path.to_owned()))
    };
    let (program, config) = (word(program)?, word(config)?);
    let command = format!("{program} hook {hook} --config {config}");
    let text = format!("{OURS}[ -x {program} ] || exit 0\nexec {command}\n");
    Ok(Script { path: folder.join(hook), text, command })
}

/// Options with the file and line where each stands.
type Options = BTreeMap<String, (String, String)>;

/// Reads a `slurm.conf`, and what it includes.
fn read(path: &Path, options: &mut Options, depth: usize) -> Result<(), InstallError> {
    let text = fs::read_to_string(path).map_err(|source| InstallError::File { path: path.to_owned(), source })?;
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some((word, rest)) = line.split_once(char::is_whitespace)
            && word.eq_ignore_ascii_case("include")
        {
            let inner = path.parent().unwrap_or(Path::new("/")).join(rest.trim());
            if depth < DEEPEST {
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
    Finding { verdict: Verdict::Fine, text }
}

fn to_do(text: String) -> Finding {
    Finding { verdict: Verdict::ToDo, text }
}

fn wrong(text: String) -> Finding {
    Finding { verdict: Verdict::Wrong, text }
}

fn on_script(script: &Script) -> Finding {
    let path = script.path.display();
    match fs::read_to_string(&script.path) {
        Ok(text) if text == script.text => match fs::metadata(&script.path) {
            Ok(metadata) if metadata.mode() & 0o022 != 0 => {
                wrong(format!("{path} can be changed by others than its owner; run `chmod 755 {path}`"))
            }
            Ok(metadata) if metadata.mode() & 0o111 == 0 => {
                wrong(format!("{path} cannot be run; run `chmod 755 {path}`"))
            }
            _ => fine(format!("{path} is there")),
        },
        Ok(text) if is_ours(&text) => {
            to_do(format!("{path} is of another ibscope or configuration; --write replaces it"))
        }
        Ok(_) => wrong(format!(
            "{path} is the site's own, and --write leaves it: let it run `{}` as well, or give --scripts another folder",
            script.command
        )),
        Err(_) => to_do(format!("{path} is not there yet; --write creates it")),
    }
}

/// Written by `--write`, of whatever version.
fn is_ours(text: &str) -> bool {
    text.starts_with(OURS)
}

fn on_option(option: &str, found: Option<&(String, String)>, script: &Path) -> Finding {
    match found {
        Some((value, place)) if Path::new(value) == script => fine(format!("{place}: {option} is our script")),
        Some((value, place)) => wrong(format!(
            "{place}: {option} is {value} already, and Slurm runs one only: let that script run {} as well",
            script.display()
        )),
        None => to_do(format!(
            "{option} is not set; add the line above and restart slurmctld: `scontrol reconfigure` does not take hooks over"
        )),
    }
}

/// What Slurm takes for no limit.
const NO_LIMIT_S: u32 = 65534;

fn on_timeout(deadline_s: u32, found: Option<&(String, String)>) -> Finding {
    let Some((value, place)) = found else {
        return fine(format!(
            "PrologEpilogTimeout is not set: Slurm waits as long as it takes, which is {deadline_s} s at most"
        ));
    };
    match value.parse::<u32>() {
        Ok(0) | Err(_) => {
            wrong(format!("{place}: PrologEpilogTimeout={value} is no time; give seconds above {deadline_s}"))
        }
        Ok(seconds) if seconds >= NO_LIMIT_S || seconds > deadline_s => {
            fine(format!("{place}: PrologEpilogTimeout={seconds} is above our deadline of {deadline_s} s"))
        }
        Ok(seconds) => wrong(format!(
            "{place}: PrologEpilogTimeout={seconds} ends hooks before our deadline of {deadline_s} s; raise it, or lower run.deadline_s"
        )),
    }
}

/// The configuration says how to log in to every node, and the key lets one in.
fn on_secret(path: &Path, what: &str, user: &str) -> Result<Finding, InstallError> {
    let place = path.display();
    let metadata = fs::metadata(path).map_err(|source| InstallError::File { path: path.to_owned(), source })?;
    if !path.is_absolute() {
        return Ok(wrong(format!("{place}: hooks run in another folder; give the {what} by its absolute path")));
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
            wrong(format!("{place}: the {what} belongs to another user than root; run `chown root {place}`"))
        }
        Some(_) => fine(format!("{place}: nobody but {user} can read the {what}")),
        None => no_user(user, path),
    })
}

/// Hooks write there as `user`, and nobody else may.
fn on_folder(what: &str, folder: &Path, user: &str) -> Finding {
    let place = folder.display();
    let Some(uid) = uid(user) else { return no_user(user, folder) };
    match user_of(folder, uid) {
        Ok(owner) if owner == uid => fine(format!("{place}: nobody but {user} can write to the {what}")),
        Ok(_) => wrong(format!(
            "{place}: hooks run as {user} (SlurmUser), who cannot write to the {what}; run `chown {user} {place}`"
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            to_do(format!("the {what} {place} is not there yet; run `install -d -m 0700 -o {user} {place}`"))
        }
        Err(error) => wrong(format!("{what}: {error}")),
    }
}

fn no_user(user: &str, path: &Path) -> Finding {
    wrong(format!("{user} (SlurmUser) is no user of this machine: who may use {} is unknown", path.display()))
}

fn uid(user: &str) -> Option<u32> {
    if user == "root" {
        return Some(0);
    }
    let output = Command::new("/usr/bin/id").args(["-u", "--", user]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// Only root gives files to somebody else.
fn on_owner(owner: Option<&Owner>, user: &str) -> Option<Finding> {
    let own = uid(user)?;
    owner.and_then(|owner| cannot_give(owner, own)).map(wrong)
}

/// Why hooks that run as `own` cannot give captures to this owner.
pub(crate) fn cannot_give(owner: &Owner, own: u32) -> Option<String> {
    (own != 0 && uid(&owner.user) != Some(own)).then(|| {
        format!(
            "capture.owner is {owner}, and hooks run as user {own}, who cannot give files to others; let slurmctld run \
             as root (SlurmUser), or leave capture.owner out"
        )
    })
}

/// Whoever may change names on the way to what Slurm runs has it run something else.
fn on_way(what: &str, file: &Path, user: &str) -> Option<Finding> {
    let folder = file.parent()?;
    let fault = user_of(folder, uid(user)?).err().filter(|error| error.kind() != io::ErrorKind::NotFound)?;
    Some(wrong(format!("folder of the {what}: {fault}")))
}

fn on_program(program: &Path, user: &str) -> Result<Finding, InstallError> {
    let place = program.display();
    let metadata = fs::metadata(program).map_err(|source| InstallError::File { path: program.to_owned(), source })?;
    Ok(if metadata.mode() & 0o022 != 0 {
        wrong(format!("{place} can be changed by others than its owner; run `chmod go-w {place}`"))
    } else if metadata.uid() != 0 && Some(metadata.uid()) != uid(user) {
        wrong(format!(
            "{place} belongs to user {}, who could change what hooks run; run `chown root {place}`",
            metadata.uid()
        ))
    } else {
        fine(format!("{place} can be changed by its owner only"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::os::unix::fs::PermissionsExt as _;

    /// A folder with a configuration, a key and a `slurm.conf`.
    struct Site(tempfile::TempDir);

    impl Site {
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
            let wrong = self.inspect().findings.into_iter().filter(|finding| finding.verdict == Verdict::Wrong);
            wrong.map(|finding| finding.text).collect()
        }

        /// Whoever runs the tests is Slurm's user.
        fn user() -> String {
            let output = Command::new("id").arg("-un").output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        }
    }

    #[test]
    fn what_is_written_is_what_was_asked_for() {
        let site = Site::new(&format!("ClusterName=x\nSlurmUser={} # who\nPrologEpilogTimeout=21\n", Site::user()));
        let before = site.inspect();
        assert!(before.is_right(), "{before:#?}");
        let to_do =
            |found: &Installation| found.findings.iter().filter(|finding| finding.verdict == Verdict::ToDo).count();
        assert_eq!(to_do(&before), 4, "two scripts, two lines");
        before.write().unwrap();
        let lines = before.lines.join("\n");
        site.file("slurm.conf", &format!("SlurmUser={}\nprologepilogtimeout = 65534\n{lines}\n", Site::user()), 0o644);
        let after = site.inspect();
        assert!(after.is_right() && to_do(&after) == 0, "{after:#?}");
        // A shell takes the script as it is meant: with the program away it is no obstacle.
        fs::remove_file(site.at("ibscope")).unwrap();
        assert!(Command::new(&before.scripts[0].path).env_clear().status().unwrap().success());
        site.file("ibscope", "#!/bin/sh\necho \"$@\"\nexit 3\n", 0o755);
        let output = Command::new(&before.scripts[1].path).env_clear().output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        let expected = format!("hook epilog --config {}\n", site.at("capture.toml").display());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }

    #[test]
    fn faults_are_named_with_their_remedy() {
        let user = Site::user();
        for (slurm, what) in [
            ("PrologEpilogTimeout=20\n", "before our deadline of 20 s; raise it"),
            ("PrologEpilogTimeout=soon\n", "is no time"),
            ("PROLOGSLURMCTLD=/site/prolog\n", "PrologSlurmctld is /site/prolog already"),
        ] {
            let site = Site::new(&format!("SlurmUser={user}\n{slurm}"));
            let wrong = site.wrong();
            assert!(
                wrong.len() == 1 && wrong[0].contains(what) && wrong[0].contains("slurm.conf: line 2"),
                "{wrong:?}"
            );
        }
        let site = Site::new(&format!("SlurmUser={user}\n"));
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
    fn a_script_of_the_site_is_left() {
        let site = Site::new(&format!("SlurmUser={}\n", Site::user()));
        fs::create_dir(site.at("scripts")).unwrap();
        site.file("scripts/prolog", "#!/bin/sh\nexec /site/prolog\n", 0o755);
        site.file("scripts/epilog", &format!("{OURS}exec /old/ibscope hook epilog\n"), 0o755);
        let found = site.inspect();
        found.write().unwrap();
        assert_eq!(fs::read_to_string(site.at("scripts/prolog")).unwrap(), "#!/bin/sh\nexec /site/prolog\n");
        assert_eq!(fs::read_to_string(site.at("scripts/epilog")).unwrap(), found.scripts[1].text);
        let wrong = site.wrong();
        let is_told = |wrong: &String| wrong.contains("--write leaves it") && wrong.contains(&found.scripts[0].command);
        assert!(wrong.len() == 1 && wrong.iter().all(is_told), "{wrong:?}");
    }

    #[test]
    fn folders_are_those_of_the_user_that_hooks_run_as() {
        let site = Site::new(&format!("SlurmUser={}\n", Site::user()));
        fs::set_permissions(site.at("state"), fs::Permissions::from_mode(0o770)).unwrap();
        fs::remove_dir(site.at("runs")).unwrap();
        let wrong = site.wrong();
        assert!(
            wrong.len() == 1 && wrong[0].contains("has mode 0770") && wrong[0].contains("state folder"),
            "{wrong:?}"
        );
        let missing = format!("run `install -d -m 0700 -o {} {}`", Site::user(), site.at("runs").display());
        assert!(site.inspect().findings.iter().any(|finding| finding.text.contains(&missing)), "{:?}", site.inspect());
        // Slurm as a user of its own: nothing of root's is its.
        site.file("slurm.conf", "SlurmUser=nobody\n", 0o644);
        let wrong = site.wrong();
        assert!(wrong.iter().any(|wrong| wrong.contains("state")), "{wrong:?}");
    }

    /// Root writes the scripts and Slurm runs them, so nobody else may replace them or the program.
    #[test]
    fn scripts_and_the_program_are_where_nobody_else_can_replace_them() {
        let site = Site::new(&format!("SlurmUser={}\n", Site::user()));
        fs::create_dir(site.at("scripts")).unwrap();
        site.file("secret", "secret", 0o600);
        std::os::unix::fs::symlink(site.at("secret"), site.at("scripts/prolog.new")).unwrap();
        site.inspect().write().unwrap();
        assert_eq!(fs::read_to_string(site.at("secret")).unwrap(), "secret");
        assert!(site.inspect().is_right(), "{:#?}", site.inspect());
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
    fn only_root_gives_captures_to_an_owner() {
        let owner = |name: &str| Owner::try_from(name.to_owned()).unwrap();
        assert_eq!(cannot_give(&owner("nobody:nogroup"), 0), None);
        assert_eq!(cannot_give(&owner("root"), 0), None);
        let refused = cannot_give(&owner("root:adm"), 64_030).unwrap();
        assert!(refused.contains("root:adm") && refused.contains("user 64030"), "{refused}");
        assert_eq!(cannot_give(&owner("nobody"), uid("nobody").unwrap()), None);
    }

    #[test]
    fn included_files_are_read() {
        let site = Site::new("include more.conf\n");
        site.file("more.conf", &format!("SlurmUser={}\nPrologEpilogTimeout=3\n", Site::user()), 0o644);
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
        let text = script(Path::new("/it's/ibscope"), Path::new("/c; rm"), Path::new("/x"), "prolog").unwrap().text;
        assert!(text.contains(r"exec '/it'\''s/ibscope' hook prolog --config '/c; rm'"), "{text}");
        assert!(script(Path::new("/a\nb"), Path::new("/c"), Path::new("/x"), "prolog").is_err());
    }
}
