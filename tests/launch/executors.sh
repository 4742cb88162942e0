#!/bin/sh
# diloco launch executors lists the rows of executor_rows.h and of the table in docs/launch.md, as text and as JSON.
. "$(dirname "$0")/../e2e/lib.sh"

cloudless() { grep -q '^DILOCO_CLOUD:BOOL=OFF' "$(dirname "$program")/CMakeCache.txt" 2>/dev/null; }
# Without the network stores the program has no executor of src/launch/cloud.
in_program() {
    if cloudless; then grep -vxF "$(cloud_rows)" "$1" || true; else cat "$1"; fi | sort
}
rows_of() { sed -n 's/^ *X(\([a-z0-9_]*\)).*/\1/p' | tr _ -; }
cloud_rows() { sed -n '/define DL_CLOUD_EXECUTORS(X) \\/,/^#else/p' "$project/src/launch/executor_rows.h" | rows_of; }

expect 0 diloco launch executors
sed -n 's/^--on \([a-z0-9-]*\).*/\1/p' out >listed
[ "$(grep -c '^  limit  ' out)" = "$(grep -c . listed)" ] || fail "an executor has no line about its time limit"
sed -n 's/^  api  *//p' out | sed 's/^none$/null/' >apis
sed -n 's/^  price  *//p' out | sed 's/^machine_hour of launch.prices, for //; s/^your own machines: .*/null/' >prices
expect 0 diloco launch executors --json
tr '{' '\n' <out | sed -n 's/^"name":"\([^"]*\)".*/\1/p' >in_json
[ "$(cat listed)" = "$(cat in_json)" ] || fail "text and JSON list other executors: $(cat listed in_json)"

rows_of <"$project/src/launch/executor_rows.h" >rows
sed -n '/^| executor | tested against/,/^$/s/^| `\([a-z0-9-]*\)` |.*/\1/p' "$project/docs/launch.md" >in_docs
for source in rows in_docs; do
    [ "$(sort listed)" = "$(in_program $source)" ] || fail "not the executors of $source: $(cat listed $source)"
done

# The longest time that a backend gives a replica is a number in JSON; 0 is no known limit.
max_runtime() { tr '{' '\n' <out | sed -n 's/^"name":"'"$1"'",.*"max_runtime_s":\([0-9]*\).*/\1/p'; }
[ "$(max_runtime local)" = 0 ] || fail "a process of this machine has a time limit"
cloudless || [ "$(max_runtime modal)" = 86400 ] || fail "not the limit of Modal"
cloudless || [ "$(max_runtime sagemaker)" = 2419200 ] || fail "not the limit of SageMaker, 28 days"

# The version of the backend's API.
tr '{' '\n' <out | sed -n 's/^"name":.*"api":\(null\|"[^"]*"\).*/\1/p' | tr -d '"' >apis_in_json
[ "$(cat apis)" = "$(cat apis_in_json)" ] || fail "text and JSON have other versions: $(cat apis apis_in_json)"
[ "$(grep -c . apis)" = "$(grep -c . listed)" ] || fail "an executor has no line about its API"

# The unit that the backend bills is a text in JSON, and null for the user's own machines.
tr '{' '\n' <out | sed -n 's/^"name":.*"price":\(null\|"[^"]*"\).*/\1/p' | tr -d '"' >prices_in_json
[ "$(cat prices)" = "$(cat prices_in_json)" ] || fail "text and JSON have other prices: $(cat prices prices_in_json)"
[ "$(grep -c . prices)" = "$(grep -c . listed)" ] || fail "an executor has no line about its price"
price_of() { tr '{' '\n' <out | sed -n 's/^"name":"'"$1"'",.*"price":\(null\|"[^"]*"\).*/\1/p'; }
[ "$(price_of local)" = null ] || fail "a process of this machine has a price"
cloudless || price_of sagemaker | grep -q 'launch.machine, .*launch.region, launch.spot' || fail "not the price of sagemaker"

# The tables of resources and states are those of the sources.
python3 "$project/tests/launch/tables.py" 2>err || fail "the tables of docs/launch.md are not those of the executors"
