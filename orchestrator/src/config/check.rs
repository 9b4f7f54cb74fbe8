//! What no key says alone: which keys need each other, and which exclude each other.

use super::wrong::Wrong;
use super::{After, CaptureBackend, Config, Ibdump, MirrorBackend, Mstreg, Place, Tcpdump};
use crate::name;

/// The first thing that is wrong.
pub(super) fn check(config: &Config) -> Result<(), Wrong> {
    places(config)?;
    mirror(config)?;
    capture(config)?;
    analyze(config)
}

fn wrong<T>(key: &'static [&'static str], what: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { key, what: what.into() })
}

fn places(config: &Config) -> Result<(), Wrong> {
    if config.fabric.run_on == Place::Sink {
        return wrong(
            &["fabric", "run_on"],
            "ibnetdiscover runs before there are sinks; expected here, first or the name of a node",
        );
    }
    if config.mirror.run_on == Place::First {
        return wrong(
            &["mirror", "run_on"],
            "mirrors outlive the job's first node; expected here, sink or the name of a node",
        );
    }
    for (place, key) in
        [(&config.fabric.run_on, &["fabric", "run_on"] as &[_]), (&config.mirror.run_on, &["mirror", "run_on"])]
    {
        if let Place::Node(node) = place
            && let Err(error) = name::node(node)
        {
            return wrong(key, error.to_string());
        }
    }
    Ok(())
}

fn mirror(config: &Config) -> Result<(), Wrong> {
    let mirror = &config.mirror;
    let has_sinks = config.sinks.from_job || !config.sinks.nodes.is_empty();
    match mirror.backend {
        MirrorBackend::None if has_sinks => {
            return wrong(
                &["sinks"],
                "sinks receive nothing with mirror.backend = \"none\", where every node captures at its own HCA; take the section out, or \
                 choose another backend",
            );
        }
        MirrorBackend::None => {}
        _ if !has_sinks => {
            return wrong(
                &["mirror", "backend"],
                "mirroring needs somewhere to send copies; set sinks.nodes = [\"...\"] or sinks.from_job = true",
            );
        }
        MirrorBackend::Command if mirror.command.is_none() => {
            return wrong(
                &["mirror", "backend"],
                "the backend `command` needs the commands; add [mirror.command] with on = [...] and off = [...]",
            );
        }
        MirrorBackend::Command | MirrorBackend::Mstreg => {}
    }
    if mirror.backend != MirrorBackend::Mstreg && mirror.mstreg != Mstreg::default() {
        return wrong(
            &["mirror", "mstreg"],
            "these options are not used; set mirror.backend = \"mstreg\" or take them out",
        );
    }
    let Some(command) = &mirror.command else { return Ok(()) };
    if mirror.backend != MirrorBackend::Command {
        return wrong(
            &["mirror", "command"],
            "these commands are not used; set mirror.backend = \"command\" or take them out",
        );
    }
    let expects = command.check_on.is_some() || command.check_off.is_some();
    if command.check.is_some() != expects {
        return wrong(
            &["mirror", "command"],
            "check and what it must say belong together; give check = [...] with check_on = \"...\", check_off = \"...\" or both",
        );
    }
    Ok(())
}

fn capture(config: &Config) -> Result<(), Wrong> {
    let ibdump = &config.capture.ibdump;
    if ibdump.writer_thread_bytes.is_some() && ibdump.memory_bytes.is_some() {
        return wrong(
            &["capture", "ibdump"],
            "ibdump takes writer_thread_bytes or memory_bytes, not both; take one out",
        );
    }
    if config.capture.backend == CaptureBackend::Ibdump && config.capture.tcpdump != Tcpdump::default() {
        return wrong(
            &["capture", "tcpdump"],
            "these options are not used; set capture.backend = \"tcpdump\" or take them out",
        );
    }
    if config.capture.backend == CaptureBackend::Tcpdump && *ibdump != Ibdump::default() {
        return wrong(
            &["capture", "ibdump"],
            "these options are not used; set capture.backend = \"ibdump\" or take them out",
        );
    }
    if config.collect.delete_fetched && !config.collect.fetch {
        return wrong(
            &["collect", "delete_fetched"],
            "nothing is fetched, so nothing would be deleted; set collect.fetch = true",
        );
    }
    Ok(())
}

fn analyze(config: &Config) -> Result<(), Wrong> {
    if config.analyze.after == After::Sbatch && !config.collect.fetch {
        return wrong(
            &["analyze", "after"],
            "a batch job needs the captures in one place; set collect.fetch = true and collect.directory on a shared file system",
        );
    }
    if config.analyze.after == After::Sink && config.collect.delete_fetched {
        return wrong(
            &["collect", "delete_fetched"],
            "the captures would be deleted on the sinks before they are analysed there; take it out, or set analyze.after = \"sbatch\"",
        );
    }
    if config.analyze.after != After::Sbatch && !config.analyze.sbatch.is_empty() {
        return wrong(
            &["analyze", "sbatch"],
            "these arguments are not used; set analyze.after = \"sbatch\" or take them out",
        );
    }
    Ok(())
}
