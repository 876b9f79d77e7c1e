# shellcheck shell=bash
# The smallest root file system a program runs in: itself, the shared libraries it links, and what the C library reads
# when it resolves a name. (A static C library would not do: it cannot resolve names in an image without these.)

# closure FROM TO PROGRAM...: copies programs (absolute paths inside the root FROM) with all that they link.
closure() {
  local from=${1%/} to=$2 path
  shift 2
  for path; do put "$from" "$to" "$path"; done
  libraries "$from" "$to" "$@"
}

# libraries FROM TO PROGRAM...: only what the programs link.
libraries() {
  local from=${1%/} to=$2 program path
  shift 2
  for program; do linked "$from" "$program"; done | sort -u | while read -r path; do put "$from" "$to" "$path"; done
}

# The folders are made plain: Debian's /lib is a link, which in an image would be in the way of what is laid over it.
put() {
  mkdir -p "$2${3%/*}"
  cp -L "$1$3" "$2$3"
}

linked() {
  local from=$1 program=$2 loader
  if [ -z "$from" ]; then
    ldd "$program"
  else
    loader=$(cd "$from" && echo lib*/ld-linux-*.so.*)
    chroot "$from" "/$loader" --list "$program"
  fi | grep -oE '/[^ ]+'
}

# nss FROM TO: name resolution, and a user that is not root.
nss() {
  local from=${1%/} to=$2 library
  # Built into newer C libraries, separate in older ones.
  for library in "$from"/lib/*/libnss_{dns,files}.so.2; do
    if [ -e "$library" ]; then closure "$from" "$to" "${library#"$from"}"; fi
  done
  mkdir -p "$to"/{etc,tmp}
  chmod 1777 "$to/tmp"
  echo 'hosts: files dns' >"$to/etc/nsswitch.conf"
  printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n' >"$to/etc/passwd"
  printf 'root:x:0:\nnonroot:x:65532:\n' >"$to/etc/group"
}

# authorities TO: the certificate authorities this machine trusts.
authorities() {
  local bundle
  for bundle in "${HOLDFAST_CA_BUNDLE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
    if [ -s "$bundle" ]; then
      mkdir -p "$1/etc/ssl/certs"
      cp -L "$bundle" "$1/etc/ssl/certs/ca-certificates.crt"
      chmod 644 "$1/etc/ssl/certs/ca-certificates.crt"
      return
    fi
  done
  die "no bundle of certificate authorities found; install ca-certificates, or set HOLDFAST_CA_BUNDLE"
}
