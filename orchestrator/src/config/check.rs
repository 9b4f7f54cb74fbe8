//! Checks that involve several keys: which keys require each other, and which exclude each other.

use super::fault::ConfigFault;
use super::{
    AnalysisLocation, CaptureBackend, CaptureMode, Config, Ibdump, MirrorBackend, Mstreg, RunLocation, Tcpdump,
};
use crate::name;

/// Returns the first fault.
pub(super) fn check(config: &Config) -> Result<(), ConfigFault> {
    run_locations(config)?;
    mirror(config)?;
    capture(config)?;
    analyze(config)
}

fn config_fault<T>(key: &'static [&'static str], what: impl Into<String>) -> Result<T, ConfigFault> {
    Err(ConfigFault { key, what: what.into() })
}

fn run_locations(config: &Config) -> Result<(), ConfigFault> {
    if config.fabric.run_on == RunLocation::Sink {
        return config_fault(
            &["fabric", "run_on"],
            "ibnetdiscover runs before sinks are chosen; expected `here`, `first` or the name of a node",
        );
    }
    if config.mirror.run_on == RunLocation::First {
        return config_fault(
            &["mirror", "run_on"],
            "mirrors are removed after the job's nodes are released; expected `here`, `sink` or the name of a node",
        );
    }
    for (place, key) in
        [(&config.fabric.run_on, &["fabric", "run_on"] as &[_]), (&config.mirror.run_on, &["mirror", "run_on"])]
    {
        if let RunLocation::Node(node) = place
            && let Err(error) = name::node(node)
        {
            return config_fault(key, error.to_string());
        }
    }
    Ok(())
}

fn mirror(config: &Config) -> Result<(), ConfigFault> {
    let mirror = &config.mirror;
    let has_sinks = config.sinks.from_job || !config.sinks.nodes.is_empty();
    match mirror.backend {
        MirrorBackend::None if has_sinks => {
            return config_fault(
                &["sinks"],
                "sinks receive nothing with mirror.backend = \"none\", because every node captures at its own HCA; remove the section, or \
                 choose another backend",
            );
        }
        MirrorBackend::None => {}
        _ if !has_sinks => {
            return config_fault(
                &["mirror", "backend"],
                "mirroring needs a sink to send the packets to; set sinks.nodes = [\"...\"] or sinks.from_job = true",
            );
        }
        MirrorBackend::Command if mirror.command.is_none() => {
            return config_fault(
                &["mirror", "backend"],
                "the backend `command` needs its commands; add [mirror.command] with on = [...] and off = [...]",
            );
        }
        MirrorBackend::Command | MirrorBackend::Mstreg => {}
    }
    if mirror.backend != MirrorBackend::Mstreg && mirror.mstreg != Mstreg::default() {
        return config_fault(
            &["mirror", "mstreg"],
            "these options are not used; set mirror.backend = \"mstreg\" or remove them",
        );
    }
    let Some(command) = &mirror.command else { return Ok(()) };
    if mirror.backend != MirrorBackend::Command {
        return config_fault(
            &["mirror", "command"],
            "these commands are not used; set mirror.backend = \"command\" or remove them",
        );
    }
    let expects = command.check_on.is_some() || command.check_off.is_some();
    if command.check.is_some() != expects {
        return config_fault(
            &["mirror", "command"],
            "check and its expected output require each other; set check = [...] with check_on = \"...\", check_off = \"...\" or both",
        );
    }
    Ok(())
}

fn capture(config: &Config) -> Result<(), ConfigFault> {
    let ibdump = &config.capture.ibdump;
    if ibdump.writer_thread_bytes.is_some() && ibdump.memory_bytes.is_some() {
        return config_fault(
            &["capture", "ibdump"],
            "ibdump takes writer_thread_bytes or memory_bytes, not both; remove one",
        );
    }
    if config.capture.backend == CaptureBackend::Ibdump && config.capture.tcpdump != Tcpdump::default() {
        return config_fault(
            &["capture", "tcpdump"],
            "these options are not used; set capture.backend = \"tcpdump\" or remove them",
        );
    }
    if config.capture.backend == CaptureBackend::Tcpdump && *ibdump != Ibdump::default() {
        return config_fault(
            &["capture", "ibdump"],
            "these options are not used; set capture.backend = \"ibdump\" or remove them",
        );
    }
    if config.capture.mode == CaptureMode::Profile {
        if !config.collect.fetch {
            return config_fault(
                &["capture", "mode"],
                "the profiles of the sinks are merged in the folder of the run; set collect.fetch = true",
            );
        }
        if config.analyze.after != AnalysisLocation::None {
            return config_fault(
                &["analyze", "after"],
                "with capture.mode = \"profile\" packets are analyzed while they are captured; remove this key",
            );
        }
    }
    if config.capture.ring_files.is_some() {
        if config.capture.backend != CaptureBackend::Tcpdump || config.capture.mode != CaptureMode::Packets {
            return config_fault(
                &["capture", "ring_files"],
                "only tcpdump writes into a ring of files; set capture.backend = \"tcpdump\" and capture.mode = \"packets\", or remove this key",
            );
        }
        if config.capture.ring_file_megabytes().is_none_or(|megabytes| megabytes == 0) {
            return config_fault(
                &["capture", "ring_files"],
                "the files of the ring have capture.max_bytes together, and each at least 1 000 000; set capture.max_bytes accordingly",
            );
        }
    }
    let room = config.capture.needed_bytes();
    if config.capture.disk_limit_bytes.is_some_and(|limit| room.is_none_or(|room| room > limit)) {
        return config_fault(
            &["capture", "disk_limit_bytes"],
            "one capture alone could exceed it; set capture.max_bytes to at most this number, or to half of it with capture.ring_files",
        );
    }
    if config.collect.delete_fetched && !config.collect.fetch {
        return config_fault(
            &["collect", "delete_fetched"],
            "captures are not fetched, so none would be deleted; set collect.fetch = true or remove delete_fetched",
        );
    }
    Ok(())
}

fn analyze(config: &Config) -> Result<(), ConfigFault> {
    if config.analyze.after == AnalysisLocation::Sbatch && !config.collect.fetch {
        return config_fault(
            &["analyze", "after"],
            "a batch job needs the captures in one folder; set collect.fetch = true and collect.directory on a shared file system",
        );
    }
    if config.analyze.after == AnalysisLocation::Sink && config.collect.delete_fetched {
        return config_fault(
            &["collect", "delete_fetched"],
            "the captures would be deleted on the sinks before they are analyzed there; remove delete_fetched, or set analyze.after = \"sbatch\"",
        );
    }
    if config.analyze.after == AnalysisLocation::Sink && config.ssh.helper.is_some() {
        return config_fault(
            &["analyze", "after"],
            "the helper on the sinks (ssh.helper) starts no analysis of a stored capture; set analyze.after = \"sbatch\", or capture.mode = \"profile\"",
        );
    }
    if config.analyze.after != AnalysisLocation::Sbatch && !config.analyze.sbatch.is_empty() {
        return config_fault(
            &["analyze", "sbatch"],
            "these arguments are not used; set analyze.after = \"sbatch\" or remove them",
        );
    }
    Ok(())
}
