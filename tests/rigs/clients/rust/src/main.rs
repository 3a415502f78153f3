//! Everyday calls of kube-rs to the server of `$KUBECONFIG`.

use std::io::{self, Write};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    Api, DeleteParams, EvictParams, ListParams, LogParams, Patch, PatchParams, PostParams,
};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn of<T: serde::de::DeserializeOwned>(value: Value) -> Outcome<T> {
    Ok(serde_json::from_value(value)?)
}

fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// A minute is a limit that only a hang meets.
macro_rules! await_that {
    ($what:expr, $condition:expr) => {
        for n in 0.. {
            if $condition {
                say(&format!("ok {}", $what));
                break;
            }
            assert!(n < 600, "{}", $what);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let client = Client::try_default().await?;
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let jobs: Api<Job> = Api::default_namespaced(client);
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "example.invalid/c:1"}]},
    });
    let set = of(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "template": template, "selector": {"matchLabels": {"app": "web"}},
        },
    }))?;
    sets.create(&PostParams::default(), &set).await?;
    await_that!(
        "a ReplicaSet gets ready pods",
        sets.get("web")
            .await?
            .status
            .and_then(|it| it.ready_replicas)
            == Some(2)
    );
    let of_set = pods.list(&ListParams::default().labels("app=web")).await?;
    assert_eq!(of_set.items.len(), 2);
    let name = of_set.items[0].name_any();
    let log = pods.logs(&name, &LogParams::default()).await?;
    assert!(log.contains("log of c"), "{log}");
    say("ok logs");

    // A streaming list, as reflectors read it.
    let config = watcher::Config::default().streaming_lists();
    let mut events = watcher(pods.clone(), config).applied_objects().boxed();
    let seen = events.try_next().await?.ok_or("the watch ended")?;
    say(&format!("ok a watcher sees {}", seen.name_any()));

    let apply = PatchParams::apply("rig").force();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"},
    });
    let applied = maps.patch("m", &apply, &Patch::Apply(&map)).await?;
    assert_eq!(applied.data.unwrap_or_default()["a"], "b");
    let merge = Patch::Merge(json!({"data": {"c": "d"}}));
    let merged = maps.patch("m", &PatchParams::default(), &merge).await?;
    assert_eq!(merged.data.unwrap_or_default().len(), 2);
    say("ok server-side apply and merge patch");

    let mut job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    jobs.create(&PostParams::default(), &of(job)?).await?;
    await_that!(
        "a Job completes",
        jobs.get("j").await?.status.and_then(|it| it.succeeded) == Some(1)
    );
    pods.evict(&name, &EvictParams::default()).await?;
    say("ok eviction");
    sets.delete("web", &DeleteParams::foreground()).await?;
    await_that!(
        "a foreground deletion",
        sets.get_opt("web").await?.is_none()
    );
    say("8 calls of kube-rs");
    Ok(())
}
