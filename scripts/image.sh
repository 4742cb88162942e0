#!/bin/sh
# image.sh [ARGUMENT…]: build the container image `diloco` from Containerfile with podman, buildah or
# docker, whichever is installed. Arguments go to its build command.
set -eu
cd "$(dirname "$0")/.."
for tool in podman buildah docker; do
    command -v $tool >/dev/null || continue
    echo "image: building localhost/diloco with $tool"
    exec $tool build -f Containerfile -t localhost/diloco "$@" .
done
echo "image: podman, buildah or docker is needed to build an image, and none is installed. Install one: apt install podman" >&2
exit 1
