//! The scheduler by itself: threads that wait, are killed and are paused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Scheduler, in_process};
use crate::stdx::clock;
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::thread::Thread;

/// Three threads note a line before and after each of their waits.
fn history(seed: u64) -> Vec<String> {
    let scheduler = Scheduler::new(seed);
    let lines = Arc::new(Mutex::new(Vec::new()));
    let note = |what: String, lines: &Mutex<Vec<String>>, at: Duration| {
        lines
            .lock()
            .expect("no panic")
            .push(format!("{at:?} {what}"));
    };
    scheduler.run(|| {
        let stop = Stop::new();
        let threads: Vec<Thread> = (0..3)
            .map(|thread| {
                let (lines, stop) = (Arc::clone(&lines), stop.clone());
                let (began, body_stop) = (clock::now(), stop.clone());
                Thread::spawn(&format!("t-{thread}"), &stop, move || {
                    for pause in [3, 2, 1] {
                        note(format!("{thread} waits"), &lines, clock::now() - began);
                        body_stop.wait_timeout(Duration::from_secs(pause));
                    }
                    body_stop.wait();
                    note(format!("{thread} ends"), &lines, clock::now() - began);
                })
            })
            .collect();
        assert!(!stop.wait_timeout(Duration::from_mins(1)));
        stop.stop(Cause::Requested("test".to_owned()));
        let deadline = clock::now() + Duration::from_secs(1);
        for thread in threads {
            assert_eq!(thread.join_until(deadline), Ok(()));
        }
    });
    Arc::into_inner(lines)
        .expect("the threads have ended")
        .into_inner()
        .expect("no panic")
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let first = history(1);
    assert_eq!(first.len(), 12);
    assert!(first[11].starts_with("60s "), "{first:?}");
    assert_eq!(first, history(1));
    assert!((2..20).any(|seed| history(seed) != first));
}

#[test]
fn a_killed_process_runs_no_further() {
    let scheduler = Scheduler::new(0);
    scheduler.run(|| {
        let process = scheduler.add_process();
        let (stop, went_on) = (Stop::new(), Arc::new(Mutex::new(false)));
        let (body_stop, body_went_on) = (stop.clone(), Arc::clone(&went_on));
        let body = move || {
            body_stop.wait_timeout(Duration::from_secs(1));
            *body_went_on.lock().expect("no panic") = true;
        };
        let thread = in_process(process, || Thread::spawn("t-daemon", &stop, body));
        scheduler.kill(process);
        assert_eq!(
            thread.join_until(clock::now() + Duration::from_mins(1)),
            Ok(())
        );
        assert!(!*went_on.lock().expect("no panic"));
        assert!(scheduler.threads_of(process).is_empty());
    });
}

#[test]
fn a_frozen_process_runs_after_its_time() {
    let scheduler = Scheduler::new(0);
    scheduler.run(|| {
        let process = scheduler.add_process();
        let (stop, began) = (Stop::new(), clock::now());
        let body_stop = stop.clone();
        let body = move || {
            body_stop.wait_timeout(Duration::from_secs(1));
        };
        let thread = in_process(process, || Thread::spawn("t-daemon", &stop, body));
        scheduler.freeze(process, Duration::from_secs(30), false);
        assert_eq!(thread.join_until(began + Duration::from_mins(1)), Ok(()));
        assert_eq!(clock::now() - began, Duration::from_secs(31));
    });
}
