#!/usr/bin/env python3
"""grafana_test.py: examples/grafana.json is a dashboard of metrics that the hub has. Its parts are those
of Grafana's JSON model, each metric is named in src/hub, and promtool accepts each expression. Without
promtool that last part is left out."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
dashboard = json.loads((ROOT / "examples/grafana.json").read_text())
sources = "\n".join(p.read_text() for p in (ROOT / "src/hub").glob("*.c") if "_test" not in p.name)
wrong = []

for key, kind in (("title", str), ("uid", str), ("schemaVersion", int), ("panels", list), ("templating", dict)):
    if not isinstance(dashboard.get(key), kind):
        wrong.append(f"{key} is no {kind.__name__}")
taken = set()
expressions = []
for panel in dashboard["panels"]:
    title = panel.get("title", "?")
    place = panel["gridPos"]
    cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
    if cells & taken or place["x"] + place["w"] > 24:
        wrong.append(f"{title}: overlaps another panel or leaves the grid")
    taken |= cells
    if panel.get("datasource", {}).get("uid") != "${source}" or not panel.get("targets"):
        wrong.append(f"{title}: no targets, or another data source than $source")
    expressions += [target["expr"] for target in panel.get("targets", [])]
if len({panel["id"] for panel in dashboard["panels"]}) != len(dashboard["panels"]):
    wrong.append("two panels have one id")
names = {name for e in expressions for name in re.findall(r"diloco_hub_(\w+)", e)}
for name in sorted(names):
    if f'"{name}"' not in sources and f"diloco_hub_{name}" not in sources:
        wrong.append(f"the hub has no metric diloco_hub_{name}")

if shutil.which("promtool"):
    rules = {"groups": [{"name": "dashboard", "rules": [
        {"record": f"dashboard:{i}", "expr": e.replace("$run", "a|b")} for i, e in enumerate(expressions)]}]}
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump(rules, file)  # JSON is YAML
        file.flush()
        checked = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True)
        if checked.returncode:
            wrong.append(checked.stdout + checked.stderr)
else:
    print("left out: the dashboard's expressions (no promtool)")
print("\n".join(wrong) or f"{len(dashboard['panels'])} panels, {len(expressions)} expressions")
sys.exit(bool(wrong))
