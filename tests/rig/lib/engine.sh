# shellcheck shell=bash
# Which Docker engine is used: the machine's own where an image registry can be reached too ("registry"), else one that
# the rig starts ("offline").

# shellcheck source=dockerd.sh
. "$RIG/lib/dockerd.sh"

# engine: finds out which, unless an earlier run has decided; sets MODE and the environment of every docker, kind and kubectl after it.
engine() {
  local decided forced=${HOLDFAST_CLUSTER_MODE:-}
  decided=$(cat "$RUN/mode" 2>/dev/null || true)
  if [ -n "$decided" ] && [ -n "$forced" ] && [ "$decided" != "$forced" ]; then
    die "the cluster was made with mode $decided, HOLDFAST_CLUSTER_MODE is $forced; 'tests/rig/cluster down' first"
  fi
  MODE=${decided:-${forced:-$(engine_probe)}}
  case $MODE in
    registry) ;;
    offline) export DOCKER_HOST=$DOCKERD_SOCKET PATH=$DOCKER_ROOT/cli:$PATH ;;
    *) die "HOLDFAST_CLUSTER_MODE is '$MODE'; it can be registry or offline" ;;
  esac
  export KUBECONFIG=$RUN/kubeconfig
}

engine_probe() {
  if timeout 10 docker info >/dev/null 2>&1 && registry_reachable; then echo registry; else echo offline; fi
}

registry_reachable() {
  docker image inspect "$KIND_NODE_IMAGE" >/dev/null 2>&1 || timeout 20 docker manifest inspect "$KIND_NODE_IMAGE" >/dev/null 2>&1
}

# engine_up: makes sure that the engine answers, and holds on to the decision until `down`.
engine_up() {
  if [ "$MODE" = registry ]; then
    timeout 10 docker info >/dev/null 2>&1 || die "the Docker engine of this machine does not answer"
  fi
  echo "$MODE" >"$RUN/mode"
  if [ "$MODE" = offline ]; then dockerd_up; fi
}
