"""The trainer: seeds, best weights, early stopping, resuming, what it refuses."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from assay.core.errors import DataError, UsageError  # noqa: E402
from assay.nn import MLP, Best, LeNet, batches, forward, seeded, train  # noqa: E402


def setup(seed=0, n=64, d=3):
    with seeded(seed) as generator:
        x = torch.randn(n, d)
        y = (x @ torch.tensor([1.0, -2.0, 0.5]))[:, None] + 0.1
        net = MLP(d, (8,), 1, dropout=0.2)
        optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    return net, optimiser, generator, (x, y)


def square(net):
    return lambda x, y: ((net(x) - y) ** 2).mean()


def weights(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def test_batches_are_a_permutation_in_pieces():
    found = list(batches(10, 4, torch.Generator().manual_seed(0)))
    assert [len(b) for b in found] == [4, 4, 2]
    assert sorted(torch.cat(found).tolist()) == list(range(10))
    assert torch.cat(list(batches(10, 4))).tolist() == list(range(10))
    assert [len(b) for b in batches(10, 4, drop_last=True)] == [4, 4]


def test_seeded_repeats_and_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with seeded(7) as a:
        first = torch.rand(3), torch.rand(3, generator=a)
    with seeded(7) as b:
        second = torch.rand(3), torch.rand(3, generator=b)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert torch.equal(before, torch.get_rng_state())


def test_training_lowers_the_loss_and_repeats_exactly():
    found = []
    for _ in range(2):
        net, optimiser, generator, data = setup()
        with seeded(1):
            history = train(net, square(net), data, epochs=30, batch_size=16, optimiser=optimiser, generator=generator)
        found.append(weights(net))
        assert history.rows[-1]["loss"] < history.rows[0]["loss"] / 2
        assert history.best_epoch == 30
        assert not net.training
    assert torch.equal(found[0], found[1])


def test_best_weights_are_a_copy_and_come_back():
    net, optimiser, generator, data = setup()
    values = iter([0.1, 0.9, 0.5, 0.4, 0.3, 0.2])
    seen = []

    def validate():
        seen.append(weights(net).clone())
        return {"value": next(values), "extra": 1.0}

    history = train(
        net, square(net), data, epochs=6, batch_size=16, optimiser=optimiser, generator=generator, validate=validate,
        patience=3,
    )  # fmt: skip
    assert history.stopped_early
    assert len(history.rows) == 5
    assert (history.best_epoch, history.best_value) == (2, 0.9)
    assert torch.equal(weights(net), seen[1])
    assert history.rows[0]["extra"] == 1.0


def test_min_delta_and_nan_are_no_progress():
    net = MLP(2, (), 1)
    best = Best(net, patience=2, min_delta=0.1, higher_is_better=False)
    assert not best.offer(1.0, 1)
    assert not best.offer(0.95, 2)
    assert best.offer(math.nan, 3)
    assert (best.value, best.epoch) == (1.0, 1)


def test_a_resumed_training_equals_an_unbroken_one(tmp_path):
    net, optimiser, generator, data = setup()
    kinds = {"epochs": 6, "batch_size": 16}
    with seeded(2):
        whole = train(net, square(net), data, optimiser=optimiser, generator=generator, **kinds)
    expected = weights(net)
    net, optimiser, generator, data = setup()
    path = tmp_path / "state.pt"
    with seeded(2):
        train(
            net, square(net), data, epochs=3, batch_size=16, optimiser=optimiser, generator=generator, checkpoint=path
        )
    net, optimiser, generator, data = setup(seed=9)[:3] + (data,)
    history = train(net, square(net), data, optimiser=optimiser, generator=generator, checkpoint=path, **kinds)
    assert torch.equal(weights(net), expected)
    assert [r["loss"] for r in history.rows] == [r["loss"] for r in whole.rows]


def test_a_checkpoint_of_another_net_is_refused(tmp_path):
    net, optimiser, generator, data = setup()
    path = tmp_path / "state.pt"
    arguments = {"epochs": 1, "batch_size": 16, "checkpoint": path}
    train(net, square(net), data, optimiser=optimiser, generator=generator, **arguments)
    other = MLP(3, (9,), 1)
    with pytest.raises(DataError, match="does not fit"):
        train(
            other, square(other), data, optimiser=torch.optim.Adam(other.parameters()), generator=generator, **arguments
        )


def test_skipped_batches_are_counted():
    net, optimiser, generator, data = setup()
    history = train(net, lambda x, y: None, data, epochs=1, batch_size=16, optimiser=optimiser, generator=generator)
    assert history.rows[0]["skipped"] == 4
    assert history.rows[0]["loss"] is None


def test_bad_input_is_refused_with_a_sentence():
    net, optimiser, generator, (x, y) = setup()
    rest = {"batch_size": 16, "optimiser": optimiser, "generator": generator}
    with pytest.raises(DataError, match="epoch 1"):
        train(net, lambda x, y: net(x).mean() * math.nan, (x, y), epochs=1, **rest)
    with pytest.raises(DataError, match="one length"):
        train(net, square(net), (x, y[:5]), epochs=1, **rest)
    with pytest.raises(UsageError, match="validate"):
        train(net, square(net), (x, y), epochs=1, patience=2, **rest)
    with pytest.raises(UsageError, match="dropout rates"):
        MLP(2, (3, 3), dropout=(0.1,))


def test_lenet_has_the_published_shape_and_forward_restores_the_mode():
    net = LeNet()
    assert sum(p.numel() for p in net.parameters()) == 260 + 5020 + 16050 + 51
    net.train()
    assert forward(net, torch.zeros(5, 1, 28, 28), batch_size=2).shape == (5, 1)
    assert net.training
