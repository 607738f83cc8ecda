"""Makers: kits, suites of many problems, verdicts, filtered trajectories, the published form, mutation scores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from assay.code.hardtests.data import filtered, load_problems, read_suites, rows_of, with_kits
from assay.code.hardtests.generator import HardTestGenerator
from assay.code.hardtests.problem import Problem
from assay.code.hardtests.suite import TestSuite, published
from assay.core.audit import Audit
from assay.core.errors import UsageError
from assay.core.map import resumable_map


def _chosen(
    problems: str, kits: str | None, start: int, end: int | None, difficulty: str | None = None,
    platform: str | None = None,
) -> list[Problem]:  # fmt: skip
    found = filtered(load_problems(problems), difficulty=difficulty, platform=platform)[start:end]
    if not found:
        raise UsageError(f"No problem of {problems!r} is left between start={start} and end={end}.")
    return with_kits(found, Path(kits)) if kits else found


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    count = 0
    new = path.with_name(path.name + ".new")
    with new.open("w", encoding="utf-8") as stream:
        for count, row in enumerate(rows, 1):  # noqa: B007
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    new.rename(path)
    return count


def kits(
    out: Path, *, model: str, problems: str = "own", start: int = 0, end: int | None = None,
    difficulty: str | None = None, platform: str | None = None, connections: int = 32, seed: int = 0,
) -> None:  # fmt: skip
    """Kits by a chat model: ``test_cases_kits.jsonl``, and both replies of every problem beside it.

    Resumes by problem. A problem without a trusted program, or whose first reply holds no validator, has no kit;
    ``audit.jsonl`` says why, and what the linter finds in the others.
    """
    from assay.code.hardtests.kit import kit_from_replies, lint
    from assay.code.hardtests.problem import rank_oracles
    from assay.code.hardtests.writing import kit_replies
    from assay.core.datasets import write_manifest
    from assay.systems.loading import load

    chosen = _chosen(problems, None, start, end, difficulty, platform)
    writer = load(model, role="kit writer")

    async def one(problem: Problem) -> list[str] | None:
        oracles = rank_oracles(problem.pid, problem.solutions)
        return list(await kit_replies(writer, problem, oracles[0].solution, seed=seed)) if oracles else None

    replies = list(resumable_map(one, chosen, key=lambda p: p.pid, out=out, connections=connections))
    audit = Audit(key=lambda pair: pair[0].pid)
    pairs = audit.keep(list(zip(chosen, replies)), "oracle", lambda pair: pair[1] is not None, "no trusted program")
    made = {problem.pid: kit_from_replies(problem.pid, *texts) for problem, texts in pairs}
    pairs = audit.keep(pairs, "validator", lambda pair: made[pair[0].pid] is not None, "first reply holds no validator")
    _write(
        out / "iv_and_ojf_gen_responses.jsonl", ({"pid": p.pid, "iv_and_ojf_gen_response": [r[0]]} for p, r in pairs)
    )
    _write(out / "ig_gen_responses.jsonl", ({"pid": p.pid, "ig_gen_response": [r[1]]} for p, r in pairs))
    found = [kit for kit in made.values() if kit is not None]
    _write(out / "test_cases_kits.jsonl", (kit.to_row() for kit in found))
    _write(out / "lint.jsonl", ({"pid": kit.pid, "fault": fault} for kit in found for fault in lint(kit)))
    audit.write(out / "audit.jsonl")
    options = {"model": model, "problems": problems, "start": start, "end": end, "seed": seed}
    write_manifest(out, recipe="hardtests.kits", options=options, audit=audit, counts={"kits": len(found)})


def make_one(problem: Problem, *, out: str, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """The suite of one problem, in a process of its own: written to its file, and a row on how it went."""
    import time

    from assay.sandbox import Sandbox

    began = time.perf_counter()
    with Sandbox(boxes=1) as box:
        generator = HardTestGenerator(sandbox=box, **options)
        suite = (
            TestSuite(problem.pid, status="no_kit") if problem.kit is None else generator.generate(problem, seed=seed)
        )
    suite.save(Path(out) / "suites")
    return {
        "pid": problem.pid, "status": suite.status, "tests": len(suite), "seconds": time.perf_counter() - began,
        "oracles": suite.about.get("oracles"), "generators": suite.about.get("generators", []),
    }  # fmt: skip


def suites(
    out: Path, *, problems: str = "own", kits: str | None = None, seed: int = 0, start: int = 0, end: int | None = None,
    difficulty: str | None = None, platform: str | None = None, max_workers: int | None = None,
    num_RPGen_SPGen_input: int | None = None, num_HackGen_input_per_func: int | None = None,
    input_gen_time_limit_per_attempt: float = 5.0, min_num_agreements: int = 2,
    output_inconsistent_tolerance: float = 0.0, max_code_solutions_to_try: int = 5,
) -> None:  # fmt: skip
    """Suites of many problems: ``suites/<pid>.json.gz``, and in ``summary.jsonl`` a row a problem with its status.

    Worker processes take problems from one queue; finished ones are never done again. ``README.md`` says how many of
    each status there are; the folder is a submission: ``assay run hardtests -s submission:OUT``.
    """
    from collections import Counter

    from assay.core.datasets import write_manifest

    chosen = _chosen(problems, kits, start, end, difficulty, platform)
    options = {
        "num_RPGen_SPGen_input": num_RPGen_SPGen_input,
        "num_HackGen_input_per_func": num_HackGen_input_per_func,
        "input_gen_time_limit_per_attempt": input_gen_time_limit_per_attempt,
        "min_num_agreements": min_num_agreements,
        "output_inconsistent_tolerance": output_inconsistent_tolerance,
        "max_code_solutions_to_try": max_code_solutions_to_try,
    }
    work = partial(make_one, out=str(out), seed=seed, options=options)
    rows = list(resumable_map(work, chosen, key=lambda p: p.pid, out=out, workers=max_workers))
    _write(out / "summary.jsonl", rows)
    audit = Audit(key=lambda row: row["pid"])
    audit.sift(rows, "suite", lambda row: None if row["status"] == "success" else row["status"])
    audit.write(out / "audit.jsonl")
    counts = Counter(row["status"] for row in rows)
    lines = [f"# Suites of {len(rows)} problems", "", "| status | problems |", "| --- | ---: |"]
    lines += [f"| {status} | {n} |" for status, n in counts.most_common()]
    lines += ["", f"{sum(row['tests'] for row in rows)} tests in all."]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    every = {"problems": problems, "kits": kits, "seed": seed, "start": start, "end": end, **options}
    write_manifest(out, recipe="hardtests.suites", options=every, audit=audit, counts=dict(counts))


def _by_pid(path: str, pids: Iterable[str]) -> dict[str, TestSuite]:
    found = {suite.pid: suite for suite in read_suites(Path(path))}
    missing = sorted(set(pids) - set(found))
    if missing:
        raise UsageError(f"{path} holds no suite of problem {missing[0]!r}.")
    return found


def judge(out: Path, *, suites: str, programs: str, early_exit: bool = False) -> None:
    """Verdicts on programs (rows of pid, code, language): ``verdicts.jsonl``, in the order of the file."""
    from assay.sandbox import Sandbox

    rows = [row for _, row in rows_of(Path(programs))]
    for number, row in enumerate(rows, 1):
        if not all(isinstance(row.get(field), str) for field in ("pid", "code", "language")):
            raise UsageError(f"{programs}, row {number}: a program has the text fields pid, code and language.")
    known = _by_pid(suites, (row["pid"] for row in rows))
    with Sandbox() as box:

        def one(item: tuple[int, Mapping[str, Any]]) -> dict[str, Any]:
            row = item[1]
            found = known[row["pid"]].verify(
                row["code"], row["language"], box=box, until="first" if early_exit else "all"
            )
            return {
                "pid": row["pid"], "id": row.get("id"), "accepted": found.accepted, "pass_rate": found.pass_rate,
                "first_failing": found.first_failing, "killed_by": found.killed_by, "verdicts": list(found.verdicts),
                "statuses": list(found.statuses), "text": found.text[:500],
            }  # fmt: skip

        _write(
            out / "verdicts.jsonl", resumable_map(one, list(enumerate(rows)), key=lambda item: str(item[0]), out=out)
        )


def filter(out: Path, *, suites: str, trajectories: str, language: str = "python3", most: int | None = None) -> None:
    """Rejection sampling: trajectories (rows of pid, completion) whose program is accepted, ``kept.jsonl``."""
    from assay.code.hardtests.rewards import rejection_sample
    from assay.core.datasets import write_manifest

    rows = [row for _, row in rows_of(Path(trajectories))]
    known = {suite.pid: suite for suite in read_suites(Path(suites))}
    for number, row in enumerate(rows, 1):
        if not isinstance(row.get("pid"), str) or "completion" not in row:
            raise UsageError(f"{trajectories}, row {number}: a trajectory has the fields pid and completion.")
    found = rejection_sample(rows, known, language=language, most=most)
    _write(out / "kept.jsonl", found.rows)
    reasons = dict(found.fallen)
    audit = Audit(key=lambda place: str(place))
    audit.sift(list(range(len(rows))), "verifier", reasons.get)
    audit.write(out / "audit.jsonl")
    options = {"suites": suites, "trajectories": trajectories, "language": language, "most": most}
    write_manifest(out, recipe="hardtests.filter", options=options, audit=audit, counts={"kept": len(found.rows)})


def convert(out: Path, *, suites: str) -> None:
    """Suites in the published form: ``test_cases.jsonl``, and a card (``README.md``) with what is in it."""
    from assay.core.datasets import write_manifest

    listed: Sequence[TestSuite] = list(read_suites(Path(suites)))
    rows = [row for suite in listed if (row := published(suite.to_row())) is not None]
    _write(out / "test_cases.jsonl", rows)
    counts = [len(suite) for suite in listed if suite.status == "success"]
    kinds = {
        kind: sum(k == kind for s in listed for k, _ in s.makers()) for kind in ("LLMGen", "RPGen_SPGen", "HackGen")
    }
    judged = sum(suite.judge is not None for suite in listed)
    card = [
        "---", "configs:", "- config_name: default", "  data_files: test_cases.jsonl", "---", "",
        f"# Tests of {len(rows)} problems", "",
        f"{len(listed) - len(rows)} of {len(listed)} problems have no tests. {sum(counts)} tests; {judged} problems "
        "bring a judge of their own.", "",
        "| generator | tests |", "| --- | ---: |", *[f"| {kind} | {n} |" for kind, n in kinds.items()], "",
        "Columns: `pid`; `test_cases_kit` (sources that made the tests); `mapping` (generator to places of tests); "
        "`test_cases` (base64 of zlib of a pickled JSON text: read it with an unpickler that accepts a text only).",
    ]  # fmt: skip
    (out / "README.md").write_text("\n".join(card) + "\n", encoding="utf-8")
    write_manifest(out, recipe="hardtests.convert", options={"suites": suites}, counts={"problems": len(rows)})


def mutants(out: Path, *, suites: str, problems: str = "own", most: int = 30, seed: int = 0) -> None:
    """Mutation scores of suites, without labelled programs: ``mutants.jsonl``, a row a problem, with the survivors."""
    import numpy as np

    from assay.code.hardtests.mutation import mutation_score
    from assay.code.hardtests.problem import rank_oracles
    from assay.sandbox import Sandbox

    by_pid = {problem.pid: problem for problem in load_problems(problems)}
    chosen = [suite for suite in read_suites(Path(suites), by_pid) if suite.pid in by_pid and suite.cases]
    with Sandbox() as box:

        def one(suite: TestSuite) -> dict[str, Any]:
            best = rank_oracles(suite.pid, by_pid[suite.pid].solutions)[0].solution
            found = mutation_score(suite, best.code, best.language, box, np.random.default_rng(seed), most=most)
            survivors = [{"change": m.change, "code": m.code} for m in found.survivors]
            return {
                "pid": suite.pid, "tests": len(suite), "score": found.score, "killed": found.killed,
                "survived": len(survivors), "dead_born": found.dead_born, "survivors": survivors,
            }  # fmt: skip

        _write(out / "mutants.jsonl", resumable_map(one, chosen, key=lambda s: s.pid, out=out))
