#!/bin/sh
# The curves of runs: a table, JSON and a picture; runs without an evaluation and other file types are
# refused by name.
. "$(dirname "$0")/lib.sh"

for run in one two; do
    expect 0 diloco train tiny.toml --store runs/$run --set trainer.eval_every=1 --quiet
done
expect 0 diloco report runs/one --compare runs/two --out loss.svg
grep -q '^one: ' out || fail "the table has no line for the first run"
grep -q '^two: ' out || fail "the table has no line for the second run"
[ "$(grep -c '<path class="line"' loss.svg)" -ge 6 ] || fail "a run has no curve in both panels"
python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' loss.svg ||
    fail "the picture is no XML"

# the last loss is the one that the record has, and bytes grow
expect 0 diloco report runs/one --json
cp out report.json
expect 0 diloco log runs/one --events
python3 - out report.json <<'PY'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
losses = {e["entry"]: e["loss"] for e in events if e["event"] == "eval"}
[run] = json.load(open(sys.argv[2]))["runs"]
assert [p["loss"] for p in run["points"]] == [losses[e] for e in sorted(losses)], run
sent = [p["bytes_sent"] for p in run["points"]]
assert sent == sorted(sent) and sent[-1] > 0, sent
total = sum(e["bytes_sent"] for e in events if e["event"] == "commit")
assert sent[-1] == total, (sent, total)
PY

expect_error 2 "loss.png" diloco report runs/one --out loss.png
expect_error 2 "ask for one of them" diloco report runs/one --out one.md --json

# A whole report, in one file.
expect 0 diloco report runs/one --out one.md
grep -q '^# one$' one.md || fail "the report has no title"
grep -q '^complete: ' one.md || fail "the report does not say that the run is complete"
grep -q '^| trainer.rounds | ' one.md || fail "the report has no settings"
expect 0 diloco report runs/one --compare runs/two --out both.html
grep -q 'window.dilocoReport=' both.html || fail "the report has no data"
! grep -q 'src="' both.html || fail "the report is more than one file"
[ ! -e loss.png ] || fail "a refused file was written"

# On paper, where a browser can print it.
expect_error 3 "DILOCO_BROWSER" env DILOCO_BROWSER=none diloco report runs/one --out one.pdf
expect_error 1 "printed no PDF" env DILOCO_BROWSER=true diloco report runs/one --out one.pdf
[ ! -e one.pdf ] || fail "a file was written without a browser"

# An empty TMPDIR is like none. The browser is a script that writes its arguments.
printf '#!/bin/sh\necho "$*" >"%s/browser.args"\n' "$PWD" >browser.sh
chmod +x browser.sh
expect_error 1 "printed no PDF" env TMPDIR= DILOCO_BROWSER="$PWD/browser.sh" diloco report runs/one --out one.pdf
grep -q 'file:///tmp/diloco-' browser.args || fail "an empty TMPDIR names the root folder"
if command -v chromium >browser || command -v google-chrome >browser; then
    expect 0 env TMPDIR="$PWD" diloco report runs/one --compare runs/two --out one.pdf
    [ "$(head -c 5 one.pdf)" = "%PDF-" ] || fail "the report is no PDF"
    [ "$(wc -c <one.pdf)" -gt 20000 ] || fail "the PDF has no curves"
    ! ls -d diloco-?????? 2>/dev/null || fail "files of the browser were left"
else
    echo "left out: a report as PDF (needs Chromium)"
fi

expect 0 diloco train tiny.toml --store runs/blind --set data.test_fraction=0 --quiet
expect_error 1 "trainer.eval_every" diloco report runs/blind
expect_error 1 "runs/none" diloco report runs/none
