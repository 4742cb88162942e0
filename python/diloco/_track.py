"""The sidecar of ``diloco track``: curves from standard input to a tracker's own package.

    python -m diloco._track --to wandb|mlflow|trackio [--project NAME] [--sent FILE]

Lines of standard input are JSON. First comes the run (with "name" and "id"), then its "settings",
then points of its curves: {"entry": 7, "time": s, "values": {…}}. {"flush": true} may follow any
point, and {"end": true} a complete run. Standard output has one sentence at the end; after an error, the reason.

The numbers sent are recorded in a file, so that a later process continues. Numbers of a point are sent at
least once: a process that is killed may send its newest lines again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import os
import pathlib
import sqlite3
import sys
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple, Type

EXIT_FAILED, EXIT_INVALID, EXIT_REFUSED, EXIT_UNREACHABLE = 1, 2, 3, 4


class Refused(Exception):
    """Why nothing can be sent, and what to do about it; with the code to exit with."""

    def __init__(self, text: str, code: int = EXIT_FAILED) -> None:
        super().__init__(text)
        self.code = code


class Point(NamedTuple):
    entry: int
    time: Optional[float]  #: seconds since 1970, by a replica's clock
    values: Dict[str, float]


# ---- the record of points sent -------------------------------------------------------------------------


class Sent:
    """Which numbers of which entries were sent, and what a tracker has to remember."""

    def __init__(self, path: pathlib.Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        try:
            self.db = sqlite3.connect(str(path), timeout=0, isolation_level=None)
            self.db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self.db.execute("BEGIN EXCLUSIVE")
            for table in ("note (key TEXT PRIMARY KEY, value TEXT)",
                          "entry (entry INTEGER PRIMARY KEY, tags INTEGER)",
                          "tag (tag TEXT PRIMARY KEY, bit INTEGER)"):
                self.db.execute(f"CREATE TABLE IF NOT EXISTS {table}")
            self.bits: Dict[str, int] = dict(self.db.execute("SELECT tag, bit FROM tag"))
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise Refused(f"{path}: another diloco track sends this run to this tracker; end "
                              "it first", EXIT_REFUSED) from None
            raise Refused(f"{path}: {error}; name another file by --sent") from None
        except sqlite3.DatabaseError as error:
            raise Refused(f"{path} is no list of what was sent ({error}); remove it, or name "
                          "another file by --sent", EXIT_INVALID) from None

    def note(self, key: str) -> Optional[str]:
        row = self.db.execute("SELECT value FROM note WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def keep(self, key: str, value: str) -> None:
        self.db.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (key, value))

    def new_of(self, point: Point) -> Point:
        """The point without what was sent; the rest counts as sent from the next commit on."""
        row = self.db.execute("SELECT tags FROM entry WHERE entry = ?", (point.entry,)).fetchone()
        before = tags = int(row[0]) if row else 0
        new = {}
        for tag, value in point.values.items():
            bit = self._bit(tag)
            if not tags >> bit & 1:
                new[tag] = value
                tags |= 1 << bit
        if tags != before:
            self.db.execute("INSERT OR REPLACE INTO entry VALUES (?, ?)", (point.entry, tags))
        return point._replace(values=new)

    def _bit(self, tag: str) -> int:
        if tag not in self.bits:
            if len(self.bits) == 62:
                raise Refused(f"{self.path} has 62 curves already, which is the most")
            self.bits[tag] = len(self.bits)
            self.db.execute("INSERT INTO tag VALUES (?, ?)", (tag, self.bits[tag]))
        return self.bits[tag]

    def commit(self) -> None:
        self.db.execute("COMMIT")
        self.db.execute("BEGIN EXCLUSIVE")

    def close(self) -> None:
        self.db.close()  # uncommitted points are sent again


def state_folder() -> pathlib.Path:
    given = os.environ.get("XDG_STATE_HOME")
    return (pathlib.Path(given) if given else pathlib.Path.home() / ".local/state") / "diloco/track"


def sent_path(folder: pathlib.Path, run: str, tracker: str, where: str) -> pathlib.Path:
    """One file for each run, tracker, and place that the tracker keeps it in."""
    digest = hashlib.sha256(where.encode()).hexdigest()[:12]
    safe = "".join(c for c in run if c.isalnum()) or "run"
    return folder / f"{safe}.{tracker}.{digest}.sqlite"


# ---- trackers: one class and one line of TRACKERS each -------------------------------------


class Run(NamedTuple):
    id: str
    name: str
    project: str
    settings: Dict[str, str]


class Tracker:
    """A tracker's package. A constructor opens or resumes the run there."""

    package = ""

    def __init__(self, package: Any, run: Run, sent: Sent) -> None:
        raise NotImplementedError

    @staticmethod
    def where() -> str:
        """Settings beside the project that say where the tracker keeps its runs."""
        raise NotImplementedError

    def send(self, points: List[Point]) -> None:
        raise NotImplementedError

    def close(self, complete: bool) -> str:
        """End, and say in a clause where the curves are."""
        raise NotImplementedError


class Wandb(Tracker):
    """W&B wants steps that never fall, and a number may become known late: so the step counts rows,
    and every curve is drawn over "entry"."""

    package = "wandb"

    def __init__(self, package: Any, run: Run, sent: Sent) -> None:
        self.sent = sent
        self.run = package.init(project=run.project, id=run.id, name=run.name, resume="allow",
                                config=run.settings)
        self.run.define_metric("entry")
        self.run.define_metric("*", step_metric="entry")
        self.step = max(int(sent.note("step") or 0), int(self.run.step or 0))

    @staticmethod
    def where() -> str:
        return "|".join(os.environ.get(name, "") for name in ("WANDB_BASE_URL", "WANDB_ENTITY",
                                                             "WANDB_MODE", "WANDB_DIR"))

    def send(self, points: List[Point]) -> None:
        for point in points:
            self.run.log({"entry": point.entry, **point.values}, step=self.step)
            self.step += 1
        self.sent.keep("step", str(self.step))

    def close(self, complete: bool) -> str:
        offline = getattr(self.run, "offline", False)
        url, folder = self.run.url, getattr(self.run, "dir", "")
        self.run.finish()
        if not offline:
            return f"at {url}"
        return f"in {pathlib.Path(folder).parent} (to upload it: wandb sync --append FOLDER)"


class MLflow(Tracker):
    package = "mlflow"
    most_metrics, most_params, longest_param = 1000, 100, 6000  # of one request, by its REST API

    def __init__(self, package: Any, run: Run, sent: Sent) -> None:
        self.entities = importlib.import_module("mlflow.entities")
        self.client = package.MlflowClient()
        self.id = sent.note("run") or self._create(run)
        self.client.update_run(self.id, status="RUNNING")
        sent.keep("run", self.id)
        params = [self.entities.Param(k, v[:self.longest_param]) for k, v in run.settings.items()]
        for at in range(0, len(params), self.most_params):
            self.client.log_batch(self.id, params=params[at:at + self.most_params])

    def _create(self, run: Run) -> str:
        """Continue the run of that id where the list of what was sent has been lost."""
        found = self.client.get_experiment_by_name(run.project)
        place = found.experiment_id if found else self.client.create_experiment(run.project)
        there = self.client.search_runs([place], f"tags.`diloco.run` = '{run.id}'")
        if there:
            return str(there[0].info.run_id)
        made = self.client.create_run(place, run_name=run.name, tags={"diloco.run": run.id})
        return str(made.info.run_id)

    @staticmethod
    def where() -> str:
        return os.environ.get("MLFLOW_TRACKING_URI", "")

    def send(self, points: List[Point]) -> None:
        metrics = [self.entities.Metric(tag, value, int(1e3 * (point.time or 0)), point.entry)
                   for point in points for tag, value in point.values.items()]
        for at in range(0, len(metrics), self.most_metrics):
            self.client.log_batch(self.id, metrics=metrics[at:at + self.most_metrics])

    def close(self, complete: bool) -> str:
        if complete:
            self.client.set_terminated(self.id)
        return f"in run {self.id}"


class Trackio(Tracker):
    package = "trackio"

    def __init__(self, package: Any, run: Run, sent: Sent) -> None:
        self.trackio, self.project = package, run.project
        package.init(project=run.project, name=f"{run.name}-{run.id[:8]}", config=run.settings,
                     resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False)

    @staticmethod
    def where() -> str:
        return "|".join(os.environ.get(name, "") for name in ("TRACKIO_DIR", "TRACKIO_SPACE_ID",
                                                             "TRACKIO_SERVER_URL"))

    def send(self, points: List[Point]) -> None:
        for point in points:
            self.trackio.log({"entry": point.entry, **point.values}, step=point.entry)

    def close(self, complete: bool) -> str:
        self.trackio.finish()
        return f"in the project {self.project} (trackio show --project {self.project})"


TRACKERS: Dict[str, Type[Tracker]] = {"wandb": Wandb, "mlflow": MLflow, "trackio": Trackio}


# ---- the lines -----------------------------------------------------------------------------


def numbers(values: Any) -> Dict[str, float]:
    return {str(k): float(v) for k, v in values.items()
            if isinstance(v, (int, float)) and math.isfinite(v)}


class Sidecar:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.tracker: Optional[Tracker] = None
        self.sent: Optional[Sent] = None
        self.package: Any = None
        self.row: Dict[str, Any] = {}
        self.settings: List[Dict[str, str]] = []
        self.points: List[Point] = []
        self.n_sent = 0
        self.complete = False

    def open(self) -> None:
        """Read what was sent of this run. The tracker itself is opened when there is something to
        send, so that a command without news leaves no empty run there."""
        kind = TRACKERS[self.args.to]
        try:
            self.package = importlib.import_module(kind.package)
        except ImportError as error:
            raise Refused(f"--to {self.args.to}: {sys.executable} cannot import {kind.package} "
                          f"({error}); install it there with pip install {kind.package}, or name "
                          "another Python by DILOCO_PYTHON", EXIT_REFUSED) from None
        run = self.run
        self.sent = Sent(pathlib.Path(self.args.sent) if self.args.sent else
                         sent_path(state_folder(), run.id, self.args.to,
                                   f"{kind.where()}|{run.project}"))
        if (self.sent.note("run id") or run.id) != run.id:
            raise Refused(f"{self.sent.path} lists what was sent of another run; name another "
                          "file by --sent", EXIT_INVALID)
        self.sent.keep("run id", run.id)

    @property
    def run(self) -> Run:
        row = self.row
        return Run(row["id"], row["name"], self.args.project, {
            **{s["name"]: s["value"] for s in self.settings}, "diloco.run": row["id"],
            "diloco.model": row["model"], "diloco.parameters": str(row["parameters"])})

    def send(self, new: List[Point]) -> None:
        assert self.sent is not None
        if self.tracker is None:
            self.tracker = TRACKERS[self.args.to](self.package, self.run, self.sent)
        self.tracker.send(new)
        self.n_sent += len(new)

    def flush(self) -> None:
        if self.sent is None:
            return
        new = [p for p in map(self.sent.new_of, self.points) if p.values]
        if new:
            self.send(new)
            self.sent.commit()
        self.points = []

    def take(self, line: Dict[str, Any]) -> None:
        if "entry" in line:
            self.points.append(Point(line["entry"], line.get("time"), numbers(line["values"])))
        elif "settings" in line:
            self.settings = line["settings"]
            self.open()
        elif "flush" in line:
            self.flush()
        elif "end" in line:
            self.complete = True
        else:
            self.row = line

    def close(self) -> str:
        if self.sent is None:
            return ""
        self.flush()
        news = self.complete and not self.sent.note("complete")
        if news:
            self.send([])  # the tracker has to learn that the run is complete
        if self.tracker is None:
            return f"{self.args.to}: nothing new"
        place = self.tracker.close(self.complete)
        if news:
            self.sent.keep("complete", "yes")
            self.sent.commit()
        return f"{self.args.to}: {self.n_sent} new lines sent; the curves are {place}"


def follow(args: argparse.Namespace, lines: Iterable[bytes]) -> str:
    sidecar = Sidecar(args)
    try:
        for line in lines:
            sidecar.take(json.loads(line))
        return sidecar.close()
    finally:
        if sidecar.sent is not None:
            sidecar.sent.close()


def parse(argv: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="diloco track")
    parser.add_argument("--to", required=True)
    parser.add_argument("--project", default="diloco")
    parser.add_argument("--sent", default="")
    args = parser.parse_args(argv)
    if args.to not in TRACKERS:
        names = sorted(TRACKERS)
        raise Refused(f"--to {args.to}: there is no such tracker; give {', '.join(names[:-1])} or "
                      f"{names[-1]}", EXIT_INVALID)
    return args


def run(work: Callable[[], str]) -> Tuple[int, str]:
    try:
        return 0, work()
    except Refused as error:
        return error.code, str(error)
    except Exception as error:  # whatever the tracker's package raises
        name, unreachable = type(error).__name__, isinstance(error, (ConnectionError, TimeoutError))
        text = " ".join(str(error).split())[:400]
        return (EXIT_UNREACHABLE if unreachable else EXIT_FAILED,
                f"the tracker failed ({name}: {text}); the same command continues")


def main() -> int:
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the packages is not part of the answer
    code, text = run(lambda: follow(parse(), sys.stdin.buffer))
    answer.write(text.replace("\n", " ") + "\n")
    answer.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
