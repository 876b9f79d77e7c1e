# shellcheck shell=bash
# Sourced by every command of the rig: where things are kept, and how progress is told.
set -euo pipefail
# Without this, a failing command inside $(...) would not end the script.
shopt -s inherit_errexit

RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
REPO=$(cd "$RIG/../.." && pwd)
CACHE=${HOLDFAST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/holdfast}
RUN=$CACHE/run
export RIG REPO CACHE RUN

# shellcheck source=../versions.env
. "$RIG/versions.env"

mkdir -p "$CACHE"/{tools,log,lock,run}

say() { printf 'rig: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# step TEXT COMMAND...: run a command with its output in a log, and tell a person what goes on and how long it took.
# Never call it inside `if`, `&&` or `||`: bash would then ignore errors inside COMMAND.
step() {
  local text=$1 start=$SECONDS log status
  shift
  log=$CACHE/log/$(printf '%s' "${text%%(*}" | tr -cs 'a-zA-Z0-9.\n' '-').log
  say "$text…"
  set +e
  (set -e; "$@") >"$log" 2>&1
  status=$?
  set -e
  if [ "$status" != 0 ]; then
    say "FAILED after $((SECONDS - start)) s: ${text%% (*}. The end of $log:"
    tail -n 20 "$log" >&2
    exit "$status"
  fi
  say "  done in $((SECONDS - start)) s"
}

# lock NAME: wait until no other run holds NAME, then hold it until this shell (best a subshell) ends.
# A daemon started under it must be given {lock_fd}>&- or it keeps the lock for its whole life.
lock() {
  exec {lock_fd}>"$CACHE/lock/$1"
  flock -n "$lock_fd" && return
  say "another run is at work ($1); waiting for it…"
  flock "$lock_fd"
}

# publish TEMPORARY FINAL: make a finished artefact visible in one step, so that an interrupted run leaves no half of one.
publish() {
  rm -rf "$2"
  mv "$1" "$2"
}
