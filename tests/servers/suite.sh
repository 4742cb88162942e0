#!/bin/sh
# suite.sh SUITE [PROGRAM]: the tests of a store that holds runs: the suite, and a whole run.
set -eu
"$1"
[ -z "${2:-}" ] || [ -n "${CLOUD_TEST_SHORT:-}" ] || sh "$(dirname "$0")/trains.sh" "$2"
