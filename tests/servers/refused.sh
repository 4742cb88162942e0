#!/bin/sh
# refused.sh DILOCO: the store of CLOUD_TEST_URL must be refused, by name and with the way out, for
# what REFUSED_BECAUSE says.
set -u

out=$("$1" doctor "$CLOUD_TEST_URL" 2>&1)
code=$?
echo "$out"
[ $code -eq 3 ] || { echo "exit code $code, expected 3"; exit 1; }
for part in "$REFUSED_BECAUSE" single_committer; do
    case $out in
    *"$part"*) ;;
    *) echo "\"$part\" is not in it"; exit 1 ;;
    esac
done
case $out in
*"$AWS_SECRET_ACCESS_KEY"*) echo "the secret is in it"; exit 1 ;;
esac
