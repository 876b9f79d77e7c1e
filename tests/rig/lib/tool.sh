# shellcheck shell=bash
# tool NAME: makes sure that a program exists and prints its absolute path.

# shellcheck source=go.sh
. "$RIG/lib/go.sh"

tool() {
  local name=$1 override
  override=HOLDFAST_$(tr 'a-z-' 'A-Z_' <<<"$name")
  if [ -n "${!override:-}" ]; then
    [ -x "${!override}" ] || die "$override=${!override} is no program"
    printf '%s\n' "${!override}"
    return
  fi
  case $name in
    redis-server) redis_server ;;
    valgrind) valgrind_program ;;
    kubectl) kubectl_on_path || go_tool kubectl ;;
    cargo-deny) cargo_deny ;;
    etcd | kube-apiserver | kind | helm | helm3) go_tool "$name" ;;
    *) die "unknown tool '$name'; known: redis-server valgrind etcd kube-apiserver kubectl kind helm helm3 cargo-deny" ;;
  esac
}

# kubectl is supported within one minor version of its server.
kubectl_on_path() {
  local path have want
  path=$(type -P kubectl) || return 1
  have=$("$path" version --client 2>/dev/null | sed -nE 's/^Client Version: v1\.([0-9]+).*/\1/p')
  want=$(cut -d. -f2 <<<"$KUBERNETES_VERSION")
  [ -n "$have" ] && ((have >= want - 1 && have <= want + 1)) && printf '%s\n' "$path"
}

redis_server() {
  type -P redis-server && return
  # Debian's redis-tools has the whole program under another name and, unlike redis-server, starts no service.
  local checker=/usr/bin/redis-check-rdb link=$CACHE/tools/redis-server
  if [ ! -x $checker ]; then
    command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] ||
      die "redis-server is missing; install it, or set HOLDFAST_REDIS_SERVER"
    (
      lock apt
      step "installing Redis from Debian (package redis-tools)" apt_install redis-tools
    )
  fi
  ln -sf $checker "$link"
  printf '%s\n' "$link"
}

valgrind_program() {
  type -P valgrind && return
  command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || die "valgrind is missing; install it, or set HOLDFAST_VALGRIND"
  (
    lock apt
    step "installing valgrind from Debian" apt_install valgrind
  )
  type -P valgrind
}

apt_install() {
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@"
}

cargo_deny() {
  local dir=$CACHE/tools/cargo-deny-$CARGO_DENY_VERSION
  if [ ! -x "$dir/bin/cargo-deny" ]; then
    (
      lock build
      if [ -x "$dir/bin/cargo-deny" ]; then exit; fi
      step "building cargo-deny $CARGO_DENY_VERSION (about 2 minutes the first time)" cargo_deny_build "$dir"
    )
  fi
  printf '%s\n' "$dir/bin/cargo-deny"
}

cargo_deny_build() {
  local tmp=$1.tmp
  rm -rf "$tmp"
  cd / # away from the workspace and its settings
  CARGO_TARGET_DIR=$tmp/target nice -n 5 cargo install --quiet --locked --debug --root "$tmp" \
    --version "=$CARGO_DENY_VERSION" cargo-deny
  rm -rf "$tmp/target"
  publish "$tmp" "$1"
}
