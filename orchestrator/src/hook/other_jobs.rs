//! Asks Slurm which other jobs run on the nodes of a job. A mirror copies all packets of a port, so a
//! capture on shared nodes has packets of these jobs too, which may belong to other users.

use crate::config::Config;
use crate::job::SlurmJob;
use crate::remote::{CommandOutput, Runner};
use crate::text::plural;
use std::collections::BTreeSet;
use std::time::Duration;

/// Time limit for Slurm's response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Nodes per `squeue` call: Linux limits one argument to 128 KiB.
const NODES_PER_QUERY: usize = 512;
/// States of jobs whose processes may send packets while this job runs. A completing job may have left
/// these nodes.
const STATES: &str = "--states=CONFIGURING,RUNNING,SUSPENDED";

/// A warning if other jobs run on the nodes of a job; `None` if there are none, or if Slurm does not
/// answer.
pub(super) fn warning(config: &Config, job: &SlurmJob, runner: &dyn Runner) -> Option<String> {
    let mut others = BTreeSet::new();
    for nodes in job.nodes.chunks(NODES_PER_QUERY) {
        others.append(&mut jobs_on(config, nodes, runner)?);
    }
    others.remove(&job.id);
    (!others.is_empty()).then(|| {
        let verb = if others.len() == 1 { "runs" } else { "run" };
        format!(
            "{} {verb} on the nodes of this job: a capture of their ports contains the packets of these jobs too, which \
             may belong to other users; submit the job with --exclusive, or see \"Nodes that jobs share\" in privacy.md",
            plural(others.len(), "other job")
        )
    })
}

/// Ids of the jobs that run on some nodes; `None` if Slurm does not answer.
fn jobs_on(config: &Config, nodes: &[String], runner: &dyn Runner) -> Option<BTreeSet<u32>> {
    let (squeue, nodes) = (config.tools.squeue.to_string_lossy().into_owned(), nodes.join(","));
    // `%A` is the id by which hooks know a job; `%i` would show the task of an array by the id of the array.
    let argv = [squeue, "--noheader".to_owned(), "--format=%A".to_owned(), STATES.to_owned(), "--nodelist".to_owned()];
    let argv: Vec<String> = argv.into_iter().chain([nodes]).collect();
    let output = runner.run(None, &argv, ANSWER_TIMEOUT).ok().filter(CommandOutput::is_success)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    Some(printed.lines().filter_map(|line| line.trim().parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::RemoteError;
    use std::path::Path;
    use std::sync::Mutex;

    /// A squeue that prints this text, and the lists of nodes for which it was asked.
    struct SqueueOfNodes {
        status: i32,
        printed: &'static str,
        asked: Mutex<Vec<String>>,
    }

    impl Runner for SqueueOfNodes {
        fn run(&self, node: Option<&str>, argv: &[String], _: Duration) -> Result<CommandOutput, RemoteError> {
            let (nodes, words) = argv.split_last().unwrap();
            assert_eq!(node, None);
            assert_eq!(
                words,
                [
                    "/opt/slurm/bin/squeue",
                    "--noheader",
                    "--format=%A",
                    "--states=CONFIGURING,RUNNING,SUSPENDED",
                    "--nodelist"
                ]
            );
            self.asked.lock().unwrap().push(nodes.clone());
            Ok(CommandOutput { status: self.status, stdout: self.printed.as_bytes().to_vec(), stderr: Vec::new() })
        }
    }

    fn warning_of(status: i32, printed: &'static str, nodes: &str) -> (Option<String>, Vec<String>) {
        let text = "[ssh]\nkey = \"/k\"\nknown_hosts = \"/h\"\n[tools]\nsbatch = \"/opt/slurm/bin/sbatch\"\n[mirror]\n\
                    backend = \"none\"\n[capture]\nbackend = \"ibdump\"\ndirectory = \"/c\"\n[collect]\ndirectory = \"/r\"\n";
        let config = Config::parse(text, Path::new("x")).unwrap();
        let squeue = SqueueOfNodes { status, printed, asked: Mutex::default() };
        let job = SlurmJob::from_nodelist(7, nodes).unwrap();
        let warned = warning(&config, &job, &squeue);
        (warned, squeue.asked.into_inner().unwrap())
    }

    #[test]
    fn other_jobs_on_the_nodes_are_counted() {
        let (warned, asked) = warning_of(0, "7\n6\n", "n[001-003]");
        let expected =
            "1 other job runs on the nodes of this job: a capture of their ports contains the packets of these";
        assert!(warned.as_ref().is_some_and(|text| text.starts_with(expected)), "{warned:?}");
        assert_eq!(asked, ["n001,n002,n003"]);
        let (warned, _) = warning_of(0, "  6\n7\n70\n6\n", "n1");
        assert!(warned.as_ref().is_some_and(|text| text.starts_with("2 other jobs run on")), "{warned:?}");
        for (status, printed) in [(0, "7\n"), (0, ""), (1, "6\n")] {
            assert_eq!(warning_of(status, printed, "n1").0, None, "{status} {printed:?}");
        }
    }

    /// The longest names of a large job fit into arguments, and a job on nodes of several `squeue` calls
    /// counts once.
    #[test]
    fn the_nodes_of_a_large_job_need_several_calls() {
        let (warned, asked) = warning_of(0, "7\n6\n", "n[0001-1200]");
        assert!(warned.is_some_and(|text| text.starts_with("1 other job runs on")));
        assert_eq!(asked.iter().map(|nodes| nodes.split(',').count()).collect::<Vec<_>>(), [512, 512, 176]);
    }
}
