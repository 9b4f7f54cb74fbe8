//! After the captures: `ibscope analyze` on each sink, or as a batch job.

use crate::config::{After, Config};
use crate::remote::quote;
use crate::remote::{RemoteError, Runner, printable};
use crate::undo::Undone;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
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
    /// The script of the batch job.
    #[error("{}: {source}", path.display())]
    Script {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
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
    let path = folder.join("analyze.sh");
    let line = quote::join(words.iter().map(String::as_str));
    let failed = |source| FollowError::Script { path: path.clone(), source };
    let mut script =
        fs::File::options().write(true).create(true).truncate(true).mode(0o700).open(&path).map_err(failed)?;
    script.write_all(format!("#!/bin/sh\nexec {line}\n").as_bytes()).map_err(failed)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut argv = vec![
        text(&config.tools.sbatch),
        "--parsable".to_owned(),
        format!("--output={}", text(&folder.join("analyze.log"))),
    ];
    argv.extend(config.analyze.sbatch.iter().cloned());
    argv.push(text(&path));
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
