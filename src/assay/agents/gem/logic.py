"""Theories in plain English: facts, rules, and a statement to judge, in the form of RuleTaker's rows.

A stand-in that needs no download: texts and vocabulary are our own, the reasoning is RuleTaker's (closed world: what
does not follow is false).

References
----------
Clark, Tafjord, Richardson. Transformers as Soft Reasoners over Language. IJCAI 2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from assay.agents.gem.data import QaEnv
from assay.agents.gem.env import EnvError

PEOPLE = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn")
QUALITIES = ("brave", "calm", "fast", "happy", "kind", "loud", "proud", "quiet", "rich", "shy", "tall", "wise")
Fact = tuple[str, str]
_TRIES = 2000


class Rule(NamedTuple):
    """Who has all conditions has the conclusion."""

    conditions: tuple[str, ...]
    conclusion: str


def depths(facts: Sequence[Fact], rules: Sequence[Rule]) -> dict[Fact, int]:
    """Everything that follows, with the least number of rule steps one upon the other that prove it (facts: 0)."""
    known = dict.fromkeys(facts, 0)
    while True:
        new: dict[Fact, int] = {}
        for person in {person for person, _ in known}:
            for rule in rules:
                needed = [known.get((person, quality)) for quality in rule.conditions]
                if None not in needed:
                    depth = 1 + max(n for n in needed if n is not None)
                    fact = (person, rule.conclusion)
                    if depth < known.get(fact, 1 << 30):
                        new[fact] = min(depth, new.get(fact, 1 << 30))
        if not new:
            return known
        known.update(new)


def theory(depth: int, rng: np.random.Generator) -> dict[str, Any]:
    """A row: ``question``, ``answer`` (True or False), ``depth`` and whether the statement ``follows`` from the rest.

    In three of four rows the statement (or what it denies) takes exactly ``depth`` steps to prove; in the fourth it
    does not follow.
    """
    follows = bool(rng.random() < 0.75)
    for _ in range(_TRIES):
        people = [PEOPLE[int(i)] for i in rng.permutation(len(PEOPLE))[: int(rng.integers(2, 5))]]
        qualities = [QUALITIES[int(i)] for i in rng.permutation(len(QUALITIES))]
        facts = sorted({(people[int(rng.integers(len(people)))], qualities[int(rng.integers(3))]) for _ in range(4)})
        # A chain of the depth that is wanted, and rules beside it.
        rules = [Rule((qualities[2 + at],), qualities[3 + at]) for at in range(depth)]
        for _ in range(int(rng.integers(2, 5))):
            drawn = [qualities[int(i)] for i in rng.permutation(len(qualities))[: int(rng.integers(2, 4))]]
            rules.append(Rule(tuple(sorted(drawn[:-1])), drawn[-1]))
        known = depths(facts, rules)
        wanted = [fact for fact, steps in known.items() if steps == depth]
        if not follows:
            wanted = [(person, quality) for person in people for quality in qualities if (person, quality) not in known]
        if not wanted:
            continue
        person, quality = sorted(wanted)[int(rng.integers(len(wanted)))]
        denied = bool(rng.random() < 0.5)
        sentences = [f"{who} is {what}." for who, what in facts]
        sentences += [
            f"If someone is {' and '.join(rule.conditions)} then they are {rule.conclusion}." for rule in rules
        ]
        order = [sentences[int(i)] for i in rng.permutation(len(sentences))]
        statement = f"{person} is {'not ' if denied else ''}{quality}."
        question = f"{' '.join(order)}\nWhat cannot be concluded is false. True or False: {statement}"
        return {"question": question, "answer": str(follows != denied), "depth": depth, "follows": follows}
    raise EnvError(f"No theory of depth {depth} was found; depths up to 9 can be made.")


class _Theories(Sequence[Mapping[str, Any]]):
    def __init__(self, depth: int, size: int, seed: int) -> None:
        self.depth, self.size, self.seed = depth, size, seed
        self._row = lru_cache(maxsize=64)(self._make)

    def _make(self, at: int) -> dict[str, Any]:
        return theory(self.depth, np.random.default_rng([self.seed, self.depth, at]))

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: Any) -> Any:
        if not 0 <= at < self.size:
            raise IndexError(at)
        return self._row(int(at))


class TheoryEnv(QaEnv):
    """Judge a statement by facts and rules; the answer is the last box.

    Parameters
    ----------
    depth
        Rule steps of the proof, 0 to 9.
    size, dataset_seed
        How many theories, and the seed that they are made from.
    """

    def __init__(self, depth: int = 1, size: int = 500, dataset_seed: int = 42, **options: Any) -> None:
        if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= 9:
            raise EnvError(f"depth is {depth!r}; it must be an integer from 0 to 9.")
        rows = _Theories(depth, size, dataset_seed)
        super().__init__(data=rows, question_key="question", extract_boxed=True, **options)

    def random_action(self, rng: np.random.Generator) -> str:
        return f"\\boxed{{{'True' if rng.random() < 0.5 else 'False'}}}"
