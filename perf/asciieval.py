"""Rendering beside a plain reading of the published renderer, and letters by probability beside generation.

python perf/asciieval.py                 # rendering: same pixels, how many times faster
python perf/asciieval.py --local smollm2 # and letter scoring with a model of this machine
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time

from PIL import Image, ImageDraw

from assay.multimodal.asciieval import data, rendering


def plain_render(art: str) -> Image.Image:
    """Picture by the definition: a large canvas, a line at a time, and a look at every pixel for the crop."""
    width, height = 1600, 1200
    font = rendering.open_font()
    canvas = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(canvas)
    step = font.getbbox("A")[3] + 2
    for number, line in enumerate(art.split("\n")):
        pen.text((10, number * step), line, font=font, fill="black")
    pixels = canvas.load()
    left = top = right = bottom = None
    for y in range(height):
        for x in range(width):
            if pixels[x, y] != (255, 255, 255):  # type: ignore[index]
                top = y if top is None else top
                bottom = y
                left = x if left is None else min(left, x)
                right = x if right is None else max(right, x)
    if left is None or top is None or right is None or bottom is None:
        return canvas
    return canvas.crop((max(0, left - 10), max(0, top - 10), min(width, right + 10), min(height, bottom + 10)))


def rendering_side_by_side(count: int) -> bool:
    """Time both renderers on shipped drawings; True if every picture is the same."""
    items = data.load().items
    arts = [item.art for item in items[:: max(1, len(items) // count)]][:count]
    rendering.render(arts[0])
    plain, fast, same = [], [], 0
    for art in arts:
        start = time.perf_counter()
        expected = plain_render(art)
        middle = time.perf_counter()
        picture = rendering.render(art)
        plain.append(middle - start)
        fast.append(time.perf_counter() - middle)
        same += picture.size == expected.size and picture.tobytes() == expected.tobytes()
    ratio = sum(plain) / sum(fast)
    print(
        f"rendering, {len(arts)} drawings: plain {statistics.mean(plain) * 1e3:.0f} ms, assay "
        f"{statistics.mean(fast) * 1e3:.2f} ms a drawing, {ratio:.0f}x; identical pixels {same}/{len(arts)}"
    )
    start = time.perf_counter()
    for item in items:
        rendering.png(item.art)
    seconds = time.perf_counter() - start
    each = seconds / len(items) * 1e3
    print(f"rendering and encoding {len(items)} drawings as PNG: {seconds:.2f} s ({each:.2f} ms each)")
    return same == len(arts)


async def letters_side_by_side(name: str, count: int, tokens: int) -> None:
    """Time letters by one forward pass and by generation, and compare the letters."""
    from assay.multimodal.asciieval import prompts, scoring
    from assay.systems.loading import load

    system = load(f"local:{name}")
    items = sorted(data.load().items, key=lambda item: len(item.art))[:count]
    asked = [prompts.build(item.art, item.choices, "text") for item in items]
    await system.choice_logprobs(asked[0], scoring.LETTERS)

    start = time.perf_counter()
    scores = await asyncio.gather(*(system.choice_logprobs(messages, scoring.LETTERS) for messages in asked))
    by_pass = time.perf_counter() - start
    start = time.perf_counter()
    replies = await asyncio.gather(*(system.generate(m, max_tokens=tokens, temperature=0.0) for m in asked))
    by_text = time.perf_counter() - start

    same = read = 0
    for item, score, reply in zip(items, scores, replies):
        letter = scoring.letter_robust(reply.text, item.choices).value
        read += letter is not None
        same += letter == scoring.LETTERS[max(range(4), key=score.__getitem__)]
    print(
        f"letters of {name}, {count} items: by probability {count / by_pass:.2f}/s, by {tokens} generated tokens "
        f"{count / by_text:.2f}/s, {by_text / by_pass:.1f}x; same letter {same} of {read} read replies"
    )


def main() -> int:
    """Run the comparisons; exit code 1 if a picture differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drawings", type=int, default=12)
    parser.add_argument("--local", help="a local model, such as smollm2")
    parser.add_argument("--items", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=1024)
    given = parser.parse_args()
    same = rendering_side_by_side(given.drawings)
    if given.local:
        asyncio.run(letters_side_by_side(given.local, given.items, given.tokens))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
