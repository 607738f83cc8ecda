"""Local models that read images: through the processor, one request at a time, same rules as for text."""

from __future__ import annotations

import asyncio
import base64
import io

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")

from tiny_lm import SIZES, tiny_tokenizer  # noqa: E402

from assay.core.errors import UsageError  # noqa: E402
from assay.systems.hf_model import HFModel  # noqa: E402

TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for p in m['content'] %}{% if p['type'] == 'image' %}<image>{% else %}{{ p['text'] }}{% endif %}{% endfor %}"
    "{% endif %}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def llava():
    from transformers import (
        CLIPImageProcessorPil,
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    tokenizer = tiny_tokenizer(TEMPLATE)
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
        network = LlavaForConditionalGeneration(config)
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}),
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        chat_template=TEMPLATE,
        num_additional_image_tokens=1,
    )
    return HFModel("tiny:llava", network, tokenizer, processor=processor)


def picture(colour):
    buffer = io.BytesIO()
    Image.new("RGB", (28, 28), colour).save(buffer, "PNG")
    url = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def ask(model, colour, **options):
    message = {"role": "user", "content": [picture(colour), {"type": "text", "text": "what?"}]}
    return asyncio.run(model.generate([message], max_tokens=6, **options))


def test_the_picture_reaches_the_model(llava):
    red, blue = ask(llava, "red", logprobs=2), ask(llava, "blue", logprobs=2)
    assert red.text != blue.text
    assert red.text == ask(llava, "red").text
    assert red.usage.completion_tokens == len(red.logprobs) == 6
    assert red.logprobs[0].logprob == max(red.logprobs[0].top.values())
    assert red.stop_reason == "length"


def test_seeds_make_replies_and_leave_the_global_generator_alone(llava):
    state = torch.random.get_rng_state()
    one, two = (ask(llava, "red", temperature=1.0, n=2, seed=3) for _ in range(2))
    assert [c.text for c in one.choices] == [c.text for c in two.choices]
    assert one.choices[0].text != one.choices[1].text
    assert ask(llava, "red", temperature=1.0).text != ask(llava, "red", temperature=1.0).text
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_stop_string_cuts(llava):
    free = ask(llava, "red").text
    reply = ask(llava, "red", stop=[free[2:4]])
    assert reply.text == free[: free.index(free[2:4])]
    assert reply.stop_reason == "stop"


def test_text_alone_goes_the_fast_way(llava):
    reply = asyncio.run(llava.generate([{"role": "user", "content": "text"}], max_tokens=3))
    assert reply.usage.completion_tokens == 3


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://example.org/x.png", "data:...;base64 URL"),
        ("data:image/png;base64,AAAA", "no picture"),
        ("data:image/png;base64,%%", "no picture"),
    ],
)
def test_only_pictures_in_the_request_are_read(llava, url, message):
    content = [{"type": "image_url", "image_url": {"url": url}}]
    with pytest.raises(UsageError, match=message):
        asyncio.run(llava.generate([{"role": "user", "content": content}]))


def test_choices_behind_a_picture_are_refused(llava):
    with pytest.raises(UsageError, match="text only"):
        asyncio.run(llava.choice_logprobs([{"role": "user", "content": [picture("red")]}], ["A", "B"]))
