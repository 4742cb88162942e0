#!/bin/sh
# docs.sh FOLDER: build the documentation as a site into FOLDER/site, and check its links. The tools are
# installed into FOLDER the first time: mkdocs-material and mkdocstrings from PyPI, mermaid from npm.
# Without npm the site is built, and diagrams need a connection to the internet. Where pip cannot
# install, it says "left out" and exits with 77.
set -eu
cd "$(dirname "$0")/.."
to=$1
mkdir -p "$to"
if [ ! -x "$to/venv/bin/mkdocs" ]; then
    echo "docs: installs mkdocs-material and mkdocstrings into $to/venv"
    python3 -m venv "$to/venv"
    "$to/venv/bin/pip" install --quiet --no-compile 'mkdocs-material==9.*' 'mkdocstrings[python]<2' || {
        echo "docs: left out: the site (pip could not install mkdocs-material and mkdocstrings)"
        exit 77
    }
fi
if [ ! -d "$to/node/node_modules/mermaid" ]; then
    if command -v npm >/dev/null; then
        mkdir -p "$to/node"
        (cd "$to/node" && npm install --silent --no-audit --no-fund --no-save mermaid@11) ||
            echo "docs: left out: a local copy of mermaid (npm could not install it)"
    else
        echo "docs: left out: a local copy of mermaid (needs npm)"
    fi
fi
python3 scripts/docs.py stage "$to"
NO_MKDOCS_2_WARNING=1 "$to/venv/bin/mkdocs" build --quiet --clean -f "$to/mkdocs.yml"
python3 scripts/docs.py check "$to"
echo "docs: $to/site/index.html"
