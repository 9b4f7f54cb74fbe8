//! Killed prologs, sinks that do not answer, and concurrent hooks.

use crate::cases::{LONGEST, NODELIST, hook, lab, starts};
use crate::container::until;
use crate::jobs::{clean, expected};
use crate::lab::{HookLab, NODES};
use crate::site::SiteConfig;
use crate::switch::SwitchFault as Switch;
use std::time::Instant;

/// Prologs are killed with SIGKILL at every call of the switches, and at moments in between. Either
/// all processes are killed, and the epilog restores the fabric; or only the hook, as Slurm does,
/// and its worker undoes the capture.
pub(crate) fn a_prolog_that_is_killed_anywhere_is_undone() {
    let lab = lab(SiteConfig::default());
    let mut job = 300;
    for call in 1..=4 {
        lab.switch_fault(Some(Switch::Kill(call)));
        let log_text = killed(&lab, job);
        assert!(!log_text.contains("capturing"), "{log_text}");
        assert!(lab.mirrored().len() >= call.div_ceil(2), "call {call}: it was killed after the change");
        lab.switch_fault(None);
        hook(&lab, "epilog", job);
        clean(&lab);
        job += 1;
    }
    // Duration of a whole prolog on this machine; prologs are killed at fractions of it.
    let start = Instant::now();
    starts(&lab, job);
    let whole = start.elapsed();
    hook(&lab, "epilog", job);
    for moment in 1..14 {
        job += 1;
        let mut prolog = begun(&lab, job);
        std::thread::sleep(whole * moment / 14);
        if moment % 2 == 0 {
            lab.container.run(["pkill", "-KILL", "-x", "ibscope"]);
            prolog.wait().expect("a hook");
            hook(&lab, "epilog", job);
        } else if is_hook_killed(&lab) {
            prolog.wait().expect("a hook");
            until(LONGEST, "end of its work", || {
                (!lab.container.processes().values().any(|line| line.contains("ibscope hook"))).then_some(())
            });
        } else {
            prolog.wait().expect("a hook");
            hook(&lab, "epilog", job);
        }
        clean(&lab);
    }
    // A prolog is killed and no epilog follows: `undo --all-stale` undoes the run.
    lab.switch_fault(Some(Switch::Kill(2)));
    killed(&lab, job);
    lab.switch_fault(None);
    // The hook has been waited for. Its worker was killed too, and holds its lock until it is gone.
    until(LONGEST, "run that was aborted", || lab.capture(&["list"]).stdout.contains("aborted").then_some(()));
    let undone = lab.capture(&["undo", "--all-stale"]);
    assert_eq!(undone.code, 0, "{}{}", undone.stdout, undone.stderr);
    clean(&lab);
}

/// Kills the hook, but not its worker. False if the hook has ended.
fn is_hook_killed(lab: &HookLab) -> bool {
    let is_hook = |line: &String| line.contains("ibscope hook prolog") && !line.contains("--work");
    let processes = lab.container.processes();
    let Some((pid, _)) = processes.iter().find(|(_, line)| is_hook(line)) else { return false };
    lab.container.run(["kill", "-KILL", &pid.to_string()]).status.success()
}

/// Runs a prolog that the switch kills.
pub(crate) fn killed(lab: &HookLab, job: u32) -> String {
    let before = lab.log_text().len();
    let status = begun(lab, job).wait().expect("a hook");
    assert!(!status.success(), "{status}");
    lab.log_text()[before..].to_owned()
}

/// Starts a prolog.
fn begun(lab: &HookLab, job: u32) -> std::process::Child {
    let path = lab.path().join("capture.toml").display().to_string();
    let program = lab.path().join("bin/ibscope").display().to_string();
    let (reuid, regid) = (format!("--reuid={}", lab.user), format!("--regid={}", lab.user));
    let words = ["setpriv", &reuid, &regid, "--clear-groups", &program, "hook", "prolog", "--config", &path];
    let words = words.map(str::to_owned);
    let words = crate::site::environment("prolog", job, NODELIST).into_iter().chain(words);
    lab.container.command(std::path::Path::new("/"), words).spawn().expect("a hook")
}

/// A sink that does not answer, or whose link is down, is skipped with a warning, and the other sink on
/// its leaf takes its place.
pub(crate) fn a_sink_that_does_not_answer_is_replaced() {
    let mut lab = lab(SiteConfig::default());
    lab.stop_ssh_server("sink1a");
    starts(&lab, 600);
    assert_eq!(lab.mirrored(), expected(&lab, &NODES[..4], ["sink1b", "sink2a"], 600), "{}", lab.log_text());
    assert!(lab.log_text().contains("warning: a sink is skipped: sink1a: no connection"), "{}", lab.log_text());
    hook(&lab, "epilog", 600);
    clean(&lab);
    lab.start_ssh_server("sink1a");
    lab.link("sink1a", false);
    until(LONGEST, "a link that is down", || lab.tool("sink1a", &["ibstat"]).contains("State: Down").then_some(()));
    starts(&lab, 601);
    assert_eq!(lab.mirrored(), expected(&lab, &NODES[..4], ["sink1b", "sink2a"], 601), "{}", lab.log_text());
    let warning = "warning: a sink is skipped: sink1a: no InfiniBand port is active";
    assert!(lab.log_text().contains(warning), "{}", lab.log_text());
    hook(&lab, "epilog", 601);
    clean(&lab);
}

/// Two jobs that begin and end at the same time on the same leaf have a sink each.
pub(crate) fn two_jobs_at_once_on_one_leaf_have_a_sink_each() {
    let lab = lab(SiteConfig::default());
    let both = |which| {
        std::thread::scope(|scope| {
            let one = scope.spawn(|| lab.hook(which, 400, "n[001-002]").code);
            let two = scope.spawn(|| lab.hook(which, 401, "n[005-006]").code);
            assert_eq!((one.join().expect("one"), two.join().expect("two")), (0, 0), "{}", lab.log_text());
        });
    };
    both("prolog");
    let mirrored = lab.mirrored();
    assert_eq!(mirrored.len(), 4, "{}", lab.log_text());
    let sinks = |job: u32| {
        let mut sinks: Vec<u8> =
            mirrored.values().filter(|mirror| mirror.job == job).map(|mirror| mirror.sink).collect();
        sinks.dedup();
        sinks
    };
    let (one, two) = (sinks(400), sinks(401));
    assert!(one.len() == 1 && two.len() == 1 && one != two, "{mirrored:?}");
    both("epilog");
    clean(&lab);
}
