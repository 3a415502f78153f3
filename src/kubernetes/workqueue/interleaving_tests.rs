//! Every interleaving of a few threads of the shipped queue: adders with each priority, two workers
//! with one permit, and a shutdown at any time.
//!
//! A step is what one thread does between two points where another may run: a section under the
//! lock, or the ring of the bell after it; and the receipt of a call. Each step runs on a real
//! [`WorkQueue`], built from the model's values and taken apart afterwards.

use std::sync::Arc;

use super::{Dedup, Found, Priority, WorkQueue};
use crate::stdx::testing::FakeClock;
use crate::stdx::testing::explore::{Explored, explore};

const PRIORITIES: [Priority; 2] = [Priority::Low, Priority::High];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Looks,
    Works(u8),
    Waits,
    Ended,
}

/// The threads: two workers, by their index, and these.
const ADDER: usize = 2;
const STOPPER: usize = 3;

#[derive(Clone)]
struct Model {
    dedup: Dedup<u8>,
    shutting_down: bool,
    /// Whether the bell holds a call.
    bell: bool,
    /// The threads that ring the bell before they do anything else.
    rings: [bool; 4],
    adds_left: usize,
    workers: [Worker; 2],
    /// Ghost state: keys that were added since a worker last started on them.
    needs_work: [bool; 3],
    /// Ghost state: keys that were denied a permit since a worker last started on them.
    needs_permit: [bool; 3],
    wrong: Option<String>,
}

/// The first two keys have the same tenant.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the type that the queue takes"
)]
fn tenant_of(key: &u8) -> u64 {
    u64::from(key / 2)
}

impl Model {
    fn new(n_workers: usize, adds_left: usize) -> Self {
        Self {
            dedup: Dedup::new(n_workers),
            shutting_down: false,
            bell: false,
            rings: [false; 4],
            adds_left,
            workers: [Worker::Looks; 2],
            needs_work: [false; 3],
            needs_permit: [false; 3],
            wrong: None,
        }
    }

    fn build(&self) -> WorkQueue<u8> {
        let queue = WorkQueue::new(Arc::new(FakeClock::default()));
        let queue = queue.with_tenants(0, tenant_of);
        if self.bell {
            queue.call();
        }
        let mut state = queue.state.lock();
        state.dedup = self.dedup.clone();
        state.shutting_down = self.shutting_down;
        drop(state);
        queue
    }

    /// Returns the state after a step of a thread, which returns whether to ring the bell.
    fn after(&self, thread: usize, step: impl FnOnce(&mut Self, &WorkQueue<u8>) -> bool) -> Self {
        let (mut after, queue) = (self.clone(), self.build());
        after.rings[thread] = step(&mut after, &queue);
        let state = queue.state.lock();
        after.dedup = state.dedup.clone();
        after.shutting_down = state.shutting_down;
        drop(state);
        after.bell = queue.bell.1.try_recv().is_ok();
        after
    }

    fn steps(&self) -> Vec<(String, Self)> {
        let mut steps = Vec::new();
        for (thread, rings) in self.rings.into_iter().enumerate() {
            if rings {
                let ring = |_: &mut Self, queue: &WorkQueue<u8>| {
                    queue.call();
                    false
                };
                steps.push((format!("thread {thread} rings"), self.after(thread, ring)));
            } else if thread < ADDER {
                self.worker_steps(thread, &mut steps);
            } else if thread == ADDER && self.adds_left > 0 {
                self.adder_steps(&mut steps);
            } else if thread == STOPPER && !self.shutting_down {
                let shut_down = |_: &mut Self, queue: &WorkQueue<u8>| {
                    queue.state.lock().shutting_down = true;
                    true
                };
                steps.push(("shut down".to_owned(), self.after(thread, shut_down)));
            }
        }
        steps
    }

    fn adder_steps(&self, steps: &mut Vec<(String, Self)>) {
        for (key, priority) in (0..3).flat_map(|key| PRIORITIES.map(|it| (key, it))) {
            let add = |after: &mut Self, queue: &WorkQueue<u8>| {
                after.adds_left -= 1;
                after.needs_work[usize::from(key)] |= !self.shutting_down;
                queue.accept(&key, priority)
            };
            let what = format!("add {key} {priority:?}");
            steps.push((what, self.after(ADDER, add)));
        }
    }

    fn worker_steps(&self, index: usize, steps: &mut Vec<(String, Self)>) {
        let mut step = |what: &str, step: &dyn Fn(&mut Self, &WorkQueue<u8>) -> bool| {
            let what = format!("worker {index} {what}");
            steps.push((what, self.after(index, step)));
        };
        match self.workers[index] {
            Worker::Looks => step("looks", &|after, queue| {
                let (found, calls) = queue.find();
                after.workers[index] = match found {
                    Found::Key(key) => {
                        after.begun(key);
                        Worker::Works(key)
                    }
                    Found::Nothing => Worker::Waits,
                    Found::End => Worker::Ended,
                };
                calls
            }),
            Worker::Works(key) => {
                step("is done", &|after, queue| {
                    after.workers[index] = Worker::Looks;
                    queue.end(&key)
                });
                step("asks for a permit", &|after, queue| {
                    let (may, calls) = queue.ask(&key);
                    after.needs_permit[usize::from(key)] = !may;
                    calls
                });
            }
            Worker::Waits if self.bell => step("is called", &|after, queue| {
                queue.bell.1.try_recv().expect("it holds a call");
                after.workers[index] = Worker::Looks;
                false
            }),
            Worker::Waits | Worker::Ended => {}
        }
    }

    fn begun(&mut self, key: u8) {
        if self.workers.contains(&Worker::Works(key)) {
            self.wrong = Some(format!("two workers have {key}"));
        }
        self.needs_work[usize::from(key)] = false;
        self.needs_permit[usize::from(key)] = false;
    }

    /// PROPERTY P23: In every interleaving of adds of three keys of two tenants, two workers and a
    /// shutdown, no key that needs work or a permit is lost, no two workers have one key or permit,
    /// no key waits beside a free worker that may take it, and after the shutdown every worker
    /// ends.
    fn check(&self) -> Result<(), String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        for key in 0..3 {
            let (needs_work, is_dirty) =
                (self.needs_work[usize::from(key)], self.dedup.is_dirty(&key));
            let waits = self.dedup.waits_for_permit(&key);
            if needs_work && !is_dirty || self.needs_permit[usize::from(key)] && !waits {
                return Err(format!("{key} is lost"));
            }
            if is_dirty && !needs_work && !waits {
                return Err(format!("{key} waits for nothing"));
            }
        }
        if self.dedup.has_lost_large() {
            return Err("a key waits beside a free permit".to_owned());
        }
        // A worker that works may do so for long.
        let looks = self.workers.contains(&Worker::Looks);
        if looks || self.bell || self.rings != [false; 4] {
            return Ok(());
        }
        if self.workers.contains(&Worker::Waits) {
            if self.dedup.is_ready() {
                return Err("a key waits beside a free worker".to_owned());
            }
            if self.shutting_down && self.dedup.is_drained() {
                return Err("a worker does not end".to_owned());
            }
        }
        Ok(())
    }

    fn identity(&self) -> impl Eq + std::hash::Hash + use<> {
        (
            self.dedup.identity(),
            (self.shutting_down, self.bell, self.rings),
            (self.adds_left, self.workers),
            (self.needs_work, self.needs_permit, self.wrong.is_some()),
        )
    }
}

fn explore_all(n_workers: usize, adds_left: usize) -> Explored {
    let start = Model::new(n_workers, adds_left);
    explore(
        start,
        usize::MAX,
        Model::identity,
        Model::steps,
        Model::check,
    )
}

/// Two adds of three keys, each with any priority, with a worker for each tenant.
#[test]
fn no_interleaving_loses_a_key() {
    let explored = explore_all(2, 2);
    assert!(explored.states > 1_000, "{explored:?}");
    explored.keep("queue");
}

/// Without a limit for a tenant.
#[test]
fn no_interleaving_of_one_tenant_loses_a_key() {
    explore_all(usize::MAX, 2);
}
