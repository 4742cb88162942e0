#!/bin/sh
# The tutorial's pages work from their first line to their last, each in an empty folder (blocks.sh).
# The page for PyTorch runs with the Python that DILOCO_PYTHON names, that of build/venv, or python3.
. "$(dirname "$0")/lib.sh"
. "$project/tests/e2e/blocks.sh"

# This machine's own credentials and settings stay out.
unset AWS_PROFILE AWS_CA_BUNDLE AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_SESSION_TOKEN \
    http_proxy HTTP_PROXY || true
export AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null AWS_EC2_METADATA_DISABLED=true
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1

python=${DILOCO_PYTHON:-}
[ "$python" ] || python=$project/build/venv/bin/python
[ -x "$python" ] || python=python3

has_modules() { # MODULE…
    "$python" -c 'import importlib.util as u, sys
sys.exit(not all(map(u.find_spec, sys.argv[1:])))' "$@"
}

# Why the pages for PyTorch cannot run here; empty if they can.
reason() {
    if sanitized; then
        echo "the program is a sanitizer's build"
    elif [ ! -e "$(dirname "$program")/libdiloco-train.so" ]; then
        echo "this build has no shared library"
    elif ! has_modules torch transformers accelerate; then
        echo "no torch, transformers and accelerate"
    fi
}

# The page's `python` with the package of this tree and the library of this build. A wrapper, since a
# link would lead a virtual environment's Python out of it.
cat >"$work/bin/python" <<EOF
#!/bin/sh
DILOCO_LIBRARY=$(dirname "$program") PYTHONPATH=$project/python exec "$python" "\$@"
EOF
chmod +x "$work/bin/python"

pages=0
for path in "$project"/docs/tutorial/*.md; do
    pages=$((pages + 1))
    mkdir "$work/here/$pages"
    cd "$work/here/$pages"
    if grep -q '^```python' "$path"; then
        why=$(reason)
        if [ "$why" ]; then
            echo "left out: $(basename "$path") ($why)"
            continue
        fi
    fi
    run_blocks "$path"
    digests=$(sed -n 's/^state after entry 11: //p' block*.out | sort -u | wc -l)
    [ "$digests" -le 1 ] || fail "$path: a run that was killed ends with another model"
done
[ $pages = 5 ] || fail "$pages pages instead of 5"
