"""Systems by name."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import AssayError, DataError, UsageError
from assay.systems.chat.client import ChatClient
from assay.systems.loading import describe, load, parse, typed
from assay.systems.submission import Submission


class Guesser:
    name = "guesser"

    def __init__(self, depth: int = 3, *, rate: float | None = None, loud: bool = False, label: str = "x"):
        self.options = (depth, rate, loud, label)


def needs_size(size: int, role: str = "subject"):
    return (size, role)


class Toy(Benchmark):
    name = "toy"
    title = "A toy"

    def tasks(self):
        return []

    def methods(self):
        return {"guess": Guesser, "sized": needs_size}

    def read(self, path):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            yield row["task"], row["sample"], row.get("attempt", 0), Outcome(output=row["output"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openai:gpt-4o", ("openai", "gpt-4o", None, {})),
        ("openai:gpt-5?reasoning_effort=low", ("openai", "gpt-5", None, {"reasoning_effort": "low"})),
        ("openrouter:meta-llama/llama-3.1-8b:free", ("openrouter", "meta-llama/llama-3.1-8b:free", None, {})),
        ("vllm:org/m@http://h:8000/v1?a=1&b=x%20y", ("vllm", "org/m", "http://h:8000/v1", {"a": "1", "b": "x y"})),
        ("vllm:m@rev@https://h/v1", ("vllm", "m@rev", "https://h/v1", {})),
        ("anthropic:claude@20240620", ("anthropic", "claude@20240620", None, {})),
        ("ollama:llama3.1:8b", ("ollama", "llama3.1:8b", None, {})),
        ("hf:org/name@abc123?dtype=float16", ("hf", "org/name", "abc123", {"dtype": "float16"})),
        ("local:smollm2", ("local", "smollm2", None, {})),
        ("python:a.b:C.d?x=1", ("python", "a.b:C.d", None, {"x": "1"})),
        ("submission:/a/b@c.json", ("submission", "/a/b@c.json", None, {})),
    ],
)
def test_names_are_taken_apart(name, expected):
    assert tuple(parse(name)) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("opnai:gpt-4o", "did you mean 'openai'"),
        ("gpt-4o", "did you mean openai:gpt-4o?"),
        ("claude-sonnet-4-5", "did you mean anthropic:claude-sonnet-4-5?"),
        ("org/model", "hf:org/model or openrouter:org/model"),
        ("smollm", "openai:MODEL"),
        ("openai:", "ends where a name should follow"),
        ("openai:m?temperature", "key=value"),
        ("openai:m?=1", "key=value"),
        ("openai:m?top_p=1&top_p=2", "given twice"),
        ("human:ada@http://127.0.0.1:8765", "ASSAY_SERVER_TOKEN"),
        ("human:ada?people=3", "goes with human:"),
        ("vllm:m?temprature=0", "did you mean 'temperature'"),
        ("vllm:m?temperature=hot", "must be a number"),
        ("vllm:m?max_tokens=1.5", "must be a whole number"),
        ("vllm:m?completion=maybe", "true or false"),
        ("vllm:m?role=judge", "no option of"),
        ("vllm:m?connections=9", "no option of"),
        ("vllm:m@http://u:p@h/v1", "user name or password"),
        ("method:guess", "none was named"),
        ("python:a.b", "python:package.module:attribute"),
        ("python:no.such.module:x", "no module 'no.such.module'"),
        ("python:json:lods", "did you mean 'loads'"),
        ("submission:/no/such/file", "no submission at"),
        ("local:smollm2@rev", "no revisions"),
    ],
)
def test_a_bad_name_is_one_sentence_that_helps(name, message):
    with pytest.raises(UsageError) as caught:
        load(name)
    assert message.lower() in str(caught.value).lower()
    assert "\n" not in str(caught.value)


def test_a_value_of_an_unknown_option_is_not_repeated():
    with pytest.raises(UsageError) as caught:
        load("vllm:m?api_key=sk-secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("prefix", ["openai", "anthropic", "gemini", "mistral", "groq", "together", "deepseek", "xai"])
def test_providers_load_with_their_own_key(prefix, monkeypatch):
    with pytest.raises(UsageError, match="_API_KEY"):
        load(f"{prefix}:m")
    from assay.systems.chat.providers import provider

    monkeypatch.setenv(provider(prefix).key[0], "k" * 24)
    client = load(f"{prefix}:m?temperature=0.5&max_tokens=7&seed=3", role="judge")
    assert isinstance(client, ChatClient)
    assert (client.role, client._sampling) == ("judge", {"temperature": 0.5, "max_tokens": 7, "seed": 3})
    assert client.base_url.startswith("https://")


@pytest.mark.parametrize("prefix", ["ollama", "vllm", "sglang", "llamacpp", "lmstudio"])
def test_servers_of_ones_own_need_no_key(prefix):
    client = load(f"{prefix}:m@http://127.0.0.1:9/v1?completion=true&timeout=5")
    assert client.base_url == "http://127.0.0.1:9/v1"
    assert client.completion


options = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0, 1),
        "max_tokens": st.integers(1, 10**6),
        "seed": st.integers(0, 2**62),
        "reasoning_effort": st.sampled_from(["low", "high"]),
        "completion": st.just(True),
        "revision": st.text("ab/&=%?+ é", min_size=1, max_size=8),
        "timeout": st.floats(1, 100),
    },
)


@given(options, st.sampled_from([None, "http://h:8/v1"]))
def test_a_clients_name_loads_the_same_client(given_options, url):
    first = ChatClient("vllm", "org/m", base_url=url, **given_options)
    again = load(first.name)
    assert (again.name, again.options, again.base_url) == (first.name, first.options, first.base_url)


def test_methods_take_options_by_their_signature():
    guess = load("method:guess?depth=5&rate=0.5&loud=true&label=7", benchmark=Toy())
    assert guess.options == (5, 0.5, True, "7")
    assert load("method:guess?rate=none", benchmark=Toy()).options == (3, None, False, "x")
    assert load("method:sized?size=4", benchmark=Toy(), role="opponent") == (4, "opponent")
    with pytest.raises(UsageError, match="did you mean 'guess'"):
        load("method:gues", benchmark=Toy())
    with pytest.raises(UsageError, match="needs the option 'size'"):
        load("method:sized", benchmark=Toy())
    with pytest.raises(UsageError, match="did you mean 'depth'"):
        load("method:guess?dept=5", benchmark=Toy())


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_systems.py").write_text(
        textwrap.dedent(
            """
            class Model:
                def __init__(self, depth=2, loud=False, **more):
                    self.given = (depth, loud, more)

            def make(a: "int", b: "float" = 0.0):
                return (a, b)

            class Holder:
                inner = Model(9)

            instance = Holder.inner
            """
        )
    )
    (tmp_path / "own_broken.py").write_text("import no_such_package_at_all\n")
    (tmp_path / "own_wrong.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("own_systems", "own_broken", "own_wrong"):
        sys.modules.pop(name, None)


def test_python_objects_are_called_or_used_as_they_are(own_module):
    assert load("python:own_systems:Model?depth=4&loud=yes").given == (4, True, {})
    assert load("python:own_systems:Model?x=1&y=true&z=text").given == (2, False, {"x": 1, "y": True, "z": "text"})
    assert load("python:own_systems:make?a=1&b=2") == (1, 2.0)
    assert load("python:own_systems:instance").given == (9, False, {})
    assert load("python:own_systems:Holder.inner").given == (9, False, {})
    with pytest.raises(UsageError, match="takes no options"):
        load("python:own_systems:instance?a=1")
    with pytest.raises(UsageError, match="needs the module 'no_such_package_at_all'"):
        load("python:own_broken:x")
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        load("python:own_wrong:x")


def test_a_description_holds_facts_and_no_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdef")
    name = "openai:gpt-4o-mini?temperature=0.5"
    by_name, by_object = describe(name), describe(load(name))
    for found in (by_name, by_object):
        assert found["name"] == name
        assert found["options"] == {"temperature": 0.5}
        assert (found["provider"], found["model"]) == ("openai", "gpt-4o-mini")
        assert found["release_date"] == "2024-07-18"
        assert found["price"]["prompt"] > 0
        assert "0123456789" not in json.dumps(found)


def test_any_object_can_be_described():
    found = describe(Guesser())
    assert (found["name"], found["kind"]) == ("guesser", "python")
    assert found["class"].endswith(":Guesser")
    assert describe(Guesser)["kind"] == "python"
    assert describe("method:guess?depth=5") == {
        "name": "method:guess?depth=5",
        "kind": "method",
        "options": {"depth": "5"},
    }
    assert describe("hf:org/Qwen3-8B@main")["revision"] == "main"
    assert describe("hf:org/Qwen3-8B@main")["parameters"] == 8_190_000_000


def test_untyped_parameters_take_the_type_of_their_default():
    def factory(a=1, b=1.0, c=True, d="x", e=None):
        return a, b, c, d, e

    assert typed(factory, {"a": "2", "b": "3", "c": "no", "d": "4", "e": "5"}, "x") == {
        "a": 2,
        "b": 3.0,
        "c": False,
        "d": "4",
        "e": "5",
    }


def test_a_submission_gives_outcomes_by_trial(tmp_path):
    path = tmp_path / "predictions.jsonl"
    rows = [{"task": "t", "sample": f"s{i}", "output": i} for i in range(3)] + [
        {"task": "t", "sample": "s0", "attempt": 1, "output": 9}
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    submission = load(f"submission:{path}")
    assert isinstance(submission, Submission)
    assert submission.is_submission
    found = submission.outcomes(Toy())
    assert {k: v.output for k, v in found.items()} == {
        ("t", "s0", 0): 0,
        ("t", "s1", 0): 1,
        ("t", "s2", 0): 2,
        ("t", "s0", 1): 9,
    }
    assert describe(submission)["path"] == str(path)


def test_double_predictions_are_named_with_their_rows(tmp_path):
    path = tmp_path / "predictions.jsonl"
    rows = [{"task": "t", "sample": s, "output": 0} for s in ("a", "b", "a", "b")]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(DataError, match=r"t/a, attempt 0 \(rows 1 and 3\); t/b, attempt 0 \(rows 2 and 4\)"):
        Submission(path).outcomes(Toy())
    path.write_text("")
    with pytest.raises(DataError, match="no predictions"):
        Submission(path).outcomes(Toy())


def test_names_load_without_heavy_imports():
    """`assay list` and `--help` may parse names; only loading a client imports aiohttp."""
    import subprocess

    code = (
        "import sys; from assay.systems.loading import parse, describe; parse('openai:gpt-4o');"
        "heavy = {'aiohttp', 'numpy', 'polars', 'torch', 'genai_prices', 'PIL'} & set(sys.modules); print(heavy)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


def test_the_loaded_client_answers():
    from assay.systems.chat.loopback import LoopbackServer

    async def go():
        async with LoopbackServer("x") as server, load(f"vllm:m@{server.url}?temperature=0") as client:
            return (await client.generate([{"role": "user", "content": "hi"}])).text, server.bodies

    text, bodies = asyncio.run(go())
    assert text == "x"
    assert bodies[0]["temperature"] == 0


def test_an_object_may_have_any_name_even_one_that_looks_like_a_prefix(tmp_path):
    class Odd:
        name = "nowhere: my system?a=b"

    class Counted(Task):
        name = "counted"

        def samples(self):
            return [Sample("only", 1)]

        def trial(self, system, sample, ctx):
            return {"x": 1.0}

    class Odds(Benchmark):
        name, title = "odds", "Odds"

        def tasks(self):
            return [Counted()]

    run = assay.run(Odds(), Odd(), into=tmp_path / "run")
    assert run.system == Odd.name
    assert run.info["system_info"]["kind"] == "python"


def test_a_task_without_a_name_is_told_by_its_class():
    class Unnamed(Task):
        def samples(self):
            return [Sample("only", 1)]

        def trial(self, system, sample, ctx):
            return {"x": 1.0}

    class Nameless(Benchmark):
        name, title = "nameless", "Nameless"

        def tasks(self):
            return [Unnamed()]

    with pytest.raises(AssayError, match="Task Unnamed of benchmark 'nameless' has no name"):
        assay.run(Nameless(), Guesser())
