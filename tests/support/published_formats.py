"""Every loader of a published format, with a good file for each: what the fuzz tests break."""

# ruff: noqa: E501
from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from broken_files import Loader

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAFElEQVR4nGPkjDrBgA0wYRUdtBIA7YsBO/IGWJEAAAAASUVORK5CYII="
)


def written(name: str, content: Any) -> Callable[[Path], Path]:
    """Writer of one file: bytes, text, or a value as JSON or JSON lines by the ending."""

    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(name, content))
        return path

    return make


def several(into: str = "", **files: Any) -> Callable[[Path], Path]:
    """Writer of a folder of files; ``__`` in a name is a slash, and ``_dot_`` a dot."""

    def make(folder: Path) -> Path:
        for name, content in files.items():
            written(str(Path(into, name.replace("__", "/").replace("_dot_", "."))), content)(folder)
        return folder / into if into else folder

    return make


def encoded(name: str, content: Any) -> bytes:
    """Content of a file as bytes."""
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        text = content
    elif name.removesuffix(".gz").endswith(".jsonl"):
        text = "\n".join(json.dumps(row) for row in content) + "\n"
    else:
        text = json.dumps(content)
    return gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    """A Parquet file."""
    import polars as pl

    stream = io.BytesIO()
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(stream)
    return stream.getvalue()


def npy(value: Any) -> bytes:
    """A .npy file."""
    import numpy as np

    stream = io.BytesIO()
    np.save(stream, np.asarray(value), allow_pickle=False)
    return stream.getvalue()


def npz(**values: Any) -> bytes:
    """A .npz file."""
    import numpy as np

    stream = io.BytesIO()
    np.savez(stream, **values)
    return stream.getvalue()


def zipped(**members: Any) -> bytes:
    """A zip archive of JSON members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, value in members.items():
            name = name.replace("__", "/").replace("_dot_", ".")
            archive.writestr(name, value if isinstance(value, bytes) else json.dumps(value))
    return stream.getvalue()


def tarred(**members: bytes) -> bytes:
    """A tar archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, value in members.items():
            info = tarfile.TarInfo(name.replace("_dot_", "."))
            info.size = len(value)
            archive.addfile(info, io.BytesIO(value))
    return stream.getvalue()


def wave() -> bytes:
    """A tenth of a second of sound."""
    import numpy as np
    import soundfile

    stream = io.BytesIO()
    soundfile.write(stream, np.sin(np.arange(2205) / 9).astype("float32") / 2, 22050, format="WAV")
    return stream.getvalue()


def all_of(rows: Iterable[Any]) -> list[Any]:
    """A generator to its end."""
    return list(rows)


def core() -> list[Loader]:
    """Loaders of the ground floor."""
    from assay.core import datasets
    from assay.core.datasets.manifest import write_manifest
    from assay.systems.tools.mcp_config import read_config
    from assay.systems.tools.retrieval import read_passages
    from assay.systems.trace import Trace
    from assay.systems.trace_formats import read_traces

    rows = [{"id": "a", "x": 1, "y": [1, 2]}, {"id": "b", "x": 2, "y": [3]}]
    chat = [
        {"role": "user", "content": "2 + 2?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "assistant", "content": "4"},
    ]
    inspect = {
        "samples": [
            {
                "id": 1,
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]},
                    {
                        "role": "assistant",
                        "content": "",
                        "tool_calls": [{"id": "c", "function": "add", "arguments": {}}],
                    },
                    {"role": "tool", "tool_call_id": "c", "content": "4", "error": {"type": "x", "message": "y"}},
                    {"role": "assistant", "content": "4"},
                ],
                "output": {"choices": [{"stop_reason": "stop"}], "usage": {"input_tokens": 1, "output_tokens": 2}},
                "model_usage": {"m": {"input_tokens": 1}},
                "limit": None,
            }
        ]
    }
    langchain = [
        {"type": "human", "content": "2 + 2?"},
        {"type": "ai", "content": "", "tool_calls": [{"id": "c", "name": "add", "args": {"a": 2}}],
         "usage_metadata": {"input_tokens": 3, "output_tokens": 4}, "response_metadata": {"finish_reason": "stop"}},
        {"type": "tool", "tool_call_id": "c", "content": "4", "status": "success"},
        {"type": "ai", "content": [{"type": "text", "text": "4"}], "additional_kwargs": {"reasoning_content": "sum"}},
    ]  # fmt: skip

    def manifest(folder: Path) -> Path:
        (folder / "x.txt").write_text("x")
        write_manifest(folder, recipe="a.b", options={"seed": 1})
        return folder

    def trace(folder: Path) -> Path:
        from assay.systems.trace_formats import from_openai

        found = from_openai([*chat, {"role": "user", "content": [{"type": "image_url", "image_url": {
            "url": "data:image/png;base64," + base64.b64encode(PNG).decode()}}]}])  # fmt: skip
        return folder / found.save(folder, "trace.json")

    def shown(path: Path) -> Any:
        from assay.report.trace import read_trace, render_traces

        return render_traces([read_trace(path)])

    def image(path: Path) -> Any:
        from assay.systems.chat.images import image_part

        return image_part(path, max_side=4)

    table = datasets.read_table
    feather = io.BytesIO()
    import polars as pl

    pl.DataFrame(rows).write_ipc(feather)
    stream = io.BytesIO()
    pl.DataFrame(rows).write_ipc_stream(stream)
    return [
        Loader("core.datasets.read_jsonl", written("a.jsonl", rows), lambda p: all_of(datasets.read_jsonl(p))),
        Loader("core.datasets.read_jsonl gz", written("a.jsonl.gz", rows), lambda p: all_of(datasets.read_jsonl(p))),
        Loader("core.datasets.read_json", written("a.json", rows), datasets.read_json),
        Loader("core.datasets.read_json gz", written("a.json.gz", rows), datasets.read_json),
        Loader("core.datasets.read_text", written("a.txt", "text\nmore"), datasets.read_text),
        Loader("core.datasets.read_table csv", written("a.csv", "id,x\na,1\nb,2\n"), table),
        Loader("core.datasets.read_table csv.gz", written("a.csv.gz", "id,x\na,1\nb,2\n"), table),
        Loader("core.datasets.read_table tsv", written("a.tsv", "id\tx\na\t1\n"), table),
        Loader("core.datasets.read_table jsonl", written("a.jsonl", rows), table),
        Loader("core.datasets.read_table json", written("a.json", rows), table),
        Loader("core.datasets.read_table columns", written("a.json", {"a": [1, 2], "b": ["x", "y"]}), table),
        Loader("core.datasets.read_table parquet", written("a.parquet", parquet(rows)), table),
        Loader("core.datasets.read_table arrow", written("a.arrow", feather.getvalue()), table),
        Loader("core.datasets.read_table stream", written("a.arrow", stream.getvalue()), table),
        Loader(
            "core.datasets.read_table saved",
            several(
                "set", dataset_dict_dot_json={"splits": ["train"]},
                train__state_dot_json={"_data_files": [{"filename": "d.arrow"}]}, train__d_dot_arrow=stream.getvalue(),
            ),
            table, ("set/dataset_dict.json", "set/train/state.json", "set/train/d.arrow"),
        ),
        Loader("core.datasets.read_table folder", several("set", **{"t-00.csv": "x\n1\n", "t-01.csv": "x\n2\n"}),
               table, ("set/t-01.csv",)),
        Loader("core.datasets.read_manifest", manifest, lambda p: datasets.read_manifest(p, verify=True),
               ("manifest.json",)),
        Loader("core.datasets.folder", manifest, lambda p: datasets.folder(p).info(), ("manifest.json",)),
        Loader("core.datasets.unpack zip", written("a.zip", zipped(a_dot_json=rows, b__c_dot_json=1)),
               lambda p: datasets.unpack(p, p.parent / "out")),
        Loader("core.datasets.unpack tar", written("a.tar", tarred(a_dot_txt=b"abc", b_dot_txt=b"")),
               lambda p: datasets.unpack(p, p.parent / "out")),
        Loader("systems.trace.Trace.load", trace, Trace.load),
        Loader("report.trace.read_trace", trace, shown),
        Loader("systems.trace_formats.read_traces openai", written("a.json", [chat]), lambda p: read_traces(p, "openai")),
        Loader("systems.trace_formats.read_traces openai jsonl", written("a.jsonl", [{"messages": chat}]),
               lambda p: read_traces(p, "openai")),
        Loader("systems.trace_formats.read_traces inspect", written("a.json", inspect), lambda p: read_traces(p, "inspect")),
        Loader("systems.trace_formats.read_traces langgraph", written("a.json", langchain),
               lambda p: read_traces(p, "langgraph")),
        Loader("systems.trace_formats.read_traces tags",
               written("a.jsonl", [{"text": "<think>a</think><search>b</search><information>c</information>"
                                    "<answer>d</answer>", "question": "q"}]), lambda p: read_traces(p, "tags")),
        Loader("systems.tools.mcp_config.read_config",
               written("mcp.json", {"mcpServers": {"a": {"command": "x", "args": ["y"], "env": {"K": "v"}, "cwd": "/"},
                                                   "b": {"url": "http://h", "headers": {"A": "b"}, "type": "sse"}}}),
               lambda p: read_config(p, {})),
        Loader("systems.tools.retrieval.read_passages", written("a.jsonl", [{"id": "1", "contents": "t\nx"},
               {"id": "2", "title": "t", "text": "x"}]), read_passages),
        Loader("systems.tools.retrieval.read_passages folder", several("texts", a_dot_txt="Title\n\ntext", b_dot_md="# b"),
               read_passages, ("texts/a.txt",)),
        Loader("systems.chat.images.image_part", written("a.png", PNG), image),
    ]  # fmt: skip


def reasoning() -> list[Loader]:
    """Loaders of cost_of_pass."""
    from assay.reasoning.cost_of_pass import data, formats, logs
    from assay.reasoning.cost_of_pass.prices import PriceBook

    book = "model,input,output\nm,1,2\nn,3,4\n"
    record = dict.fromkeys(formats.BASE, "x") | {
        "answer": "4", "completed": True, "timestamp": "", "uid": "u", "metric_name": "m", "metric_score": 1.0,
    }  # fmt: skip
    about = {"eval": {"task": "t", "model": "m"}}
    sample = {
        "id": 1, "epoch": 1, "model_usage": {"m": {"input_tokens": 3, "output_tokens": 4, "total_cost": 0.1}},
        "scores": {"match": {"value": "C"}}, "total_time": 1.5, "error": None,
    }  # fmt: skip
    harness = {
        "doc_id": 0, "arguments": {"gen_args_0": {"arg_0": "q", "arg_1": {}}}, "resps": [["4"]], "filter": "none",
        "exact_match": 1.0, "metrics": ["exact_match"],
    }  # fmt: skip
    gsm = data.data_set("gsm8k")
    return [
        Loader("cost_of_pass.prices.PriceBook.read csv", written("p.csv", book), PriceBook.read),
        Loader("cost_of_pass.prices.PriceBook.read json",
               written("p.json", [{"model": "m", "input": 1, "output": 2, "cached": 0.5, "day": "2026-01-01",
                                   "currency": "USD"}]), PriceBook.read),
        Loader("cost_of_pass.prices.PriceBook.read toml", written("p.toml", "[[price]]\nmodel='m'\ninput=1\noutput=2\n"),
               PriceBook.read),
        Loader("cost_of_pass.formats.read_records", written("t/m/v/metric_records/dataset.parquet", parquet([record])),
               formats.read_records),
        Loader("cost_of_pass.logs.read_inspect json", written("a.json", {**about, "samples": [sample]}), logs.read_inspect),
        Loader("cost_of_pass.logs.read_inspect eval",
               written("a.eval", zipped(header_dot_json=about, samples__1_epoch_1_dot_json=sample)), logs.read_inspect),
        Loader("cost_of_pass.logs.read_lm_eval", written("m/samples_t_2026-01-01.jsonl", [harness]),
               lambda p: logs.read_lm_eval(p, count=len)),
        Loader("cost_of_pass.data.read_problems", written("gsm8k.jsonl", [{"question": "q", "answer": "a #### 4"}]),
               lambda p: data.read_problems(gsm, p)),
        Loader("cost_of_pass.data.load saved",
               several("gsm8k", dataset_dict_dot_json={"splits": ["test"]},
                       test__state_dot_json={"_data_files": [{"filename": "d.parquet"}]},
                       test__d_dot_parquet=parquet([{"question": "q", "answer": "a #### 4"}])),
               lambda p: data.load("gsm8k", p), ("gsm8k/dataset_dict.json", "gsm8k/test/state.json")),
    ]  # fmt: skip


def agents() -> list[Loader]:
    """Loaders of gem and lmgame."""
    from assay.agents.gem.data import load_rows
    from assay.agents.gem.games.crosswords import read_entries
    from assay.agents.gem.games.words import read_words
    from assay.agents.gem.webshop.products import read_products
    from assay.agents.gem.wiki.graph import read_wiki
    from assay.agents.lmgame import analyses, benchmark, env, prompts, published, replay
    from assay.agents.lmgame.games import courtroom_script, sokoban

    step = {
        "episode_id": 1,
        "step": 1,
        "agent_action": "up",
        "thought": "t",
        "reward": 1.0,
        "perf_score": 1.0,
        "info": {"total_score": 1.0, "end": "x"},
        "time_taken_s": 1.0,
    } | {name: "x" for name in replay._FIELDS if name not in ("episode_id", "step", "info", "reward", "perf_score")}
    script = json.loads(courtroom_script.files("assay.agents.lmgame").joinpath("games/cases/quill.json").read_text())
    script["cases"] = script["cases"][:1]
    script["cases"][0]["scenes"] = script["cases"][0]["scenes"][:1]
    products = [
        {
            "asin": "A",
            "name": "n",
            "full_description": "d",
            "small_description": ["s"],
            "pricing": "$1.00",
            "product_category": "c",
            "query": "q",
            "customization_options": {"size": [{"value": "1"}]},
        }
    ]
    return [
        Loader("gem.data.load_rows", written("a.jsonl", [{"problem": "p", "answer": "a"}]), load_rows),
        Loader("gem.games.crosswords.read_entries",
               written("c.jsonl", [{"word": "ab", "hardcore": False, "clues": {"1": "c"}}]), lambda p: read_entries(str(p))),
        Loader("gem.games.words.read_words", written("w.txt", "abc def\nghi"), lambda p: read_words(str(p))),
        Loader("gem.wiki.graph.read_wiki",
               written("w.jsonl", [{"title": "a", "summary": "s", "links": ["b"]}, {"title": "b", "summary": "s",
                                   "links": ["a"]}]), read_wiki),
        Loader("gem.webshop.products.read_products",
               several("shop", items_shuffle_1_dot_json=products, items_ins_1_dot_json={"A": {"attributes": ["x"]}},
                       items_human_ins_dot_json={"A": [{"instruction": "i", "instruction_options": ["1"],
                                                        "instruction_attributes": ["x"]}]}),
               read_products, ("shop/items_shuffle_1.json", "shop/items_ins_1.json", "shop/items_human_ins.json")),
        Loader("lmgame.replay.read_log", written("episode_001_log.jsonl", [step, step]), replay.read_log),
        Loader("lmgame.published.read_run_folder",
               _run_folder(step), published.read_run_folder,
               ("run/gym_run_summary.json", "run/episode_001_log.jsonl")),
        Loader("lmgame.published.read_performance",
               written("r.json", {"m": {"harness_true": {"tetris": [1, 2.5]}, "harness_false": {"sokoban": []}}}),
               published.read_performance),
        Loader("lmgame.prompts.read_prompts",
               written("p.json", {"reasoning_module": {"prompt": prompts.prompts_for("tetris").template["reasoning"],
                                                       "system_prompt": "s"}}),
               lambda p: prompts.read_prompts(p, "tetris")),
        Loader("lmgame.env.read_config",
               written("g.json", {"action_mapping": {"up": 1}, "max_unchanged_steps_for_termination": 3,
                                  "env_init_kwargs": {}}), env.read_config),
        Loader("lmgame.benchmark._read_masks", written("m.json", {"name_mappings": {}}),
               lambda p: benchmark._read_masks(str(p))),
        Loader("lmgame.analyses.read_table", written("t.json", {"models": ["a"], "table": {"b": [1.0]}}),
               lambda p: analyses.read_table(str(p))),
        Loader("lmgame.games.courtroom_script.read_script", written("s.json", script), courtroom_script.read_script),
        Loader("lmgame.games.sokoban.read_levels", written("l.txt", "Level 1\n#####\n#@$?#\n#####\n"), sokoban.read_levels),
    ]  # fmt: skip


def _run_folder(step: dict[str, Any]) -> Callable[[Path], Path]:
    summary = {"game_name": "tetris", "model_name": "m", "harness": True, "seed": 1}
    return several("run", gym_run_summary_dot_json=summary, episode_001_log_dot_jsonl=[step, step])


def multimodal() -> list[Loader]:
    """Loaders of asciieval."""
    from assay.multimodal.asciieval import AsciiEval, kit, review, sft
    from assay.multimodal.asciieval.data import load

    item = {
        "ascii_art": " /\\ \n/__\\ ", "choices": ["a", "b", "c", "d"], "labels": [1, 0, 0, 0], "category-1": "k",
        "category-2": "g", "category-3": "a", "url": "u", "image_path": "", "id": "x",
    }  # fmt: skip
    bench = AsciiEval(modes="text")
    predictions = [{"pred": one.letter, "label": one.letter} for one in bench.items.items]

    def loaded(path: Path) -> Any:
        load.cache_clear()
        return load(path)

    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "q"}]},
                {"role": "assistant", "content": "A"}]  # fmt: skip
    return [
        Loader("asciieval.data.load", written("test.jsonl", [item]), loaded),
        Loader("asciieval.benchmark.read", written("text.jsonl", predictions),
               lambda p: all_of(bench.read(p))),
        Loader("asciieval.kit.read_mapping", written("m.csv", "category,class,group,concept\na,b,c,d\ne,b,c,f\n"),
               kit.read_mapping),
        Loader("asciieval.review.read_decisions",
               written("d.jsonl", [{"id": "a", "verdict": review.VERDICTS[0]},
                                   {"id": "b", "verdict": "fix", "row": {"choices": []}, "why": "w", "reviewer": "r"}]),
               review.read_decisions),
        Loader("asciieval.sft.read_rows",
               several("set", a_dot_png=PNG, sft_dot_jsonl=[{"messages": messages, "images": ["a.png"]}]),
               sft.read_rows, ("set/sft.jsonl",)),
    ]  # fmt: skip
