//! The worker: it takes a key from the queue, syncs it, records how that ended, and marks it done.

use std::time::{Duration, Instant};

use log::Level;

use super::act::{Writer, describe_batch};
use super::decide::plan::Plan;
use super::decide::{May, Step, View};
use super::memory::Memory;
use super::memory::history::{LastSync, Mistake, SyncEnd};
use super::memory::positions::Resource;
use super::memory::rejections::{BackedOff, Rejection};
use super::{Mode, ReplicaSetController, SyncError};
use crate::api::status::spread_wait;
use crate::api::{ObjectKey, ReplicaSet};
use crate::stdx::thread;
use crate::stdx::thread::catch_panic;
use crate::workqueue::Priority;

/// When the next attempt is due, for the log. An operator notices no delay below a second.
fn next_attempt(delay: Duration) -> String {
    match delay.as_secs() {
        0 => "next attempt in less than 1s".to_owned(),
        _ => format!("next attempt in {:?}", in_milliseconds(delay)),
    }
}

fn in_milliseconds(time: Duration) -> Duration {
    Duration::new(time.as_secs(), time.subsec_millis() * 1_000_000)
}

/// Describes a quota's error and when a create is tried again. `missing` pods are to be created.
fn describe_full_quota(
    backed_off: &BackedOff,
    error: &SyncError,
    missing: usize,
) -> Option<String> {
    let (Rejection::Quota(quota), Some(position)) = (&backed_off.rejection, backed_off.position)
    else {
        return None;
    };
    let error = error.to_string();
    let why = match error.split_once(", used: ") {
        Some((_, used)) => format!("is full (used: {used})"),
        None => format!("rejects pods ({error})"),
    };
    let (number, of, plural) = (
        position.n_before + 1,
        position.len,
        if missing == 1 { "" } else { "s" },
    );
    let next = next_attempt(position.next_try_in);
    Some(format!(
        "quota \"{quota}\" {why}; {missing} pod{plural} missing; number {number} of {of} waiting \
         for this quota; {next}"
    ))
}

impl ReplicaSetController {
    pub fn process_next_work_item(&self) -> bool {
        let wait = thread::enter("waits for work", "");
        let key = self.queue.get();
        drop(wait);
        key.map(|key| self.process(&key)).is_some()
    }

    /// Syncs a key from the queue and marks it done. After an error, a panic included, the worker
    /// requeues the key with back-off.
    pub fn process(&self, key: &ObjectKey) {
        let _sync = thread::enter("sync", key);
        let (at, began) = (self.clock.wall(), self.clock.now());
        let result =
            catch_panic(|| self.sync(key)).unwrap_or_else(|message| Err(SyncError::Panic(message)));
        let end = match &result {
            Ok(end) => *end,
            Err(SyncError::Panic(_)) => SyncEnd::Panicked,
            Err(_) => SyncEnd::Failed,
        };
        let took = self.clock.now().saturating_duration_since(began);
        let is_news = self.note_sync(key, LastSync { at, took, end }, result.as_ref().err());
        match result {
            // A leader that was paused may hold its lease again when it resumes, so the key is
            // requeued. A queue that shuts down ignores the add.
            Err(error) if error.is_stopped() => drop(self.queue.add_rate_limited(key.clone())),
            Err(error) => {
                self.metrics.sync_ended(end);
                self.retry(key, &error, is_news);
            }
            Ok(end) => {
                self.metrics.sync_ended(end);
                // A skipped sync does not show that an earlier error is over, so its back-off
                // stays.
                if end != SyncEnd::TooEarly {
                    self.queue.forget(key);
                }
            }
        }
        self.enqueue_retries(self.memories.turns(&key.namespace, key));
        // Last, as in upstream: another worker may take the key from here on.
        self.queue.done(key);
    }

    /// Requeues the key after an error, and logs it: as a warning if it `is_news`, and after 10,
    /// 100, … tries.
    fn retry(&self, key: &ObjectKey, error: &SyncError, is_news: bool) {
        let batch = error.batch();
        let is_create = matches!(batch, Some((Plan::Create(_), _)));
        let backed_off = is_create.then(|| self.backed_off_of(key)).flatten();
        let (n_failures, retry_in) = if let Some(backed_off) = &backed_off {
            // No token of the bucket that all failed keys share: another ReplicaSet's first retry
            // must not wait behind thousands of rejected ones.
            self.queue.forget(key);
            if backed_off.position.is_none() {
                self.add_to_queue(key, Priority::High, backed_off.remaining);
            }
            // The next sync is backed off, and schedules everything but creates.
            self.add_to_queue(key, Priority::Low, Duration::ZERO);
            (backed_off.n_rejections, backed_off.remaining)
        } else {
            let delay = if let Some(wait) = error.retry_after() {
                // The key waits, and no worker does.
                let wait = spread_wait(wait, fastrand::f64());
                self.add_to_queue(key, Priority::High, wait);
                wait
            } else {
                self.queue.add_rate_limited(key.clone())
            };
            (self.queue.num_requeues(key), delay)
        };
        let is_decade = n_failures >= 10 && 10_u32.pow(n_failures.ilog10()) == n_failures;
        let level = match error.level() {
            Level::Warn if !is_news && !is_decade => Level::Debug,
            level => level,
        };
        if !log::log_enabled!(level) {
            return;
        }
        let object = self.kind.named(key);
        let (next, next_in) = (next_attempt(retry_in), in_milliseconds(retry_in));
        let Some((plan, done)) = batch else {
            return log::log!(
                level, object:% = object, error:%, nextTry:? = next_in; "sync failed, {next}"
            );
        };
        let (wanted, did) = (plan.n_pods(), describe_batch(plan, done));
        let full = backed_off.and_then(|it| describe_full_quota(&it, error, wanted - done));
        if let Some(what) = full {
            return log::log!(level, object:% = object; "{what}");
        }
        match plan {
            Plan::Delete(_) => log::log!(
                level, object:% = object, error:%, deleted = done, wanted,
                nextTry:? = next_in; "{did}, {next}"
            ),
            Plan::Create(_) | Plan::Nothing => log::log!(
                level, object:% = object, error:%, created = done, wanted,
                nextTry:? = next_in; "{did}, {next}"
            ),
        }
    }

    pub(super) fn sync(&self, key: &ObjectKey) -> Result<SyncEnd, SyncError> {
        match &self.mode {
            Mode::Writes(writer) => self.sync_replica_set(key, writer),
            Mode::DryRun(dry_run) => {
                self.dry_run(key, dry_run);
                Ok(SyncEnd::Synced)
            }
        }
    }

    /// Ends a sync that must wait for the caches: returns true if `step` neither acts nor reports,
    /// with the key requeued. Where a wait alone resolves nothing, this queries the API server.
    pub(super) fn wait_or_verify(
        &self,
        writer: &Writer,
        view: &View<'_>,
        step: &Step,
        began: Instant,
    ) -> Result<bool, SyncError> {
        let delay = match step.may {
            May::Act | May::Report(_) => return Ok(false),
            May::Wait(_) => Duration::ZERO,
            May::Verify(doubt) => writer.verify(view.rs, view.selector, doubt)?,
        };
        // As upstream, one metric per skip: `lagging` is the pod cache if both lag.
        match (step.may, view.record.lagging) {
            (May::Wait(_), Some(Resource::Pods)) => self.metrics.stale_pods_skips.inc(),
            (May::Wait(_), Some(Resource::ReplicaSets)) => self.metrics.stale_owners_skips.inc(),
            _ => {}
        }
        self.requeue(&view.rs.key, step.next(view.rs, began + delay));
        Ok(true)
    }

    /// Records how a sync ended. Returns true if it failed for a reason that is news.
    fn note_sync(&self, key: &ObjectKey, sync: LastSync, error: Option<&SyncError>) -> bool {
        let Some(rs) = self.cache.replica_sets.get(key) else {
            return error.is_some();
        };
        let is_news = self.memories.with(&rs, |memory| {
            let writes = &mut memory.own_writes;
            if sync.end == SyncEnd::Panicked {
                writes.expire();
            }
            writes.forget_versions_before(&rs.resource_version);
            memory.history.note_sync(&key.name, sync, error)
        });
        // Most ReplicaSets are old revisions: their records would be most of the memory.
        if rs.replicas == 0 {
            self.memories.forget_if_over(&rs);
        }
        is_news
    }

    pub(super) fn note_backed_off(&self, rs: &ReplicaSet, step: &Step) {
        let n_backed_off = step.effects.n_backed_off();
        let note = |memory: &mut Memory| memory.history.n_backed_off = n_backed_off;
        // Without a record nothing was backed off.
        if self.memories.get(rs, note).is_none() && n_backed_off > 0 {
            self.memories.with(rs, note);
        }
    }

    pub(super) fn note_converged(&self, rs: &ReplicaSet) {
        let now = self.clock.now();
        let after = self
            .memories
            .get(rs, |it| it.history.note_converged(rs, now));
        if let Some(after) = after.flatten() {
            self.metrics.converge.observe(after.as_secs_f64());
        }
    }

    /// Logs an unusable selector, once per generation. Only that of a ReplicationController can be
    /// changed.
    pub(super) fn log_unusable_selector(&self, rs: &ReplicaSet) {
        let Err(error) = &rs.selector else { return };
        let note = |it: &mut Memory| it.history.note_mistake(Mistake::Selector, rs.generation, 0);
        if self.memories.with(rs, note) {
            log::error!(
                object:% = self.kind.named(&rs.key), error:%;
                "the selector cannot be used, so this {} is not synced until its spec changes, or \
                 it is deleted and recreated where spec.selector is immutable",
                self.kind.kind
            );
        }
    }
}
