#!/bin/sh
# docs/options.md is what the table says.
. "$(dirname "$0")/lib.sh"

expect 0 diloco options --markdown
cmp -s out "$project/docs/options.md" ||
    fail "docs/options.md is old: diloco options --markdown >docs/options.md"
