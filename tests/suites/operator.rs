//! The operator against a real API server. What needs pods is in the cluster suites.

#[path = "operator/bench.rs"]
mod bench;
#[path = "operator/charts.rs"]
mod charts;
#[path = "operator/definition.rs"]
mod definition;
#[path = "operator/deletion.rs"]
mod deletion;
#[path = "operator/exposure.rs"]
mod exposure;
#[path = "operator/objects.rs"]
mod objects;
#[path = "operator/rights.rs"]
mod rights;
#[path = "operator/setup.rs"]
mod setup;
#[path = "operator/status.rs"]
mod status;
#[path = "operator/store.rs"]
mod store;
#[path = "operator/watched.rs"]
mod watched;

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use bench::{Bench, Operator, SOON, eventually, trials};

fn main() -> Result<ExitCode> {
    let at_once = trials![
        exposure::routes_and_monitors_are_made_once_the_cluster_knows_them,
        charts::the_charts_are_understood,
        charts::every_pod_is_restricted,
        charts::what_alerts_and_panels_ask_for_exists,
        definition::cel_and_rust_agree,
        definition::an_unknown_field_is_refused_with_its_name,
        definition::defaults_are_in_the_schema,
        definition::the_scale_subresource_works,
        definition::kubectl_finds_it_and_shows_its_columns,
        definition::every_field_is_explained,
        objects::an_agent_gets_its_objects_and_owns_them,
        objects::scaling_changes_no_pod,
        objects::a_changed_prompt_rolls_the_pods,
        objects::drift_is_repaired_and_what_others_own_is_left,
        objects::an_object_of_someone_else_is_not_taken,
        objects::an_autoscaler_takes_replicas_over_without_a_reset,
        objects::a_managed_redis_keeps_its_password,
        objects::files_live_on_a_claim_that_outlives_the_agent,
        objects::files_for_all_need_a_volume_for_all,
        objects::a_claim_that_cannot_be_written_is_refused,
        objects::a_paused_agent_is_left_as_it_is,
        status::ready_follows_the_replicas,
        status::a_missing_secret_is_named_and_healed_at_once,
        status::an_event_that_comes_again_is_counted,
        watched::a_missing_secret_is_healed_within_a_second,
        watched::a_rotated_secret_rolls_the_pods_within_a_second,
        watched::a_changed_config_map_rolls_the_pods_within_a_second,
        deletion::an_agent_that_is_being_deleted_gets_nothing_more,
        store::what_a_store_would_lose_is_said,
        store::a_store_that_refuses_us_blocks_only_what_is_new,
        store::a_store_that_cannot_be_reached_from_here_blocks_nothing,
        store::a_store_that_hides_its_settings_blocks_nothing,
        store::a_store_with_replicas_may_lose_what_it_acknowledged_last,
        store::a_rotated_secret_rolls_the_pods_without_a_gap,
    ];
    // In this order, because they look at everything the operator did, or take something away from everybody.
    let in_order = trials![
        status::nothing_is_written_at_rest,
        status::an_invalid_manifest_leaves_what_runs,
        rights::every_right_is_used_and_none_is_missing,
        rights::a_right_to_create_that_is_taken_away_is_missed,
        charts::an_upgrade_keeps_agents_running,
    ];
    bench::run(start, at_once, in_order)
}

async fn start() -> Result<(Bench, Option<Operator>)> {
    let bench = Bench::start(setup::operator_program()?, true).await?;
    bench.namespace("holdfast-system").await?;
    setup::install_rights(&bench).await?;
    let operator = bench.operator(&["--lease=holdfast"])?;
    // Started before its definition: it waits for it.
    eventually("an operator that waits for the definition", SOON, async || {
        let answer = operator.get("/readyz").await?;
        ensure!(answer.contains("503"), "{answer}");
        Ok(())
    })
    .await
    .with_context(|| operator.log())?;
    setup::install_definition(&bench).await?;
    eventually("a ready operator", SOON, async || {
        ensure!(operator.is_ready().await);
        Ok(())
    })
    .await
    .with_context(|| operator.log())?;
    Ok((bench, Some(operator)))
}
