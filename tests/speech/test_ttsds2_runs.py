"""Whole evaluations: suite, benchmark on folders and on systems that speak, boards, baselines."""

import asyncio
import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile

import assay
from assay.core.errors import DataError, ProviderError, UsageError
from assay.core.results import Runs
from assay.speech.ttsds2 import BenchmarkSuite, DirectoryDataset, analyses, leaderboard, recipes, score
from assay.speech.ttsds2.benchmark import TTSDS2
from assay.speech.ttsds2.datasets import RATE
from assay.speech.ttsds2.features import features_of
from assay.speech.ttsds2.noise import noise_datasets, stand_in_speech
from assay.speech.ttsds2.suite import COLUMNS
from assay.speech.ttsds2.systems import CommandSpeaker, EndpointSpeaker, StandInSpeaker

CHEAP = "logmel,onset_rate"


def written(folder, dataset):
    folder.mkdir(parents=True, exist_ok=True)
    for clip in dataset.clips():
        soundfile.write(folder / f"{clip.name}.wav", clip.samples, RATE)
    return folder


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    written(root / "real", stand_in_speech(10, seed=1))
    written(root / "good", stand_in_speech(10, seed=2))
    written(root / "bad", noise_datasets(10, seconds=(2.0, 3.0), seed=5)[3])
    return root


def suite(sets, **options):
    return BenchmarkSuite(
        [DirectoryDataset(sets / "good"), DirectoryDataset(sets / "bad")],
        [DirectoryDataset(sets / "real")],
        list(noise_datasets(4)),
        features_of("lite", only=CHEAP.split(",")),
        replicates=8,
        **options,
    )


def test_a_suite_ranks_sets_and_writes_the_published_columns(sets, tmp_path):
    told = []
    made = suite(
        sets, write_to_file=tmp_path / "r.csv", cache_dir=tmp_path / "cache", progress=lambda *a: told.append(a)
    )
    frame = made.run()
    assert frame.height == 4
    assert [t[:2] for t in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    good, bad = (frame.filter(pl.col("dataset") == name)["score"].to_list() for name in ("good", "bad"))
    assert min(good) > 80
    assert max(bad) < 50
    found = pl.read_csv(tmp_path / "r.csv")
    assert tuple(found.columns) == COLUMNS
    total = made.get_aggregated_results().filter(pl.col("benchmark_category") == "OVERALL")
    assert total["score_mean"][0] == pytest.approx(sum(good) / 4)
    assert any("SPEAKER" in w for w in made.warnings)
    assert any("10 utterances" in w for w in made.warnings)
    again = suite(sets, cache_dir=tmp_path / "cache").run()
    assert again["score"].to_list() == frame["score"].to_list()


def test_a_suite_refuses_or_counts_what_cannot_be_measured(sets):
    one = [DirectoryDataset(sets / "good")], [DirectoryDataset(sets / "real")], list(noise_datasets(2))
    features = features_of("lite", only=["logmel", "dvector"])
    with pytest.raises(UsageError, match="dvector"):
        BenchmarkSuite(*one, features).run()
    made = BenchmarkSuite(*one, features, skip_errors=True)
    frame = made.run()
    assert frame["score"].null_count() == 1
    assert any("DVector" in w for w in made.warnings)
    with pytest.raises(UsageError, match="one name"):
        BenchmarkSuite(one[0] * 2, one[1])
    with pytest.raises(UsageError, match="reference"):
        BenchmarkSuite(one[0], [])


def test_score_of_two_folders_names_which_score_it_is(sets):
    found = score(sets / "good", sets / "real", noise_clips=2, benchmarks=features_of("lite", only=["logmel"]))
    assert found["features"]["Log-Mel"] > 90
    assert found["overall"] == pytest.approx(found["features"]["Log-Mel"] / 4)
    assert found["warnings"]


def run_of(sets, system, into, **options):
    bench = TTSDS2(str(sets / "real"), features=CHEAP, noise_clips=4, replicates=6, **options)
    return assay.run(bench, system, into=into, workers=1)


@pytest.fixture(scope="module")
def runs(sets, tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return Runs([run_of(sets, f"submission:{sets / name}", root / name) for name in ("good", "bad")])


def test_a_folder_is_a_submission_whose_records_carry_their_own_standard_error(runs):
    good, bad = runs
    assert good.status == "finished"
    assert set(good.records["status"]) == {"ok"}
    assert good.records["ttsds2_lite_se"].null_count() == 0
    assert "ttsds2" not in good.records.columns
    assert set(good.records["factor"]) == {"generic", "prosody"}
    assert good.rows("all").height == 2 * 6
    assert {s.metric for s in good.scores(metrics=TTSDS2().metrics)} == {"ttsds2_lite"}
    assert good.scores(metrics=TTSDS2().metrics)[0].value > 80 > 50 > bad.scores(metrics=TTSDS2().metrics)[0].value
    output = json.loads(good.records["output"][0])
    assert output["reference"] == "real"
    assert any("utterances" in w for w in output["warnings"])


def test_analyses_order_systems_with_paired_replicates(runs):
    table = analyses.ladder(runs).frame
    assert table["rank"].to_list() == [1, 2]
    assert "good" in table["system"][0]
    assert table["decided"][0] is True
    factors = analyses.factors(runs).frame
    assert set(factors["factor"]) == {"generic", "prosody", "OVERALL"}
    assert factors["se"].null_count() == 0
    assert "intelligibility, speaker" in analyses.factors(runs).notes[1]
    for run in runs:
        mean = run.scores(metrics=TTSDS2().metrics)[0].value
        assert analyses._overall(run)["all"][0] == pytest.approx(mean)


def test_clips_that_pull_scores_down_are_named(runs):
    found = analyses.influence(Runs([runs[0]]), worst=2).frame
    assert found.height == 4
    assert set(found["feature"]) == {"logmel", "onset_rate"}
    assert all(name.endswith(".wav") for name in found["clip"])


def test_runs_of_different_profiles_are_never_put_on_one_board(runs, sets):
    class Other:
        info = {"options": {"profile": "english"}}

    with pytest.raises(UsageError, match="ttsds2 and ttsds2_lite"):
        analyses._one_kind([runs[0], Other()])
    assert TTSDS2(profile="english").metrics[0].name == "ttsds2"
    with pytest.raises(UsageError, match="profile=lite"):
        _ = TTSDS2(profile="english").features


def test_boards_have_the_published_columns_and_lite_gets_no_published_rows(runs, tmp_path):
    recipes.board(tmp_path, runs=",".join(str(r.path) for r in runs))
    found = leaderboard.read_board(tmp_path / "leaderboard.csv")
    assert tuple(found.columns) == leaderboard.COLUMNS
    assert found.filter(pl.col("category") == "Overall").height == 2
    assert "Vevo" not in set(found["system"])
    assert "<table" in (tmp_path / "leaderboard.html").read_text()
    rows = leaderboard.published_rows()
    leaderboard.write_board(tmp_path, ("ttsds2", rows.head(0)))
    assert "Vevo" in set(leaderboard.read_board(tmp_path / "leaderboard.csv")["system"])
    (tmp_path / "x.csv").write_text("system,score\na,1\n")
    with pytest.raises(DataError, match="url"):
        leaderboard.read_board(tmp_path / "x.csv")


def test_a_speaking_system_is_spoken_once_and_resumed(sets, tmp_path):
    said = []

    class Counting(StandInSpeaker):
        async def speak(self, text, *, language="en", voice=None):
            said.append(text)
            if text == "fails":
                raise DataError("no")
            return await super().speak(text, language=language)

    texts = tmp_path / "texts.txt"
    texts.write_text("one\ntwo\nthree\nfails\n")
    bench = TTSDS2(str(sets / "real"), features=CHEAP, noise_clips=3, replicates=0, texts=str(texts))
    run = assay.run(bench, Counting(), into=tmp_path / "run", workers=1)
    assert sorted(said) == ["fails", "one", "three", "two"]
    assert set(run.records["failure_rate"]) == {25.0}
    assert len(list((run.path / "speech" / "all").glob("*.wav"))) == 3
    assert run.records["ttsds2_lite_se"].null_count() == 2


def test_a_system_that_never_speaks_leaves_error_records(sets, tmp_path):
    class Mute(StandInSpeaker):
        async def speak(self, text, *, language="en", voice=None):
            raise RuntimeError("out of order")

    (tmp_path / "texts.txt").write_text("one\ntwo\n")
    bench = TTSDS2(str(sets / "real"), features=CHEAP, noise_clips=3, replicates=0, texts=str(tmp_path / "texts.txt"))
    run = assay.run(bench, Mute(), into=tmp_path / "run", workers=1)
    assert run.records["status"].to_list() == ["error", "error"]
    assert "out of order" in run.records["error"][0]
    assert run.records["factor"].null_count() == 0


@pytest.mark.parametrize("program", ["espeak-ng", "flite", "text2wave"])
def test_installed_programs_speak(program):
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    system = TTSDS2().methods()[{"espeak-ng": "espeak", "text2wave": "festival"}.get(program, program)]()
    data = asyncio.run(system.speak("Good morning; it's \"nine\" o'clock."))
    from assay.speech.ttsds2.datasets import load_audio

    samples, rate = load_audio(data)
    assert len(samples) > rate / 2
    assert np.abs(samples).max() > 0.01


def test_programs_that_fail_hang_or_are_not_there_are_named(tmp_path):
    with pytest.raises(UsageError, match="out"):
        CommandSpeaker("espeak-ng {text}")
    with pytest.raises(UsageError, match="cannot be started"):
        asyncio.run(CommandSpeaker("no-such-program {out}").speak("x"))
    with pytest.raises(DataError, match="status 3"):
        asyncio.run(CommandSpeaker("sh -c 'exit 3' {out}").speak("x"))
    with pytest.raises(DataError, match=r"more than 0\.2 s"):
        asyncio.run(CommandSpeaker("sh -c 'sleep 5' {out}", timeout=0.2).speak("x"))
    # Nothing of a text is run by a shell.
    harmless = CommandSpeaker('sh -c \'printf %s "$1" > "$2"\' speak {text} {out}')
    assert asyncio.run(harmless.speak(f"$(touch {tmp_path}/x) {{out}}")) == f"$(touch {tmp_path}/x) {{out}}".encode()
    assert not (tmp_path / "x").exists()


def test_an_endpoint_is_asked_as_its_interface_says(monkeypatch):
    from aiohttp import web

    asked = []

    async def speech(request):
        asked.append((await request.json(), request.headers.get("Authorization")))
        if len(asked) == 1:
            return web.Response(status=429, text="slow down")
        return web.Response(body=b"RIFF")

    async def go(path):
        app = web.Application()
        app.router.add_post("/v1/audio/speech", speech)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        try:
            system = EndpointSpeaker("m", voice="v", base_url=f"http://127.0.0.1:{port}{path}", key="SPEECH_KEY")
            return await system.speak("hello")
        finally:
            await runner.cleanup()

    with pytest.raises(UsageError, match="SPEECH_KEY"):
        asyncio.run(go("/v1"))
    monkeypatch.setenv("SPEECH_KEY", "secret")
    assert asyncio.run(go("/v1")) == b"RIFF"
    body = {"model": "m", "voice": "v", "input": "hello", "response_format": "wav"}
    assert asked == [(body, "Bearer secret")] * 2
    with pytest.raises(ProviderError, match="404") as caught:
        asyncio.run(go("/wrong"))
    assert caught.value.fatal


def test_options_that_make_no_sense_are_refused(tmp_path):
    for options, said in (
        ({"reference": " "}, "reference"),
        ({"bandwidth": "wide"}, "bandwidth"),
        ({"noise_clips": 1}, "noise_clips"),
        ({"limit_texts": 0}, "limit_texts"),
    ):
        with pytest.raises(UsageError, match=said):
            TTSDS2(**options)
    with pytest.raises(UsageError, match="logmel"):
        _ = TTSDS2(features="logmell").features
    with pytest.raises(UsageError, match="weights"):
        _ = TTSDS2(features="dvector").features
    with pytest.raises(DataError, match="folder"):
        list(TTSDS2().read(tmp_path / "x"))
    (tmp_path / "clean").mkdir()
    with pytest.raises(UsageError, match="clean"):
        list(TTSDS2(domains="claen").read(tmp_path))


def test_domains_are_subfolders_of_both(sets, tmp_path):
    for domain in ("a", "b"):
        shutil.copytree(sets / "real", tmp_path / "real" / domain)
        shutil.copytree(sets / "good", tmp_path / "sys" / domain)
    bench = TTSDS2(str(tmp_path / "real"), features="onset_rate", domains="a,b", noise_clips=3, replicates=0)
    run = assay.run(
        bench, f"submission:{tmp_path / 'sys'}", into=tmp_path / "run", workers=1,
    )  # fmt: skip
    assert run.records["task"].to_list() == ["a", "b"]
    assert run.records["ttsds2_lite"].n_unique() == 1


def test_admission_tells_features_apart(sets, tmp_path):
    recipes.admission(tmp_path, reference=str(sets / "real"), features="logmel,dvector", splits=4, noise_clips=2)
    rows = {row["feature"]: row for row in json.loads((tmp_path / "admission.json").read_text())}
    assert rows["dvector"]["admitted"] is None
    assert rows["logmel"]["mean"] > 90
    assert "logmel" in (tmp_path / "admission.md").read_text()


def test_baselines_follow_damage(sets, tmp_path):
    for name in ("pystoi", "pesq", "pyworld", "librosa"):
        pytest.importorskip(name)
    from assay.speech.ttsds2 import baselines

    rng = np.random.default_rng(0)
    for clip in stand_in_speech(1, seed=1).clips():
        for k, level in enumerate((0.0, 0.02, 0.3)):
            damaged = clip.samples + level * rng.standard_normal(len(clip.samples)).astype(np.float32)
            (tmp_path / f"d{k}").mkdir(exist_ok=True)
            soundfile.write(tmp_path / f"d{k}" / f"{clip.name}.wav", damaged / np.abs(damaged).max(), RATE)
    found = [
        baselines.measure_folder(tmp_path / f"d{k}", original=tmp_path / "d0", metrics=("stoi", "pesq", "mcd")).row(
            0, named=True
        )
        for k in range(3)
    ]
    assert found[0]["stoi"] == pytest.approx(1, abs=1e-3)
    assert found[0]["mcd"] == pytest.approx(0, abs=1e-9)
    assert found[0]["pesq"] > 4.5
    assert found[0]["stoi"] > found[1]["stoi"] > found[2]["stoi"]
    assert found[0]["pesq"] > found[1]["pesq"] > found[2]["pesq"]
    assert found[0]["mcd"] < found[1]["mcd"] < found[2]["mcd"]
    assert len(baselines.PUBLISHED) == 16
    own = baselines.measure_folder(tmp_path / "d0", metrics=(), predictors={"peak": lambda x: np.abs(x).max()})
    assert own.columns == ["clip", "peak"]
    with pytest.raises(UsageError, match="stoi"):
        baselines.measure_folder(tmp_path / "d0", metrics=("stoj",))


def test_distances_of_embeddings_and_cosines_have_their_closed_forms():
    from assay.speech.ttsds2.baselines import cosine, frechet_audio_distance

    x = [np.array([k, 0.0]) for k in range(4)]
    assert frechet_audio_distance(x, [v + 3 for v in x], lambda v: v) == pytest.approx(18)
    assert cosine(lambda v: v)(np.array([1.0, 0]), np.array([1.0, 1])) == pytest.approx(2**-0.5)


def test_published_numbers_name_their_source():
    found = json.loads((Path(analyses.__file__).with_name("references.json")).read_text(encoding="utf-8"))
    assert "ttsds/website" in found["source"]


def test_tables_of_languages_correlate_by_permuted_rows(tmp_path):
    from assay.speech.ttsds2.languages import mantel, study

    place = np.array([0.0, 1.0, 2.5, 4.5, 7.0, 10.0])
    apart = np.abs(place[:, None] - place)
    rho, p = mantel(100 - apart, apart, permutations=999)
    assert rho == pytest.approx(-1)
    assert p < 0.02
    noise = np.random.default_rng(0).normal(size=(6, 6))
    assert mantel(noise + noise.T, apart, permutations=499)[1] > 0.05
    with pytest.raises(UsageError, match="four"):
        mantel(apart[:3, :3], apart[:3, :3])
    pitches = {"aa": 100.0, "bb": 115.0, "cc": 160.0, "dd": 230.0}
    lines = ["a,b,distance"]
    for name, pitch in pitches.items():
        written(tmp_path / "set" / name, stand_in_speech(5, seed=3, pitch=pitch))
        lines += [f"{name},{other},{abs(np.log(pitch / f))}" for other, f in pitches.items() if other < name]
    (tmp_path / "typology.csv").write_text("\n".join(lines))
    study(
        tmp_path, folder=str(tmp_path / "set"), typology=str(tmp_path / "typology.csv"), features="pitch", noise_clips=2
    )
    found = json.loads((tmp_path / "languages.json").read_text())
    assert found["languages"] == list(pitches)
    assert found["spearman"] < -0.7
