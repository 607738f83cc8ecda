"""lm-eval on the questions: URL, folder, questions, warm-up questions, connections."""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from clock import phase, tell
from questions import question, right


def main(url: str, folder: str, count: int, warm_up: int, connections: int) -> None:
    found: dict[str, Any] = {}
    # Its data library keeps a cache and would look for news of a file that lies here.
    os.environ |= {
        "HF_HOME": f"{folder}/hf",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "OPENAI_API_KEY": "none",
    }
    with phase(found, "imports"):
        from lm_eval import simple_evaluate
        from lm_eval.tasks import TaskManager
    with phase(found, "index"):
        # Reading all its task files is start-up, like an import; kept, so that the warm run does not pay it again.
        manager = TaskManager()

    def ask(numbers: range, name: str) -> float:
        file = Path(folder) / f"{name}.jsonl"
        file.write_text("".join(json.dumps({"question": question(n), "answer": right(n)}) + "\n" for n in numbers))
        task = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(file)}},
            "test_split": "test",
            "output_type": "generate_until",
            "doc_to_text": "{{question}}",
            "doc_to_target": "{{answer}}",
            "generation_kwargs": {"until": ["\n"], "max_gen_toks": 16, "do_sample": False, "temperature": 0.0},
            "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        }
        done = simple_evaluate(
            model="local-chat-completions",
            model_args={
                "model": "sums",
                "base_url": f"{url}/chat/completions",
                "num_concurrent": connections,
                "max_retries": 3,
                "tokenized_requests": False,
            },
            tasks=[task],
            task_manager=manager,
            apply_chat_template=True,
        )
        assert done is not None
        return done["results"][name]["exact_match,none"]

    if warm_up:
        with phase(found, "warm_up"):
            ask(range(count, count + warm_up), "sums_before")
    with phase(found, "run"):
        found["accuracy"] = ask(range(count), "sums")
    tell(found)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
