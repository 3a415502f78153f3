//! The model's ResourceQuota and its controller, which counts at once.

use serde_json::{Value, json};

use super::api_server::ApiServer;
use super::objects::{Kind, QUOTA, is_active};

impl ApiServer {
    /// Stores the quota that is enforced, whichever the backup had.
    pub(super) fn restore_quota(&mut self) {
        self.set_quota(self.quota);
    }

    /// Limits the number of pods by the quota, or removes it.
    pub(super) fn set_quota(&mut self, quota: Option<usize>) {
        self.quota = quota;
        let is_stored = self.get(Kind::Quota, QUOTA).is_some();
        if quota.is_none() {
            self.remove(Kind::Quota, QUOTA);
        } else if is_stored {
            self.count_usage();
        } else {
            let status = self.quota_status();
            let quota = json!({"metadata": {"name": QUOTA}, "status": status});
            self.create(Kind::Quota, quota);
        }
    }

    fn quota_status(&self) -> Value {
        let hard = self.quota.unwrap_or_default();
        let used = self.n_active_pods();
        json!({"hard": {"pods": hard.to_string()}, "used": {"pods": used.to_string()}})
    }

    /// What the quota's controller does after each change of a pod.
    pub(super) fn count_usage(&mut self) {
        let status = self.quota_status();
        let quota = self.get(Kind::Quota, QUOTA);
        if quota.is_some_and(|quota| quota.value["status"] != status) {
            self.change(Kind::Quota, QUOTA, |quota| quota["status"] = status);
        }
    }

    pub(super) fn n_active_pods(&self) -> usize {
        let pods = self.all(Kind::Pod);
        pods.filter(|pod| is_active(&pod.value)).count()
    }
}
