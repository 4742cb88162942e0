#!/bin/sh
# deb.sh CPACK [ARGUMENT…]: run CPack for a Debian package. Refuses where a tool that finds the
# dependencies is missing: CPack would write a package without any.
set -eu
need() { # program, its package
    command -v "$1" >/dev/null && return
    echo "deb: $1 is not installed, and without it the package would name no dependencies." \
        "Install it: apt install $2" >&2
    exit 1
}
need file file
need dpkg-shlibdeps dpkg-dev
need dpkg-deb dpkg
exec "$@" -G DEB
