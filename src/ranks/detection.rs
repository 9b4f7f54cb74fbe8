//! The MPI library of each connection, and how its envelopes are read.

use super::component::Component;
use super::jobs::Job;
use super::reading::Fitting;
use crate::model::ConnectionKey;
use ibscope_parsers::mpi::{Form, TagLayout};
use std::collections::{BTreeMap, BTreeSet};

/// What was detected, by connection.
#[derive(Clone, Debug, Default)]
pub struct Detection {
    readings: BTreeMap<ConnectionKey, (Form, TagLayout)>,
}

impl Detection {
    pub(super) fn add(&mut self, components: &[Component<'_>]) {
        for own in components {
            // Datagrams by which processes connect are none of their messages.
            let speaks = |fit: &Fitting<'_>| {
                let enveloped = fit.connection.votes().enveloped.iter().sum::<u64>();
                !fit.connection.key.is_datagram() || enveloped > 0
            };
            let readings = own.connections.iter().filter(|(fit, _)| speaks(fit));
            self.readings.extend(readings.map(|(fit, _)| (fit.connection.key, (fit.form, own.layout))));
        }
    }

    /// The form of a connection's messages, where one is detected.
    #[must_use]
    pub fn form(&self, key: &ConnectionKey) -> Option<Form> {
        self.readings.get(key).map(|(form, _)| *form)
    }

    /// The form, and how its envelopes are read.
    #[must_use]
    pub fn reading(&self, key: &ConnectionKey) -> Option<(Form, TagLayout)> {
        self.readings.get(key).copied()
    }

    /// The library's name for outputs.
    #[must_use]
    pub fn stack(&self, key: &ConnectionKey) -> Option<String> {
        self.reading(key).map(|(form, layout)| name(form, layout))
    }
}

fn name(form: Form, layout: TagLayout) -> String {
    match form {
        Form::Ob1 => format!("{} {}", TagLayout::OpenMpi.name(), form.name()),
        Form::Mvapich2 | Form::Nccl => form.name().to_owned(),
        Form::UcxVerbs | Form::UcxMlx5 | Form::UcxUd | Form::Rxm => format!("{} {}", layout.name(), form.name()),
    }
}

/// The libraries of a job, several where it uses several transports.
pub(super) fn name_of(job: &Job<'_>) -> String {
    let mut detection = Detection::default();
    detection.add(&job.components);
    let names: BTreeSet<String> = detection.readings.values().map(|(form, layout)| name(*form, *layout)).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}
