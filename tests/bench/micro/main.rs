//! Microbenchmarks of hot code: `cargo bench --bench micro`.

mod api;
mod cache;
mod controller;
mod fixture;

use criterion::{criterion_group, criterion_main};

criterion_group!(
    benches,
    api::decode,
    api::match_labels,
    cache::apply,
    controller::expectations,
    controller::queue,
    controller::sync_without_changes,
    controller::deletion_order,
    controller::scale_down_order,
    controller::deletion_costs
);
criterion_main!(benches);
