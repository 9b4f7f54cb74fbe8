//! The orchestrator on a simulated fabric with real ibsim, opensm, diagnostics, Slurm and ssh
//! servers. Stand-ins replace the parts that need hardware: the mirroring of switches (`switch.rs`,
//! `mstreg.rs`) and ibdump (`ibdump.rs`).
//!
//! Needs root and the packages of `make deps`. Everything runs in namespaces of its own and ends
//! with the test.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "stand-ins for programs, and tests that print their progress"
)]

mod analysis;
mod ansible;
mod attacks;
mod backends;
mod cases;
mod cluster;
mod container;
mod debian;
mod failover;
mod failures;
mod fault_matrix;
mod fault_steps;
mod first_steps;
mod gate;
mod hostile;
mod ibdump;
mod injected;
mod jobs;
mod lab;
mod large;
mod late_failures;
mod limits;
mod monitoring;
mod mstreg;
mod node_hooks;
mod profile_only;
mod races;
mod settings;
mod simulated;
mod site;
mod slurm;
mod slurm_failures;
mod spank;
mod standin;
mod start_failures;
mod sudo;
mod sweeper;
mod switch;
// The suite uses parts of this module that these tests do not use.
#[path = "../suite/tools.rs"]
#[allow(dead_code)]
mod tools;
mod topology;
mod users;

use lab::LabSetting;
use libtest_mimic::{Arguments, Trial};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

type Test = fn();

const TESTS: [(&str, Test); 41] = [
    ("the_parts_of_the_lab_work", the_parts_of_the_lab_work),
    ("a_job_is_captured_from_its_prolog_to_its_analysis", || {
        jobs::a_job_is_captured_from_its_prolog_to_its_analysis(LabSetting::ROOT);
    }),
    ("a_start_that_fails_is_undone_and_the_job_runs", start_failures::a_start_that_fails_is_undone_and_the_job_runs),
    ("the_epilog_restores_the_fabric_after_any_fault", late_failures::the_epilog_restores_the_fabric_after_any_fault),
    ("a_prolog_that_is_killed_anywhere_is_undone", failures::a_prolog_that_is_killed_anywhere_is_undone),
    ("a_sink_that_does_not_answer_is_replaced", failures::a_sink_that_does_not_answer_is_replaced),
    ("two_jobs_at_once_on_one_leaf_have_a_sink_each", failures::two_jobs_at_once_on_one_leaf_have_a_sink_each),
    ("slurm_cancels_and_kills_prologs_and_the_fabric_is_restored", || {
        slurm_failures::slurm_cancels_and_kills_prologs_and_the_fabric_is_restored(LabSetting::ROOT);
    }),
    ("slurmctld_is_restarted_and_the_fabric_is_restored", || {
        slurm_failures::slurmctld_is_restarted_and_the_fabric_is_restored(LabSetting::SLURM);
    }),
    ("hooks_of_nodes_mirror_no_ports", node_hooks::hooks_of_nodes_mirror_no_ports),
    ("hostile_names_are_refused_or_passed_literally", hostile::hostile_names_are_refused_or_passed_literally),
    ("items_that_users_prepare_are_refused", hostile::items_that_users_prepare_are_refused),
    (
        "hooks_of_slurms_user_refuse_items_that_users_prepare",
        hostile::hooks_of_slurms_user_refuse_items_that_users_prepare,
    ),
    ("attacks_on_hooks_of_root_fail", attacks::attacks_on_hooks_of_root_fail),
    ("attacks_on_hooks_of_slurms_user_fail", attacks::attacks_on_hooks_of_slurms_user_fail),
    (
        "the_owner_of_captures_gains_nothing_by_following_root",
        attacks::the_owner_of_captures_gains_nothing_by_following_root,
    ),
    ("hooks_run_as_slurms_own_user", attacks::hooks_run_as_slurms_own_user),
    ("users_lose_the_race_for_a_path", races::users_lose_the_race_for_a_path),
    ("the_owner_loses_the_race_for_files_of_a_run", races::the_owner_loses_the_race_for_files_of_a_run),
    ("registers_are_written_read_back_and_cleared", backends::registers_are_written_read_back_and_cleared),
    ("a_command_mirrors_all_ports_of_a_leaf_at_once", backends::a_command_mirrors_all_ports_of_a_leaf_at_once),
    ("every_node_captures_at_its_own_adapter", backends::every_node_captures_at_its_own_adapter),
    ("tcpdump_captures_roce", || backends::tcpdump_captures_roce(LabSetting::ROOT)),
    ("nodes_are_reached_through_a_jump_host", settings::nodes_are_reached_through_a_jump_host),
    (
        "captures_are_given_to_their_owner_and_analyzed_on_the_sinks",
        settings::captures_are_given_to_their_owner_and_analyzed_on_the_sinks,
    ),
    ("a_job_waits_for_its_capture_if_fail_open_is_false", settings::a_job_waits_for_its_capture_if_fail_open_is_false),
    ("the_units_are_valid", sweeper::the_units_are_valid),
    ("what_an_epilog_leaves_is_swept", || sweeper::what_an_epilog_leaves_is_swept(LabSetting::ROOT)),
    ("users_see_whether_their_job_is_captured", users::users_see_whether_their_job_is_captured),
    ("captures_are_limited_and_deleted_in_time", limits::captures_are_limited_and_deleted_in_time),
    ("a_burst_of_jobs_is_captured_and_lists_limit_who", limits::a_burst_of_jobs_is_captured_and_lists_limit_who),
    (
        "a_run_that_is_left_is_shown_and_analyzed_once_it_is_undone",
        monitoring::a_run_that_is_left_is_shown_and_analyzed_once_it_is_undone,
    ),
    (
        "the_log_is_rotated_and_the_state_folder_is_created",
        monitoring::the_log_is_rotated_and_the_state_folder_is_created,
    ),
    ("six_steps_lead_to_the_first_captured_job", first_steps::six_steps_lead_to_the_first_captured_job),
    ("an_option_of_sbatch_requests_a_capture", || spank::an_option_of_sbatch_requests_a_capture(LabSetting::ROOT)),
    ("a_user_with_a_sudo_rule_captures_and_can_do_nothing_else", || {
        sudo::a_user_with_a_sudo_rule_captures_and_can_do_nothing_else(LabSetting::ROOT);
    }),
    ("sinks_keep_profiles_only", profile_only::sinks_keep_profiles_only),
    ("faults_at_some_steps_leave_nothing", fault_matrix::faults_at_some_steps_leave_nothing),
    ("the_documents_count_all_faults", fault_matrix::the_documents_count_all_faults),
    ("captures_are_analyzed_by_an_array_of_tasks", cluster::captures_are_analyzed_by_an_array_of_tasks),
    ("a_job_of_256_nodes_is_planned_on_500_hosts", large::a_job_of_256_nodes_is_planned_on_500_hosts),
];

/// Variable with which `make soak` runs the tests that take longest.
const SOAK: &str = "IBSCOPE_SOAK";
const LONGEST: [(&str, Test); 16] = [
    (
        "all_ports_of_eight_leaves_are_mirrored_and_undone_in_time",
        large::all_ports_of_eight_leaves_are_mirrored_and_undone_in_time,
    ),
    ("what_an_epilog_of_slurms_user_leaves_is_swept", || {
        sweeper::what_an_epilog_leaves_is_swept(LabSetting::SLURM);
    }),
    ("prologs_of_slurms_user_are_canceled_and_killed", || {
        slurm_failures::slurm_cancels_and_kills_prologs_and_the_fabric_is_restored(LabSetting::SLURM);
    }),
    ("tcpdump_captures_roce_for_slurms_user", || backends::tcpdump_captures_roce(LabSetting::SLURM)),
    ("a_user_with_a_sudo_rule_captures_for_slurms_user", || {
        sudo::a_user_with_a_sudo_rule_captures_and_can_do_nothing_else(LabSetting::SLURM);
    }),
    ("the_newest_slurm_captures_a_job", debian::the_newest_slurm_captures_a_job),
    ("the_newest_slurm_cancels_and_kills_prologs", debian::the_newest_slurm_cancels_and_kills_prologs),
    ("the_newest_slurmctld_is_restarted", debian::the_newest_slurmctld_is_restarted),
    ("the_newest_slurm_has_the_option", debian::the_newest_slurm_has_the_option),
    ("an_ansible_role_installs_the_hooks", || ansible::an_ansible_role_installs_the_hooks(LabSetting::ROOT)),
    ("a_second_controller_of_the_newest_slurm_takes_over", debian::a_second_controller_of_the_newest_slurm_takes_over),
    ("what_the_newest_slurm_leaves_is_swept", debian::what_the_newest_slurm_leaves_is_swept),
    ("a_job_of_256_nodes_is_planned_on_2000_hosts", large::a_job_of_256_nodes_is_planned_on_2000_hosts),
    ("a_thousand_hooks_are_raced", attacks::a_thousand_hooks_are_raced),
    ("faults_at_all_steps_leave_nothing", fault_matrix::faults_at_all_steps_leave_nothing),
    ("a_thousand_runs_are_followed", attacks::a_thousand_runs_are_followed),
];

/// Programs that the lab needs, and that `make deps` installs.
const PROGRAMS: [&str; 14] = [
    "/usr/bin/ibsim",
    "/usr/sbin/opensm",
    "/usr/sbin/ibnetdiscover",
    "/usr/sbin/ibtracert",
    "/usr/sbin/ibstat",
    "/usr/sbin/slurmctld",
    "/usr/sbin/slurmd",
    "/usr/bin/sbatch",
    "/usr/sbin/munged",
    "/usr/sbin/sshd",
    "/usr/bin/sudo",
    "/usr/bin/tcpdump",
    "/usr/bin/tcpreplay",
    "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so",
];

fn main() -> ExitCode {
    let name = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let name = name.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name == switch::NAME {
        return switch::main();
    }
    if name == gate::NAME {
        return gate::main();
    }
    if name == mstreg::NAME {
        return mstreg::main();
    }
    if name == ibdump::NAME {
        return ibdump::main();
    }
    if simulated::TOOLS.contains(&name) {
        return simulated::main(name);
    }
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root {
        eprintln!("SKIPPED: the tests of the orchestrator on a fabric need root (namespaces, ssh servers, Slurm)");
    }
    let trial = |(name, test): (&'static str, Test)| {
        Trial::test(name, move || {
            for program in PROGRAMS {
                assert!(Path::new(program).exists(), "{program} is missing: run `make deps`");
            }
            test();
            Ok(())
        })
        .with_ignored_flag(!is_root)
    };
    let longest = std::env::var_os(SOAK).map(|_| LONGEST);
    libtest_mimic::run(
        &Arguments::from_args(),
        TESTS.into_iter().chain(longest.into_iter().flatten()).map(trial).collect(),
    )
    .exit_code()
}

/// The parts of the lab: the fabric has the requested topology, ssh reaches every node and shows
/// the node's view of the fabric, Slurm runs a job, and links go down and up.
fn the_parts_of_the_lab_work() {
    let start = std::time::Instant::now();
    let mut lab = lab::HookLab::start();
    println!("fabric and ssh servers: {:?}", start.elapsed());
    lab.slurm(slurm::Hooks { lines: "", timeout_s: 10 });
    println!("with Slurm: {:?}", start.elapsed());

    let ports = lab.tool("mgmt", &["ibnetdiscover", "-p"]);
    for (host, leaf, port, guid) in lab.topology.hosts() {
        let guid = format!("{:#018x}", guid + 1);
        let line = ports.lines().find(|line| line.starts_with("CA") && line.contains(&guid)).expect(host);
        let words: Vec<&str> = line.split_whitespace().collect();
        let leaf = format!("{:#018x}", topology::leaf_guid(leaf));
        assert_eq!((words[9], words[10]), (port.to_string().as_str(), leaf.as_str()), "{line}");
    }
    for (index, node) in lab::NODES.iter().take(8).enumerate() {
        let text = lab.tool(node, &["ibstat"]);
        assert!(text.contains(&format!("Base lid: {}", lab::FIRST_LID + index as u16)), "{text}");
    }

    let id = lab.submit(&["-N4"], "srun sh -c 'echo $SLURMD_NODENAME' | sort");
    assert_eq!(lab.ended(id), ("COMPLETED".to_owned(), "0:0".to_owned()));
    assert_eq!(lab.printed(id), "n001\nn002\nn003\nn004\n");
    assert_eq!(lab.drained().trim(), "");

    lab.link("n002", false);
    container::until(std::time::Duration::from_secs(5), "a link that is down", || {
        lab.tool("n002", &["ibstat"]).contains("State: Down").then_some(())
    });
    lab.link("n002", true);
    container::until(std::time::Duration::from_secs(20), "a link that is up again", || {
        lab.tool("n002", &["ibstat"]).contains("State: Active").then_some(())
    });
}
