"""Six stages from long recordings to a test set of paired clips, with every filter on record.

What needs a model or the net is handed in: where recordings come from, who names languages, who transcribes, who looks
for music, for two voices at once and for contents that do not belong in a test. What is not handed in is skipped, and
the manifest says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from assay.core.audit import Audit
from assay.core.datasets.manifest import write_manifest
from assay.core.datasets.readers import guarded, read_json
from assay.core.errors import DataError, UsageError, unknown_name
from assay.speech.ttsds2.datasets import ENDINGS, Array
from assay.speech.ttsds2.texts import LANGUAGES, characters, error_rate, plain

TERMS = (
    "talk show", "interview", "debate", "sports commentary", "news", "politics", "economy", "technology", "science",
    "podcast",
)  # fmt: skip
"""What an online source searches for, in the language of the set."""
ENGLISH = {**dict.fromkeys(("negative", "political", "gender", "religion", "sexual", "rare word", "race"), 0.6),
           "controversial": 0.8, "incomplete": 0.9}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """Published limits.

    Parameters
    ----------
    after
        Recordings must be newer than this date (YYYY-MM-DD), newer than every system; empty = any.
    minutes
        Least length of a recording; the part of it that is taken.
    hits
        Recordings a search term, most viewed first.
    """

    language: str = "en"
    after: str = ""
    minutes: float = 20.0
    part: tuple[float, float] = (15.0, 20.0)
    hits: int = 50
    per_speaker: tuple[int, int] = (3, 8)
    word_errors: float = 0.1
    character_errors: float = 0.05
    seconds: tuple[float, float] = (3.0, 30.0)
    music: float = 10.0
    clips: int = 200
    pairs: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise unknown_name("language of the pipeline", self.language, LANGUAGES)
        if self.after:
            _date(self.after, "option after")

    def thresholds(self) -> dict[str, float]:
        """What a label's probability must stay under."""
        return dict(ENGLISH) if self.language == "en" else dict.fromkeys(ENGLISH, 0.95)


@dataclass(frozen=True, slots=True)
class Recording:
    """A long recording and what is known of it. ``segments``: (start, end, speaker, text) in seconds of the file."""

    id: str
    path: Path
    seconds: float
    title: str = ""
    description: str = ""
    published: str = ""
    views: int = 0
    segments: tuple[tuple[float, float, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Utterance:
    """A stretch of a recording."""

    recording: Recording
    start: float
    end: float
    speaker: str
    text: str

    @property
    def id(self) -> str:
        """Recording and place in it."""
        return f"{self.recording.id}@{self.start:.2f}"

    @property
    def seconds(self) -> float:
        """Length."""
        return self.end - self.start

    def samples(self) -> tuple[Array, int]:
        """Samples and rate."""
        import soundfile

        with guarded(self.recording.path, "audio"), soundfile.SoundFile(self.recording.path) as file:
            file.seek(int(self.start * file.samplerate))
            data = file.read(int(self.seconds * file.samplerate), dtype="float32", always_2d=True)
            return data.mean(axis=1), file.samplerate


class Source(Protocol):
    """Where recordings come from: a folder, or a search of videos."""

    def search(self, settings: Settings) -> Iterable[Recording]:
        """Recordings that may fit, most viewed first."""
        ...


class Diariser(Protocol):
    """Who speaks when, and says what."""

    def segments(self, recording: Recording, start: float, end: float) -> Sequence[tuple[float, float, str, str]]:
        """(start, end, speaker, text) between two places of a recording."""
        ...


Names = Callable[[str], str | None]
"""Language code of a text; None = it cannot tell."""
Hears = Callable[[Array, int, str], str]
"""Transcript of samples at a rate, in a language."""
Judges = Callable[[str], Mapping[str, float]]
"""Probability of each label of a text."""
Measures = Callable[[Array, int], float]
"""A number of samples: energy that is not voice, share with two voices at once."""


class LocalFolder:
    """Recordings in a folder, each with a ``.json`` of the same stem beside it (title, description, published, views,
    segments: a list of {start, end, speaker, text}); what is absent is unknown."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        if not self.folder.is_dir():
            raise UsageError(f"There is no folder {self.folder} of recordings.")

    def search(self, settings: Settings) -> list[Recording]:
        """All of them, most viewed first."""
        files = sorted(p for p in self.folder.rglob("*") if p.suffix.lower() in ENDINGS)
        if not files:
            raise DataError(f"{self.folder} holds no recording ({', '.join(ENDINGS)}).")
        return sorted((self._recording(p) for p in files), key=lambda r: -r.views)

    def _recording(self, path: Path) -> Recording:
        import soundfile

        try:
            found = soundfile.info(path)
        except (soundfile.SoundFileError, RuntimeError) as error:
            raise DataError(f"{path} cannot be read as audio ({error}).") from None
        facts: dict[str, Any] = {}
        beside = path.with_suffix(".json")
        if beside.is_file():
            facts = read_json(beside)
            with guarded(beside, "the description of a recording"):
                segments = tuple(
                    (float(s["start"]), float(s["end"]), str(s["speaker"]), str(s["text"]))
                    for s in facts.get("segments", ())
                )
                facts["views"] = int(facts.get("views", 0))
        else:
            segments = ()
        return Recording(
            path.relative_to(self.folder).with_suffix("").as_posix(), path, found.frames / found.samplerate,
            str(facts.get("title", "")), str(facts.get("description", "")), str(facts.get("published", "")),
            int(facts.get("views", 0)), segments,
        )  # fmt: skip


class GivenSegments:
    """The segments that a source gave with its recordings."""

    def segments(self, recording: Recording, start: float, end: float) -> list[tuple[float, float, str, str]]:
        """Those that lie wholly inside."""
        return [s for s in recording.segments if s[0] >= start and s[1] <= end]


class Whisper:
    """A recogniser of the hub, through transformers."""

    def __init__(self, model: str = "openai/whisper-large-v3-turbo", device: str = "cpu") -> None:
        self.model, self.device = model, device

    @cached_property
    def _network(self) -> Any:
        from transformers import pipeline

        return pipeline("automatic-speech-recognition", model=self.model, device=self.device)

    def __call__(self, samples: Array, rate: int, language: str) -> str:
        heard: Any = self._network(
            {"raw": samples, "sampling_rate": rate}, generate_kwargs={"language": LANGUAGES[language].lower()}
        )
        return str(heard["text"])


class FastTextLanguages:
    """Language by fastText's lid.176 file; needs the package fasttext."""

    def __init__(self, model: str | Path, least: float = 0.5) -> None:
        from importlib import import_module

        from assay.speech.ttsds2.features import needs

        if reason := needs("fasttext", what="naming languages"):
            raise UsageError(reason)
        self._network = import_module("fasttext").load_model(str(model))
        self.least = least

    def __call__(self, text: str) -> str | None:
        (label,), (chance,) = self._network.predict(text.replace("\n", " "), k=1)
        return label.removeprefix("__label__") if chance >= self.least else None


_SCRIPTS = {"zh": "CJK", "ja": "HIRAGANA KATAKANA", "ko": "HANGUL", "ar": "ARABIC", "ru": "CYRILLIC"}
_COMMON = {
    "en": "the of and to is that it was for with this are you have not",
    "es": "el la de que y en los las por una es se con",
    "de": "der die und das ist nicht ein eine mit auf ich sie den dem",
    "fr": "le la les des et est une que dans pour pas qui",
    "pl": "nie się jest na że to do jak ale czy tak już", "it": "il che di non per una sono della con gli è anche",
    "nl": "de het een en van niet dat is op voor met zijn", "pt": "o de que não em um uma para com os é mais",
    "tr": "bir ve bu için çok ne da de ile gibi var ama",
}  # fmt: skip


def guess_language(text: str) -> str | None:
    """Language by script, and in Latin script by frequent words: a rough judge for when no model is there."""
    import unicodedata

    letters = Counter(unicodedata.name(c, "").partition(" ")[0] for c in text if c.isalpha())
    total = sum(letters.values())
    if not total:
        return None
    if (letters["HIRAGANA"] + letters["KATAKANA"]) / total > 0.1:
        return "ja"
    for code, script in _SCRIPTS.items():
        if sum(letters[s] for s in script.split()) / total > 0.5:
            return code
    words = plain(text).split()
    hits = {code: sum(w in common.split() for w in words) for code, common in _COMMON.items()}
    best = max(hits, key=hits.__getitem__)
    return best if hits[best] > 0 and list(hits.values()).count(hits[best]) == 1 else None


@dataclass(frozen=True)
class Tools:
    """What the stages ask; None = that filter is skipped."""

    language: Names | None = guess_language
    diariser: Diariser = field(default_factory=GivenSegments)
    recogniser: Hears | None = None
    contents: Judges | None = None
    music: Measures | None = None
    crosstalk: Measures | None = None


def searched(source: Source, settings: Settings, audit: Audit) -> list[Recording]:
    """Stage 1: recordings long enough and newer than every system."""
    found = list(source.search(settings))[: settings.hits * len(TERMS)]
    found = audit.keep(
        found, "1 length", lambda r: r.seconds >= 60 * settings.minutes, f"shorter than {settings.minutes:g} minutes"
    )
    if not settings.after:
        return found
    after = _date(settings.after, "option after")

    def stale(r: Recording) -> str | None:
        if not r.published:
            return "no date of publication"
        return None if _date(r.published, r.id) > after else f"published {r.published}, not after {settings.after}"

    return audit.sift(found, "1 date", stale)


def in_language(recordings: Sequence[Recording], settings: Settings, tools: Tools, audit: Audit) -> list[Recording]:
    """Stage 2: recordings whose title and description are in the language; those in another one go."""
    name = tools.language
    if name is None:
        return list(recordings)

    def foreign(r: Recording) -> str | None:
        told = f"{r.title}\n{r.description}".strip()
        found = name(told) if told else settings.language
        return None if found in (settings.language, None) else f"title and description are in {found!r}"

    return audit.sift(recordings, "2 language", foreign)


def utterances(recordings: Sequence[Recording], settings: Settings, tools: Tools, audit: Audit) -> list[Utterance]:
    """Stages 3 and 4: the chosen minutes of each, cut into utterances of one speaker; by length, contents, language."""
    found = []
    for recording in recordings:
        start, end = (60 * m for m in settings.part)
        for a, b, speaker, text in tools.diariser.segments(recording, start, min(end, recording.seconds)):
            found.append(Utterance(recording, a, b, f"{recording.id}#{speaker}", text))
    least, most = characters(settings.language)
    found = audit.keep(
        found, "4 characters", lambda u: least <= len(u.text.strip()) <= most, f"not {least:g} to {most} characters"
    )
    if tools.contents is not None:
        judge, limits = tools.contents, settings.thresholds()

        def unfit(u: Utterance) -> str | None:
            chances = judge(u.text)
            return next(
                (f"{label} {chances[label]:.2f}" for label in limits if chances.get(label, 0) > limits[label]), None
            )

        found = audit.sift(found, "4 contents", unfit)
    name = tools.language
    if name is not None:
        found = audit.keep(
            found, "4 language", lambda u: name(u.text) in (settings.language, None), "text in another language"
        )
    count = Counter(u.speaker for u in found)
    few = settings.per_speaker[0]
    return audit.keep(
        found, "4 speakers", lambda u: count[u.speaker] >= few, f"fewer than {few} utterances of the speaker"
    )


def verified(found: Sequence[Utterance], settings: Settings, tools: Tools, audit: Audit) -> list[Utterance]:
    """Stage 5: heard again, by length, without music, a few a speaker."""
    low, high = settings.seconds
    kept = audit.keep(found, "5 seconds", lambda u: low <= u.seconds <= high, f"not {low:g} to {high:g} s")
    if tools.recogniser is not None:
        hear = tools.recogniser

        def misheard(u: Utterance) -> str | None:
            heard = hear(*u.samples(), settings.language)
            words = error_rate(u.text, heard, language=settings.language)
            letters = error_rate(u.text, heard, by="character", language=settings.language)
            # Where words are characters, both are one number and the wider limit holds.
            if words > settings.word_errors:
                return f"word error rate {words:.2f}"
            return f"character error rate {letters:.2f}" if letters > settings.character_errors else None

        kept = audit.sift(kept, "5 transcript", misheard)
    if tools.music is not None:
        energy = tools.music
        kept = audit.keep(kept, "5 music", lambda u: energy(*u.samples()) <= settings.music, "sound that is not voice")
    seen: Counter[str] = Counter()
    limited = []
    for u in kept:
        if seen[u.speaker] < settings.per_speaker[1] and len(limited) < settings.clips:
            seen[u.speaker] += 1
            limited.append(u)
    chosen = {u.id for u in limited}
    kept = audit.keep(
        kept, "5 shares", lambda u: u.id in chosen, f"beyond {settings.per_speaker[1]} a speaker or the total"
    )
    count = Counter(u.speaker for u in kept)
    return audit.keep(kept, "5 single", lambda u: count[u.speaker] > 1, "the only clip of its speaker")


def paired(
    found: Sequence[Utterance], settings: Settings, tools: Tools, audit: Audit
) -> list[tuple[Utterance, Utterance]]:
    """Stage 6: without two voices at once; two clips of each speaker, one for the voice, the other for the text."""
    kept = list(found)
    if tools.crosstalk is not None:
        share = tools.crosstalk
        kept = audit.keep(kept, "6 cross-talk", lambda u: share(*u.samples()) <= 0, "two voices at once")
    rng = np.random.default_rng(settings.seed)
    by_speaker: dict[str, list[Utterance]] = {}
    for u in kept:
        by_speaker.setdefault(u.speaker, []).append(u)
    pairs = []
    for some in by_speaker.values():
        if len(some) > 1:
            first, second = rng.permutation(len(some))[:2]
            if plain(some[first].text, settings.language) != plain(some[second].text, settings.language):
                pairs.append((some[first], some[second]))
    order = rng.permutation(len(pairs))[: settings.pairs]
    return [pairs[k] for k in sorted(order)]


def build(
    out: Path, source: Source, settings: Settings, tools: Tools | None = None, *, recogniser: Hears | None = None
) -> list[tuple[Utterance, Utterance]]:
    """Write folders A (voices) and B (texts and held-out real recordings) with a manifest of all that fell out.

    Raises
    ------
    DataError
        No pair is left; the message says where most were lost.
    """
    import soundfile

    tools = Tools() if tools is None else tools
    if recogniser is not None:
        tools = replace(tools, recogniser=recogniser)
    audit = Audit(key=lambda row: row.id)
    recordings = in_language(searched(source, settings, audit), settings, tools, audit)
    pairs = paired(
        verified(utterances(recordings, settings, tools, audit), settings, tools, audit), settings, tools, audit
    )
    if not pairs:
        worst = max(audit.steps, key=lambda s: s.rows_in - s.rows_out)
        raise DataError(
            f"No pair of clips is left; most were lost at {worst.name!r} ({worst.rows_in} to {worst.rows_out}: "
            f"{next(iter(worst.reasons), worst.reason)})."
        )
    for folder in ("A", "B"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for k, both in enumerate(pairs):
        for folder, u in zip(("A", "B"), both, strict=True):
            samples, rate = u.samples()
            soundfile.write(out / folder / f"{k:04d}.wav", samples, rate)
            (out / folder / f"{k:04d}.txt").write_text(u.text.strip() + "\n", encoding="utf-8")
    stages = ("language", "recogniser", "contents", "music", "crosstalk")
    skipped = [name for name in stages if getattr(tools, name) is None]
    write_manifest(
        out, recipe="ttsds2.testset", options={"language": settings.language, "after": settings.after,
                                                "skipped": skipped},
        seed=settings.seed, kind="real", source=str(getattr(source, "folder", type(source).__name__)),
        licence="that of the recordings", counts={"pairs": len(pairs)}, audit=audit,
    )  # fmt: skip
    return pairs


def _date(text: str, where: str) -> date:
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        raise UsageError(f"The date {text!r} ({where}) is not of the form YYYY-MM-DD.") from None
