//! Decoding objects, and matching labels.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use replicaset_controller::api::interner::Interner;
use replicaset_controller::api::protobuf::Envelope;
use replicaset_controller::api::{Pod, ReplicaSet};

use crate::fixture::replica_set;

/// A pod as encoded by a kube-apiserver, in both encodings.
const JSON: &[u8] = include_bytes!("../../data/pod.json");
const PROTOBUF: &[u8] = include_bytes!("../../data/pod.pb");

const REPLICA_SET: &[u8] = include_bytes!("../../data/replica-set.pb");

pub(crate) fn decode(criterion: &mut Criterion) {
    let mut interner = Interner::default();
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Bytes(JSON.len() as u64));
    group.bench_function("pod, JSON", |bencher| {
        bencher.iter(|| Pod::from_json(black_box(JSON), &mut interner));
    });
    group.throughput(Throughput::Bytes(PROTOBUF.len() as u64));
    group.bench_function("pod, protobuf", |bencher| {
        bencher.iter(|| {
            let envelope = Envelope::open(black_box(PROTOBUF))?;
            Pod::from_protobuf(envelope.raw, &mut interner)
        });
    });
    group.throughput(Throughput::Bytes(REPLICA_SET.len() as u64));
    group.bench_function("ReplicaSet, protobuf", |bencher| {
        bencher.iter(|| {
            let kind = &replicaset_controller::api::workload_kind::REPLICA_SET;
            let envelope = Envelope::open(black_box(REPLICA_SET))?;
            ReplicaSet::from_protobuf(kind, envelope.raw, &mut interner)
        });
    });
    group.finish();
}

pub(crate) fn match_labels(criterion: &mut Criterion) {
    let rs = replica_set(1, 0);
    let selector = rs.selector.as_ref().expect("a valid selector");
    criterion.bench_function("match three labels", |bencher| {
        bencher.iter(|| selector.matches(black_box(&rs.template_labels)));
    });
}
