#!/bin/sh
# run.track: TensorBoard's own reader finds the numbers of the record in the event files, and csv has
# the same. The part with TensorBoard is left out where Python has none.
. "$(dirname "$0")/lib.sh"

expect_error 2 "names no tracker" diloco train tiny.toml --store no --quiet --set run.track=wandb:x
[ ! -e no/run.json ] || fail "a run was made before its tracker was refused"
diloco train tiny.toml --store a --quiet --record a.jsonl --set run.track=csv:a.csv \
    --set trainer.eval_every=1
[ "$(grep -c ',loss/step,' a.csv)" = "$(grep -c '"event":"step"' a.jsonl)" ] || fail "steps differ"
[ "$(grep -c ',loss/validation,' a.csv)" = 6 ] || fail "there are other than 6 evaluations"

diloco train tiny.toml --store b --quiet --record b.jsonl --set run.track=tensorboard:events \
    --set trainer.eval_every=1
[ "$(ls events)" = "r0
r1" ] || fail "events has other folders: $(ls events)"
python=python3
for try in "$project/build/venv/bin/python" "$project/build/tbvenv/bin/python"; do
    ! "$try" -c 'import tensorboard' 2>/dev/null || python=$try
done
"$python" -c 'import tensorboard' 2>/dev/null || { echo "left out: TensorBoard reads run.track (no tensorboard)"; exit 0; }
"$python" - <<'PY' || fail "TensorBoard reads something else"
import json
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

lines = [json.loads(line) for line in open("b.jsonl")]
for replica in ("r0", "r1"):
    events = EventAccumulator(f"events/{replica}", size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    def same(tag, kind, key, step):
        want = [(l[step], l[key]) for l in lines if l["event"] == kind and l.get("replica") == replica]
        got = [(e.step, e.value) for e in events.Scalars(tag)] if want else []
        assert len(want) == len(got) and all(
            a == c and abs(b - d) <= 1e-6 * max(1, abs(b)) for (a, b), (c, d) in zip(want, got)
        ), (replica, tag, want[:3], got[:3])
        return len(want)
    assert same("loss/step", "step", "loss", "step") == 120
    assert same("loss/entry", "commit", "inner_loss", "entry") == 6
    assert same("entry/update_norm", "commit", "aggregated_grad_norm", "entry") == 6
    same("loss/validation", "eval", "loss", "step")
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    started = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    settings = {name: v.string_value or v.number_value for name, v in started.hparams.items()}
    assert settings["preset"] == "diloco" and settings["trainer.rounds"] == 6, settings
    assert settings["parameters.model.channels"] == 32 and "run.store" not in settings, settings
    assert started.start_time_secs > 1e9
    histograms = events.Histograms("entry/member_norms")
    assert len(histograms) == 6 and all(h.histogram_value.num == 2 for h in histograms)
PY
