"""Readers of submissions, pictures, original files of data sets, env files, art: what else comes from outside."""

# ruff: noqa: E501
from __future__ import annotations

import base64
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from broken_files import Loader
from published_formats import PNG, all_of, npy, npz, parquet, several, tarred, wave, written


def server() -> list[Loader]:
    """What the server opens of what others hand in or publish."""
    from assay.server.boards import judge, looking
    from assay.server.runs.folders import RunFolders

    rows = [{"id": "a", "x": 1}, {"id": "b", "x": 2}]

    def hdf5(folder: Path) -> Path:
        import h5py

        with h5py.File(folder / "a.h5", "w") as file:
            file["x"] = np.ones((2, 2))
            file["t"] = np.array([b"a", b"b"])
        return folder / "a.h5"

    def matlab(folder: Path) -> Path:
        from scipy.io import savemat

        savemat(folder / "a.mat", {"x": np.ones((2, 2)), "s": {"a": 1}})
        return folder / "a.mat"

    def nested(folder: Path) -> Path:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("a.json", '[{"a": 1}]')
            archive.writestr("b.tar", tarred(c_dot_csv=b"a,b\n1,2\n"))
        return written("a.zip", stream.getvalue())(folder)

    def packed(folder: Path) -> Path:
        with tarfile.open(folder / "a.tar.gz", "w:gz") as archive:
            info = tarfile.TarInfo("a.txt")
            info.size = 3
            archive.addfile(info, io.BytesIO(b"abc"))
        return folder / "a.tar.gz"

    def look(path: Path) -> Any:
        return list(looking.documents(path))

    def sealed(folder: Path) -> Path:
        path = written("hidden.json", {"programs": "./p.jsonl", "x": 1})(folder)
        path.chmod(0o600)
        return path

    def seal(path: Path) -> Any:
        path.chmod(0o700 if path.is_dir() else 0o600)
        return judge.sealed_options(path)

    made = {
        "json": written("a.json", rows), "jsonl": written("a.jsonl", rows), "gz": written("a.json.gz", rows),
        "yaml": written("a.yaml", "a: 1\nb: [1, 2]\n"), "csv": written("a.csv", "a,b\n1,2\n"),
        "parquet": written("a.parquet", parquet(rows)), "npy": written("a.npy", npy(np.ones(3))),
        "npz": written("a.npz", npz(x=np.ones(3))), "h5": hdf5, "mat": matlab, "zip": nested, "tar": packed,
        "png": written("a.png", PNG), "pkl": written("a.pkl", b"\x80\x04N."), "txt": written("a.txt", "text"),
    }  # fmt: skip
    run = {
        "benchmark": "b", "system": "s", "tasks": {"t": {}}, "status": "finished", "options": {}, "created": "",
        "scores": ["a"], "groups": ["g"], "id": "r",
    }  # fmt: skip
    return [
        *(Loader(f"server.boards.looking {kind}", make, look) for kind, make in made.items()),
        Loader("server.boards.judge.sealed_options", sealed, seal),
        Loader("server.runs.folders.find", several("runs", r__run_dot_json=run),
               lambda p: RunFolders(p).find("r"), ("runs/r/run.json",)),
    ]  # fmt: skip


def pictures_and_texts() -> list[Loader]:
    """Pictures, art, cows, env files, instructions, encoders, spoken texts."""
    from types import SimpleNamespace

    from assay.agents.gem.data import CodeEnv, MathVisualEnv
    from assay.agents.gem.recipes.replay import _actions
    from assay.commands.running import read_env_file
    from assay.commands.submitting import _system_of
    from assay.multimodal.asciieval import kit, recognisers, sources
    from assay.reasoning.cost_of_pass.formats import RecordStore
    from assay.report.exchange import ImageBudget, read_exchange
    from assay.systems import human, lm_images
    from assay.systems.embedding import SentenceEncoder
    from assay.systems.submission import Submission

    def url(path: Path) -> Any:
        return lm_images.image_of("data:image/png;base64," + base64.b64encode(content(path)).decode())

    def content(path: Path) -> bytes:
        return path.read_bytes() if path.is_file() else b""

    def env_file(path: Path) -> Any:
        import os

        before, here = dict(os.environ), Path.cwd()
        try:
            os.chdir(path.parent)
            return read_env_file()
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(before)

    def cows(path: Path) -> Any:
        return sources.cow_items(path.parent) if path.is_file() else sources.cow_items(path)

    def code(path: Path) -> Any:
        env = CodeEnv(data=[{"problem": "p", "tests": path.read_text("utf-8", "replace") if path.is_file() else None}])
        env.row = 0
        return env.tests(env.rows[0])

    def seen(path: Path) -> Any:
        return MathVisualEnv(data=[{"problem": "p", "answer": "1", "images": [content(path)]}]).reset(seed=1)

    def exchange(path: Path) -> Any:
        record = {
            "output": '"x"', "target": (path / "artifacts/t.json").read_text("utf-8", "replace")
            if (path / "artifacts/t.json").is_file() else None,
            "artifacts": [{"path": f"artifacts/{name}", "sha256": "", "bytes": 9} for name in ("messages.json", "a.png", "t.json")],
        }  # fmt: skip
        return read_exchange(path, record, ImageBudget(10**6))

    encoder = several(
        "enc", modules_dot_json=[{"idx": 0, "name": "0", "path": "1_Pooling",
                                  "type": "sentence_transformers.models.Pooling"}],
        **{"1_Pooling/config.json": {"pooling_mode_mean_tokens": True}},
    )  # fmt: skip
    items = [{"messages": [{"role": "user", "content": "q"}], "expected": "a",
              "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["a", "b"]}}}}]  # fmt: skip
    cow = "$the_cow = <<EOC;\n  $thoughts\n   ($eyes)\nEOC\n"
    return [
        Loader("systems.lm_images.image_of", written("image part.png", PNG), url, named=False),
        Loader("asciieval.recognisers.read_picture", written("a.png", PNG),
               lambda p: recognisers.read_picture(content(p)), named=False),
        Loader("asciieval.kit.collect", several("art", a_dot_txt="/\\\n\n\n\n()", b_dot_cow=cow),
               lambda p: kit.collect(p), ("art/a.txt", "art/b.cow")),
        Loader("asciieval.sources.cow_items", several("cows", cow_dot_cow=cow), cows, ("cows/cow.cow",)),
        Loader("commands.running.read_env_file", written(".env", "A_KEY=1\nexport B='2'\n"), env_file),
        Loader("commands.submitting._system_of", several("run", run_dot_json={"system": "s"}), _system_of,
               ("run/run.json",)),
        Loader("systems.submission.Submission.describe", several("run", run_dot_json={"system": "s", "id": "i"}),
               lambda p: Submission(p).describe(), ("run/run.json",)),
        Loader("systems.human._text", written("i.txt", "Read."), lambda p: human._text(str(p))),
        Loader("systems.human._items", written("i.jsonl", items), lambda p: human._items(str(p))),
        Loader("systems.embedding.SentenceEncoder", encoder, lambda p: _only_data(SentenceEncoder, p),
               ("enc/modules.json", "enc/1_Pooling/config.json")),
        Loader("gem.recipes.replay._actions", written("a.json", ["up", "down"]), _actions),
        Loader("gem.data.CodeEnv.tests", written("tests.json", {"inputs": ["1"], "outputs": ["2"]}), code, named=False),
        Loader("gem.data.MathVisualEnv", written("a.png", PNG), seen, named=False),
        Loader("cost_of_pass.formats.metadata", several("s", t__m__v__metadata_dot_json={"full": {"n_runs": 1}}),
               lambda p: RecordStore(p).metadata("t", "m", "v"), ("s/t/m/v/metadata.json",)),
        Loader("report.exchange.read_exchange",
               several("run", artifacts__messages_dot_json=[{"role": "user", "content": "q"}], artifacts__a_dot_png=PNG,
                       artifacts__t_dot_json={"a": [1]}), exchange,
               ("run/artifacts/messages.json", "run/artifacts/a.png", "run/artifacts/t.json")),
        Loader("ttsds2.trials.texts_of", several("t", a_dot_txt="hello"),
               lambda p: _spoken(SimpleNamespace(text_source=str(p), divided=False, limit_texts=9)), ("t/a.txt",)),
        Loader("ttsds2.pipeline.Utterance.samples", written("a.wav", wave()), _utterance),
    ]  # fmt: skip


def _only_data(make: Any, path: Path) -> Any:
    """The encoder up to the model's own files, which transformers reads."""
    from assay.core.errors import DataError

    try:
        return make("e", path)
    except DataError as error:
        if "modules.json" in str(error) or "config.json" in str(error):
            raise
        return None


def _spoken(bench: Any) -> Any:
    from assay.speech.ttsds2.trials import texts_of

    return texts_of(bench, "d")


def _utterance(path: Path) -> Any:
    from assay.speech.ttsds2.pipeline import Recording, Utterance

    recording = Recording("r", path, 0.1, "", "", "", 0, ())
    return Utterance(recording, 0.0, 0.05, "s", "t").samples()


def curves() -> list[Loader]:
    """Curves of rate_distortion."""
    from assay.information.rate_distortion.curves import Curve, Point

    made = Curve([Point(eps=e, rate_nats=1 / e, half_mse=e, bound="upper") for e in (0.1, 0.2)], 2, "s", "m", None)

    def saved(name: str) -> Any:
        return lambda folder: made.save(folder / name)

    return [
        Loader("rate_distortion.curves.Curve.load json", saved("c.json"), Curve.load),
        Loader("rate_distortion.curves.Curve.load csv", saved("c.csv"), Curve.load),
    ]


def original_files() -> list[Loader]:
    """Original files of irregular data sets and of trials, in their own layouts."""
    from assay.learning.irregular import builders
    from assay.learning.survhte import clinical, semisynthetic

    tag = next(iter(builders.LDFPA_TAGS))
    lines = [f"{s},{tag},1,27.05.2009 14:03:25:12{k},1.5,2.5,3.5,{a}" for s in ("A01", "E01") for a in ("w", "s")
             for k in range(2)]  # fmt: skip
    activity = next(k for k, v in builders.PAMAP2_ACTIVITIES.items() if v != "transient")
    other = next(k for k, v in builders.PAMAP2_ACTIVITIES.items() if v != "transient" and k != activity)
    dat = "\n".join(" ".join([f"{t}.5", str((activity, other)[t // 2 % 2]), *["1.5"] * 52]) for t in range(12))
    plt = "h\n" * 6 + "40.1,116.2,0,492,39744.12,2008-10-23,02:53:04\n40.2,116.3,0,-777,39744.13,2008-10-23,02:53:10\n"
    track = "tid,label,user,time,lat,lon\n" + "".join(
        f"{t},{m},u,2020-01-01 00:0{k}:00,4{k}.1,11.2\n" for t, m in enumerate(("walk", "bus") * 3) for k in range(2)
    )
    taxi = "1,2008-02-02 15:36:08,116.5,39.9\n1,2008-02-02 15:46:08,116.6,39.8\n"

    def built(name: str) -> Any:
        return lambda path: builders.build(name, path)

    by_function = {function.__name__: name for name, function in builders.BUILDERS.items()}

    def trial(folder: Path) -> Path:
        from assay.core.datasets import read_table

        read_table(clinical.SAMPLE).head(20).write_csv(folder / "ACTG_175_HIV1.csv")
        return folder / "ACTG_175_HIV1.csv"

    def syn(folder: Path) -> Path:
        import polars as pl

        pl.DataFrame({name: [0.5, 1.0, 2.0, 3.0] for name in semisynthetic.ACTG_COEFFICIENTS}).write_csv(
            folder / "s.csv"
        )
        return folder / "s.csv"

    def effects(path: Path) -> Any:
        import polars as pl

        from assay.learning.survhte.analyses import _effects

        records = pl.DataFrame({"dataset": ["d"], "output": ["1"], "artifacts": [[{"path": path.name}]]})
        return _effects(type("R", (), {"records": records, "path": path.parent, "id": path.name})(), "d")  # type: ignore[arg-type]

    return [
        Loader("irregular.builders.ldfpa", several("l", ConfLongDemo_JSI_dot_txt="\n".join(lines) + "\n"),
               built(by_function["ldfpa"]), ("l/ConfLongDemo_JSI.txt",)),
        Loader("irregular.builders.pamap2", several("p", Protocol__subject101_dot_dat=dat), built(by_function["pamap2"]),
               ("p/Protocol/subject101.dat",)),
        Loader("irregular.builders.geolife", several("g", Data__000__Trajectory__a_dot_plt=plt),
               built(by_function["geolife"]), ("g/Data/000/Trajectory/a.plt",)),
        Loader("irregular.builders.geolife_supervised", several("g", geolife_supervised_dot_csv=track),
               built(by_function["geolife_supervised"]), ("g/geolife_supervised.csv",)),
        Loader("irregular.builders.tdrive", several("t", a_dot_txt=taxi), built(by_function["tdrive"]), ("t/a.txt",)),
        Loader("survhte.clinical.published_contrast", trial,
               lambda p: clinical.published_contrast(p, "HIV1", "LC")),
        Loader("survhte.semisynthetic._actg_syn_of", syn, semisynthetic._actg_syn_of, named=False),
        Loader("survhte.semisynthetic._admissions_of", written("mimic.csv", "id,a,b\n1,2,3\n2,3,4\n"),
               semisynthetic._admissions_of),
        Loader("survhte.analyses._effects", written("e.npy", npy(np.ones((2, 2)))), effects),
    ]  # fmt: skip


__all__ = ["all_of"]
