"""ASCIIEvalTask: the benchmark in the shape that lm-evaluation-harness, lmms-eval and VLMEvalKit users know.

Neither of them is imported: hand the methods to their task classes, or call them yourself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assay.core.errors import UsageError, unknown_name
from assay.multimodal.asciieval import prompts, scoring
from assay.multimodal.asciieval.data import item_from_row, load

if TYPE_CHECKING:
    from PIL import Image

    from assay.multimodal.asciieval.rendering import RenderOptions


class ASCIIEvalTask:
    """One mode of the benchmark as a harness task.

    A doc is a row in the published layout (``ascii_art``, ``choices``, ``labels``, ``category-1`` ...), of
    `test_docs` or of the hub's data set. The questions and the scores are those of ``assay run asciieval``.

    Parameters
    ----------
    mode
        ``text``, ``image`` or ``both``, or a published name of it.
    data, split
        Items, as in ``assay run asciieval -o data=``; None = the shipped ones.
    answer
        ``robust`` or ``compatible``: how a letter is read from a text.
    image_mark
        What stands before the question for a picture (``<image>`` in lm-evaluation-harness); empty where the harness
        sets its own.
    options
        How pictures are drawn; None = as published.
    """

    VERSION = 1
    OUTPUT_TYPE = "generate_until"

    def __init__(
        self,
        mode: str = "text",
        *,
        data: str | None = None,
        split: str = "test",
        answer: str = "robust",
        image_mark: str = "",
        options: RenderOptions | None = None,
    ) -> None:
        if answer not in ("robust", "compatible"):
            raise unknown_name("answer rule", answer, ("robust", "compatible"))
        self.mode: prompts.Mode = prompts.mode_named(mode)
        self.task_name = f"asciieval_{self.mode}"
        self.source, self.split = data, split
        self.answer, self.image_mark, self.options = answer, image_mark, options

    def has_training_docs(self) -> bool:
        """No: ASCIITune is a data set of its own."""
        return False

    def has_validation_docs(self) -> bool:
        """No."""
        return False

    def has_test_docs(self) -> bool:
        """Yes."""
        return True

    def test_docs(self) -> Iterator[dict[str, Any]]:
        """Items as rows in the published layout."""
        return (item.row() for item in load(self.source, self.split).items)

    def doc_to_text(self, doc: Mapping[str, Any]) -> str:
        """The question; the drawing stands in it unless the mode is ``image``."""
        item = item_from_row(doc, "doc")
        text = prompts.text_part(item.art, item.choices, self.mode)
        return text if self.mode == "text" or not self.image_mark else f"{self.image_mark}\n{text}"

    def doc_to_visual(self, doc: Mapping[str, Any]) -> list[Image.Image]:
        """The picture in a list (lmms-eval, ``doc_to_image`` of lm-evaluation-harness); empty in text mode."""
        if self.mode == "text":
            return []
        from assay.multimodal.asciieval.rendering import RenderOptions, render

        return [render(item_from_row(doc, "doc").art, self.options or RenderOptions(blank="error"))]

    def doc_to_choice(self, doc: Mapping[str, Any]) -> list[str]:
        """The four letters, whose likelihoods a harness may ask for instead of a text."""
        return list(scoring.LETTERS)

    def doc_to_target(self, doc: Mapping[str, Any]) -> str:
        """Letter of the right choice."""
        return item_from_row(doc, "doc").letter

    def process_results(self, doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Any]:
        """What one doc adds to each metric.

        Parameters
        ----------
        results
            The reply in a list (``generate_until``), or four log-likelihoods of the letters, bare or as the harness's
            pairs (log-likelihood, is greedy) (``multiple_choice``).

        Returns
        -------
        dict
            ``macro_acc``: (concept key, 1.0 or 0.0); ``micro_acc``: 1.0 or 0.0; ``answer_rate``: whether a letter could
            be read.
        """
        item = item_from_row(doc, "doc")
        if len(results) == 1 and isinstance(results[0], str):
            if self.answer == "compatible":
                letter = scoring.letter_compatible(results[0], item.choices)
            else:
                letter = scoring.letter_robust(results[0], item.choices).value
        else:
            letter = scoring.letter_by_probability(_likelihoods(results))
        right = float(letter == item.letter)
        return {"macro_acc": (item.key, right), "micro_acc": right, "answer_rate": float(letter is not None)}

    def aggregation(self) -> dict[str, Callable[[Sequence[Any]], float]]:
        """How a metric's parts become one number in [0, 1]."""
        return {"macro_acc": macro_accuracy, "micro_acc": _mean, "answer_rate": _mean}

    def higher_is_better(self) -> dict[str, bool]:
        """More is better, for all three."""
        return dict.fromkeys(self.aggregation(), True)


def macro_accuracy(parts: Sequence[tuple[str, float]]) -> float:
    """Mean over concepts of the mean inside; ``parts`` are (concept key, score). NaN without any."""
    by_concept: dict[str, list[float]] = {}
    for concept, score in parts:
        by_concept.setdefault(concept, []).append(score)
    return _mean([_mean(scores) for scores in by_concept.values()])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _likelihoods(results: Sequence[Any]) -> list[float]:
    """Likelihoods relative to the largest, so that long drawings' tiny ones do not all become 0."""
    logs = [result[0] if isinstance(result, (tuple, list)) else result for result in results]
    if not logs or not all(isinstance(value, (int, float)) for value in logs):
        raise UsageError(f"Results must be one reply or {len(scoring.LETTERS)} log-likelihoods, not {results!r:.120}.")
    best = max(logs)
    return [0.0 if best == -math.inf else math.exp(value - best) for value in logs]
