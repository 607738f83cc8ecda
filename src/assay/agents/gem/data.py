"""Environments on rows of data: mathematics, questions, programs, pictures, Reasoning Gym. One turn each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from assay.agents.gem.env import TERMINAL_STATE, Env, EnvError, Turn
from assay.agents.gem.grading import shared_grader
from assay.agents.gem.readers import exact_match, last_answer, last_block, last_box
from assay.agents.gem.sandboxes import shared_sandbox
from assay.core.datasets.readers import read_table, reason, shown
from assay.core.errors import DataError

FORMAT_ERROR_REWARD = -0.1
Order = Literal["random", "sequential"]


@lru_cache(maxsize=16)
def _table(source: str, split: str | None, _: int) -> tuple[dict[str, Any], ...]:
    from assay.core.datasets import hub

    path = Path(source).expanduser()
    if not path.exists() and not source.startswith(("/", ".", "~")) and source.removeprefix("hf:").count("/") == 1:
        path = hub(source).path or path
    if path.is_dir():
        path = table_folder(path)
    return tuple(read_table(path, split).to_dicts())


def table_folder(root: Path) -> Path:
    """Where the tables of a data set's snapshot are: at the top, or in its only folder that holds some."""

    def tables(folder: Path) -> bool:
        return any(
            file.suffix in (".parquet", ".jsonl", ".csv", ".arrow") for file in folder.iterdir() if file.is_file()
        )

    if tables(root):
        return root
    found = [folder for folder in sorted(root.iterdir()) if folder.is_dir() and tables(folder)]
    return found[0] if len(found) == 1 else root


def load_rows(
    source: str | Path | Sequence[Mapping[str, Any]], split: str | None = None
) -> Sequence[Mapping[str, Any]]:
    """Rows of a file, of a folder, of a data set on the hub (``ORG/NAME``), or the rows given.

    Parameters
    ----------
    split
        Which split; needed where there are several.

    Raises
    ------
    DataError
        There is no such data, or no rows.
    """
    if not isinstance(source, (str, Path)):
        rows: Sequence[Mapping[str, Any]] = source
    else:
        path = Path(source).expanduser()
        # A file is one split; the name of a split only chooses within a folder.
        stamp = path.stat().st_mtime_ns if path.exists() else 0
        rows = _table(str(source), None if path.is_file() else split, stamp)
    if not rows:
        raise DataError(f"{source if isinstance(source, (str, Path)) else 'The data'} holds no rows.")
    return rows


class DataEnv(Env):
    """A row of data a episode, one turn.

    Parameters
    ----------
    dataset_name
        ``ORG/NAME`` on the hub.
    split
        Which split of it.
    question_key, answer_key
        Fields of a row.
    data
        File, folder or rows to use instead of ``dataset_name``.
    order
        ``random``: without replacement, shuffled anew when all rows were seen. ``sequential``: ``reset(seed)`` takes
        row ``seed`` modulo their number and later resets go on from there, so that seeds count through the rows.
    instruction
        Sentence below every question; "" = none.
    """

    max_turns = 1
    saved = ("row", "position", "shuffle")
    default_instruction = ""

    def __init__(
        self,
        dataset_name: str | None = None,
        split: str | None = None,
        question_key: str = "problem",
        answer_key: str = "answer",
        *,
        data: str | Path | Sequence[Mapping[str, Any]] | None = None,
        order: Order = "random",
        instruction: str | None = None,
        strict_gymnasium: bool = False,
        seed_global: bool = False,
    ) -> None:
        super().__init__(strict_gymnasium=strict_gymnasium, seed_global=seed_global)
        if order not in ("random", "sequential"):
            raise EnvError(f"order is {order!r}; it must be random or sequential.")
        if data is None and dataset_name is None:
            raise EnvError(f"{type(self).__name__} needs data: a file, a folder, rows, or the name of a data set.")
        self.source = data if data is not None else dataset_name
        self.split = split
        self.question_key, self.answer_key = question_key, answer_key
        self.order = order
        self.instruction = self.default_instruction if instruction is None else instruction
        self.row = self.position = self.shuffle = -1
        self._rows: Sequence[Mapping[str, Any]] | None = None

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """All rows, loaded when first asked for."""
        if self._rows is None:
            assert self.source is not None
            self._rows = load_rows(self.source, self.split)
        return self._rows

    def __len__(self) -> int:
        return len(self.rows)

    def seed(self, seed: int) -> None:
        super().seed(seed)
        self.position = self.shuffle = -1
        if self.order == "sequential":
            self.position = int(seed) % len(self) - 1

    def begin(self) -> tuple[Any, dict[str, Any]]:
        count = len(self)
        self.position += 1
        if self.order == "random":
            if self.shuffle < 0 or self.position >= count:
                self.position, self.shuffle = 0, int(self.rng.integers(2**31))
            self.row = int(_shuffled(count, self.shuffle)[self.position])
        else:
            self.position %= count
            self.row = self.position
        row = self.rows[self.row]
        text = self.question(row)
        return (f"{text}\n{self.instruction}" if self.instruction else text), {"row": self.row}

    def field(self, row: Mapping[str, Any], name: str) -> Any:
        """A field of a row; the message names the row where it is missing."""
        if row.get(name) is None:
            fields = ", ".join(map(repr, row))
            raise DataError(f"{self.name}, row {self.row}: field {name!r} is missing or empty; there are {fields}.")
        return row[name]

    def question(self, row: Mapping[str, Any]) -> str:
        """The question of a row."""
        return str(self.field(row, self.question_key))

    def golds(self, row: Mapping[str, Any]) -> list[str]:
        """The answers of a row that are right."""
        answer = self.field(row, self.answer_key)
        golds = [str(item) for item in answer] if isinstance(answer, (list, tuple)) else [str(answer)]
        if not golds:
            raise DataError(f"{self.name}, row {self.row}: field {self.answer_key!r} holds no answer.")
        return golds

    def act(self, action: str) -> Turn:
        reward, info = self.judge(action, self.rows[self.row])
        info = {"correct": reward == 1.0, "solved": reward == 1.0, "row": self.row, **info}
        return Turn(TERMINAL_STATE, reward, True, info, also_truncated=True)

    def judge(self, action: str, row: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
        """Reward of an action on a row, and more for info."""
        raise NotImplementedError


@lru_cache(maxsize=32)
def _shuffled(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(count)


class MathEnv(DataEnv):
    """Reward 1 when the last box equals the answer, or any answer of a list; see `assay.core.answers.math_equal`.

    Parameters
    ----------
    format_reward
        Reward where there is no box; published: 0, or -0.1 as an option.
    seconds
        Time limit of the comparison.
    """

    default_instruction = "Reason step by step and put the final answer into \\boxed{}."

    def __init__(self, *args: Any, format_reward: float = 0.0, seconds: float = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.format_reward, self.seconds = format_reward, seconds

    def judge(self, action: str, row: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
        answer = last_box(action)
        if answer is None:
            return self.format_reward, {"how": "no box", "format_error": True}
        verdict = shared_grader().equal(self.golds(row), answer, seconds=self.seconds)
        return float(verdict.equal), {"how": verdict.how, "format_error": False}

    def random_action(self, rng: np.random.Generator) -> str:
        return f"\\boxed{{{int(rng.integers(100))}}}"


class MathVisualEnv(MathEnv):
    """Mathematics with pictures: an observation is ``{"text", "image", "images"}``, uint8 arrays (height, width, 3).

    Parameters
    ----------
    image_key
        Field with the pictures: file names relative to the data, bytes, or ``{"bytes", "path"}`` as the hub has it.
    """

    def __init__(self, *args: Any, image_key: str = "images", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.image_key = image_key

    def begin(self) -> tuple[dict[str, Any], dict[str, Any]]:
        text, info = super().begin()
        held = self.field(self.rows[self.row], self.image_key)
        images = [self._image(item) for item in (held if isinstance(held, (list, tuple)) else [held])]
        if not images:
            raise DataError(f"{self.name}, row {self.row}: field {self.image_key!r} holds no picture.")
        return {"text": text, "image": images[0], "images": images}, info

    def _image(self, item: Any) -> np.ndarray:
        import io

        from PIL import Image

        content = item.get("bytes") or item.get("path") if isinstance(item, Mapping) else item
        try:
            if isinstance(content, (bytes, bytearray)):
                picture = Image.open(io.BytesIO(content))
            else:
                root = Path(str(self.source)).expanduser()
                base = root if root.is_dir() else root.parent
                if not (base / str(content)).resolve().is_relative_to(base.resolve()):
                    raise DataError(f"the picture {str(content)[:80]!r} would lie outside the data")
                picture = Image.open(base / str(content))
            return np.asarray(picture.convert("RGB"))
        except Exception as error:  # Pillow documents no closed set of what a damaged picture raises
            raise DataError(f"{self.name}, row {self.row}: the picture cannot be read ({error}).") from error


class QaEnv(DataEnv):
    """Reward 1 when the last ``<answer>`` (or box) equals an answer after SQuAD's normalisation.

    Parameters
    ----------
    extract_boxed
        Read the last box instead of the last tag.
    """

    def __init__(self, *args: Any, extract_boxed: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.extract_boxed = extract_boxed
        if kwargs.get("instruction") is None:
            place = "into \\boxed{}" if extract_boxed else "between <answer> and </answer>"
            self.instruction = f"Put the final answer {place}."

    def judge(self, action: str, row: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
        answer = last_box(action) if self.extract_boxed else last_answer(action)
        if answer is None:
            return 0.0, {"format_error": True}
        return float(exact_match(answer, self.golds(row))), {"format_error": False}

    def random_action(self, rng: np.random.Generator) -> str:
        rows = self.rows
        answer = self.golds(rows[int(rng.integers(len(rows)))])[0]
        return f"\\boxed{{{answer}}}" if self.extract_boxed else f"<answer>{answer}</answer>"


class CodeEnv(DataEnv):
    """Reward 1 when the last code block passes the tests: standard input to standard output, in a sandbox.

    Parameters
    ----------
    test_key
        Field with ``{"inputs": [...], "outputs": [...]}`` as JSON text or as an object; inputs and outputs are texts or
        lists of lines.
    max_tests
        Only the tests with the longest inputs; None = all.
    seconds
        Processor time a test.
    sandbox
        Backend of `assay.sandbox.Sandbox`.
    """

    default_instruction = "Write a Python program that reads standard input and prints the answer, in one ``` block."

    def __init__(
        self,
        *args: Any,
        test_key: str = "tests",
        max_tests: int | None = 12,
        seconds: float = 5.0,
        sandbox: str = "auto",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.test_key, self.max_tests, self.seconds, self.sandbox = test_key, max_tests, seconds, sandbox

    def tests(self, row: Mapping[str, Any]) -> list[tuple[str, str]]:
        """(input, expected output) of the tests that are run."""
        held = self.field(row, self.test_key)
        where = f"{self.name}, row {self.row}: field {self.test_key!r}"
        if isinstance(held, str):
            try:
                held = json.loads(held)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where} is not JSON ({reason(error)}).") from error
        inputs, outputs = (held.get(name) if isinstance(held, Mapping) else None for name in ("inputs", "outputs"))
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs) or not inputs:
            raise DataError(f"{where} must hold as many inputs as outputs, one at least, not {shown(held)}.")
        pairs = [(_text(given), _text(expected)) for given, expected in zip(inputs, outputs)]
        if self.max_tests is not None and len(pairs) > self.max_tests:
            pairs = sorted(pairs, key=lambda pair: len(pair[0]), reverse=True)[: self.max_tests]
        return pairs

    def judge(self, action: str, row: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
        from assay.sandbox import Limits, SandboxError

        source = last_block(action)
        if source is None:
            return FORMAT_ERROR_REWARD, {"how": "no code block", "format_error": True}
        tests = self.tests(row)
        program = shared_sandbox(self.sandbox).python(source)
        limits = Limits(cpu_seconds=self.seconds)
        for number, (given, expected) in enumerate(tests):
            result = program.run(given.encode(), limits=limits)
            if result.status == "sandbox lost":
                # Nothing is known of the program: no verdict, and the trial is tried again.
                raise SandboxError(f"{self.name}: the sandbox was lost during a test ({result.reason}).")
            right = result.status == "ok" and _lines(result.stdout.decode("utf-8", "replace")) == _lines(expected)
            if not right:
                how = "wrong output" if result.status == "ok" else result.status
                return 0.0, {"how": how, "passed": number, "tests": len(tests), "format_error": False}
        return 1.0, {"how": "passed", "passed": len(tests), "tests": len(tests), "format_error": False}

    def random_action(self, rng: np.random.Generator) -> str:
        return f"```python\nprint({int(rng.integers(100))})\n```"


def _text(lines: Any) -> str:
    return "\n".join(map(str, lines)) if isinstance(lines, list) else str(lines)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]
