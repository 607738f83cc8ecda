"""Texts of fourteen languages and the six stages of the test-set pipeline."""

import json

import numpy as np
import pytest
import soundfile

from assay.core.errors import DataError, UsageError
from assay.speech.ttsds2.pipeline import LocalFolder, Settings, Tools, build, guess_language
from assay.speech.ttsds2.texts import LANGUAGES, characters, error_rate, plain

SENTENCES = {
    "en": "This is what the people of the town have said.", "zh": "今天的天气非常好,我们去公园散步。",
    "es": "Los niños de la escuela están en el parque.", "de": "Der Hund ist nicht auf dem Dach, und das ist gut.",
    "fr": "Les enfants sont dans le parc et il est tard.", "pl": "Nie wiem, czy to jest dobry pomysł, ale się uda.",
    "ja": "きょうは天気がいいので、公園へ行きます。", 
    "it": "Il treno non è ancora arrivato, ma anche gli altri sono in ritardo.",
    "ko": "오늘은 날씨가 아주 좋습니다.", "nl": "Het is niet ver van het station en de zon schijnt op het dak.",
    "pt": "Não é uma boa ideia, mas é mais fácil para os alunos.", "ar": "الطقس جميل جدا اليوم في المدينة",
    "tr": "Bu kitap çok güzel ve benim için önemli bir hediye.", "ru": "Сегодня в городе очень хорошая погода.",
}  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_keeps_its_letters_and_counts_its_errors(language):
    text = SENTENCES[language]
    form = plain(text, language)
    assert sum(c.isalpha() for c in form) >= 0.9 * sum(c.isalpha() for c in text)
    assert error_rate(text, text, language=language) == 0
    assert error_rate(text, "", language=language) == 1
    assert error_rate(text, text[:-4], by="character", language=language) > 0
    assert guess_language(text) == language
    least, most = characters(language)
    assert least < len(text) < most


def test_one_form_of_a_text():
    assert plain("Ｆｕｌｌ－width, “quotes” & Straße!") == "full width quotes strasse"
    assert plain("don't stop") == "dont stop"
    assert plain("ISI", "tr") == "ısı"
    assert plain("مُحَمَّدٌ ـــ قال", "ar") == plain("محمد قال", "ar")
    assert plain("你好，世界", "zh") == "你好世界"
    assert plain("café") == plain("café")
    assert error_rate("the cat sat", "the dog sat") == pytest.approx(1 / 3)
    assert error_rate("你好世界", "你好地界", language="zh") == pytest.approx(1 / 4)


def test_a_text_that_says_nothing_passes_no_filter():
    assert error_rate("...", "something") == float("inf")
    assert guess_language("1234 ...") is None


@pytest.fixture
def recordings(tmp_path):
    """Two long recordings at a low rate; four speakers, one of them with too little to say."""
    folder = tmp_path / "long"
    folder.mkdir()
    rate = 2000
    for name, published, title in (
        ("new", "2025-03-01", "What the people of the town have said"),
        ("old", "2020-03-01", "What the people of the town have said"),
        ("foreign", "2025-03-02", "Der Hund ist nicht auf dem Dach"),
    ):
        samples = np.random.default_rng(0).normal(0, 0.1, 60 * 21 * rate).astype(np.float32)
        soundfile.write(folder / f"{name}.wav", samples, rate)
        segments = []
        for k in range(24):
            speaker = "abc"[k % 3] if k < 22 else "d"
            start = 900 + 12 * k
            text = f"This is sentence number {k} of the speaker that we have heard."
            segments.append({"start": start, "end": start + 6.0, "speaker": speaker, "text": text})
        facts = {"title": title, "published": published, "views": 5, "segments": segments}
        (folder / f"{name}.json").write_text(json.dumps(facts))
    return folder


def test_stages_leave_pairs_of_one_speaker_with_every_loss_on_record(recordings, tmp_path):
    out = tmp_path / "set"
    settings = Settings(after="2024-12-31", minutes=20, pairs=10, seed=1)
    pairs = build(out, LocalFolder(recordings), settings)
    assert len(pairs) == 3
    for k, (a, b) in enumerate(pairs):
        assert a.speaker == b.speaker
        assert a.id != b.id
        assert (out / "A" / f"{k:04d}.txt").read_text().strip() == a.text
        samples, rate = soundfile.read(out / "B" / f"{k:04d}.wav")
        assert len(samples) == 6 * rate
    manifest = json.loads((out / "manifest.json").read_text())
    text = json.dumps(manifest)
    for step in ("1 date", "2 language", "4 speakers", "5 shares"):
        assert step in text
    assert "not after 2024-12-31" in text
    assert "recogniser" in manifest["options"]["skipped"]
    again = build(tmp_path / "again", LocalFolder(recordings), settings)
    assert [p[0].id for p in again] == [p[0].id for p in pairs]


def test_what_is_heard_otherwise_is_unfit_or_has_music_falls(recordings, tmp_path):
    def hears(samples, rate, language):
        return "something else altogether"

    source, settings = LocalFolder(recordings), Settings(after="2024-12-31")
    with pytest.raises(DataError, match="5 transcript"):
        build(tmp_path / "a", source, settings, recogniser=hears)
    with pytest.raises(DataError, match="5 music"):
        build(tmp_path / "b", source, settings, Tools(music=lambda samples, rate: 11.0))
    with pytest.raises(DataError, match=r"4 contents.*controversial"):
        build(tmp_path / "c", source, settings, Tools(contents=lambda text: {"controversial": 0.9, "negative": 0.5}))
    # Thresholds go by label: 0.75 is too much for most labels, not for a controversial text.
    assert build(tmp_path / "d", source, settings, Tools(contents=lambda text: {"controversial": 0.75}))
    with pytest.raises(DataError, match="cross-talk"):
        build(tmp_path / "e", source, settings, Tools(crosstalk=lambda samples, rate: 0.2))


def test_settings_and_sources_that_make_no_sense_are_refused(recordings, tmp_path):
    with pytest.raises(UsageError, match="language"):
        Settings(language="xx")
    with pytest.raises(UsageError, match="YYYY"):
        Settings(after="yesterday")
    with pytest.raises(UsageError, match="no folder"):
        LocalFolder(tmp_path / "nowhere")
    (recordings / "new.json").write_text('{"segments": [{"start": 1}]}')
    with pytest.raises(DataError, match=r"new\.json"):
        LocalFolder(recordings).search(Settings())
