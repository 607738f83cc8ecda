"""The ids that come with assay, and the named selections of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.agents.gem.registry import EnvSpec, Registry

_GAMES = "assay.agents.gem.games"
_LEVELS = ("easy", "hard", "random")

GAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    "GuessTheNumber": ("guess_the_number:GuessTheNumber", _LEVELS),
    "Mastermind": ("mastermind:Mastermind", _LEVELS),
    "Minesweeper": ("minesweeper:Minesweeper", _LEVELS),
    "Wordle": ("wordle:Wordle", _LEVELS),
    "FifteenPuzzle": ("fifteen:FifteenPuzzle", _LEVELS),
    "Hangman": ("hangman:Hangman", _LEVELS),
    "Sudoku": ("sudoku:Sudoku", _LEVELS),
    "TowerofHanoi": ("hanoi:TowerOfHanoi", _LEVELS),
    "Game2048": ("g2048:Game2048", ("easy", "hard", "extreme-hard", "random")),
    "Sokoban": ("sokoban:Sokoban", _LEVELS),
    "Crosswords": ("crosswords:Crosswords", _LEVELS),
    "WordSearch": ("word_search:WordSearch", _LEVELS),
}
"""Games by the name in their ids: where they are, and their levels."""


_PROBLEM = {"question_key": "problem", "answer_key": "answer"}
_QUESTION = {"question_key": "question", "answer_key": "answer"}
_TESTS = {"question_key": "problem", "test_key": "tests"}
_RULES = {"split": "train", "extract_boxed": True, **_QUESTION}

DATA: dict[str, tuple[str, str, dict[str, Any]]] = {
    "math:ASDiv2K": ("MathEnv", "axon-rl/ASDIV-2k", _PROBLEM),
    "math:GSM8K": ("MathEnv", "axon-rl/GSM-8k", _PROBLEM),
    "math:Math12K": ("MathEnv", "axon-rl/MATH-12k", _PROBLEM),
    "math:Math8K-3to5": ("MathEnv", "axon-rl/MATH-lvl3to5-8k", _PROBLEM),
    "math:Orz57K": ("MathEnv", "axon-rl/ORZ-57k", _PROBLEM),
    "math:DeepScaleR40K": ("MathEnv", "axon-rl/DeepScaleR-40K", _PROBLEM),
    "math:Geometry3K": ("MathVisualEnv", "axon-rl/geometry3k", {"split": "train", "image_key": "images", **_PROBLEM}),
    "code:CodeContest": ("CodeEnv", "axon-rl/CodeContest", {"split": "train", **_TESTS}),
    "code:Taco8k": ("CodeEnv", "axon-rl/TACO-8k", {"split": "train", **_TESTS}),
    "code:PrimeIntellect15k": ("CodeEnv", "axon-rl/PrimeIntellect-15k", {"split": "train", **_TESTS}),
    "qa:NaturalQuestions": ("QaEnv", "axon-rl/NaturalQuestions", {"split": "train", **_PROBLEM}),
    "qa:HotpotQA": ("QaEnv", "axon-rl/HotpotQA", {"split": "train", **_PROBLEM}),
    **{f"logic:RuleTaker-d{depth}": ("QaEnv", f"axon-rl/RuleTaker-d{depth}-70k", _RULES) for depth in (0, 1, 2, 3, 5)},
    **{
        f"eval:{name}": ("MathEnv", "axon-rl/math-eval", {"split": split, "order": "sequential", **_PROBLEM})
        for name, split in (
            ("MATH500", "math"), ("AMC", "amc"), ("OlympiadBench", "olympiad_bench"), ("Minerva", "minerva"),
            ("AIME24", "aime24"),
        )
    },
    "eval:CodeContest": ("CodeEnv", "axon-rl/CodeContest", {"split": "test", "order": "sequential", **_TESTS}),
    "eval:QaOpen": (
        "QaEnv", "google-research-datasets/nq_open", {"split": "validation", "order": "sequential", **_QUESTION}
    ),
    **{
        f"eval:{name}": ("QaEnv", "axon-rl/search-eval", {"split": split, "order": "sequential", **_QUESTION})
        for name, split in (
            ("2Wiki", "2wiki"), ("PopQA", "popqa"), ("TriviaQA", "tq"), ("HotpotQA", "hotpotqa"),
            ("Bamboogle", "bamboogle"), ("NaturalQuestions", "nq"), ("Musique", "musique"),
        )
    },
}  # fmt: skip
"""Data sets by id: class, name on the hub, arguments. Evaluation sets are gone through in order, seed by seed."""

GEM24 = (
    "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy", "game:Minesweeper-v0-easy", "game:Wordle-v0-easy",
    "game:FifteenPuzzle-v0-easy", "game:Hangman-v0-easy", "game:Sudoku-v0-easy", "game:TowerofHanoi-v0-easy",
    "game:Game2048-v0-easy", "game:Sokoban-v0-easy", "game:Crosswords-v0-easy", "game:WordSearch-v0-easy",
    "math:ASDiv2K", "math:GSM8K", "math:Math12K", "code:CodeContest", "code:Taco8k", "qa:NaturalQuestions",
    "qa:HotpotQA", "logic:RuleTaker-d1", "rg:arc_1d", "rg:letter_counting", "rg:leg_counting", "rg:simple_equations",
)  # fmt: skip
"""The "24 environments" as assay reads the paper, which lists no ids: game families in one difficulty each, and members
of the other families. A choice of ours."""


def fill(registry: Registry) -> Registry:
    """Register everything that comes with assay; nothing is imported for it."""
    for name, (where, levels) in GAMES.items():
        for level in levels:
            registry.register(f"game:{name}-v0-{level}", f"{_GAMES}.{where}", level=level)
    for level in ("easy", "hard"):
        registry.register(f"game:WikiGame-v0-{level}", "assay.agents.gem.wiki.env:WikiGame", level=level)
    for env_id, (kind, source, settings) in DATA.items():
        registry.register(env_id, f"assay.agents.gem.data:{kind}", dataset_name=source, **settings)
    for depth in (0, 1, 2, 3, 5):
        registry.register(f"logic:Theories-d{depth}", "assay.agents.gem.logic:TheoryEnv", depth=depth)
    registry.register("terminal:Terminal-v0", "assay.agents.gem.terminal:TerminalEnv")
    registry.register("mcp:Task-v0", "assay.agents.gem.mcp_task:MCPTaskEnv")
    registry.register("webshop:WebShop-v0", "assay.agents.gem.webshop.env:WebShop")
    for mode in ("html", "text", "text_rich"):
        for split in ("train", "test"):
            registry.register(
                f"webshop:{split}-{mode}", "assay.agents.gem.webshop.env:WebShop", observation_mode=mode, split=split,
                error_tolerance=15,
            )  # fmt: skip
    registry.register("multi:SharedGame-v0", "assay.agents.gem.multi:SharedGame")
    registry.register("multi:PrisonersDilemma-v0", "assay.agents.gem.multi:PrisonersDilemma")
    registry.register_family("rg", _reasoning_gym)
    return registry


def _reasoning_gym() -> list[EnvSpec]:
    from assay.agents.gem.reasoning import specs

    return specs()
