#!/bin/sh
# release_test.sh VERSION: build the release of the commit twice, in folders of different names, and
# compare every byte; the bill of materials is valid by spdx-tools. Builds all of it two times, the
# libraries of the wheel included: for `make soak`.
set -eu
cd "$(dirname "$0")/.."
scripts/release.sh "$1" "build/release-$1"
DILOCO_WHEEL_LIBRARIES=$PWD/build/wheel-libraries-again scripts/release.sh "$1" "build/release-$1-again"
diff -r "build/release-$1" "build/release-$1-again" || { echo "release_test: two builds differ" >&2; exit 1; }
rm -rf "build/release-$1-again" build/wheel-libraries-again
(cd "build/release-$1" && sha256sum --quiet --check SHA256SUMS)
venv=build/wheel-libraries/venv
$venv/bin/pip install --quiet --disable-pip-version-check spdx-tools==0.8.5
$venv/bin/pyspdxtools --infile "build/release-$1/diloco-$1.spdx.json"
echo "release_test: two builds of $1 gave equal bytes"
