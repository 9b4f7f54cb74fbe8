//! The configuration file: its values, and the line number and remedy in each error.

use crate::lab;
use ibscope_orchestrator::capture::CaptureBackend;
use ibscope_orchestrator::config::{AnalysisLocation, Config, JobSelection, MirrorBackend, Owner, RunLocation};
use ibscope_orchestrator::job::SlurmJob;
use std::path::Path;

const EXAMPLE: &str = include_str!("../../../docs/capture.toml");

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("capture.toml")).map_err(|error| error.to_string())
}

#[test]
fn the_sample_is_read() {
    let config = parse(EXAMPLE).unwrap();
    assert_eq!((config.ssh.user.as_str(), config.ssh.port, config.ssh.connect_timeout_s), ("root", 22, 3));
    assert_eq!(config.nodes["n001"].address.as_deref(), Some("10.1.0.1"));
    assert_eq!(config.tools.ibstat, Path::new("/usr/sbin/ibstat"));
    assert_eq!((config.fabric.check_nodes, &config.fabric.run_on), (16, &RunLocation::Here));
    assert_eq!((config.sinks.nodes.len(), config.sinks.from_job, config.sinks.per_leaf), (2, true, 1));
    assert_eq!((config.mirror.backend, config.capture.backend), (MirrorBackend::Command, CaptureBackend::Ibdump));
    let owner = Owner { user: "capture".to_owned(), group: Some("capture".to_owned()) };
    assert_eq!((config.capture.owner, config.capture.min_free_bytes), (Some(owner), 200_000_000_000));
    assert_eq!((config.run.select, config.run.fail_open, config.run.deadline_s), (JobSelection::Comment, true, 30));
    assert_eq!((config.analyze.after, config.analyze.sbatch.len()), (AnalysisLocation::Sbatch, 2));
}

/// The commented-out keys of the sample show the default, or at least can be read.
#[test]
fn commented_out_keys_of_the_sample_are_correct() {
    let shown = |line: &str| {
        let key = line.strip_prefix("# ").filter(|rest| rest.split(' ').nth(1) == Some("="));
        let section = line.strip_prefix("# ").filter(|rest| rest.starts_with('['));
        key.or(section).unwrap_or(line).to_owned()
    };
    let uncommented: Vec<String> = EXAMPLE.lines().map(shown).collect();
    // Without one of two keys that exclude each other, and the sections of backends that the sample
    // does not use.
    let whole = uncommented.join("\n").replace("memory_bytes = 4_000_000_000", "");
    // Only tcpdump writes into a ring.
    let text = whole.replace("ring_files = 8", "");
    let tcpdump = text.find("[capture.tcpdump]").unwrap();
    let collect = text.find("[collect]").unwrap();
    let mstreg = text.find("[mirror.mstreg]").unwrap();
    let capture = text.find("[capture]").unwrap();
    let without = [&text[..mstreg], &text[capture..tcpdump], &text[collect..]].concat();
    let (all, example) = (parse(&without).unwrap(), parse(EXAMPLE).unwrap());
    assert_eq!(all.tools, example.tools);
    assert_eq!(all.fabric, example.fabric);
    assert_eq!(all.sinks, example.sinks);
    assert_eq!(all.mirror, example.mirror);
    assert_eq!((all.capture.ready_s, all.capture.stop_s), (example.capture.ready_s, example.capture.stop_s));
    assert_eq!(all.collect, example.collect);
    assert_eq!((all.run.deadline_s, all.run.fail_open, &all.run.word), (30, true, &example.run.word));
    assert_eq!((all.run.syslog, all.run.state_dir), (example.run.syslog, example.run.state_dir));
    let other = without
        .replace("backend = \"command\"", "backend = \"mstreg\"")
        .replace("backend = \"ibdump\"", "backend = \"tcpdump\"");
    let section = |from: &str, to: &str| other.find(from).unwrap()..other.find(to).unwrap();
    let (commands, burst) = (section("[mirror.command]", "[capture]"), section("[capture.ibdump]", "[collect]"));
    let other = [
        &other[..commands.start],
        &text[mstreg..capture],
        &other[commands.end..burst.start],
        &text[tcpdump..collect],
        &other[burst.end..],
    ];
    let other = parse(&other.concat().replace("min_free_bytes", "ring_files = 8\nmin_free_bytes")).unwrap();
    assert!(whole.contains("ring_files = 8") && other.capture.ring_files == Some(8));
    assert_eq!((other.mirror.mstreg.analyzers, other.mirror.mstreg.vl), (8, Some(0)));
    assert_eq!(other.capture.tcpdump.filter.as_deref(), Some("udp port 4791"));
}

/// The files of a ring need room for at least a megabyte each, and for their copy at the end.
#[test]
fn a_ring_fits_into_its_limits() {
    let parsed = |capture: &str| {
        let text = format!(
            "[ssh]\nkey = \"/k\"\nknown_hosts = \"/h\"\n[mirror]\nbackend = \"none\"\n[collect]\ndirectory = \"/r\"\nfetch = true\n\
             [capture]\ndirectory = \"/c\"\nbackend = \"tcpdump\"\nring_files = 4\n{capture}"
        );
        parse(&text).map(|config| config.capture.ring_files)
    };
    let refused = |capture: &str, what: &str| {
        let error = parsed(capture).expect_err(capture);
        assert!(error.contains(what), "{error}");
    };
    assert_eq!(parsed("max_bytes = 4_000_000\nmax_s = 60"), Ok(Some(4)));
    refused("max_bytes = 3_999_999", "each at least 1 000 000");
    refused("max_s = 60", "each at least 1 000 000");
    refused("max_bytes = 4_000_000\nmode = \"profile\"", "only tcpdump writes into a ring of files");
    assert_eq!(parsed("max_bytes = 4_000_000\ndisk_limit_bytes = 8_000_000"), Ok(Some(4)));
    refused("max_bytes = 4_000_000\ndisk_limit_bytes = 7_999_999", "one capture alone could exceed it");
}

/// The sample with one line changed: the error names the line and the fault.
#[test]
fn faults_name_their_line() {
    for (from, to, what) in [
        ("user = \"root\"", "usr = \"root\"", "unknown field `usr`, expected one of `user`"),
        ("user = \"root\"", "user = \"-root\"", "\"-root\" is not a user or group"),
        (
            "key = \"/etc/ibscope/id_ed25519\"",
            "key = \"id\"",
            "\"id\" is not an absolute path; write it from the root /",
        ),
        ("key = \"/etc/ibscope/id_ed25519\"", "key = \"/etc/../id\"", "contains a control character or `..`"),
        ("known_hosts = \"/etc/ibscope/known_hosts\"", "known_hosts = \"/a\\nb\"", "contains a control character"),
        ("address = \"10.1.0.1\"", "address = \"-oProxyCommand=x\"", "is not valid"),
        ("port = 22\n\n[tools]", "port = 0\n\n[tools]", "port 0 is not valid"),
        ("port = 22\n\n[tools]", "port = \"22\"\n\n[tools]", "invalid type: string \"22\", expected u16"),
        ("[nodes.n001]", "[nodes.\"n 1\"]", "node name \"n 1\" is not valid"),
        ("nodes = [\"sink1\", \"sink2\"]", "nodes = [\"sink1\", \"sink1\"]", "sink1 is listed twice"),
        ("nodes = [\"sink1\", \"sink2\"]", "nodes = [\"$(x)\"]", "is not valid"),
        ("from_job = true", "from_job = yes", "expected"),
        ("from_job = true", "from_job = true\nfrom_job = true", "duplicate key"),
        (
            "backend = \"command\"",
            "backend = \"ibmirror\"",
            "unknown variant `ibmirror`, expected one of `none`, `command`, `mstreg`",
        ),
        ("backend = \"command\"", "backend = \"none\"", "sinks receive nothing with mirror.backend = \"none\""),
        (
            "backend = \"command\"",
            "backend = \"command\"\nrun_on = \"first\"",
            "mirrors are removed after the job's nodes are released",
        ),
        ("backend = \"command\"", "backend = \"command\"\nrun_on = \"a b\"", "node name \"a b\" is not valid"),
        ("backend = \"command\"", "backend = \"mstreg\"", "these commands are not used"),
        (
            "on = [\"/opt/site/mirror-port\"",
            "on = [\"mirror-port\"",
            "\"mirror-port\" is not a program; expected its absolute path",
        ),
        ("\"{port}\", \"--to\", \"{sink_port}\"", "\"{prt}\", \"--to\", \"{sink_port}\"", "{prt} is not a placeholder"),
        ("check_off = \"port {port} not mirrored\"", "check_off = \"port {port\"", "has an unmatched brace"),
        ("owner = \"capture:capture\"", "owner = \"capture:\"", "\"\" is not a user or group"),
        ("max_burst_log2 = 17", "max_burst_log2 = 99", "2^99 packets in one burst; expected an exponent from 1 to 30"),
        ("max_burst_log2 = 17", "writer_thread_bytes = 1\nmemory_bytes = 1", "not both; remove one"),
        ("max_s = 86_400", "ring_files = 4", "only tcpdump writes into a ring of files"),
        ("max_s = 86_400", "ring_files = 1", "a ring of 1 files; expected 2 to 100"),
        ("fetch = true", "fetch = false", "a batch job needs the captures in one folder"),
        ("after = \"sbatch\"", "after = \"sink\"", "these arguments are not used"),
        ("sbatch = [\"--partition=post\"", "sbatch = [\"--comment=a\\u0000b\"", "contains a control character"),
        ("[run]", "[run]\nword = \"ibscope on\"", "\"ibscope on\" is not a single word"),
        ("[run]", "[run]\ndeadline_s = 0", "0 seconds; expected 1 to 86400"),
        ("[run]", "[run", "expected"),
        ("[analyze]", "[analyse]", "unknown field `analyse`"),
    ] {
        assert_eq!(EXAMPLE.matches(from).count(), 1, "{from}");
        let error = parse(&EXAMPLE.replace(from, to)).expect_err(to);
        assert!(error.starts_with("capture.toml: line "), "{error}");
        assert!(error.contains(what), "{to}: {error}");
        let line: usize = error["capture.toml: line ".len()..].split(':').next().unwrap().parse().unwrap();
        let place = EXAMPLE[..EXAMPLE.find(from).unwrap()].matches('\n').count() + 1;
        let most = place + to.matches('\n').count();
        // If two keys exclude each other, the error may name either line.
        let concerns_two_keys = what.starts_with("sinks receive")
            || what.starts_with("these")
            || what.contains("not both")
            || what.starts_with("a batch");
        assert!(concerns_two_keys || (place..=most).contains(&line), "{to}: line {line}, not {place}: {error}");
        assert!(error.contains("expected") || error.contains(';'), "no next step: {error}");
    }
}

#[test]
fn captures_are_not_deleted_before_they_are_analyzed() {
    let text = EXAMPLE
        .replace("after = \"sbatch\"", "after = \"sink\"")
        .replace("fetch = true", "fetch = true\ndelete_fetched = true");
    let error = parse(&text).expect_err("deleted");
    assert!(error.contains("would be deleted on the sinks"), "{error}");
}

#[test]
fn missing_sections_are_named() {
    for (from, what) in [
        ("[collect]", "missing field `collect`"),
        ("known_hosts = ", "missing field `known_hosts`"),
        ("nodes = [\"sink1\", \"sink2\"]", ""),
    ] {
        let text: String = EXAMPLE.split_inclusive('\n').filter(|line| !line.starts_with(from)).collect();
        match parse(&text) {
            Ok(_) => assert_eq!(what, ""),
            // Without its header, the keys of a section belong to the section before it.
            Err(error) => assert!(error.contains(what) || error.contains("unknown field"), "{error}"),
        }
    }
    let error = parse("").unwrap_err();
    assert!(error.contains("line 1: missing field `ssh`; add it"), "{error}");
    let error = Config::read(Path::new("no/such.toml")).unwrap_err().to_string();
    assert!(error.contains("no/such.toml: the configuration cannot be read"), "{error}");
}

#[test]
fn jobs_are_chosen_by_a_whole_word() {
    let job =
        |comment: &str| SlurmJob { comment: Some(comment.to_owned()), ..SlurmJob::from_nodelist(1, "n1").unwrap() };
    let config = lab::by_command("from_job = true");
    for (comment, chosen) in [
        ("ibscope=on", true),
        ("project=x,ibscope=on", true),
        ("a; ibscope=on b", true),
        ("ibscope=only", false),
        ("noibscope=on", false),
        ("ibscope=off", false),
        ("", false),
    ] {
        assert_eq!(config.selects(&job(comment)), chosen, "{comment}");
    }
    assert!(!config.selects(&SlurmJob::from_nodelist(1, "n1").unwrap()));
    let with =
        |run: &str| lab::config(&format!("[sinks]\nfrom_job = true\n[mirror]\nbackend = \"mstreg\"\n[run]\n{run}"));
    assert!(with("select = \"all\"").selects(&SlurmJob::from_nodelist(1, "n1").unwrap()));
    let constrained =
        SlurmJob { constraints: Some("(hdr&ibscope)".to_owned()), ..SlurmJob::from_nodelist(1, "n1").unwrap() };
    assert!(with("select = \"constraint\"\nword = \"ibscope\"").selects(&constrained));
    // The option of sbatch counts with any rule, but not against ibscope=off.
    for select in ["comment", "constraint", "all"] {
        let config = with(&format!("select = \"{select}\""));
        for (option, comment, chosen) in [
            (true, "", true),
            (true, "IBSCOPE=ON", true),
            (true, "ibscope=off", false),
            (false, "ibscope=on", false),
            (false, "", false),
        ] {
            let job = SlurmJob { ibscope_option: Some(option), ..job(comment) };
            assert_eq!(config.selects(&job), chosen, "{select}, {option}, {comment}");
            assert_eq!(config.mistyped_word(&job), None);
        }
    }
}
