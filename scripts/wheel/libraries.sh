#!/bin/bash
# libraries.sh SOURCES PREFIX: compile the wheel's libraries from SOURCES (sources.sh) with the
# compiler in CC and install them in PREFIX. A library is built with the features that diloco uses
# and no others, so that nothing else has to be bundled.
#
# Libraries under permissive licences are static. Those under the LGPL (gmp, nettle, gnutls,
# libmicrohttpd) are shared, so that a user may replace them.
set -euo pipefail
sources=$(cd "$1" && pwd)
mkdir -p "$2/lib" "$2/licenses"
prefix=$(cd "$2" && pwd)
export CFLAGS="-O2 -fPIC -ffile-prefix-map=$sources=/usr/src" LDFLAGS="-L$prefix/lib -Wl,-s" CPPFLAGS="-I$prefix/include"
export PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig
# Debian's patches make generated files look old. They are used as they are.
export MAKEFLAGS="-j$(nproc) AUTOCONF=: AUTOMAKE=: ACLOCAL=: AUTOHEADER=: MAKEINFO=:"

# Shared libraries have neither a RUNPATH nor debugging information, which would name folders of the
# build: auditwheel names a library by a digest of its bytes before it removes both.
by_configure() { # flags…
    ./configure --prefix="$prefix" --libdir="$prefix/lib" "$@"
    [ ! -e libtool ] || sed -i 's/^hardcode_libdir_flag_spec=.*/hardcode_libdir_flag_spec=/; s/^runpath_var=.*/runpath_var=/' libtool
    make
    make install
}
by_cmake() { # folder, flags…
    cmake -S "$1" -B out -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DCMAKE_INSTALL_PREFIX="$prefix" \
        -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_PREFIX_PATH="$prefix" "${@:2}"
    cmake --build out
    cmake --install out
}

zlib() { ./configure --static --prefix="$prefix" && make libz.a && make install; }
libzstd() {
    make -C lib libzstd.a
    make -C lib install-static install-includes install-pc PREFIX="$prefix" LIBDIR="$prefix/lib"
}
xxhash() { by_cmake cmake_unofficial -DXXHASH_BUILD_XXHSUM=OFF; }
expat() {
    # Debian's patches compare XML_DTD with 1, which CMake defines as empty.
    sed -i 's/cmakedefine XML_DTD$/& 1/' expat/expat_config.h.cmake
    by_cmake expat -DEXPAT_SHARED_LIBS=OFF -DEXPAT_BUILD_TOOLS=OFF -DEXPAT_BUILD_EXAMPLES=OFF \
        -DEXPAT_BUILD_TESTS=OFF -DEXPAT_BUILD_DOCS=OFF
}
openssl() {
    # It stores its prefix and its flags in the library, so both name no folder of this machine. It is
    # compiled in its own folder, and its messages name sources relative to that.
    CPPFLAGS='' CFLAGS="-O2 -fPIC" ./Configure linux-x86_64 --prefix=/usr --libdir=lib --openssldir=/etc/ssl no-shared no-tests \
        no-engine no-legacy no-module no-dso no-autoload-config
    make build_libs
    make install_dev DESTDIR="$PWD/staged"
    cp -r staged/usr/. "$prefix/"
    sed -i "s,^prefix=/usr,prefix=$prefix," "$prefix"/lib/pkgconfig/{libssl,libcrypto,openssl}.pc
}
curl() {
    by_cmake . -DBUILD_CURL_EXE=OFF -DBUILD_TESTING=OFF -DHTTP_ONLY=ON -DCURL_USE_OPENSSL=ON \
        -DCURL_USE_LIBSSH2=OFF -DUSE_NGHTTP2=OFF -DUSE_LIBIDN2=OFF \
        -DCURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt -DCURL_CA_PATH=none
}
gmp() {
    mkdir -p doc
    printf 'all install:\n' >doc/Makefile.in # Debian's source has no manual
    by_configure --enable-fat --disable-static
}
nettle() { by_configure --enable-fat --disable-static --disable-documentation --disable-openssl; }
gnutls28() {
    # A patch of Debian's adds these to gl/Makefile.am, which is not read again.
    [ ! -e gl/gl_linkedhash_list.c ] || sed -i 's/^gl_LTLIBOBJS =.*/& gl_linkedhash_list.lo gl_list.lo/' gl/Makefile.in
    by_configure --sysconfdir=/etc --disable-static --with-included-libtasn1 --with-included-unistring \
        --without-p11-kit --without-idn --without-tpm --without-tpm2 --without-brotli --without-zstd \
        --without-zlib --disable-doc --disable-tools --disable-tests --disable-cxx --disable-guile \
        --disable-nls --disable-libdane
}
libmicrohttpd() {
    by_configure --disable-static --enable-https --disable-doc --disable-examples --disable-curl
}

cp "$sources/packages.tsv" "$prefix/packages.tsv"
for library in zlib libzstd xxhash expat openssl curl gmp nettle gnutls28 libmicrohttpd; do
    [ ! -e "$prefix/licenses/$library" ] || continue # built by an earlier call
    echo "wheel: building $library"
    cd "$sources"/$library-[0-9]*/
    # OpenSSL stores a date: its own, so that libraries kept from an earlier commit are no others.
    SOURCE_DATE_EPOCH=$(dpkg-parsechangelog --show-field Timestamp)
    export SOURCE_DATE_EPOCH
    # not in a condition: bash would then go on after a failed command
    (set -e; "$library") >"$prefix/$library.log" 2>&1 &
    wait $! || { tail -n 30 "$prefix/$library.log" >&2; echo "wheel: $library failed" >&2; exit 1; }
    cp debian/copyright "$prefix/licenses/$library"
done
