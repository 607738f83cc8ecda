"""Listening tests: people (``human:NAME``, ``human:``) or models that hear rate recordings; MOS, CMOS, SMOS, MUSHRA."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import UsageError, unknown_name
from assay.core.metrics import mean, rate
from assay.systems.chat.model import ChatModel

if TYPE_CHECKING:
    from assay.core.context import Context
    from assay.core.results import Runs
    from assay.core.table import Table

_ROOM = "assay.speech.ttsds2"
REFERENCE = "reference"
VOICES = "voices"
SCALES: Mapping[str, tuple[int, int, Mapping[str, str]]] = {
    "mos": (1, 5, {"1": "bad", "2": "poor", "3": "fair", "4": "good", "5": "excellent"}),
    "cmos": (-3, 3, {"-3": "much worse", "0": "the same", "3": "much better"}),
    "smos": (1, 5, {"1": "surely somebody else", "3": "hard to say", "5": "surely the same person"}),
    "mushra": (0, 100, {"0": "bad", "100": "excellent"}),
}
QUESTIONS: Mapping[str, str] = {
    "mos": "Listen to the recording. How natural does it sound, as speech?",
    "cmos": "Listen to both recordings. How natural is the second beside the first?",
    "smos": "Listen to both recordings, which say different things. Is it the same person who speaks?",
    "mushra": "The first recording is the reference. Rate the quality of each of the others beside it.",
}


class Listening(Task):
    """One kind of question about the recordings of all systems."""

    system = ChatModel
    modalities = ("text", "audio")

    def __init__(self, name: str, benchmark: ListeningTest) -> None:
        self.name = name
        self.benchmark = benchmark

    def samples(self) -> Sequence[Sample]:
        """A recording of a system; with MUSHRA an utterance of all systems."""
        bench = self.benchmark
        low, high, _ = SCALES[self.name]
        target = {"scale": self.name.upper(), "low": low, "high": high}
        if self.name == "mushra":
            shared = [u for u in bench.files[REFERENCE] if sum(u in bench.files[s] for s in bench.systems) > 1]
            return [Sample(u, {"utterance": u}, target, {"scale": "MUSHRA", "domain": bench.domain}, u) for u in shared]
        other = {"cmos": REFERENCE, "smos": VOICES}.get(self.name)
        found = []
        for system in (*bench.systems, REFERENCE) if self.name != "cmos" and bench.has(REFERENCE) else bench.systems:
            for utterance in bench.files[system]:
                if other is not None and utterance not in bench.files[other]:
                    continue
                # Which of the two comes first differs by sample, the same for everybody.
                flipped = self.name == "cmos" and hashlib.blake2b(f"{system}/{utterance}".encode()).digest()[0] % 2
                groups = {"speaker": system, "utterance": utterance, "scale": self.name.upper(),
                          "flipped": int(flipped), "domain": bench.domain}  # fmt: skip
                found.append(
                    Sample(
                        f"{system}/{utterance}", {"system": system, "utterance": utterance}, target, groups, utterance
                    )
                )
        return found

    def asked(self, sample: Sample) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, str]]:
        """Messages, response format, and which system stands behind each id that is rated."""
        from assay.systems import forms

        bench = self.benchmark
        low, high, labels = SCALES[self.name]
        utterance = sample.input["utterance"]
        if self.name == "mushra":
            order = [s for s in (*bench.systems, REFERENCE) if utterance in bench.files[s]]
            ids = {f"r{k + 1}": system for k, system in enumerate(sorted(order, key=lambda s: _digest(utterance, s)))}
            recordings = [bench.recording(REFERENCE, utterance), *(bench.recording(s, utterance) for s in ids.values())]
            items = [{"id": i, "label": f"Recording {k}", "part": k} for k, i in enumerate(ids, start=1)]
            form = forms.ratings(items, low, high, labels=dict(labels), reference=0, shuffle=True)
        elif self.name == "mos":
            ids = {"rating": sample.input["system"]}
            recordings = [bench.recording(sample.input["system"], utterance)]
            form = forms.rating(low, high, labels=dict(labels), part=0)
        else:
            ids = {"second": sample.input["system"]}
            pair = [(REFERENCE if self.name == "cmos" else VOICES), sample.input["system"]]
            if sample.groups["flipped"]:
                pair.reverse()
            recordings = [bench.recording(s, utterance) for s in pair]
            items = [{"id": "second", "label": "The second recording", "part": 1}]
            first = "The first recording"
            form = forms.ratings(items, low, high, labels=dict(labels), reference=0, reference_label=first)
        keys = '{"rating": n}' if self.name == "mos" else f'{{"ratings": {{{", ".join(f"{i!r}: n" for i in ids)}}}}}'
        rule = f"From {low} to {high}. Answer as JSON: {keys}".replace("'", '"')
        parts: list[dict[str, Any]] = [{"type": "text", "text": f"{QUESTIONS[self.name]}\n{rule}"}]
        parts += [
            {"type": "input_audio", "input_audio": {"data": base64.b64encode(d).decode(), "format": f}}
            for d, f in recordings
        ]
        return [{"role": "user", "content": parts}], forms.ruled(form, rule), ids

    async def trial(self, system: Any, sample: Sample, ctx: Context) -> Outcome:
        """Ask."""
        messages, form, _ = self.asked(sample)
        reply = await system.generate(messages, response_format=form, max_tokens=200)
        return Outcome(output=reply.text)

    async def score(self, sample: Sample, output: Any, ctx: Context) -> Outcome:
        """Read the rating; of a flipped pair its sign is turned round."""
        from assay.systems import forms

        _, form, ids = self.asked(sample)
        value = forms.read(form).read(str(output))
        if value is None:
            return Outcome({"rating": None}, groups={"read": "unread"})
        if self.name == "mos":
            return Outcome({"rating": value["rating"]}, groups={"read": "json"})
        given = value["ratings"]
        if self.name == "mushra":
            rows = [
                {"speaker": ids[i], "utterance": sample.input["utterance"], "value": float(v)} for i, v in given.items()
            ]
            return Outcome({"rating": sum(given.values()) / len(given)}, groups={"read": "json"}, rows=rows)
        sign = -1 if sample.groups["flipped"] else 1
        return Outcome({"rating": sign * given["second"]}, groups={"read": "json"})


class ListeningTest(Benchmark):
    """Recordings of several systems, rated by people or by models that hear.

    Parameters
    ----------
    folder
        A subfolder of recordings for each system; ``reference`` in it holds real ones under the same names (for CMOS
        and MUSHRA), ``voices`` the recordings whose voice was to be met (for SMOS). ``stand-in`` = tones.
    tests
        Of mos, cmos, smos, mushra, by comma; empty = all that the folder allows.
    domain
        Written into ratings.
    """

    name = "ttsds2-listening"
    title = "Listening tests of synthetic speech: MOS, CMOS, SMOS, MUSHRA"
    paper = "arXiv:2506.19441"
    extras = ("ttsds2",)
    metrics = (
        mean(
            "rating", name="mos", where={"scale": "MOS"}, by=("speaker",), bounds=(-3, 100), headline=True, error=None
        ),
        mean("rating", name="cmos", where={"scale": "CMOS"}, by=("speaker",), bounds=(-3, 100), error=None),
        mean("rating", name="smos", where={"scale": "SMOS"}, by=("speaker",), bounds=(-3, 100), error=None),
        rate("read", "unread", name="unread_rate", error=None, higher_is_better=False),
    )
    analyses = {"opinions": f"{_ROOM}.listening:opinions"}
    recipes = {"ratings": f"{_ROOM}.listening:export_ratings"}

    def __init__(self, folder: str = "stand-in", *, tests: str = "", domain: str = "all") -> None:
        self.folder, self.domain = folder, domain
        self.tests = [part.strip() for part in tests.split(",") if part.strip()]
        for name in self.tests:
            if name not in SCALES:
                raise unknown_name("listening test", name, SCALES)

    @cached_property
    def files(self) -> Mapping[str, Mapping[str, Path | int]]:
        """Recordings by system and utterance."""
        if self.folder == "stand-in":
            return {s: {f"u{u}": 10 * k + u for u in range(3)} for k, s in enumerate(("one", "two", REFERENCE, VOICES))}
        root = Path(self.folder).expanduser()
        if not root.is_dir():
            raise UsageError(f"There is no folder {root} of recordings.")
        found: dict[str, dict[str, Path | int]] = {REFERENCE: {}, VOICES: {}}
        for sub in sorted(p for p in root.iterdir() if p.is_dir()):
            found[sub.name] = {p.stem: p for p in sorted(sub.iterdir()) if p.suffix.lower() in _FORMATS}
        if not any(found[s] for s in found if s not in (REFERENCE, VOICES)):
            raise UsageError(f"{root} has no subfolder of recordings ({', '.join(_FORMATS)}) of a system.")
        return found

    @property
    def systems(self) -> list[str]:
        """Names of systems."""
        return [s for s in self.files if s not in (REFERENCE, VOICES)]

    def has(self, name: str) -> bool:
        """Whether there are recordings under this name."""
        return bool(self.files[name])

    def recording(self, system: str, utterance: str) -> tuple[bytes, str]:
        """Bytes and format."""
        place = self.files[system][utterance]
        if isinstance(place, Path):
            return place.read_bytes(), _FORMATS[place.suffix.lower()]
        import io

        import soundfile

        from assay.speech.ttsds2.noise import stand_in_speech

        stream = io.BytesIO()
        soundfile.write(stream, stand_in_speech(1, seed=place)[0][0], 22050, format="WAV")
        return stream.getvalue(), "wav"

    def tasks(self) -> Sequence[Listening]:
        """One a kind of question."""
        possible = ["mos"]
        possible += ["cmos", "mushra"] if self.has(REFERENCE) else []
        possible += ["smos"] if self.has(VOICES) else []
        for name in self.tests:
            if name not in possible:
                need = VOICES if name == "smos" else REFERENCE
                raise UsageError(f"Test {name!r} needs a subfolder {need!r} in {self.folder}.")
        made = [Listening(name, self) for name in self.tests or possible]
        return [task for task in made if task.samples()]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """``guess``: any value of the scale."""
        return {"guess": guess}

    def data(self) -> Mapping[str, Any]:
        """Where recordings come from."""
        if self.folder == "stand-in":
            return {"kind": "stand-in", "source": "tones made by the benchmark", "licence": "Apache-2.0"}
        return {"kind": "real", "source": self.folder, "licence": "that of the recordings"}


_FORMATS = {".wav": "wav", ".mp3": "mp3", ".ogg": "ogg", ".flac": "flac", ".webm": "webm"}


def _digest(*parts: str) -> bytes:
    return hashlib.blake2b("\x1f".join(parts).encode()).digest()


def guess() -> Any:
    """A listener who says any number of the scale."""
    import json

    from assay.systems.scripted import ScriptedChatModel, text_of

    def answer(messages: Any, rng: Any) -> str:
        text = text_of(messages)
        found = re.search(r"From (-?\d+) to (\d+)", text)
        assert found is not None
        low, high = int(found[1]), int(found[2])
        shape = json.loads(text[text.index("{") :].replace(": n", ": 0"))
        drawn = lambda: int(rng.integers(low, high + 1))  # noqa: E731
        if "rating" in shape:
            return json.dumps({"rating": drawn()})
        return json.dumps({"ratings": {i: drawn() for i in shape["ratings"]}})

    return ScriptedChatModel(answer, name="guess")


def ratings_of(runs: Runs) -> Any:
    """Ratings of runs as a frame (domain, system, utterance, listener, scale, value); listeners are pseudonyms."""
    import polars as pl

    rows = []
    for run in runs:
        records = run.records.filter(pl.col("status") == "ok")
        if "respondent" not in records.columns:
            records = records.with_columns(respondent=pl.lit(str(run.system)))
        for record in records.filter(pl.col("scale") != "MUSHRA").iter_rows(named=True):
            if record["rating"] is not None:
                rows.append(
                    {
                        "domain": record["domain"], "system": record["speaker"], "utterance": record["utterance"],
                        "listener": record["respondent"], "scale": record["scale"], "value": float(record["rating"]),
                    }
                )  # fmt: skip
        finer = run.rows("mushra") if "mushra" in records["task"] else None
        if finer is not None and finer.height:
            keyed = finer.join(records.select("sample", "attempt", "respondent", "domain"), on=["sample", "attempt"])
            rows += [
                {
                    "domain": row["domain"], "system": row["speaker"], "utterance": row["utterance"],
                    "listener": row["respondent"], "scale": "MUSHRA", "value": row["value"],
                }
                for row in keyed.iter_rows(named=True)
            ]  # fmt: skip
    if not rows:
        raise UsageError("These runs hold no ratings.")
    return pl.DataFrame(rows)


def opinions(runs: Runs) -> Table:
    """Mean opinion of each system by scale, with intervals over listeners."""
    from assay.core.table import Chart, Table
    from assay.speech.ttsds2.ratings import system_means

    return Table(
        "opinions", "Mean opinion scores", system_means(ratings_of(runs)),
        notes=["Intervals: of means whose errors are shared inside a listener; none with a single listener."],
        chart=Chart("interval", x="mean", y="system", low="low", high="high", facet="scale"),
    )  # fmt: skip


def export_ratings(out: Path, *, runs: str) -> None:
    """Ratings of run folders (by comma) as ``ratings.csv``, the format that ``against_listeners`` reads."""
    from assay.core.results import Run, Runs

    found = ratings_of(Runs([Run(Path(part.strip())) for part in runs.split(",") if part.strip()]))
    found.write_csv(out / "ratings.csv")
