//! Hooks of the nodes, `Prolog` and `Epilog` of slurmd, in real Slurm.

use crate::container::until;
use crate::ibdump::IbdumpFault;
use crate::jobs::{SAMPLE, clean, install};
use crate::lab::HookLab;
use crate::site::SiteConfig;
use crate::slurm::Hooks;
use crate::tools;
use std::time::Duration;

/// Hooks of nodes mirror no ports, because they could choose the same sink: the job runs, the log says
/// so, and no node is drained. Without mirrors they capture, and only the hook of the first node acts.
/// With `fail_open = false`, Slurm drains the node of a prolog that fails, and holds the job.
pub(crate) fn hooks_of_nodes_mirror_no_ports() {
    let lab = HookLab::start();
    lab.traffic(&tools::sample(SAMPLE));
    let slurm = format!("slurm_conf = \"{}/slurm/slurm.conf\"\nfail_open = false", lab.path().display());
    let config = lab.configure(SiteConfig { run: &slurm, ..SiteConfig::PLAIN });
    let lines = install(&lab, config.to_str().expect("path")).replace("Slurmctld=", "=");
    lab.slurm(Hooks { lines: &lines, timeout_s: 70 });
    let submit = || lab.submit(&["-N2", "--nodelist=n[001-002]", "--comment=ibscope=on"], "echo ran");

    let refused = submit();
    assert_eq!(lab.ended(refused).0, "COMPLETED", "{}", lab.log_text());
    assert!(
        lab.log_text().contains(&format!("job {refused}: error: not captured: as Prolog of the nodes")),
        "{}",
        lab.log_text()
    );
    assert_eq!((lab.switch_calls().len(), lab.drained().trim()), (0, ""));
    clean(&lab);

    lab.configure(SiteConfig { backend: "none", run: &slurm, ..SiteConfig::PLAIN });
    let captured = submit();
    assert_eq!(lab.ended(captured).0, "COMPLETED", "{}", lab.log_text());
    until(Duration::from_secs(40), "the epilog", || lab.log_text().contains("undone; manifest").then_some(()));
    let log_text = lab.log_text();
    assert_eq!(log_text.matches(&format!("job {captured}: capturing: 2 captures")).count(), 1, "{log_text}");
    assert!(
        log_text.contains(&format!("job {captured}: nothing is done here: n001, the job's first node")),
        "{log_text}"
    );
    clean(&lab);

    lab.ibdump_fault("n001", Some(IbdumpFault::Start));
    let held = submit();
    until(Duration::from_secs(40), "a drained node and a held job", || {
        let job = lab.slurm_tool(&["scontrol", "show", "job", &held.to_string()]);
        (lab.drained().contains("n001 Prolog error") && job.contains("Reason=launch_failed_requeued_held"))
            .then_some(())
    });
    assert_eq!(lab.printed(held), "");
    until(Duration::from_secs(40), "epilogs", || (lab.capture(&["list"]).stdout == "no runs\n").then_some(()));
    clean(&lab);
    lab.slurm_tool(&["scancel", &held.to_string()]);
}
