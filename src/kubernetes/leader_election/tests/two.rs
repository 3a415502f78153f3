//! Two electors compete for one lease while they freeze, lose the connection, or slow down.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::rig::{Rig, Server, unavailable};
use crate::client::Fence;
use crate::stdx::clock::Clock;
use crate::stdx::testing::FakeClock;

/// One step of a scenario. Times are in milliseconds.
#[derive(Clone, Debug)]
enum Step {
    /// Time passes on both machines; the second clock differs by so many thousandths.
    Pass(u64, i64),
    /// One elector makes an attempt.
    Try(bool),
    /// One elector loses the connection to the server, or gets it back.
    CutOff(bool, bool),
    /// Sets the latency of one elector's requests, per direction.
    Latency(bool, u64),
    /// The server executes one elector's next write, but the response is lost.
    Lose(bool, bool),
    /// One daemon stops and restarts.
    Release(bool),
    /// A user deletes the Lease.
    Delete,
    /// A user removes the holder's name from the Lease.
    Empty,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..12_000u64, -200..200i64).prop_map(|(ms, drift)| Step::Pass(ms, drift)),
        8 => any::<bool>().prop_map(Step::Try),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(index, cut)| Step::CutOff(index, cut)),
        1 => (any::<bool>(), 0..6_000u64).prop_map(|(index, ms)| Step::Latency(index, ms)),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(index, post)| Step::Lose(index, post)),
        1 => any::<bool>().prop_map(Step::Release),
        1 => Just(Step::Delete),
        1 => Just(Step::Empty),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// PROPERTY P22: In random histories of up to 119 steps of two daemons and one Lease, not both
    /// may write at a time.
    ///
    /// In every scenario at least one of the two fences is closed. The scenario deletes or empties
    /// the Lease only once both electors have seen its holder; an elector that never saw it cannot
    /// know of one.
    #[test]
    fn l_18_at_most_one_daemon_may_write(steps in prop::collection::vec(step(), 1..120)) {
        let server = Arc::new(Mutex::default());
        let clocks = [Arc::new(FakeClock::default()), Arc::new(FakeClock::default())];
        let mut rigs = [
            Rig::at("a", &server, &clocks[0]),
            Rig::at("b", &server, &clocks[1]),
        ];
        for step in steps {
            let holder = rigs[0].lease().unwrap_or_default().holder_identity;
            let is_known = rigs.iter().all(|rig| rig.leader() == holder);
            match step {
                Step::Pass(ms, drift) => {
                    clocks[0].advance(Duration::from_millis(ms));
                    let ms = ms.saturating_add_signed(ms.cast_signed() * drift / 1000);
                    clocks[1].advance(Duration::from_millis(ms));
                }
                Step::Try(index) | Step::Release(index) => {
                    let index = usize::from(index);
                    let before = clocks[index].boot_time();
                    if matches!(step, Step::Try(_)) {
                        rigs[index].elect();
                    } else {
                        rigs[index].release();
                    }
                    // The other machine's clock advances too.
                    let took = clocks[index].boot_time().saturating_sub(before);
                    clocks[1 - index].advance(took);
                }
                Step::CutOff(index, true) => {
                    rigs[usize::from(index)].refuse_always(&unavailable());
                }
                Step::CutOff(index, false) => rigs[usize::from(index)].reconnect(),
                Step::Latency(index, ms) => {
                    rigs[usize::from(index)].set_latency(Duration::from_millis(ms));
                }
                Step::Lose(index, post) => {
                    let call = if post { "create" } else { "update" };
                    rigs[usize::from(index)].lose_response_once(call);
                }
                Step::Delete if is_known => rigs[0].delete_lease(),
                Step::Empty if is_known => rigs[0].empty_lease(),
                Step::Delete | Step::Empty => {}
            }
            let open = rigs.each_ref().map(|rig| rig.fence.is_open());
            prop_assert!(open != [true, true], "both may write");
        }
    }
}

/// A leader was frozen, or its machine slept, for longer than the lease.
#[test]
fn a_suspended_leader_finds_its_fence_closed_when_it_resumes() {
    let (server, clock) = (Arc::new(Mutex::default()), Arc::new(FakeClock::default()));
    let mut sleeper = Rig::at("a", &server, &clock);
    let mut other = Rig::at("b", &server, &clock);
    assert!(sleeper.elect());
    assert!(!other.elect());
    clock.advance(Duration::from_secs(15));
    assert!(other.elect());
    assert!(!sleeper.fence.is_open(), "before any request");
    assert!(!sleeper.elect());
    assert_eq!(sleeper.leader(), "b");
}

/// etcd was restored from a backup meanwhile, and the other's Lease has the version that the
/// sleeper knows.
#[test]
fn a_leader_that_slept_reads_the_lease_first() {
    let (server, clock) = (Arc::new(Mutex::default()), Arc::new(FakeClock::default()));
    let mut sleeper = Rig::at("a", &server, &clock);
    let mut other = Rig::at("b", &server, &clock);
    assert!(sleeper.elect());
    assert!(!other.elect());
    *server.lock() = Server::default();
    assert!(!other.elect());
    clock.advance(Duration::from_secs(15));
    assert!(other.elect());
    assert!(!sleeper.elect());
    assert_eq!(sleeper.leader(), "b");
}

/// The response to a renewal is lost and the same attempt writes it again. The standby has seen the
/// first write and takes the second for the same renewal, so the leader must not count from later.
#[test]
fn a_renewal_that_is_written_twice_counts_once() {
    let server = Arc::new(Mutex::default());
    let clocks = [
        Arc::new(FakeClock::default()),
        Arc::new(FakeClock::default()),
    ];
    let mut leader = Rig::at("a", &server, &clocks[0]);
    let mut other = Rig::at("b", &server, &clocks[1]);
    assert!(leader.elect());
    assert!(!other.elect());
    leader.set_latency(Duration::from_secs(3));
    leader.lose_response_once("update");
    assert!(leader.elect());
    clocks[0].advance(Duration::from_secs(6));
    clocks[1].advance(Duration::from_secs(15));
    assert!(other.elect());
    assert!(!leader.fence.is_open());
}
