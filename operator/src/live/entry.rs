//! What is kept of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::Place;
use crate::{rollout::Rollout, seen::Sight, word::Word};

#[derive(Debug, Clone)]
pub struct Entry {
    pub uid: Word,
    pub version: Word,
    owner: Option<Owner>,
    /// Only of a Deployment.
    pub rollout: Option<Box<Rollout>>,
    /// Tells one state of what we might have set from another.
    pub(super) mark: u64,
    /// A hash of what we applied, as long as nothing of it has changed since.
    pub(super) applied: Option<u64>,
    /// Found by the list that is being read, or newer than it.
    pub(super) listed: bool,
}

/// The Agent that controls an object.
#[derive(Debug, Clone)]
struct Owner {
    uid: Word,
    /// Where it is not the object's own.
    name: Option<Box<str>>,
}

/// What a look at an object has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    None,
    /// How far it has come; what we applied is as it was.
    Progress,
    Changed,
}

impl Entry {
    pub fn of<S: Sight>(object: &S) -> Self {
        let meta = object.meta();
        let owner = meta.owner_references.iter().flatten().find(|owner| {
            owner.controller == Some(true)
                && owner.kind == "Agent"
                && owner.api_version.split('/').next() == Some(holdfast_crds::GROUP)
        });
        Self {
            uid: meta.uid.as_ref().into(),
            version: meta.resource_version.as_ref().into(),
            owner: owner.map(|owner| Owner {
                uid: owner.uid.as_str().into(),
                name: (meta.name.as_ref() != Some(&owner.name)).then(|| owner.name.as_str().into()),
            }),
            rollout: object.rollout().map(Box::new),
            mark: object.mark(),
            applied: None,
            listed: true,
        }
    }

    pub fn is_owned_by(&self, agent: &impl Resource) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.uid == agent.meta().uid.as_ref().into())
    }

    /// It is as we left it, and we left it like this.
    pub fn is_as_applied(&self, hash: u64) -> bool {
        self.applied == Some(hash)
    }

    /// It is as we left it, and whoever changes it wakes its Agent.
    pub(super) fn is_settled(&self) -> bool {
        self.applied.is_some() && self.owner.is_some()
    }

    pub(super) fn owner_at(&self, place: &Place) -> Option<Place> {
        let owner = self.owner.as_ref()?;
        Some(owner.name.as_ref().map_or_else(|| place.clone(), |name| Place::new(place.namespace(), name)))
    }

    /// What the event that follows a write will say of the rollout, unless somebody is quicker.
    pub(super) fn follow(&mut self, meta: &ObjectMeta, replicas: Option<i32>) {
        let Some(replicas) = replicas.or_else(|| self.rollout.as_ref().map(|rollout| rollout.desired)) else {
            return;
        };
        let rollout = self.rollout.get_or_insert_default();
        rollout.generation = meta.generation.unwrap_or(rollout.generation);
        rollout.desired = replicas;
    }

    /// Takes over what was just seen.
    pub(super) fn see(&mut self, seen: Self) -> News {
        if self.uid == seen.uid && seen.version.is_older_than(&self.version) {
            // The watch is behind our own write.
            self.listed = true;
            return News::None;
        }
        let same = self.uid == seen.uid && self.mark == seen.mark;
        let news = match same {
            false => News::Changed,
            true if self.rollout != seen.rollout => News::Progress,
            true => News::None,
        };
        *self = Self { applied: self.applied.filter(|_| same), ..seen };
        news
    }
}
