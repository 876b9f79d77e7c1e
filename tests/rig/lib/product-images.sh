# shellcheck shell=bash
# holdfast-sidecar and holdfast-operator: a release build staged into a small context, so that `docker build` is the same
# command everywhere and needs no network.

# shellcheck source=closure.sh
. "$RIG/lib/closure.sh"

# product_image sidecar|operator
product_image() {
  local name=$1 image=holdfast-$1:${HOLDFAST_TAG:-dev} context=$REPO/target/image/$1 binary override
  override=HOLDFAST_${1^^}_BINARY
  binary=${!override:-}
  if [ -z "$binary" ]; then
    step "building holdfast-$name (release)" cargo build --release --locked --manifest-path "$REPO/Cargo.toml" -p "holdfast-$name"
    binary=${CARGO_TARGET_DIR:-$REPO/target}/release/holdfast-$name
  fi
  (
    lock images # after the long build, which cargo itself guards
    step "building the image $image" product_image_build "$name" "$image" "$context" "$binary"
  )
  image_size "$image"
}

product_image_build() {
  local name=$1 image=$2 context=$3 binary=$4 revision
  revision=$(git -C "$REPO" describe --always --abbrev=40 --exclude='*' --dirty 2>/dev/null || echo unknown)
  rm -rf "$context"
  install -D -m 755 "$binary" "$context/rootfs/usr/local/bin/holdfast-$name"
  libraries / "$context/rootfs" "$binary"
  nss / "$context/rootfs"
  authorities "$context/rootfs"
  docker build --tag "$image" --file "$REPO/$name/Dockerfile" \
    --build-arg "VERSION=${HOLDFAST_TAG:-dev}" --build-arg "REVISION=$revision" "$context"
  # Every rebuild leaves the image it replaced without a name.
  docker image prune --force --filter "label=org.opencontainers.image.title=holdfast-$name"
}

# earlier_image: the sidecar of an earlier commit, built once into the cache. It is not the one under test: a faster link will do.
earlier_image() {
  local binary=$CACHE/earlier/$EARLIER_COMMIT/holdfast-sidecar
  if [ ! -x "$binary" ]; then
    (
      lock earlier
      if [ -x "$binary" ]; then exit; fi
      step "building the sidecar of ${EARLIER_COMMIT:0:7} (several minutes the first time)" earlier_build "$binary"
    )
  fi
  HOLDFAST_SIDECAR_BINARY=$binary HOLDFAST_TAG=earlier product_image sidecar
}

earlier_build() {
  local binary=$1 work=$CACHE/earlier/work
  git -C "$REPO" worktree remove --force "$work/source" 2>/dev/null || rm -rf "$work/source"
  git -C "$REPO" worktree prune
  git -C "$REPO" worktree add --detach "$work/source" "$EARLIER_COMMIT"
  CARGO_TARGET_DIR=$work/target nice -n 5 cargo build --release --locked --config 'profile.release.lto=false' \
    --config 'profile.release.codegen-units=16' --manifest-path "$work/source/Cargo.toml" -p holdfast-sidecar
  mkdir -p "${binary%/*}"
  mv "$work/target/release/holdfast-sidecar" "$binary"
  git -C "$REPO" worktree remove --force "$work/source"
  rm -rf "$work"
}

image_size() {
  local bytes
  bytes=$(docker image inspect -f '{{.Size}}' "$1")
  printf '%s %d.%d MB\n' "$1" $((bytes / 1000000)) $((bytes % 1000000 / 100000))
}
