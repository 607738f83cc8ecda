"""Beside mteb itself: it reads the result files, and its own evaluation of the same items gives the same scores."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from assay.representations.hume import measures, protocol, results, scoring, standin
from assay.representations.hume.registry import tasks
from assay.systems.embedding import HashedNgrams

DATA = Path(__file__).parents[3] / "shared" / "data" / "hume" / "human_results"
STUDY = standin.study().pairs

mteb = pytest.importorskip("mteb")


def mteb_task(pair, cls):
    """A copy of an mteb task whose data are the stand-ins."""
    from datasets import Dataset, DatasetDict

    task = cls()
    spec = pair.spec
    if spec.kind == "classification":
        codes = {name: n for n, name in enumerate(pair.labels)}
        train = {"text": [t for t, _ in pair.train], "label": [codes[x] for _, x in pair.train]}
        test = {"text": [i.texts[0] for i in pair.items], "label": [codes[i.gold] for i in pair.items]}
        data = DatasetDict({"train": Dataset.from_dict(train), "test": Dataset.from_dict(test)})
    elif spec.kind == "clustering":
        rows = {"sentences": [list(i.texts) for i in pair.items], "labels": [list(i.gold) for i in pair.items]}
        data = DatasetDict({"test": Dataset.from_dict(rows)})
    elif spec.kind == "sts":
        rows = {
            "sentence1": [i.texts[0] for i in pair.items],
            "sentence2": [i.texts[1] for i in pair.items],
            "score": [i.gold for i in pair.items],
        }
        data = DatasetDict({"test": Dataset.from_dict(rows)})
    else:
        documents = [(d, t) for i in pair.items for d, t in zip(i.ids, i.texts[1:])]
        corpus = Dataset.from_dict(
            {"id": [d for d, _ in documents], "title": [""] * len(documents), "text": [t for _, t in documents]}
        )
        queries = Dataset.from_dict({"id": [i.id for i in pair.items], "text": [i.texts[0] for i in pair.items]})
        relevant = {i.id: dict(zip(i.ids, i.gold)) for i in pair.items}
        ranked = {i.id: list(i.ids) for i in pair.items}
        data = {"test": {"corpus": corpus, "queries": queries, "relevant_docs": relevant, "top_ranked": ranked}}
    task.dataset = {"default": data} if spec.kind == "reranking" else data
    task.data_loaded = True
    return task


class AsMteb:
    """An encoder of ours as mteb takes it."""

    def __init__(self, encoder):
        from mteb.models import ModelMeta

        self.encoder = encoder
        self.mteb_model_meta = ModelMeta.create_empty({"name": "assay/hashed", "revision": "1"})

    def encode(self, inputs, *, task_metadata, hf_split, hf_subset, prompt_type=None, **kwargs):
        return np.concatenate([self.encoder.encode(batch["text"]) for batch in inputs])

    def similarity(self, a, b):
        import torch

        a, b = (torch.nn.functional.normalize(torch.as_tensor(x), dim=-1) for x in (a, b))
        return a @ b.T

    def similarity_pairwise(self, a, b):
        import torch

        return torch.nn.functional.cosine_similarity(torch.as_tensor(a), torch.as_tensor(b))


NAMES = (
    "HUMEToxicConversationsClassification",
    "HUMERedditClusteringP2P",
    "HUMESTS12",
    "HUMENews21InstructionReranking",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_encoder_scores_the_same_in_mteb(name):
    pair, encoder = STUDY[f"{name}|default"], HashedNgrams(64)
    task = mteb_task(pair, type(mteb.get_task(name)))
    theirs = task.evaluate(AsMteb(encoder), "test", encode_kwargs={})["default"]["main_score"]
    kind = pair.spec.kind
    if kind == "classification":
        gold, texts = [i.gold for i in pair.items], [i.texts[0] for i in pair.items]
        each = [protocol.classify(encoder, pair, texts, n, None) for n in range(protocol.EXPERIMENTS)]
        ours = np.mean([np.mean([a == g for a, g in zip(found, gold)]) for found in each])
    elif kind == "clustering":
        (item,) = pair.items
        ours = scoring.clustering_scores(item.gold, protocol.cluster(encoder, pair, item, None))["v_measure"]
    elif kind == "sts":
        found = protocol.similarities(encoder, pair, pair.items, None)
        ours = scoring.sts_scores([i.gold for i in pair.items], found)["spearman"]
    else:
        found = protocol.rank(encoder, pair, pair.items, None)
        ours = np.mean([protocol.trec_ap(i, s) for i, s in zip(pair.items, found)])
    # mteb rounds retrieval measures to five digits.
    assert ours == pytest.approx(theirs, abs=6e-6 if kind == "reranking" else 1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_mteb_task_becomes_a_pair_with_the_same_items(name):
    from assay.representations.hume.mteb_tasks import pairs_of

    pair = STUDY[f"{name}|default"]
    (found,) = pairs_of(mteb_task(pair, type(mteb.get_task(name))))
    assert found.spec == tasks()[name]
    assert [i.texts for i in found.items] == [i.texts for i in pair.items]
    if pair.spec.kind in ("sts", "reranking"):
        assert [i.gold for i in found.items] == [i.gold for i in pair.items]
    if pair.spec.kind == "classification":
        assert len(found.train) == len(pair.train)


def test_a_task_of_another_kind_is_refused():
    from assay.core.errors import UsageError
    from assay.representations.hume.mteb_tasks import load_task, pairs_of

    with pytest.raises(UsageError, match="no task 'Nonesuch'"):
        load_task("Nonesuch")
    with pytest.raises(UsageError, match="BitextMining"):
        pairs_of(mteb.get_task("BUCC.v2"))


def test_mteb_reads_what_is_written(tmp_path):
    spec = tasks()["HUMESTS22"]
    scored = scoring.score("sts", [1, 2, 3, 4], {"A": [0, 1, 4, 5], "B": [1, 0, 3, 5]})
    entries = [results.human_entry(spec, subset, scored) for subset in spec.subsets]
    path = results.write_result(tmp_path / "baseline__Human" / results.HUMAN_REVISION, spec, entries, people=True)
    found = mteb.results.TaskResult.from_disk(path)
    assert found.task_name == "HUMESTS22"
    assert sorted(found.hf_subsets) == ["ar", "en", "ru"]
    assert found.get_score() == pytest.approx(scored["aggregated"]["spearman"])
    assert found.get_score(languages=["rus"]) == pytest.approx(scored["aggregated"]["spearman"])
    model = results.write_result(tmp_path / "m" / "r", spec, [results.model_entry(spec, "en", 0.5)], people=False)
    assert mteb.results.TaskResult.from_disk(model).get_score() == 0.5


def test_a_file_of_ours_has_the_fields_of_the_published_ones(tmp_path):
    spec = tasks()["HUMEEmotionClassification"]
    answers = {"A": ["joy", "anger", "fear"], "B": ["joy", "love", "fear"]}
    scored = scoring.score("classification", ["joy", "anger", "love"], answers)
    path = results.write_result(tmp_path, spec, [results.human_entry(spec, "default", scored)], people=True)
    mine = json.loads(path.read_text(encoding="utf-8"))
    assert list(mine["scores"]["test"][0]) == [
        "accuracy", "f1", "f1_weighted", "precision", "recall", "main_score", "scores_per_experiment", "agreement",
        "hf_subset", "languages",
    ]  # fmt: skip
    if DATA.is_dir():
        theirs = json.loads((DATA / "HUMEEmotionClassification.json").read_text(encoding="utf-8"))
        entry = theirs["scores"]["test"][0]
        assert list(mine) == list(theirs)
        assert list(mine["scores"]["test"][0]) == list(entry)
        assert list(mine["scores"]["test"][0]["agreement"]) == list(entry["agreement"])
        assert list(mine["scores"]["test"][0]["scores_per_experiment"][0]) == list(entry["scores_per_experiment"][0])
    assert (
        results.read_result(path)["HUMEEmotionClassification|default"]["main_score"] == scored["aggregated"]["accuracy"]
    )


@pytest.mark.skipif(not DATA.is_dir(), reason="the published result files are not here")
def test_every_published_file_has_our_fields_and_is_read():
    for path in sorted(DATA.glob("*.json")):
        spec = tasks()[path.stem]
        for name, entry in results.read_result(path).items():
            subset = name.partition("|")[2]
            assert entry["main_score"] == spec.human[subset]
            assert entry["languages"] == list(spec.subsets[subset])
            if "scores_per_experiment" in entry and spec.kind != "classification":
                each = entry["scores_per_experiment"]
                if spec.kind != "sts":
                    assert scoring.mean_scores(each)[{"clustering": "v_measure", "reranking": "map"}[spec.kind]] == (
                        pytest.approx(entry["main_score"], abs=1e-12)
                    )


def test_measures_need_no_mteb():
    assert "mteb" not in measures.__dict__
