#!/bin/sh
# docs_site_test.sh: the site of the documentation builds, and each of its links leads somewhere. It runs
# where `make docs` has installed the site's tools.
set -eu
cd "$(dirname "$0")/.."
if [ ! -x build/docs/venv/bin/mkdocs ]; then
    echo "left out: the documentation as a site (make docs installs its tools)"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$PWD/build/docs/venv" "$work/venv"
mkdir "$work/node"
[ ! -d build/docs/node/node_modules ] || ln -s "$PWD/build/docs/node/node_modules" "$work/node/node_modules"
scripts/docs.sh "$work" | tee "$work/out"
grep -q ' 0 lead nowhere$' "$work/out"
for page in docs/protocol reference/c-run reference/python-diloco search/search_index; do
    [ -s "$work/site/$page.html" ] || [ -s "$work/site/$page.json" ] || { echo "the site has no $page"; exit 1; }
done
grep -q diloco_run_join "$work/site/reference/c-run.html"
grep -q DiLoCoOptimizer "$work/site/reference/python-diloco.html"
