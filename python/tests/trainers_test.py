"""trainers_test.py - the callbacks of Hugging Face's Trainer and of Lightning, in the real ones.
Each is left out where it is not installed; all of it (77) without torch."""
import contextlib
import logging
import os
import pathlib
import sys
import tempfile
import unittest
import warnings
from unittest import mock

try:
    import torch
except ImportError as error:
    print(f"left out: the Python package's callbacks ({error})")
    sys.exit(77)
os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import transformers
    from diloco import huggingface
except ImportError as error:
    transformers = None
    print(f"left out: Hugging Face's Trainer ({error})")
try:
    import accelerate
except ImportError as error:
    accelerate = None
    print(f"left out: accelerate ({error})")
try:
    import lightning
    import diloco.lightning
except ImportError as error:
    lightning = None
    print(f"left out: Lightning's Trainer ({error})")

import diloco
from calls import in_threads

torch.set_num_threads(1)
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
OPTIONS = {"run.heartbeat": 0.05, "run.patience": 240}


def samples(replica, n=64):
    g = torch.Generator().manual_seed(replica)
    x = torch.randn(n, 6, generator=g)
    return x, x.sum(1, keepdim=True)


class InScratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.store = self.folder / "run"

    def check_ends(self, ends, rounds, samples_):
        for a, b in zip(*[m.parameters() for m in ends]):
            self.assertTrue(torch.equal(a, b))
        rows = diloco.run(self.store).history()
        self.assertEqual([(r["members"], r["samples"]) for r in rows],
                         [(["r0.0000", "r1.0000"], samples_)] * rounds)


class Regression(torch.nn.Module):
    """As Trainer wants models: keyword arguments in, the loss first."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 1)

    def forward(self, x=None, labels=None):
        y = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(y, labels), "logits": y}


@unittest.skipUnless(transformers, "no transformers")
class HuggingFace(InScratch):
    def trainer(self, model, replica, replicas=2, micro_batches=1, n=64, sync_every=3, rounds=2,
                **arguments):
        x, y = samples(replica, n)
        data = [{"x": a, "labels": b} for a, b in zip(x, y)]
        args = transformers.TrainingArguments(**{
            "output_dir": str(self.folder / f"out{replica}"), "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": micro_batches, "learning_rate": .05, "max_steps": 1000,
            "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "logging_strategy": "no",
            "report_to": [], **arguments})
        callback = huggingface.DiLoCoCallback(
            self.store, f"r{replica}", options=OPTIONS, replicas=replicas, sync_every=sync_every,
            rounds=rounds)
        return transformers.Trainer(model, args, train_dataset=data, eval_dataset=data,
                                    callbacks=[callback])

    def test_two_trainers_end_with_one_model(self):
        torch.manual_seed(1)
        models = [Regression(), Regression()]
        trainers = [self.trainer(models[r], r) for r in range(2)]
        in_threads(*[t.train for t in trainers])
        self.assertEqual([t.state.global_step for t in trainers], [6, 6])
        self.check_ends(models, 2, 3 * 4 * 2)

    def test_a_finished_replica_that_is_started_again_has_the_result(self):
        models = [Regression(), Regression()]
        for model in models:
            self.trainer(model, 0, replicas=1).train()
        for a, b in zip(*[m.parameters() for m in models]):
            self.assertTrue(torch.equal(a, b))

    def test_micro_batches_are_no_steps(self):
        trainer = self.trainer(Regression(), 0, replicas=1, micro_batches=2)
        trainer.train()
        self.assertEqual(trainer.state.global_step, 6)
        self.assertEqual([r["samples"] for r in diloco.run(self.store).history()], [24, 24])

    def test_a_training_that_an_exception_ended_begins_again_in_this_process(self):
        class Breaks(transformers.TrainerCallback):
            def on_step_end(self, args, state, control, **_others):
                if state.global_step == self.at:
                    raise KeyboardInterrupt
        breaks, kept = Breaks(), []
        trainer = self.trainer(Regression(), 0, replicas=1)
        trainer.add_callback(breaks)
        another = self.trainer(Regression(), 0, replicas=1)
        another.add_callback(breaks)
        for one, breaks.at in ((trainer, 4), (trainer, 2), (another, None)):
            try:
                one.train()
            except KeyboardInterrupt as error:
                kept.append(error)  # as a notebook does, and with it the binding
        self.assertEqual((len(kept), another.state.global_step), (2, 3))
        self.assertTrue(diloco.run(self.store).status()["done"])

    def test_a_data_set_has_each_epoch_s_number_after_an_exception_too(self):
        class Data(list):
            def set_epoch(self, epoch):
                self.epochs.add(epoch)

        class Breaks(transformers.TrainerCallback):
            def on_step_end(self, args, state, control, **_others):
                if state.global_step == self.at:
                    raise KeyboardInterrupt
        first, other = [self.trainer(Regression(), 0, replicas=1, n=8, rounds=4) for _ in range(2)]
        data, breaks, kept = Data(first.train_dataset), Breaks(), []
        first.add_callback(breaks)
        other.add_callback(breaks)
        for trainer, breaks.at, epochs in ((first, 4, {0, 1}), (first, 4, {1, 2, 3}),
                                           (other, 2, {3}), (other, None, {3, 4, 5})):
            trainer.train_dataset, data.epochs = data, set()
            try:
                trainer.train()
            except KeyboardInterrupt as error:
                kept.append(error)
            self.assertEqual(data.epochs, epochs)  # of two steps each; three are an entry
        self.assertEqual(vars(data), {"epochs": epochs})
        self.assertTrue(diloco.run(self.store).status()["done"])

    def test_a_checkpoint_that_would_replace_the_shared_model_is_refused(self):
        trainer = self.trainer(Regression(), 0, replicas=1, eval_strategy="steps", eval_steps=2,
                               save_strategy="steps", save_steps=2, load_best_model_at_end=True)
        with self.assertRaisesRegex(diloco.RefusedError, "load_best_model_at_end would load"):
            trainer.train()
        self.assertFalse(self.store.exists())

    def test_a_training_that_ends_before_the_run_warns_and_its_checkpoint_is_not_resumed(self):
        saves = {"save_strategy": "steps", "save_steps": 2}
        with self.assertLogs("diloco", "WARNING") as log:
            self.trainer(Regression(), 0, replicas=1, max_steps=4, **saves).train()
        self.assertRegex(log.output[0], "ends after 4 steps, and the run has 6 left: set max_steps "
                                        "to at least 6")
        self.assertRegex(log.output[1], "ended after 4 of the run's 6 steps, so the model is this")
        again = self.trainer(Regression(), 0, replicas=1, **saves)
        with self.assertRaisesRegex(diloco.RefusedError, "begins after 4 steps: leave out resume_fr"):
            again.train(resume_from_checkpoint=True)
        with self.assertLogs("diloco", "WARNING") as log:
            logging.getLogger("diloco").warning("a first line")  # assertNoLogs needs Python 3.10
            self.trainer(Regression(), 0, replicas=1, max_steps=3).train()
        self.assertEqual(len(log.output), 1)
        self.assertTrue(diloco.run(self.store).status()["done"])
        self.store = self.folder / "begins-from-a-checkpoint"
        first = self.trainer(Regression(), 0, replicas=1, max_steps=10)
        first.train(resume_from_checkpoint=str(self.folder / "out0/checkpoint-4"))
        self.assertEqual(first.state.global_step, 10)

    def test_a_resume_goes_on_after_the_batches_that_were_used(self):
        """Shuffled data, dropout, two and a half epochs: the same batches, the same model."""
        class Noisy(Regression):
            def __init__(self):
                super().__init__()
                self.drop, self.seen = torch.nn.Dropout(.2), []

            def forward(self, x=None, labels=None):
                self.seen.append(x[:, 0].tolist())
                return super().forward(self.drop(x), labels)

        def life(store, stop=None):
            class Stop(transformers.TrainerCallback):
                def on_step_end(self, args, state, control, **_others):
                    if state.global_step == stop:
                        control.should_training_stop = True
            torch.manual_seed(3)
            self.store = self.folder / store
            model = Noisy()
            trainer = self.trainer(model, 0, replicas=1, n=24, sync_every=5, rounds=3)
            trainer.add_callback(Stop())
            trainer.train()
            return model
        whole, first, second = life("whole"), life("parts", 12), life("parts")
        self.assertEqual(len(whole.seen), 15)
        self.assertEqual(first.seen[:10] + second.seen, whole.seen)  # saved at the due point at 10
        for a, b in zip(whole.parameters(), second.parameters()):
            self.assertTrue(torch.equal(a, b))

    def seen(self, data, stop=None, checkpoint=None, **arguments):
        """The first numbers of the samples that a process of the replica trains on, in lists by
        batch: 4 due points of 5 steps."""
        class Seen(Regression):
            batches = []

            def forward(self, x=None, labels=None):
                self.batches.append(x[:, 0].tolist())
                return super().forward(x, labels)

        class Stop(transformers.TrainerCallback):
            def on_step_end(self, args, state, control, **_others):
                control.should_training_stop |= state.global_step == stop
        Seen.batches = []
        torch.manual_seed(3)
        trainer = self.trainer(Seen(), 0, replicas=1, sync_every=5, rounds=4, **arguments)
        trainer.train_dataset = data
        trainer.add_callback(Stop())
        trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
        return Seen.batches

    def stream(self, n, more=0):
        """A stream of n samples and, in each later epoch, ``more``."""
        class Stream(torch.utils.data.IterableDataset):
            epoch = 0

            def set_epoch(self, epoch):
                self.epoch = epoch

            def __iter__(self):
                for i in range(n + more * self.epoch):
                    yield {"x": torch.full((6,), i + 100. * self.epoch), "labels": torch.zeros(1)}
        return Stream()

    def test_a_stream_that_ends_before_the_run_is_passed_again_also_after_a_resume(self):
        for n, stop in ((24, 17), (20, 7), (20, 12)):  # 20: the first and second due are at an end
            with self.subTest(n=n, stop=stop):
                self.store = self.folder / f"whole{n}-{stop}"
                whole = self.seen(self.stream(n))
                self.assertEqual(len(whole), 20)
                self.assertEqual(whole[n // 4][0], 100)  # the second pass
                self.store = self.folder / f"parts{n}-{stop}"
                first, second = self.seen(self.stream(n), stop), self.seen(self.stream(n))
                self.assertEqual(first[:stop // 5 * 5] + second, whole)

    def test_a_stream_that_grows_is_not_cut_by_the_length_of_an_earlier_pass(self):
        whole = self.seen(self.stream(12, 12))
        self.store = self.folder / "parts"
        first, second = self.seen(self.stream(12, 12), 17), self.seen(self.stream(12, 12))
        self.assertEqual(first[:15] + second, whole)

    def test_a_stream_is_not_cut_after_a_change_of_the_batch_size(self):
        self.seen(self.stream(32), 12)  # saved after 8 samples of the second pass
        self.seen(self.stream(32), 7, per_device_train_batch_size=2)
        third = self.seen(self.stream(32), per_device_train_batch_size=2)
        self.assertEqual(third[0], [118, 119])

    def test_a_resume_with_other_micro_batches_continues_at_the_same_sample(self):
        whole = sum(self.seen(self.rows(96)), [])
        self.store = self.folder / "parts"
        self.seen(self.rows(96), 7)
        larger = {"per_device_train_batch_size": 2, "micro_batches": 4}
        second = sum(self.seen(self.rows(96), 7, **larger), [])
        third = sum(self.seen(self.rows(96), **larger), [])
        self.assertEqual(second[:40], whole[20:60])
        self.assertEqual(third[:20], whole[60:80])

    def test_a_replica_that_begins_from_a_checkpoint_resumes_at_its_place(self):
        data = self.rows(24)  # six steps an epoch
        self.seen(data, 8, save_strategy="steps", save_steps=8)
        place = {"checkpoint": self.folder / "out0/checkpoint-8"}
        self.store = self.folder / "whole"
        whole = self.seen(data, **place)
        self.store = self.folder / "parts"
        first = self.seen(data, 8 + 7, **place)
        self.assertEqual(first[:5] + self.seen(data), whole)

    def test_a_resume_that_leaves_out_the_last_micro_batches_of_an_epoch_warns(self):
        self.seen(self.rows(40 * 4), 7, micro_batches=6)  # 40 batches, of which 30 are used
        with self.assertLogs("diloco", "WARNING") as log:
            self.seen(self.rows(40 * 4), 1, micro_batches=6)
        self.assertRegex(log.output[0], "last 4 batches of this epoch are left out: Trainer takes no "
                                        "step of fewer than 6 batches in an")

    def rows(self, n):
        return [{"x": a, "labels": b} for a, b in zip(*samples(0, n))]

    def test_a_resume_with_another_batch_continues_at_the_same_sample_or_is_refused(self):
        def flat(batches):
            return [x for batch in batches for x in batch]
        self.seen(self.rows(64), 7)
        for size, why in ((6, "20 samples.*batches of 6.*per_device_train_batch_size"),):
            with self.assertRaisesRegex(diloco.RefusedError, why):
                self.seen(self.rows(64), per_device_train_batch_size=size)
        small = flat(self.seen(self.rows(64), per_device_train_batch_size=2))
        self.store = self.folder / "whole"
        whole = flat(self.seen(self.rows(64)))
        self.assertEqual(small, whole[20:20 + 2 * 15])

    def test_a_resume_on_data_of_another_length_warns(self):
        self.seen(self.rows(64), 7)
        with self.assertLogs("diloco", "WARNING") as log:
            self.seen(self.rows(60))
        self.assertRegex(log.output[0], "data has 60 samples and had 64 .*twice or not at all")

    def test_a_step_that_the_scaler_skips_has_used_its_batches(self):
        skipped = []

        def skips_first(callback, args, state, control, **others):
            with mock.patch.object(accelerate.optimizer.AcceleratedOptimizer, "step_was_skipped",
                                   state.global_step == 1):
                skipped.append(callback._optimizer.step_was_skipped)
                return on_step_end(callback, args, state, control, **others)
        on_step_end = huggingface.DiLoCoCallback.on_step_end
        with mock.patch.object(huggingface.DiLoCoCallback, "on_step_end", skips_first):
            first = self.seen(self.rows(64), 7)
        self.assertEqual(skipped, [True] + [False] * 6)
        second = self.seen(self.rows(64))
        self.store = self.folder / "whole"
        whole = self.seen(self.rows(64))
        self.assertEqual((first[:6] + second)[:20], whole[:20])  # the due point after 6 batches


@unittest.skipUnless(accelerate, "no accelerate")
class Accelerate(InScratch):
    def setUp(self):
        super().setUp()
        self.addCleanup(accelerate.state.GradientState._reset_state)
        self.addCleanup(accelerate.state.AcceleratorState._reset_state, True)
        self.accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3)

    def bound(self, model, inner, **more):
        opt = diloco.DiLoCoOptimizer(model, inner, self.store, options=OPTIONS, sync_every=2,
                                     rounds=2, **more)
        self.addCleanup(opt.close)
        return opt

    def train(self, model, opt, loader):
        """accelerate's own loop; the number of batches."""
        for n, (x, y) in enumerate(loader):
            if getattr(opt, "done", False):
                return n
            with self.accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(x), y)
                self.accelerator.backward(loss)
                if hasattr(opt, "report"):
                    opt.report(loss, samples=len(x))
                opt.step()
                opt.zero_grad()
        return n + 1

    def parts(self):
        torch.manual_seed(1)
        model = torch.nn.Linear(6, 1)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*samples(0, 48)),
                                             batch_size=4)
        return model, torch.optim.SGD(model.parameters(), lr=.05), loader

    def test_accumulated_batches_are_one_step(self):
        model, inner, loader = self.accelerator.prepare(*self.parts())
        schedule = torch.optim.lr_scheduler.StepLR(inner.optimizer, 2)
        opt = self.bound(model, inner, scheduler=schedule)
        self.assertEqual(self.train(model, opt, loader), 12)
        self.assertTrue(opt.done)
        self.assertEqual((opt.run.now.step, schedule.last_epoch), (4, 4))
        rows = diloco.run(self.store).history()
        self.assertEqual([r["samples"] for r in rows], [2 * 3 * 4] * 2)
        twin, plain, loader = self.accelerator.prepare(*self.parts())
        losses = []
        for x, y in [*loader][:6]:  # before the first exchange: the plain loop's steps
            losses.append(torch.nn.functional.mse_loss(twin(x), y).item())
            (torch.nn.functional.mse_loss(twin(x), y) / 3).backward()
            if len(losses) == 3:
                plain.optimizer.step()
                plain.optimizer.zero_grad()
        self.assertAlmostEqual(rows[0]["loss"], sum(losses) / 6, places=5)

    def test_the_losses_of_micro_batches_may_share_a_buffer(self):
        model, inner, _ = self.parts()
        opt = self.bound(model, self.accelerator.prepare(inner))
        buffer = torch.zeros((), dtype=torch.float16)  # as a CUDA graph writes each loss
        for loss in (1, 2, 6) * 2:
            with self.accelerator.accumulate(model):
                self.accelerator.backward(model(samples(0, 4)[0]).sum())
                buffer.fill_(loss)
                opt.report(buffer, samples=4)
                opt.step()
                opt.zero_grad()
        row, = diloco.run(self.store).history()
        self.assertEqual((row["samples"], row["loss"]), (24, 3))

    def test_an_optimizer_that_was_not_prepared_is_refused_at_the_first_of_them(self):
        model, inner, loader = self.parts()
        model, loader = self.accelerator.prepare(model, loader)
        before = [p.detach().clone() for p in model.parameters()]
        with self.assertRaisesRegex(diloco.InvalidError, "the SGD would take a step at each: make "
                                                         "the optimizer from the one that"):
            self.train(model, self.bound(model, inner), loader)
        for a, b in zip(before, model.parameters()):
            self.assertTrue(torch.equal(a, b))

    def test_an_accumulation_that_ended_before_does_not_refuse_a_plain_loop(self):
        state = accelerate.state.GradientState()
        state._set_sync_gradients(False)  # as an interrupt of Trainer leaves it
        model, inner, _ = self.parts()
        opt = self.bound(model, inner)
        opt.step()
        opt.step()
        state._set_sync_gradients(True)
        opt.step()
        state._set_sync_gradients(False)
        with self.assertRaisesRegex(diloco.InvalidError, "the SGD would take a step at each"):
            opt.step()
        self.assertEqual(opt.run.now.step, 3)

    def test_a_step_that_the_scaler_skips_does_not_count(self):
        model, inner, _ = self.parts()
        scaler = torch.amp.GradScaler("cpu", init_scale=4)
        opt = self.bound(model, accelerate.optimizer.AcceleratedOptimizer(
            inner, device_placement=False, scaler=scaler))
        for factor in (1, float("inf"), 1):
            x, y = samples(0, 4)
            scaler.scale(torch.nn.functional.mse_loss(model(x), y) * factor).backward()
            opt.step()
            opt.zero_grad()
        self.assertEqual(opt.run.now.step, 2)

    def test_the_context_manager_counts_the_steps_of_a_prepared_optimizer(self):
        model, inner, loader = self.accelerator.prepare(*self.parts())
        with diloco.DiLoCo(self.store, [model], inner, sync_every=2, rounds=2) as sync:
            self.assertEqual(self.train(model, inner, loader), 12)
            self.assertTrue(sync.done)


@unittest.skipUnless(lightning, "no lightning")
class Lightning(InScratch):
    def fit(self, model, replica, micro_batches=2):
        data = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(*samples(replica)), batch_size=4)
        callback = diloco.lightning.DiLoCoCallback(
            self.store, f"r{replica}", options=OPTIONS, replicas=2, sync_every=3, rounds=2)
        trainer = lightning.Trainer(
            max_epochs=100, max_steps=-1, accelerator="cpu", callbacks=[callback], logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            accumulate_grad_batches=micro_batches, default_root_dir=self.folder)
        trainer.fit(model, data)
        return trainer

    def module(self):
        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(6, 1)

            def training_step(self, batch, _index):
                return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters(), lr=.05)
        return Module()

    def test_two_trainers_end_with_one_model(self):
        models = [self.module(), self.module()]
        in_threads(*[lambda r=r: self.fit(models[r], r) for r in range(2)])
        self.check_ends(models, 2, 3 * 8 * 2)
        self.assertGreater(diloco.run(self.store).history()[0]["loss"], 0)

    def test_a_resume_goes_on_after_the_batches_that_were_used(self):
        """Shuffled data, dropout, two and a half epochs: the same batches, the same model."""
        class Stop(lightning.pytorch.callbacks.Callback):
            def __init__(self, step):
                self.step = step

            def on_train_batch_end(self, trainer, *_others):
                if trainer.global_step == self.step:
                    trainer.should_stop = True

        def life(store, stop=None):
            torch.manual_seed(3)
            model = self.module()
            model.drop, model.seen = torch.nn.Dropout(.2), []

            def training_step(batch, batch_idx):
                model.seen.append(batch[0][:, 0].tolist())
                return torch.nn.functional.mse_loss(model.layer(model.drop(batch[0])), batch[1])
            model.training_step = training_step
            data = torch.utils.data.DataLoader(
                torch.utils.data.TensorDataset(*samples(0, 24)), batch_size=4, shuffle=True)
            callback = diloco.lightning.DiLoCoCallback(
                self.folder / store, "r0", options=OPTIONS, sync_every=due, rounds=15 // due)
            trainer = lightning.Trainer(
                max_epochs=100, accelerator="cpu", callbacks=[callback, Stop(stop)], logger=False,
                enable_checkpointing=False, enable_progress_bar=False,
                enable_model_summary=False, default_root_dir=self.folder)
            trainer.fit(model, data)
            return model
        for due, stop in ((5, 12), (3, 7)):  # saved within an epoch, and at its end
            with self.subTest(sync_every=due):
                whole = life(f"whole{due}")
                first, second = life(f"parts{due}", stop), life(f"parts{due}")
                self.assertEqual(len(whole.seen), 15)
                self.assertEqual(first.seen[:stop // due * due] + second.seen, whole.seen)
                for a, b in zip(whole.parameters(), second.parameters()):
                    self.assertTrue(torch.equal(a, b))

    def alone(self, model, others=(), data=None, **arguments):
        if data is None:
            data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*samples(0, 24)),
                                               batch_size=4)
        callback = diloco.lightning.DiLoCoCallback(self.store, "r0", options=OPTIONS, sync_every=3,
                                                   rounds=2)
        checkpoint = arguments.pop("ckpt_path", None)
        trainer = lightning.Trainer(**{
            "max_epochs": 100, "accelerator": "cpu", "logger": False,
            "callbacks": others(callback) if others else [callback],
            "enable_checkpointing": False, "enable_progress_bar": False,
            "enable_model_summary": False, "default_root_dir": self.folder, **arguments})
        trainer.fit(model, data, ckpt_path=checkpoint)
        return trainer

    def test_an_accumulation_that_the_epoch_s_end_cuts_has_the_samples_of_its_batches(self):
        self.alone(self.module(), accumulate_grad_batches=4)  # of 6 batches: 16 samples, then 8
        self.assertEqual([r["samples"] for r in diloco.run(self.store).history()], [40, 32])

    def test_a_training_that_an_exception_ended_begins_again_in_this_process(self):
        model, kept = self.module(), []
        right, taken = model.training_step, []

        def breaks(batch, batch_idx):
            taken.append(batch_idx)
            if len(taken) == 5:
                raise KeyError("a user's own")
            return right(batch, batch_idx)
        model.training_step = breaks
        with self.assertRaises(KeyError) as kept:
            self.alone(model)
        self.assertIsNotNone(kept.exception)
        self.alone(model)
        self.assertEqual(len(taken), 5 + 3)
        self.assertTrue(diloco.run(self.store).status()["done"])

    def test_a_training_that_ends_before_the_run_warns_and_its_checkpoint_is_not_resumed(self):
        with self.assertLogs("diloco", "WARNING") as log:
            ended = self.alone(self.module(), max_steps=4)
        self.assertRegex(log.output[0], "ended after 4 of the run's 6 steps, so the model is this")
        ended.save_checkpoint(self.folder / "four.ckpt")
        with self.assertRaisesRegex(diloco.RefusedError, "begins after 4 steps: make a new Trainer"):
            self.alone(self.module(), ckpt_path=self.folder / "four.ckpt")
        self.alone(self.module())
        self.assertTrue(diloco.run(self.store).status()["done"])

    def test_a_callback_that_averages_weights_is_refused_in_either_order(self):
        callbacks = lightning.pytorch.callbacks
        makes = [lambda: callbacks.StochasticWeightAveraging(.01)]
        makes += [getattr(callbacks, name) for name in ("WeightAveraging", "EMAWeightAveraging")
                  if hasattr(callbacks, name)]
        for make in makes:
            average = make()
            for others in (lambda ours: [ours, average], lambda ours: [average, ours]):  # noqa: B023
                with self.assertRaisesRegex(
                        diloco.RefusedError,
                        f"{type(average).__name__} would write an average .*AveragedModel"):
                    self.alone(self.module(), others)
        self.assertFalse(self.store.exists())

    def test_a_stream_that_ends_before_the_run_is_passed_again_also_after_a_resume(self):
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                x, y = samples(0, 12)
                return iter(zip(x, y))

        def seen(stop=-1):
            model, batches = self.module(), []
            right = model.training_step

            def training_step(batch, batch_idx):
                batches.append(batch[0][:, 0].tolist())
                return right(batch, batch_idx)
            model.training_step = training_step
            self.alone(model, data=torch.utils.data.DataLoader(Stream(), batch_size=4),
                       max_steps=stop)
            return batches
        whole = seen()
        self.assertEqual(whole[:3], whole[3:])
        self.store = self.folder / "parts"
        self.assertEqual(seen(4)[:3] + seen(), whole)  # saved at the end of a pass

    def test_a_resume_with_other_batches_is_refused(self):
        halves = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*samples(0, 24)),
                                             batch_size=2)
        self.alone(self.module(), max_steps=4)
        with self.assertRaisesRegex(diloco.RefusedError,
                                    "used 3 batches of 12 samples in this epoch, and the data loader "
                                    "has 3 of 6 samples there: give it the data"):
            self.alone(self.module(), data=halves)
        self.alone(self.module())
        self.assertTrue(diloco.run(self.store).status()["done"])

    def test_a_resume_counts_batches_alone_where_a_hook_changes_their_rows(self):
        def doubled(batch, dataloader_idx):
            return [torch.cat([t, t]) for t in batch]
        for hook in ("on_before_batch_transfer", "on_after_batch_transfer"):
            with self.subTest(hook):
                self.store = self.folder / hook
                for stop in (4, -1):
                    model = self.module()
                    setattr(model, hook, doubled)
                    self.alone(model, max_steps=stop)
                self.assertTrue(diloco.run(self.store).status()["done"])

    def test_rank_0_alone_compares_its_batches_with_the_saved_ones(self):
        class Loop:
            max_batches, _combined_loader = 9, mock.Mock(flattened=[])

            def __init__(self, rows):
                self._data_fetcher = iter([(torch.zeros(n, 1), 0, 0) for n in rows])

        class Other:
            """A rank other than 0, without an error of another rank."""
            def together(self, call):
                return call()

            def lead(self, call):
                return None
        for island, rows, is_refused in ((diloco._island.Island(), (4, 4), False),
                                         (diloco._island.Island(), (4, 3), True),
                                         (Other(), (4, 3), False)):
            place = diloco.lightning.Position()
            place.load_state_dict({**place.state_dict(), "batches": 2, "samples": 8})
            trainer = mock.Mock(fit_loop=Loop(rows), lightning_module=self.module(), datamodule=None)
            with contextlib.ExitStack() as stack:
                if is_refused:
                    stack.enter_context(self.assertRaisesRegex(diloco.RefusedError, "has 2 of 7 s"))
                place.begin(trainer, True, island)

    def test_several_optimizers_are_refused(self):
        model = self.module()
        model.automatic_optimization = False
        one = torch.optim.SGD(model.parameters(), lr=1)
        model.configure_optimizers = lambda: [one, torch.optim.SGD(model.parameters(), lr=1)]
        with self.assertRaisesRegex(diloco.RefusedError, "2 optimizers"):
            self.fit(model, 0, micro_batches=1)


if __name__ == "__main__":
    unittest.main()
