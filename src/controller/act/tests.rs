//! Group G: bursts, and the log line of a batch.

use crate::controller::testing::{Fixture, creates, deletes, not_allowed, owned_pod, replica_set};
use crate::writes::WriteError;

/// Scales up and down in bursts, delivering the writes one by one.
#[track_caller]
fn check_bursts(burst: usize, wanted: usize) {
    let fixture = Fixture::with_burst(burst);
    let replicas = i32::try_from(wanted).expect("a small number");
    let mut rs = replica_set("web", replicas);
    fixture.cache_silently(Some(rs.clone()), []);
    let mut n_pods = 0;
    while n_pods < wanted {
        let step = burst.min(wanted - n_pods);
        fixture.sync_ok("web");
        let created = creates(&fixture);
        assert_eq!(created.len(), step);
        let (last, others) = created.split_last().expect("at least one");
        for name in others {
            fixture.deliver_pod(owned_pod(name, &rs));
        }
        assert_eq!(fixture.open(&rs), Some((1, 0)));
        fixture.sync_ok("web");
        fixture.assert_counts(0, 0, 0);
        fixture.deliver_pod(owned_pod(last, &rs));
        n_pods += step;
    }
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 0);

    rs.replicas = 0;
    rs.resource_version = "2".into();
    fixture.cache_silently(Some(rs.clone()), []);
    fixture.deliver_bookmarks("2", "");
    fixture.writes.take();
    while n_pods > 0 {
        let step = burst.min(n_pods);
        fixture.sync_ok("web");
        let deleted = deletes(&fixture);
        assert_eq!(deleted.len(), step);
        let (last, others) = deleted.split_last().expect("at least one");
        for name in others {
            fixture.deliver_pod_deleted(owned_pod(name, &rs));
        }
        assert_eq!(fixture.open(&rs), Some((0, 1)));
        fixture.sync_ok("web");
        fixture.assert_counts(0, 0, 0);
        fixture.deliver_pod_deleted(owned_pod(last, &rs));
        n_pods -= step;
    }
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 0);
}

#[test]
fn g_05_bursts_of_five_up_to_thirty_and_back() {
    check_bursts(5, 30);
}

#[test]
fn g_06_bursts_of_five_up_to_twelve_and_back() {
    check_bursts(5, 12);
}

#[test]
fn g_07_a_burst_that_is_never_full() {
    check_bursts(3, 2);
}

#[test]
fn a_batch_without_effect_logs_at_debug_level() {
    use log::Level;
    let level = super::manage::level_of_batch;
    assert_eq!(level(0, &Err(WriteError::Stopped)), Level::Debug);
    assert_eq!(level(1, &Err(WriteError::Stopped)), Level::Info);
    assert_eq!(level(0, &Err(not_allowed())), Level::Debug);
    assert_eq!(level(1, &Err(not_allowed())), Level::Info);
    assert_eq!(level(3, &Ok(())), Level::Info);
}
