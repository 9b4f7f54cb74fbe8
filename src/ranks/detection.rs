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
    stacks_and_layouts: BTreeMap<ConnectionKey, (LibraryStack, TagLayout)>,
}

impl Detection {
    pub(super) fn add(&mut self, components: &[Component<'_>]) {
        for own in components {
            // Datagrams without envelopes are connection messages, not MPI messages.
            let has_messages = |found: &LibraryConnection<'_>| {
                let enveloped = found.connection.votes().enveloped.iter().sum::<u64>();
                !found.connection.key.is_datagram() || enveloped > 0
            };
            let readings = own.connections.iter().filter(|(found, _)| has_messages(found));
            self.stacks_and_layouts
                .extend(readings.map(|(found, _)| (found.connection.key, (found.stack, own.layout))));
        }
    }

    /// The detected library of a connection.
    #[must_use]
    pub fn stack(&self, key: &ConnectionKey) -> Option<LibraryStack> {
        self.stacks_and_layouts.get(key).map(|(stack, _)| *stack)
    }

    /// The detected library, and the layout of its tags.
    #[must_use]
    pub fn stack_and_layout(&self, key: &ConnectionKey) -> Option<(LibraryStack, TagLayout)> {
        self.stacks_and_layouts.get(key).copied()
    }

    /// The library's name for outputs.
    #[must_use]
    pub fn stack_name(&self, key: &ConnectionKey) -> Option<String> {
        self.stack_and_layout(key).map(|(stack, layout)| name(stack, layout))
    }
}

fn name(stack: LibraryStack, layout: TagLayout) -> String {
    match stack {
        LibraryStack::Ob1 => format!("{} {}", TagLayout::OpenMpi.name(), stack.name()),
        LibraryStack::Mvapich2 | LibraryStack::Nccl => stack.name().to_owned(),
        LibraryStack::UcxVerbs | LibraryStack::UcxMlx5 | LibraryStack::UcxUd | LibraryStack::Rxm => {
            format!("{} {}", layout.name(), stack.name())
        }
    }
}

/// The libraries of a job, comma-separated; a job with several transports has several.
pub(super) fn name_of(job: &InferredJob<'_>) -> String {
    let mut detection = Detection::default();
    detection.add(&job.components);
    let names: BTreeSet<String> =
        detection.stacks_and_layouts.values().map(|(stack, layout)| name(*stack, *layout)).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}
