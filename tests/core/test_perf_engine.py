"""perf/engine.py measures what it says: processor time of a whole tree, peak memory, equal work, honest verdicts."""

from __future__ import annotations

import importlib.util
import json
import resource
import sys
import urllib.request
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "perf" / "engine.py"

BURN = "import time\nuntil = time.process_time() + {}\nwhile time.process_time() < until: pass\n"


@pytest.fixture(scope="module")
def engine():
    spec = importlib.util.spec_from_file_location("perf_engine", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    sys.modules["perf_engine"] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path[:] = before
        del sys.modules["perf_engine"]


def python(code):
    return [sys.executable, "-c", code]


def test_processor_time_of_a_child_and_of_its_own_children_is_counted(engine):
    alone = engine.measured(python(BURN.format(0.3)))
    grandchild = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN.format(0.3)!r}], check=True)"
    both = engine.measured(python(BURN.format(0.2) + grandchild))
    assert 0.3 <= alone.cpu < 0.9
    assert 0.5 <= both.cpu < 1.4


def test_waiting_costs_wall_time_and_no_processor_time(engine):
    cost = engine.measured(python("import time; time.sleep(0.5)"))
    assert cost.wall >= 0.5
    assert cost.cpu < 0.4


def test_peak_memory_is_the_largest_and_not_the_last(engine):
    # A child's peak begins at what its parent, here the test run, held when starting it.
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    peak = engine.measured(python("x = b'x' * 400_000_000; del x")).peak_mb
    assert 400e6 / 2**20 <= peak < max(400e6 / 2**20, held) + 60


def test_what_a_process_tells_is_taken_from_its_marked_line(engine):
    line = engine.MARK + json.dumps({"accuracy": 0.9})
    cost = engine.measured(python(f"print('noise'); print({line!r}); print('more')"))
    assert cost.told == {"accuracy": 0.9}


def test_a_failure_a_missing_kill_and_an_overrun_are_no_measurements(engine):
    with pytest.raises(engine.Broken, match=r"ended with 3(.|\n)*so it goes"):
        engine.measured(python("import sys; print('so it goes', file=sys.stderr); sys.exit(3)"))
    with pytest.raises(engine.Broken, match="ended with 0"):
        engine.measured(python("pass"), killed=True)
    with pytest.raises(engine.Broken, match="ended with -9"):
        engine.measured(python("import time; time.sleep(60)"), limit=0.5)


def test_a_kill_that_is_part_of_the_plan_keeps_what_was_told(engine):
    line = engine.MARK + "{}"
    code = f"import os, signal; print({line!r}, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    assert engine.measured(python(code), killed=True).told == {}


def request(url, text):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    sent = urllib.request.Request(f"{url}/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(sent) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def test_the_server_answers_every_tenth_question_wrongly_and_counts_since_the_last_look(engine):
    import questions

    with engine.Server(0.0) as server:
        answers = [request(server.url, questions.question(n)) for n in (1, 9, 10, 1)]
        first, second = server.seen(), server.seen()
    assert answers == [questions.right(1), questions.right(9), "unknown", questions.right(1)]
    assert (first["requests"], first["questions"], first["peak"]) == (4, 3, 1)
    assert (second["requests"], second["questions"]) == (0, 0)


def test_questions_are_all_different_and_the_accuracy_is_the_share_answered_rightly(engine):
    import questions

    numbers = range(237)
    texts = [questions.question(n) for n in numbers]
    answers = [questions.answer(t) for t in texts]
    assert len(set(texts)) == len(numbers)
    assert [n for n, _ in answers] == list(numbers)
    right = sum(said == questions.right(n) for n, said in answers)
    assert questions.accuracy(numbers) == right / len(numbers)
    with pytest.raises(ValueError, match="no question"):
        questions.answer("hello")


def figures(assay_ms, assay_cpu, inspect_cpu, plan):
    times = {"cpu": 0.1, "wall": 0.2}
    return {
        "side_by_side": {
            "assay": {"warm_ms": assay_ms, "whole_cpu_s": assay_cpu},
            "inspect-ai": {"whole_cpu_s": inspect_cpu},
        },
        "scale": {"plan": {"wall": plan}, "resume, to the first new trial": times, "read records": times},
        "start_up": {"assay --help": times, "assay list": times},
    }


def test_verdicts_follow_from_the_figures_and_a_peer_that_did_not_run_gets_none(engine):
    options = engine.parsed([])
    kept = {t["target"]: t["met"] for t in engine.targets(figures(0.6, 1.0, 30.0, 1.0), options)}
    missed = {t["target"]: t["met"] for t in engine.targets(figures(0.61, 1.0, 29.9, 1.1), options)}
    assert len(kept) == 7
    assert all(kept.values())
    assert [name for name, met in missed.items() if not met] == [
        "CPU a trial, all in, warm",
        "whole process, times less CPU than inspect-ai",
        "plan 200,000 trials, wall",
    ]
    assert not any("lm-eval" in name for name in kept)


@pytest.mark.slow
def test_the_script_runs_without_peers_and_writes_its_figures(engine, tmp_path, capsys):
    out = tmp_path / "engine.json"
    arguments = ["--no-peers", "--samples", "200", "--records", "3000", "--repeats", "1", "--json", str(out)]
    assert engine.main(arguments) == 0
    shown = capsys.readouterr().out
    found = json.loads(out.read_text())
    assert "The peers were left out" in shown
    assert found["side_by_side"]["assay"]["requests"] == 200
    assert found["side_by_side"]["assay"]["accuracy"] == pytest.approx(0.9)
    assert found["scale"]["read records"]["told"]["records"] == 3000
    assert found["scale"]["resume to the end, and compact"]["told"]["answered"] < 300
    assert 0 < found["side_by_side"]["assay"]["warm_ms"] < 20
