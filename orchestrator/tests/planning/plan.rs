//! Plans for jobs on the simulator's fabric. The expected values were derived from the topology by
//! hand.

use crate::lab::{self, by_command, by_mstreg, planned};
use ibscope_orchestrator::fabric::Fabric;
use ibscope_orchestrator::job::SlurmJob;
use ibscope_orchestrator::plan::{self, CapturePlan, PlanContext, PlanError};
use ibscope_orchestrator::step::{CaptureStep, CommandCheck, Expectation, MirrorStep, PlanStep, StepCommand};

/// Each sink with the ports that are mirrored to it.
fn sinks(plan: &CapturePlan) -> Vec<(&str, &[u8])> {
    plan.sinks.iter().map(|sink| (sink.node.as_str(), &sink.sources[..])).collect()
}

fn mirrors(plan: &CapturePlan) -> Vec<&MirrorStep> {
    plan.steps.iter().filter_map(|step| if let PlanStep::Mirror(step) = step { Some(step) } else { None }).collect()
}

fn captures(plan: &CapturePlan) -> Vec<&CaptureStep> {
    plan.steps.iter().filter_map(|step| if let PlanStep::Capture(step) = step { Some(step) } else { None }).collect()
}

fn warns(plan: &CapturePlan, what: &str) -> bool {
    plan.warnings.iter().any(|warning| warning.contains(what))
}

/// Command lines.
fn lines<'a>(commands: impl Iterator<Item = &'a ibscope_orchestrator::step::StepCommand>) -> Vec<String> {
    commands.map(|command| command.argv.join(" ")).collect()
}

#[test]
fn the_jobs_last_node_on_a_leaf_captures() {
    let config = by_command("from_job = true\nhostfile_directory = \"/hosts\"");
    let plan = planned(&config, "n[001-004]").unwrap();
    assert_eq!(sinks(&plan), [("n004", &[1, 2, 3][..])]);
    assert_eq!(plan.hostfile, ["n001", "n002", "n003"]);
    assert!(warns(
        &plan,
        "not in the hostfile, because they are sinks: n004; start MPI on the 3 nodes of the hostfile"
    ));

    // Captures first and mirrors next, because mirrors must end before captures do.
    let [PlanStep::Capture(capture), PlanStep::Mirror(mirror), PlanStep::Hostfile(hostfile)] = &plan.steps[..] else {
        panic!("{:?}", plan.steps)
    };
    let file = "/cap/ibscope-17-20261121T200022Z-n004-mlx5_0-1.pcap";
    assert_eq!(capture.argv, ["/usr/bin/ibdump", "-d", "mlx5_0", "-i", "1", "-w", file]);
    assert_eq!((capture.node.as_str(), capture.file.to_str()), ("n004", Some(file)));
    assert_eq!(capture.log.to_str(), Some("/cap/ibscope-17-20261121T200022Z-n004-mlx5_0-1.log"));
    assert_eq!((mirror.leaf_lid, &mirror.ports[..], mirror.sink_port), (2, &[1, 2, 3][..], 4));
    assert_eq!(lines(mirror.on.iter()), ["/m on 2 1 4", "/m on 2 2 4", "/m on 2 3 4"]);
    assert_eq!(lines(mirror.off.iter()), ["/m off 2 1", "/m off 2 2", "/m off 2 3"]);
    assert!(mirror.on.iter().all(|command| command.node.is_none() && command.timeout_s == 5));
    assert_eq!((hostfile.path.to_str(), &hostfile.lines), (Some("/hosts/ibscope-17.hosts"), &plan.hostfile));
}

#[test]
fn every_leaf_has_its_own_sink() {
    let plan = planned(&by_command("from_job = true"), "n[003-007]").unwrap();
    assert_eq!(sinks(&plan), [("n005", &[3, 4][..]), ("n007", &[1][..])]);
    assert_eq!(plan.hostfile, ["n003", "n004", "n006"]);
    let places: Vec<_> = mirrors(&plan).iter().map(|step| (step.leaf_guid, step.leaf_lid)).collect();
    assert_eq!(places, lab::LEAVES[..2]);
}

#[test]
fn reserved_sinks_leave_all_nodes_to_the_job() {
    let config = by_command("nodes = [\"n015\", \"n010\"]");
    assert_eq!(
        plan::nodes_needed(&config, &SlurmJob::from_nodelist(1, "n[006-007]").unwrap()),
        ["n006", "n007", "n015", "n010"]
    );
    let plan = planned(&config, "n[006-008,011]").unwrap();
    assert_eq!(sinks(&plan), [("n010", &[1, 2, 3][..]), ("n015", &[1][..])]);
    assert_eq!(plan.hostfile, ["n006", "n007", "n008", "n011"]);
    assert!(!warns(&plan, "hostfile"));

    // A node that is reserved as a sink does not compute even if it is in the job.
    let plan = planned(&config, "n[008-010]").unwrap();
    assert_eq!(
        (sinks(&plan), &plan.hostfile[..]),
        (vec![("n010", &[3, 4][..])], &["n008", "n009"].map(str::to_owned)[..])
    );
    assert!(warns(&plan, "not in the hostfile, because they are sinks: n010"));
    assert_eq!(planned(&config, "n010,n015"), Err(PlanError::NoCompute(17)));
}

#[test]
fn a_leaf_without_a_sink_gives_a_warning() {
    let plan = planned(&by_command("from_job = true"), "n[005-007]").unwrap();
    assert_eq!(sinks(&plan), [("n007", &[1][..])]);
    assert_eq!(plan.hostfile, ["n005", "n006"]);
    let why = "leaf 0xb8599f0300001000 has no sink, because the job's only node there, n005, must compute";
    assert!(warns(&plan, why), "{:?}", plan.warnings);
    assert_eq!(plan.compute.len(), 2, "n005 still computes");

    let error = planned(&by_command("from_job = true\nrequired = true"), "n[005-007]").unwrap_err();
    assert_eq!(error, PlanError::NoSink { job: 17, reason: why.to_owned() });
    let error = planned(&by_command("from_job = true"), "n005").unwrap_err().to_string();
    assert!(error.contains("no leaf has a sink") && error.contains("n005"), "{error}");
    let error = planned(&by_command("nodes = [\"n015\"]"), "n[001-002]").unwrap_err().to_string();
    assert!(error.contains("none of sinks.nodes is on it") && error.contains("set sinks.from_job = true"), "{error}");
}

#[test]
fn several_sinks_share_the_ports_of_a_leaf() {
    let plan = planned(&by_mstreg("nodes = [\"n004\", \"n005\"]\nper_leaf = 2"), "n[001-003]").unwrap();
    assert_eq!(sinks(&plan), [("n004", &[1, 3][..]), ("n005", &[2][..])]);
    let analyzers: Vec<_> = mirrors(&plan).iter().map(|step| step.analyzer).collect();
    assert_eq!(analyzers, [Some(0), Some(1)]);
    // No more sinks than ports.
    let plan = planned(&by_mstreg("nodes = [\"n004\", \"n005\"]\nper_leaf = 2"), "n001").unwrap();
    assert_eq!(sinks(&plan), [("n004", &[1][..])]);
    let plan = planned(&by_command("from_job = true\nper_leaf = 2"), "n[001-005]").unwrap();
    assert_eq!(sinks(&plan), [("n005", &[1, 3][..]), ("n004", &[2][..])]);
}

#[test]
fn registers_are_written_in_the_layout_of_the_switch() {
    let config = lab::config(
        "[sinks]\nfrom_job = true\n[mirror]\nbackend = \"mstreg\"\nrun_on = \"sink\"\n[mirror.mstreg]\nvl = 3\nadapter = \"mlx5_1\"",
    );
    let plan = planned(&config, "n[006-007]").unwrap();
    let steps = mirrors(&plan);
    let head = |register: &str| format!("/usr/bin/mstreg -d lid-4,mlx5_1 --yes --reg_name {register} -i");
    let mpat = format!("{} pa_id=0 -o mngr_type=1", head("MPAT"));
    let mpar = |direction: u8| format!("{} local_port=1,i_e={direction},lp_msb=0 -o mngr_type=1", head("MPAR"));
    let on = [
        format!("{mpat} --set system_port=2,span_type=4,be=1,e=1,vl=3"),
        format!("{} --set pa_id=0,enable=1", mpar(1)),
        format!("{} --set pa_id=0,enable=1", mpar(0)),
    ];
    assert_eq!(lines(steps[0].on.iter()), on);
    let off =
        [format!("{} --set enable=0", mpar(1)), format!("{} --set enable=0", mpar(0)), format!("{mpat} --set e=0")];
    assert_eq!(lines(steps[0].off.iter()), off);
    assert!(steps[0].on.iter().chain(&steps[0].off).all(|command| command.node.as_deref() == Some("n007")));
    let read = [format!("{mpat} --get"), format!("{} --get", mpar(1)), format!("{} --get", mpar(0))];
    assert_eq!(lines(steps[0].check.iter().map(|check| &check.command)), read);
    assert_eq!(
        lines(steps[0].check_off.iter().map(|check| &check.command)),
        [&read[1], &read[2], &read[0]].map(String::clone)
    );

    let one_way = "[sinks]\nfrom_job = true\n[mirror]\nbackend = \"mstreg\"\n[mirror.mstreg]\ndirections = \"ingress\"\nread_back = false\nlossless = true";
    let plan = planned(&lab::config(one_way), "n[006-007]").unwrap();
    let steps = mirrors(&plan);
    assert_eq!((steps[0].on.len(), steps[0].check.len(), steps[0].check_off.len()), (2, 0, 0));
    assert!(steps[0].on[0].argv.concat().contains("be=0,e=1") && steps[0].on[1].argv.concat().contains("i_e=1"));
    assert_eq!(plan.sinks[0].oversubscription(), Some(1.0), "one port, one way");
}

/// Output in the format of mstreg 4.21 (`%-*s | 0x%08x`).
#[test]
fn registers_are_read_back() {
    let plan = planned(&by_mstreg("from_job = true"), "n[006-007]").unwrap();
    let steps = mirrors(&plan);
    let mpar = |enable: u8, analyzer: u8| {
        format!(
            "Sending access register...\n\nField Name       | Data       \n==============================\ni_e              | 0x00000001\n\
             pa_id            | 0x{analyzer:08x}\nenable           | 0x{enable:08x}\nprobability_rate | 0x00000001\n=====\n"
        )
    };
    assert!(steps[0].check[1].is_met(&mpar(1, 0)));
    assert!(
        !steps[0].check[1].is_met(&mpar(1, 2))
            && !steps[0].check[1].is_met(&mpar(0, 0))
            && !steps[0].check[1].is_met("")
    );
    assert!(steps[0].check_off[0].is_met(&mpar(0, 0)) && !steps[0].check_off[0].is_met(&mpar(1, 0)));
}

#[test]
fn the_command_of_the_site_is_checked() {
    let config = lab::config(
        "[sinks]\nfrom_job = true\n[mirror]\nbackend = \"command\"\n[mirror.command]\non = [\"/m\", \"{port}\"]\noff = [\"/m\", \"{port}\"]\n\
         check = [\"/m\", \"?\", \"{port}\"]\ncheck_on = \"{port}>{sink_port}\"\ncheck_off = \"{port}>-\"",
    );
    let plan = planned(&config, "n[001-003]").unwrap();
    let steps = mirrors(&plan);
    let expect = |checks: &[CommandCheck]| checks.iter().flat_map(|check| check.expect.clone()).collect::<Vec<_>>();
    assert_eq!(expect(&steps[0].check), ["1>3", "2>3"].map(|text| Expectation::Text(text.to_owned())));
    assert_eq!(expect(&steps[0].check_off), ["1>-", "2>-"].map(|text| Expectation::Text(text.to_owned())));
    assert!(steps[0].check[1].is_met("1>3\nport 2>3\n") && !steps[0].check[1].is_met("2>\n3"));
}

/// Commands with all ports of a leaf run once. Their checks expect a line for each port.
#[test]
fn a_command_with_all_ports_runs_once_per_leaf() {
    let config = lab::config(
        "[sinks]\nfrom_job = true\n[mirror]\nbackend = \"command\"\n[mirror.command]\non = [\"/m\", \"{ports}\"]\noff = [\"/m\", \"{port}\"]\n\
         check = [\"/m\", \"?\", \"{ports}\"]\ncheck_on = \"{node} {port}>{sink_port}\"\ncheck_off = \"{port}>-\"",
    );
    let plan = planned(&config, "n[001-003]").unwrap();
    let step = mirrors(&plan)[0];
    let argv = |commands: &[StepCommand]| commands.iter().map(|command| command.argv.join(" ")).collect::<Vec<_>>();
    assert_eq!(
        (argv(&step.on), argv(&step.off)),
        (vec!["/m 1,2".to_owned()], vec!["/m 1".to_owned(), "/m 2".to_owned()])
    );
    let [check_on, check_off] = [&step.check, &step.check_off].map(|checks| match &checks[..] {
        [check] => check,
        checks => panic!("{checks:?}"),
    });
    assert_eq!(argv(&[check_on.command.clone(), check_off.command.clone()]), ["/m ? 1,2", "/m ? 1,2"]);
    assert!(check_on.is_met("n001 1>3\nn002 2>3\n") && !check_on.is_met("n001 1>3\nn002 2>-\n"));
    assert!(check_off.is_met("1>-\n2>-\n") && !check_off.is_met("1>-\n2>3\n"));
}

/// Two jobs on one leaf at the same time: the second uses no sinks, ports or analyzers of the
/// first.
#[test]
fn resources_of_other_runs_are_not_used() {
    let config = by_mstreg("nodes = [\"n004\", \"n005\"]");
    let first = lab::beside(&config, 17, "n001", &[]).unwrap();
    assert_eq!(sinks(&first), [("n004", &[1][..])]);
    let second = lab::beside(&config, 18, "n002", &[&first]).unwrap();
    assert_eq!(sinks(&second), [("n005", &[2][..])]);
    assert_eq!((mirrors(&first)[0].analyzer, mirrors(&second)[0].analyzer), (Some(0), Some(1)));
    let third = lab::beside(&config, 19, "n003", &[&first, &second]).unwrap_err().to_string();
    assert!(third.contains("other runs use all nodes of sinks.nodes on it"), "{third}");

    // A node that both jobs have belongs to the first.
    let config = by_mstreg("nodes = [\"n004\", \"n005\"]");
    let shared = lab::beside(&config, 18, "n[001-002]", &[&first]).unwrap();
    assert_eq!(sinks(&shared), [("n005", &[2][..])]);
    assert!(warns(&shared, "n001: port 1 of leaf 0xb8599f0300001000 is in use by another run"));

    let config =
        lab::config("[sinks]\nfrom_job = true\n[mirror]\nbackend = \"mstreg\"\n[mirror.mstreg]\nanalyzers = 1");
    let first = lab::beside(&config, 17, "n[001-002]", &[]).unwrap();
    let error = lab::beside(&config, 18, "n[003-004]", &[&first]).unwrap_err().to_string();
    assert!(error.contains("other runs use all of its analyzers (mirror.mstreg.analyzers = 1)"), "{error}");
    assert_eq!(
        sinks(&lab::beside(&config, 18, "n[006-007]", &[&first]).unwrap()),
        [("n007", &[1][..])],
        "another leaf has analyzers of its own"
    );
}

#[test]
fn without_mirroring_every_node_captures() {
    let plan = planned(&lab::config("[mirror]\nbackend = \"none\""), "n[004-006]").unwrap();
    assert_eq!(sinks(&plan), [("n004", &[4][..]), ("n005", &[5][..]), ("n006", &[1][..])]);
    assert_eq!((plan.hostfile.len(), plan.warnings.len(), mirrors(&plan).len()), (3, 0, 0));
    assert_eq!(captures(&plan).iter().map(|step| step.node.as_str()).collect::<Vec<_>>(), ["n004", "n005", "n006"]);
}

#[test]
fn options_of_the_programs_are_passed_on() {
    let with = |backend: &str, options: &str| {
        let text = format!(
            "[mirror]\nbackend = \"none\"\n[capture]\nbackend = \"{backend}\"\ndirectory = \"/cap\"\n{options}"
        );
        captures(&planned(&lab::config(&text), "n001").unwrap())[0]
            .argv
            .join(" ")
            .replace("/cap/ibscope-17-20261121T200022Z-n001-mlx5_0-1.pcap", "FILE")
    };
    let ibdump = with("ibdump", "[capture.ibdump]\nmax_burst_log2 = 17\nwriter_thread_bytes = 1000");
    assert_eq!(ibdump, "/usr/bin/ibdump -d mlx5_0 -i 1 -w FILE -b 17 -p 1000");
    assert_eq!(
        with("ibdump", "[capture.ibdump]\nmemory_bytes = 4096"),
        "/usr/bin/ibdump -d mlx5_0 -i 1 -w FILE -M 4096"
    );
    let head = "/usr/bin/tcpdump --time-stamp-precision=nano -n -Z root -i";
    assert_eq!(with("tcpdump", ""), format!("{head} mlx5_0 -w FILE"));
    let options =
        "[capture.tcpdump]\ninterface = \"eth0\"\nsnaplen = 512\nbuffer_kib = 65536\nfilter = \"udp port 4791\"";
    assert_eq!(with("tcpdump", options), format!("{head} eth0 -w FILE -s 512 -B 65536 udp port 4791"));
}

#[test]
fn an_oversubscribed_sink_gives_a_warning() {
    let plan = planned(&by_command("from_job = true"), "n[001-004]").unwrap();
    // 3 ports of 200 Gb/s, both directions, onto one link of 200 Gb/s.
    assert_eq!((plan.sinks[0].mirrored_gbits, plan.sinks[0].oversubscription()), (1200.0, Some(6.0)));
    let warning = "sink n004: 3 ports mirrored, up to 1200 Gb/s onto a link of 200 Gb/s (6.0 times); mirrored packets are lost while the ports are busier than 17 % on average";
    assert!(warns(&plan, warning), "{:?}", plan.warnings);

    let mut fabric = lab::fabric();
    fabric.ports[1].rate_gbits = 0.0;
    let plan = plan::plan(
        &by_command("from_job = true"),
        &SlurmJob::from_nodelist(1, "n[001-002]").unwrap(),
        &fabric,
        &PlanContext::default(),
    )
    .unwrap();
    assert!(warns(&plan, "sink n002: the rate of its link is unknown"));
}

/// Every node has two adapters, the first on leaf 1 and the second on leaf 2; n003 has only the
/// first.
#[test]
fn a_node_on_two_leaves_captures_on_both() {
    let mut fabric = Fabric::default();
    for number in 1..=5 {
        fabric.ports.push(lab::port(number));
        if number != 3 {
            let second = lab::port(number + 5);
            fabric.ports.push(ibscope_orchestrator::fabric::NodePort {
                node: lab::port(number).node,
                ca: "mlx5_1".to_owned(),
                ..second
            });
        }
    }
    let job = |nodes: &str| {
        let situation = PlanContext { started_s: lab::STARTED_S, others: Vec::new() };
        plan::plan(&by_command("from_job = true"), &SlurmJob::from_nodelist(17, nodes).unwrap(), &fabric, &situation)
            .unwrap()
    };
    let both = job("n[001-005]");
    assert_eq!(sinks(&both), [("n005", &[1, 2, 3, 4][..]), ("n005", &[1, 2, 4][..])]);
    assert_eq!(both.hostfile, ["n001", "n002", "n003", "n004"]);
    assert_eq!(captures(&both)[1].argv[2], "mlx5_1");
    // n003 captures on leaf 1, where n001 remains if n002 captures on leaf 2.
    let tight = job("n[001-003]");
    assert_eq!(sinks(&tight), [("n003", &[1][..]), ("n002", &[1][..])]);
    assert_eq!(tight.hostfile, ["n001"]);
    // With n002 and n003 only, n002 must compute, and leaf 2 has no sink.
    let last = job("n[002-003]");
    assert_eq!((sinks(&last), &last.hostfile[..]), (vec![("n003", &[2][..])], &["n002".to_owned()][..]));
    assert!(warns(&last, "leaf 0xb8599f0300001001 has no sink, because the job's only node there, n002,"));
}

#[test]
fn warnings_of_the_fabric_are_passed_on() {
    let fabric = Fabric { disagreements: vec!["n001: two tools disagree".to_owned()], ..lab::fabric() };
    let config = by_command("from_job = true");
    let plan =
        plan::plan(&config, &SlurmJob::from_nodelist(1, "n[001-002],n099").unwrap(), &fabric, &PlanContext::default())
            .unwrap();
    assert!(warns(&plan, "n001: two tools disagree") && warns(&plan, "n099: no active port was found"));
    let error =
        plan::plan(&config, &SlurmJob::from_nodelist(1, "n099").unwrap(), &lab::fabric(), &PlanContext::default())
            .unwrap_err();
    assert!(error.to_string().contains("none of its nodes has an active port; check with ibstat"), "{error}");
    let mut fabric = lab::fabric();
    fabric.ports[0].ca = "mlx5_0 -w /etc/passwd".to_owned();
    let error =
        plan::plan(&config, &SlurmJob::from_nodelist(1, "n[001-002]").unwrap(), &fabric, &PlanContext::default())
            .unwrap_err();
    assert!(error.to_string().contains("device name \"mlx5_0 -w /etc/passwd\" is not valid"), "{error}");
}

#[test]
fn a_plan_reads_back_from_json() {
    let plan = planned(&by_mstreg("from_job = true\nhostfile_directory = \"/hosts\""), "n[003-007]").unwrap();
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<CapturePlan>(&text).unwrap(), plan);
    assert!(text.contains("\"leaf_guid\":\"0xb8599f0300001000\""), "{text}");
}

#[test]
fn a_plan_is_printed() {
    let shown =
        planned(&by_command("from_job = true\nhostfile_directory = \"/hosts\""), "n[003-005]").unwrap().to_string();
    let expected = "\
Job 17: 3 nodes
MPI runs on 2 nodes: n003, n004

Leaf 0xb8599f0300001000 (LID 2): 2 ports mirrored to n005
  leaf port 3   n003         mlx5_0 port 1   LID 8       200 Gb/s
  leaf port 4   n004         mlx5_0 port 1   LID 9       200 Gb/s
  leaf port 5   n005         mlx5_0 port 1   LID 10      200 Gb/s  <- sink (mirrored ports can send up to 4.0 times its link rate)
  into /cap/ibscope-17-20261121T200022Z-n005-mlx5_0-1.pcap

Steps (undone in this order: mirrors, captures, hostfile)
  1. capture on n005: /usr/bin/ibdump -d mlx5_0 -i 1 -w /cap/ibscope-17-20261121T200022Z-n005-mlx5_0-1.pcap
     undo: SIGINT, then wait until it ends
  2. mirror 2 ports of leaf 0xb8599f0300001000 to n005
     on,   here: /m on 2 3 5
     on,   here: /m on 2 4 5
     undo, here: /m off 2 3
     undo, here: /m off 2 4
  3. write /hosts/ibscope-17.hosts (2 lines)
     undo: remove it

Warnings
  - MIRRORING IS NOT VERIFIED: only the exit status of the commands counts, so a port that is not mirrored, or that stays mirrored after the job, is not noticed; set check, check_on and check_off in [mirror.command]
  - not in the hostfile, because they are sinks: n005; start MPI on the 2 nodes of the hostfile
  - sink n005: 2 ports mirrored, up to 800 Gb/s onto a link of 200 Gb/s (4.0 times); mirrored packets are lost while the ports are busier than 25 % on average
";
    assert_eq!(shown, expected);
}
