//! The job, as the hooks' environments tell it. The environments were recorded from Slurm 22.05.8.

use ibscope_orchestrator::job::{Hook, Job};

const HOOKS: [(&str, Hook); 4] = [
    (include_str!("../fixtures/hooks/prologctld.txt"), Hook::PrologSlurmctld),
    (include_str!("../fixtures/hooks/epilogctld.txt"), Hook::EpilogSlurmctld),
    (include_str!("../fixtures/hooks/prolog.txt"), Hook::PrologSlurmd),
    (include_str!("../fixtures/hooks/epilog.txt"), Hook::EpilogSlurmd),
];

fn variables(text: &str) -> Vec<(String, String)> {
    let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().filter(|line| !line.starts_with('#')).filter_map(pair).collect()
}

fn with(name: &str, value: &str) -> Result<Job, String> {
    let mut variables = variables(HOOKS[0].0);
    variables.retain(|(known, _)| known != name && !(name == "SLURM_JOB_ID" && known == "SLURM_JOBID"));
    variables.push((name.to_owned(), value.to_owned()));
    Job::from_environment(variables.into_iter()).map_err(|error| error.to_string())
}

#[test]
fn every_hook_tells_the_same_job() {
    for (text, hook) in HOOKS {
        let job = Job::from_environment(variables(text).into_iter()).unwrap();
        let of_node = matches!(hook, Hook::PrologSlurmd | Hook::EpilogSlurmd);
        let expected = Job {
            id: 1,
            nodes: ["n001", "n002", "n003"].map(str::to_owned).to_vec(),
            comment: Some("mirror=1".to_owned()),
            constraints: None,
            user: Some("root".to_owned()),
            restart_count: 0,
            hook: Some(hook),
            hook_node: of_node.then(|| "n001".to_owned()),
        };
        assert_eq!(job, expected);
    }
}

#[test]
fn what_slurm_writes_for_nothing_is_nothing() {
    assert_eq!(with("SLURM_JOB_COMMENT", "(null)").unwrap().comment, None);
    assert_eq!(with("SLURM_JOB_USER", "").unwrap().user, None);
    assert_eq!(with("SLURM_JOB_RESTART_COUNT", "3").unwrap().restart_count, 3);
}

#[test]
fn what_cannot_be_is_refused() {
    for (name, value, what) in [
        ("SLURM_JOB_ID", "0", "SLURM_JOB_ID=\"0\" is no job id; expected a number from 1 on"),
        ("SLURM_JOB_ID", "1; reboot", "is no job id"),
        ("SLURM_JOB_ID", "99999999999", "is no job id"),
        ("SLURM_JOB_ID", "(null)", "SLURM_JOB_ID is not set; run this as a Slurm hook"),
        ("SLURM_JOB_NODELIST", "(null)", "SLURM_JOB_NODELIST is not set"),
        ("SLURM_JOB_NODELIST", "n[1-", "the list of nodes cannot be read"),
        ("SLURM_JOB_NODELIST", "n1,n2,n1", "n1 stands twice in the list of nodes"),
        ("SLURM_JOB_NODELIST", "n1,-oProxyCommand=reboot", "is refused"),
        ("SLURMD_NODENAME", "../n1", "node name \"../n1\" is refused: it holds another character"),
    ] {
        let message = with(name, value).unwrap_err();
        assert!(message.contains(what), "{name}={value}: {message}");
    }
    let error = Job::from_environment([("PATH".to_owned(), "/bin".to_owned())].into_iter()).unwrap_err();
    assert!(error.to_string().contains("SLURM_JOB_ID is not set"), "{error}");
}
