//! The threads that encode and decode tables: those of polars.

use super::ProfileError;
use polars_core::runtime::THREAD_POOL;
use rayon::prelude::*;
use std::panic::catch_unwind;
use std::sync::LazyLock;

/// Starts the polars thread pool early and returns an error if that fails; polars itself would
/// panic at first use.
pub(super) fn start() -> Result<(), ProfileError> {
    catch_unwind(|| LazyLock::force(&THREAD_POOL)).map(drop).map_err(|_| ProfileError::Threads)
}

/// A piece of work that may run in any thread.
pub(super) type Task<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// Runs tasks in the threads of polars, several at a time. Returns the results in order.
pub(super) fn in_parallel<T: Send>(tasks: Vec<Task<'_, T>>) -> Vec<T> {
    THREAD_POOL.install(|| tasks.into_par_iter().with_max_len(1).map(|task| task()).collect())
}
