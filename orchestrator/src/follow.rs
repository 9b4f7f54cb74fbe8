//! After the captures: `ibscope analyze` on each sink, or as a batch job.

use crate::config::{After, Config};
use crate::quote;
use crate::remote::{RemoteError, Runner};
use crate::text::printable;
use crate::undo::Undone;
use std::path::Path;
use std::time::Duration;

/// Starting something takes no longer.
const ANSWER: Duration = Duration::from_secs(10);

/// Runs its arguments away from the connection.
const APART: &str = r#": ibscope-analyze; umask 077; exec setsid -f "$@" >/dev/null 2>&1 </dev/null"#;

/// Why an analysis was not started.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// A program could not be run.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// It ran and failed.
    #[error("{program} ended with status {status}: {said}")]
    Program {
        /// The program.
        program: String,
        /// Its exit status.
        status: i32,
        /// What it said.
        said: String,
    },
}

/// Starts what the configuration asks for, and says what that was.
pub fn follow(config: &Config, undone: &Undone, runner: &dyn Runner) -> Result<Option<String>, FollowError> {
    match (config.analyze.after, &undone.manifest) {
        (After::None, _) | (_, None) => Ok(None),
        (After::Sink, Some(_)) => on_sinks(config, undone, runner),
        (After::Sbatch, Some(manifest)) => in_batch(config, undone, manifest, runner),
    }
}

fn on_sinks(config: &Config, undone: &Undone, runner: &dyn Runner) -> Result<Option<String>, FollowError> {
    let mut nodes = Vec::new();
    for capture in undone.captures.iter().filter(|capture| capture.fetched.is_some()) {
        let profile = capture.file.with_extension("ibp");
        let words = ["/bin/sh", "-c", APART, "sh"].map(str::to_owned).into_iter().chain(analyze(
            config,
            &[&capture.file],
            None,
            &profile,
        ));
        succeed(runner, Some(&capture.node), &words.collect::<Vec<_>>())?;
        nodes.push(capture.node.as_str());
    }
    Ok((!nodes.is_empty()).then(|| format!("analysis started on {}", nodes.join(", "))))
}

fn in_batch(
    config: &Config,
    undone: &Undone,
    manifest: &Path,
    runner: &dyn Runner,
) -> Result<Option<String>, FollowError> {
    let folder = manifest.parent().unwrap_or(Path::new("/"));
    let files: Vec<&Path> =
        undone.captures.iter().filter_map(|capture| Some(capture.fetched.as_ref()?.file.as_path())).collect();
    if files.is_empty() {
        return Ok(None);
    }
    let words = analyze(config, &files, Some(manifest), &folder.join("job.ibp"));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut argv = vec![
        text(&config.tools.sbatch),
        "--parsable".to_owned(),
        format!("--output={}", text(&folder.join("analyze.log"))),
    ];
    // The folder is its owner's: who writes there as root may be led elsewhere by a link.
    if let Some(owner) = &config.capture.owner {
        argv.push(format!("--uid={}", owner.user));
        argv.extend(owner.group.iter().map(|group| format!("--gid={group}")));
    }
    argv.extend(config.analyze.sbatch.iter().cloned());
    // No script in the folder: its owner could write another one before it is read.
    argv.push(format!("--wrap=exec {}", quote::join(words.iter().map(String::as_str))));
    let said = succeed(runner, None, &argv)?;
    Ok(Some(format!("analysis submitted as job {said}")))
}

fn analyze(config: &Config, files: &[&Path], manifest: Option<&Path>, profile: &Path) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut words = vec![text(&config.tools.ibscope), "analyze".to_owned()];
    words.extend(files.iter().map(|file| text(file)));
    words.extend(manifest.into_iter().flat_map(|manifest| ["--manifest".to_owned(), text(manifest)]));
    words.extend(["-o".to_owned(), text(profile)]);
    words
}

fn succeed(runner: &dyn Runner, node: Option<&str>, argv: &[String]) -> Result<String, FollowError> {
    let output = runner.run(node, argv, ANSWER)?;
    if output.is_success() {
        return Ok(printable(&output.stdout));
    }
    Err(FollowError::Program { program: argv[0].clone(), status: output.status, said: printable(&output.stderr) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Fetched;
    use crate::remote::Output;
    use crate::undo::Capture;
    use std::fs;
    use std::sync::Mutex;
    use std::time::Duration;

    /// Notes what it is asked to run.
    #[derive(Default)]
    struct Noted(Mutex<Vec<(Option<String>, Vec<String>)>>);

    impl Runner for Noted {
        fn run(&self, node: Option<&str>, argv: &[String], _: Duration) -> Result<Output, RemoteError> {
            self.0.lock().unwrap().push((node.map(str::to_owned), argv.to_vec()));
            Ok(Output { status: 0, stdout: b"77\n".to_vec(), stderr: Vec::new() })
        }
    }

    fn site(after: &str) -> Config {
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/capture.toml")).unwrap();
        let text =
            text.replace("after = \"sbatch\"", after).replace("sbatch = [\"--partition=post\", \"--time=60\"]", "");
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, text).unwrap();
        Config::read(file.path()).unwrap()
    }

    fn undone(folder: &Path) -> Undone {
        let file = folder.join("it's a sink.pcap");
        let fetched = Some(Fetched { file, bytes: 1, sha256: String::new() });
        let capture = Capture { node: "sink1".to_owned(), file: "/var/tmp/c.pcap".into(), ended: None, fetched };
        let manifest = Some(folder.join("manifest.json"));
        Undone { job_id: 7, is_restored: true, left: Vec::new(), captures: vec![capture], manifest }
    }

    #[test]
    fn sinks_and_batch_jobs_get_the_captures_and_no_shell_takes_their_names_apart() {
        let folder = tempfile::tempdir().unwrap();
        let (noted, undone) = (Noted::default(), undone(folder.path()));
        let said = follow(&site("after = \"sink\""), &undone, &noted).unwrap();
        assert_eq!(said.as_deref(), Some("analysis started on sink1"));
        let said = follow(&site("after = \"sbatch\""), &undone, &noted).unwrap();
        assert_eq!(said.as_deref(), Some("analysis submitted as job 77"));
        assert_eq!(follow(&site("after = \"none\""), &undone, &noted).unwrap(), None);
        let calls = noted.0.into_inner().unwrap();
        assert_eq!(calls.len(), 2);
        let (node, argv) = &calls[0];
        let ends = ["/usr/local/bin/ibscope", "analyze", "/var/tmp/c.pcap", "-o", "/var/tmp/c.ibp"];
        assert!(node.as_deref() == Some("sink1") && argv.ends_with(&ends.map(str::to_owned)), "{argv:?}");
        let at = |name: &str| format!("'{}'", folder.path().join(name).display());
        let capture = at("it's a sink.pcap").replace("it's", r"it'\''s");
        let line = format!(
            "exec '/usr/local/bin/ibscope' 'analyze' {capture} '--manifest' {} '-o' {}",
            at("manifest.json"),
            at("job.ibp")
        );
        assert_eq!(calls[1].1.last(), Some(&format!("--wrap={line}")));
    }
}
