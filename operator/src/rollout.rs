//! Pure: how far a Deployment has come, and who decides how many replicas it has.

/// What is kept of a Deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rollout {
    pub generation: i64,
    pub observed_generation: i64,
    pub desired: i32,
    pub replicas: i32,
    pub updated: i32,
    pub ready: i32,
    pub available: i32,
    /// Why it has not come further within its deadline.
    pub stuck: Option<String>,
    /// Someone else, such as an autoscaler, has set the number of replicas.
    pub replicas_owned_by_other: bool,
}

impl Rollout {
    /// Every replica is of the newest version, and no older one is left.
    pub fn is_complete(&self) -> bool {
        self.observed_generation >= self.generation
            && self.updated == self.desired
            && self.replicas == self.desired
            && self.available >= self.desired
    }

    /// As many replicas answer as were asked for, whatever their version.
    pub fn is_available(&self) -> bool {
        self.available >= self.desired
    }
}
