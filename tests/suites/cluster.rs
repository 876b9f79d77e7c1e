//! An Agent on real pods, and everything that ends pods. One file a failure, named by it.
//!
//! The clients come from outside the cluster, through a Service; the judge reads only what they were told, what the model
//! and the tools wrote down, and the final states.

#[path = "cluster/external_redis_restarted.rs"]
mod external_redis_restarted;
#[path = "cluster/files_rolled_out.rs"]
mod files_rolled_out;
#[path = "cluster/grace_period_cut_short.rs"]
mod grace_period_cut_short;
#[path = "cluster/image_changed.rs"]
mod image_changed;
#[path = "cluster/managed_redis_deleted.rs"]
mod managed_redis_deleted;
#[path = "cluster/node_drained.rs"]
mod node_drained;
#[path = "cluster/operator_gone.rs"]
mod operator_gone;
#[path = "cluster/operator_upgraded.rs"]
mod operator_upgraded;
#[path = "cluster/pod_force_deleted.rs"]
mod pod_force_deleted;
#[path = "cluster/pod_oom_killed.rs"]
mod pod_oom_killed;
#[path = "cluster/prompt_changed.rs"]
mod prompt_changed;
#[path = "cluster/redis_failed_over.rs"]
mod redis_failed_over;
#[path = "cluster/redis_node_drained.rs"]
mod redis_node_drained;
#[path = "cluster/redis_secret_rotated.rs"]
mod redis_secret_rotated;
#[path = "cluster/redis_without_persistence.rs"]
mod redis_without_persistence;
#[path = "cluster/rejections.rs"]
mod rejections;
#[path = "cluster/rollout_restart.rs"]
mod rollout_restart;
#[path = "cluster/scaled.rs"]
mod scaled;
#[path = "cluster/sidecar_killed.rs"]
mod sidecar_killed;
#[path = "cluster/smoke.rs"]
mod smoke;
#[path = "cluster/upgrade.rs"]
mod upgrade;

use std::process::ExitCode;

use holdfast_tests::{cluster::house, suites};

fn main() -> anyhow::Result<ExitCode> {
    // Nothing else moves while the sentence on the box is put to the test.
    let alone_first = suites![smoke, rejections, rollout_restart];
    let side_by_side = suites![
        upgrade,
        pod_force_deleted,
        pod_oom_killed,
        sidecar_killed,
        grace_period_cut_short,
        redis_without_persistence,
        redis_failed_over,
        files_rolled_out,
        managed_redis_deleted,
        external_redis_restarted,
        scaled,
        prompt_changed,
        image_changed,
        redis_secret_rotated,
    ];
    // These take a node, or the operator, away from everybody.
    let alone_last = suites![node_drained, redis_node_drained, operator_upgraded, operator_gone];
    house::run(&alone_first, &side_by_side, &alone_last)
}
