//! What a connection needs only while it carries a request: lent to it, so that memory follows the
//! requests under way and not the connections that are kept.
//!
//! The bytes are pages of their own. Taken from the allocator, those of many connections at once would
//! leave holes below what was allocated after them, which it can use again but not give back.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::MmapMut;
use ureq::unversioned::transport::Buffers;

/// Buffers that lie ready for the next request once a connection has ended. As long as none ends there
/// are as many as there ever were requests at once: their threads will need them again, and new pages
/// take more of the processor than what goes through them.
const READY_MAX: usize = 4;

/// Those of one client.
#[derive(Clone, Debug, Default)]
pub(super) struct Lenders {
    /// For what goes through the socket.
    pub(super) tcp: Lender,
    /// For what is inside TLS.
    pub(super) tls: Lender,
}

/// Lends buffers to connections that ask for the same sizes.
#[derive(Clone, Debug, Default)]
pub(super) struct Lender {
    ready: Arc<Mutex<Vec<Lent>>>,
}

/// Where a connection's buffers are while it has some.
#[derive(Debug)]
pub(super) struct Borrower {
    lender: Lender,
    output_size: usize,
    input_size: usize,
    lent: Option<Lent>,
}

/// The buffers of one connection: first the bytes to be sent, then those that have come.
#[derive(Debug)]
pub(super) struct Lent {
    bytes: MmapMut,
    output_size: usize,
    n_held: usize,
    /// What has come and was not consumed, counted from the end of the output.
    unread: Range<usize>,
    was_consumed: bool,
}

impl Lender {
    /// For a connection that needs so many bytes. Lends nothing yet.
    pub(super) fn borrower(&self, output_size: usize, input_size: usize) -> Borrower {
        Borrower {
            lender: self.clone(),
            output_size,
            input_size,
            lent: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Lent>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Borrower {
    /// The buffers, borrowed now if they are not yet.
    ///
    /// # Panics
    /// If the system has no memory.
    pub(super) fn lent(&mut self) -> &mut Lent {
        self.lent.get_or_insert_with(|| {
            let ready = self.lender.lock().pop();
            ready.unwrap_or_else(|| Lent::new(self.output_size, self.input_size))
        })
    }

    /// Gives the buffers back unless something is in them.
    pub(super) fn give_back(&mut self) {
        let Some(lent) = self.lent.take_if(|lent| lent.is_empty()) else {
            return;
        };
        self.lender.lock().push(lent);
    }
}

impl Drop for Borrower {
    fn drop(&mut self) {
        let mut ready = self.lender.lock();
        let n_kept = ready.len().min(READY_MAX);
        let surplus = ready.split_off(n_kept);
        // Unmapped where nobody waits for the lock.
        drop(ready);
        drop(surplus);
    }
}

impl Lent {
    fn new(output_size: usize, input_size: usize) -> Self {
        let bytes = MmapMut::map_anon(output_size + input_size);
        Self {
            bytes: bytes.expect("the system has memory for a request"),
            output_size,
            n_held: 0,
            unread: 0..0,
            was_consumed: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.n_held == 0 && self.unread.is_empty()
    }

    /// Keeps the first `amount` bytes of the output until [`release`](Self::release); what is put out
    /// next stands behind them.
    pub(super) fn hold(&mut self, amount: usize) {
        self.n_held += amount;
    }

    /// What is kept of the output.
    pub(super) fn held(&self) -> &[u8] {
        &self.bytes[..self.n_held]
    }

    /// What was kept has been sent.
    pub(super) fn release(&mut self) {
        self.n_held = 0;
    }

    /// Moves what is unread to the beginning where nothing else could come any more.
    fn make_room(&mut self) {
        let input = &mut self.bytes[self.output_size..];
        if self.unread.is_empty() {
            self.unread = 0..0;
        } else if self.unread.end == input.len() {
            input.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
    }
}

impl Buffers for Lent {
    fn output(&mut self) -> &mut [u8] {
        &mut self.bytes[self.n_held..self.output_size]
    }

    fn input(&self) -> &[u8] {
        &self.bytes[self.output_size..][self.unread.clone()]
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.make_room();
        &mut self.bytes[self.output_size + self.unread.end..]
    }

    fn input_appended(&mut self, amount: usize) {
        self.unread.end += amount;
    }

    fn input_consume(&mut self, amount: usize) {
        self.was_consumed = amount > 0;
        self.unread.start += amount;
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.make_room();
        let (output, input) = self.bytes.split_at_mut(self.output_size);
        (&mut input[self.unread.end..], &mut output[self.n_held..])
    }

    fn can_use_input(&self) -> bool {
        !self.unread.is_empty() && self.was_consumed
    }
}

#[cfg(test)]
mod tests {
    use ureq::unversioned::transport::Buffers;

    use super::{Lender, Lent, READY_MAX};

    fn put_in(lent: &mut Lent, bytes: &[u8]) {
        lent.input_append_buf()[..bytes.len()].copy_from_slice(bytes);
        lent.input_appended(bytes.len());
    }

    #[test]
    fn what_one_gives_back_another_one_gets() {
        let lender = Lender::default();
        let (mut first, mut second) = (lender.borrower(64, 32), lender.borrower(64, 32));
        let place = first.lent().output().as_ptr();
        assert_ne!(second.lent().output().as_ptr(), place);
        first.give_back();
        assert!(first.lent.is_none());
        let mut third = lender.borrower(64, 32);
        assert_eq!(third.lent().output().as_ptr(), place);
    }

    #[test]
    fn what_holds_something_stays_where_it_is() {
        let lender = Lender::default();
        let mut borrower = lender.borrower(64, 32);
        put_in(borrower.lent(), b"x");
        borrower.give_back();
        assert_eq!(borrower.lent().input(), b"x");
        borrower.lent().input_consume(1);
        borrower.lent().hold(1);
        borrower.give_back();
        assert!(borrower.lent.is_some());
        borrower.lent().release();
        borrower.give_back();
        assert!(borrower.lent.is_none());
        assert_eq!(lender.borrower(64, 32).lent().input(), b"");
    }

    #[test]
    fn only_a_few_lie_ready_once_a_connection_has_ended() {
        let lender = Lender::default();
        let mut all: Vec<_> = (0..3 * READY_MAX)
            .map(|_| lender.borrower(64, 32))
            .collect();
        for borrower in &mut all {
            borrower.lent();
        }
        for borrower in &mut all {
            borrower.give_back();
        }
        assert_eq!(lender.lock().len(), 3 * READY_MAX);
        all.pop();
        assert_eq!(lender.lock().len(), READY_MAX);
        all.clear();
        assert_eq!(lender.lock().len(), READY_MAX);
    }

    #[test]
    fn what_has_come_is_read_in_order_and_makes_room() {
        let mut lent = Lent::new(4, 8);
        assert!(!lent.can_use_input());
        put_in(&mut lent, b"abcdef");
        assert!(!lent.can_use_input(), "nothing was consumed yet");
        lent.input_consume(4);
        assert!(lent.can_use_input());
        assert_eq!(lent.input(), b"ef");
        assert_eq!(lent.input_append_buf().len(), 2);
        put_in(&mut lent, b"gh");
        assert_eq!(lent.tmp_and_output().0.len(), 4);
        put_in(&mut lent, b"ijkl");
        assert_eq!(lent.input(), b"efghijkl");
        assert!(lent.input_append_buf().is_empty(), "it is full");
        lent.input_consume(8);
        assert!(!lent.can_use_input());
        assert_eq!(lent.input_append_buf().len(), 8);
        lent.input_consume(0);
        put_in(&mut lent, b"m");
        assert!(!lent.can_use_input(), "nothing was consumed at last");
    }

    #[test]
    fn what_is_held_is_not_written_over() {
        let mut lent = Lent::new(8, 4);
        lent.output()[..3].copy_from_slice(b"abc");
        lent.hold(3);
        assert_eq!(lent.output().len(), 5);
        lent.tmp_and_output().1[..2].copy_from_slice(b"de");
        lent.hold(2);
        assert_eq!(lent.held(), b"abcde");
        lent.release();
        assert_eq!(lent.held(), b"");
        assert_eq!(lent.output().len(), 8);
    }
}
