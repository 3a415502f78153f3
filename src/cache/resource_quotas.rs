//! The ResourceQuotas, without an index: only their changes are of interest.

use super::store::{Indexed, Store};
use crate::api::{ObjectKey, ResourceQuota, ResourceVersion, Uid};

/// All ResourceQuotas.
pub type ResourceQuotaStore = Store<ResourceQuota>;

impl Indexed for ResourceQuota {
    type Bucket = ();
    type Tally = ();

    fn key(&self) -> &ObjectKey {
        &self.key
    }

    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn resource_version(&self) -> &ResourceVersion {
        &self.resource_version
    }

    fn buckets(&self) -> [Option<()>; 2] {
        [None, None]
    }

    fn count(&self, (): &mut ()) {}

    fn discount(&self, (): &mut ()) {}
}
