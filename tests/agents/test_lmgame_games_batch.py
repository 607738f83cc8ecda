"""Batches play exactly what single games play."""

from __future__ import annotations

import numpy as np
import pytest

from assay.agents.lmgame.games import tetris as t
from assay.agents.lmgame.games.candy_crush import CandyCrush
from assay.agents.lmgame.games.compiled import Batch2048, BatchTetris
from assay.agents.lmgame.games.compiled_candy import BatchCandy
from assay.agents.lmgame.games.tetris import Tetris
from assay.agents.lmgame.games.twenty_forty_eight import ACTIONS, TwentyFortyEight
from assay.core.errors import UsageError


def generators(n: int) -> list[np.random.Generator]:
    return [np.random.default_rng([9, i]) for i in range(n)]


def test_batched_2048_equals_single_games_to_the_end():
    n = 16
    batch, singles = Batch2048(n), [TwentyFortyEight() for _ in range(n)]
    batch.reset(generators(n))
    for single, rng in zip(singles, generators(n)):
        single.reset(rng)
    policy, over = np.random.default_rng(0), np.zeros(n, bool)
    steps = 0
    while not over.all():
        actions = policy.integers(4, size=n)
        gains, legal = batch.step(actions)
        for i, single in enumerate(singles):
            if over[i]:
                assert (gains[i], legal[i]) == (0, False)
                continue
            before = single.board
            played = single.play(ACTIONS[actions[i]])
            assert (gains[i], legal[i]) == (played.reward, single.board != before)
            over[i] = played.ended
        assert batch.boards.tolist() == [single.board for single in singles]
        assert batch.totals.tolist() == [single.total for single in singles]
        assert batch.over.tolist() == over.tolist()
        steps += 1
    assert steps > 100
    powers = np.where(batch.powers() > 0, 1 << batch.powers().astype(np.int64), 0)
    assert (powers == np.stack([single.tiles for single in singles])).all()


@pytest.mark.parametrize("width", [10, 5])
def test_batched_tetris_equals_single_games_to_the_end(width):
    n = 12
    batch, singles = BatchTetris(n, width), [Tetris(width) for _ in range(n)]
    batch.reset(generators(n))
    for single, rng in zip(singles, generators(n)):
        single.reset(rng)
    policy = np.random.default_rng(0)
    while not batch.over.all():
        actions = policy.integers(7, size=n)
        over = batch.over.copy()
        gains = batch.step(actions)
        for i, single in enumerate(singles):
            assert gains[i] == (0 if over[i] else single.frame(int(actions[i])))
        assert batch.boards.tolist() == [single.rows for single in singles]
        assert batch.over.tolist() == [single.over for single in singles]
        assert batch.games[:, 0].tolist() == [single.kind for single in singles]
        for i, single in enumerate(singles):
            if not single.over:
                cells = np.array([[cell != "." for cell in line] for line in single.board()])
                assert ((batch.observe()[i] > 0) == cells).all()
    assert batch.scores.tolist() == [single.score for single in singles]
    assert t.SHOWN == 4


@pytest.mark.parametrize(("rows", "columns", "colours"), [(8, 8, 4), (4, 5, 5)])
def test_batched_candy_crush_equals_single_games_to_the_end(rows, columns, colours):
    n = 10
    batch, singles = BatchCandy(n, rows, columns, colours), [CandyCrush(rows, columns, colours) for _ in range(n)]
    batch.reset(generators(n))
    for single, rng in zip(singles, generators(n)):
        single.reset(rng)
    policy = np.random.default_rng(0)
    while not batch.over.all():
        effective = [single.effective_actions() for single in singles]
        assert [np.flatnonzero(row).tolist() for row in batch.effective()] == effective
        actions = [
            int(policy.choice(choice)) if i % 2 else int(policy.integers(batch.actions))
            for i, choice in enumerate(effective)
        ]
        gains = batch.step(np.array(actions))
        played = [single.play(action) for single, action in zip(singles, actions)]
        assert gains.tolist() == [one.reward for one in played]
        assert batch.over.tolist() == [one.ended for one in played]
        assert batch.boards.tolist() == [single.board.cells() for single in singles]
    assert batch.totals.tolist() == [single.total for single in singles]
    if rows == 4:
        assert sum(single.shuffles for single in singles) > 0


def test_restart_begins_only_the_games_asked_for():
    batch = Batch2048(3)
    batch.reset(generators(3))
    before = batch.boards.copy()
    batch.restart(np.array([False, True, False]))
    assert (batch.boards == before).tolist() == [True, False, True]
    with pytest.raises(UsageError, match="at least 1"):
        BatchTetris(0)


def test_random_play_of_2048_scores_what_the_sheet_measured():
    n = 2000
    batch = Batch2048(n)
    batch.reset([np.random.default_rng([1, i]) for i in range(n)])
    policy = np.random.default_rng(0)
    while not batch.over.all():
        batch.step(policy.integers(4, size=n))
    # Published random player: 10*log2 of the score is 100.4 +- 7.8 over runs.
    logged = 10 * np.log2(batch.totals)
    assert abs(logged.mean() - 100.4) < 2
    assert abs(logged.std() - 7.8) < 2
