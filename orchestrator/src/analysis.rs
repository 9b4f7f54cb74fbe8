//! Starts `ibscope analyze` after the captures have ended: on each sink, or as a Slurm batch job.
//!
//! The input is the report of an undone run; the output is a line for the log. The caller waits
//! only for the start, never for the analysis.

use crate::config::{AnalysisLocation, CaptureMode, Config, NOT_CAPTURED};
use crate::log::{Level, Log};
use crate::quote;
use crate::remote::{RemoteError, Runner};
use crate::text::printable;
use crate::undo::UndoReport;
use std::path::Path;
use std::time::Duration;

/// Time limit for starting an analysis.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Shell script that starts its arguments detached from the ssh connection.
const DETACHED_SCRIPT: &str = r#": ibscope-analyze; umask 077; exec setsid -f "$@" >/dev/null 2>&1 </dev/null"#;

/// Shell script that runs its arguments, so that others cannot read the files that they create.
const PRIVATE_SCRIPT: &str = r#": ibscope-merge; umask 077; exec "$@""#;

/// Reason why an analysis was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartAnalysisError {
    /// A program could not be run.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// A program ran and failed.
    #[error("{program} ended with status {status}: {printed}")]
    Program {
        /// Program that failed.
        program: String,
        /// Exit status of the program.
        status: i32,
        /// Standard error of the program.
        printed: String,
    },
}

/// Starts the analysis that the configuration requests. Returns a line for the log, or `None` if
/// there is nothing to analyze.
pub fn start_analysis(
    config: &Config,
    undone: &UndoReport,
    runner: &dyn Runner,
) -> Result<Option<String>, StartAnalysisError> {
    let config = &config.for_user(undone.user_id);
    // A run that is not closed is undone again, and analyzed then.
    if !undone.left.is_empty() {
        return Ok(None);
    }
    if let (CaptureMode::Profile, Some(manifest)) = (config.capture.mode, &undone.manifest) {
        return merge_profiles(config, undone, manifest, runner);
    }
    match (config.analyze.after, &undone.manifest) {
        (AnalysisLocation::None, _) | (_, None) => Ok(None),
        (AnalysisLocation::Sink, Some(_)) => on_sinks(config, undone, runner),
        (AnalysisLocation::Sbatch, Some(manifest)) => in_batch(config, undone, manifest, runner),
    }
}

/// Starts the analysis that the configuration requests, and logs the result.
pub(crate) fn start_and_log(config: &Config, undone: &UndoReport, runner: &dyn Runner, log: &Log) {
    match start_analysis(config, undone, runner) {
        Ok(None) => {}
        Ok(Some(text)) => log.write(Level::Info, &text),
        Err(error) => log.write(Level::Error, &format!("the captures are not analyzed: {error}")),
    }
}

fn on_sinks(config: &Config, undone: &UndoReport, runner: &dyn Runner) -> Result<Option<String>, StartAnalysisError> {
    let mut nodes = Vec::new();
    for capture in undone.captures.iter().filter(|capture| capture.fetched.is_some()) {
        let profile = capture.file.with_extension("ibp");
        let words = ["/bin/sh", "-c", DETACHED_SCRIPT, "sh"].map(str::to_owned).into_iter().chain(analyze(
            config,
            &[&capture.file],
            None,
            &profile,
        ));
        require_success(runner, Some(&capture.node), &words.collect::<Vec<_>>())?;
        nodes.push(capture.node.as_str());
    }
    Ok((!nodes.is_empty()).then(|| format!("analysis started on {}", nodes.join(", "))))
}

/// Merges the partial profiles of the sinks, as the owner of the run: the folder belongs to the owner,
/// who could put a link there.
fn merge_profiles(
    config: &Config,
    undone: &UndoReport,
    manifest: &Path,
    runner: &dyn Runner,
) -> Result<Option<String>, StartAnalysisError> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let profiles: Vec<String> =
        undone.captures.iter().filter_map(|capture| Some(text(&capture.fetched.as_ref()?.file))).collect();
    if profiles.is_empty() {
        return Ok(None);
    }
    let merged = text(&manifest.with_file_name("job.ibp"));
    let mut argv = ["/bin/sh", "-c", PRIVATE_SCRIPT, "sh"].map(str::to_owned).to_vec();
    if let Some(owner) = &config.capture.owner {
        let group = match &owner.group {
            Some(group) => group.clone(),
            None => require_success(runner, None, &["/usr/bin/id", "-g", "--", &owner.user].map(str::to_owned))?,
        };
        argv.extend(["/usr/bin/setpriv".to_owned(), format!("--reuid={}", owner.user)]);
        argv.extend([format!("--regid={}", group.trim()), "--clear-groups".to_owned(), "--".to_owned()]);
    }
    argv.extend([text(&config.tools.ibscope), "merge".to_owned()]);
    argv.extend(profiles);
    argv.extend(["--manifest".to_owned(), text(manifest), "-o".to_owned(), merged.clone()]);
    require_success(runner, None, &argv)?;
    Ok(Some(format!("profiles merged into {merged}")))
}

fn in_batch(
    config: &Config,
    undone: &UndoReport,
    manifest: &Path,
    runner: &dyn Runner,
) -> Result<Option<String>, StartAnalysisError> {
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
    // The folder belongs to its owner, who could put a link there: root must not write in it.
    if let Some(owner) = &config.capture.owner {
        argv.push(format!("--uid={}", owner.user));
        argv.extend(owner.group.iter().map(|group| format!("--gid={group}")));
    }
    argv.extend(config.analyze.sbatch.iter().cloned());
    // A site that captures all jobs must not capture this one.
    argv.push(format!("--comment={NOT_CAPTURED}"));
    // The call is passed inline: the owner of the folder could replace a script file before it is
    // read.
    argv.push(format!("--wrap=exec {}", quote::join(words.iter().map(String::as_str))));
    let printed = require_success(runner, None, &argv)?;
    Ok(Some(format!("analysis submitted as job {printed}")))
}

fn analyze(config: &Config, files: &[&Path], manifest: Option<&Path>, profile: &Path) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut words = vec![text(&config.tools.ibscope), "analyze".to_owned()];
    words.extend(files.iter().map(|file| text(file)));
    words.extend(manifest.into_iter().flat_map(|manifest| ["--manifest".to_owned(), text(manifest)]));
    words.extend(["-o".to_owned(), text(profile)]);
    words
}

fn require_success(runner: &dyn Runner, node: Option<&str>, argv: &[String]) -> Result<String, StartAnalysisError> {
    let output = runner.run(node, argv, ANSWER_TIMEOUT)?;
    if output.is_success() {
        return Ok(printable(&output.stdout));
    }
    Err(StartAnalysisError::Program {
        program: argv[0].clone(),
        status: output.status,
        printed: printable(&output.stderr),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::FetchedFile;
    use crate::remote::CommandOutput;
    use crate::undo::StoppedCapture;
    use std::fs;
    use std::sync::Mutex;
    use std::time::Duration;

    /// Records the commands instead of running them.
    #[derive(Default)]
    struct RecordingRunner(Mutex<Vec<(Option<String>, Vec<String>)>>);

    impl Runner for RecordingRunner {
        fn run(&self, node: Option<&str>, argv: &[String], _: Duration) -> Result<CommandOutput, RemoteError> {
            self.0.lock().unwrap().push((node.map(str::to_owned), argv.to_vec()));
            Ok(CommandOutput { status: 0, stdout: b"77\n".to_vec(), stderr: Vec::new() })
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

    fn undone(folder: &Path) -> UndoReport {
        let file = folder.join("it's a sink.pcap");
        let fetched = Some(FetchedFile { file, bytes: 1, sha256: String::new() });
        let capture = StoppedCapture { node: "sink1".to_owned(), file: "/var/tmp/c.pcap".into(), ended: None, fetched };
        let manifest = Some(folder.join("manifest.json"));
        UndoReport {
            job_id: 7,
            user_id: Some(1000),
            is_restored: true,
            left: Vec::new(),
            unverified_ports: 0,
            captures: vec![capture],
            manifest,
            is_fetching: false,
        }
    }

    #[test]
    fn sinks_and_batch_jobs_get_the_captures_and_no_shell_splits_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let (recorded, undone) = (RecordingRunner::default(), undone(folder.path()));
        let printed = start_analysis(&site("after = \"sink\""), &undone, &recorded).unwrap();
        assert_eq!(printed.as_deref(), Some("analysis started on sink1"));
        let printed = start_analysis(&site("after = \"sbatch\""), &undone, &recorded).unwrap();
        assert_eq!(printed.as_deref(), Some("analysis submitted as job 77"));
        assert_eq!(start_analysis(&site("after = \"none\""), &undone, &recorded).unwrap(), None);
        let calls = recorded.0.into_inner().unwrap();
        assert_eq!(calls.len(), 2);
        let (node, argv) = &calls[0];
        let ends = ["/usr/bin/ibscope", "analyze", "/var/tmp/c.pcap", "-o", "/var/tmp/c.ibp"];
        assert!(node.as_deref() == Some("sink1") && argv.ends_with(&ends.map(str::to_owned)), "{argv:?}");
        let at = |name: &str| format!("'{}'", folder.path().join(name).display());
        let capture = at("it's a sink.pcap").replace("it's", r"it'\''s");
        let line = format!(
            "exec '/usr/bin/ibscope' 'analyze' {capture} '--manifest' {} '-o' {}",
            at("manifest.json"),
            at("job.ibp")
        );
        assert_eq!(calls[1].1.last(), Some(&format!("--wrap={line}")));
    }
}
