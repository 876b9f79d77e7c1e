//! The volume of a JsonFile store, unless the manifest names one that exists. It outlives the Agent: its owner
//! reference is left out on purpose.

use std::collections::BTreeMap;

use holdfast_crds::{Agent, StoreType};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use super::owned;
use crate::names;

/// The claim's name, whoever made it.
pub(super) fn name(agent: &Agent) -> Option<String> {
    let store = agent.spec.state_store.as_ref().filter(|store| store.kind == StoreType::JsonFile)?;
    let given = store.json_file.as_ref().and_then(|file| file.volume.as_ref()?.claim_name.clone());
    Some(given.unwrap_or_else(|| names::claim_name(agent)))
}

pub(super) fn build(agent: &Agent) -> Option<PersistentVolumeClaim> {
    let store = agent.spec.state_store.as_ref().filter(|store| store.kind == StoreType::JsonFile)?;
    let volume = store.json_file.as_ref().and_then(|file| file.volume.clone()).unwrap_or_default();
    if volume.claim_name.is_some() {
        return None;
    }
    let mut metadata = owned(agent, names::claim_name(agent), "store");
    metadata.owner_references = None;
    Some(PersistentVolumeClaim {
        metadata,
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: volume.storage_class_name,
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([(
                    "storage".to_owned(),
                    Quantity(volume.storage.to_string()),
                )])),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    })
}
