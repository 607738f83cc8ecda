"""Loading of clips: what is done to them, and what is said of those that cannot be used."""

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from assay.core.errors import DataError, UsageError
from assay.speech.ttsds2.datasets import RATE, SHORTEST, ArrayDataset, DirectoryDataset, TarDataset, WavListDataset

SOUNDS = Path(os.environ.get("SPEECH_SOUNDS", "/usr/share/asterisk/sounds"))


def tone(seconds, rate=RATE, f0=200.0, amplitude=0.3):
    return (amplitude * np.sin(2 * np.pi * f0 * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def test_clips_come_out_mono_at_one_rate_padded_and_with_peak_one(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.stack([tone(2, 44100), tone(2, 44100)], axis=1), 44100)
    (tmp_path / "sub").mkdir()
    soundfile.write(tmp_path / "sub" / "b.flac", tone(0.2, 8000), 8000)
    (tmp_path / "a.txt").write_text("hello\n")
    found = DirectoryDataset(tmp_path)
    assert len(found) == 2
    a, b = found.clips()
    assert (a.name, a.text, a.rate) == ("a.wav", "hello", 44100)
    assert a.seconds == pytest.approx(2, abs=0.01)
    assert len(b.samples) == SHORTEST
    assert b.text is None
    assert np.abs(a.samples).max() == pytest.approx(1, abs=1e-4)
    assert found.rates() == {44100, 8000}


def test_a_common_band_takes_out_what_is_above_it(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(1, f0=300) + tone(1, f0=7000), RATE)
    whole, limited = DirectoryDataset(tmp_path), DirectoryDataset(tmp_path).limited(8000)
    high = [np.abs(np.fft.rfft(d.clips()[0].samples[:RATE]))[7000] for d in (whole, limited)]
    assert high[1] < high[0] / 1000
    assert whole.bandwidth is None
    assert whole.key != limited.key


def test_the_key_is_content_not_place(tmp_path):
    for name, f0 in (("one", 200), ("two", 200), ("three", 300)):
        (tmp_path / name).mkdir()
        soundfile.write(tmp_path / name / f"{name}.wav", tone(1, f0=f0), RATE)
    keys = [DirectoryDataset(tmp_path / name).key for name in ("one", "two", "three")]
    assert keys[0] == keys[1] != keys[2]
    soundfile.write(tmp_path / "one" / "one.wav", tone(1, f0=400), RATE)
    assert DirectoryDataset(tmp_path / "one").key != keys[0]


def test_sampling_leaves_the_set_as_it_is_and_is_the_same_each_time():
    whole = ArrayDataset([np.full(SHORTEST, k / 10, np.float32) for k in range(10)])
    first, again = whole.sample(4, seed=1), whole.sample(4, seed=1)
    assert len(whole) == 10
    assert len(first) == 4
    assert first.key == again.key != whole.sample(4, seed=2).key
    assert len(first.sample(2)) == 2
    with pytest.raises(UsageError, match="10 clips"):
        whole.sample(11)


def test_archives_are_read_in_place_trimmed_and_not_normalised(tmp_path):
    silence = np.zeros(RATE // 2, np.float32)
    stream = io.BytesIO()
    soundfile.write(stream, np.concatenate([silence, tone(1, amplitude=0.25), silence]), RATE, format="WAV")
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        for name, data in (("d/a.wav", stream.getvalue()), ("d/a.txt", b"hi"), ("d/readme", b"-")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    found = TarDataset(tmp_path / "x.tar.gz")
    (clip,) = found.clips()
    assert found.name == "x"
    assert clip.text == "hi"
    assert clip.seconds < 1.3
    assert np.abs(clip.samples).max() == pytest.approx(0.25, abs=0.01)


def test_files_that_cannot_be_read_are_named_or_counted(tmp_path):
    soundfile.write(tmp_path / "good.wav", tone(1), RATE)
    (tmp_path / "bad.mp3").write_bytes(b"ID3 not really")
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), RATE)
    nan = tone(1)
    nan[5] = np.nan
    soundfile.write(tmp_path / "nan.wav", nan, RATE, subtype="FLOAT")
    with pytest.raises(DataError, match=r"bad\.mp3"):
        DirectoryDataset(tmp_path).clips()
    found = DirectoryDataset(tmp_path, skip_errors=True)
    assert [clip.name for clip in found.clips()] == ["good.wav"]
    assert len(found.skipped) == 3
    assert any("NaN" in s for s in found.skipped)
    with pytest.raises(DataError, match="no samples"):
        WavListDataset([tmp_path / "empty.wav"]).clips()
    with pytest.raises(UsageError, match="no folder"):
        DirectoryDataset(tmp_path / "nowhere")
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="no audio file"):
        DirectoryDataset(tmp_path / "none")
    with pytest.raises(UsageError, match="texts"):
        WavListDataset([tmp_path / "good.wav"], texts=["a", "b"])
    with pytest.raises(DataError, match="tar"):
        TarDataset(tmp_path / "bad.mp3")


def test_silence_and_clipping_are_noticed(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(RATE), RATE)
    soundfile.write(tmp_path / "b.wav", tone(1, amplitude=5.0).clip(-1, 1), RATE)
    soundfile.write(tmp_path / "c.wav", tone(1), RATE)
    assert [clip.warnings for clip in DirectoryDataset(tmp_path).clips()] == [("silent",), ("clipped",), ()]


def test_real_prompts_are_found_by_length():
    if not SOUNDS.is_dir():
        pytest.skip(f"no real speech under {SOUNDS} (Debian: asterisk-core-sounds-en-wav)")
    found = DirectoryDataset(SOUNDS, shortest=3.0)
    assert len(found) > 50
    assert all(clip.seconds >= 2.9 for clip in found.sample(5).clips())
