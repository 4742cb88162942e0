#!/bin/sh
# trains.sh PROGRAM: the same run over a folder and over the store of CLOUD_TEST_URL ends in the
# same bits (STO-7). The log in the bucket verifies, and no written object has a secret (STO-17).
. "$(dirname "$0")/../e2e/lib.sh"

sed -i 's/^patience = .*/patience = 240/' tiny.toml
url="${CLOUD_TEST_URL%%\?*}/trains?${CLOUD_TEST_URL#*\?}"
expect 0 diloco train tiny.toml --store folder --quiet
expect 0 diloco train tiny.toml --store "$url" --set run.state_dir=state --record record.jsonl
[ "$(digest "$url")" = "$(digest folder)" ] || fail "the bucket's run ends in other bits"
expect 0 diloco verify "$url"
expect 0 diloco status "$url"
[ -z "${AWS_SECRET_ACCESS_KEY:-}" ] || ! grep -rqF "$AWS_SECRET_ACCESS_KEY" . ||
    fail "the secret was written somewhere"
