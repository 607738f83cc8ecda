"""What batches, first-token scoring and kept prefixes are worth on the packaged SmolLM2.

    python perf/local_lm.py [--items 48] [--dtype float32] [--repeats 3]

Items are multiple-choice questions of varied length behind one system prompt. Printed: items a second of processor time
(ratios are of these, so that a busy machine does not blur them) and of wall time, medians of the repeats, of (a)
transformers' own ``generate``, one item at a time, as the peer; (b) generation here, one at a time and in batches of
16; (c) letters scored by the probabilities of the first token, one at a time and in batches; (d) scores
of longer texts, one plain forward pass a text against one pass an item.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from assay.systems.hf_model import HFModel
from assay.systems.lm import load_local

NEW_TOKENS = 24
LETTERS = ["A", "B", "C", "D"]
TEXTS = [
    "a large sailing boat",
    "a small wooden house",
    "a sleeping grey cat",
    "a cup of hot tea",
    "an old steam train",
]


def questions(count: int) -> list[list[dict[str, str]]]:
    rules = "You judge drawings made of characters. " * 6
    return [
        [
            {"role": "system", "content": rules},
            {"role": "user", "content": f"{'|__/ ' * (5 + i % 9 * 4)}\nWhat is drawn, A, B, C or D? (item {i})"},
        ]
        for i in range(count)
    ]


async def one_by_one(ask: Callable[[Any], Any], items: Sequence[Any]) -> None:
    for item in items:
        await ask(item)


async def together(ask: Callable[[Any], Any], items: Sequence[Any]) -> None:
    await asyncio.gather(*(ask(item) for item in items))


def peer_generate(model: HFModel, items: Sequence[Any]) -> None:
    network: Any = model.module()
    torch.set_num_threads(1)
    for item in items:
        ids: Any = model.tokenizer.apply_chat_template(
            item, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        network.generate(**ids, max_new_tokens=NEW_TOKENS, do_sample=False)


def peer_score(model: HFModel, items: Sequence[Any]) -> None:
    """One plain forward pass a text: what scorers without a shared prefix do."""
    network: Any = model.module()
    torch.set_num_threads(1)
    for item in items:
        prompt = str(model.tokenizer.apply_chat_template(item, add_generation_prompt=True, tokenize=False))
        for text in TEXTS:
            ids = torch.tensor([model.tokenizer(prompt + text, add_special_tokens=False)["input_ids"]])
            with torch.inference_mode():
                network(input_ids=ids).logits.log_softmax(dim=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    start = time.perf_counter()
    model = load_local(dtype=options.dtype)
    print(f"loaded in {time.perf_counter() - start:.1f} s; {model.describe()['dtype']}, one thread")
    items = questions(options.items)
    few = items[: max(4, options.items // 6)]

    async def generate(item: Any) -> None:
        await model.generate(item, max_tokens=NEW_TOKENS)

    async def letters(item: Any) -> None:
        await model.choice_logprobs(item, LETTERS)

    async def texts(item: Any) -> None:
        await model.choice_logprobs(item, TEXTS)

    cases: dict[str, tuple[Sequence[Any], Callable[[Sequence[Any]], Any]]] = {
        "transformers generate, one at a time": (few, lambda x: peer_generate(model, x)),
        "generate, one at a time": (few, lambda x: asyncio.run(one_by_one(generate, x))),
        "generate, batches of 16": (items, lambda x: asyncio.run(together(generate, x))),
        "letters, one at a time": (few, lambda x: asyncio.run(one_by_one(letters, x))),
        "letters, batches of 16": (items, lambda x: asyncio.run(together(letters, x))),
        "5 texts, a plain pass each": (few, lambda x: peer_score(model, x)),
        "5 texts, one pass an item": (items, lambda x: asyncio.run(together(texts, x))),
    }
    rates: dict[str, float] = {}
    for name, (asked, work) in cases.items():
        work(asked[:2])
        seconds = []
        for _ in range(options.repeats):
            model.module()  # forget kept prefixes, so that each repeat does the same work
            wall, start = time.perf_counter(), time.process_time()
            work(asked)
            seconds.append((time.process_time() - start, time.perf_counter() - wall))
        cpu, wall = (statistics.median(values) for values in zip(*seconds, strict=True))
        rates[name] = len(asked) / cpu
        print(f"{name:40} {rates[name]:7.2f} items a CPU second, {len(asked) / wall:7.2f} items/s")
    for over, under in (
        ("generate, batches of 16", "transformers generate, one at a time"),
        ("generate, batches of 16", "generate, one at a time"),
        ("letters, batches of 16", "letters, one at a time"),
        ("letters, batches of 16", "generate, batches of 16"),
        ("letters, one at a time", "generate, one at a time"),
        ("5 texts, one pass an item", "5 texts, a plain pass each"),
    ):
        print(f"{over} / {under}: {rates[over] / rates[under]:.1f}x")


if __name__ == "__main__":
    main()
