"""Prompt standardisation: variants of a prompt are rewritten until they play alike, and the spread is reported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from assay.agents.lmgame.episode import Setup, play_model
from assay.agents.lmgame.harness import Agent, Modules, Settings
from assay.agents.lmgame.prompts import SLOTS, fill, prompts_for, slots
from assay.core.errors import DataError, UsageError
from assay.systems.chat.model import ChatModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

Evaluate = Callable[[str, Sequence[int]], Awaitable[list[float]]]
"""Scores of a template on seeds, one each."""

# Sections of the shared skeleton in their order: heading, slot of the game's guide that fills it.
SECTIONS = (("Rules", "rules"), ("Reading the state", "legend"), ("Actions", "actions"))
_REPLY = "Reply with exactly two sections:\nthought: your reasoning, briefly\nmove: one action, for example {example}"


class Rewriter(Protocol):
    """Proposes other wordings of a template that keep its slots."""

    name: str

    async def propose(self, template: str, scores: Sequence[float], rng: np.random.Generator) -> list[str]:
        """New templates, given what the present one scored."""
        ...


class SkeletonRewriter:
    """Stage 1: brings a template nearer to the shared skeleton, one missing section at a time; needs no model."""

    name = "skeleton"

    def __init__(self, game: str, module: str = "base") -> None:
        from assay.agents.lmgame.prompts import GUIDES

        self.guide = vars(GUIDES[game])
        self.module = module

    async def propose(self, template: str, scores: Sequence[float], rng: np.random.Generator) -> list[str]:
        missing = [(head, slot) for head, slot in SECTIONS if f"{head}:".lower() not in template.lower()]
        found = [f"{head}: {self.guide[slot]}\n\n{template}" for head, slot in missing]
        if "\nmove:" not in template.lower():
            found.append(f"{template.rstrip()}\n\n{fill(_REPLY, self.guide)}")
        return [found[i] for i in rng.permutation(len(found))]


class ModelRewriter:
    """Stage 2: a chat model rewrites the template; wordings that lose a slot are thrown away.

    Parameters
    ----------
    model
        Any ChatModel: the optimiser model, apart from the player.
    proposals
        Wordings asked for at a time.
    """

    def __init__(self, model: ChatModel, game: str, module: str = "base", *, proposals: int = 2) -> None:
        self.model, self.game, self.module, self.proposals = model, game, module, proposals
        self.name = model.name

    async def propose(self, template: str, scores: Sequence[float], rng: np.random.Generator) -> list[str]:
        kept = ", ".join(f"{{{slot}}}" for slot in sorted(slots(template)))
        told = (
            f"This prompt asks a model for its next move in {self.game}. Its mean score over {len(scores)} episodes is "
            f"{np.mean(scores):.4g}.\n\nWrite it anew so that a model understands the rules, the state, the actions "
            f"and the reply format better. Keep every placeholder exactly as it is ({kept}) and ask for a reply of the "
            "two sections `thought:` and `move:`. Write only the new prompt.\n\n---\n" + template
        )
        found = []
        for _ in range(self.proposals):
            reply = await self.model.generate([{"role": "user", "content": told}], seed=int(rng.integers(2**31)))
            text = reply.text.strip()
            if all(slot in slots(text) for slot in slots(template)) and text != template:
                found.append(text)
        return found


@dataclass(frozen=True)
class Variant:
    """A prompt before and after, with its scores on the final seeds, which the search did not see."""

    name: str
    before: str
    after: str
    scores_before: list[float]
    scores_after: list[float]
    steps: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Optimised:
    """All variants, and the spread between them before and after.

    Attributes
    ----------
    std_before, std_after
        Standard deviation of the variants' mean scores: what the paper reports.
    true_before, true_after
        The same without what the luck of the final seeds adds (see `spread`).
    low, high
        95 % interval of `reduction`, from a bootstrap over the final seeds.
    mean_before, mean_after
        Mean score over variants and seeds.
    episodes
        Played by the search; the final comparison is not counted.
    """

    variants: list[Variant]
    std_before: float
    std_after: float
    true_before: float
    true_after: float
    low: float
    high: float
    mean_before: float
    mean_after: float
    episodes: int

    @property
    def reduction(self) -> float:
        """``1 - std_after / std_before``; NaN where the variants did not differ before."""
        return 1 - self.std_after / self.std_before if self.std_before > 0 else float("nan")

    @property
    def best(self) -> Variant:
        """The variant with the best mean score after."""
        return max(self.variants, key=lambda v: float(np.mean(v.scores_after)))


def spread(scores: NDArray[np.float64]) -> tuple[float, float]:
    """Spread between variants that played the same seeds.

    Parameters
    ----------
    scores
        (variants, seeds).

    Returns
    -------
    (float, float)
        Standard deviation of the variants' means, and what is left of it without the luck of the seeds: the variance
        component of the variants in a two-way layout without repetition, 0 where it comes out negative. NaN for one
        seed.
    """
    variants, seeds = scores.shape
    means = scores.mean(axis=1)
    if seeds < 2:
        return float(means.std(ddof=1)), float("nan")
    rest = scores - means[:, None] - scores.mean(axis=0) + scores.mean()
    luck = (rest**2).sum() / ((variants - 1) * (seeds - 1)) / seeds
    return float(means.std(ddof=1)), float(np.sqrt(max(0.0, means.var(ddof=1) - luck)))


def _reduction_interval(
    before: NDArray[np.float64], after: NDArray[np.float64], rng: np.random.Generator, resamples: int = 2000
) -> tuple[float, float]:
    """95 % percentile interval of ``1 - std after / std before`` over resampled seeds; NaN where it has no value."""
    draws = rng.integers(before.shape[1], size=(resamples, before.shape[1]))
    was, is_now = (scores[:, draws].mean(axis=2).std(axis=0, ddof=1) for scores in (before, after))
    if not was.all():
        return float("nan"), float("nan")
    low, high = np.quantile(1 - is_now / was, [0.025, 0.975])
    return float(low), float(high)


def seed_variants(game: str) -> dict[str, str]:
    """Six ways in which people write the base prompt of a game: from everything said to hardly anything."""
    guide = prompts_for(game).template["base"]
    from assay.agents.lmgame.prompts import GUIDES

    values = vars(GUIDES[game])
    state = "{context}State:\n{textual_representation}"
    reply = fill(_REPLY, values)
    rules, legend, actions = (f"{head}: {values[slot]}" for head, slot in SECTIONS)
    return {
        "standard": guide,
        "no rules": "\n\n".join((legend, actions, state, reply)),
        "no legend": "\n\n".join((rules, actions, state, reply)),
        "no format": "\n\n".join((rules, legend, actions, state, "What do you do?")),
        "terse": "\n\n".join((actions, state, reply)),
        "bare": "\n\n".join((state, "Next move? Answer with thought and move.")),
        "talkative": "\n\n".join(
            ("Let us play together! Here is what you must know.", rules, state, "Your turn, friend.")
        ),
    }


def evaluator(
    game: str,
    model: ChatModel,
    *,
    modules: Modules | None = None,
    module: str = "base",
    settings: Settings | None = None,
    max_steps: int | None = None,
) -> Evaluate:
    """Scores of a template by playing: reported scores, one episode a seed."""

    async def evaluate(template: str, seeds: Sequence[int]) -> list[float]:
        prompts = prompts_for(game).with_template(module, template)
        found = []
        for seed in seeds:
            agent = Agent(model, modules or Modules(), prompts, settings, seed=seed)
            found.append((await play_model(Setup(game, "text", max_steps, seed=seed), agent)).reported)
        return found

    return evaluate


async def optimise(
    variants: dict[str, str],
    evaluate: Evaluate,
    rewriters: Sequence[Rewriter],
    *,
    module: str = "base",
    rounds: int = 4,
    candidates: int = 3,
    batch: int = 4,
    final: int = 10,
    budget: int | None = None,
    seed: int = 0,
) -> Optimised:
    """Rewrite every variant by stochastic search on small batches of seeds, and compare the spread before and after.

    In each round every rewriter proposes; up to ``candidates`` of the wordings play the same ``batch`` of seeds as the
    present one, and the best mean stays. Before and after are then held against each other on ``final`` other seeds.

    Parameters
    ----------
    budget
        Most episodes of the search (the final comparison is not counted); None = no limit.

    Raises
    ------
    UsageError
        Fewer than two variants, or a number below 1.
    DataError
        A variant without a slot that the module needs.
    """
    if len(variants) < 2 or min(rounds, candidates, batch, final) < 1:
        raise UsageError("Prompt optimisation needs 2 variants, and rounds, candidates, batch and final of at least 1.")
    for name, template in variants.items():
        missing = [slot for slot in SLOTS[module] if slot not in slots(template)]
        if missing:
            raise DataError(f"Variant {name!r} of the {module} prompt lacks the slot {{{missing[0]}}}.")
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    played = 0
    found: list[Variant] = []
    last = list(range(1_000_000, 1_000_000 + final))
    for name, start in variants.items():
        template, steps = start, []
        for _ in range(rounds):
            seeds = [int(x) for x in rng.integers(1_000_000, size=batch)]
            if budget is not None and played + 2 * batch > budget:
                break
            scores = await evaluate(template, seeds)
            played += batch
            best, best_by = float(np.mean(scores)), None
            proposed = [(r.name, text) for r in rewriters for text in await r.propose(template, scores, rng)]
            for by, text in [proposed[i] for i in rng.permutation(len(proposed))[:candidates]]:
                if budget is not None and played + batch > budget:
                    break
                mean = float(np.mean(await evaluate(text, seeds)))
                played += batch
                if mean > best:
                    best, best_by, template = mean, by, text
            if best_by is not None:
                steps.append(f"{best_by}: {np.mean(scores):.4g} -> {best:.4g}")
        before = await evaluate(start, last)
        after = before if template == start else await evaluate(template, last)
        found.append(Variant(name, start, template, before, after, steps))
    was = np.array([v.scores_before for v in found])
    is_now = np.array([v.scores_after for v in found])
    (std_before, true_before), (std_after, true_after) = spread(was), spread(is_now)
    low, high = _reduction_interval(was, is_now, rng)
    return Optimised(
        found, std_before, std_after, true_before, true_after, low, high, float(was.mean()),
        float(is_now.mean()), played,
    )  # fmt: skip


def report(result: Optimised) -> Any:
    """Table of the variants: mean and standard deviation before and after, and what was changed."""
    import polars as pl

    from assay.core.table import Table

    rows = [
        {
            "variant": v.name,
            "mean_before": float(np.mean(v.scores_before)),
            "std_before": float(np.std(v.scores_before, ddof=1)) if len(v.scores_before) > 1 else None,
            "mean_after": float(np.mean(v.scores_after)),
            "std_after": float(np.std(v.scores_after, ddof=1)) if len(v.scores_after) > 1 else None,
            "changes": "; ".join(v.steps),
        }
        for v in result.variants
    ]
    return Table(
        "prompts",
        "Prompt variants before and after",
        pl.DataFrame(rows),
        notes=[
            f"Standard deviation between variants {result.std_before:.4g} before, {result.std_after:.4g} after: "
            f"reduced by {100 * result.reduction:.1f} % [{100 * result.low:.1f}, {100 * result.high:.1f}].",
            f"Without the luck of the final seeds {result.true_before:.4g} before, {result.true_after:.4g} after.",
            f"{result.episodes} episodes of search; before and after on other seeds than the search.",
        ],
    )
