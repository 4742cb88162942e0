"""late_copies_test.py - a model trains as without a device where copies to host memory come late and
in any order. Skips itself (77) without torch."""
import gc
import logging
import sys
import unittest
from unittest import mock

try:
    import torch
except ImportError as error:
    print(f"left out: the Python package with torch ({error})")
    sys.exit(77)

import diloco
from diloco import _copies, _place
from late_device import NO_MEMORY, Cuda, Full, Late
from torch_world import InScratch, Kinds, adamw, life_of_kinds


class LateCopies(InScratch):
    life = life_of_kinds

    def test_every_kind_trains_and_resumes_as_without_a_device(self):
        plain = self.life(f"{self.store}-plain", 18)
        for seed in range(3):
            late = Late(seed)
            with mock.patch.object(_copies, "queue", late):
                self.assertEqualTensors(self.life(f"{self.store}-{seed}", 18), plain)
                self.life(f"{self.store}-parts{seed}", 7, save_at=7)
                self.assertEqualTensors(self.life(f"{self.store}-parts{seed}", 18), plain)
            self.assertGreater(late.n_late, 0)

    def test_a_full_device_at_an_adoption_raises_its_error_and_the_resume_is_bitwise(self):
        plain = self.life(f"{self.store}-plain", 18)
        n_tensors = len(Kinds().state_dict())  # a join copies these
        for n in (1, 2, n_tensors + 1):  # copies to the device after the join: adoptions make them
            with mock.patch.object(_copies, "queue", Full(5, n_tensors + n)):
                with self.assertRaisesRegex(NO_MEMORY, "CUDA out of memory. Tried to allocate"):
                    self.life(f"{self.store}-{n}", 18)
            self.assertGreater(diloco.run(f"{self.store}-{n}").status()["entries"], 0)
            with mock.patch.object(_copies, "queue", Late(6)):
                self.assertEqualTensors(self.life(f"{self.store}-{n}", 18), plain)

    def test_a_due_point_copies_the_fragment_that_is_due_through_one_block(self):
        late, model = Late(4), Kinds()
        parts = [model.plain, model.narrow,
                 [model.shift, *model.images.parameters(), model.seen, model.flags]]
        tensors = [{t.data_ptr() for t in (p if isinstance(p, list) else p.parameters())}
                   for p in parts]
        with mock.patch.object(_copies, "queue", late), diloco.DiLoCoOptimizer(
                model, adamw(model), self.store, sync_every=6, rounds=2, fragments=parts,
                options={"run.state_dir": "none"}) as opt:
            for step in range(1, 16):  # at the end all parameters become the shared model
                late.copied = {"to host": [], "to device": []}
                opt.step()
                due = tensors[step // 2 % 3] if step >= 6 and step % 2 == 0 else []
                self.assertEqual({way: sorted(found) for way, found in late.copied.items()},
                                 {"to host": sorted(due), "to device": sorted(due)}, step)
            opt.step()
            self.assertTrue(opt.done)
        self.assertEqual(len(late.blocks), 1)

    def test_a_model_on_another_device_makes_no_context_on_the_first(self):
        plain = self.life(f"{self.store}-plain", 18)
        cuda, second = Cuda(), torch.device("cuda", 1)
        with mock.patch.object(_copies, "cuda", cuda), \
                mock.patch.object(_copies, "device_of", lambda t: second):
            self.assertEqualTensors(self.life(f"{self.store}-second", 18), plain)
            gc.collect()
            self.assertEqual(cuda.pinned, {})
        self.assertEqual(cuda.contexts, {1})
        self.assertEqual(set(cuda.generators), {second})

    def test_a_wait_is_once_on_each_device_that_has_copies(self):
        cuda, waited, on = Cuda(), [], {}
        cuda.current_stream = lambda device: mock.Mock(
            synchronize=lambda: waited.append(device.index))
        tensors = [torch.arange(3.) for _ in range(4)]
        for t, index in zip(tensors, (2, 1, 2, None)):
            on[id(t)] = None if index is None else torch.device("cuda", index)
        with mock.patch.object(_copies, "cuda", cuda), \
                mock.patch.object(_copies, "device_of", lambda t: on.get(id(t))):
            copies = _copies.Copies()
            for t in tensors:
                copies.to_host(torch.empty(3), t)
            self.assertEqual(waited, [])
            copies.wait()
            self.assertEqual(sorted(waited), [1, 2])
            copies.wait()
            copies.to_device(tensors[1], torch.zeros(3))
            copies.wait()
        self.assertEqual(waited[2:], [1])

    def test_a_model_on_two_devices_waits_on_both_and_trains_as_without(self):
        plain = self.life(f"{self.store}-plain", 18)
        cuda, waited = Cuda(), set()
        cuda.current_stream = lambda device: mock.Mock(
            synchronize=lambda: waited.add(device.index))
        with mock.patch.object(_copies, "cuda", cuda), mock.patch.object(
                _copies, "device_of",
                lambda t: torch.device("cuda", 2 if t.dtype == torch.bfloat16 else 1)):
            self.assertEqualTensors(self.life(f"{self.store}-two", 18), plain)
        self.assertEqual(waited, {1, 2})

    def warnings_of_resume(self, store, card):
        """Resume a replica that has trained 7 steps on a card named "Card A"; the warnings."""
        cuda = Cuda()
        with mock.patch.object(_copies, "cuda", cuda), \
                mock.patch.object(_copies, "device_of", lambda t: torch.device("cuda", 1)):
            self.life(store, 7, save_at=7)
            cuda.name = card
            with self.assertLogs("diloco", "WARNING") as logs:
                logging.getLogger("diloco").warning("the list is not empty")
                self.life(store, 18)
        return [line for line in logs.output if "not bit for bit" in line]

    def test_resume_on_a_card_of_another_name_gives_a_warning(self):
        self.assertEqual(self.warnings_of_resume(f"{self.store}-same", "Card A"), [])
        found = self.warnings_of_resume(f"{self.store}-other", "Card B")
        self.assertEqual(len(found), 1, found)
        self.assertRegex(found[0], "saved with Card A, .*, resumed with Card B, ")

    def test_names_of_devices_are_each_named_once_in_their_order(self):
        cuda, on = Cuda(), {}
        tensors = [torch.zeros(1) for _ in range(3)]
        for t, index in zip(tensors, (2, 1, 1)):
            on[id(t)] = torch.device("cuda", index)
        cuda.get_device_name = lambda device: f"Card {'AB'[device.index - 1]}"
        with mock.patch.object(_copies, "cuda", cuda), \
                mock.patch.object(_copies, "device_of", lambda t: on.get(id(t))):
            self.assertEqual(_copies.names_of(tensors), "Card A, Card B")
            self.assertEqual(_copies.names_of([torch.zeros(1)]), "cpu")

    def test_a_managers_stage_is_pinned_by_the_device_of_the_model(self):
        cuda, second = Cuda(), torch.device("cuda", 1)
        with mock.patch.object(_copies, "cuda", cuda), \
                mock.patch.object(_copies, "device_of", lambda t: second):
            places = _place.places_of([torch.nn.Linear(6, 4).bfloat16()])
            copies = _place.StagedCopies(places[0], pin_memory=True)
            self.assertEqual(list(cuda.pinned), [copies.staging.pointer])
            self.assertEqual(cuda.contexts, {1})
            del copies
            gc.collect()

    def test_memory_that_cannot_be_pinned_is_refused_with_its_size(self):
        cuda = Cuda()
        cuda.cudaHostRegister = lambda *_: 2
        with mock.patch.object(_copies, "cuda", cuda):
            with self.assertRaisesRegex(diloco.NoMemoryError, "8192 bytes .*CUDA error 2"):
                _copies.Block(5000, torch.device("cuda", 1))

    def losses(self, store, late):
        """Train 3 rounds of 4 steps; the rows of the log, and waits for a loss in each step."""
        model, waits = torch.nn.Linear(6, 1), []
        with mock.patch.object(_copies, "queue", late), diloco.DiLoCoOptimizer(
                model, adamw(model), store, sync_every=4, rounds=3) as opt:
            for step in range(12):
                opt.report(torch.tensor(1.0 + step), samples=1 + step)
                before = late.n_waits
                opt.step()
                waits.append(late.n_waits - before)
        return [(r["loss"], r["samples"]) for r in diloco.run(store).history()], waits

    def test_a_step_waits_for_no_loss_before_the_due_point(self):
        for seed in range(3):
            rows, waits = self.losses(f"{self.store}-{seed}", Late(seed))
            self.assertEqual(rows, [(2.5, 10), (6.5, 26), (10.5, 42)])
            self.assertEqual([w for step, w in enumerate(waits) if step % 4 < 3], [0] * 9)
            self.assertGreater(sum(waits), 0)

    def test_the_run_has_counted_every_step_when_it_is_looked_at(self):
        model = torch.nn.Linear(6, 1)
        with mock.patch.object(_copies, "queue", Late(1)), diloco.DiLoCoOptimizer(
                model, adamw(model), self.store, sync_every=4, rounds=3) as opt:
            for step in range(3):
                opt.report(torch.tensor(1.0), samples=2)
                opt.step()
                self.assertEqual((opt.run.now.step, opt.run.now.sample), (step + 1, 2 * (step + 1)))


if __name__ == "__main__":
    unittest.main()
