//! A bound on the reviews in progress, shared between the clients so that none keeps the others
//! out: clients without credentials have a few slots of their own, and no address has more than a
//! quarter. Connection threads take slots.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum reviews in progress for clients without credentials. Further ones fail.
const ANONYMOUS: usize = 4;

/// Maximum reviews in progress for clients with credentials, and maximum of clients that wait for a
/// slot. Together well below the limit on connections.
const WITH_CREDENTIALS: usize = 12;

/// How long a client with credentials waits for a slot.
const WAIT: Duration = Duration::from_secs(2);

/// Who asks for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Client {
    pub(super) has_credentials: bool,
    pub(super) address: Option<IpAddr>,
}

/// The slots. The lock is held for map operations only.
#[derive(Debug, Default)]
pub(super) struct Slots {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: BTreeMap<Client, usize>,
    waiting: BTreeMap<Client, usize>,
}

/// A slot until it is dropped.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    slots: &'a Slots,
    client: Client,
}

impl Slots {
    /// Takes a slot. A client with credentials waits for one for a moment.
    pub(super) fn take(&self, client: Client) -> Option<Slot<'_>> {
        let mut state = self.lock();
        if !has_room(&state.running, client) {
            // Without these bounds, waiting clients would hold all connections.
            if !client.has_credentials || !has_room(&state.waiting, client) {
                return None;
            }
            *state.waiting.entry(client).or_default() += 1;
            let is_full = |state: &mut State| !has_room(&state.running, client);
            let waited = self.freed.wait_timeout_while(state, WAIT, is_full);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            remove_one(&mut state.waiting, client);
            if !has_room(&state.running, client) {
                return None;
            }
        }
        *state.running.entry(client).or_default() += 1;
        drop(state);
        Some(Slot {
            slots: self,
            client,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        remove_one(&mut self.slots.lock().running, self.client);
        self.slots.freed.notify_all();
    }
}

fn has_room(counts: &BTreeMap<Client, usize>, client: Client) -> bool {
    let max = if client.has_credentials {
        WITH_CREDENTIALS
    } else {
        ANONYMOUS
    };
    let alike = counts
        .iter()
        .filter(|(other, _)| other.has_credentials == client.has_credentials);
    let total: usize = alike.map(|(_, count)| count).sum();
    total < max && counts.get(&client).is_none_or(|own| *own < max / 4)
}

fn remove_one(counts: &mut BTreeMap<Client, usize>, client: Client) {
    if let Some(count) = counts.get_mut(&client) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{ANONYMOUS, Client, Slots, WITH_CREDENTIALS};
    use crate::stdx::stop::Stop;
    use crate::stdx::thread::spawn;

    fn client(has_credentials: bool, number: usize) -> Client {
        let number = u8::try_from(number).expect("a small number");
        Client {
            has_credentials,
            address: Some([10, 0, 0, number].into()),
        }
    }

    #[test]
    fn no_client_keeps_the_others_out() {
        let slots = Slots::default();
        let mut taken = vec![slots.take(client(false, 0)).expect("the first one")];
        assert!(slots.take(client(false, 0)).is_none(), "a quarter is one");
        taken.extend((1..ANONYMOUS).map(|number| slots.take(client(false, number)).expect("free")));
        assert!(slots.take(client(false, 9)).is_none(), "all are taken");
        for number in 0..WITH_CREDENTIALS {
            let slot = slots.take(client(true, number / 3));
            taken.push(slot.expect("anonymous clients have none of these"));
        }
        taken.clear();
        assert!(slots.take(client(false, 9)).is_some());
    }

    #[test]
    fn a_client_with_credentials_waits_for_a_slot() {
        let slots = Arc::new(Slots::default());
        let own = || slots.take(client(true, 0)).expect("one is free");
        let taken = [own(), own(), own()];
        let waiting = Arc::clone(&slots);
        let thread = spawn("t-waits", &Stop::new(), move || {
            waiting.take(client(true, 0)).expect("one becomes free");
        });
        while slots.lock().waiting.is_empty() && !thread.is_finished() {
            std::thread::yield_now();
        }
        drop(taken);
        thread.join().expect("it got a slot");
    }
}
