//! Every interleaving of a few threads of the shipped queue: adders with each priority, a worker
//! for all lanes and one for small work, and a shutdown at any time.
//!
//! A step is what one thread does between two points where another may run: a section under the
//! lock, a send, a receive, the drop of the senders. Each step runs on a real [`Queue`], built from
//! the model's values and taken apart afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_channel::TryRecvError;

use super::{Dedup, Lanes, Priority, Queue, Senders, Sending, TURN};
use crate::stdx::clock::FakeClock;
use crate::stdx::explore::explore;

const PRIORITIES: [Priority; 3] = [Priority::Low, Priority::Large, Priority::High];
const LANES: [Lanes; 2] = [Lanes::All, Lanes::Small];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Adder {
    Idle,
    Sends(u8, Priority),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    Received(u8, Priority),
    Works(u8),
    /// And drops the senders afterwards, if true.
    Sends(u8, Priority, bool),
    Drops,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stopper {
    Waits,
    Drops,
    Done,
}

#[derive(Clone)]
struct Model {
    dedup: Dedup<u8>,
    has_senders: bool,
    shutting_down: bool,
    n_looks: [u32; 2],
    /// The keys in the channels of low, large and high priority.
    channels: [Vec<u8>; 3],
    is_disconnected: bool,
    adds_left: usize,
    adders: [Adder; 2],
    workers: [Worker; 2],
    stopper: Stopper,
    /// Ghost state: keys that were added since a worker last started on them.
    needs_work: [bool; 2],
    wrong: Option<String>,
}

/// A real queue, and what the threads that hold its senders need.
struct Real {
    queue: Queue<u8>,
    senders: Option<Arc<Senders<u8>>>,
}

impl Model {
    fn new(adds_left: usize) -> Self {
        Self {
            dedup: Dedup::new(),
            has_senders: true,
            shutting_down: false,
            n_looks: [0; 2],
            channels: Default::default(),
            is_disconnected: false,
            adds_left,
            adders: [Adder::Idle; 2],
            workers: [Worker::Idle; 2],
            stopper: Stopper::Waits,
            needs_work: [false; 2],
            wrong: None,
        }
    }

    /// True if a thread other than the queue itself holds senders.
    fn has_holder(&self) -> bool {
        self.adders.iter().any(|it| matches!(it, Adder::Sends(..)))
            || self
                .workers
                .iter()
                .any(|it| matches!(it, Worker::Sends(..) | Worker::Drops))
            || self.stopper == Stopper::Drops
    }

    /// Builds the queue. The senders are those that the other threads hold.
    fn build(&self) -> Real {
        let queue = Queue::new(Arc::new(FakeClock::default()));
        let mut state = queue.lock();
        let senders = state.senders.take().expect("a new queue has senders");
        for (priority, keys) in PRIORITIES.iter().zip(&self.channels) {
            for key in keys {
                let (key, senders) = (*key, Arc::clone(&senders));
                let priority = *priority;
                Sending {
                    key,
                    priority,
                    senders,
                }
                .send();
            }
        }
        state.dedup = self.dedup.clone();
        state.shutting_down = self.shutting_down;
        state.senders = self.has_senders.then(|| Arc::clone(&senders));
        drop(state);
        for (looks, n) in queue.n_looks.iter().zip(self.n_looks) {
            looks.store(n, Ordering::Relaxed);
        }
        let senders = self.has_holder().then_some(senders);
        Real { queue, senders }
    }

    /// Takes the queue apart. `changed` has the new state of the threads, one of which may hold
    /// `held`.
    fn take(mut changed: Self, real: Real) -> Self {
        let Real { queue, senders } = real;
        let held = changed.has_holder();
        drop(senders.filter(|_| !held));
        let state = queue.lock();
        changed.dedup = state.dedup.clone();
        changed.has_senders = state.senders.is_some();
        changed.shutting_down = state.shutting_down;
        drop(state);
        changed.n_looks = [0, 1].map(|lane| {
            let looks: &AtomicU32 = &queue.n_looks[lane];
            looks.load(Ordering::Relaxed) % (2 * TURN)
        });
        let receivers = [&queue.low, &queue.large, &queue.high];
        changed.channels = receivers.map(|channel| channel.try_iter().collect());
        changed.is_disconnected = !held && queue.high.try_recv() == Err(TryRecvError::Disconnected);
        changed
    }

    fn steps(&self) -> Vec<(String, Self)> {
        let mut steps = Vec::new();
        for adder in 0..self.adders.len() {
            self.adder_steps(adder, &mut steps);
        }
        for worker in 0..self.workers.len() {
            steps.extend(self.worker_step(worker));
        }
        let mut after = self.clone();
        let real = self.build();
        match self.stopper {
            Stopper::Waits => {
                let senders = real.queue.close();
                after.stopper = if senders.is_some() {
                    Stopper::Drops
                } else {
                    Stopper::Done
                };
                steps.push(("shut down".to_owned(), Self::take(after, real)));
            }
            Stopper::Drops => {
                after.stopper = Stopper::Done;
                steps.push(("drop the senders".to_owned(), Self::take(after, real)));
            }
            Stopper::Done => {}
        }
        steps
    }

    fn adder_steps(&self, index: usize, steps: &mut Vec<(String, Self)>) {
        if let Adder::Sends(key, priority) = self.adders[index] {
            let (mut after, real) = (self.clone(), self.build());
            real.send(key, priority);
            after.adders[index] = Adder::Idle;
            return steps.push((format!("adder {index} sends"), Self::take(after, real)));
        }
        if self.adds_left == 0 {
            return;
        }
        for (key, priority) in (0..2).flat_map(|key| PRIORITIES.map(|it| (key, it))) {
            let (mut after, real) = (self.clone(), self.build());
            after.adds_left -= 1;
            after.needs_work[usize::from(key)] |= !self.shutting_down;
            if real.queue.accept(key, priority).is_some() {
                after.adders[index] = Adder::Sends(key, priority);
            }
            let what = format!("adder {index} adds {key} {priority:?}");
            steps.push((what, Self::take(after, real)));
        }
    }

    fn worker_step(&self, index: usize) -> Option<(String, Self)> {
        let (mut after, real) = (self.clone(), self.build());
        let (what, then) = match self.workers[index] {
            Worker::Idle => match real.queue.receive(LANES[index]) {
                Some((key, priority)) => ("receives", Worker::Received(key, priority)),
                None if self.is_disconnected => ("ends", Worker::Ended),
                None => return None,
            },
            Worker::Received(key, priority) => {
                let begins = real.queue.begin(&key, priority);
                if begins {
                    after.begun(key);
                }
                (
                    "begins",
                    if begins {
                        Worker::Works(key)
                    } else {
                        Worker::Idle
                    },
                )
            }
            Worker::Works(key) => match real.queue.end(&key) {
                (Some(sending), last) => {
                    let then = Worker::Sends(key, sending.priority, last.is_some());
                    ("is done", then)
                }
                (None, Some(_)) => ("is done", Worker::Drops),
                (None, None) => ("is done", Worker::Idle),
            },
            Worker::Sends(key, priority, drops) => {
                real.send(key, priority);
                ("sends", if drops { Worker::Drops } else { Worker::Idle })
            }
            Worker::Drops => ("drops the senders", Worker::Idle),
            Worker::Ended => return None,
        };
        after.workers[index] = then;
        Some((format!("worker {index} {what}"), Self::take(after, real)))
    }

    fn begun(&mut self, key: u8) {
        let is_other = |it: &Worker| matches!(it, Worker::Works(of) if *of == key);
        if self.workers.iter().any(is_other) {
            self.wrong = Some(format!("two workers have {key}"));
        }
        self.needs_work[usize::from(key)] = false;
    }

    /// PROPERTY P23: In every interleaving of four adds of two keys by two threads, two workers and
    /// a shutdown, no key that needs work is lost, no two workers have one key, and after the
    /// shutdown every worker ends.
    fn check(&self) -> Result<(), String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        for key in 0..2 {
            if self.needs_work[usize::from(key)] != self.dedup.is_dirty(&key) {
                return Err(format!("{key} is lost"));
            }
        }
        // Nobody can do anything, except that the worker for small work leaves large keys.
        let idle = |it: &Worker| matches!(it, Worker::Idle | Worker::Ended);
        let at_rest = !self.has_holder() && self.workers.iter().all(idle);
        let all_ended = self.workers[0] == Worker::Ended;
        let nothing_to_receive = self.channels.iter().all(Vec::is_empty);
        let needs_work = self.needs_work.contains(&true);
        if at_rest && (all_ended || nothing_to_receive) && needs_work {
            return Err("a key waits and no worker will get it".to_owned());
        }
        let is_over = self.stopper == Stopper::Done && at_rest && nothing_to_receive;
        if is_over && !self.is_disconnected {
            return Err("no worker will end".to_owned());
        }
        Ok(())
    }

    fn identity(&self) -> impl Eq + std::hash::Hash + use<> {
        (
            self.dedup.identity(),
            (self.has_senders, self.shutting_down, self.is_disconnected),
            (self.n_looks, self.channels.clone(), self.adds_left),
            (self.adders, self.workers, self.stopper),
            (self.needs_work, self.wrong.is_some()),
        )
    }
}

impl Real {
    fn send(&self, key: u8, priority: Priority) {
        let senders = self.senders.clone().expect("the thread holds them");
        Sending {
            key,
            priority,
            senders,
        }
        .send();
    }
}

/// Four adds of two keys, each with any priority, by two adders.
#[test]
fn no_interleaving_loses_a_key() {
    let start = Model::new(4);
    let explored = explore(
        start,
        usize::MAX,
        Model::identity,
        Model::steps,
        Model::check,
    );
    assert!(explored.states > 80_000, "{explored:?}");
    explored.keep("queue");
}
