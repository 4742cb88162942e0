#!/bin/sh
# fresh_image.sh ROOT: build the image from Containerfile with the bare Debian root file system ROOT as
# its base, and train two replicas in it. Needs root and buildah, which runs without a registry and
# without namespaces of its own here. Prints the size of what the image adds to its base.
set -eu
root=$1
here=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] && command -v buildah >/dev/null ||
    { echo "left out: the container image (it needs root and buildah)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "fresh_image: $*" >&2; exit 1; }
store() { buildah --storage-driver vfs --root "$work/store" --runroot "$work/run" "$@"; }
export TMPDIR="$work" # buildah keeps what it copies there

base=$(store from scratch)
store add --quiet "$base" "$root" / >/dev/null
store commit --quiet "$base" localhost/base >/dev/null
cd "$here/.."
# bud is the name of build in the buildah of Debian 12, too
store bud --isolation chroot --pull-never --build-arg BASE=localhost/base -f Containerfile -t localhost/diloco . \
    >"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2; fail "buildah bud"; }
image=$(store from --pull-never localhost/diloco)
config=$(store inspect --type image --format '{{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}}' localhost/diloco)
[ "$config" = "diloco [diloco]" ] || fail "user and entry point are $config"

seq 1 20000 >"$work/text.txt"
sed -n '/^ *cat .*TOML/,/^TOML/{//!p}' "$here/fresh_lib.sh" >"$work/run.toml"
store copy --quiet "$image" "$work/text.txt" "$work/run.toml" /work/ >/dev/null
in_image() { store run --isolation chroot "$image" -- "$@"; }
[ "$(in_image id -u)" = 1000 ] || fail "it does not run as user 1000"
in_image diloco train run.toml --store run --quiet || fail "diloco train"
in_image diloco verify run || fail "diloco verify"
size() { store images --format '{{.Size}}' "$1"; }
printf 'image: %s, of which the base is %s\n' "$(size localhost/diloco)" "$(size localhost/base)"
