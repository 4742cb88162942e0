#!/bin/sh
# suite.sh SUITE [PROGRAM]: what a store that holds runs must pass: the suite, and a whole run.
set -eu
"$1"
[ -z "${2:-}" ] || [ -n "${CLOUD_TEST_SHORT:-}" ] || sh "$(dirname "$0")/trains.sh" "$2"
