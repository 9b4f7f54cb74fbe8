//! Hostile names and values are refused, or passed on unchanged.

use ibscope_orchestrator::config::{CommandTemplate, TemplateError, TemplateValues};
use ibscope_orchestrator::job::SlurmJob;
use ibscope_orchestrator::name;
use proptest::prelude::*;

const HOSTILE: [&str; 16] = [
    "",
    " ",
    "a b",
    "a\tb",
    "a\nb",
    "a\0b",
    "a'b",
    "a\"b",
    "a;reboot",
    "$(reboot)",
    "`reboot`",
    "-oProxyCommand=reboot",
    "../etc",
    "a/b",
    "a..b",
    "n\u{f6}de",
];

fn values(node: &str) -> TemplateValues<'_> {
    TemplateValues {
        leaf_guid: 0xb859_9f03_0000_1000,
        leaf_lid: 2,
        port: 3,
        ports: &[3, 14],
        sink_port: 5,
        node,
        sink: "s1",
        job: 17,
    }
}

fn template(argv: &[&str]) -> Result<CommandTemplate, TemplateError> {
    CommandTemplate::try_from(argv.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
}

#[test]
fn hostile_names_are_refused() {
    for hostile in HOSTILE
        .into_iter()
        .chain([".", "a.", ".a", "a.-b", "a|b", "a&b", "a>b", "a*b", "a\\b", "a{b}", "~a", "a@b", "a:b", "a=b"])
    {
        let error = name::node(hostile).expect_err(hostile).to_string();
        assert!(error.contains(&format!("node name {hostile:?} is not valid")), "{error}");
        assert!(name::device(hostile).is_err(), "{hostile}");
        assert!(template(&["/m", "{port}", "{node}"]).unwrap().fill(&values(hostile)).is_err(), "{hostile}");
    }
    assert!(name::node(&"a".repeat(129)).unwrap_err().to_string().contains("longer than 128 bytes"));
    for fine in ["n001", "N1", "node-1.cluster.example", "_gpu_1", "10.0.0.1", "x--y"] {
        assert_eq!(name::node(fine), Ok(()));
    }
}

#[test]
fn values_stay_within_their_argument() {
    let argv = [
        "/opt/m p",
        "{leaf_guid}",
        "lid-{leaf_lid}",
        "p{port}>{sink_port}",
        "{node}:{sink}",
        "job={job}",
        "{{\"port\": {port}}}",
        "$HOME; x",
        "",
    ];
    let filled = template(&argv).unwrap().fill(&values("n001")).unwrap();
    let expected =
        ["/opt/m p", "0xb8599f0300001000", "lid-2", "p3>5", "n001:s1", "job=17", "{\"port\": 3}", "$HOME; x", ""];
    assert_eq!(filled, expected);
    let of_leaf = template(&["/m", "--ports={ports}", "{sink_port}"]).unwrap();
    assert_eq!(of_leaf.fill(&values("n001")).unwrap(), ["/m", "--ports=3,14", "5"]);
}

#[test]
fn templates_that_cannot_work_are_refused() {
    for (argv, what) in [
        (&[][..], "the command is empty"),
        (&["mirror", "{port}"], "\"mirror\" is not a program; expected its absolute path"),
        (&["/bin/{job}", "{port}"], "is not a program"),
        (&["/m", "{Port}"], "{Port} is not a placeholder; expected one of {leaf_guid}"),
        (&["/m", "{port"], "\"{port\" has an unmatched brace; write {{ and }}"),
        (&["/m", "port}"], "has an unmatched brace"),
        (&["/m", "{}"], "{} is not a placeholder"),
        (&["/m", "{{port}}"], "the command has neither {port} nor {ports}"),
        (&["/m", "{ports}", "{port}"], "remove {port} and {node}"),
        (&["/m", "{ports}", "{node}"], "remove {port} and {node}"),
        (&["/m", "a\nb{port}"], "contains a control character"),
    ] {
        let error = template(argv).expect_err("refused").to_string();
        assert!(error.contains(what), "{argv:?}: {error}");
    }
}

/// True for a safe name, by a second formulation of the rule.
fn is_safe(name: &str) -> bool {
    let allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    let starts_part = |place: usize| place == 0 || name.as_bytes()[place - 1] == b'.';
    (1..=128).contains(&name.len())
        && name.chars().all(|c| allowed.contains(c))
        && name.char_indices().all(|(place, c)| !(starts_part(place) && "-.".contains(c)))
        && !name.ends_with('.')
}

proptest! {
    #[test]
    fn names_pass_if_they_are_safe(name in prop_oneof!["[a-z0-9._-]{0,12}", "\\PC{0,12}", any::<String>()]) {
        prop_assert_eq!(name::node(&name).is_ok(), is_safe(&name));
    }

    /// Literal text is passed on unchanged, and the number of arguments stays the same.
    #[test]
    fn literals_are_passed_on(texts in prop::collection::vec("\\PC{0,20}", 0..6)) {
        let mut argv = vec!["/m".to_owned(), "{port}".to_owned()];
        argv.extend(texts.iter().map(|text| text.replace('{', "{{").replace('}', "}}")));
        let filled = CommandTemplate::try_from(argv).unwrap().fill(&values("n001")).unwrap();
        prop_assert_eq!(&filled[..2], ["/m", "3"]);
        prop_assert_eq!(&filled[2..], &texts[..]);
    }

    /// Any text is a template or an error.
    #[test]
    fn templates_never_panic(text in any::<String>(), node in any::<String>()) {
        if let Ok(template) = CommandTemplate::try_from(vec!["/m".to_owned(), "{port}".to_owned(), text])
            && let Ok(filled) = template.fill(&values(&node))
        {
            prop_assert_eq!(filled.len(), 3);
            prop_assert!(!filled.iter().any(|argument| argument.chars().any(char::is_control)));
        }
    }

    /// No node list gives a job with an unsafe node name.
    #[test]
    fn jobs_have_safe_nodes(list in prop_oneof![any::<String>(), "[a-c0-2\\[\\],;$ '/-]{0,16}"]) {
        if let Ok(job) = SlurmJob::from_nodelist(1, &list) {
            prop_assert!(job.nodes.iter().all(|node| is_safe(node)), "{:?}", job.nodes);
        }
    }
}
