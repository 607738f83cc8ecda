"""The subclass of transformers' Trainer under the real one, on a tiny random model."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from assay.core.errors import UsageError
from assay.training import xsam as room

pytest.importorskip("accelerate", reason="accelerate, which transformers' Trainer needs, is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

STEPS_AN_EPOCH = 4


def train(folder, *, resume=None, optimiser="xsam", own=None, ascent_steps=1, epochs=2, **arguments):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=17, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.1,
    )  # fmt: skip
    net = transformers.GPT2LMHeadModel(config)
    rows = torch.randint(0, 17, (STEPS_AN_EPOCH * 4, 8), generator=torch.Generator().manual_seed(1))
    opt = room.make_optimiser(
        optimiser, net.parameters(), torch.optim.SGD, model=net, lr=0.1, momentum=0.9, **(own or {}),
        **({} if ascent_steps == 1 else {"ascent_steps": ascent_steps}),
    )  # fmt: skip
    given = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=4, num_train_epochs=epochs, use_cpu=True, seed=0,
        report_to=[], disable_tqdm=True, logging_steps=1, **{"save_strategy": "no", "max_grad_norm": 0.0, **arguments},
    )  # fmt: skip

    class Noting(room.sharpness_aware_trainer(transformers.Trainer)):
        noted: ClassVar[list] = []

        def training_step(self, model, inputs, num_items_in_batch=None):
            self.noted.append((inputs["input_ids"].clone(), num_items_in_batch, torch.get_rng_state()))
            return super().training_step(model, inputs, num_items_in_batch)

    trainer = Noting(
        model=net,
        args=given,
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        optimizers=(opt, torch.optim.lr_scheduler.ConstantLR(opt, 1.0)),
    )
    trainer.train(resume_from_checkpoint=resume)
    return net, opt, trainer


def vector(net):
    return torch.nn.utils.parameters_to_vector(net.parameters()).detach()


@pytest.mark.parametrize("ascent_steps", [1, 2])
def test_the_real_trainer_takes_the_steps_of_a_plain_loop(tmp_path, ascent_steps):
    net, opt, trainer = train(tmp_path, ascent_steps=ascent_steps)
    assert [row["step"] for row in opt.alpha_history_] == [0, STEPS_AN_EPOCH]
    assert opt.steps == trainer.state.global_step == 2 * STEPS_AN_EPOCH

    # The same batches with the same dropout, by hand.
    torch.manual_seed(0)
    plain = transformers.GPT2LMHeadModel(net.config)
    plain.train()
    by_hand = room.XSAM(
        plain.parameters(), torch.optim.SGD, model=plain, lr=0.1, momentum=0.9, ascent_steps=ascent_steps
    )
    for step, (ids, items, noise) in enumerate(trainer.noted):
        if step % STEPS_AN_EPOCH == 0:
            by_hand.new_epoch()
        torch.set_rng_state(noise)

        def forward(ids=ids, items=items):
            return plain(input_ids=ids, labels=ids, num_items_in_batch=items).loss

        def closure(forward=forward):
            by_hand.zero_grad()
            loss = forward()
            loss.backward()
            return loss

        by_hand.step(closure, forward)
    assert [row["alpha"] for row in by_hand.alpha_history_] == [row["alpha"] for row in opt.alpha_history_]
    torch.testing.assert_close(vector(net), vector(plain))


def test_a_training_broken_off_within_an_epoch_goes_on_as_if_it_had_not_been(tmp_path):
    whole, opt, _ = train(tmp_path / "whole", save_strategy="steps", save_steps=6)
    again, resumed, _ = train(tmp_path / "again", resume=str(tmp_path / "whole" / "checkpoint-6"))
    assert resumed.alpha_history_ == opt.alpha_history_
    torch.testing.assert_close(vector(again), vector(whole), atol=0, rtol=0)


@pytest.mark.parametrize(("optimiser", "own"), [("sam", {}), ("msam", {}), ("esam", {"gamma": 1.0}), ("looksam", {})])
def test_relatives_train_under_it_with_clipping_and_bfloat16(tmp_path, optimiser, own):
    net, opt, trainer = train(tmp_path, optimiser=optimiser, own=own, epochs=4, max_grad_norm=1.0, bf16=True)
    assert opt.steps == 4 * STEPS_AN_EPOCH
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert sum(losses[-4:]) < sum(losses[:4])
    assert torch.isfinite(vector(net)).all()


def test_other_optimisers_are_left_to_the_trainer_and_what_cannot_be_led_is_refused(tmp_path):
    _, opt, trainer = train(tmp_path, optimiser="base", epochs=1)
    assert isinstance(opt, torch.optim.SGD)
    assert trainer.state.global_step == STEPS_AN_EPOCH
    with pytest.raises(UsageError, match="accumulation"):
        train(tmp_path, gradient_accumulation_steps=2)
    with pytest.raises(UsageError, match="gamma=1"):
        train(tmp_path, optimiser="esam")
