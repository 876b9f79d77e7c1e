# shellcheck shell=bash
# Debian packages without installing any: unpacked into the cache, or as root file systems.

# The programs of a Docker engine and what they run, so that nothing has to be installed on the machine:
# runc of the older suite because the newer one's wants a newer libc, iptables with the libraries it links,
# mmdebstrap to make root file systems, zstd to keep images.
DOCKER_ROOT=$CACHE/docker-$DEBIAN_DOCKER_SUITE-$DOCKER_REVISION
DOCKER_ENV=(
  "PATH=$DOCKER_ROOT/usr/bin:$DOCKER_ROOT/usr/sbin:$PATH"
  "LD_LIBRARY_PATH=$DOCKER_ROOT/usr/lib/x86_64-linux-gnu"
  "XTABLES_LIBDIR=$DOCKER_ROOT/usr/lib/x86_64-linux-gnu/xtables"
)

docker_root() {
  if [ -d "$DOCKER_ROOT" ]; then return; fi
  step "fetching a Docker engine from Debian (packages of $DEBIAN_DOCKER_SUITE)" docker_root_fetch
}

docker_root_fetch() {
  local tmp=$DOCKER_ROOT.tmp deb name
  rm -rf "$tmp"
  mkdir -p "$tmp/debs"
  fetch_debs "$tmp/debs" \
    {docker.io,docker-cli,containerd}/"$DEBIAN_DOCKER_SUITE" \
    {runc,mmdebstrap,zstd,iptables,libip4tc2,libip6tc2,libxtables12}/"$DEBIAN_SUITE" \
    {libnftnl11,libmnl0,libnfnetlink0,libnetfilter-conntrack3}/"$DEBIAN_SUITE"
  for deb in "$tmp"/debs/*.deb; do dpkg -x "$deb" "$tmp"; done
  rm -rf "$tmp/debs"
  for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
    ln -s xtables-nft-multi "$tmp/usr/sbin/$name"
  done
  # The only program of this folder that goes on a person's PATH.
  mkdir "$tmp/cli"
  ln -s ../usr/bin/docker "$tmp/cli/docker"
  publish "$tmp" "$DOCKER_ROOT"
}

# in_docker_root COMMAND...: run a program of it with its own libraries.
in_docker_root() { env "${DOCKER_ENV[@]}" "$@"; }

# fetch_debs FOLDER PACKAGE/SUITE...: through a private apt root, on the mirror that this machine is set up to use.
fetch_debs() {
  local dest=$1 root suite mirror
  shift
  root=$(mktemp -d)
  mirror=$(debian_mirror)
  mkdir -p "$root"/{state/lists/partial,cache/archives/partial,parts}
  for suite in "$DEBIAN_SUITE" "$DEBIAN_DOCKER_SUITE"; do
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n\n' \
      "$mirror" "$suite" /usr/share/keyrings/debian-archive-keyring.gpg
  done >"$root/parts/debian.sources"
  local options=(-qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$root/parts" -o "Dir::State=$root/state"
    -o "Dir::Cache=$root/cache" -o Dir::State::status=/var/lib/dpkg/status -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  (cd "$dest" && apt-get "${options[@]}" download "$@")
  rm -rf "$root"
}

debian_mirror() {
  local mirror
  # Either file may be missing.
  mirror=$({ cat /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null || true; } |
    sed -nE 's/^URIs: *(\S*debian\/?)( .*)?$/\1/p; s/^deb (\[.*\] )?(\S*debian\/?) .*/\2/p' | sed -n 1p)
  [ -n "$mirror" ] || die "no Debian mirror is set up on this machine: without a container registry a Debian 12 is needed"
  printf '%s\n' "$mirror"
}

# rootfs FILE VARIANT PACKAGE,...: a root file system of these packages and all they need, as a tar, made once.
rootfs() {
  local file=$1 variant=$2 packages=$3
  if [ -s "$file" ]; then return; fi
  in_docker_root mmdebstrap --quiet --variant="$variant" --include="$packages" \
    --dpkgopt='path-exclude=/usr/share/'{doc,man,locale}'/*' \
    "$DEBIAN_SUITE" "$file.tmp.tar" "$(debian_mirror)"
  mv "$file.tmp.tar" "$file"
}
