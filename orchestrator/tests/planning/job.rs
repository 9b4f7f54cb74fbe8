//! The job as read from the environments of the hooks, which were recorded from Slurm 22.05.8.

use ibscope_orchestrator::job::{SlurmHook, SlurmJob};

const HOOKS: [(&str, SlurmHook); 4] = [
    (include_str!("../fixtures/hooks/prologctld.txt"), SlurmHook::PrologSlurmctld),
    (include_str!("../fixtures/hooks/epilogctld.txt"), SlurmHook::EpilogSlurmctld),
    (include_str!("../fixtures/hooks/prolog.txt"), SlurmHook::PrologSlurmd),
    (include_str!("../fixtures/hooks/epilog.txt"), SlurmHook::EpilogSlurmd),
];

fn variables(text: &str) -> Vec<(String, String)> {
    let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().filter(|line| !line.starts_with('#')).filter_map(pair).collect()
}

fn with(name: &str, value: &str) -> Result<SlurmJob, String> {
    let mut variables = variables(HOOKS[0].0);
    variables.retain(|(known, _)| known != name && !(name == "SLURM_JOB_ID" && known == "SLURM_JOBID"));
    variables.push((name.to_owned(), value.to_owned()));
    SlurmJob::from_environment(variables.into_iter()).map_err(|error| error.to_string())
}

#[test]
fn every_hook_passes_the_same_job() {
    for (text, hook) in HOOKS {
        let job = SlurmJob::from_environment(variables(text).into_iter()).unwrap();
        let of_node = matches!(hook, SlurmHook::PrologSlurmd | SlurmHook::EpilogSlurmd);
        let expected = SlurmJob {
            id: 1,
            nodes: ["n001", "n002", "n003"].map(str::to_owned).to_vec(),
            comment: Some("mirror=1".to_owned()),
            constraints: None,
            ibscope_option: None,
            user: Some("root".to_owned()),
            user_id: Some(0),
            partition: Some("ib".to_owned()),
            restart_count: 0,
            hook: Some(hook),
            hook_node: of_node.then(|| "n001".to_owned()),
        };
        assert_eq!(job, expected);
    }
}

#[test]
fn empty_values_of_slurm_are_missing_values() {
    assert_eq!(with("SLURM_JOB_COMMENT", "(null)").unwrap().comment, None);
    assert_eq!(with("SLURM_JOB_USER", "").unwrap().user, None);
    assert_eq!(with("SLURM_JOB_RESTART_COUNT", "3").unwrap().restart_count, 3);
}

#[test]
fn only_two_values_of_the_option_count() {
    for (value, expected) in
        [("on", Some(true)), ("off", Some(false)), ("", None), ("ON", None), ("on; reboot", None), ("(null)", None)]
    {
        assert_eq!(with("SPANK_IBSCOPE", value).unwrap().ibscope_option, expected, "{value}");
    }
    // Other variables of plugins, and of the user, are none of ours.
    assert_eq!(with("SPANK_OTHER", "on").unwrap().ibscope_option, None);
    assert_eq!(with("IBSCOPE", "on").unwrap().ibscope_option, None);
}

#[test]
fn invalid_jobs_are_refused() {
    for (name, value, what) in [
        ("SLURM_JOB_ID", "0", "SLURM_JOB_ID=\"0\" is not a job id; expected a number of 1 or more"),
        ("SLURM_JOB_ID", "1; reboot", "is not a job id"),
        ("SLURM_JOB_ID", "99999999999", "is not a job id"),
        ("SLURM_JOB_ID", "(null)", "SLURM_JOB_ID is not set; run this as a Slurm hook"),
        ("SLURM_JOB_NODELIST", "(null)", "SLURM_JOB_NODELIST is not set"),
        ("SLURM_JOB_NODELIST", "n[1-", "the list of nodes cannot be read"),
        ("SLURM_JOB_NODELIST", "n1,n2,n1", "n1 is listed twice in the list of nodes"),
        ("SLURM_JOB_NODELIST", "n1,-oProxyCommand=reboot", "is not valid"),
        ("SLURMD_NODENAME", "../n1", "node name \"../n1\" is not valid: it contains a character that is not allowed"),
    ] {
        let message = with(name, value).unwrap_err();
        assert!(message.contains(what), "{name}={value}: {message}");
    }
    let error = SlurmJob::from_environment([("PATH".to_owned(), "/bin".to_owned())].into_iter()).unwrap_err();
    assert!(error.to_string().contains("SLURM_JOB_ID is not set"), "{error}");
}
