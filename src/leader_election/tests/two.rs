//! Two electors, one lease, and anything that may befall them: frozen, cut off, slow.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::rig::{Rig, unavailable};
use crate::client::Fence;
use crate::stdx::boot_clock::BootClock;
use crate::stdx::clock::FakeClock;

/// What happens next. Times are in milliseconds.
#[derive(Clone, Debug)]
enum Happening {
    /// Time passes: both machines' clocks, the second one faster or slower by so many thousandths.
    Pass(u64, i64),
    /// One of the two is awake and tries.
    Try(bool),
    /// One of the two cannot reach the server, until it can again.
    CutOff(bool, bool),
    /// One's requests take this long, each way of it, from now on.
    Latency(bool, u64),
    /// One's next answer gets lost; the server has done as asked.
    Lose(bool, bool),
    /// One stops and is started again.
    Release(bool),
    /// Somebody deletes the Lease.
    Delete,
    /// Somebody takes the holder's name out of the Lease.
    Empty,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (1..12_000u64, -200..200i64).prop_map(|(ms, drift)| Happening::Pass(ms, drift)),
        8 => any::<bool>().prop_map(Happening::Try),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(who, cut)| Happening::CutOff(who, cut)),
        1 => (any::<bool>(), 0..6_000u64).prop_map(|(who, ms)| Happening::Latency(who, ms)),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(who, post)| Happening::Lose(who, post)),
        1 => any::<bool>().prop_map(Happening::Release),
        1 => Just(Happening::Delete),
        1 => Just(Happening::Empty),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens, and whoever sleeps through whatever of it: of two fences one is closed. A
    /// Lease is only tampered with when both have seen its holder: who has not cannot know of one.
    #[test]
    fn l_18_never_may_two_write(happenings in prop::collection::vec(happening(), 1..120)) {
        let server = Arc::new(Mutex::default());
        let clocks = [Arc::new(FakeClock::default()), Arc::new(FakeClock::default())];
        let mut rigs = [
            Rig::at("a", &server, &clocks[0]),
            Rig::at("b", &server, &clocks[1]),
        ];
        for happening in happenings {
            let holder = rigs[0].lease().unwrap_or_default().holder_identity;
            let is_known = rigs.iter().all(|rig| rig.leader() == holder);
            match happening {
                Happening::Pass(ms, drift) => {
                    clocks[0].advance(Duration::from_millis(ms));
                    let ms = ms.saturating_add_signed(ms.cast_signed() * drift / 1000);
                    clocks[1].advance(Duration::from_millis(ms));
                }
                Happening::Try(who) | Happening::Release(who) => {
                    let who = usize::from(who);
                    let before = clocks[who].boot_time();
                    if matches!(happening, Happening::Try(_)) {
                        rigs[who].elect();
                    } else {
                        rigs[who].release();
                    }
                    // The other's clock ran meanwhile.
                    let took = clocks[who].boot_time().saturating_sub(before);
                    clocks[1 - who].advance(took);
                }
                Happening::CutOff(who, true) => rigs[usize::from(who)].refuse_always(&unavailable()),
                Happening::CutOff(who, false) => rigs[usize::from(who)].reach_again(),
                Happening::Latency(who, ms) => {
                    rigs[usize::from(who)].set_latency(Duration::from_millis(ms));
                }
                Happening::Lose(who, post) => {
                    let call = if post { "create" } else { "update" };
                    rigs[usize::from(who)].lose_the_answer_once(call);
                }
                Happening::Delete if is_known => rigs[0].delete_lease(),
                Happening::Empty if is_known => rigs[0].empty_lease(),
                Happening::Delete | Happening::Empty => {}
            }
            let open = rigs.each_ref().map(|rig| rig.fence.is_open());
            prop_assert!(open != [true, true], "both may write");
        }
    }
}

/// A leader that was frozen, or whose machine slept, for longer than the lease.
#[test]
fn a_leader_that_slept_finds_its_fence_closed_when_it_wakes() {
    let (server, clock) = (Arc::new(Mutex::default()), Arc::new(FakeClock::default()));
    let mut sleeper = Rig::at("a", &server, &clock);
    let mut other = Rig::at("b", &server, &clock);
    assert!(sleeper.elect());
    assert!(!other.elect());
    clock.advance(Duration::from_secs(15));
    assert!(other.elect());
    assert!(!sleeper.fence.is_open(), "before it has asked anybody");
    assert!(!sleeper.elect());
    assert_eq!(sleeper.leader(), "b");
}

/// A renewal whose answer is lost is written again by the same try. The other has seen the first and
/// takes the second for the same, so it must not count from later.
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
    leader.lose_the_answer_once("update");
    assert!(leader.elect());
    clocks[0].advance(Duration::from_secs(6));
    clocks[1].advance(Duration::from_secs(15));
    assert!(other.elect());
    assert!(!leader.fence.is_open());
}
