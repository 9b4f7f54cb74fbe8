//! The folder in which the commands of a document run: the files of a clone that they name, the
//! program first in the path, and stand-ins for programs that need hardware.

use super::parse::{DocumentPart, DocumentStep, matches_output};
use crate::tools::{sample, samples_folder};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

pub(super) struct DocumentFolder {
    folder: tempfile::TempDir,
}

impl DocumentFolder {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let (root, clone) = (folder.path(), Path::new(env!("CARGO_MANIFEST_DIR")));
        symlink(samples_folder(), root.join("samples")).expect("link");
        fs::copy(clone.join("Makefile"), root.join("Makefile")).expect("copy");
        for name in ["bin", "home", "target/release"] {
            fs::create_dir_all(root.join(name)).expect("folder");
        }
        let program = env!("CARGO_BIN_EXE_ibscope");
        symlink(program, root.join("target/release/ibscope")).expect("link");
        // `watch` runs until it is interrupted: here by Ctrl-C after five seconds. A pipe ends by
        // itself.
        let watched = "timeout --foreground --signal=INT --preserve-status 5";
        let shim = format!(
            "#!/bin/sh\ncase $1,$2 in watch,--help | watch,-) ;; watch,*) exec {watched} {program} \"$@\" ;; esac\nexec {program} \"$@\"\n"
        );
        // ibdump writes its capture to standard output with `-w -`: here a recorded sink.
        fs::write(
            root.join("bin/sink.pcap"),
            zstd::decode_all(fs::File::open(sample("openib-mixed-4x1")).expect("sample")).expect("zstd"),
        )
        .expect("capture");
        let ibdump = format!("#!/bin/sh\nexec cat {}\n", root.join("bin/sink.pcap").display());
        for (name, text) in [("ibscope", shim), ("ibdump", ibdump)] {
            let place = root.join("bin").join(name);
            fs::write(&place, text).expect("script");
            fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("mode");
        }
        Self { folder }
    }

    /// Runs a script; returns its output, including standard error.
    fn run(&self, script: &str) -> Result<String, String> {
        let root = self.folder.path();
        let path = format!("{}:{}", root.join("bin").display(), std::env::var("PATH").expect("PATH"));
        let mut command = Command::new("bash");
        command.args(["-e", "-u", "-o", "pipefail", "-c", &format!("exec 2>&1\n{script}")]).current_dir(root);
        command.env("PATH", path).env("HOME", root.join("home")).env("TERM", "dumb").env("LANG", "C.UTF-8");
        // The program is built already, so `make` must not build.
        command.env("CARGO", "true").stdin(Stdio::null());
        for variable in ["NO_COLOR", "COLUMNS", "MAKEFLAGS"] {
            command.env_remove(variable);
        }
        let output = command.output().expect("bash");
        let text = String::from_utf8(output.stdout).expect("text");
        if output.status.success() { Ok(text) } else { Err(format!("{}\n{text}", output.status)) }
    }

    /// Runs a part; the error describes the difference.
    pub(super) fn part(
        &self,
        part: &DocumentPart,
        printed: &mut Vec<(std::ops::Range<usize>, String)>,
    ) -> Result<(), String> {
        match part {
            DocumentPart::Script { line, text } | DocumentPart::Before { line, text } => {
                self.run(text).map(drop).map_err(|error| format!("line {line}:\n{text}\n{error}"))
            }
            DocumentPart::Session { line, steps } => steps.iter().try_for_each(|step| self.step(*line, step, printed)),
            DocumentPart::NotRun { .. } => Ok(()),
        }
    }

    fn step(
        &self,
        line: usize,
        step: &DocumentStep,
        all: &mut Vec<(std::ops::Range<usize>, String)>,
    ) -> Result<(), String> {
        let printed = self.run(&step.command).map_err(|error| format!("line {line}: {}\n{error}", step.command))?;
        let lines: Vec<&str> = printed.lines().collect();
        if matches_output(&step.printed, &lines) {
            return Ok(());
        }
        all.push((step.at.clone(), printed.clone()));
        Err(format!("line {line}: {} prints\n{printed}and not\n{}", step.command, step.printed.join("\n")))
    }
}
