"""Fine-tuning on the data of `tune`, and the sweep over picture sizes."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_lm import SIZES, tiny_model, tiny_network, tiny_tokenizer  # noqa: E402

import assay  # noqa: E402
from assay.core.datasets import read_manifest  # noqa: E402
from assay.core.errors import DataError, UsageError  # noqa: E402
from assay.multimodal.asciieval import sft, training, tuning  # noqa: E402
from assay.multimodal.asciieval.data import Item  # noqa: E402
from assay.multimodal.asciieval.training import Settings  # noqa: E402

ITEMS = [
    Item("one", "/\\_/\\\n=o.o=", ("cat", "dog", "fish", "bird"), 0),
    Item("two", "><(((>", ("car", "fish", "tree", "cup"), 1),
    Item("three", "  |\n--o--\n  |", ("sun", "leaf", "star", "boat"), 2),
    Item("four", "\\___/", ("cup", "hat", "pear", "boat"), 3),
]


@pytest.fixture
def data(tmp_path):
    tuning.export(ITEMS, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def base(tmp_path):
    tokenizer = tiny_tokenizer()
    tiny_network("llama", vocabulary=len(tokenizer)).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def weights(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def history(folder):
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def gradient(network, inputs, scale=1.0):
    network.zero_grad(set_to_none=True)
    (training.target_loss(network, inputs) * scale).backward()
    return {name: p.grad.clone() for name, p in network.named_parameters()}


def same(one, two, **tolerance):
    assert set(one) == set(two)
    for name in one:
        torch.testing.assert_close(one[name], two[name], **tolerance, msg=lambda m, name=name: f"{name}: {m}")


def test_the_prompt_is_what_a_run_asks_and_the_target_ends_the_turn(data):
    model = tiny_model()
    row = sft.read_rows(data)[0]
    found = sft.encode(model, row)
    ids, labels = found["input_ids"][0].tolist(), found["labels"][0].tolist()
    asked = model._encode(model._render([row["messages"][0]], None))
    assert ids[: len(asked)] == asked
    assert labels[: len(asked)] == [-100] * len(asked)
    assert labels[len(asked) :] == ids[len(asked) :]
    assert model.tokenizer.decode(ids[len(asked) :]) == "A: cat<|end|>"
    assert set(map(len, (v[0] for v in found.values()))) == {len(ids)}


def test_a_base_without_template_is_trained_on_bare_text(data):
    model = tiny_model(template=None)
    row = sft.read_rows(data)[1]
    ids = sft.encode(model, row)["input_ids"][0].tolist()
    assert model.tokenizer.decode(ids) == row["messages"][0]["content"] + "B: fish<|end|>"


def test_the_loss_is_that_of_the_target_alone(data):
    model = tiny_model()
    inputs = sft.encode(model, sft.read_rows(data)[0])
    network = model.module()
    ids, labels = inputs["input_ids"][0], inputs["labels"][0]
    logits = network(input_ids=ids[None]).logits[0].log_softmax(-1)
    # By hand: the sum over target tokens of -log p(token | tokens before).
    by_hand = -sum(logits[at - 1, ids[at]] for at in range(len(ids)) if labels[at] != -100)
    assert training.target_loss(network, inputs).item() == pytest.approx(by_hand.item(), rel=1e-5)
    network.zero_grad()
    by_hand.backward()
    expected = {name: p.grad.clone() for name, p in network.named_parameters()}
    same(gradient(network, inputs), expected, rtol=1e-4, atol=1e-5)


def test_rows_padded_together_have_the_gradient_of_rows_apart(data):
    model = tiny_model()
    rows = [sft.encode(model, row) for row in sft.read_rows(data)]
    network = model.module()
    together = gradient(network, sft.collate(rows))
    apart = [gradient(network, row) for row in rows]
    same(together, {name: sum(g[name] for g in apart) for name in together}, rtol=1e-3, atol=1e-4)


def test_the_rate_is_the_usual_schedule_without_its_zeros():
    from transformers import get_cosine_schedule_with_warmup

    settings = Settings(learning_rate=2e-5, warmup=0.1)
    optimiser = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=2e-5)
    usual = get_cosine_schedule_with_warmup(optimiser, num_warmup_steps=4, num_training_steps=41)
    for step in range(40):
        optimiser.step()
        usual.step()
        assert training.rate(step, 40, settings) == pytest.approx(usual.get_last_lr()[0])
    assert training.rate(0, 1, settings) > 0


def test_a_memorised_handful_is_answered_right(data, base, tmp_path):
    out = assay.make(
        "asciieval.train", tmp_path / "tuned", data=str(data), base=str(base), epochs=25, learning_rate=3e-3, batch=2,
        micro_batch=2,
    )  # fmt: skip
    losses = [row["loss"] for row in history(out)]
    assert len(losses) == 50
    assert sum(losses[-4:]) < 0.05 * sum(losses[:4])
    assert read_manifest(out, verify=True).counts == {"rows": 4, "too_long": 0, "steps": 50}
    assert not (out / training.CHECKPOINT).exists()

    model = assay.systems.loading.load(f"hf:{out}")
    for item, row in zip(ITEMS, sft.read_rows(data)):
        reply = asyncio.run(model.generate([row["messages"][0]], max_tokens=12))
        assert (reply.text, reply.stop_reason) == (f"{item.letter}: {item.right}", "stop")


def test_the_trained_folder_runs_in_the_benchmark(data, base, tmp_path):
    from assay.multimodal.asciieval.data import write_items

    out = assay.make("asciieval.train", tmp_path / "tuned", data=str(data), base=str(base), batch=4)
    items = [Item(i.id, i.art, i.choices, i.answer, "objects", "object", i.right) for i in ITEMS]
    (tmp_path / "items").mkdir()
    write_items(items, tmp_path / "items" / "test.jsonl")
    options = {"data": str(tmp_path / "items"), "modes": "text", "max_tokens": 4}
    run = assay.run("asciieval", f"hf:{out}", options=options, into=tmp_path / "run")
    assert run.records["status"].to_list() == ["ok"] * 4


class Killed(BaseException):
    pass


@pytest.mark.parametrize("lora", [(), ("q_proj", "mlp.*_proj")])
def test_killed_and_resumed_gives_the_weights_of_an_unbroken_training(data, base, tmp_path, monkeypatch, lora):
    options = {
        "data": str(data), "base": str(base), "epochs": 3, "batch": 2, "learning_rate": 1e-3, "lora": lora,
        "save_every": 2, "seed": 7,
    }  # fmt: skip
    state = torch.random.get_rng_state()
    whole = assay.make("asciieval.train", tmp_path / "whole", **options)
    assert torch.equal(state, torch.random.get_rng_state())

    plain, calls = training.target_loss, []

    def killing(*given):
        calls.append(1)
        if len(calls) == 8:  # in step 4, after the checkpoint of step 2
            raise Killed
        return plain(*given)

    monkeypatch.setattr(training, "target_loss", killing)
    with pytest.raises(Killed):
        assay.make("asciieval.train", tmp_path / "broken", **options)
    assert len(history(tmp_path / "broken")) == 3
    assert not (tmp_path / "broken" / "manifest.json").exists()
    monkeypatch.setattr(training, "target_loss", plain)
    broken = assay.make("asciieval.train", tmp_path / "broken", **options)
    same(weights(whole), weights(broken), rtol=0, atol=0)
    assert [r["loss"] for r in history(whole)] == [r["loss"] for r in history(broken)]

    other = assay.make("asciieval.train", tmp_path / "other", **{**options, "seed": 8})
    assert any(not torch.equal(a, weights(other)[name]) for name, a in weights(whole).items())


def test_a_checkpoint_of_other_options_is_refused_and_a_finished_model_kept(data, base, tmp_path, monkeypatch):
    options = {"data": str(data), "base": str(base), "batch": 1, "save_every": 1}
    plain, calls = training.target_loss, []

    def killing(*given):
        calls.append(1)
        if len(calls) == 3:
            raise Killed
        return plain(*given)

    monkeypatch.setattr(training, "target_loss", killing)
    with pytest.raises(Killed):
        assay.make("asciieval.train", tmp_path / "t", **options)
    monkeypatch.setattr(training, "target_loss", plain)
    with pytest.raises(DataError, match="other data or options"):
        assay.make("asciieval.train", tmp_path / "t", **{**options, "learning_rate": 1e-4})
    assay.make("asciieval.train", tmp_path / "t", **options)
    monkeypatch.setattr(training, "target_loss", None)  # nothing is trained again
    assay.make("asciieval.train", tmp_path / "t", **options)
    with pytest.raises(DataError, match="another folder"):
        assay.make("asciieval.train", tmp_path / "t", **{**options, "seed": 1})


def test_lora_begins_as_the_base_trains_only_its_layers_and_merges_exactly(data):
    model = tiny_model()
    network = model.module()
    inputs = {k: v for k, v in sft.encode(model, sft.read_rows(data)[0]).items() if k != "labels"}
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    with torch.no_grad():
        at_first = network(**inputs).logits
        settings = Settings(lora=("q_proj", "v_proj"), rank=4)
        layers = training.add_lora(network, settings, torch.Generator().manual_seed(0))
        assert len(layers) == 6
        torch.testing.assert_close(network(**inputs).logits, at_first, rtol=0, atol=0)
        assert {n.rpartition(".")[2] for n, p in network.named_parameters() if p.requires_grad} == {"lora_a", "lora_b"}
        for layer in layers:
            layer.lora_b.normal_(generator=torch.Generator().manual_seed(1))
        added = network(**inputs).logits
        training.merge_lora(layers, settings)
        torch.testing.assert_close(network(**inputs).logits, added, rtol=1e-4, atol=1e-4)
        assert (added - at_first).abs().max() > 0.1
    after = dict(network.named_parameters())
    assert set(after) == set(before)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "q_proj" in name or "v_proj" in name}


def test_bf16_trains_float32_weights(data, base, tmp_path):
    out = assay.make(
        "asciieval.train", tmp_path / "t", data=str(data), base=str(base), bf16=True, epochs=6, batch=4,
        learning_rate=3e-3,
    )  # fmt: skip
    assert {w.dtype for w in weights(out).values()} == {torch.float32}
    losses = [row["loss"] for row in history(out)]
    assert losses[-1] < losses[0]


def test_epochs_are_the_published_ones(tmp_path):
    tuning.export(ITEMS, tmp_path / "plain")
    tuning.export(ITEMS, tmp_path / "why", analyses={"one": "Ears above, whiskers beside."})
    tuning.export(ITEMS, tmp_path / "seen", mode="image")
    found = [sft.published_epochs(sft.read_rows(tmp_path / name)) for name in ("plain", "why", "seen")]
    assert found == [1, 3, 2]


def test_long_rows_are_left_out_and_counted(data, tmp_path):
    model = tiny_model()
    lengths = sorted(sft.encode(model, row)["input_ids"].shape[1] for row in sft.read_rows(data))
    (tmp_path / "out").mkdir()
    counts = training.fine_tune(model, sft.read_rows(data), tmp_path / "out", Settings(max_tokens=lengths[1]))
    assert counts == {"rows": 2, "too_long": 2, "steps": 1}
    with pytest.raises(UsageError, match="All 4 rows are longer than 5"):
        training.fine_tune(model, sft.read_rows(data), tmp_path / "out", Settings(max_tokens=5))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"messages": 3}, "field 'messages'"),
        ({"messages": [{"role": "user", "content": "a"}]}, "field 'messages'"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "images": "x.png"},
         "field 'images' must be a list"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "images": ["../x"]},
         "not in its folder"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_trained_on_are_named(tmp_path, row, words):
    (tmp_path / "sft.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=words):
        sft.read_rows(tmp_path)


def test_pictures_need_a_model_that_sees(tmp_path):
    tuning.export(ITEMS, tmp_path / "data", mode="both")
    with pytest.raises(UsageError, match="reads text only"):
        training.fine_tune(tiny_model(), sft.read_rows(tmp_path / "data"), tmp_path, Settings())


def test_a_model_that_sees_is_trained_on_pictures_and_texts(tmp_path):
    from transformers import (
        CLIPImageProcessorPil,
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    template = (
        "{% for m in messages %}<|start|>{{ m['role'] }}\n{% if m['content'] is string %}{{ m['content'] }}{% else %}"
        "{% for p in m['content'] %}{% if p['type'] == 'image' %}<image>{% else %}{{ p['text'] }}{% endif %}"
        "{% endfor %}{% endif %}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
    )
    tokenizer = tiny_tokenizer(template)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    sight = CLIPVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14
    )
    config = LlavaConfig(
        vision_config=sight,
        text_config=LlamaConfig(**SIZES, vocab_size=len(tokenizer)),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlavaForConditionalGeneration(config).save_pretrained(tmp_path / "base")
    LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}),
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        chat_template=template,
        num_additional_image_tokens=1,
    ).save_pretrained(tmp_path / "base")
    seed = next(seed for seed in range(100) if set(tuning.modes_of(ITEMS, "random", seed)) == {"text", "image", "both"})
    tuning.export(ITEMS, tmp_path / "data", mode="random", seed=seed)
    rows = sft.read_rows(tmp_path / "data")
    assert {bool(row["images"]) for row in rows} == {True, False}

    model = assay.systems.loading.load(f"hf:{tmp_path / 'base'}")
    seen = sft.encode(model, next(row for row in rows if row["images"]))
    assert seen["pixel_values"].shape[0] == 1
    assert seen["input_ids"].shape == seen["labels"].shape == seen["attention_mask"].shape
    assert int((seen["input_ids"] == config.image_token_id).sum()) == 4
    assert model.tokenizer.decode(seen["labels"][0][seen["labels"][0] != -100]).endswith("<|end|>")

    out = assay.make(
        "asciieval.train", tmp_path / "t", data=str(tmp_path / "data"), base=str(tmp_path / "base"), epochs=6,
        batch=4, learning_rate=3e-3, lora=("q_proj", "v_proj"),
    )  # fmt: skip
    losses = [row["loss"] for row in history(out)]
    assert losses[-1] < losses[0]
    assert assay.systems.loading.load(f"hf:{out}").processor is not None
    with pytest.raises(UsageError, match="micro_batch"):
        training.fine_tune(model, rows, tmp_path, Settings(micro_batch=2))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"batch": 0}, "batch=0"),
        ({"warmup": 1.5}, "warmup"),
        ({"dropout": 1.0}, "dropout"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"clip": math.inf}, "clip"),
    ],
)
def test_settings_out_of_range_are_refused(options, words):
    with pytest.raises(UsageError, match=words):
        Settings(**options)


def test_layers_that_are_not_there_are_refused_by_name():
    network = tiny_model().module()
    with pytest.raises(UsageError, match=r"there are: .*q_proj"):
        training.add_lora(network, Settings(lora=("qkv",)), torch.Generator())


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, "line 1: field 'messages'"),
        ({}, "line 1: field 'messages'"),
        ({"images": ["../../etc/passwd"]}, "line 1: field 'images' names passwd"),
        ({"images": ["images/none.png"]}, "line 1: field 'images' names none.png"),
    ],
)
def test_rows_out_of_form_are_refused_by_line(data, row, words):
    good = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "A"}]}
    (data / "sft.jsonl").write_text(json.dumps(({**good, **row}) if row else {}) + "\n")
    with pytest.raises(DataError, match=words):
        sft.read_rows(data)


def test_a_place_without_its_picture_is_refused(data):
    content = [{"type": "image"}, {"type": "text", "text": "x"}]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "A"}]
    (data / "sft.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    with pytest.raises(DataError, match="1 places for pictures"):
        sft.read_rows(data)
    (data / "sft.jsonl").write_text("")
    with pytest.raises(DataError, match="no rows"):
        sft.read_rows(data)


def test_a_sweep_writes_accuracy_against_size_as_table_and_figure(tmp_path):
    options = {"system": "method:random", "longest": (64, 16), "limit": 8}
    out = assay.make("asciieval.sweep", tmp_path / "sweep", **options)
    import polars as pl

    table = pl.read_csv(out / "resolution.csv")
    assert table["longest"].to_list() == [16, 64]
    assert table["n"].to_list() == [8, 8]
    assert (out / "resolution.svg").read_text().startswith("<svg")
    assert (out / "resolution.png").stat().st_size > 1000
    one = assay.open_run(out / "runs" / "longest-16")
    assert one.info["options"]["longest"] == 16
    expected = one.records.group_by("concept").agg(pl.col("correct").mean())["correct"].mean()
    assert table["macro"][0] == pytest.approx(expected, abs=1e-6)

    # More sizes join; the runs that stand are not made again.
    before = one.records["started"].to_list()
    assay.make("asciieval.sweep", out, **{**options, "longest": (16, 32, 64)})
    assert pl.read_csv(out / "resolution.csv")["longest"].to_list() == [16, 32, 64]
    assert assay.open_run(out / "runs" / "longest-16").records["started"].to_list() == before
    with pytest.raises(UsageError, match="other options"):
        assay.make("asciieval.sweep", out, **{**options, "limit": 9})


def test_a_sweep_over_scales(tmp_path):
    import polars as pl

    out = assay.make("asciieval.sweep", tmp_path / "s", system="method:random", scale=(0.25, 0.5), limit=4)
    assert pl.read_csv(out / "resolution.csv")["scale"].to_list() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"longest": (8, 16), "scale": (0.5, 1.0)}, "sweep one of them"),
        ({"longest": (8,)}, "two or more"),
        ({"longest": (8, 8)}, "two or more"),
        ({"scale": (0.0, 1.0)}, "above 0"),
        ({"modes": "text"}, "no picture"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        assay.make("asciieval.sweep", tmp_path / "s", system="method:random", **options)


@pytest.mark.slow
def test_smollm2_learns_from_two_steps(tmp_path):
    tuning.export(ITEMS[:1], tmp_path / "data")
    out = assay.make(
        "asciieval.train", tmp_path / "t", data=str(tmp_path / "data"), epochs=2, learning_rate=1e-3,
        lora=("q_proj", "v_proj"),
    )  # fmt: skip
    first, second = (row["loss"] for row in history(out))
    assert second < first
    assert assay.systems.loading.load(f"hf:{out}").tokenizer.chat_template
