"""Features by models of the Hugging Face hub: those of the published sets. Each says whether its weights are here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.datasets.readers import guarded, read_yaml
from assay.core.errors import DataError
from assay.speech.ttsds2.datasets import RATE, Dataset, resample
from assay.speech.ttsds2.features import Benchmark, ClipFeature, Resources, needs
from assay.speech.ttsds2.lite import HOP, f0, run_rate, voiced_everywhere
from assay.speech.ttsds2.scoring import BenchmarkCategory as Category
from assay.speech.ttsds2.scoring import BenchmarkDimension as Dimension

Array = NDArray[Any]


class HubFeature(ClipFeature):
    """Base of features whose model is a repository of the hub.

    Parameters
    ----------
    model
        ``ORG/NAME``, or a folder with such a model.
    resources
        Where to look for it.
    """

    config_file = "config.json"

    def __init__(
        self, name: str, category: Category, dimension: Dimension, model: str, resources: Resources, **settings: Any
    ) -> None:
        super().__init__(name, category, dimension, f"{model}, {settings}" if settings else model, **settings)
        self.model = model
        self.resources = resources

    @property
    def key_parts(self) -> tuple[Any, ...]:
        # A folder may hold another model under the same name: its configuration belongs to the key.
        place = self.place
        stated = (place / self.config_file).read_bytes() if place else b""
        return (*super().key_parts, self.model, str(place or ""), stated)

    @property
    def place(self) -> Path | None:
        """Folder of the model where one was given; None = the hub's own cache."""
        if self.resources.weights is not None:
            folder = self.resources.weights / self.model.replace("/", "--")
            if (folder / self.config_file).is_file():
                return folder
        given = Path(self.model)
        return given if (given / self.config_file).is_file() else None

    def missing(self) -> str | None:
        if reason := needs("transformers", "torch", "librosa"):
            return reason
        if self.place or self.resources.download:
            return None
        from huggingface_hub import try_to_load_from_cache

        if isinstance(try_to_load_from_cache(self.model, self.config_file), str):
            return None
        return (
            f"the model {self.model} is not on this machine; put it into weights=DIR as {self.model.replace('/', '--')}"
            " or say download=true."
        )

    def from_pretrained(self, loader: Any, **options: Any) -> Any:
        """A model or processor of transformers, from where it lies."""
        source = str(self.place or self.model)
        return loader.from_pretrained(source, local_files_only=not self.resources.download, **options)

    @cached_property
    def network(self) -> Any:
        """The network, evaluating, on its device."""
        from transformers import AutoModel

        return self.from_pretrained(AutoModel).eval().to(self.resources.device)

    def hidden_states(self, samples: Array) -> Sequence[Any]:
        """Hidden states of samples at 22,050 Hz, brought to 16 kHz, mean 0 and variance 1."""
        import torch

        wave = resample(samples, RATE, 16000)
        wave = (wave - wave.mean()) / np.sqrt(wave.var() + 1e-7)
        with torch.inference_mode():
            given = torch.from_numpy(wave[None].astype(np.float32)).to(self.resources.device)
            return self.network(given, output_hidden_states=True).hidden_states


class HubFrames(HubFeature):
    """All frames of one hidden layer (HuBERT, wav2vec 2.0, WavLM)."""

    def __init__(self, name: str, model: str, layer: int, resources: Resources) -> None:
        super().__init__(name, Category.GENERIC, Dimension.N_DIMENSIONAL, model, resources, layer=layer)
        self.layer = layer

    def values(self, samples: Array, text: str | None) -> Array:
        return self.hidden_states(samples)[self.layer][0].float().cpu().numpy()


class MeanActivations(HubFeature):
    """Last hidden state, mean over time: a vector an utterance."""

    def __init__(self, name: str, model: str, resources: Resources) -> None:
        super().__init__(name, Category.INTELLIGIBILITY, Dimension.N_DIMENSIONAL, model, resources)

    def values(self, samples: Array, text: str | None) -> Array:
        return self.hidden_states(samples)[-1][0].mean(dim=0).float().cpu().numpy()


class WhisperActivations(HubFeature):
    """Encoder states, mean over channels, then layers: a number for each of the 1500 time steps, as published."""

    def __init__(self, model: str, resources: Resources) -> None:
        super().__init__(
            "Whisper Activations", Category.INTELLIGIBILITY, Dimension.N_DIMENSIONAL, model, resources
        )  # fmt: skip

    @cached_property
    def _extractor(self) -> Any:
        from transformers import WhisperFeatureExtractor

        return self.from_pretrained(WhisperFeatureExtractor)

    def values(self, samples: Array, text: str | None) -> Array:
        import torch

        wave = resample(samples, RATE, 16000)
        given = self._extractor(wave, sampling_rate=16000, return_tensors="pt").input_features
        with torch.inference_mode():
            states = self.network.encoder(given.to(self.resources.device), output_hidden_states=True).hidden_states
        return torch.stack([state[0].float().mean(dim=1) for state in states]).mean(dim=0).cpu().numpy()


class TokenRate(HubFeature):
    """Runs of equal HuBERT tokens a second; tokens are clusters of a layer's frames of real speech.

    Parameters
    ----------
    clusters, seed
        Of k-means, fitted to at most 100 clips of the references.
    """

    def __init__(
        self, name: str, model: str, resources: Resources, *, layer: int = 7, clusters: int = 100, seed: int = 42
    ) -> None:
        super().__init__(
            name,
            Category.PROSODY,
            Dimension.ONE_DIMENSIONAL,
            model,
            resources,
            layer=layer,
            clusters=clusters,
            seed=seed,
        )
        self.centres: Array | None = None

    @property
    def key_parts(self) -> tuple[Any, ...]:
        return (*super().key_parts, self.centres)

    def fit(self, references: Sequence[Dataset]) -> TokenRate:
        from sklearn.cluster import KMeans

        clips = [clip.samples for dataset in references for clip in dataset.clips()][:100]
        frames = np.concatenate([self._frames(samples) for samples in clips])
        found = KMeans(min(self.settings["clusters"], len(frames)), random_state=self.settings["seed"]).fit(frames)
        new = TokenRate(self.name, self.model, self.resources, **self.settings)
        new.centres = found.cluster_centers_.astype(np.float32)
        return new

    def _frames(self, samples: Array) -> Array:
        return self.hidden_states(samples)[self.settings["layer"]][0].float().cpu().numpy()

    def tokens(self, samples: Array) -> Array:
        """Token of each frame."""
        if self.centres is None:
            raise DataError(f"Feature {self.name!r} must be fitted to real speech before it is measured.")
        frames = self._frames(samples)
        return ((frames[:, None] - self.centres[None]) ** 2).sum(axis=2).argmin(axis=1)

    def values(self, samples: Array, text: str | None) -> float:
        return run_rate(self.tokens(samples), len(samples) / RATE)


class WordErrors(HubFeature):
    """Word error rate of a recogniser against the clip's text; what the first version of the score used."""

    def __init__(self, name: str, model: str, resources: Resources) -> None:
        super().__init__(name, Category.INTELLIGIBILITY, Dimension.ONE_DIMENSIONAL, model, resources)

    @cached_property
    def recogniser(self) -> Callable[..., Any]:
        """Transcribes samples at 16 kHz."""
        from transformers import pipeline

        source: Any = str(self.place or self.model)
        return pipeline("automatic-speech-recognition", model=source, device=self.resources.device)

    def values(self, samples: Array, text: str | None) -> float:
        from assay.speech.ttsds2.texts import error_rate

        if not text:
            raise DataError(f"Feature {self.name!r} needs the text of every clip, a .txt file beside it.")
        return error_rate(text, self.recogniser(resample(samples, RATE, 16000))["text"], by="word")


class MPM(HubFeature):
    """Frames of the masked prosody model, after its layer 7 counted from 0."""

    config_file = "model_config.yml"

    def __init__(self, resources: Resources, model: str = "cdminix/masked_prosody_model") -> None:
        super().__init__("MPM", Category.PROSODY, Dimension.N_DIMENSIONAL, model, resources, layer=7)

    def missing(self) -> str | None:
        return needs("pyworld", "yaml") or super().missing()

    @cached_property
    def network(self) -> Any:
        from assay.speech.ttsds2.prosody_model import load

        def file(name: str) -> Path:
            if self.place:
                return self.place / name
            from huggingface_hub import hf_hub_download

            return Path(hf_hub_download(self.model, name, local_files_only=not self.resources.download))

        config = read_yaml(file(self.config_file), extra="ttsds2")
        with guarded(file("pytorch_model.bin"), f"weights of {self.model}"):
            return load(config, file("pytorch_model.bin")).to(self.resources.device)

    def values(self, samples: Array, text: str | None) -> Array:
        import torch

        tokens = torch.from_numpy(prosody_tokens(samples))[None].to(self.resources.device)
        with torch.inference_mode():
            return self.network.hidden(tokens, self.settings["layer"])[0].float().cpu().numpy()


def prosody_tokens(samples: Array, bins: int = 128) -> Array:
    """(3, frames): pitch (clipped to 50-300 Hz, divided by 250), energy (0-0.2) and voicing in bins, as published."""
    import librosa

    pitch = f0(samples)
    energy = librosa.feature.rms(y=samples, frame_length=1024, hop_length=HOP)[0][:1000]
    n = min(len(pitch), len(energy))
    edges = np.linspace(0, 1, bins, dtype=np.float32)
    return np.stack(
        [
            np.searchsorted(edges, (voiced_everywhere(pitch[:n]).clip(50, 300) / 250).astype(np.float32)),
            np.searchsorted(edges, (energy[:n].clip(0, 0.2) / 0.2).astype(np.float32)),
            (pitch[:n] >= 1e-6).astype(int),
        ]
    )


class WeSpeaker(HubFeature):
    """Speaker vectors of windows of 1 s every 0.5 s, through pyannote.audio."""

    def __init__(self, resources: Resources, model: str = "pyannote/wespeaker-voxceleb-resnet34-LM") -> None:
        super().__init__("WeSpeaker", Category.SPEAKER, Dimension.N_DIMENSIONAL, model, resources)

    config_file = "config.yaml"

    def missing(self) -> str | None:
        return needs("pyannote", what="WeSpeaker") or super().missing()

    @cached_property
    def network(self) -> Any:
        from importlib import import_module

        audio: Any = import_module("pyannote.audio")
        model = audio.Model.from_pretrained(str(self.place or self.model))
        return audio.Inference(model, window="sliding", duration=1.0, step=0.5)

    def values(self, samples: Array, text: str | None) -> Array:
        import torch

        wave = torch.from_numpy(resample(samples, RATE, 16000))[None]
        return np.asarray(self.network({"waveform": wave, "sample_rate": 16000}).data)


class AllosaurusRate(ClipFeature):
    """Phones a second of the universal recogniser Allosaurus; 0 if none."""

    def __init__(self) -> None:
        super().__init__("Allosaurus SR", Category.PROSODY, Dimension.ONE_DIMENSIONAL, "recognised phones a second")

    def missing(self) -> str | None:
        return needs("allosaurus", what="Allosaurus SR")

    @cached_property
    def _recogniser(self) -> Any:
        from importlib import import_module

        return import_module("allosaurus.app").read_recognizer()

    def values(self, samples: Array, text: str | None) -> float:
        import tempfile

        import soundfile

        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            soundfile.write(file.name, samples, RATE)
            return len(self._recogniser.recognize(file.name).split()) / (len(samples) / RATE)


def factories(profile: str) -> Mapping[str, Callable[[Resources], Benchmark]]:
    """Features of the published sets by short name, those without models of the hub left out."""
    if profile == "multilingual":
        return {
            "mhubert": lambda r: HubFrames("mHuBERT-147", "utter-project/mHuBERT-147", 7, r),
            "wav2vec2_xlsr": lambda r: HubFrames("Wav2Vec2-XLSR-53", "facebook/wav2vec2-large-xlsr-53", 8, r),
            "wavlm": lambda r: HubFrames("WavLM", "microsoft/wavlm-base-plus", 11, r),
            "wespeaker": lambda r: WeSpeaker(r),
            "mpm": lambda r: MPM(r),
            "hubert_token_sr": lambda r: TokenRate("mHuBERT Token SR", "utter-project/mHuBERT-147", r),
            "allosaurus_sr": lambda r: AllosaurusRate(),
            "wav2vec2_activations": lambda r: MeanActivations(
                "XLSR-53 Activations", "facebook/wav2vec2-xlsr-53-espeak-cv-ft", r
            ),
            "whisper_activations": lambda r: WhisperActivations("openai/whisper-small", r),
        }
    hubert = "facebook/hubert-base-ls960"
    common: dict[str, Callable[[Resources], Benchmark]] = {
        "hubert": lambda r: HubFrames("Hubert", hubert, 7, r),
        "wav2vec2": lambda r: HubFrames("Wav2Vec2", "facebook/wav2vec2-base", 8, r),
        "wespeaker": lambda r: WeSpeaker(r),
        "mpm": lambda r: MPM(r),
        "hubert_token_sr": lambda r: TokenRate("Hubert Token SR", hubert, r),
    }
    if profile == "v1":
        return {
            **common,
            "wav2vec2_wer": lambda r: WordErrors("Wav2Vec2 WER", "facebook/wav2vec2-base-960h", r),
            "whisper_wer": lambda r: WordErrors("Whisper WER", "openai/whisper-small.en", r),
        }
    return {
        **common,
        "wavlm": lambda r: HubFrames("WavLM", "microsoft/wavlm-base-plus", 11, r),
        "allosaurus_sr": lambda r: AllosaurusRate(),
        "wav2vec2_activations": lambda r: MeanActivations("Wav2Vec2 Activations", "facebook/wav2vec2-base-960h", r),
        "whisper_activations": lambda r: WhisperActivations("openai/whisper-small.en", r),
    }
