//! The steps of the fault matrix: calls of programs by a hook, for each way in which a site captures.

/// Part of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Prolog,
    Job,
    Epilog,
}

/// How the site captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MatrixSite {
    /// The controller mirrors ports, and sinks keep packets.
    Plain,
    /// Sinks mirror ports (`mirror.run_on`).
    MirrorsAtSinks,
    /// Sinks keep only profiles (`capture.mode`).
    ProfilesOnly,
}

impl MatrixSite {
    /// Further lines of `[mirror]` and `[capture]`.
    pub(crate) fn lines(self) -> (&'static str, &'static str) {
        match self {
            Self::Plain => ("timeout_s = 2", "stop_s = 1"),
            Self::MirrorsAtSinks => ("timeout_s = 2\nrun_on = \"sink\"", "stop_s = 1"),
            Self::ProfilesOnly => ("timeout_s = 2", "stop_s = 1\nmode = \"profile\""),
        }
    }
}

/// A step: the call of a program by a hook. `number` counts the calls of this program in the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step {
    pub(crate) site: MatrixSite,
    pub(crate) stage: Stage,
    pub(crate) call: &'static str,
    pub(crate) number: usize,
}

const fn step(stage: Stage, call: &'static str, number: usize) -> Step {
    Step { site: MatrixSite::Plain, stage, call, number }
}

const fn step_at(site: MatrixSite, stage: Stage, call: &'static str, number: usize) -> Step {
    Step { site, stage, call, number }
}

/// The steps of a capture with two sinks and four mirrored ports, in order. Where calls come at the
/// same time, or once per port and node, the first one counts, and the last one of those that change
/// something. Steps of the other sites are those that differ.
pub(crate) const STEPS: [Step; 41] = [
    step(Stage::Prolog, "ibnetdiscover", 1),
    step(Stage::Prolog, "ibstat", 1),
    step(Stage::Prolog, "ibtracert", 1),
    step(Stage::Prolog, "switchctl-show", 1),
    step(Stage::Prolog, "folder", 1),
    step(Stage::Prolog, "stat", 1),
    step(Stage::Prolog, "date", 1),
    step(Stage::Prolog, "launch", 1),
    step(Stage::Prolog, "launch", 2),
    step(Stage::Prolog, "look", 1),
    step(Stage::Prolog, "switchctl-on", 1),
    step(Stage::Prolog, "switchctl-on", 4),
    step(Stage::Prolog, "switchctl-show", 5),
    step(Stage::Prolog, "switchctl-show", 8),
    step(Stage::Job, "job", 1),
    step(Stage::Epilog, "switchctl-off", 1),
    step(Stage::Epilog, "switchctl-off", 4),
    step(Stage::Epilog, "switchctl-show", 1),
    step(Stage::Epilog, "switchctl-show", 4),
    step(Stage::Epilog, "date", 1),
    step(Stage::Epilog, "folder", 1),
    step(Stage::Epilog, "find", 1),
    step(Stage::Epilog, "look", 1),
    step(Stage::Epilog, "signal", 1),
    step(Stage::Epilog, "signal", 2),
    step(Stage::Epilog, "fetch", 1),
    step(Stage::Epilog, "rm", 1),
    step(Stage::Epilog, "rm", 2),
    step_at(MatrixSite::MirrorsAtSinks, Stage::Prolog, "switchctl-on", 1),
    step_at(MatrixSite::MirrorsAtSinks, Stage::Prolog, "switchctl-on", 4),
    step_at(MatrixSite::MirrorsAtSinks, Stage::Prolog, "switchctl-show", 5),
    step_at(MatrixSite::MirrorsAtSinks, Stage::Epilog, "switchctl-off", 1),
    step_at(MatrixSite::MirrorsAtSinks, Stage::Epilog, "switchctl-off", 4),
    step_at(MatrixSite::MirrorsAtSinks, Stage::Epilog, "switchctl-show", 1),
    step_at(MatrixSite::ProfilesOnly, Stage::Prolog, "launch", 1),
    step_at(MatrixSite::ProfilesOnly, Stage::Prolog, "look", 1),
    step_at(MatrixSite::ProfilesOnly, Stage::Job, "job", 1),
    step_at(MatrixSite::ProfilesOnly, Stage::Epilog, "look", 1),
    step_at(MatrixSite::ProfilesOnly, Stage::Epilog, "signal", 1),
    step_at(MatrixSite::ProfilesOnly, Stage::Epilog, "fetch", 1),
    step_at(MatrixSite::ProfilesOnly, Stage::Epilog, "rm", 1),
];
