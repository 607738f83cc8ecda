"""HUME: people, chat models and text encoders on the same items (arXiv 2510.10062)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from assay.core.benchmark import Benchmark, Outcome, Sample, Task, Trial
from assay.core.errors import UsageError
from assay.core.metrics import function, macro, mean, rate
from assay.representations.hume import measures
from assay.representations.hume.registry import KINDS, TaskSpec, choose, key, pairs, tasks
from assay.systems.chat.model import ChatModel
from assay.systems.embedding import EmbeddingModel

if TYPE_CHECKING:
    from assay.core.context import Context
    from assay.representations.hume.items import Item, PairItems, Study

_ROOM = "assay.representations.hume"


@runtime_checkable
class Ranker(Protocol):
    """What scores documents for a query without vectors: BM25, cross-encoders."""

    name: str

    def rank(self, query: str, documents: Sequence[str]) -> list[float]:
        """A score a document, high = relevant."""
        ...


class HumeTask(Task):
    """The items of one MTEB task, all subsets; a sample is an item, in clustering the whole problem."""

    side = ""

    def __init__(self, spec: TaskSpec, benchmark: Hume) -> None:
        self.spec, self.benchmark = spec, benchmark
        self.name = spec.name + self.side

    @cached_property
    def items(self) -> dict[str, tuple[PairItems, Item]]:
        """Pair and item by sample id."""
        chosen = (self.benchmark.study.pairs[key(self.spec.name, subset)] for subset in self.spec.subsets)
        return {f"{pair.subset}/{item.id}": (pair, item) for pair in chosen for item in pair.items}

    def samples(self) -> Sequence[Sample]:
        """One sample an item; people and models share its cluster."""
        return [
            Sample(name, name, _plain(item.gold), self._groups(pair, item), cluster=f"{self.spec.name}/{name}")
            for name, (pair, item) in self.items.items()
        ]

    def _groups(self, pair: PairItems, item: Item) -> dict[str, str | int | float]:
        spec = self.spec
        codes = spec.subsets[pair.subset]
        return {
            "pair": pair.key,
            "kind": spec.kind,
            "language": "+".join(code.partition("-")[0] for code in codes),
            "answers_as": "model" if self.side else "annotator",
            "gold_answer": _shown(spec.kind, item.gold),
        }


class AnnotatorTask(HumeTask):
    """People and chat models: one question an item, in one of four forms."""

    system = ChatModel

    async def trial(self, system: ChatModel, sample: Sample, ctx: Context) -> Outcome:
        """Ask; the output is the reply's text."""
        from assay.representations.hume import questions

        pair, item = self.items[sample.id]
        reply = await system.generate(
            questions.messages(pair, item),
            response_format=questions.form(pair, item),
            max_tokens=self.benchmark.max_tokens,
            temperature=self.benchmark.temperature,
            seed=ctx.seed % 2**31,
        )
        return Outcome(output=reply.text, groups={"stop_reason": reply.stop_reason})

    def score(self, sample: Sample, output: Any, ctx: Context) -> Outcome:
        """Read the answer and score it by the published protocol; a missing answer has no score and is counted."""
        from assay.representations.hume import questions, scoring

        pair, item = self.items[sample.id]
        reading = questions.read(pair, item, output)
        answer, kind = reading.value, self.spec.kind
        if answer is None:
            missing: dict[str, float | None] = {"answered": 0.0, "value": None}
            if kind == "classification":
                missing["right"] = 0.0
            return Outcome(missing, groups={"read": reading.how, "answer": "none"})
        if kind == "reranking":
            marked = scoring.query_scores(item.gold, answer)
            if marked is None:
                return Outcome({"answered": 0.0, "value": None}, groups={"read": "incomplete", "answer": "none"})
            found = {"value": marked["map"], "mrr_at_10": marked["mrr@10"], "ndcg_at_10": marked["ndcg@10"]}
        else:
            found = _measured(kind, item, answer)
        return Outcome({"answered": 1.0, **found}, groups={"read": reading.how, "answer": _shown(kind, answer)})


class EncoderTask(HumeTask):
    """Encoders, by the MTEB protocol: all items of a pair at once; classification in ten experiments (attempts)."""

    side = "-encoder"
    system = EmbeddingModel

    def __init__(self, spec: TaskSpec, benchmark: Hume) -> None:
        super().__init__(spec, benchmark)
        self.attempts = 10 if spec.kind == "classification" else 1

    def batch_key(self, trial: Trial) -> Hashable:
        """One experiment on one pair."""
        return (trial.sample.id.partition("/")[0], trial.attempt)

    def trials(self, system: Any, batch: Sequence[Trial], ctx: Context) -> Iterable[Outcome]:
        """Encode, and classify, cluster, rank or compare."""
        from assay.representations.hume import protocol

        pair = self.items[batch[0].sample.id][0]
        items = [self.items[trial.sample.id][1] for trial in batch]
        if self.spec.kind == "classification":
            texts = [item.texts[0] for item in items]
            found: list[Any] = list(protocol.classify(system, pair, texts, batch[0].attempt, ctx.cache))
        elif self.spec.kind == "clustering":
            found = [protocol.cluster(system, pair, item, ctx.cache) for item in items]
        elif self.spec.kind == "reranking":
            found = list(protocol.rank(system, pair, items, ctx.cache))
        else:
            found = list(protocol.similarities(system, pair, items, ctx.cache))
        return [self._outcome(item, answer) for item, answer in zip(items, found, strict=True)]

    def _outcome(self, item: Item, answer: Any) -> Outcome:
        """Scored here, as MTEB does, so that files of annotations go to the annotators' tasks alone."""
        from assay.representations.hume import protocol

        kind = self.spec.kind
        found = {"value": protocol.trec_ap(item, answer)} if kind == "reranking" else _measured(kind, item, answer)
        groups: dict[str, str | int | float] = {"read": "given", "answer": _shown(kind, answer)}
        return Outcome({"answered": 1.0, **found}, {"answer": answer}, groups)


class RankerTask(HumeTask):
    """Reranking by systems that have no vectors."""

    side = "-ranker"
    system = Ranker

    def trial(self, system: Ranker, sample: Sample, ctx: Context) -> Outcome:
        """Score the documents of a query; trec_eval's average precision."""
        from assay.representations.hume import protocol

        item = self.items[sample.id][1]
        answer = [float(v) for v in system.rank(item.texts[0], item.texts[1:])]
        groups: dict[str, str | int | float] = {"read": "given", "answer": _shown("reranking", answer)}
        return Outcome({"answered": 1.0, "value": protocol.trec_ap(item, answer)}, {"answer": answer}, groups)


def _measured(kind: str, item: Item, answer: Any) -> dict[str, float]:
    """Scores of one answer, ``value`` the main one. Reranking is not here: people mark, models order."""
    from assay.representations.hume import scoring

    if kind == "classification":
        right = float(answer == item.gold)
        return {"value": right, "right": right}
    if kind == "sts":
        return {"value": float(answer)}
    found = scoring.clustering_scores(item.gold, answer)
    return {"value": found.pop("v_measure"), **found}


def _metrics(specs: Iterable[TaskSpec]) -> tuple[Any, ...]:
    specs = list(specs)
    wanted = tuple(key(spec.name, subset) for spec, subset in pairs(specs))
    present = {spec.kind for spec in specs}
    by_kind = {
        kind: macro("value", over="pair", name=name, where={"kind": kind}, error=None)
        for kind, name in (("classification", "accuracy"), ("clustering", "v_measure"), ("reranking", "map"))
    }
    by_kind["sts"] = function("spearman", measures.spearman, measures.READS, where={"kind": "sts"}, error=None)
    # Published accuracy leaves out what was not read; a model that rarely answers must not look good by it alone.
    where = {"kind": "classification"}
    strict = macro("right", over="pair", name="accuracy_missing_wrong", where=where, bounds=(0, 1))
    overall = partial(measures.mean_over_pairs, wanted=wanted)
    return (
        function("mean_subset", overall, measures.READS, error=None, headline=True),
        *(by_kind[kind] for kind in KINDS if kind in present),
        *([strict] if "classification" in present else []),
        mean("answered", name="answer_rate", bounds=(0, 1)),
        rate("read", "refused", name="refusal_rate", higher_is_better=False),
    )


class Hume(Benchmark):
    """People, chat models and encoders on the items of HUME(v1), or of a study of one's own.

    Parameters
    ----------
    data
        A study folder (recipes ``hub``, ``sample``); None = stand-ins in the shape of the 26 pairs.
    tasks
        Names or globs between commas; empty = all.
    languages
        Codes between commas (``eng``, ``ara-Arab``); empty = all.
    temperature, max_tokens
        Of requests to chat models.
    seed
        Of the stand-ins.
    """

    name = "hume"
    title = "HUME: what an embedding score means beside people on the same items"
    paper = "arXiv:2510.10062"
    extras = ("hume",)
    references = "references.json"
    metrics = _metrics(tasks().values())
    analyses = {
        "leaderboard": f"{_ROOM}.analyses:leaderboard",
        "gaps": f"{_ROOM}.analyses:gaps",
        "by_type": f"{_ROOM}.analyses:by_type",
        "by_language": f"{_ROOM}.analyses:by_language",
        "agreement": f"{_ROOM}.analyses:agreement",
        "difficulty": f"{_ROOM}.analyses:difficulty",
        "reading": f"{_ROOM}.analyses:reading",
        "quality": f"{_ROOM}.quality:quality",
        "skills": f"{_ROOM}.people:skills",
        "ask_next": f"{_ROOM}.people:ask_next",
        "published": f"{_ROOM}.boards:published",
    }
    recipes = {
        "hub": f"{_ROOM}.recipes:hub",
        "sample": f"{_ROOM}.recipes:sample",
        "power": f"{_ROOM}.recipes:power",
        "annotations": f"{_ROOM}.recipes:lines",
        "argilla": f"{_ROOM}.recipes:argilla",
        "results": f"{_ROOM}.recipes:results",
        "patch": f"{_ROOM}.recipes:patch",
        "reproduce": f"{_ROOM}.reproduce:reproduce",
    }

    def __init__(
        self,
        data: str | None = None,
        *,
        tasks: str = "",
        languages: str = "",
        temperature: float = 0.0,
        max_tokens: int = 1024,
        seed: int = 0,
    ) -> None:
        if not temperature >= 0:
            raise UsageError(f"Option temperature={temperature} is below 0; 0 takes the likeliest token.")
        if max_tokens < 1:
            raise UsageError(f"Option max_tokens={max_tokens} leaves no room for an answer; give 1 or more.")
        if seed < 0:
            raise UsageError(f"Option seed={seed} is below 0.")
        self.source, self.seed = data, seed
        self.temperature, self.max_tokens = temperature, max_tokens
        self.specs = choose(self._known(), tasks, languages)
        self.metrics = _metrics(self.specs.values())

    def _known(self) -> Mapping[str, TaskSpec]:
        return tasks() if self.source is None else self.study.specs

    @cached_property
    def study(self) -> Study:
        """All items, of chosen tasks and others."""
        from assay.representations.hume import items, standin

        return standin.study(self.seed) if self.source is None else items.read_study(self.source)

    def tasks(self) -> Sequence[Task]:
        """Each MTEB task for annotators and for encoders, reranking for rankers too."""
        made: list[Task] = []
        for spec in self.specs.values():
            made += [AnnotatorTask(spec, self), EncoderTask(spec, self)]
            if spec.kind == "reranking":
                made.append(RankerTask(spec, self))
        return made

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """Encoders, BM25, guessing and simulated annotators."""
        from assay.representations.hume import methods

        return methods.methods(self)

    def read(self, path: Path) -> Iterable[tuple[str, str, int, Outcome]]:
        """Annotations as JSON lines or Argilla records: an attempt an annotator; drafts are left out."""
        from assay.representations.hume.exchange import read_annotations

        chosen = [pair for pair in self.study.pairs.values() if pair.spec.name in self.specs]
        found = read_annotations(path, chosen)
        names = sorted({a.annotator for a in found})
        for a in found:
            groups = {"respondent": a.annotator, "respondent_kind": a.kind}
            yield a.task, f"{a.subset}/{a.item}", names.index(a.annotator), Outcome(output=a.output(), groups=groups)

    def data(self) -> Mapping[str, Any]:
        """Provenance of the items in use."""
        return self.study.data.info()


def _plain(gold: Any) -> Any:
    return list(gold) if isinstance(gold, tuple) else gold


def _shown(kind: str, answer: Any) -> str:
    """An answer or gold as a group: label, number, judgements, number of clusters."""
    if kind == "clustering":
        return f"{len(set(answer))} clusters"
    if kind == "reranking":
        return " ".join(f"{value:.3g}" for value in answer)
    return f"{answer:.6g}" if kind == "sts" else str(answer)
