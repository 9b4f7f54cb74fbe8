//! The detected library and tag layout of each connection.

use super::component::Component;
use super::jobs::InferredJob;
use super::tag_layout::LibraryConnection;
use crate::model::ConnectionKey;
use ibscope_parsers::mpi::{LibraryStack, TagLayout};
use std::collections::{BTreeMap, BTreeSet};

/// Detected libraries by connection.
#[derive(Clone, Debug, Default)]
pub struct Detection {
    forms_and_layouts: BTreeMap<ConnectionKey, (LibraryStack, TagLayout)>,
}

impl Detection {
    pub(super) fn add(&mut self, components: &[Component<'_>]) {
        for own in components {
            // Datagrams without envelopes are connection messages, not MPI messages.
            let has_messages = |fit: &LibraryConnection<'_>| {
                let enveloped = fit.connection.votes().enveloped.iter().sum::<u64>();
                !fit.connection.key.is_datagram() || enveloped > 0
            };
            let readings = own.connections.iter().filter(|(fit, _)| has_messages(fit));
            self.forms_and_layouts.extend(readings.map(|(fit, _)| (fit.connection.key, (fit.form, own.layout))));
        }
    }

    /// The detected library of a connection.
    #[must_use]
    pub fn form(&self, key: &ConnectionKey) -> Option<LibraryStack> {
        self.forms_and_layouts.get(key).map(|(form, _)| *form)
    }

    /// The detected library, and the layout of its tags.
    #[must_use]
    pub fn form_and_layout(&self, key: &ConnectionKey) -> Option<(LibraryStack, TagLayout)> {
        self.forms_and_layouts.get(key).copied()
    }

    /// The library's name for outputs.
    #[must_use]
    pub fn stack(&self, key: &ConnectionKey) -> Option<String> {
        self.form_and_layout(key).map(|(form, layout)| name(form, layout))
    }
}

fn name(form: LibraryStack, layout: TagLayout) -> String {
    match form {
        LibraryStack::Ob1 => format!("{} {}", TagLayout::OpenMpi.name(), form.name()),
        LibraryStack::Mvapich2 | LibraryStack::Nccl => form.name().to_owned(),
        LibraryStack::UcxVerbs | LibraryStack::UcxMlx5 | LibraryStack::UcxUd | LibraryStack::Rxm => {
            format!("{} {}", layout.name(), form.name())
        }
    }
}

/// The libraries of a job, comma-separated; a job with several transports has several.
pub(super) fn name_of(job: &InferredJob<'_>) -> String {
    let mut detection = Detection::default();
    detection.add(&job.components);
    let names: BTreeSet<String> =
        detection.forms_and_layouts.values().map(|(form, layout)| name(*form, *layout)).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}
