"""XSAM where people use it: batch normalisation, dropout, precision, accumulation, clipping, processes, compile."""

# Closures are called within their turn of the loop.
# ruff: noqa: B023

from __future__ import annotations

import contextlib
import math
import re
import socket
from pathlib import Path

import pytest
import torch
from torch import nn

from assay.core.errors import UsageError
from assay.training import xsam as room

# What a plain closure needs beside the name.
OWN = {"esam": {"gamma": 1.0}, "msam": {"momentum": 0.9}}
BASES = [torch.optim.SGD, torch.optim.AdamW]


def made(seed: int = 0, *middle: nn.Module, dtype=torch.float64):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 8), *middle, nn.Tanh(), nn.Linear(8, 3)).to(dtype)
    return net, torch.randn(16, 6, dtype=dtype), torch.randint(0, 3, (16,))


def closures(opt, net, x, y):
    def forward():
        return nn.functional.cross_entropy(net(x), y)

    def closure():
        opt.zero_grad()
        loss = forward()
        loss.backward()
        return loss

    return closure, forward


def vector(net):
    return nn.utils.parameters_to_vector(net.parameters()).detach().clone()


# -- what passes must not change ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("name", list(room.OPTIMISERS))
def test_running_statistics_are_those_of_one_pass(name, momentum):
    norm = nn.BatchNorm1d(8, momentum=momentum)
    net, x, y = made(0, norm)
    opt = room.make_optimiser(name, net.parameters(), lr=0.1, model=net, **OWN.get(name, {}))
    alone, _, _ = made(0, nn.BatchNorm1d(8, momentum=momentum))
    alone(x)
    opt.step(*closures(opt, net, x, y))
    torch.testing.assert_close(norm.running_mean, alone[1].running_mean)
    torch.testing.assert_close(norm.running_var, alone[1].running_var)
    assert int(norm.num_batches_tracked) == 1
    assert norm.track_running_stats


def test_instance_and_evaluated_layers_are_left_as_they_are():
    net = nn.Sequential(nn.InstanceNorm1d(4, track_running_stats=True), nn.BatchNorm1d(4))
    net[1].eval()
    x = torch.randn(3, 4, 5)
    before = net[1](x)
    kept = net[0].running_mean.clone()
    with room.frozen_statistics(net):
        net[0](x)
        torch.testing.assert_close(net[1](x), before)
    torch.testing.assert_close(net[0].running_mean, kept)
    assert net[0].momentum == 0.1
    net[0](x)
    assert not torch.allclose(net[0].running_mean, kept)


def test_all_passes_of_an_iteration_see_the_same_dropout_and_the_next_another():
    net, x, y = made(0, nn.Dropout(0.5))
    opt = room.XSAM(net.parameters(), lr=0.1, ascent_steps=2, model=net)
    masks = []
    net[1].register_forward_hook(lambda module, inputs, output: masks.append((output == 0).clone()))
    opt.step(*closures(opt, net, x, y))
    assert len(masks) == 3 + 21
    assert all(torch.equal(m, masks[0]) for m in masks)
    opt.step(*closures(opt, net, x, y))
    assert not torch.equal(masks[24], masks[0])


def test_the_generator_ends_where_one_pass_would_have_left_it():
    net, x, y = made(0, nn.Dropout(0.5))
    opt = room.SAM(net.parameters(), lr=0.1, ascent_steps=3)
    torch.manual_seed(5)
    net(x)
    one = torch.rand(3)
    torch.manual_seed(5)
    opt.step(*closures(opt, net, x, y))
    torch.testing.assert_close(torch.rand(3), one)
    noisy = room.SAM(net.parameters(), lr=0.1, same_noise=False)
    torch.manual_seed(5)
    noisy.step(*closures(noisy, net, x, y))
    assert not torch.equal(torch.rand(3), one)


# -- precision ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(room.OPTIMISERS))
def test_a_gradient_scaler_changes_nothing_but_the_scale(name):
    found = []
    for scale in (None, 2.0**12):
        net, x, y = made()
        torch.manual_seed(0)
        opt = room.make_optimiser(name, net.parameters(), rho=0.2, **{"lr": 0.1, "momentum": 0.9, **OWN.get(name, {})})
        scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
        for _ in range(3):

            def closure():
                opt.zero_grad()
                loss = nn.functional.cross_entropy(net(x), y)
                scaler.scale(loss).backward()
                return loss

            opt.gradient(closure, lambda: nn.functional.cross_entropy(net(x), y))
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), 0.05)
            scaler.step(opt)
            scaler.update()
        found.append(vector(net))
    torch.testing.assert_close(*found, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("bad_pass", [1, 2])
@pytest.mark.parametrize("name", ["xsam", "sam", "gsam", "wsam", "friendly_sam"])
def test_an_overflow_in_any_pass_skips_the_whole_iteration(name, bad_pass):
    net, x, y = made(dtype=torch.float32)
    opt = room.make_optimiser(name, net.parameters(), lr=0.1, rho=0.2)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    home = vector(net)
    calls = []

    def closure():
        calls.append(1)
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss * (math.inf if len(calls) == bad_pass else 1.0)).backward()
        return loss

    opt.gradient(closure, lambda: nn.functional.cross_entropy(net(x), y))
    scaler.step(opt)
    scaler.update()
    torch.testing.assert_close(vector(net), home, atol=0, rtol=0)
    assert scaler.get_scale() == 4.0


def test_half_precision_norms_do_not_overflow():
    w = nn.Parameter(torch.full((300,), 0.5, dtype=torch.float16))
    opt = room.XSAM([w], lr=1e-5, rho=10.0, alpha_every=None)

    def closure():
        opt.zero_grad()
        loss = (w * 200.0).float().square().sum() / 80.0
        loss.backward()
        return loss

    opt.gradient(closure)
    assert float(w.grad.float().norm()) > 4000
    assert torch.isfinite(w.grad).all()


def test_autocast_in_the_closure_is_the_users_affair():
    net, x, y = made(dtype=torch.float32)
    opt = room.XSAM(net.parameters(), lr=0.1, rho=0.2)

    def forward():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return nn.functional.cross_entropy(net(x), y)

    def closure():
        opt.zero_grad()
        loss = forward()
        loss.backward()
        return loss

    before = float(closure().detach())
    for _ in range(20):
        opt.step(closure, forward)
    assert float(closure().detach()) < before


# -- batches in pieces, clipping, compile, memory layouts --------------------------------------------------------------


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("k", [1, 3])
def test_accumulated_micro_batches_are_one_batch(k, set_to_none):
    found = []
    for pieces in (1, 4):
        net, x, y = made()
        opt = room.XSAM(net.parameters(), lr=0.1, rho=0.2, ascent_steps=k)

        def losses():
            return [nn.functional.cross_entropy(net(a), b) / pieces for a, b in zip(x.chunk(pieces), y.chunk(pieces))]

        def closure():
            opt.zero_grad(set_to_none=set_to_none)
            total = 0.0
            for loss in losses():
                loss.backward()
                total += loss.detach()
            return total

        for _ in range(3):
            opt.step(closure, lambda: sum(losses()))
        found.append(vector(net))
    torch.testing.assert_close(*found)


def test_clipping_stands_between_gradient_and_step():
    net, x, y = made()
    opt = room.XSAM(net.parameters(), lr=0.5, rho=0.2)
    home = vector(net)
    opt.gradient(*closures(opt, net, x, y))
    nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
    opt.step()
    assert float((vector(net) - home).norm()) == pytest.approx(0.5e-3, rel=1e-3)


def test_a_compiled_network_takes_the_same_steps():
    found = []
    for compiled in (False, True):
        net, x, y = made(0, nn.BatchNorm1d(8))
        opt = room.XSAM(net.parameters(), lr=0.1, rho=0.2, model=net)
        called = torch.compile(net, backend="eager") if compiled else net
        for _ in range(3):
            opt.step(*closures(opt, called, x, y))
        found.append(vector(net))
    torch.testing.assert_close(*found)


def test_channels_last_gives_the_same_steps():
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 2)).double()
        x, y = torch.randn(5, 3, 6, 6, dtype=torch.float64), torch.randint(0, 2, (5,))
        net, x = net.to(memory_format=layout), x.to(memory_format=layout)
        opt = room.XSAM(net.parameters(), lr=0.1, rho=0.2, ascent_steps=2)
        for _ in range(2):
            opt.step(*closures(opt, net, x, y))
        found.append(torch.cat([p.detach().contiguous().view(-1) for p in net.parameters()]))
    torch.testing.assert_close(*found)


def test_on_a_gpu_the_steps_are_those_of_the_cpu():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    found = []
    for device in ("cpu", "cuda"):
        net, x, y = made(0, nn.BatchNorm1d(8))
        net, x, y = net.to(device), x.to(device), y.to(device)
        opt = room.XSAM(net.parameters(), lr=0.1, rho=0.2, ascent_steps=2, model=net)
        for _ in range(3):
            opt.step(*closures(opt, net, x, y))
        found.append(vector(net).cpu())
    torch.testing.assert_close(*found)


# -- processes ---------------------------------------------------------------------------------------------------------


def _process(rank: int, world: int, port: int, out: str, mode: str) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    net, x, y = made()
    ddp = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=mode == "views")
    opt = room.XSAM(net.parameters(), lr=0.1, momentum=0.9, rho=0.3, ascent_steps=2, alpha_every=1)
    x, y = x.chunk(world)[rank], y.chunk(world)[rank]
    for _ in range(3):
        closure, _ = closures(opt, ddp, x, y)
        if mode == "no_sync":
            with ddp.no_sync():
                opt.gradient(closure, lambda: nn.functional.cross_entropy(net(x), y))
            room.average_gradients(opt)
            opt.step()
        else:
            opt.step(closure, lambda: nn.functional.cross_entropy(net(x), y))
    torch.save({"w": vector(net), "alphas": [row["alpha"] for row in opt.alpha_history_]}, Path(out) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["plain", "views", "no_sync"])
def test_two_processes_stay_together(mode, tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(_process, (2, port, str(tmp_path), mode), nprocs=2)
    a, b = (torch.load(tmp_path / f"{r}.pt", weights_only=True) for r in range(2))
    torch.testing.assert_close(a["w"], b["w"], atol=0, rtol=0)
    assert a["alphas"] == b["alphas"]
    if mode != "no_sync":
        # Halves of equal size: the mean of both losses is the loss of all rows.
        net, x, y = made()
        opt = room.XSAM(net.parameters(), lr=0.1, momentum=0.9, rho=0.3, ascent_steps=2, alpha_every=1)
        for _ in range(3):
            opt.step(*closures(opt, net, x, y))
        torch.testing.assert_close(a["w"], vector(net))


# -- relatives beside pytorch-optimizer --------------------------------------------------------------------------------


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", ["sam", "asam", "gsam", "wsam", "wsam_decoupled", "friendly_sam", "looksam"])
def test_relatives_follow_pytorch_optimizer_for_several_steps(name, base):
    peers = pytest.importorskip("pytorch_optimizer.optimizer.sam", reason="pytorch-optimizer is not installed")
    kwargs = {"lr": 0.05, "weight_decay": 0.01}

    def start():
        # One tensor, so that LookSAM's projections tensor by tensor are those of the whole.
        torch.manual_seed(0)
        w = nn.Parameter(torch.randn(12, dtype=torch.float64))
        a = torch.randn(12, 12, dtype=torch.float64)
        noise = torch.randn(7, 12, dtype=torch.float64)
        return w, lambda i: 0.5 * w @ (a @ a.T) @ w / 12 + noise[i] @ w + w.cos().sum()

    def closure_for(opt, w, loss, i):
        def closure():
            opt.zero_grad()
            value = loss(i)
            value.backward()
            return value

        return closure

    own = {
        "sam": {}, "asam": {"eta": 0.0}, "gsam": {"gsam_alpha": 0.3}, "wsam": {"gamma": 0.8, "decouple": False},
        "wsam_decoupled": {"gamma": 0.8}, "friendly_sam": {"sigma": 0.7, "decay": 0.6}, "looksam": {"every": 3},
    }[name]  # fmt: skip
    w, loss = start()
    opt = room.make_optimiser(name.removesuffix("_decoupled"), [w], base, rho=0.1, **own, **kwargs)
    for i in range(7):
        opt.step(closure_for(opt, w, loss, i))

    v, loss = start()
    if name in ("sam", "asam"):
        peer = peers.SAM([v], base, rho=0.1, adaptive=name == "asam", **kwargs)
    elif name == "friendly_sam":
        peer = peers.FriendlySAM([v], base, rho=0.1, sigma=0.7, lmbda=0.6, **kwargs)
    elif name == "looksam":
        peer = peers.LookSAM([v], base, rho=0.1, k=3, **kwargs)
    elif name == "gsam":

        class Constant:
            def step(self):
                return 0.1

        peer = peers.GSAM([v], base([v], **kwargs), nn.Module(), Constant(), alpha=0.3)
    else:
        peer = peers.WSAM(nn.Module(), [v], base, rho=0.1, gamma=0.8, decouple=name != "wsam", **kwargs)
    for i in range(7):
        closure = closure_for(peer, v, loss, i)
        if name == "gsam":
            peer.step(torch.enable_grad()(lambda closure=closure: (None, closure().detach())))
        elif name.startswith("wsam"):
            peer.step(closure)
        else:
            closure()
            peer.step(closure)
    torch.testing.assert_close(w.detach(), v.detach(), atol=2e-6, rtol=2e-6)


def test_the_average_over_steps_is_the_mean_of_their_gradients():
    net, x, y = made()
    opt = room.SAM(net.parameters(), lr=0.1, rho=0.3, ascent_steps=3, average=True)
    seen = []

    def closure():
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        seen.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
        return loss

    opt.gradient(closure)
    found = torch.cat([p.grad.flatten() for p in net.parameters()])
    torch.testing.assert_close(found, torch.stack(seen[1:]).mean(0))


def test_gsam_takes_off_what_is_orthogonal_and_follows_the_learning_rate():
    net, x, y = made()
    opt = room.GSAM(net.parameters(), lr=0.1, rho=0.3, rho_min=0.1, gsam_alpha=0.5)
    opt.param_groups[0].update(initial_lr=0.1, lr=0.05)
    points, seen = [], []

    def closure():
        opt.zero_grad()
        points.append(vector(net))
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        seen.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
        return loss

    opt.gradient(closure)
    assert float((points[1] - points[0]).norm()) == pytest.approx(0.2)
    g0, g1 = seen
    across = g0 - (g0 @ g1) / (g1 @ g1) * g1
    found = torch.cat([p.grad.flatten() for p in net.parameters()])
    torch.testing.assert_close(found, g1 - 0.5 * across)


def test_looksam_ascends_every_few_steps_only_and_takes_closures_alone_between():
    net, x, y = made()
    opt = room.LookSAM(net.parameters(), lr=0.1, every=3)
    calls = []
    closure, _ = closures(opt, net, x, y)

    def counted():
        calls.append(opt.steps)
        return closure()

    for _ in range(6):
        opt.step(counted)
    assert calls == [0, 0, 1, 2, 3, 3, 4, 5]
    opt.step(counted)
    with pytest.raises(UsageError, match="no ascent"):
        opt.first_step()


def test_methods_of_one_step_refuse_more():
    w = nn.Parameter(torch.ones(2))
    for name in ("gsam", "wsam", "looksam", "friendly_sam", "gradient_norm_penalty", "random_sam", "esam", "msam"):
        with pytest.raises(ValueError, match="one ascent step"):
            room.make_optimiser(name, [w], lr=0.1, ascent_steps=2)
    with pytest.raises(UsageError, match="did you mean"):
        room.make_optimiser("xsan", [w], lr=0.1)


# -- other people's loops ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_lightning_trains_by_automatic_optimisation(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.x, self.y = made(0, nn.BatchNorm1d(8), dtype=torch.float32)

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            self.opt = room.XSAM(self.net.parameters(), lr=0.1, rho=0.1, model=self.net)
            return self.opt

        def train_dataloader(self):
            return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(self.x, self.y), batch_size=8)

    module = Module()
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[room.lightning_callback()], default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module)
    assert [row["step"] for row in module.opt.alpha_history_] == [0, 2, 4]
    assert int(module.net[1].num_batches_tracked) == 6


def test_the_trainer_of_transformers_is_led_through_all_passes():
    class Trainer:
        """What of transformers' Trainer a step needs."""

        def __init__(self, net, opt, steps=1):
            self.net, self.optimizer = net, opt
            self.args = type("Args", (), {"gradient_accumulation_steps": steps})
            self.state = type("State", (), {"epoch": 0.0})

        def _prepare_inputs(self, inputs):
            return inputs

        def compute_loss_context_manager(self):
            return contextlib.nullcontext()

        def compute_loss(self, model, inputs, num_items_in_batch=None):
            return nn.functional.cross_entropy(model(inputs.pop("x")), inputs.pop("y"))

        def training_step(self, model, inputs, num_items_in_batch=None):
            loss = self.compute_loss(model, self._prepare_inputs(inputs))
            loss.backward()
            return loss.detach()

    found = []
    for led in (True, False):
        net, x, y = made()
        opt = room.XSAM(net.parameters(), lr=0.1, rho=0.2, model=net)
        trainer = room.sharpness_aware_trainer(Trainer)(net, opt)
        for i in range(4):
            if led:
                trainer.state.epoch = i / 2
                trainer.training_step(net, {"x": x, "y": y})
                opt.step()
            else:
                if i % 2 == 0:
                    opt.new_epoch()
                opt.step(*closures(opt, net, x, y))
        found.append((vector(net), [row["step"] for row in opt.alpha_history_]))
    torch.testing.assert_close(found[0][0], found[1][0], atol=0, rtol=0)
    assert found[0][1] == found[1][1] == [0, 2]
    with pytest.raises(UsageError, match="accumulation"):
        room.sharpness_aware_trainer(Trainer)(net, opt, 2).training_step(net, {"x": x, "y": y})


def test_the_loop_of_the_document_runs(capsys):
    text = (Path(__file__).parents[2] / "docs" / "xsam.md").read_text(encoding="utf-8")
    loop = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert loop
    exec(loop[1], {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1", "2"]
    assert float(lines[2].split()[1]) < float(lines[0].split()[1])
