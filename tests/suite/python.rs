//! Python programs that tests run, with their packages in a virtual environment.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's interpreter, for which Debian has the packages, or any other.
fn python() -> &'static str {
    if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" }
}

/// The interpreter of a virtual environment with the packages of a requirements file, created in
/// the target folder on first use.
pub(crate) fn venv(requirements: &Path) -> PathBuf {
    let text = std::fs::read_to_string(requirements).expect("requirements");
    let digest = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python-{digest:016x}"));
    std::fs::create_dir_all(&folder).expect("folder");
    // Tests are separate processes, and several may create the environment.
    let lock = std::fs::File::create(folder.join("lock")).expect("lock");
    lock.lock().expect("lock");
    let interpreter = folder.join("venv/bin/python");
    let done = folder.join("done");
    if !done.exists() {
        run(
            Command::new(python()).args(["-m", "venv", "--clear"]).arg(folder.join("venv")),
            "make deps installs python3-venv",
        );
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        run(Command::new(&interpreter).args(install).arg(requirements), "it takes a package index");
        std::fs::write(done, "").expect("done");
    }
    interpreter
}

/// Runs a command to its end and returns its output.
pub(crate) fn run(command: &mut Command, advice: &str) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; {advice}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stderr}\n{advice}", output.status);
    String::from_utf8(output.stdout).expect("text")
}
