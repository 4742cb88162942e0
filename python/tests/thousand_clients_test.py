"""thousand_clients_test.py - 1,000 logical clients in Python on three workers and a server: the samplers
divide a caller's samples, and the combiners combine what clients return. Skips itself (77) without
numpy; modules without torch."""
import pathlib
import sys
import tempfile
import threading
import unittest

try:
    import numpy
except ImportError as error:
    print(f"left out: a thousand clients in Python ({error})")
    sys.exit(77)

try:
    import torch
    torch.set_num_threads(1)
except ImportError as error:
    print(f"left out of thousand_clients_test: torch modules ({error})")
    torch = None

import diloco

QUICK = {"run.heartbeat": 0.05, "run.patience": 240, "run.threads": 1}
CLIENTS, PER_ROUND, ROUNDS, CLASSES = 1000, 20, 3, 10
LABELS = numpy.arange(20_000) * 7 % CLASSES  # 2,000 samples of each class


class Noting(diloco.Client):
    """Moves the model to a value of its own, and notes which samples it has."""

    samples = {}

    def __init__(self, number, rows=()):
        self.samples[number] = list(rows)

    def fit(self, parameters, config):
        value = numpy.random.default_rng(self.number).normal(size=3) + self.number % 7
        return [value.astype("float32")], 1, {"loss": 1.0}


def moved(number):
    return Noting(number).fit.__func__(type("", (), {"number": number}), None, None)[0][0]


class InScratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def live(self, store, replica="r0", role="both", make=Noting, initial=None, **options):
        given = {"clients__total_clients": CLIENTS, "clients__per_round": PER_ROUND,
                 "rounds": ROUNDS, "local_steps_per_round": 1, **options}
        initial = [numpy.zeros(3, "float32")] if initial is None else initial
        last = diloco.run_clients(None if role == "server" else make, initial,
                                  self.folder / store, replica, role=role, preset="fedavg",
                                  options=QUICK, **given)
        return last[0] if isinstance(last, list) else last["weight"]

    def on_workers(self, store, **options):
        """The model of three workers and a server, in threads."""
        ends, raised = {}, []

        def live(replica, role):
            try:
                ends[replica] = self.live(store, replica, role,
                                          clients__state=str(self.folder / "states"), **options)
            except BaseException as error:
                raised.append(error)
        threads = [threading.Thread(target=live, args=a) for a in
                   (("s0", "server"), ("w0", "worker"), ("w1", "worker"), ("w2", "worker"))]
        [t.start() for t in threads], [t.join() for t in threads]
        self.assertEqual(raised, [])
        for end in ends.values():
            self.assertEqual(end.tolist(), ends["s0"].tolist())
        return ends["s0"]

    def asked(self, store):
        rows = diloco.run(self.folder / store).history()
        return [[int(m.split(".")[0][len("client"):]) for m in row["members"]] for row in rows]


class Samplers(InScratch):
    def divided(self, sampler, **options):
        """The samples of each client that was asked, by its number."""
        Noting.samples = {}
        self.on_workers(sampler, classes=LABELS, data__sampler=sampler, **options)
        asked = {client for members in self.asked(sampler) for client in members}
        self.assertEqual(set(Noting.samples), asked)
        return {number: rows for number, rows in Noting.samples.items()}

    def test_label_quantity_gives_each_client_its_number_of_classes_and_no_sample_twice(self):
        divided = self.divided("label_quantity_noniid", data__per_client_classes_size=2)
        seen = [row for rows in divided.values() for row in rows]
        self.assertEqual(len(seen), len(set(seen)))
        for rows in divided.values():
            self.assertEqual(len(set(LABELS[rows])), 2)

    def test_orthogonal_gives_a_client_the_classes_of_its_silo(self):
        silos = [{0, 1}, {2, 3, 4}, {5, 6, 7, 8, 9}]
        divided = self.divided("orthogonal", data__institution_class_ids="0, 1; 2, 3, 4; 5, 6, 7, 8, 9")
        for number, rows in divided.items():
            self.assertLessEqual(set(LABELS[rows]), silos[(number - 1) % 3], number)

    def test_every_sampler_gives_the_same_samples_to_one_process(self):
        for sampler, more in (("iid", {}), ("noniid", {"data__concentration": 0.3}),
                              ("mixed", {"data__non_iid_clients": "500"}),
                              ("sample_quantity_noniid", {"data__min_partition_size": 5}),
                              ("distribution_noniid", {"data__min_partition_size": 5})):
            with self.subTest(sampler=sampler):
                divided = self.divided(sampler, **more)
                Noting.samples = {}
                self.live(f"{sampler}.one", classes=LABELS, data__sampler=sampler, **more)
                self.assertEqual(Noting.samples, divided)
                self.assertTrue(all(divided.values()))

    def test_clients_are_evaluated_on_the_samplers_samples(self):
        class Counting(Noting):
            def evaluate(self, parameters, config):
                return 0.0, len(self.samples[self.number]), {}
        model = [self.live("run", classes=LABELS, data__sampler="iid")]
        got = diloco.evaluate_clients(Counting, model, self.folder / "run", [1, 1000],
                                      classes=LABELS)
        self.assertEqual(got["samples"], 2 * len(LABELS) // CLIENTS)

    def test_a_sampler_without_classes_is_refused_and_not_ignored(self):
        with self.assertRaisesRegex(diloco.InvalidError, "\"orthogonal\" divides samples.*give classes"):
            self.live("none", data__sampler="orthogonal")
        with self.assertRaisesRegex(diloco.InvalidError, "\"iid\" divides samples.*give classes"):
            self.live("none", data__sampler="iid")
        self.assertFalse((self.folder / "none/run.json").exists())
        self.live("other", classes=LABELS, data__sampler="orthogonal", rounds=1)
        with self.assertRaisesRegex(diloco.InvalidError, "\"orthogonal\" divides samples"):
            diloco.evaluate_clients(Noting, [numpy.zeros(3, "float32")], self.folder / "other", [1])

    def test_classes_that_are_none_are_refused(self):
        for classes, words in (([0.5, 1.0], "classes are whole numbers"),
                               ([0, -1] * 600, "sample 1 has class -1"),
                               ([0, 1], "few")):
            with self.assertRaisesRegex(diloco.InvalidError, words):
                self.live("none", classes=classes, data__sampler="label_quantity_noniid")


@unittest.skipUnless(torch, "no torch")
class Modules(InScratch):
    def test_a_module_is_trained_by_the_clients_of_three_workers(self):
        wanted = torch.tensor([[1., -2., 3.]])

        class Trains(diloco.Client):
            def __init__(self, number, rows):
                self.rows = list(rows)

            def fit(self, parameters, config):
                model = torch.nn.Linear(3, 1, bias=False)
                model.load_state_dict(parameters)
                inner = torch.optim.SGD(model.parameters(), lr=.3)
                x = torch.stack([torch.randn(3, generator=torch.Generator().manual_seed(row))
                                 for row in self.rows])
                for _ in range(config["local_steps"]):
                    inner.zero_grad()
                    loss = torch.nn.functional.mse_loss(model(x), x @ wanted.T)
                    loss.backward()
                    inner.step()
                return model.state_dict(), len(x), {"loss": loss}
        more = {"make": Trains, "classes": LABELS, "data__sampler": "iid",
                "local_steps_per_round": 3, "initial": torch.nn.Linear(3, 1, bias=False)}
        with torch.no_grad():
            more["initial"].weight.zero_()
        several = self.on_workers("several", **more)
        self.assertEqual([len(members) for members in self.asked("several")], [PER_ROUND] * ROUNDS)
        torch.testing.assert_close(several, wanted, rtol=0, atol=.1)
        self.assertTrue(torch.equal(several, self.live("one", **more)))


class Combiners(InScratch):
    def check(self, combiner, combine, **options):
        """The model is ``combine`` of the values of the last round's clients, by hand."""
        last = self.on_workers(combiner, combiner=combiner, **options)
        values = numpy.array([moved(number) for number in self.asked(combiner)[-1]])
        self.assertEqual(len(values), PER_ROUND)
        numpy.testing.assert_allclose(last, combine(values), rtol=0, atol=1e-5)

    def test_median_and_trimmed_mean_of_the_clients_that_were_asked(self):
        self.check("median", lambda v: numpy.median(v, axis=0))
        self.check("trimmed_mean", lambda v: numpy.sort(v, axis=0)[3:-3].mean(axis=0),
                   trim=0.15)

    def test_krum_takes_the_client_that_is_nearest_to_its_neighbours(self):
        def krum(values, f=3):
            distances = ((values[:, None] - values[None]) ** 2).sum(axis=2)
            scores = numpy.sort(distances, axis=1)[:, 1:len(values) - f - 1].sum(axis=1)
            return values[scores.argmin()]
        self.check("krum", krum, byzantine=3)

    def test_every_robust_combiner_ends_a_run_that_verifies(self):
        for combiner in ("multi_krum", "bulyan", "geometric_median", "centered_clip", "rda",
                         "clipped_mean"):
            with self.subTest(combiner=combiner):
                last = self.live(combiner, combiner=combiner)
                self.assertTrue(numpy.isfinite(last).all())
                self.assertTrue(diloco.run(self.folder / combiner).verify()["complete"])


if __name__ == "__main__":
    unittest.main()
