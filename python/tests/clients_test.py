"""clients_test.py - logical clients in Python: the arithmetic is FedAvg's, and a client's private
state follows it. Several workers and a resume have the same bits. A result that does not fit is
refused by the client's name. Skips itself (77) without numpy; modules without torch."""
import pathlib
import sys
import tempfile
import threading
import unittest

try:
    import numpy
except ImportError as error:
    print(f"left out: clients in Python ({error})")
    sys.exit(77)
try:
    import torch
    torch.set_num_threads(1)
except ImportError as error:
    print(f"left out of clients_test: torch modules ({error})")
    torch = None

import diloco
from diloco import _clients

QUICK = {"run.heartbeat": 0.05, "run.patience": 240, "run.threads": 1}


class Counting(diloco.Client):
    """Client k holds k samples, and moves the model to k; its state counts its rounds."""

    def fit(self, parameters, config):
        rounds = self.state.get("rounds", 0)
        assert config["steps"] == rounds * config["local_steps"], (config, self.state)
        if rounds:
            assert self.state["moments"].tolist() == [self.number, rounds]
        self.state = {"rounds": rounds + 1, "moments": numpy.array([self.number, rounds + 1.0])}
        return [numpy.full_like(p, self.number) for p in parameters], self.number, {"loss": 1.0}

    def evaluate(self, parameters, config):
        return float(abs(parameters[0] - self.number).mean()), self.number, {}


def counting(_number):
    return Counting()


class InScratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_clients(self, make=counting, initial=None, store="run", replica="r0", **options):
        given = {"preset": "fedavg", "clients__total_clients": 6, "clients__per_round": 3,
                 "rounds": 4, "trainer__local_steps_per_round": 2, "state_bytes": 512, **options}
        return diloco.run_clients(make, [numpy.zeros((2, 2), "float32")] if initial is None
                                  else initial, self.folder / store, replica, options=QUICK, **given)

    def asked(self, store="run"):
        return [[int(m.split(".")[0][len("client"):]) for m in row["members"]]
                for row in diloco.run(self.folder / store).history()]


class Arithmetic(InScratch):
    def test_a_round_is_the_mean_by_samples_of_those_who_were_asked(self):
        rounds = []
        last = self.run_clients(
            evaluate=lambda entry, p: rounds.append((entry, float(p[0][0, 0]))),
            trainer__eval_every=1)
        asked = self.asked()
        self.assertEqual([len(a) for a in asked], [3] * 4)
        for (entry, got), members in zip(rounds, asked):
            expected = sum(k * k for k in members) / sum(members)
            self.assertAlmostEqual(got, expected, places=5, msg=entry)
        self.assertEqual([e for e, _ in rounds], [0, 1, 2, 3])
        self.assertAlmostEqual(float(last[0][1, 1]), rounds[-1][1])
        self.assertTrue(diloco.run(self.folder / "run").verify()["complete"])

    def test_two_workers_and_a_server_come_to_the_bits_of_one_process(self):
        one = self.run_clients(store="one")
        ends, raised = {}, []

        def live(name, role):
            try:
                ends[name] = self.run_clients(None if role == "server" else counting, store="many",
                                              replica=name, role=role,
                                              clients__state=str(self.folder / "states"))
            except BaseException as error:
                raised.append(error)
        threads = [threading.Thread(target=live, args=a) for a in
                   (("s0", "server"), ("w0", "worker"), ("w1", "worker"))]
        [t.start() for t in threads], [t.join() for t in threads]
        self.assertEqual(raised, [])
        for values in ends.values():
            self.assertTrue((values[0] == one[0]).all())

    def test_an_exception_of_fit_comes_out_and_the_run_resumes_to_the_same_bits(self):
        whole, calls = self.run_clients(store="whole"), []

        class Failing(Counting):
            def fit(self, parameters, config):
                calls.append(self.number)
                if len(calls) in (2, 5, 9):
                    raise ZeroDivisionError("a client failed")
                return super().fit(parameters, config)
        for _ in range(3):
            with self.assertRaisesRegex(ZeroDivisionError, "a client failed"):
                self.run_clients(lambda _: Failing(), store="cut")
        cut = self.run_clients(lambda _: Failing(), store="cut")
        self.assertTrue((cut[0] == whole[0]).all())
        self.assertEqual(len(calls), 4 * 3 + 3)

    def test_clients_evaluate_a_model_of_five_dimensions_in_its_own_shape(self):
        shape, seen = (3, 1, 2, 2, 4), []

        class Sees(Counting):
            def evaluate(self, parameters, config):
                seen.append(parameters[0])
                return super().evaluate(parameters, config)
        last = self.run_clients(initial=[numpy.zeros(shape, "float32")])
        initial = [numpy.zeros(shape, "float32")]
        diloco.evaluate_clients(lambda _: Sees(), initial, self.folder / "run", [1])
        self.assertEqual(seen[0].shape, shape)
        self.assertTrue((seen[0] == last[0]).all())
        with self.assertRaisesRegex(diloco.InvalidError, r"p0 with shape \[3, 1, 2, 8\], not"):
            diloco.evaluate_clients(lambda _: Sees(), [numpy.zeros((3, 1, 2, 2, 3), "float32")],
                                    self.folder / "run", [1])

    def test_clients_evaluate_the_shared_model_on_their_own_data(self):
        last = self.run_clients()
        got = diloco.evaluate_clients(counting, last, self.folder / "run", [1, 2, 3])
        at = float(last[0][0, 0])
        self.assertAlmostEqual(got["loss"], sum(abs(at - k) * k for k in (1, 2, 3)) / 6, places=5)
        self.assertEqual((got["samples"], sorted(got["clients"])), (6, [1, 2, 3]))

    def test_an_evaluation_of_no_clients_or_of_another_kind_is_refused(self):
        last = self.run_clients()

        def refused(words, clients, make=counting):
            with self.assertRaisesRegex(diloco.InvalidError, words):
                diloco.evaluate_clients(make, last, self.folder / "run", clients)
        total = int(diloco.run(self.folder / "run").config()["clients.total_clients"])
        for number in (0, -1, total + 1, "a", 1.5):
            refused(f"^{number!r} is no client of the run: they are 1 to {total}$", [1, number])
        refused("give the numbers", [])
        for got in ((1.0, 5), None, (1.0, 2.5, {}), ("low", 5, {}), (1.0, 5, 3)):
            client = type("Other", (diloco.Client,), {"evaluate": lambda *_, got=got: got})
            refused("^evaluate of client2 has to return the loss", [2], lambda _: client())  # noqa: B023

    def test_tensors_without_elements_are_given_and_taken_and_add_nothing_to_the_run(self):
        kinds = [numpy.zeros((0, 3), "float32"), *([torch.zeros(2, 0)] if torch else [])]

        class Filled(diloco.Client):
            def fit(self, parameters, config):
                return [p + self.number for p in parameters], 1, {"loss": 1.0}

            def evaluate(self, parameters, config):
                return float(len(parameters)), 1, {}

        plain = self.run_clients(lambda _: Filled(), store="plain")
        for i, empty in enumerate(kinds):
            initial = [empty, numpy.zeros((2, 2), "float32"), empty]
            last = self.run_clients(lambda _: Filled(), initial, f"run{i}")
            self.assertEqual([tuple(p.shape) for p in last],
                             [tuple(empty.shape), (2, 2), tuple(empty.shape)])
            self.assertEqual(numpy.asarray(last[1]).tolist(), plain[0].tolist())
            self.assertEqual(list(diloco.run(self.folder / f"run{i}").theta()), ["p1"])
            got = diloco.evaluate_clients(lambda _: Filled(), initial, self.folder / f"run{i}", [1])
            self.assertEqual(got["loss"], 3)

    def test_a_result_of_another_shape_in_place_of_no_elements_is_refused(self):
        class Wrong(diloco.Client):
            def fit(self, parameters, config):
                return [parameters[0], numpy.zeros(3, "float32")], 1, {}
        with self.assertRaisesRegex(diloco.InvalidError, r"p1 with shape \[3\], not \[0\]"):
            self.run_clients(lambda _: Wrong(),
                             [numpy.zeros(2, "float32"), numpy.zeros(0, "float32")])


class State(InScratch):
    def test_it_comes_back_as_it_was(self):
        state = {"a": [1, 2.5, None, True, "x"], "by": {0: {"n": 1}, 1: {}},
                 "w": numpy.arange(6, dtype="int64").reshape(2, 3)}
        if torch:
            state["t"] = torch.arange(4, dtype=torch.bfloat16)
            state["none"] = torch.empty(0, 3)
        got = _clients.unpacked(_clients.packed(state) + bytes(9))
        self.assertEqual(got["a"], state["a"])
        self.assertEqual(got["by"], state["by"])
        self.assertEqual(got["w"].tolist(), state["w"].tolist())
        if torch:
            self.assertTrue(torch.equal(got["t"], state["t"]))
            self.assertEqual(got["none"].shape, (0, 3))

    def test_what_cannot_be_kept_is_refused_by_its_place(self):
        with self.assertRaisesRegex(diloco.InvalidError, r"state\.a\[1\] is a object"):
            _clients.packed({"a": [1, object()]})
        with self.assertRaisesRegex(diloco.InvalidError, r"client\d has \d+ bytes, and state_bytes"):
            self.run_clients(state_bytes=16)


class Refusals(InScratch):
    def refused(self, words, result, kind=diloco.InvalidError):
        class Wrong(diloco.Client):
            def fit(self, parameters, config):
                return result(parameters)
        with self.assertRaisesRegex(kind, words):
            self.run_clients(lambda _: Wrong())

    def test_results_that_do_not_fit_are_refused_by_the_clients_name(self):
        self.refused(r"client\d returned 0 parameters of 1", lambda p: ([], 1, {}))
        self.refused(r"client\d returned p0 with shape \[4\], not \[2, 2\]",
                     lambda p: ([p[0].reshape(4)], 1, {}))
        self.refused(r"client\d took 3 steps, and trainer.local_steps_per_round = 2",
                     lambda p: (p, 1, {"steps": 3}))
        self.refused(r"the samples of client\d = -4: a whole number", lambda p: (p, -4, {}))
        self.refused(r"\"samples\" of client\d = 1.5", lambda p: (p, 1, {"samples": 1.5}))
        self.refused(r"client\d: the movement of p0\[0\] since entry 0 is nan", lambda p: ([p[0] * numpy.nan], 1, {}), diloco.Error)

    def test_rosters_of_keys_are_refused_by_name(self):
        for policy in ("open", "closed"):
            with self.assertRaisesRegex(diloco.RefusedError, rf"run\.roster = \"{policy}\" does not go "
                                                             "with logical clients"):
                self.run_clients(run__roster=policy)

    def test_a_run_without_clients_is_refused(self):
        with self.assertRaisesRegex(diloco.InvalidError, "clients.total_clients"):
            diloco.run_clients(counting, [numpy.zeros(2, "float32")], self.folder / "run")

    def test_clients_of_no_code_are_refused_except_for_a_server(self):
        with self.assertRaisesRegex(diloco.InvalidError, "a function that trains one"):
            self.run_clients(None)


@unittest.skipUnless(torch, "no torch")
class Modules(InScratch):
    def test_frozen_parameters_take_the_mean_and_the_outer_optimizer_moves_the_others(self):
        model = torch.nn.Linear(2, 2)
        torch.nn.init.zeros_(model.weight), torch.nn.init.zeros_(model.bias)
        model.bias.requires_grad_(False)

        class Moving(diloco.Client):
            def fit(self, parameters, config):
                return {n: torch.full_like(p, self.number) for n, p in parameters.items()}, 1, {}
        last = self.run_clients(lambda _: Moving(), model, rounds=1, outer_lr=.5)
        mean = sum(self.asked()[0]) / 3
        torch.testing.assert_close(last["bias"], torch.full((2,), mean))
        torch.testing.assert_close(last["weight"], torch.full((2, 2), mean / 2))

    def test_a_module_with_batch_norm_and_private_moments_is_trained_by_8_clients(self):
        def net():
            torch.manual_seed(1)
            return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8),
                                       torch.nn.ReLU(), torch.nn.Linear(8, 1))

        def data(number):
            x = torch.randn(16, 4, generator=torch.Generator().manual_seed(number))
            return x, x.sum(1, keepdim=True)

        class Net(diloco.Client):
            def fit(self, parameters, config):
                model = net()
                model.load_state_dict(parameters)
                inner = torch.optim.Adam(model.parameters(), lr=0.02)
                if self.state:
                    inner.load_state_dict(self.state["adam"])
                x, y = data(self.number)
                for _ in range(config["local_steps"]):
                    inner.zero_grad()
                    loss = torch.nn.functional.mse_loss(model(x), y)
                    loss.backward()
                    inner.step()
                self.state = {"adam": inner.state_dict()}
                return model.state_dict(), len(x), {"loss": loss}

        losses = []

        def evaluate(entry, parameters):
            model = net()
            model.load_state_dict(parameters)
            x, y = data(99)
            losses.append(torch.nn.functional.mse_loss(model.eval()(x), y).item())
        self.run_clients(lambda _: Net(), net(), clients__total_clients=8, clients__per_round=4,
                         trainer__local_steps_per_round=10, rounds=12, state_bytes=8192,
                         trainer__eval_every=1, evaluate=evaluate)
        self.assertEqual(len(losses), 12)
        self.assertLess(losses[-1], losses[0] / 4)


if __name__ == "__main__":
    unittest.main()
