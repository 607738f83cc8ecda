"""Reproduction by parts, recipes that write files."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from assay.core.errors import UsageError
from assay.speech.ttsds2 import recipes
from assay.speech.ttsds2.datasets import RATE
from assay.speech.ttsds2.degrading import DEGREES, degraded
from assay.speech.ttsds2.lite import PitchRange, wada_snr
from assay.speech.ttsds2.noise import stand_in_speech
from assay.speech.ttsds2.reproduce import exact_claims, reproduce, weighting

SOUNDS = Path(os.environ.get("SPEECH_SOUNDS", "/usr/share/asterisk/sounds"))


def test_claims_about_published_numbers_hold():
    claims = exact_claims()
    assert [claim.holds for claim in claims] == [True, True]
    assert "0.6692" in claims[1].found


def test_plain_means_hold_out_against_learnt_weights_in_simulation():
    claim = weighting(0, studies=40)
    assert claim.holds
    assert weighting(0, studies=40) == claim


@pytest.fixture(scope="module")
def clip():
    return stand_in_speech(1, seed=3).clips()[0].samples


def test_each_way_of_spoiling_does_what_it_says_by_degree(clip):
    for name in ("pyworld", "librosa"):
        pytest.importorskip(name)
    found = {
        kind: [degraded(kind, degree, clip, np.random.default_rng(0)) for degree in degrees]
        for kind, (_, degrees) in DEGREES.items()
    }
    noise = [wada_snr(x) for x in found["noise"]]
    assert noise == sorted(noise, reverse=True)
    for x, edge in zip(found["lowpass"], DEGREES["lowpass"][1]):
        power = np.abs(np.fft.rfft(x)) ** 2
        assert power[int(1.3 * edge * len(x) / RATE) :].sum() < 1e-3 * power.sum()
    spread = [PitchRange().values(x, None) for x in found["flattened"]]
    assert spread[0] > spread[-1]
    assert spread[-1] < 0.3
    for x, factor in zip(found["stretched"], DEGREES["stretched"][1]):
        assert len(x) == pytest.approx(factor * len(clip), rel=0.02)
    for some in found.values():
        assert all(np.abs(x).max() == pytest.approx(1, abs=1e-3) for x in some)


def test_noise_is_written_as_it_is(tmp_path):
    recipes.noise(tmp_path, count=2)
    samples, rate = soundfile.read(tmp_path / "noise_normal_distribution" / "0001.wav")
    assert rate == RATE
    assert np.abs(samples).max() > 1
    assert len(list(tmp_path.rglob("*.wav"))) == 8


def test_texts_of_fit_length_are_written_once(tmp_path):
    (tmp_path / "in.txt").write_text("Too short\nThis line is long enough.\nthis line is long enough!\n" + "x" * 300)
    recipes.texts(tmp_path, file=str(tmp_path / "in.txt"))
    assert [p.read_text() for p in sorted(tmp_path.glob("0*.txt"))] == ["This line is long enough.\n"]
    (tmp_path / "in.txt").write_text("short\n")
    with pytest.raises(UsageError, match="no line"):
        recipes.texts(tmp_path, file=str(tmp_path / "in.txt"))


def test_no_real_speech_no_reproduction(tmp_path):
    with pytest.raises(UsageError, match="asterisk"):
        reproduce(tmp_path, reference=str(tmp_path / "nowhere"))


@pytest.mark.slow
def test_real_speech_is_above_every_synthetic_voice_and_every_spoiling_lowers_its_factor(tmp_path):
    """With 20 clips a half the gaps are too uncertain for the claim's two standard errors; their signs are not."""
    if not SOUNDS.is_dir():
        pytest.skip(f"no real speech under {SOUNDS} (Debian: asterisk-core-sounds-en-wav)")
    reproduce(tmp_path, reference=str(SOUNDS), clips=40, replicates=20)
    claims = json.loads((tmp_path / "claims.json").read_text())
    (against_voices,) = [c for c in claims if c["claim"].startswith("(ii') ")]
    gaps = re.findall(r" ([+−-][\d.]+) \(SE", against_voices["found"])
    assert len(gaps) == 4
    assert all(gap.startswith("+") for gap in gaps), against_voices["found"]
    spoilt = [c for c in claims if c["claim"].startswith("(iii)")]
    assert len(spoilt) == 5
    assert all(c["holds"] for c in spoilt), spoilt
