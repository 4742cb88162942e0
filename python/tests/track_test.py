"""track_test.py - `diloco track`: each tracker's package has the curves of the page, also after a
sidecar was killed. A package that is not installed is left out."""
import argparse
import importlib.util
import json
import os
import pathlib
import re
import sqlite3
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import diloco
from diloco import _program, _track

CONFIG = """preset = "diloco"
[run]
replicas = 2
threads = 1
[trainer]
rounds = 4
local_steps_per_round = 3
batch_size = 2
eval_every = 1
eval_batches = 1
[parameters.model]
layers = 1
heads = 2
channels = 32
context = 32
[data]
train_path = "text.txt"
"""

# The page's columns, by the names of the curves.
PAGE = {"loss/entry": "loss", "loss/validation": "eval", "loss/validation_after_sync": "eval_after",
        "entry/similarity": "similarity", "entry/update_norm": "norm",
        "entry/members": "members", "progress/step": "position", "progress/seconds": "time",
        "traffic/bytes": "bytes"}
RUN = {"id": "00ff", "name": "a", "model": "gpt", "parameters": 9}


def head():
    return [RUN, {"settings": [{"name": "trainer.rounds", "value": "4"}]}]


def point(entry, **values):
    return {"entry": entry, "time": 5.0, "values": {k.replace("_", "/"): v
                                                    for k, v in values.items()}}


def lines(*all_of_them):
    return [json.dumps(line).encode() for line in all_of_them]


class Fake(_track.Tracker):
    """A tracker that remembers what all its instances were given."""
    package = "json"
    got = []

    def __init__(self, package, run, sent):
        self.run = run

    @staticmethod
    def where():
        return ""

    def send(self, points):
        for p in points:
            if p.values.get("loss/entry") == 666:
                raise ConnectionError("the tracker is away")
            Fake.got.extend((p.entry, tag, value) for tag, value in p.values.items())

    def close(self, complete):
        return "complete" if complete else "open"


class Sidecar(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.args = argparse.Namespace(to="fake", project="p", sent=str(self.folder / "sent"))
        _track.TRACKERS["fake"] = Fake
        self.addCleanup(_track.TRACKERS.pop, "fake")
        Fake.got = []

    def follow(self, *more):
        return _track.follow(self.args, lines(*head(), *more))

    def test_a_number_is_sent_once_however_often_it_is_read(self):
        self.follow(point(0, loss_entry=2.0), {"flush": True})
        self.follow(point(0, loss_entry=2.0, loss_validation=3.0), point(1, loss_entry=1.0),
                    {"flush": True}, point(1, loss_entry=1.0))
        self.assertEqual(Fake.got, [(0, "loss/entry", 2.0), (0, "loss/validation", 3.0),
                                    (1, "loss/entry", 1.0)])

    def test_what_failed_is_sent_by_the_next_process(self):
        with self.assertRaises(ConnectionError):
            self.follow(point(0, loss_entry=2.0), {"flush": True}, point(1, loss_entry=666),
                        {"flush": True})
        self.follow(point(0, loss_entry=2.0), point(1, loss_entry=1.0))
        self.assertEqual(Fake.got, [(0, "loss/entry", 2.0), (1, "loss/entry", 1.0)])

    def test_an_end_is_told_once_and_nothing_new_opens_no_tracker(self):
        end = [point(0, loss_entry=2.0), {"flush": True}, {"end": True}]
        self.assertIn("are complete", self.follow(*end))
        self.assertEqual(self.follow(*end), "fake: nothing new")

    def test_two_sidecars_of_one_run_are_refused(self):
        first = _track.Sent(self.folder / "sent")
        self.addCleanup(first.close)
        with self.assertRaisesRegex(_track.Refused, "another diloco track sends this run"):
            self.follow()

    def test_the_list_of_another_run_is_refused(self):
        self.follow(point(0, loss_entry=2.0), {"flush": True})
        with self.assertRaisesRegex(_track.Refused, "another run; name another file by --sent"):
            _track.follow(self.args, lines({**RUN, "id": "11"}, head()[1]))

    def test_a_file_that_is_no_list_is_refused(self):
        (self.folder / "sent").write_text("my thesis\n" * 100)
        with self.assertRaisesRegex(_track.Refused, "is no list of what was sent"):
            self.follow()
        self.assertIn("my thesis", (self.folder / "sent").read_text())

    def test_numbers_that_are_not_finite_are_left_out(self):
        self.assertEqual(_track.numbers({"a": 1, "b": None, "c": float("nan"), "d": "x"}), {"a": 1})

    def test_an_unknown_tracker_and_a_missing_package_are_named(self):
        with self.assertRaisesRegex(_track.Refused, "no such tracker; give .*trackio or wandb"):
            _track.parse(["--to", "paper"])
        Fake.package = "no_such_package_anywhere"
        self.addCleanup(setattr, Fake, "package", "json")
        with self.assertRaisesRegex(_track.Refused, "pip install no_such_package_anywhere"):
            self.follow()


# ---- with the real packages ----------------------------------------------------------------


def read_wandb(folder):
    """The content of an offline run of W&B: a log of LevelDB's form, of W&B's own protocol buffers."""
    from wandb.proto import wandb_internal_pb2
    curves = {}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        data, at, whole = path.read_bytes(), 7, b""
        while at + 7 <= len(data):
            room = 32768 - at % 32768
            _crc, n, kind = struct.unpack_from("<IHB", data, at)
            if room < 7 or kind == 0:
                at += room
                continue
            whole += data[at + 7:at + 7 + n]
            at += 7 + n
            if kind not in (1, 4):  # FULL, LAST
                continue
            record = wandb_internal_pb2.Record.FromString(whole)
            whole = b""
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json)
                   for item in record.history.item}
            for tag, value in row.items():
                if tag != "entry" and not tag.startswith("_"):
                    curves.setdefault(tag, {})[row["entry"]] = value
    return curves


def read_mlflow(folder):
    import mlflow
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    client = mlflow.MlflowClient()
    place = client.get_experiment_by_name("diloco").experiment_id
    runs = client.search_runs([place])
    assert len(runs) == 1 and runs[0].data.params["trainer.rounds"] == "4", runs
    assert runs[0].info.status == "FINISHED"
    return {tag: {m.step: m.value for m in client.get_metric_history(runs[0].info.run_id, tag)}
            for tag in runs[0].data.metrics}


def read_trackio(folder):
    curves = {}
    for path in folder.glob("trackio/*.db"):
        with sqlite3.connect(path) as db:
            for step, text in db.execute("SELECT step, metrics FROM metrics"):
                for tag, value in json.loads(text).items():
                    if tag != "entry":
                        curves.setdefault(tag, {})[step] = value
    return curves


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        root = pathlib.Path(__file__).resolve().parents[2]
        (cls.folder / "text.txt").write_bytes((root / "docs/protocol.md").read_bytes()[:40000])
        (cls.folder / "tiny.toml").write_text(CONFIG)
        cls.environment = {
            **os.environ, "DILOCO_PYTHON": sys.executable, "XDG_STATE_HOME": str(cls.folder),
            "WANDB_MODE": "offline", "WANDB_DIR": str(cls.folder), "WANDB_SILENT": "true",
            "MLFLOW_TRACKING_URI": f"sqlite:///{cls.folder}/mlflow.db", "HF_HUB_OFFLINE": "1",
            "TRACKIO_DIR": str(cls.folder / "trackio"), "PYTHONPATH": str(root / "python")}
        cls.diloco("train", "tiny.toml", "--store", "a", "--quiet", "--set",
                   "run.track=tensorboard:events")

    @classmethod
    def diloco(cls, *args):
        done = subprocess.run([_program.path(), *args], cwd=cls.folder, env=cls.environment,
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def page(self):
        """The curves that the page draws, by name and entry."""
        ui = subprocess.Popen([_program.path(), "ui", "a", "--no-browser"], cwd=self.folder,
                              stdout=subprocess.PIPE, text=True)
        try:
            url, token = re.search(r"(http://[\d.:]+)/#token=(\w+)", ui.stdout.readline()).groups()
            request = urllib.request.Request(f"{url}/.page/run?run=a&points=4000",
                                             headers={"Authorization": f"Bearer {token}"})
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            reading = True
            while reading:
                with opener.open(request) as answer:
                    page = json.load(answer)
                reading = page["reading"]
            return page["curves"]
        finally:
            ui.terminate()
            ui.wait()
            ui.stdout.close()

    def check(self, package, read):
        if importlib.util.find_spec(package) is None:
            print(f"left out of track_test: --to {package} (not installed)")
            return
        said = self.diloco("track", "a", "--to", package)
        self.assertIn(f"{package}: 4 new lines sent", said)
        self.assertIn("nothing new", self.diloco("track", "a", "--to", package))
        curves, page = read(self.folder), self.page()
        for tag, column in PAGE.items():
            self.assertEqual(sorted(curves[tag]), [0, 1, 2, 3], tag)
            for entry, shown in zip(page["entry"], page[column]):
                self.assertAlmostEqual(curves[tag][entry], shown, delta=1e-3 + 1e-5 * abs(shown),
                                       msg=f"{tag} at {entry}")
        for row in diloco.run(self.folder / "a").history():
            self.assertEqual(curves["loss/entry"][row["entry"]], row["loss"])

    def test_wandb_offline_has_the_curves_of_the_page(self):
        self.check("wandb", read_wandb)

    def test_mlflow_has_the_curves_of_the_page(self):
        self.check("mlflow", read_mlflow)

    def test_trackio_has_the_curves_of_the_page(self):
        self.check("trackio", read_trackio)

    def test_tensorboard_has_the_curves_of_the_page(self):
        """A replica writes these files itself while it trains, so no sidecar is needed."""
        if importlib.util.find_spec("tensorboard") is None:
            print("left out of track_test: TensorBoard (not installed)")
            return
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        page, evaluated = self.page(), {}
        for replica in ("r0", "r1"):
            events = EventAccumulator(str(self.folder / "events" / replica))
            events.Reload()
            for tag in ("loss/entry", "entry/similarity", "entry/update_norm", "entry/members"):
                curve = {e.step: e.value for e in events.Scalars(tag)}
                self.assertEqual(sorted(curve), page["entry"], tag)
                for entry, shown in zip(page["entry"], page[PAGE[tag]]):
                    self.assertAlmostEqual(curve[entry], shown, delta=1e-5 * max(1, abs(shown)),
                                           msg=f"{tag} at {entry}")
            if "loss/validation" in events.Tags()["scalars"]:  # replicas evaluate in turns
                evaluated.update({e.step: e.value for e in events.Scalars("loss/validation")})
        for step, shown in zip(page["position"], page["eval"]):
            self.assertAlmostEqual(evaluated[step], shown, delta=1e-4)

    def test_a_missing_package_is_refused_by_name(self):
        done = subprocess.run([_program.path(), "track", "a", "--to", "paper"], cwd=self.folder,
                              env=self.environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("there is no such tracker; give mlflow, trackio or wandb", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
