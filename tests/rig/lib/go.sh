# shellcheck shell=bash
# Builds pinned programs from Go modules into $CACHE/tools/NAME-VERSION/NAME.

# One build cache and one module cache for everything, so that packages two programs share are compiled once.
# The programs under modules/kubernetes share one go.mod for the same reason.
export GOCACHE=$CACHE/go/build GOMODCACHE=$CACHE/go/mod

# go_recipe NAME: sets version, source (the Go module), package (in it), module (our folder that pins it with its
# dependencies; none for a program that `go install` builds as its authors pinned it), revision (of a main package of
# our own, whose changes no version tells), ldflags, tags and cost.
go_recipe() {
  module='' revision='' tags='' ldflags='-s -w' cost='seconds after the others, minutes alone'
  case $1 in
    kubectl | kubeadm | kubelet | kube-apiserver | kube-controller-manager | kube-scheduler | kube-proxy)
      version=$KUBERNETES_VERSION source=k8s.io/kubernetes module=kubernetes package=$source/cmd/$1
      ldflags+=$(kubernetes_ldflags)
      if [ "$1" = kube-apiserver ]; then cost='about 4 minutes the first time'; fi
      ;;
    kindnetd | pause)
      version=$KUBERNETES_VERSION source=k8s.io/kubernetes module=kubernetes package=./$1 revision=-$NODE_IMAGE_REVISION
      ;;
    etcd)
      version=$ETCD_VERSION source=go.etcd.io/etcd/server/v3 module=kubernetes package=$source
      cost='about 1 minute the first time'
      ;;
    local-path-provisioner)
      version=$LOCAL_PATH_PROVISIONER_VERSION source=github.com/rancher/local-path-provisioner
      module=kubernetes package=$source
      ;;
    containerd | containerd-shim-runc-v2 | ctr)
      version=$CONTAINERD_VERSION source=github.com/containerd/containerd/v2 module=containerd package=$source/cmd/$1
      ldflags+=" -X $source/version.Version=$version"
      tags='no_aufs no_zfs no_btrfs no_devmapper netgo osusergo static_build urfave_cli_no_docs'
      ;;
    crictl)
      version=$CRICTL_VERSION source=sigs.k8s.io/cri-tools module=addons package=$source/cmd/crictl
      ldflags+=" -X $source/pkg/version.Version=$version"
      ;;
    coredns)
      version=$COREDNS_VERSION source=github.com/coredns/coredns module=addons package=./coredns revision=-$NODE_IMAGE_REVISION
      ;;
    kind) version=$KIND_VERSION source=sigs.k8s.io/kind package=$source cost='under a minute' ;;
    helm)
      version=$HELM_VERSION source=helm.sh/helm/v4 package=$source/cmd/helm cost='about 2 minutes'
      ldflags+=" -X $source/internal/version.version=$version"
      ;;
    helm3)
      version=$HELM3_VERSION source=helm.sh/helm/v3 package=$source/cmd/helm cost='about 2 minutes'
      ldflags+=" -X $source/internal/version.version=$version"
      ;;
    *) die "no Go recipe for $1" ;;
  esac
}

# kubeadm and kind read the version out of the binaries and refuse what a plain build says.
kubernetes_ldflags() {
  local major minor kv
  IFS=. read -r major minor _ <<<"${KUBERNETES_VERSION#v}"
  for kv in "gitVersion=$KUBERNETES_VERSION" "gitMajor=$major" "gitMinor=$minor" gitTreeState=clean; do
    printf ' -X k8s.io/component-base/version.%s' "$kv"
  done
}

# go_tool NAME: builds the program unless the cache has it; prints its path.
go_tool() {
  local version source module package revision ldflags tags cost
  go_recipe "$1"
  local dir=$CACHE/tools/$1-$version$revision
  if [ ! -x "$dir/$1" ]; then
    (
      lock build
      if [ -x "$dir/$1" ]; then exit; fi # built while we waited
      step "building $1 $version from its Go module ($cost)" go_build "$1" "$dir"
    )
  fi
  printf '%s\n' "$dir/$1"
}

# go_build NAME DIR: reads what go_recipe has set.
go_build() {
  local name=$1 dir=$2 tmp=$2.tmp
  command -v go >/dev/null || die "Go is needed to build $name; it is not on the PATH"
  rm -rf "$tmp"
  mkdir -p "$tmp"
  export CGO_ENABLED=0 GOFLAGS='-buildvcs=false -modcacherw -trimpath'
  if [ -n "$module" ]; then
    cd "$RIG/modules/$module"
    grep -qE "^\s*(require )?$source $version( |$)" go.mod ||
      die "versions.env wants $source $version, modules/$module/go.mod does not"
    nice -n 5 go build -tags "$tags" -ldflags "$ldflags" -o "$tmp/$name" "$package"
  else
    cd /
    GOBIN=$tmp nice -n 5 go install -ldflags "$ldflags" "$package@$version"
    # Two majors of one program have one name.
    if [ ! -e "$tmp/$name" ]; then mv "$tmp/${package##*/}" "$tmp/$name"; fi
  fi
  publish "$tmp" "$dir"
}

# go_source MODULE@VERSION: prints the folder of a module's source, fetching it once.
go_source() {
  (cd / && GOFLAGS=-modcacherw go mod download "$1" && go list -m -f '{{.Dir}}' "$1")
}
