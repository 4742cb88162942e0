#!/bin/bash
# wheel.sh OUT: write OUT/diloco-VERSION-py3-none-manylinux_2_28_x86_64.whl, which needs glibc 2.28
# and nothing else of the system it is installed on.
#
# The compiler is zig's clang, which links against the symbols of the glibc version that is named to it:
# a symbol that is newer is an error of the linker. So the build does not need an old system.
# The libraries are compiled from Debian's sources (libraries.sh) and kept in build/wheel-libraries
# (DILOCO_WHEEL_LIBRARIES).
# auditwheel bundles those that are shared and checks the whole.
set -euo pipefail
glibc=2.28
cd "$(dirname "$0")/../.."
root=$(pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
kept=${DILOCO_WHEEL_LIBRARIES:-$root/build/wheel-libraries}
[ "$(uname -m)" = x86_64 ] || { echo "wheel: this script builds wheels for x86_64, this is $(uname -m)" >&2; exit 1; }
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}

# Everything that the kept libraries are made of; another value begins again.
key=$(cat scripts/wheel/{libraries.sh,sources.sh,requirements.txt} | sha256sum | cut -c1-16)-$glibc
[ "$(cat "$kept/key" 2>/dev/null)" = "$key" ] || { rm -rf "$kept"; mkdir -p "$kept"; echo "$key" >"$kept/key"; }

python=$kept/venv/bin/python
if [ ! -e "$kept/venv/ready" ]; then
    echo "wheel: installing the tools of scripts/wheel/requirements.txt"
    python3 -m venv "$kept/venv"
    "$python" -m pip install --quiet --disable-pip-version-check -r scripts/wheel/requirements.txt
    touch "$kept/venv/ready"
fi

# The compiler as programs of the usual names.
zig=$("$python" -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__))')
mkdir -p "$kept/tools"
for tool in cc c++; do
    printf '#!/bin/sh\nexec "%s/zig" %s -target x86_64-linux-gnu.%s -g0 "$@"\n' "$zig" "$tool" "$glibc" >"$kept/tools/$tool"
done
for tool in ar ranlib; do
    printf '#!/bin/sh\nexec "%s/zig" %s "$@"\n' "$zig" "$tool" >"$kept/tools/$tool"
done
chmod +x "$kept"/tools/*
export PATH=$kept/tools:$kept/venv/bin:$PATH CC=cc CXX=c++ AR=ar RANLIB=ranlib
unset CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER # the kept libraries depend on nothing of this machine

prefix=$kept/prefix
if [ ! -e "$prefix/complete" ]; then
    echo "wheel: fetching the sources of the libraries"
    [ -e "$kept/sources/packages.tsv" ] || scripts/wheel/sources.sh "$kept/sources"
    scripts/wheel/libraries.sh "$kept/sources" "$prefix"
    # headers alone: toml++ of this machine
    cp -r /usr/include/toml++ "$prefix/include/"
    cp /usr/share/doc/libtomlplusplus-dev/copyright "$prefix/licenses/tomlplusplus"
    dpkg-query -W -f 'tomlplusplus\t${Version}\n' libtomlplusplus-dev >>"$prefix/packages.tsv"
    # the C++ library and the unwinder, static, from zig
    for library in libcxx libcxxabi libunwind; do
        cp "$zig/lib/$library/LICENSE.TXT" "$prefix/licenses/$library"
    done
    "$python" -c 'import importlib.metadata as m; print("ziglang", m.version("ziglang"), sep="\t")' >>"$prefix/packages.tsv"
    rm -rf "$kept/sources"
    touch "$prefix/complete"
fi

echo "wheel: building diloco"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig LDFLAGS="-L$prefix/lib -Wl,-s" CFLAGS="-ffile-prefix-map=$root=. -I$prefix/include"
export CXXFLAGS=$CFLAGS
libraries="-lssl -lcrypto -lz -pthread" # of the static libcurl, which CMake's pkg-config module leaves out
export CMAKE_ARGS="-DCMAKE_PREFIX_PATH=$prefix '-DCMAKE_C_STANDARD_LIBRARIES=$libraries' '-DCMAKE_CXX_STANDARD_LIBRARIES=$libraries' ${CMAKE_ARGS:-}"
DILOCO_BUILD=$work/build DILOCO_LICENSES=$prefix/licenses "$python" -m pip wheel --quiet --no-deps --no-build-isolation \
    --disable-pip-version-check --wheel-dir "$work/plain" ./python
LD_LIBRARY_PATH=$prefix/lib auditwheel repair --plat "manylinux_${glibc/./_}_x86_64" --only-plat --strip --wheel-dir "$work/out" \
    "$work"/plain/*.whl >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
scripts/wheel/check.sh "$work"/out/*.whl "$prefix" "$root" "$kept" "$work"
cp "$work"/out/*.whl "$out/"
ls -l "$out"/*.whl
