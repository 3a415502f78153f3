//! Whose connections a request goes on: those that all threads share, or the thread's own.
//!
//! The shared ones are taken in turns, so that under any load all are in use and none grows old enough
//! to be closed. That suits threads that last. Those that come with a burst of work and go after it have
//! connections of their own ([`own_connections`]), which nobody else keeps busy and which end with them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

use ureq::Agent;

thread_local! {
    /// `None` for a thread that shares.
    static OWN: RefCell<Option<Vec<Own>>> = const { RefCell::new(None) };
}

/// From now on the calling thread has connections of its own, one with each client that it uses, until
/// it ends.
pub fn own_connections() {
    OWN.with_borrow_mut(|own| {
        own.get_or_insert_default();
    });
}

/// The connections of one client.
#[derive(Clone)]
pub(super) struct Agents {
    shared: Agent,
    /// `None` if all threads share.
    own: Option<Arc<OwnAgents>>,
}

/// Those of threads that have their own.
struct OwnAgents {
    make: Box<dyn Fn() -> Agent + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// To be shut down.
    agents: HashMap<ThreadId, Agent>,
    is_shut_down: bool,
}

/// The connection of this thread with one client.
struct Own {
    of: Weak<OwnAgents>,
    thread: ThreadId,
    agent: Agent,
}

impl Agents {
    /// One set of connections for all threads.
    pub(super) fn shared(agent: Agent) -> Self {
        Self {
            shared: agent,
            own: None,
        }
    }

    /// The same, and what `make` makes for each thread that has its own.
    pub(super) fn or_own(self, make: impl Fn() -> Agent + Send + Sync + 'static) -> Self {
        let own = OwnAgents {
            make: Box::new(make),
            state: Mutex::default(),
        };
        Self {
            own: Some(Arc::new(own)),
            ..self
        }
    }

    /// The connections for the calling thread.
    pub(super) fn here(&self) -> Agent {
        let own = self.own.as_ref();
        let own = own.and_then(|own| OWN.with_borrow_mut(|all| Some(own.of(all.as_mut()?))));
        own.unwrap_or_else(|| self.shared.clone())
    }

    /// Cuts all connections, also those in use by other threads, and lets none be made any more.
    pub(super) fn shut_down(&self) {
        self.shared.clone().shutdown();
        let Some(own) = &self.own else { return };
        let mut state = own.lock();
        state.is_shut_down = true;
        let agents: Vec<Agent> = state.agents.values().cloned().collect();
        drop(state);
        agents.into_iter().for_each(Agent::shutdown);
    }
}

impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Agents").field(&self.shared).finish()
    }
}

impl OwnAgents {
    /// The one among `all` of this thread that belongs here; made if there is none.
    fn of(self: &Arc<Self>, all: &mut Vec<Own>) -> Agent {
        let mut belonging = all
            .iter()
            .filter(|own| own.of.as_ptr() == Arc::as_ptr(self));
        if let Some(own) = belonging.next() {
            return own.agent.clone();
        }
        all.retain(|own| own.of.strong_count() > 0);
        let (thread, agent) = (thread::current().id(), (self.make)());
        let mut state = self.lock();
        state.agents.insert(thread, agent.clone());
        let is_shut_down = state.is_shut_down;
        drop(state);
        if is_shut_down {
            agent.clone().shutdown();
        }
        all.push(Own {
            of: Arc::downgrade(self),
            thread,
            agent: agent.clone(),
        });
        agent
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(own) = self.of.upgrade() {
            let agent = own.lock().agents.remove(&self.thread);
            // Closed with its connections where nobody waits for the lock.
            drop(agent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use ureq::{Agent, Error};

    use super::{Agents, own_connections};

    /// Agents that are counted as they are made.
    fn counted() -> (Agents, Arc<AtomicUsize>) {
        let n_made = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&n_made);
        let agents = Agents::shared(Agent::new_with_defaults()).or_own(move || {
            counter.fetch_add(1, Ordering::SeqCst);
            Agent::new_with_defaults()
        });
        (agents, n_made)
    }

    fn n_own(agents: &Agents) -> usize {
        let own = agents.own.as_ref().expect("own agents");
        own.lock().agents.len()
    }

    fn is_shut_down(agent: &Agent) -> bool {
        let answer = agent.get("http://127.0.0.1:1").call();
        matches!(answer, Err(Error::Io(error)) if error.kind() == ErrorKind::NotConnected)
    }

    #[test]
    fn threads_share_unless_they_say_otherwise() {
        let (agents, n_made) = counted();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| agents.here());
            }
        });
        assert_eq!(n_made.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_thread_has_one_of_its_own_with_each_client_until_it_ends() {
        let (first, n_first) = counted();
        let (second, n_second) = counted();
        for round in 1..3 {
            thread::scope(|scope| {
                scope.spawn(|| {
                    own_connections();
                    first.here();
                    first.here();
                    second.here();
                    second.here();
                    own_connections();
                    first.here();
                    assert_eq!((n_own(&first), n_own(&second)), (1, 1));
                });
            });
            assert_eq!(n_first.load(Ordering::SeqCst), round);
            assert_eq!(n_second.load(Ordering::SeqCst), round);
            // What a thread holds is let go shortly after its body's end.
            while n_own(&first) + n_own(&second) > 0 {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn a_client_that_is_gone_leaves_nothing() {
        thread::scope(|scope| {
            scope.spawn(|| {
                own_connections();
                for _ in 0..3 {
                    counted().0.here();
                }
                super::OWN.with_borrow(|own| assert_eq!(own.as_ref().map(Vec::len), Some(1)));
            });
        });
    }

    #[test]
    fn all_are_shut_down_those_to_come_too() {
        let (agents, _n_made) = counted();
        thread::scope(|scope| {
            scope.spawn(|| {
                own_connections();
                let before = agents.here();
                assert!(!is_shut_down(&before));
                agents.shut_down();
                assert!(is_shut_down(&before));
                assert!(is_shut_down(&agents.here()));
            });
        });
        thread::scope(|scope| {
            scope.spawn(|| {
                own_connections();
                assert!(is_shut_down(&agents.here()));
            });
        });
        assert!(is_shut_down(&agents.here()));
    }
}
