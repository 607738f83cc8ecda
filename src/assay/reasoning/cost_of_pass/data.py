"""The six data sets: what each is, where its files are read from, and how a row becomes a problem.

Two-digit addition is made here. The other five are read from files that the user has (their texts are not assay's to
pass on): a folder as `datasets` saves it, or JSON lines, Parquet, Arrow or CSV files as their sources publish them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay.core.datasets import hub, read_jsonl, read_table
from assay.core.datasets.readers import saved_files, saved_splits
from assay.core.errors import DataError, UsageError, unknown_name
from assay.reasoning.cost_of_pass.sampling import published_sample

Form = Literal["number", "letter", "expression", "text"]
Row = Mapping[str, Any]
SUFFIXES = (".jsonl", ".json", ".parquet", ".arrow", ".csv")


@dataclass(frozen=True, slots=True)
class Problem:
    """One question with its answer.

    Attributes
    ----------
    id
        From the source; stable across releases.
    position
        Place in the whole data set: ``input_idx`` of the published records.
    """

    id: str
    question: str
    target: str
    position: int = 0
    groups: Mapping[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataSet:
    """One of the six.

    Attributes
    ----------
    name, published
        Name here, and in the published records.
    category
        basic quantitative, knowledge, or complex quantitative.
    compare
        Comparator, see `scoring.COMPARATORS`.
    form
        What an answer looks like; the prompt says so.
    read
        Problem of a row: ``f(row) -> (id, question, target, groups)``.
    source, licence
        Where it comes from, and on what terms.
    part
        Word in the names of the right files, where a folder holds several splits.
    """

    name: str
    published: str
    category: str
    compare: str
    form: Form
    read: Callable[[Row], tuple[str, str, str, dict[str, Any]]]
    source: str
    licence: str
    part: str | None = None

    @property
    def hub(self) -> str | None:
        """Name on the Hugging Face hub."""
        head = self.source.split(" ")[0]
        return head if head.startswith("hf:") else None


def digest(text: str) -> str:
    """Twelve hexadecimal digits of a text: an id for sources that number nothing."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _text(row: Row, name: str) -> str:
    """Field as text.

    Raises
    ------
    KeyError
        The row lacks it.
    ValueError
        It is neither a text nor a number: "None" or "[1, 2]" would be asked, or matched, in earnest.
    """
    value = row[name]
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or value != value:
        raise ValueError(f"field {name!r} is {'empty' if value is None else repr(value)[:80]}, not a text or number")
    return str(value)


def _prepared(row: Row) -> tuple[str, str, str, dict[str, Any]]:
    """Row with input and target, as the published tasks prepare them."""
    question, target = _text(row, "input"), _text(row, "target")
    return str(row.get("id") or digest(question)), question, target, {}


def _addition(row: Row) -> tuple[str, str, str, dict[str, Any]]:
    question = _text(row, "input")
    numbers = [word for word in question.replace("?", " ").split() if word.isdigit()]
    return "+".join(numbers) or digest(question), question, _text(row, "target"), {}


def _gsm8k(row: Row) -> tuple[str, str, str, dict[str, Any]]:
    if "input" in row:
        return _prepared(row)
    question, answer = _text(row, "question"), _text(row, "answer")
    return digest(question), question, answer.rpartition("####")[2].strip().lower(), {}


def _math500(row: Row) -> tuple[str, str, str, dict[str, Any]]:
    if "input" in row:
        return _prepared(row)
    groups = {name: row[name] for name in ("subject", "level") if row.get(name) is not None}
    question = _text(row, "problem")
    return str(row.get("unique_id") or digest(question)), question, _text(row, "answer"), groups


def _aime(row: Row) -> tuple[str, str, str, dict[str, Any]]:
    if "input" in row:
        return _prepared(row)
    lower = {key.lower(): value for key, value in row.items()}
    question = _text(lower, "problem")
    return str(lower.get("id") or digest(question)), question, _text(lower, "answer"), {}


def _bbq(row: Row) -> tuple[str, str, str, dict[str, Any]]:
    names = ("context_condition", "question_polarity")
    groups = {name: row[name] for name in names if row.get(name) is not None}
    if "input" in row:
        key, question, target, _ = _prepared(row)
        return key, question, target, groups
    options = "\n".join(f"({letter}) {_text(row, f'ans{i}')}" for i, letter in enumerate("abc"))
    question = f"{_text(row, 'context')} {_text(row, 'question')}\n{options}"
    key = f"{row['category']}-{row['example_id']}" if "category" in row and "example_id" in row else digest(question)
    if row.get("category") is not None:
        groups["bias"] = row["category"]
    label = _text(row, "answer_label")
    if label not in ("0", "1", "2"):
        raise ValueError(f"field 'answer_label' is {label}, not 0, 1 or 2")
    return key, question, f"({'abc'[int(label)]})", groups


def _gpqa(row: Row) -> tuple[str, str, str, dict[str, Any]]:
    if "input" in row:
        return _prepared(row)
    question = _text(row, "Question").strip()
    right = _text(row, "Correct Answer").strip()
    options = [right, *(_text(row, f"Incorrect Answer {i}").strip() for i in (1, 2, 3))]
    if options.count(right) > 1:
        raise ValueError("the right answer stands among the wrong ones too")
    # The source states the right answer first; an order by content is fair and the same everywhere.
    options.sort(key=lambda option: digest(f"{question}\n{option}"))
    shown = "\n".join(f"({letter}) {option}" for letter, option in zip("ABCD", options, strict=True))
    key = str(row.get("Record ID") or digest(question))
    return key, f"{question}\n{shown}", f"({'ABCD'[options.index(right)]})", {}


BASIC, KNOWLEDGE, COMPLEX = "basic quantitative", "knowledge", "complex quantitative"
DATA_SETS: Mapping[str, DataSet] = {
    data_set.name: data_set
    for data_set in (
        DataSet("addition", "TwoDigitAddition", BASIC, "math", "number", _addition, "sums of two numbers",
        "Apache-2.0"), DataSet("gsm8k", "GSM8K", BASIC, "math", "number", _gsm8k, "hf:openai/gsm8k (main, test)", "MIT",
        "test"), DataSet("bbq", "BBQ", KNOWLEDGE, "letter", "letter", _bbq, "hf:Elfsong/BBQ (all splits)", "CC-BY-4.0"),
        DataSet(
            "gpqa_diamond", "GPQA_Diamond", KNOWLEDGE, "letter", "letter", _gpqa,
            "hf:Idavidrein/gpqa (gpqa_diamond; behind a form, not to be passed on)", "CC-BY-4.0", "diamond",
        ),
        DataSet(
            "math500", "MATH500", COMPLEX, "math", "expression", _math500, "hf:HuggingFaceH4/MATH-500 (test)", "MIT",
            "test",
        ),
        DataSet(
            "aime_2024", "AIME_2024", COMPLEX, "math", "number", _aime,
            "hf:HuggingFaceH4/aime_2024 (AIME 2024 I and II, 30 problems)", "MAA",
        ),
    )
}  # fmt: skip
PUBLISHED_PROBLEMS = 128
"""Problems that the paper samples from each data set; AIME has 30."""


def data_set(name: str) -> DataSet:
    """Data set by its name here or in the published records.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    found = DATA_SETS.get(name) or next((d for d in DATA_SETS.values() if d.published == name), None)
    if found is None:
        raise unknown_name("data set", name, DATA_SETS)
    return found


def addition(count: int = 250) -> list[Problem]:
    """Sums of two numbers from 0 to 99, different ones, in an order fixed by content: real, and made on the spot."""
    pairs = sorted(((a, b) for a in range(100) for b in range(100)), key=lambda pair: digest(f"{pair[0]}+{pair[1]}"))
    return [
        Problem(f"{a}+{b}", f"What is {a} + {b}?", str(a + b), position)
        for position, (a, b) in enumerate(pairs[:count])
    ]


def load(
    name: str,
    source: str | os.PathLike[str] | None = None,
    *,
    n: int | None = PUBLISHED_PROBLEMS,
    context_condition: str | None = None,
) -> list[Problem]:
    """Problems of a data set.

    Parameters
    ----------
    name
        See `data_set`.
    source
        Folder that holds a file or folder named after the data set (here or in the published records), or such a file
        itself; or ``hub``: fetched from the Hugging Face hub. None = made on the spot, which only addition can be.
    n
        Problems to sample by the published rule; None = all.
    context_condition
        BBQ only: ``ambig`` or ``disambig``.

    Raises
    ------
    UsageError
        No source for a data set that needs one; an unknown context condition.
    DataError
        A row that lacks a field, an empty question or target, one id twice: with file and line.
    """
    chosen = data_set(name)
    found = place(chosen, source)
    if found is None:
        if chosen.name != "addition":
            raise UsageError(
                f"Data set {chosen.name!r} ({chosen.source}) is not part of assay: put it as "
                f"{chosen.published}.jsonl (or "
                ".parquet, .arrow, .csv, or the folder that datasets.save_to_disk writes) into a folder and give it "
                "with data=FOLDER."
            )
        problems = addition()
    else:
        problems = _problems(chosen, found)
    if context_condition is not None:
        if chosen.name != "bbq":
            raise UsageError(f"Only bbq has context conditions; {chosen.name!r} has none.")
        problems = [p for p in problems if p.groups.get("context_condition") == context_condition]
        if not problems:
            raise UsageError(f"No BBQ problem is {context_condition!r}; context conditions are ambig and disambig.")
    if n is not None:
        problems = [problems[i] for i in published_sample(n, len(problems))]
    return problems


def place(chosen: DataSet, source: str | os.PathLike[str] | None) -> Path | None:
    """Where a data set lies: found in a folder, fetched from the hub, or None."""
    if source is None:
        return None
    if source == "hub":
        return hub(chosen.hub, licence=chosen.licence).path if chosen.hub else None
    return find(chosen, Path(source))


def find(chosen: DataSet, source: Path) -> Path | None:
    """File or folder of a data set below ``source``; None where there is none.

    Raises
    ------
    UsageError
        ``source`` does not exist.
    """
    if not source.exists():
        raise UsageError(f"Data folder {source} does not exist.")
    if source.is_file():
        return source if source.stem.lower() in (chosen.name, chosen.published.lower()) else None
    # The published package calls its shipped folder of sums by this third name.
    names = {chosen.name, chosen.published.lower()}
    if chosen.name == "addition":
        names.add("basic_two_digit_addition")
    if source.name.lower() in names:
        return source
    inside = sorted(p for p in source.iterdir() if (p.stem if p.is_file() else p.name).lower() in names)
    return next((p for p in inside if p.is_dir() or p.suffix in SUFFIXES), None)


def files(chosen: DataSet, found: Path) -> list[Path]:
    """Data files of a data set in order: of a saved folder what its state lists, else all, of the right split."""
    if found.is_file():
        return [found]
    splits = found / "dataset_dict.json"
    if splits.is_file():
        names = saved_splits(found)
        names = [name for name in names if chosen.part is None or name == chosen.part] or names
        return [path for name in names for path in files(chosen, found / name)]
    state = found / "state.json"
    if state.is_file():
        return saved_files(found)
    every = sorted(p for p in found.rglob("*") if p.suffix in SUFFIXES and "cache" not in p.name)
    right = [p for p in every if chosen.part and chosen.part in str(p.relative_to(found)).lower()]
    if not (right or every):
        raise DataError(f"{found}: no data file ({', '.join(SUFFIXES)}) of {chosen.name!r} here.")
    return right or every


def _problems(chosen: DataSet, found: Path) -> list[Problem]:
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for path in files(chosen, found):
        for where, row in rows(path):
            try:
                key, question, target, groups = chosen.read(row)
            except KeyError as error:
                raise DataError(
                    f"{where}: field {error.args[0]!r} is missing for {chosen.name!r}; the row has {', '.join(row)}."
                ) from None
            except ValueError as error:
                raise DataError(f"{where}: not a row of {chosen.name!r} ({error}).") from None
            for what, value in (("question", question), ("target", target)):
                if not value.strip():
                    raise DataError(f"{where}: the {what} is empty; an empty {what} can be neither asked nor matched.")
            if key in seen:
                raise DataError(f"{where}: id {key!r} stands at {seen[key]} already.")
            seen[key] = where
            problems.append(Problem(key, question, target, len(problems), groups))
    if not problems:
        raise DataError(f"{found}: no rows.")
    return problems


def rows(path: Path) -> Iterator[tuple[str, Row]]:
    """(place, row) of a data file."""
    if path.suffix == ".jsonl":
        for line, row in read_jsonl(path):
            yield f"{path}, line {line}", row
        return
    for line, row in enumerate(read_table(path).iter_rows(named=True), 1):
        yield f"{path}, row {line}", row


def fingerprint(problems: Sequence[Problem]) -> str:
    """Hash of ids, questions and targets in order."""
    state = hashlib.blake2b(digest_size=12)
    for problem in problems:
        state.update(json.dumps([problem.id, problem.question, problem.target]).encode())
    return state.hexdigest()


def custom_data_set(compare: str, form: Form, source: str) -> DataSet:
    """Data set of the user's own: rows with input, target and, if wanted, id."""
    return DataSet("custom", "custom", "custom", compare, form, _prepared, source, "the user's")


def read_problems(chosen: DataSet, path: Path) -> list[Problem]:
    """Problems of a file or folder; see `load` for errors."""
    if not path.exists():
        raise UsageError(f"Data file {path} does not exist.")
    return _problems(chosen, path)


def available(source: str | os.PathLike[str] | None) -> list[str]:
    """Data sets that can be had without asking: addition, and what a folder holds."""
    if source is None or source == "hub":
        return ["addition"]
    return [name for name, one in DATA_SETS.items() if name == "addition" or find(one, Path(source)) is not None]


def provenance(chosen: Sequence[DataSet], source: str | os.PathLike[str] | None) -> dict[str, Any]:
    """Kind, source and licence of data sets in use."""
    made = {one.name for one in chosen if one.name == "addition" and place(one, source) is None}
    return {
        "kind": "generated" if len(made) == len(chosen) else "real",
        "source": {one.name: "made by assay" if one.name in made else f"{source}: {one.source}" for one in chosen},
        "licence": {one.name: one.licence for one in chosen},
    }
