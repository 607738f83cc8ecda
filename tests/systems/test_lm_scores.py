"""Log-probabilities and losses of local models are those of a plain pass, in any batch, with any prefix kept."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tiny_lm import plain_logprobs, tiny_model  # noqa: E402

from assay.core.errors import ProviderError, UsageError  # noqa: E402
from assay.systems import decoder  # noqa: E402
from assay.systems.chat.model import ChatModel  # noqa: E402
from assay.systems.lm import LanguageModel  # noqa: E402

KINDS = ["llama", "qwen3", "gpt2", "mistral", "gemma3"]


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def llama():
    return tiny_model("llama", max_batch=32)


def expected(model, prefix, continuation):
    table = plain_logprobs(model.module(), [*prefix, *continuation])
    return np.array([table[len(prefix) - 1 + i, token] for i, token in enumerate(continuation)])


def tokens(rng, count):
    return rng.integers(0, 256, count).tolist()


def test_satisfies_both_protocols(llama):
    assert isinstance(llama, ChatModel)
    assert isinstance(llama, LanguageModel)


def test_logprobs_are_those_of_a_plain_forward_pass(model):
    rng = np.random.default_rng(1)
    prefix = tokens(rng, 40)
    continuations = [tokens(rng, n) for n in (1, 3, 5, 1, 2, 8)]
    for found, continuation in zip(model.logprobs(prefix, continuations), continuations, strict=True):
        np.testing.assert_allclose(found, expected(model, prefix, continuation), atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    prefix=st.lists(st.integers(0, 255), min_size=1, max_size=60),
    continuations=st.lists(st.lists(st.integers(0, 255), max_size=6), max_size=6),
)
def test_logprobs_of_any_lengths(llama, prefix, continuations):
    found = llama.logprobs(prefix, continuations)
    assert [len(f) for f in found] == [len(c) for c in continuations]
    for values, continuation in zip(found, continuations, strict=True):
        np.testing.assert_allclose(values, expected(llama, prefix, continuation), atol=1e-5)


def test_more_continuations_than_one_row_holds(llama, monkeypatch):
    monkeypatch.setattr(decoder, "PACKED", 7)
    rng = np.random.default_rng(2)
    prefix, continuations = tokens(rng, 30), [tokens(rng, 4) for _ in range(20)]
    for found, continuation in zip(llama.logprobs(prefix, continuations), continuations, strict=True):
        np.testing.assert_allclose(found, expected(llama, prefix, continuation), atol=1e-5)


def test_a_model_that_ignores_branches_is_scored_row_by_row(monkeypatch):
    model = tiny_model("llama")
    monkeypatch.setattr(
        decoder.Decoder,
        "_branching_mask",
        lambda self, parts, before, width: torch.ones(len(parts), 1, width, before + width, dtype=torch.bool).tril(
            before
        ),
    )
    rng = np.random.default_rng(3)
    prefix, continuations = tokens(rng, 10), [tokens(rng, 3) for _ in range(4)]
    for found, continuation in zip(model.logprobs(prefix, continuations), continuations, strict=True):
        np.testing.assert_allclose(found, expected(model, prefix, continuation), atol=1e-5)


@pytest.mark.parametrize("batch", [1, 7, 32])
def test_choices_score_the_same_in_batches_of(batch, llama):
    questions = [[{"role": "user", "content": f"{'and the ' * (i % 9)}question {i}"}] for i in range(batch)]
    choices = ["A", "B", "the", "in and"]

    async def ask():
        return await asyncio.gather(*(llama.choice_logprobs(q, choices) for q in questions))

    for question, values in zip(questions, asyncio.run(ask()), strict=True):
        prefix = llama._encode(llama._render(question, None))
        alone = [
            expected(llama, prefix, llama.tokenizer(c, add_special_tokens=False)["input_ids"]).sum() for c in choices
        ]
        np.testing.assert_allclose(values, alone, atol=1e-5)


def test_kept_prefixes_change_nothing_and_save_work(model):
    rng = np.random.default_rng(4)
    shared = tokens(rng, 64)
    asked = [(shared + tokens(rng, int(n)), [tokens(rng, 1), tokens(rng, 3)]) for n in rng.integers(1, 9, 6)]
    read = []
    hook = (
        model.module()
        .get_input_embeddings()
        .register_forward_hook(lambda module, inputs, output: read.append(inputs[0].numel()))
    )
    try:
        with_store = [model.logprobs(*a) for a in asked]
        saved = sum(read)
        read.clear()
        without = []
        for a in asked:
            model.module()  # forgets
            without.append(model.logprobs(*a))
    finally:
        hook.remove()
    for one, other in zip(with_store, without, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
    assert saved < 0.6 * sum(read)


def test_store_keeps_to_its_limit():
    from assay.systems.kv_cache import PrefixStore

    store = PrefixStore(10 * 2 * 1024)
    for start in range(30):
        row = list(range(start * 100, start * 100 + 16))
        store.keep(row, [(torch.zeros(1, 1, 16, 16), torch.zeros(1, 1, 16, 16))])
    assert len(store) == 10
    assert store.find(list(range(2900, 2950)))[0] == 16
    assert store.find(list(range(50)))[0] == 0


def test_choice_boundary_follows_the_tokenizer(llama):
    """' the' is one token behind a word, and a choice that would merge with the prompt is tokenised on its own."""
    bare = tiny_model("llama", template=None)
    prefix, rest = bare._split("in", [" the", " t"])
    assert [len(r) for r in rest] == [1, 1]
    prefix, rest = bare._split("t", ["he"])  # 't' + 'he' stay apart: no merge crosses
    assert prefix == bare._encode("t")
    prefix, rest = bare._split("i", ["n"])  # 'in' is one token: the boundary must be kept
    assert (prefix, rest) == (bare._encode("i"), [bare._encode("n")])


def test_nll_matches_cross_entropy_and_masks(model):
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 256, (5, 20))
    labels = np.where(rng.random(ids.shape) < 0.3, -100, ids)
    found = model.nll(ids, labels)
    assert found.shape == ids.shape
    for row in range(5):
        table = plain_logprobs(model.module(), ids[row].tolist())
        for t in range(20):
            want = 0.0 if t == 0 or labels[row, t] == -100 else -table[t - 1, labels[row, t]]
            assert found[row, t] == pytest.approx(want, abs=1e-5)
    np.testing.assert_allclose(model.nll(ids[0], labels[0]), found[0], atol=1e-5)
    padded = np.pad(ids, ((0, 0), (0, 7)))
    masked = np.pad(labels, ((0, 0), (0, 7)), constant_values=-100)
    np.testing.assert_allclose(model.nll(padded, masked)[:, :20], found, atol=1e-5)


def test_nll_of_one_token_is_nothing(llama):
    assert llama.nll(np.array([3]), np.array([3])).tolist() == [0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.logprobs([], [[1]]), "at least one token"),
        (lambda m: m.logprobs([1], [[9999]]), "Token id 9999"),
        (lambda m: m.logprobs([-1], [[1]]), "Token id -1"),
        (lambda m: m.nll(np.zeros((2, 3), int), np.zeros((2, 4), int)), "one shape"),
        (lambda m: m.nll(np.full((1, 3), 500), np.zeros((1, 3), int)), "input_ids hold"),
        (lambda m: m.nll(np.zeros((1, 3), int), np.full((1, 3), 500)), "labels hold"),
        (lambda m: m.nll(np.zeros(600, int), np.zeros(600, int)), "600 tokens"),
        (lambda m: asyncio.run(m.choice_logprobs([{"role": "user", "content": "x"}], ["A", ""])), "at least one token"),
        (lambda m: asyncio.run(m.choice_logprobs([{"role": "user", "content": "x"}], ["A", "A"])), "different"),
    ],
)
def test_bad_input_is_one_sentence(llama, call, message):
    with pytest.raises(UsageError, match=message) as caught:
        call(llama)
    assert "\n" not in str(caught.value)


def test_prompt_beyond_the_context_is_refused(llama):
    with pytest.raises(ProviderError, match="longer than the 512") as caught:
        llama.logprobs([1] * 600, [[2]])
    assert not caught.value.retryable
