# shellcheck shell=bash
# The kind cluster itself: create, check, delete.

# shellcheck source=node-image.sh
. "$RIG/lib/node-image.sh"

CLUSTER=holdfast
NODES=("$CLUSTER"-{control-plane,worker,worker2})

kind() { "$(tool kind)" "$@"; }
kubectl() { "$(tool kubectl)" "$@"; }

wanted_node_image() { if [ "$MODE" = offline ]; then echo "$OFFLINE_NODE_IMAGE"; else echo "$KIND_NODE_IMAGE"; fi; }

# cluster_healthy: every node is a container of the wanted image that runs and was never restarted behind our back (its
# address may have changed then), and the API server calls it Ready.
cluster_healthy() {
  local state ready
  state=$(docker inspect -f '{{.State.Running}} {{.RestartCount}} {{.Config.Image}}' "${NODES[@]}" 2>/dev/null) || return 1
  [ "$(sort -u <<<"$state")" = "true 0 $(wanted_node_image)" ] || return 1
  kind get kubeconfig --name "$CLUSTER" 2>/dev/null >"$RUN/kubeconfig.tmp" && mv "$RUN/kubeconfig.tmp" "$RUN/kubeconfig" || return 1
  ready=$(kubectl --request-timeout=10s get nodes -o jsonpath='{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' 2>/dev/null) || return 1
  [ "$(grep -c True <<<"$ready")" = "${#NODES[@]}" ]
}

cluster_delete() { kind delete cluster --name "$CLUSTER" --kubeconfig "$RUN/kubeconfig"; }

cluster_create() {
  local config=kind.yaml
  if [ "$MODE" = offline ]; then config=kind-offline.yaml; fi
  # --retain: after a failure the nodes are still there for `logs`; the next `up` removes them.
  kind create cluster --name "$CLUSTER" --config "$RIG/$config" --image "$(wanted_node_image)" \
    --kubeconfig "$RUN/kubeconfig" --retain --wait 180s
}

cluster_settle() {
  kubectl wait --for=condition=Ready node --all --timeout=120s
  kubectl rollout status -n kube-system deployment/coredns --timeout=120s
  kubectl rollout status -n kube-system daemonset/kube-proxy --timeout=120s
  kubectl rollout status -n local-path-storage deployment/local-path-provisioner --timeout=120s
}
