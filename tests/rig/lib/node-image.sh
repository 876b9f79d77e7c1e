# shellcheck shell=bash
# The kind node image where none can be pulled: Debian packages, Go modules, and kind's own recipe on top.

# shellcheck source=go.sh
. "$RIG/lib/go.sh"
# shellcheck source=debian.sh
. "$RIG/lib/debian.sh"

OFFLINE_NODE_IMAGE=holdfast-node:$KUBERNETES_VERSION-$NODE_IMAGE_REVISION
NODE_ARCHIVE=$CACHE/image/node-$KUBERNETES_VERSION-$NODE_IMAGE_REVISION.tar.zst
NODE_PROGRAMS=(containerd containerd-shim-runc-v2 ctr kubectl kubeadm kubelet kube-apiserver kube-controller-manager
  kube-scheduler kube-proxy etcd kindnetd pause local-path-provisioner crictl coredns)

# node_image: makes sure that the engine has it.
node_image() {
  if docker image inspect "$OFFLINE_NODE_IMAGE" >/dev/null 2>&1; then return; fi
  mkdir -p "$CACHE/image"
  if [ ! -s "$NODE_ARCHIVE" ]; then
    node_image_build
  else
    step "loading the node image from the cache" docker load --quiet --input "$NODE_ARCHIVE"
  fi
}

node_image_build() {
  say "no node image in the cache: building one (10 to 15 minutes on 2 cores; an interrupted build goes on where it was)"
  local name work=$CACHE/image/work
  docker_root
  for name in "${NODE_PROGRAMS[@]}"; do go_tool "$name" >/dev/null; done
  mkdir -p "$work"
  step "making the node's root file system from Debian packages" node_rootfs "$work"
  step "making kind's base image" base_image "$work"
  step "making the images of the control plane" component_images "$work"
  step "putting the node image together" node_image_assemble "$work"
  step "keeping the node image in the cache" node_image_keep
  rm -rf "$work"
}

node_rootfs() {
  # kube-proxy and kindnetd run iptables. It needs its whole closure: without one library (libm) kube-proxy stays Running
  # and writes no rules for a Service with more than one endpoint.
  rootfs "$1/iptables.tar" extract iptables,nftables,conntrack
  # The list of kind's images/base/Dockerfile, less what only other storage needs.
  rootfs "$1/node.tar" minbase "systemd,conntrack,iptables,nftables,iproute2,ethtool,util-linux,mount,kmod,libseccomp2,\
pigz,e2fsprogs,bash,ca-certificates,curl,jq,procps,runc,containernetworking-plugins,busybox-static"
}

# base_image WORK: follows kind's images/base/Dockerfile, with kind's own files out of its module.
base_image() {
  local root=$1/base kind files name
  kind=$(go_source "sigs.k8s.io/kind@$KIND_VERSION")
  files=$kind/images/base/files
  rm -rf "$root"
  mkdir -p "$root"
  tar -C "$root" --exclude='./dev/*' -xpf "$1/node.tar"

  cp -r --no-preserve=ownership "$files"/. "$root"/
  chmod -R u+w "$root"/{kind,LICENSES,etc/containerd,etc/systemd/system}
  chmod 755 "$root"/{kind,kind/bin} "$root"/kind/bin/* "$root"/usr/local/bin/*
  (
    cd "$root"
    rm -f lib/systemd/system/{multi-user,local-fs,basic}.target.wants/* etc/systemd/system/*.wants/* \
      lib/systemd/system/sockets.target.wants/*{udev,initctl}* \
      lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service
    echo ReadKMsg=no >>etc/systemd/journald.conf
    ln -sf /lib/systemd/systemd sbin/init
    mkdir -p etc/kubernetes/manifests opt/cni/bin
    mv usr/lib/cni/{host-local,loopback,ptp,portmap,bridge} opt/cni/bin/
    rm -rf usr/lib/cni var/lib/apt/lists/* var/cache/apt/*.bin var/cache/apt/archives/*.deb
  )
  for name in containerd containerd-shim-runc-v2 ctr crictl; do
    install -m 755 "$(go_tool "$name")" "$root/usr/local/bin/"
  done
  ln -sf /usr/sbin/runc "$root/usr/local/sbin/runc"
  chroot "$root" /bin/bash -euc '
    systemctl enable kubelet.service containerd.service undo-mount-hacks.service
    systemctl mask systemd-binfmt.service
    ctr oci spec | jq ".hooks.createContainer = [{path: \"/kind/bin/mount-product-files.sh\"}] | del(.process.rlimits)" \
      >/etc/containerd/cri-base.json'
  import_image "$root" holdfast-node-base 'ENV container=docker' 'STOPSIGNAL SIGRTMIN+3' \
    'ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]'
  rm -rf "$root"
}

# import_image FOLDER NAME CHANGE...: an image of one layer.
import_image() {
  local folder=$1 name=$2 change changes=()
  shift 2
  for change in 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' "$@"; do
    changes+=(--change "$change")
  done
  tar -C "$folder" --numeric-owner -c . | docker import "${changes[@]}" - "$name"
}

# component_images WORK: one image for each part of the control plane, named as kubeadm and kind expect them.
component_images() {
  local work=$1 kind wanted name image
  kind=$(go_source "sigs.k8s.io/kind@$KIND_VERSION")
  # The names are asked of kubeadm and read from kind's source, so that they follow the versions.
  wanted=$("$(go_tool kubeadm)" config images list --kubernetes-version "$KUBERNETES_VERSION" 2>/dev/null)
  rm -rf "$work/component"
  : >"$work/images"
  for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy etcd coredns; do
    image=$(grep "/$name:" <<<"$wanted")
    component_image "$work" "$name" "$image"
  done
  component_image "$work" kindnetd "$(kind_constant "$kind" kindnetdImage)"
  component_image "$work" local-path-provisioner "$(kind_constant "$kind" storageProvisionerImage)"
  component_image "$work" pause "$(sed -nE 's/.*sandbox_image = "(.*)"/\1/p' "$kind/images/base/files/etc/containerd/config.toml")"
  # Makes and removes the folders of persistent volumes, with a shell.
  mkdir -p "$work/component/helper/bin"
  tar -C "$work/component/helper/bin" --strip-components=3 -xf "$work/node.tar" ./usr/bin/busybox ||
    tar -C "$work/component/helper/bin" --strip-components=2 -xf "$work/node.tar" ./bin/busybox
  for name in sh mkdir rm chmod ls cat; do ln -s busybox "$work/component/helper/bin/$name"; done
  image=$(kind_constant "$kind" storageHelperImage)
  import_image "$work/component/helper" "$image"
  echo "$image" >>"$work/images"
}

kind_constant() { sed -nE "s/^const $2 = \"(.*)\"/\1/p" "$1"/pkg/build/nodeimage/const_*.go; }

# component_image WORK PROGRAM IMAGE
component_image() {
  local work=$1 name=$2 image=$3 root=$1/component/$2
  mkdir -p "$root"
  case $name in
    kube-proxy | kindnetd)
      tar -C "$root" --exclude='./dev/*' -xpf "$work/iptables.tar"
      local tool
      for tool in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
        ln -sf xtables-nft-multi "$root/usr/sbin/$tool"
      done
      chroot "$root" /usr/sbin/iptables --version
      ;;
  esac
  mkdir -p "$root"/{usr/local/bin,tmp,etc}
  chmod 1777 "$root/tmp"
  printf 'root:x:0:0::/:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n' >"$root/etc/passwd"
  install -m 755 "$(go_tool "$name")" "$root/usr/local/bin/"
  import_image "$root" "$image" "ENTRYPOINT [\"/usr/local/bin/$name\"]"
  echo "$image" >>"$work/images"
}

# node_image_assemble WORK: gives kind the "server tarball" it builds node images from.
node_image_assemble() {
  local work=$1 server=$1/server/kubernetes name image
  local images=()
  mapfile -t images <"$work/images"
  rm -rf "$work/server" "$work/save"
  mkdir -p "$server/server/bin" "$work/save"
  echo "$KUBERNETES_VERSION" >"$server/version"
  for name in kubeadm kubelet kubectl; do install -m 755 "$(go_tool "$name")" "$server/server/bin/"; done
  for name in kube-apiserver kube-controller-manager kube-scheduler; do
    docker save --output "$server/server/bin/$name.tar" "$(grep "/$name:" "$work/images")"
  done
  # kind loads four archives by their names, so all other images ride in the fourth. It takes an archive's image names from
  # whichever of `repositories` and `manifest.json` comes first, of the latter only the first entry, and would pull the rest:
  # so a `repositories` with every full name goes in front.
  docker save "${images[@]}" | tar -C "$work/save" -x
  {
    for image in "${images[@]}"; do printf '"%s":{"%s":"-"}\n' "${image%:*}" "${image##*:}"; done | paste -sd, | sed 's/.*/{&}/'
  } >"$work/save/repositories"
  (
    cd "$work/save"
    find . -mindepth 1 -maxdepth 1 ! -name repositories -printf '%P\0' |
      tar -c repositories --null -T - >"$server/server/bin/kube-proxy.tar"
  )
  tar -C "$work/server" -c kubernetes | gzip -1 >"$work/server.tar.gz"
  "$(go_tool kind)" build node-image "$work/server.tar.gz" --type file --base-image holdfast-node-base \
    --image "$OFFLINE_NODE_IMAGE"
  # The parts are in the node image now.
  docker image rm --force holdfast-node-base "${images[@]}"
}

node_image_keep() {
  docker save "$OFFLINE_NODE_IMAGE" | in_docker_root zstd -q -T0 -3 -f -o "$NODE_ARCHIVE.tmp"
  mv "$NODE_ARCHIVE.tmp" "$NODE_ARCHIVE"
}
