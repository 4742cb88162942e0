#!/bin/sh
# install_test.sh BUILD_FOLDER - what is installed can be used by a project that knows nothing of
# ours (LIB-1): through pkg-config and through CMake, shared and static, after the whole was moved.
set -eu

build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "install_test: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$work/first" >"$work/log" 2>&1 || { cat "$work/log"; fail install; }
mv "$work/first" "$work/prefix"
prefix=$work/prefix
lib=$(dirname "$(find "$prefix" -name libdiloco.so)")
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
sanitize=$(cached DILOCO_SANITIZE_FLAGS)
version=$(cached CMAKE_PROJECT_VERSION)
CC=$(cached CMAKE_C_COMPILER) CXX=$(cached CMAKE_CXX_COMPILER)
export CC CXX PKG_CONFIG_PATH="$lib/pkgconfig"
with_train=$([ ! -e "$lib/libdiloco-train.so" ] || echo yes)

mkdir "$work/project" && cd "$work/project"
cat >main.c <<'C'
#include <diloco/status.h>
#include <stdio.h>
int main(void)
{
    return puts(diloco_status_name(DILOCO_EFULL)) < 0;
}
C
cat >CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(outside C)
find_package(diloco ${SERIES} REQUIRED)
add_executable(with_shared main.c)
target_link_libraries(with_shared diloco::diloco)
add_executable(with_static main.c)
target_link_libraries(with_static diloco::diloco_static)
if(WITH_TRAIN)
  add_executable(train_shared train.c)
  target_link_libraries(train_shared diloco::train)
  add_executable(train_static train.c)
  target_link_libraries(train_static diloco::train_static)
endif()
CMAKE
cat >train.c <<'C'
#include <diloco/train.h>
#include <stdio.h>
int main(void)
{
    return puts(diloco_version()[0] ? diloco_status_name(DILOCO_EFULL) : "") < 0;
}
C
says_full() { [ "$("$@")" = full ] || fail "$* does not say full"; }

# every header alone, as strict C11 and as C++
for header in "$prefix"/include/diloco/*.h; do
    name=diloco/$(basename "$header")
    echo "#include <$name>" >one.c
    "$CC" -std=c11 -pedantic-errors -Wall -Wextra -Werror -fsyntax-only -I"$prefix/include" one.c ||
        fail "$name is not C11 by itself"
    "$CXX" -x c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only -I"$prefix/include" one.c ||
        fail "$name is not C++ by itself"
done

# pkg-config
try_pkg_config() { # package, source
    "$CC" $sanitize "$2" -o pc_shared $(pkg-config --cflags --libs "$1") -Wl,-rpath,"$lib"
    says_full ./pc_shared
    static=$(pkg-config --static --libs "$1" | sed 's/-l\(diloco[a-z-]*\)/-l:lib\1.a/g')
    "$CC" $sanitize "$2" -o pc_static $(pkg-config --cflags "$1") $static
    says_full ./pc_static
}
try_pkg_config diloco main.c
[ -z "$with_train" ] || try_pkg_config diloco-train train.c

# CMake
cmake -S . -B out -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="$sanitize" \
    -DWITH_TRAIN="$with_train" -DSERIES="${version%.*}" >"$work/log" 2>&1 && cmake --build out >>"$work/log" 2>&1 ||
    { cat "$work/log"; fail "find_package(diloco)"; }
for program in with_shared with_static ${with_train:+train_shared train_static}; do
    says_full "out/$program"
done

# exports of the libraries: the public names, and dl_ ones to their own kind only
nm -D --defined-only "$lib/libdiloco.so" >names
grep -q ' diloco_status_name@@DILOCO_0$' names || fail "libdiloco.so does not show diloco_status_name"
if grep -vE ' (diloco_\w+@@DILOCO_0|dl_\w+@@DILOCO_PRIVATE_.*|DILOCO_.*)$' names; then
    fail "libdiloco.so shows these names"
fi
if [ "$with_train" ]; then
    nm -D --defined-only "$lib/libdiloco-train.so" >train_names
    # files that a sanitizer's build leaves there for fuzzing are not ours
    fuzzing=$([ -z "$sanitize" ] || printf '%s' '|__(start|stop)___sancov_\w+')
    if grep -vE " (diloco_\w+$fuzzing)\$" train_names; then
        fail "libdiloco-train.so shows these names"
    fi

    # and all of them: the first name after each DILOCO_API of the headers
    cat "$prefix"/include/diloco/*.h | tr '\n' ' ' | sed 's/;/;\n/g' | sed -n 's/.*DILOCO_API//p' |
        sed -n 's/[^(]*[ *]\(diloco_[a-z0-9_]*\)(.*/\1/p' | sort -u >declared
    [ -s declared ] || fail "no declaration was read"
    sed 's/.* //; s/@.*//' names train_names | sort -u >defined
    if comm -23 declared defined | grep .; then fail "no library has these names of the headers"; fi
fi

# A library's build ID depends on the RUNPATH that it was linked with, so no RUNPATH names the build
# folder: two folders would give two packages.
for file in "$build"/libdiloco*.so; do
    if LC_ALL=C readelf -d "$file" | grep -E 'R(UN)?PATH' | grep -F "$build"; then
        fail "$file names the build folder"
    fi
done

# LIB-3: neither they nor the tests need a GPU, a launcher, a tokenizer or an experiment tracker.
for file in "$lib"/libdiloco*.so "$build"/run_run_test "$build"/train_replica_test; do
    [ -e "$file" ] || continue
    if ldd "$file" | grep -iE 'cuda|nccl|cudnn|libmpi|torch|python|tokenizers|wandb'; then
        fail "$file needs that"
    fi
done

# LIB-1, LIB-6: the licence, and those of its dependencies.
doc=$prefix/share/doc/diloco
grep -q 'Apache License' "$doc/LICENSE" || fail "no licence is installed"
grep -q 'BSD 3-clause' "$doc/docs/architecture.md" || fail "nothing says what comes from BSD-3 sources"
grep -q '^# diloco' "$doc/README.md" || fail "README.md is not the project's page"

# the program, and its manual
if [ -e "$prefix/bin/diloco" ]; then
    for page in man1/diloco.1 man1/diloco-train.1 man5/diloco_config.5; do
        [ -s "$prefix/share/man/$page" ] || fail "$page is not installed"
    done
    for script in bash-completion/completions/diloco zsh/site-functions/_diloco \
        zsh/vendor-completions/_diloco fish/vendor_completions.d/diloco.fish; do
        grep -q takeover "$prefix/share/$script" || fail "$script is not installed"
    done
    "$prefix/bin/diloco" --version | grep -qF "$version" || fail "diloco --version"
fi
# the Debian package, of what is installed here: nothing is built for it
if [ -e "$prefix/bin/diloco" ] && [ -z "$sanitize" ] && command -v dpkg-shlibdeps >/dev/null; then
    mkdir "$work/empty"
    if PATH="$work/empty" /bin/sh "$root/scripts/deb.sh" cpack 2>"$work/log"; then fail "a package without tools"; fi
    grep -q 'Install it: apt install file' "$work/log" || fail "deb.sh does not say what is missing"
    "$root/scripts/deb.sh" cpack --config "$build/CPackConfig.cmake" -B "$work/deb" -D CPACK_INSTALL_CMAKE_PROJECTS= \
        -D "CPACK_INSTALLED_DIRECTORIES=$prefix;/usr" >"$work/log" 2>&1 || { cat "$work/log"; fail deb; }
    dpkg-deb -f "$work"/deb/diloco_*.deb Depends | grep -q 'libc6 .*libcurl' || fail "the package needs nothing"
    dpkg-deb -x "$work"/deb/diloco_*.deb "$work/unpacked"
    "$work/unpacked/usr/bin/diloco" --version | grep -qF "$version" || fail "diloco --version from the package"
fi
echo "install_test: passed"
