//! Where the workers of the modes run: on a thread each, or as tasks of two runtimes at once.

use std::any::Any;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use smol::future::FutureExt;

/// What runs a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// A thread of its own, which may block.
    Thread,
    /// A task on tokio's multi-thread runtime.
    Tokio,
    /// A task on smol's executor.
    Smol,
}

impl Host {
    /// Sleeps as the host's workers do.
    pub(super) async fn sleep(self, time: Duration) {
        match self {
            Self::Thread => thread::sleep(time),
            Self::Tokio => tokio::time::sleep(time).await,
            Self::Smol => _ = smol::Timer::after(time).await,
        }
    }
}

/// A worker, ready to be run.
pub(super) type Job<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// What became of it; a panic is told to the panic hook, and here.
pub(super) type Ending<T> = Result<T, Box<dyn Any + Send>>;

/// Runs all jobs to their ends, each on its host; `threads` threads are for the runtimes.
///
/// # Errors
///
/// What kept a runtime from being started.
pub(super) fn run_all<T: Send + 'static>(
    jobs: Vec<(Host, Job<T>)>,
    threads: u32,
) -> io::Result<Vec<Ending<T>>> {
    let (blocking, tasks): (Vec<_>, Vec<_>) = jobs
        .into_iter()
        .partition(|(host, _)| *host == Host::Thread);
    let blocked: Vec<_> = blocking
        .into_iter()
        .map(|(_, job)| thread::spawn(move || smol::block_on(caught(job))))
        .collect();
    let mut endings = if tasks.is_empty() {
        vec![]
    } else {
        run_tasks(tasks, threads)?
    };
    for thread in blocked {
        endings.push(thread.join().and_then(|ending| ending));
    }
    Ok(endings)
}

/// Runs the tasks of both runtimes; each has half of the threads, and one at the least.
fn run_tasks<T: Send + 'static>(
    tasks: Vec<(Host, Job<T>)>,
    threads: u32,
) -> io::Result<Vec<Ending<T>>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.div_ceil(2) as usize)
        .enable_time()
        .build()?;
    let executor = Arc::new(smol::Executor::new());
    let (stop, stopped) = smol::channel::unbounded::<()>();
    let smol_threads: Vec<_> = (0..(threads / 2).max(1))
        .map(|_| {
            let (executor, stopped) = (Arc::clone(&executor), stopped.clone());
            thread::spawn(move || smol::block_on(executor.run(stopped.recv())))
        })
        .collect();
    let mut on_tokio = vec![];
    let mut on_smol = vec![];
    for (host, job) in tasks {
        if host == Host::Tokio {
            on_tokio.push(runtime.spawn(caught(job)));
        } else {
            on_smol.push(executor.spawn(caught(job)));
        }
    }
    let mut endings = vec![];
    for task in on_tokio {
        let ending = runtime.block_on(task);
        endings.push(ending.unwrap_or_else(|error| Err(Box::new(error))));
    }
    endings.extend(on_smol.into_iter().map(smol::block_on));
    drop(stop);
    for thread in smol_threads {
        // The channel has ended, which is an error of its receiver's and none of ours.
        let _ = thread.join();
    }
    Ok(endings)
}

async fn caught<T>(job: Job<T>) -> Ending<T> {
    AssertUnwindSafe(job).catch_unwind().await
}
