#!/bin/sh
# The manual: a page for the program and for each command of its help, every option in
# diloco_config.5, and nothing that mandoc or groff finds wrong.
. "$(dirname "$0")/lib.sh"

expect 0 diloco man pages
expect 0 diloco --help
sed -n 's/^  \([a-z]*\( [a-z]*\)\{0,1\}\)  .*/\1/p' out | sed 's/ *$//' >commands
[ "$(wc -l <commands)" -gt 10 ] || fail "no commands were read from the help"
while read -r command; do
    page=pages/diloco-$(echo "$command" | tr ' ' '-').1
    [ -s "$page" ] || fail "$command has no page"
    grep -q '^\.SH SYNOPSIS' "$page" || fail "$page has no synopsis"
done <commands

expect 0 diloco options --markdown
grep -o '^| `[a-z0-9_.]*`' out | tr -d '|` ' >options
[ "$(wc -l <options)" -gt 50 ] || fail "no options were read"
while read -r option; do
    grep -qx "\.B $option" pages/diloco_config.5 || fail "diloco_config.5 lacks $option"
done <options

if command -v mandoc >/dev/null; then
    for page in pages/*; do
        mandoc -T lint -W warning "$page" || fail "mandoc finds $page wrong"
    done
else
    echo "left out: the manual's pages by mandoc (it is not installed)"
fi
if command -v groff >/dev/null; then
    for page in pages/*; do
        groff -man -Kutf8 -Tutf8 -ww "$page" 2>said >/dev/null
        [ ! -s said ] || { cat said; fail "groff finds $page wrong"; }
    done
else
    echo "left out: the manual's pages by groff (it is not installed)"
fi

: >file
expect 1 diloco man file/below
