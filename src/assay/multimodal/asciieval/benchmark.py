"""ASCIIEval: what does a drawing made of characters show? As text, as picture, as both (arXiv 2410.01733)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import DataError, DataFaults, UsageError, unknown_name
from assay.core.metrics import macro, mean, rate
from assay.multimodal.asciieval import prompts, scoring
from assay.systems.chat.model import ChatModel

if TYPE_CHECKING:
    from assay.core.context import Context
    from assay.multimodal.asciieval.data import Item, ItemSet
    from assay.multimodal.asciieval.rendering import RenderOptions

_ROOM = "assay.multimodal.asciieval"


class AsciiTask(Task):
    """One mode: every item shown as text, as picture or as both, and a letter read from the reply."""

    system = ChatModel

    def __init__(self, mode: prompts.Mode, benchmark: AsciiEval) -> None:
        self.name = mode
        self.mode: prompts.Mode = mode
        self.modalities = {"text": ("text",), "image": ("image",), "both": ("text", "image")}[mode]
        self.benchmark = benchmark

    @cached_property
    def items(self) -> Mapping[str, Item]:
        """Items by sample id, rotated ones among them."""
        turned = (item.rotated(by) for item in self.benchmark.items.items for by in range(self.benchmark.rotate))
        return {item.id: item for item in turned}

    def samples(self) -> Sequence[Sample]:
        """One sample an item and rotation; rotations of one item share its cluster."""
        return [
            Sample(key, input=key, target=item.letter, groups=self._groups(item), cluster=key.partition("~r")[0])
            for key, item in self.items.items()
        ]

    def _groups(self, item: Item) -> dict[str, str | int | float]:
        groups: dict[str, str | int | float] = {
            "class": item.klass,
            "group": item.group,
            "concept": item.key,
            "style": item.style,
            "lines": item.lines,
            "characters": item.characters,
            "line_bin": scoring.LINE_BINS[scoring.line_bin(item.lines)],
            "character_bin": scoring.CHARACTER_BINS[scoring.character_bin(item.characters)],
            "rotation": int(item.id.rpartition("~r")[2]) if "~r" in item.id else 0,
        }
        if self.mode != "text":
            groups |= self.benchmark.picture_groups(item)
        return groups

    async def trial(self, system: ChatModel, sample: Sample, ctx: Context) -> Outcome:
        """Ask; the output is the reply's text, or four probabilities."""
        bench, item = self.benchmark, self.items[sample.id]
        picture = None if self.mode == "text" else await bench.picture(item, ctx)
        art = None if self.mode == "image" else item.art
        messages = prompts.build(
            art, item.choices, self.mode, picture, image=bench.image_order, system=bench.system_prompt
        )
        if bench.answer == "probability":
            return await letter_probabilities(system, messages)
        reply = await system.generate(
            messages, max_tokens=bench.max_tokens, temperature=bench.temperature, seed=ctx.seed % 2**31
        )
        return Outcome(output=reply.text, groups={"stop_reason": reply.stop_reason})

    def score(self, sample: Sample, output: Any, ctx: Context) -> Outcome:
        """Read a letter by the chosen rule and compare."""
        choices = self.items[sample.id].choices
        letter, how = read_letter(output, choices, self.benchmark.answer)
        chosen = choices[scoring.LETTERS.index(letter)] if letter else "none"
        return Outcome(
            {"correct": float(letter == sample.target), "answered": float(letter is not None)},
            groups={"letter": letter or "none", "chosen": chosen, "read": how},
        )


async def letter_probabilities(system: Any, messages: Sequence[Mapping[str, Any]]) -> Outcome:
    """First-token probabilities of the four letters, from one forward pass where the system offers it."""
    from math import exp

    if hasattr(system, "choice_logprobs"):
        found = await system.choice_logprobs(messages, list(scoring.LETTERS))
        return Outcome(output={"probabilities": [exp(value) for value in found]}, groups={"stop_reason": "stop"})
    reply = await system.generate(messages, max_tokens=1, temperature=0.0, logprobs=20)
    if not reply.logprobs:
        raise UsageError(f"{system.name} gives no log-probabilities; use answer=robust or answer=compatible.")
    first = reply.logprobs[0]
    alternatives = {**first.top, first.token: first.logprob}
    found = [sum(exp(p) for token, p in alternatives.items() if token.strip() == letter) for letter in scoring.LETTERS]
    return Outcome(output={"probabilities": found}, groups={"stop_reason": reply.stop_reason})


def read_letter(output: Any, choices: Sequence[str], rule: str) -> tuple[str | None, str]:
    """(letter or None, how it was read) of a stored output.

    Probabilities are always read as such, so that a run by probability can be scored again under any rule.
    """
    if isinstance(output, Mapping):
        return scoring.letter_by_probability(output["probabilities"]), "probability"
    text = "None" if output is None else str(output)
    if rule == "probability":
        raise DataError(
            "This output is a text without probabilities; score it with answer=robust or answer=compatible."
        )
    if rule == "compatible":
        letter = scoring.letter_compatible(text, choices)
        return letter, "compatible" if letter else "unread"
    reading = scoring.letter_robust(text, choices)
    return reading.value, reading.how if reading.value else "unread"


class AsciiEval(Benchmark):
    """Recognition of ASCII art in text, image and both.

    Parameters
    ----------
    data
        Items: nothing = the shipped drawings; a file or folder in the published layout; ``hf:ASCIIEval/ASCIIEval``.
    split
        ``test`` or ``train``: file of a folder.
    modes
        Some of ``text``, ``image``, ``both``, separated by commas.
    answer
        How a letter is read: ``robust``, ``compatible`` (the published rule) or ``probability`` (first token).
    rotate
        1 to 4: how many rotations of the choices every item is asked in.
    images
        ``render``, or ``files``: the published pictures of the data folder.
    image_order
        Whether the picture stands ``first`` or ``last`` in the message.
    scale, longest, truncate
        Of the picture; see `rendering.RenderOptions`.
    temperature, max_tokens
        Of the request. Published: 0 for providers, 1 for models run locally; 1024 tokens.
    system_prompt
        A system message for text mode.
    """

    name = "asciieval"
    title = "ASCIIEval: recognising ASCII art as text, as image, as both"
    paper = "arXiv:2410.01733"
    extras = ("asciieval",)
    references = "references.json"
    metrics = (
        macro("correct", over="concept", name="macro_accuracy", headline=True, bounds=(0, 1), by="task"),
        mean("correct", name="micro_accuracy", bounds=(0, 1), by="task"),
        mean("answered", name="answer_rate", bounds=(0, 1)),
        rate("letter", "none", name="unread_rate", higher_is_better=False),
    )
    analyses = {
        "categories": f"{_ROOM}.analyses:categories",
        "lengths": f"{_ROOM}.analyses:lengths",
        "length_regression": f"{_ROOM}.analyses:length_regression",
        "modalities": f"{_ROOM}.analyses:modalities",
        "modality_tests": f"{_ROOM}.analyses:modality_tests",
        "models": f"{_ROOM}.analyses:models",
        "positions": f"{_ROOM}.analyses:positions",
        "rotations": f"{_ROOM}.analyses:rotations",
        "confusions": f"{_ROOM}.analyses:confusions",
        "resolution": f"{_ROOM}.analyses:resolution",
        "reading": f"{_ROOM}.analyses:reading",
        "leaderboard": f"{_ROOM}.boards:leaderboard",
        "people": f"{_ROOM}.boards:people",
    }
    recipes = {
        "shipped": f"{_ROOM}.recipes:shipped",
        "generated": f"{_ROOM}.recipes:generated",
        "items": f"{_ROOM}.recipes:items",
        "review": f"{_ROOM}.recipes:review",
        "images": f"{_ROOM}.recipes:images",
        "describe": f"{_ROOM}.recipes:describe",
        "tune": f"{_ROOM}.recipes:tune",
        "train": f"{_ROOM}.recipes:train",
        "sweep": f"{_ROOM}.recipes:sweep",
        "reproduce": f"{_ROOM}.reproduce:reproduce",
    }

    def __init__(
        self,
        data: str | None = None,
        *,
        split: str = "test",
        modes: str = "text,image,both",
        answer: str = "robust",
        rotate: int = 1,
        images: Literal["render", "files"] = "render",
        image_order: Literal["first", "last"] = "last",
        scale: float = 1.0,
        longest: int | None = None,
        truncate: bool = True,
        temperature: float = 0.0,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
    ) -> None:
        names: list[prompts.Mode] = [prompts.mode_named(name.strip()) for name in modes.split(",") if name.strip()]
        if not names:
            raise UsageError("Option modes is empty; give some of text, image, both.")
        if answer not in scoring.RULES:
            raise unknown_name("answer rule", answer, scoring.RULES)
        if not 1 <= rotate <= len(scoring.LETTERS):
            raise UsageError(f"Option rotate={rotate} is not in 1 to 4: there are four choices to rotate.")
        if images not in ("render", "files"):
            raise unknown_name("value of option images", images, ("render", "files"))
        if image_order not in ("first", "last"):
            raise unknown_name("value of option image_order", image_order, ("first", "last"))
        prompts.check_size(scale, longest)
        if not temperature >= 0:
            raise UsageError(f"Option temperature={temperature} is below 0; 0 takes the likeliest token.")
        if max_tokens < 1:
            raise UsageError(f"Option max_tokens={max_tokens} leaves no room for an answer; give 1 or more.")
        if data is None and split != "test":
            raise UsageError(f"Option split={split} needs data=: the shipped drawings are a test set only.")
        self.source, self.split = data, split
        self.modes: tuple[prompts.Mode, ...] = tuple(sorted(set(names), key=names.index))
        self.answer, self.rotate = answer, rotate
        self.images = images
        self.image_order: Literal["first", "last"] = image_order
        self.scale, self.longest, self.truncate = scale, longest, truncate
        self.temperature, self.max_tokens, self.system_prompt = temperature, max_tokens, system_prompt
        self._pictures: dict[str, bytes] = {}

    @cached_property
    def items(self) -> ItemSet:
        """The items in use."""
        from assay.multimodal.asciieval.data import load

        return load(self.source, self.split)

    @cached_property
    def render_options(self) -> RenderOptions:
        """How pictures are drawn; a drawing without ink is refused rather than sent as a white canvas."""
        from assay.multimodal.asciieval.rendering import RenderOptions

        return RenderOptions(scale=self.scale, longest=self.longest, truncate=self.truncate, blank="error")

    def tasks(self) -> Sequence[Task]:
        """One task a mode, over the same sample ids."""
        return [AsciiTask(mode, self) for mode in self.modes]

    def picture_groups(self, item: Item) -> dict[str, str | int | float]:
        """Strata that only a picture has: what it lost, and its resolution."""
        from assay.multimodal.asciieval.rendering import truncated

        cut = self.truncate and self.images == "render" and truncated(item.art, self.render_options)
        return {"truncated": "yes" if cut else "no", "scale": self.scale, "longest": self.longest or 0}

    async def picture(self, item: Item, ctx: Context) -> bytes:
        """PNG of an item, rendered in a worker process and kept: modes, rotations and attempts share it."""
        key = item.id.partition("~r")[0]
        if key not in self._pictures:
            if self.images == "files":
                self._pictures[key] = self.items.picture(item)
            else:
                from assay.multimodal.asciieval.rendering import png

                self._pictures[key] = await ctx.compute(png, item.art, self.render_options)
        return self._pictures[key]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """Guessing, people at the terminal, and recognisers trained on drawings that the shipped items do not hold."""
        from assay.multimodal.asciieval import methods

        return methods.METHODS

    def read(self, path: Path) -> Iterable[tuple[str, str, int, Outcome]]:
        """Published predictions: JSON lines ``{"pred": text, "label": letter}`` in the order of the items.

        A folder holds one file a mode (``text.jsonl``, ``image.jsonl``, ``both.jsonl``, or the published mode names);
        a single file needs ``modes=`` with one mode.
        """
        for mode, file in self._prediction_files(path):
            yield from self._predictions(mode, file)

    def _prediction_files(self, path: Path) -> list[tuple[str, Path]]:
        if path.is_file():
            if len(self.modes) != 1:
                raise UsageError(f"{path} is one file for modes {', '.join(self.modes)}; say which: -o modes=text.")
            return [(self.modes[0], path)]
        names = {**prompts.PUBLISHED_MODES, **{mode: mode for mode in prompts.MODES}}
        found: dict[str, Path] = {}
        for name, mode in names.items():
            file = path / f"{name}.jsonl"
            if mode in self.modes and file.is_file():
                if mode in found:
                    raise UsageError(f"{path} holds two files for mode {mode}: {found[mode].name} and {file.name}.")
                found[mode] = file
        if not found:
            raise UsageError(f"Folder {path} holds none of text.jsonl, image.jsonl, both.jsonl.")
        return list(found.items())

    def _predictions(self, mode: str, file: Path) -> Iterable[tuple[str, str, int, Outcome]]:
        from assay.core.datasets import read_jsonl

        items = self.items.items
        count, faults = 0, []
        for count, (line, row) in enumerate(read_jsonl(file), 1):
            if count > len(items):
                faults.append(f"{file}, line {line}: more predictions than the {len(items)} items; wrong data set?")
                break
            item = items[count - 1]
            if not isinstance(row, Mapping) or not isinstance(row.get("pred"), str):
                shown = json.dumps(row, ensure_ascii=False)[:80]
                faults.append(f"{file}, line {line}: field 'pred' must be the reply as text, not {shown}.")
            elif row.get("label") not in (None, item.letter):
                faults.append(
                    f"{file}, line {line}: field 'label' is {row['label']!r}, but item {item.id} has {item.letter!r}; "
                    "predictions stand in the order of the items."
                )
            else:
                yield mode, item.id, 0, Outcome(output=row["pred"])
        if count < len(items):
            faults.append(f"{file} holds {count} predictions for {len(items)} items; every item needs one.")
        if faults:
            raise DataFaults(faults)

    def data(self) -> Mapping[str, Any]:
        """Provenance of the items in use."""
        return self.items.provenance
