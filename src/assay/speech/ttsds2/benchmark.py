"""TTSDS2: how close is synthetic speech, as a distribution, to real speech rather than to noise?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import DataError, UsageError, unknown_name
from assay.core.metrics import Metric, nested_mean
from assay.speech.ttsds2.systems import Speaker, command, endpoint, espeak, festival, flite, stand_in

if TYPE_CHECKING:
    from assay.core.context import Context

_ROOM = "assay.speech.ttsds2"
_FACTORS = ("factor",)


def _metric(score: str) -> Metric:
    # Environment has weight 0.
    where = {"factor": ["generic", "speaker", "prosody", "intelligibility"]}
    return nested_mean(
        score, over=_FACTORS, name=score, headline=True, by=_FACTORS, bounds=(0, 100), error=0.0, where=where
    )


class Distributions(Task):
    """A set of texts in one domain; a sample is a feature, whose distribution over utterances is compared."""

    system = Speaker
    # What is random is which utterances there are: each record carries its own standard error.
    resample = "attempts"
    modalities = ("text", "audio")

    def __init__(self, name: str, benchmark: TTSDS2) -> None:
        self.name = name
        self.benchmark = benchmark

    def samples(self) -> Sequence[Sample]:
        """One a feature that can be measured here."""
        bench = self.benchmark
        return [
            Sample(
                short,
                input={"feature": short},
                target={"profile": bench.profile},
                groups={
                    "factor": feature.category.name.lower(),
                    "feature": feature.name,
                    "language": bench.language,
                    "domain": self.name,
                },
                cluster=f"{feature.category.name.lower()}/{short}",
            )
            for short, feature in bench.features.items()
        ]

    @asynccontextmanager
    async def setup(self, system: Any, ctx: Context) -> AsyncIterator[dict[str, Any]]:
        """Speak all texts once, into a folder of the run; what is there already is not spoken again."""
        from assay.speech.ttsds2.trials import speak_all

        folder = f"speech/{self.name}"
        found = await speak_all(
            system, self.benchmark.texts(self.name), ctx.run_folder / folder, self.benchmark.language
        )
        yield {**found, "folder": folder}

    async def trial(self, system: Any, sample: Sample, ctx: Context) -> Outcome:
        """Hand over the folder with what was spoken."""
        spoken = ctx.state
        if not spoken["spoken"]:
            raise DataError(
                f"Nothing usable was spoken of {spoken['texts']} texts; the first reason: {spoken['reason']}"
            )
        return Outcome(output={k: spoken[k] for k in ("folder", "texts", "failed")})

    async def score(self, sample: Sample, output: Any, ctx: Context) -> Outcome:
        """Measure the feature of the folder, of references and of noise."""
        from assay.speech.ttsds2.trials import Job, carry_out

        bench = self.benchmark
        found = await ctx.compute(
            carry_out,
            # What was spoken lies in the run and is named from there; the folder of a submission is absolute.
            Job(bench, self.name, sample.id, str(ctx.run_folder / output["folder"]), str(ctx.cache.folder)),
        )
        replicates = found.pop("replicates")
        warnings = found.pop("warnings")
        name = bench.score_name
        failed, texts = output.get("failed"), output.get("texts")
        scores = {
            name: found.pop("score"),
            f"{name}_se": found.pop("se"),
            "failure_rate": None if failed is None or not texts else 100 * failed / texts,
        }
        return Outcome(
            scores,
            output={**output, **found, "warnings": warnings},
            groups={"nearest_noise": found["noise"], "nearest_reference": found["reference"]},
            rows=[{"replicate": b, "replicate_score": v} for b, v in enumerate(replicates)],
        )


class TTSDS2(Benchmark):
    """A folder of synthetic speech (``submission:DIR``), or a system that speaks, against real speech and noise.

    Parameters
    ----------
    reference
        Folders of real speech, by comma; ``stand-in`` = made-up tones, for trying out only.
    profile
        ``lite`` needs no download and is no TTSDS2 score; ``english``, ``multilingual``, ``v1`` need models of the hub.
    features
        Short names by comma; empty = all of the profile that can be measured here.
    language
        Code of the language, given to systems that speak.
    domains
        Names by comma of subfolders that speech, references and texts are divided into; empty = one domain, ``all``.
    texts
        Folder of .txt files, or a file with a text a line, for systems that speak; None = those beside the references.
    limit_texts
        Speak this many texts at most.
    shortest
        Seconds below which recordings of references and submissions are left out.
    limit_clips
        Take this many clips of each set at most, drawn with ``seed``.
    bandwidth
        ``common`` brings all to the lowest rate that anything was recorded at; ``own`` leaves them (the package); a
        number in Hz.
    noise_clips
        Clips of each of the four sets of noise; 100 as published.
    squared, compat
        Of distances; see `scoring.Settings`.
    replicates
        Resamples of utterances for standard errors; 0 = none.
    environment
        Measure the environment features too, which have weight 0.
    weights, device, download
        See `features.Resources`.
    skip_errors
        Leave out clips that cannot be read, and count them.
    seed
        Of noise, draws and replicates.
    """

    name = "ttsds2"
    title = "TTSDS2: distribution score of synthetic speech"
    paper = "arXiv:2506.19441"
    extras = ("ttsds2",)
    references = "references.json"
    metrics = (_metric("ttsds2_lite"),)
    analyses = {name: f"{_ROOM}.analyses:{name}" for name in ("factors", "ladder", "against_listeners", "influence")}
    recipes = {
        "reproduce": f"{_ROOM}.reproduce:reproduce",
        **{name: f"{_ROOM}.recipes:{name}" for name in ("weights", "noise", "admission", "board", "texts")},
        "testset": f"{_ROOM}.recipes:speech_set",
        "languages": f"{_ROOM}.languages:study",
    }

    def __init__(
        self,
        reference: str = "stand-in",
        *,
        profile: Literal["lite", "english", "multilingual", "v1"] = "lite",
        features: str = "",
        language: str = "en",
        domains: str = "",
        texts: str | None = None,
        limit_texts: int | None = None,
        shortest: float = 0.0,
        limit_clips: int | None = None,
        bandwidth: str = "",
        noise_clips: int = 0,
        squared: bool = True,
        compat: bool = False,
        replicates: int = 50,
        environment: bool = False,
        weights: str | None = None,
        device: str = "cpu",
        download: bool = False,
        skip_errors: bool = False,
        seed: int = 0,
    ) -> None:
        self.reference_folders = _listed(reference)
        if not self.reference_folders:
            raise UsageError("Option reference is empty; give a folder of real speech.")
        self.profile: Literal["lite", "english", "multilingual", "v1"] = profile
        self.chosen = _listed(features)
        self.language = language
        self.domains = _listed(domains) or ["all"]
        self.divided = bool(_listed(domains))
        self.text_source = texts
        if limit_texts is not None and limit_texts < 1:
            raise UsageError(f"Option limit_texts={limit_texts} must be at least 1.")
        self.limit_texts, self.shortest, self.limit_clips = limit_texts, shortest, limit_clips
        self.bandwidth = bandwidth or ("common" if profile == "lite" else "own")
        if self.bandwidth not in ("common", "own") and not self.bandwidth.isdigit():
            raise UsageError(f"Option bandwidth={bandwidth!r} must be common, own or a rate in Hz.")
        self.noise_clips = noise_clips or (10 if profile == "lite" else 100)
        if self.noise_clips < 2 or replicates < 0:
            raise UsageError("Options noise_clips and replicates must be at least 2 and 0.")
        self.squared, self.compat = squared, compat
        self.replicates, self.environment = replicates, environment
        self.weights, self.device, self.download = weights, device, download
        self.skip_errors = skip_errors
        self.seed = seed
        self.score_name = {"lite": "ttsds2_lite", "english": "ttsds2"}.get(profile, f"ttsds2_{profile}")
        self.metrics = (_metric(self.score_name),)

    @cached_property
    def features(self) -> Mapping[str, Any]:
        """Features that are measured, by short name; one that was named and cannot be measured is refused."""
        from assay.speech.ttsds2.features import Resources, features_of

        resources = Resources(None if self.weights is None else Path(self.weights), self.device, self.download)
        found = features_of(self.profile, resources, only=self.chosen, environment=self.environment)
        lacking = {name: reason for name, feature in found.items() if (reason := feature.missing())}
        for name in self.chosen:
            if name in lacking:
                raise UsageError(f"Feature {name!r} cannot be measured: {lacking[name]}")
        here = {name: feature for name, feature in found.items() if name not in lacking}
        if self.profile != "lite" and lacking and not self.chosen:
            name, reason = next(iter(lacking.items()))
            raise UsageError(
                f"{len(lacking)} of {len(found)} features of profile {self.profile!r} cannot be measured here ({name}: "
                f"{reason}) Name those to measure with features=, or take profile=lite."
            )
        return here

    def texts(self, domain: str) -> list[tuple[str, str]]:
        """(name, text) of what a system is to speak."""
        from assay.speech.ttsds2.trials import texts_of

        return texts_of(self, domain)

    def tasks(self) -> Sequence[Distributions]:
        """One a domain."""
        return [Distributions(name, self) for name in self.domains]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """Systems that speak: ``method:espeak``, ``method:command?line=...``, ``method:endpoint?model=...``."""
        return {
            "stand-in": stand_in, "espeak": espeak, "flite": flite, "festival": festival, "command": command,
            "endpoint": endpoint,
        }  # fmt: skip

    def read(self, path: Path) -> Iterable[tuple[str, str, int, Outcome]]:
        """A folder of recordings; with domains, a folder with a subfolder for each."""
        if not path.is_dir():
            raise DataError(f"{path} is no folder; a submission is a folder of recordings.")
        for domain in self.domains:
            folder = path / domain if self.divided else path
            if not folder.is_dir():
                raise unknown_name(f"domain folder of {path}", domain, [p.name for p in path.iterdir() if p.is_dir()])
            for name in self.features:
                yield domain, name, 0, Outcome(output={"folder": str(folder.resolve())})

    def data(self) -> Mapping[str, Any]:
        """Where real speech comes from, and which features were left out."""
        from assay.speech.ttsds2.trials import reference_facts

        return reference_facts(self)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
