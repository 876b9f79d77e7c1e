# shellcheck shell=bash
# Which Docker engine is used: the machine's own where an image registry can be reached too ("registry"), else one that
# the rig starts ("offline").

# shellcheck source=dockerd.sh
. "$RIG/lib/dockerd.sh"

# engine: decides once for each cluster; sets MODE and the environment of every docker, kind and kubectl after it.
engine() {
  MODE=${HOLDFAST_CLUSTER_MODE:-$(cat "$RUN/mode" 2>/dev/null || engine_probe)}
  case $MODE in
    registry) ;;
    offline) export DOCKER_HOST=$DOCKERD_SOCKET PATH=$DOCKER_ROOT/cli:$PATH ;;
    *) die "HOLDFAST_CLUSTER_MODE is '$MODE'; it can be registry or offline" ;;
  esac
  export KUBECONFIG=$RUN/kubeconfig
  echo "$MODE" >"$RUN/mode"
}

engine_probe() {
  if timeout 10 docker info >/dev/null 2>&1 && registry_reachable; then echo registry; else echo offline; fi
}

registry_reachable() {
  docker image inspect "$KIND_NODE_IMAGE" >/dev/null 2>&1 || timeout 20 docker manifest inspect "$KIND_NODE_IMAGE" >/dev/null 2>&1
}

# engine_up: makes sure that the engine answers.
engine_up() {
  if [ "$MODE" = offline ]; then
    dockerd_up
  else
    timeout 10 docker info >/dev/null 2>&1 || die "the Docker engine of this machine does not answer"
  fi
}
