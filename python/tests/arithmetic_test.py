"""arithmetic_test.py - equal contributions give equal updates in every program of a series.

Five replicas move parameters by Python's own arithmetic, which is IEEE 754 everywhere. DIGESTS has the
digest of the state after the last entry, as the first program of the series computed it. Every machine
and every later program of the series computes the same (docs/releasing.md). A new series may change it:
`python3 arithmetic_test.py --print` writes the table.
"""
import array
import sys
import tempfile
import threading
import unittest

import diloco

N = 3000
REPLICAS = 5

CASES = {
    **{preset: {"preset": preset} for preset in ("diloco", "streaming", "eager", "sparse")},
    **{outer: {"server.diloco.outer_optimizer": outer} for outer in (
        "sgd", "momentum", "adam", "adamw", "fedadam", "fedyogi", "fedadagrad", "schedule_free",
        "delayed_nesterov")},
    **{combiner: {"combiner": combiner} for combiner in (
        "clipped_mean", "trimmed_mean", "median", "geometric_median", "krum", "multi_krum",
        "centered_clip", "rda")},
    **{codec: {"codec": codec} for codec in ("bf16", "f16", "int8", "int4", "int2", "e3m0", "topk",
                                            "sign", "prune")},
}

DIGESTS = {
    "diloco": "b874ec1448925d516dd674ca49efea9c",
    "streaming": "05ce544308ed188c5f62afcadfdefe43",
    "eager": "adcf472be21dbab008b15fa9dd93938b",
    "sparse": "a652fd3503f64798c6e5b520b5b67e3d",
    "sgd": "300c349f359723b4c9b3351f91b2bec3",
    "momentum": "b7a290432c2810f8a4277851d4127346",
    "adam": "422ed7e146e6c4a96b2d777ae6e7b1dd",
    "adamw": "ea6538879560f86ae430af3d29316333",
    "fedadam": "0eb9aaeab7155972421c0ae2e7bba62b",
    "fedyogi": "7e188ec84c14702053ca0c07ed6514b6",
    "fedadagrad": "1ee6f1460a913b961238ded2487f9801",
    "schedule_free": "16feb60ef3798a0200b24e3ae7256548",
    "delayed_nesterov": "eee58c8e6f141141bb207cf3c5760955",
    "clipped_mean": "988e0a4ba23c20be5394dc34d64552ec",
    "trimmed_mean": "d0461a57154944d15c9608edce1ce44b",
    "median": "ded69b4952ccddcb32b791980967ef36",
    "geometric_median": "5fd3ff3313ba95a807da49db626797ab",
    "krum": "d05036757bb8c635e0921633d327b674",
    "multi_krum": "6a16bb4c09b99894d00a4fe0009d3861",
    "centered_clip": "a35145d432187ea6a943727374699f51",
    "rda": "90272f164ad1087f86e448ebd4ed1457",
    "bf16": "984fa19c3a241399bd12c6f243f3fa66",
    "f16": "40670b90a97e5107f3304b66fb3e699e",
    "int8": "8b926b4322ef643e60daaf2cc8e8f793",
    "int4": "8a562fc9bdf91cef4c1ea4ddc1de73e9",
    "int2": "9f2a4b2d4996ee5edc6f79dbe57a35d4",
    "e3m0": "5dca2a0d047a85111d5fd41af78a1e60",
    "topk": "f506575d8e21dd97d2f388d672fcfb13",
    "sign": "f6cf2b705c392be2e81cc5590fa2ae3e",
    "prune": "cc8078bf0de98de8831354c03dde26a1",
}


def move(weights, replica, step):
    for i in range(len(weights)):
        weights[i] += ((i * 37 + step * 11) % 17 - 8) / 64 + (i * replica % 5) / 256


def replica(store, number, options, failures):
    try:
        values = {"run.replicas": REPLICAS, "run.min_replicas": REPLICAS, "run.heartbeat": 0.5,
                  "trainer.local_steps_per_round": 4, "trainer.rounds": 3, **options}
        preset = values.pop("preset", "diloco")
        a, b = array.array("f", [0.5] * N), array.array("f", [-0.25] * (N // 2))
        with diloco.Run(store, f"r{number}", preset=preset, options=values) as run:
            run.tensor("a", memoryview(a).cast("B").cast("f", (N // 10, 10)))
            run.tensor("b", b)
            run.join()
            step = 0
            while not run.done:
                move(a, number, step)
                move(b, number, step + 3)
                step += 1
                run.step(loss=1)
    except Exception as error:
        failures.append(error)


def digest(options):
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        store = folder + "/run"
        threads = [threading.Thread(target=replica, args=(store, number, options, failures))
                   for number in range(REPLICAS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return diloco.run(store).verify()["digest"]


class Arithmetic(unittest.TestCase):
    def test_the_state_has_the_bits_that_the_first_program_of_the_series_computed(self):
        self.assertEqual(CASES.keys(), DIGESTS.keys())
        for name, options in CASES.items():
            with self.subTest(name):
                self.assertEqual(digest(options), DIGESTS[name])


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        for case in CASES:
            print(f'    "{case}": "{digest(CASES[case])}",')
    else:
        unittest.main()
