"""What a trial does: speak texts, load the sets, measure one feature."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.cache import ContentCache
from assay.core.errors import AssayError, DataError, UsageError
from assay.core.files import write_atomically
from assay.speech.ttsds2.datasets import Dataset, DirectoryDataset, load_audio
from assay.speech.ttsds2.noise import noise_datasets, stand_in_speech
from assay.speech.ttsds2.scoring import Settings
from assay.speech.ttsds2.suite import cautions, common_bandwidth, score_one

if TYPE_CHECKING:
    from assay.speech.ttsds2.benchmark import TTSDS2

STAND_IN = "stand-in"
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Job:
    """One feature of one folder."""

    benchmark: TTSDS2
    domain: str
    feature: str
    folder: str
    cache: str


def reference_sets(bench: TTSDS2, domain: str) -> list[Dataset]:
    """Real speech of a domain."""
    found: list[Dataset] = []
    for folder in bench.reference_folders:
        if folder == STAND_IN:
            found.append(stand_in_speech(24, seed=bench.seed + 1, pitch=150.0))
            continue
        path = Path(folder).expanduser()
        path = path / domain if bench.divided else path
        found.append(_limited(_folder(bench, path, path.name), bench))
    names = [d.name for d in found]
    if len(set(names)) < len(names):
        for folder, dataset in zip(bench.reference_folders, found):
            dataset.name = folder
    return found


def _folder(bench: TTSDS2, path: Path, name: str) -> DirectoryDataset:
    return DirectoryDataset(path, name, shortest=bench.shortest, skip_errors=bench.skip_errors)


def _limited(dataset: DirectoryDataset, bench: TTSDS2) -> DirectoryDataset:
    limit = bench.limit_clips
    return dataset if limit is None or len(dataset) <= limit else dataset.sample(limit, bench.seed)


def _sets(job: Job) -> tuple[Dataset, list[Dataset], list[Dataset], int | None]:
    """Speech and references at their common bandwidth, noise as it is, and that bandwidth."""
    bench = job.benchmark
    speech: Dataset = _limited(_folder(bench, Path(job.folder), "speech"), bench)
    references = reference_sets(bench, job.domain)
    noises: list[Dataset] = list(noise_datasets(bench.noise_clips, seed=bench.seed))
    bandwidth = None
    if bench.bandwidth == "common":
        bandwidth = common_bandwidth([speech, *references])
    elif bench.bandwidth != "own":
        bandwidth = int(bench.bandwidth)
    if bandwidth is not None:
        speech, references = speech.limited(bandwidth), [d.limited(bandwidth) for d in references]
    return speech, references, noises, bandwidth


def carry_out(job: Job) -> dict[str, Any]:
    """Score of a feature with its replicates, nearest names, distances and warnings."""
    bench = job.benchmark
    speech, references, noises, bandwidth = _sets(job)
    warnings = cautions(speech, references)
    found = score_one(
        bench.features[job.feature], speech, references, noises, Settings(bench.squared, bench.compat),
        replicates=bench.replicates, seed=bench.seed, cache=ContentCache(Path(job.cache)),
    )  # fmt: skip
    near = found.nearest
    return {
        "score": found.score,
        "se": found.se,
        "reference": near.reference,
        "noise": near.noise,
        "reference_distance": near.reference_distance,
        "noise_distance": near.noise_distance,
        "clips": found.clips,
        "bandwidth": bandwidth,
        "replicates": [float(v) if np.isfinite(v) else None for v in found.replicates],
        "warnings": warnings,
    }


def texts_of(bench: TTSDS2, domain: str) -> list[tuple[str, str]]:
    """(name, text) of what is to be spoken, from ``texts=`` or from beside the references."""
    if bench.text_source is not None:
        path = Path(bench.text_source).expanduser()
        if path.is_file():
            found = [(f"{k:04d}", line.strip()) for k, line in enumerate(_read(path).splitlines()) if line.strip()]
        else:
            folder = path / domain if bench.divided else path
            if not folder.is_dir():
                raise UsageError(f"Option texts: there is no file or folder {folder}.")
            found = [(file.stem, _read(file).strip()) for file in sorted(folder.glob("*.txt"))]
    elif bench.reference_folders == [STAND_IN]:
        found = [(f"{k:04d}", f"sentence {k}") for k in range(24)]
    else:
        sets = reference_sets(bench, domain)
        found = [(Path(c.name).stem, c.text) for dataset in sets for c in dataset.clips() if c.text]
    found = [(name, text) for name, text in found if text]
    if not found:
        raise UsageError(
            "There are no texts to speak: give texts=FILE with a text a line, or .txt files beside the references."
        )
    return found[: bench.limit_texts]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text ({error}).") from None


async def speak_all(
    system: Any, texts: Sequence[tuple[str, str]], folder: Path, language: str
) -> dict[str, Any]:  # fmt: skip
    """Speak texts into ``folder``, four at a time. A text without usable audio is a failure, not an error.

    Raises
    ------
    AssayError
        One that would be met at every text (a refused key, a program that is not there).
    """
    folder.mkdir(parents=True, exist_ok=True)
    gate = asyncio.Semaphore(_AT_ONCE)
    reasons: dict[str, str] = {}

    async def one(name: str, text: str) -> None:
        out = folder / f"{name}.wav"
        if out.is_file():
            return
        async with gate:
            try:
                data = await system.speak(text, language=language)
                samples, _ = load_audio(data, f"what {system.name} said for {name}")
                if not np.abs(samples).max() > 1e-4:
                    raise DataError(f"{system.name} was silent for {text[:40]!r}.")
            except Exception as error:  # whatever a system of somebody's raises, the other texts are spoken
                if isinstance(error, UsageError) or (isinstance(error, AssayError) and error.fatal):
                    raise
                reasons[name] = str(error) or type(error).__name__
                return
        write_atomically(out, data)

    await asyncio.gather(*(one(name, text) for name, text in texts))
    return {
        "texts": len(texts),
        "spoken": len(texts) - len(reasons),
        "failed": len(reasons),
        "reason": next(iter(reasons.values()), ""),
    }


def reference_facts(bench: TTSDS2) -> Mapping[str, Any]:
    """Provenance of real speech."""
    from assay.speech.ttsds2.features import TITLES, Resources, features_of

    stand_in = bench.reference_folders == [STAND_IN]
    resources = Resources(None if bench.weights is None else Path(bench.weights), bench.device, bench.download)
    every = features_of(bench.profile, resources, only=bench.chosen, environment=bench.environment)
    return {
        "kind": "stand-in" if stand_in else "real",
        "source": "tones made by the benchmark, not speech" if stand_in else ", ".join(bench.reference_folders),
        "licence": "Apache-2.0" if stand_in else "that of the recordings",
        "fingerprint": [d.key for domain in bench.domains for d in reference_sets(bench, domain)],
        "score": TITLES[bench.profile],
        "features": list(bench.features),
        "left_out": {name: reason for name, f in every.items() if (reason := f.missing())},
    }


def influences(job: Job) -> list[tuple[str, float]]:
    """(clip, what it does to the score) of every clip of a folder, on features measured before."""
    from assay.speech.ttsds2.features import measure
    from assay.speech.ttsds2.scoring import influence

    bench = job.benchmark
    speech, references, noises, _ = _sets(job)
    cache = ContentCache(Path(job.cache))
    feature = bench.features[job.feature].fit(references)
    found = influence(
        measure(feature, speech, cache),
        {d.name: measure(feature, d, cache) for d in references},
        {d.name: measure(feature, d, cache) for d in noises},
        Settings(bench.squared, bench.compat),
    )
    return [(clip.name, float(value)) for clip, value in zip(speech.clips(), found)]
