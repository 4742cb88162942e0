#!/bin/sh
# fresh_image.sh ROOT: build the image from Containerfile with the bare Debian root file system ROOT as
# its base, and train two replicas in it as its user. Prints its size and that of its base. Needs root.
# buildah builds it, without a registry and without namespaces of its own. Where buildah is missing or
# FRESH_BUILDAH=no, the steps of Containerfile are run in chroots, and a line says so.
set -eu
root=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || { echo "left out: the container image (it needs root)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "fresh_image: $*" >&2; exit 1; }
cd "$here/.."

seq 1 20000 >"$work/text.txt"
sed -n '/^ *cat .*TOML/,/^TOML/{//!p}' "$here/fresh_lib.sh" >"$work/run.toml"

# Both ways define user, entry, size_image and size_base, and in_image COMMAND…, which runs a command
# as the image's user in its working folder.
by_buildah() {
    store() { buildah --storage-driver vfs --root "$work/store" --runroot "$work/run" "$@"; }
    export TMPDIR="$work" # buildah keeps what it copies there
    base=$(store from scratch)
    store add --quiet "$base" "$root" / >/dev/null
    store commit --quiet "$base" localhost/base >/dev/null
    # bud is the name of build in the buildah of Debian 12, too
    store bud --isolation chroot --pull-never --build-arg BASE=localhost/base -f Containerfile -t localhost/diloco . \
        >"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2; fail "buildah bud"; }
    image=$(store from --pull-never localhost/diloco)
    user=$(store inspect --type image --format '{{.OCIv1.Config.User}}' localhost/diloco)
    entry=$(store inspect --type image --format '{{.OCIv1.Config.Entrypoint}}' localhost/diloco)
    store copy --quiet "$image" "$work/text.txt" "$work/run.toml" /work/ >/dev/null
    in_image() { store run --isolation chroot "$image" -- "$@"; }
    size() { store images --format '{{.Size}}' "$1"; }
    size_image=$(size localhost/diloco) size_base=$(size localhost/base)
}

# The steps of Containerfile, one a line: comments are left out, continued lines are joined.
steps() { grep -v '^ *#' Containerfile | sed -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}' -e '/^$/d'; }

by_chroots() {
    echo "image: the steps of Containerfile in chroots, without buildah"
    steps >"$work/steps"
    stages=0 user=root
    while read -r step rest; do
        case $step in
        ARG) ;;
        FROM) stages=$((stages + 1)) stage=$work/stage$stages folder=/
              cp -a "$root" "$stage" ;;
        WORKDIR) folder=$rest && mkdir -p "$stage$folder" ;;
        COPY) case $rest in
              --from=build\ *) set -- $rest && cp "$work"/stage1$2 "$stage$3" ;;
              .\ *) mkdir -p "$stage/${rest#. }"
                    sed 's,^,./,' .containerignore >"$work/ignored"
                    tar -c --anchored --exclude-from="$work/ignored" . | tar -x -C "$stage/${rest#. }" ;;
              *) fail "no step in a chroot for: COPY $rest" ;;
              esac ;;
        RUN) "$here/in_chroot.sh" "$stage" sh -c "cd $folder && $rest" </dev/null >"$work/log" 2>&1 ||
                 { tail -n 30 "$work/log" >&2; fail "RUN $rest"; } ;;
        USER) user=$rest ;;
        ENTRYPOINT) entry=$rest ;;
        *) fail "no step in a chroot for: $step $rest" ;;
        esac
    done <"$work/steps"
    entry=$(echo "$entry" | tr -d '"')
    size() { echo "$(($(du -sk "$1" | cut -f1) / 1000)) MB"; }
    size_image=$(size "$stage") size_base=$(size "$root")
    cp "$work/text.txt" "$work/run.toml" "$stage/work/"
    in_image() {
        "$here/in_chroot.sh" "$stage" env HOME="/home/$user" setpriv --reuid "$user" --regid "$user" --init-groups \
            sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
    }
}

if [ "${FRESH_BUILDAH:-yes}" = yes ] && command -v buildah >/dev/null; then
    by_buildah
else
    by_chroots
fi
[ "$user $entry" = "diloco [diloco]" ] || fail "user and entry point are $user $entry"
[ "$(in_image id -u)" = 1000 ] || fail "it does not run as user 1000"
in_image diloco train run.toml --store run --quiet || fail "diloco train"
in_image diloco verify run || fail "diloco verify"
printf 'image: %s, on a base of %s\n' "$size_image" "$size_base"
