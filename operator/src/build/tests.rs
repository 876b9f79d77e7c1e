//! Whole objects, from manifests as users write them.

use holdfast_crds::{AccessMode, Filesystem, FilesystemType};
use insta::assert_snapshot;
use k8s_openapi::api::core::v1::PodSpec;
use serde::Serialize;

use super::*;

fn agent(manifest: &str) -> Agent {
    holdfast_crds::manifest::parse(manifest).unwrap()
}

fn inputs() -> Inputs {
    Inputs {
        prompt: Some("You help customers.".into()),
        references: vec!["Secret/openai=1/2".into()],
        replicas: Replicas::Apply(3),
        redis: None,
        sidecar_image: "holdfast-sidecar:1".into(),
        redis_image: "valkey/valkey:8".into(),
    }
}

fn yaml(objects: &[&dyn erased::Object]) -> String {
    objects.iter().map(|object| object.yaml()).collect::<Vec<_>>().join("---\n")
}

mod erased {
    pub(super) trait Object {
        fn yaml(&self) -> String;
    }

    impl<T: super::Serialize> Object for T {
        fn yaml(&self) -> String {
            serde_yaml::to_string(self).unwrap()
        }
    }
}

fn everything(resources: &Resources) -> String {
    let Resources {
        service_account,
        config_map,
        service,
        disruption_budget,
        network_policy,
        claim,
        redis,
        deployment,
        autoscaler,
        http_route,
        service_monitor,
    } = resources;
    let mut objects: Vec<&dyn erased::Object> =
        vec![service_account, service, network_policy, disruption_budget, config_map, deployment];
    if let Some(claim) = claim {
        objects.push(claim);
    }
    if let Some(ManagedRedis { secret, service, network_policy, stateful_set }) = redis {
        objects.extend(secret.iter().map(|secret| secret as &dyn erased::Object));
        objects.extend([service as &dyn erased::Object, network_policy, stateful_set]);
    }
    if let Some(autoscaler) = autoscaler {
        objects.push(autoscaler);
    }
    objects.extend(http_route.iter().map(|route| route as &dyn erased::Object));
    objects.extend(service_monitor.iter().map(|monitor| monitor as &dyn erased::Object));
    yaml(&objects)
}

#[test]
fn everything_a_manifest_can_say_about_its_pods() {
    let resources = build(&agent(include_str!("fixtures/full.yaml")), &inputs()).unwrap();
    assert_snapshot!(everything(&resources));
}

#[test]
fn a_managed_redis_and_an_autoscaler() {
    let password = Password { text: "0123456789abcdef".into(), version: Some("7/8".into()), intact: false };
    let inputs = Inputs { redis: Some(password), replicas: Replicas::Leave, ..inputs() };
    let resources = build(&agent(include_str!("fixtures/managed.yaml")), &inputs).unwrap();
    assert_snapshot!(everything(&resources));
}

#[test]
fn a_way_in_from_a_gateway_and_metrics_for_prometheus() {
    let resources = build(&agent(include_str!("fixtures/exposed.yaml")), &inputs()).unwrap();
    let Resources { service, network_policy, http_route, service_monitor, .. } = resources;
    assert_snapshot!(yaml(&[&service, &network_policy, &http_route, &service_monitor]));
}

#[test]
fn files_on_a_claim() {
    let resources = build(&agent(include_str!("fixtures/files.yaml")), &inputs()).unwrap();
    assert_snapshot!(everything(&resources));
}

#[test]
fn a_folder_for_files_is_a_claim_or_goes_with_the_pod() {
    let on_a_claim = agent(include_str!("fixtures/workspace.yaml"));
    let built = |agent: &Agent| {
        let spec = build(agent, &inputs()).unwrap().deployment.spec.unwrap();
        (spec.strategy.unwrap().type_.unwrap(), spec.template.spec.unwrap())
    };
    let (strategy, pod) = built(&on_a_claim);
    assert_eq!(strategy, "Recreate", "two pods cannot have the volume at a time");
    let volume =
        |pod: &PodSpec| pod.volumes.iter().flatten().find(|v| v.name == "holdfast-workspace").cloned();
    assert_eq!(volume(&pod).unwrap().persistent_volume_claim.unwrap().claim_name, "work");
    let container = &pod.containers[0];
    let mount = container.volume_mounts.iter().flatten().find(|mount| mount.name == "holdfast-workspace");
    assert_eq!(mount.map(|mount| mount.mount_path.as_str()), Some(names::WORKSPACE_DIR));
    let folder = container.env.iter().flatten().find(|env| env.name == "HOLDFAST_WORKSPACE_DIR");
    assert_eq!(folder.and_then(|env| env.value.as_deref()), Some(names::WORKSPACE_DIR));
    assert_eq!(container.security_context.as_ref().unwrap().read_only_root_filesystem, Some(true));

    let with = |change: &dyn Fn(&mut Filesystem)| {
        let mut agent = on_a_claim.clone();
        change(agent.spec.filesystem.as_mut().unwrap());
        built(&agent)
    };
    let (strategy, _) = with(&|files| files.volume.as_mut().unwrap().access_mode = AccessMode::ReadWriteMany);
    assert_eq!(strategy, "RollingUpdate");
    let (strategy, pod) = with(&|files| files.volume = None);
    assert_eq!((strategy.as_str(), volume(&pod).unwrap().empty_dir.is_some()), ("RollingUpdate", true));
    let (_, pod) = with(&|files| (files.kind, files.volume) = (FilesystemType::Remote, None));
    assert_eq!(volume(&pod), None);
}

/// What the pod reads is what `holdfast-sidecar run` accepts, and says nothing that scaling or scheduling changes.
#[test]
fn the_pods_manifest_is_a_manifest() {
    for fixture in [
        include_str!("fixtures/full.yaml"),
        include_str!("fixtures/managed.yaml"),
        include_str!("fixtures/files.yaml"),
        include_str!("fixtures/workspace.yaml"),
        include_str!("fixtures/exposed.yaml"),
    ] {
        let config_map = config_map::build(&agent(fixture), &inputs()).unwrap();
        let text = config_map.data.unwrap().remove(names::MANIFEST_FILE).unwrap();
        let read = holdfast_crds::manifest::parse(&text).unwrap();
        assert_eq!(read.key_prefix(), agent(fixture).key_prefix());
        assert!(
            read.spec.replicas.is_none()
                && read.spec.autoscaling.is_none()
                && read.spec.pod_template.is_empty()
        );
    }
}

#[test]
fn only_what_the_pod_reads_changes_the_pod() {
    let original = agent(include_str!("fixtures/full.yaml"));
    let template =
        |agent: &Agent, inputs: &Inputs| build(agent, inputs).unwrap().deployment.spec.unwrap().template;
    let before = template(&original, &inputs());
    let mut scaled = original.clone();
    scaled.spec.replicas = Some(9);
    assert_eq!(template(&scaled, &inputs()), before);
    let mut asked = original.clone();
    asked.spec.loop_.max_iterations = 7;
    assert_ne!(template(&asked, &inputs()), before);
    let rotated = Inputs { references: vec!["Secret/openai=1/3".into()], ..inputs() };
    assert_ne!(template(&original, &rotated), before);
    let reworded = Inputs { prompt: Some("You help everyone.".into()), ..inputs() };
    assert_ne!(template(&original, &reworded), before);
}
