# shellcheck shell=bash
# A Docker engine of the rig's own, for machines that have none. Its data is kept in the cache; it ends with `down`.

# shellcheck source=debian.sh
. "$RIG/lib/debian.sh"

DOCKERD_SOCKET=unix://$RUN/docker.sock
DOCKERD_DATA=$CACHE/docker-data
# What was changed on the machine, one empty file each, so that `down` puts back that and nothing else.
UNDO=$RUN/undo

# ours PIDFILE PROGRAM: is the process in the file still the one we started? A number alone may have been given to another.
ours() {
  local pid
  pid=$(cat "$1" 2>/dev/null) && [[ $(readlink "/proc/$pid/exe") == "$CACHE"/docker-*/$2 ]]
}

dockerd_runs() { ours "$RUN/dockerd.pid" usr/sbin/dockerd; }

dockerd_answers() { timeout 10 docker version >/dev/null 2>&1; }

# dockerd_up: returns at once when it runs already.
dockerd_up() {
  if dockerd_runs && dockerd_answers; then return; fi
  [ "$(id -u)" = 0 ] || die "no Docker engine answers, and only root can start one"
  (
    lock dockerd
    if dockerd_runs && dockerd_answers; then exit; fi # started while we waited
    docker_root
    step "starting a Docker engine of our own" dockerd_start
  )
}

dockerd_start() {
  mkdir -p "$UNDO" "$DOCKERD_DATA"
  if dockerd_runs; then kill_and_wait "$(cat "$RUN/dockerd.pid")"; fi # it runs but does not answer
  # Left by a run that was killed: dockerd believes these numbers even when another process has them by now.
  rm -f "$RUN/dockerd.pid"
  ours "$RUN/docker/containerd/containerd.pid" usr/bin/containerd || rm -f "$RUN/docker/containerd/containerd.pid"

  [ -e /sys/class/net/docker0 ] || touch "$UNDO/docker0"
  in_docker_root iptables -S DOCKER >/dev/null 2>&1 || touch "$UNDO/iptables"
  # Finding forwarding off, dockerd would turn it on and set the FORWARD policy to DROP: turn it on first.
  if [ "$(cat /proc/sys/net/ipv4/ip_forward)" = 0 ]; then
    touch "$UNDO/ip_forward"
    echo 1 >/proc/sys/net/ipv4/ip_forward
  fi

  dockerd_spawn &
  for _ in $(seq 240); do
    if dockerd_runs && dockerd_answers; then return; fi
    sleep 0.25
  done
  tail -n 20 "$CACHE/log/dockerd.log"
  echo "dockerd did not come up; 'tests/rig/cluster down --purge' throws away its data"
  return 1
}

# Becomes dockerd, holding nothing of ours: an inherited lock or pipe would keep others waiting for as long as it lives.
dockerd_spawn() {
  local fd
  for fd in /proc/"$BASHPID"/fd/*; do
    fd=${fd##*/}
    if ((fd > 2)); then exec {fd}>&-; fi
  done
  exec env "${DOCKER_ENV[@]}" setsid dockerd --host "$DOCKERD_SOCKET" --data-root "$DOCKERD_DATA" \
    --exec-root "$RUN/docker" --pidfile "$RUN/dockerd.pid" --storage-driver overlay2 >"$CACHE/log/dockerd.log" 2>&1 </dev/null
}

dockerd_down() {
  if dockerd_runs; then kill_and_wait "$(cat "$RUN/dockerd.pid")"; fi
  # Left by an engine that was killed: it mounts its data over itself.
  while mountpoint -q "$DOCKERD_DATA"; do umount "$DOCKERD_DATA"; done
  if [ -e "$UNDO/docker0" ]; then ip_link_delete docker0; fi
  if [ -e "$UNDO/iptables" ]; then iptables_forget_docker; fi
  if [ -e "$UNDO/ip_forward" ]; then echo 0 >/proc/sys/net/ipv4/ip_forward; fi
  rm -rf "$UNDO"
}

kill_and_wait() {
  kill "$1"
  for _ in $(seq 120); do
    [ -d "/proc/$1" ] || return 0
    sleep 0.25
  done
  kill -9 "$1"
}

ip_link_delete() {
  if [ -e "/sys/class/net/$1" ]; then ip link delete "$1" || say "could not remove the bridge $1"; fi
}

# dockerd leaves its chains and rules behind. No chain of its was there before, so every rule that names one, or a bridge
# of its, is of the engine that just ended.
iptables_forget_docker() {
  local table
  for table in filter nat; do
    in_docker_root iptables-save -t "$table" | grep -vE 'DOCKER|docker0|br-[0-9a-f]{12}' |
      in_docker_root iptables-restore -T "$table"
  done
}
