"""The terminal: commands, the working folder between them, weighted tests, states, what cannot get out."""

import json

import pytest

from assay.agents.gem.env import EnvError
from assay.agents.gem.registry import make
from assay.agents.gem.terminal import TerminalEnv, read_command
from assay.core.errors import DataError

SOLUTIONS = {
    "sum-column": "awk -F, 'NR>1 {s+=$2} END {print s}' sales.csv > total.txt",
    "fix-script": "printf '#!/bin/sh\\necho hello $1\\n' > greet.sh",
    "sort-notes": "mkdir urgent && mv $(grep -li urgent *.txt) urgent/",
    "count-words": "tr -cs 'A-Za-z' '\\n' < story.txt | tr A-Z a-z | grep . | sort | uniq -c | sort -k1,1nr -k2 "
    "| awk 'NR<4 {print $2}' > top.txt",
}


@pytest.mark.parametrize("task", SOLUTIONS)
def test_shipped_tasks_can_be_solved_and_are_not_solved_by_doing_nothing(task):
    env = TerminalEnv(task=task)
    env.reset(0)
    _, reward, terminated, truncated, info = env.step("<finish></finish>")
    assert (reward < 1, terminated, truncated, info["solved"]) == (True, True, False, False)
    env.reset(0)
    assert "(exit code 0)" in env.step(f"I try this. <bash>{SOLUTIONS[task]}</bash>")[0]
    _, reward, *_, info = env.step("<finish>\nmessage: done\n</finish>")
    assert (reward, info["solved"]) == (1.0, True)


def test_tests_are_weighted():
    env = TerminalEnv(task="sum-column")
    env.reset(0)
    env.step("<bash>echo 49 > total.txt</bash>")
    _, reward, *_, info = env.step("<finish></finish>")
    assert (reward, info["passed"]) == (0.25, [True, False])


def test_the_working_folder_is_kept_and_states_branch():
    env = TerminalEnv(task="sum-column")
    env.reset(0)
    env.step("<bash>mkdir deep && echo one > deep/a; chmod 755 deep/a</bash>")
    state = json.loads(json.dumps(env.get_state()))
    env.step("<bash>echo two > deep/a</bash>")
    assert env.step("<bash>cat deep/a</bash>")[0] == "two\n(exit code 0)"
    other = TerminalEnv(task="sum-column")
    other.set_state(state)
    assert other.step("<bash>cat deep/a; test -x deep/a && echo runs</bash>")[0] == "one\nruns\n(exit code 0)"


def test_failures_and_limits_are_told_and_cost_nothing():
    env = TerminalEnv(task="sum-column", seconds=0.5)
    env.reset(0)
    text, reward, terminated, _, info = env.step("<bash>cat nothing.txt</bash>")
    assert "(exit code 1)" in text
    assert (reward, terminated, info["valid"]) == (0.0, False, False)
    text = env.step("<bash>echo half > half.txt; while :; do :; done</bash>")[0]
    assert "the working folder is as before" in text
    assert "half" not in env.step("<bash>ls</bash>")[0]
    assert len(env.step("<bash>yes | head -c 100000</bash>")[0]) < 5000


def test_the_limit_runs_the_tests():
    env = TerminalEnv(task="sum-column", max_turns=1)
    env.reset(0)
    _, reward, terminated, truncated, info = env.step(f"<bash>{SOLUTIONS['sum-column']}</bash>")
    assert (reward, terminated, truncated, info["solved"]) == (1.0, True, True, True)


def test_text_without_a_block_is_a_format_error():
    env = TerminalEnv()
    env.reset(0)
    assert env.step("ls")[1:4] == (-0.1, True, False)


def test_commands_cannot_reach_this_machine(tmp_path):
    env = TerminalEnv(task="sum-column")
    env.reset(0)
    secret = tmp_path / "secret"
    secret.write_text("secret words")
    assert "secret words" not in env.step(f"<bash>cat {secret}; touch {tmp_path}/made</bash>")[0]
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("ls -l", "ls -l"),
        ('\ncmd: "echo \\"a\\""\nblock: true\ntimeout_secs: 5\n', 'echo "a"'),
        ("cmd: 'it''s'", "it's"),
        ("cmd: ls | wc -l\n", "ls | wc -l"),
        ("cmd: |\n  cd a\n    ls\nblock: true\n", "cd a\n  ls"),
    ],
)
def test_commands_are_plain_or_in_the_published_form(text, command):
    assert read_command(text) == command


def test_faults_in_tasks_are_named():
    with pytest.raises(EnvError, match="no terminal task 'x'; there are sum-column"):
        make("terminal:Terminal-v0", task="x")
    row = {"id": "a", "instruction": "?", "files": {}, "tests": [{"command": "true"}]}
    for change, message in [
        ({"tests": []}, "holds no test"),
        ({"tests": [{}]}, "test 0: field 'command' is missing"),
        ({"files": {"../x": "y"}}, "leads out of the working folder"),
        ({"instruction": 3}, "field 'instruction' is 3"),
    ]:
        with pytest.raises(DataError, match=message):
            TerminalEnv(data=[{**row, **change}]).reset(0)
