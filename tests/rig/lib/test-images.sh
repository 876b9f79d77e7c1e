# shellcheck shell=bash
# Images that only tests and the managed Redis of a cluster without a registry use. Made once for each revision.

# shellcheck source=closure.sh
. "$RIG/lib/closure.sh"

# test_image redis|tools
test_image() {
  local name=$1 image revision
  case $name in
    redis) image=holdfast-redis:7 revision=$REDIS_IMAGE_REVISION ;;
    tools) image=holdfast-tools:dev revision=$TOOLS_IMAGE_REVISION ;;
  esac
  (
    lock images
    if [ "$(image_revision "$image")" != "$revision" ]; then test_image_make "$name" "$image" "$revision"; fi
  )
  image_size "$image"
}

image_revision() { docker image inspect -f '{{index .Config.Labels "holdfast.rig.revision"}}' "$1" 2>/dev/null || true; }

test_image_make() {
  local name=$1 image=$2 revision=$3 archive=$CACHE/image/$1-$DEBIAN_SUITE-$3.tar
  if [ "$MODE" = registry ]; then
    step "making the image $image from a registry's" "${name}_image_derive" "$image" "$revision"
  elif [ -s "$archive" ]; then
    step "loading the image $image from the cache" docker load --quiet --input "$archive"
  else
    mkdir -p "$CACHE/image"
    docker_root
    step "making the image $image from Debian packages" test_image_build "$name" "$image" "$revision" "$archive"
  fi
}

test_image_build() {
  local name=$1 image=$2 revision=$3 archive=$4 work=$CACHE/image/work-$1
  rm -rf "$work"
  mkdir -p "$work"/{debian,root}
  "${name}_image_fill" "$work"
  nss "$work/debian" "$work/root"
  local changes=()
  mapfile -t changes < <("${name}_image_changes")
  import_image "$work/root" "$image" "LABEL holdfast.rig.revision=$revision" "${changes[@]}"
  docker save --output "$archive.tmp" "$image"
  mv "$archive.tmp" "$archive"
  rm -rf "$work"
}

# debian_programs WORK PACKAGES PROGRAM...: the named programs out of these packages, and busybox for a shell.
debian_programs() {
  local work=$1 packages=$2
  shift 2
  rootfs "$work/debian.tar" extract "busybox,$packages"
  tar -C "$work/debian" --exclude='./dev/*' -xpf "$work/debian.tar"
  closure "$work/debian" "$work/root" /bin/busybox "$@"
  chroot "$work/root" /bin/busybox --install -s /bin
}

redis_image_fill() {
  # redis-server is a link to the program of this name, which looks at the name it was called by.
  debian_programs "$1" redis-server /usr/bin/redis-check-rdb /usr/bin/redis-cli
  ln -s redis-check-rdb "$1/root/usr/bin/redis-server"
  # Any user may keep data here, so that the pod decides who it runs as.
  mkdir -m 1777 "$1/root/data"
}

redis_image_changes() {
  printf '%s\n' 'USER 65532:65532' 'WORKDIR /data' 'EXPOSE 6379' 'ENTRYPOINT ["redis-server"]' 'CMD ["--protected-mode","no"]'
}

redis_image_derive() {
  docker build --tag "$1" --label "holdfast.rig.revision=$2" - <<'END'
FROM redis:7-alpine
RUN chmod 1777 /data
USER 65532:65532
ENTRYPOINT ["redis-server"]
CMD ["--protected-mode","no"]
END
}

tools_image_fill() {
  debian_programs "$1" curl /usr/bin/curl
  authorities "$1/root"
}

tools_image_changes() { printf '%s\n' 'USER 65532:65532' 'CMD ["sh"]'; }

tools_image_derive() {
  docker build --tag "$1" --label "holdfast.rig.revision=$2" - <<'END'
FROM alpine:3
RUN apk add --no-cache curl ca-certificates
USER 65532:65532
CMD ["sh"]
END
}
