"""The environment interface and the registry: seeds, states, misuse."""

import json
import random
import threading

import numpy as np
import pytest

from assay.agents.gem.env import Env, EnvError, Turn, seeded_generator
from assay.agents.gem.registry import REGISTRY, EnvImportError, Registry, UnknownEnv, make
from assay.core.errors import AssayError, DataError, UsageError
from assay.systems.environment import Environment, to_gymnasium

GAMES = REGISTRY.ids("game")


def episode(env, seed=None, actions=None):
    """Reset, then random actions (or the given ones) to the end: all that was returned."""
    seen = [env.reset(seed)]
    taken = []
    ended = False
    while not ended:
        action = env.sample_random_action() if actions is None else actions[len(taken)]
        taken.append(action)
        step = env.step(action)
        seen.append(step)
        ended = step[2] or step[3]
    return seen, taken


@pytest.mark.parametrize("name", GAMES)
def test_a_seed_and_actions_replay_an_episode_exactly(name):
    for seed in (0, 7, 2**63):
        first, actions = episode(make(name), seed)
        again, _ = episode(make(name), seed, actions)
        assert again == first
    assert episode(make(name), 5) == episode(make(name), 5)


# The Tower of Hanoi has one beginning a level.
@pytest.mark.parametrize("name", [name for name in GAMES if "Hanoi" not in name or "random" in name])
def test_different_seeds_give_different_games(name):
    states = set()
    for seed in range(12):
        env = make(name)
        env.reset(seed)
        if "Minesweeper" in name:  # mines are laid at the first reveal
            env.step("\\boxed{reveal 0 0}")
        state = env.get_state()
        states.add(json.dumps([state["game"], state["settings"]]))
    assert len(states) > 1


@pytest.mark.parametrize("name", GAMES)
def test_random_actions_are_always_readable(name):
    env = make(name)
    for seed in range(5):
        seen, _ = episode(env, seed)
        assert not any(step[4]["format_error"] for step in seen[1:])


@pytest.mark.parametrize("name", GAMES)
def test_a_state_goes_on_alike_in_another_environment_after_json(name):
    env = make(name)
    env.reset(3)
    env.step(env.sample_random_action())
    while env._phase == "running":
        state = json.loads(json.dumps(env.get_state()))
        other = make(name)
        other.set_state(state)
        assert other.get_state() == env.get_state()
        action = env.sample_random_action()
        assert other.sample_random_action() == action
        assert other.step(action) == env.step(action)
    assert other.get_state() == env.get_state()
    assert other.reset() == env.reset()


@pytest.mark.parametrize("name", GAMES)
def test_spawned_environments_are_alike_and_independent(name):
    env = make(name)
    env.reset(11)
    twin, fresh = env.spawn(same_state=True), env.spawn()
    before = env.get_state()
    episode(fresh, 1)
    action = twin.sample_random_action()
    twin.step(action)
    assert env.get_state() == before
    assert env.sample_random_action() == action
    env.step(action)
    assert env.get_state() == twin.get_state()
    longer = env.spawn(max_turns=77)
    longer.reset(0)
    assert longer.max_turns == 77
    assert longer.spec == env.spec


def test_nothing_touches_the_global_generators():
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    for name in GAMES:
        episode(make(name), 4)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


def test_the_compatibility_switch_seeds_the_global_generators_too():
    env = make("game:TowerofHanoi-v0-easy", seed_global=True)
    drawn = []
    for _ in range(2):
        env.reset(9)
        drawn.append((random.random(), np.random.random()))  # noqa: NPY002
    assert drawn[0] == drawn[1]


def test_threads_do_not_disturb_each_other():
    names = ["game:Game2048-v0-easy", "game:Sokoban-v0-easy", "game:Minesweeper-v0-easy", "game:Wordle-v0-easy"] * 2
    alone = [episode(make(name), seed) for seed, name in enumerate(names)]
    together = [None] * len(names)

    def work(at):
        together[at] = episode(make(names[at]), at)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_step_before_reset_and_after_the_end_is_refused():
    env = make("game:GuessTheNumber-v0-easy")
    with pytest.raises(EnvError, match="no episode was begun; call reset"):
        env.step("\\boxed{1}")
    env.reset(0)
    env.step("nothing")
    with pytest.raises(EnvError, match="the episode is over; call reset"):
        env.step("\\boxed{1}")
    env.reset()
    env.step("\\boxed{1}")


@pytest.mark.parametrize("seed", [-1, 1.5, "3", True])
def test_a_seed_must_be_an_integer_from_zero(seed):
    with pytest.raises(ValueError, match="must be an integer from 0"):
        make("game:GuessTheNumber-v0-easy").reset(seed)


def test_an_action_must_be_text():
    env = make("game:GuessTheNumber-v0-easy")
    env.reset(0)
    with pytest.raises(EnvError, match="an action is text, not int"):
        env.step(5)


def test_numpy_integers_are_seeds():
    env = make("game:GuessTheNumber-v0-hard")
    env.reset(np.int64(5))
    first = env.get_state()
    env.reset(5)
    assert env.get_state() == first


def limits(strict):
    """(terminated, truncated) for: limit reached, won on the last turn, unreadable on the last turn."""
    found = []
    for action in ("wrong", "right", "unreadable"):
        env = make("game:GuessTheNumber-v0-easy", max_turns=1, strict_gymnasium=strict)
        env.reset(0)
        guess = {"wrong": f"\\boxed{{{env.secret % 10 + 1}}}", "right": f"\\boxed{{{env.secret}}}", "unreadable": ""}
        found.append(env.step(guess[action])[2:4])
    return found


def test_the_turn_limit_ends_as_published_and_strictly_as_in_gymnasium():
    assert limits(strict=False) == [(True, True), (True, False), (True, True)]
    assert limits(strict=True) == [(False, True), (True, False), (True, False)]


def test_states_of_other_environments_and_damaged_ones_are_refused():
    guess, hanoi = make("game:GuessTheNumber-v0-easy"), make("game:TowerofHanoi-v0-easy")
    hanoi.reset(0)
    with pytest.raises(DataError, match="state is of 'TowerOfHanoi'"):
        guess.set_state(hanoi.get_state())
    damaged = hanoi.get_state()
    del damaged["rng"]
    with pytest.raises(DataError, match="damaged"):
        hanoi.set_state(damaged)
    stranger = hanoi.get_state()
    stranger["game"]["spam"] = 1
    with pytest.raises(DataError, match="'spam'"):
        hanoi.set_state(stranger)


def test_an_unknown_id_names_what_was_meant():
    with pytest.raises(UnknownEnv, match=r"GuessTheNumber-v0-easy.*GuessTheNumber-v0-hard.* or .*random"):
        make("game:GuessTheNumber-v0")
    with pytest.raises(ValueError, match=r"did you mean .*TowerofHanoi"):
        make("game:TowerOfHanoi-v0-eazy")
    with pytest.raises(UsageError):
        make("spam:eggs")


def test_registering_twice_is_an_error():
    registry = Registry()
    registry.register("toy:A", "assay.agents.gem.games.hanoi:TowerOfHanoi")
    with pytest.raises(ValueError, match="registered already"):
        registry.register("toy:A", "assay.agents.gem.games.hanoi:TowerOfHanoi")
    with pytest.raises(EnvError, match="family:Name"):
        registry.register("toy", "assay.agents.gem.games.hanoi:TowerOfHanoi")


def test_an_import_failure_is_an_import_error_with_its_cause():
    registry = Registry()
    registry.register("toy:A", "no_such_package_here:Env")
    registry.register("toy:B", "assay.agents.gem.games.hanoi:NoSuchClass")
    for name in ("toy:A", "toy:B"):
        with pytest.raises(ImportError) as caught:
            registry.make(name)
        assert isinstance(caught.value, EnvImportError)
        assert isinstance(caught.value, AssayError)
        assert caught.value.__cause__ is not None


def test_unknown_levels_and_settings_are_named():
    with pytest.raises(EnvError, match="did you mean 'easy'"):
        make("game:Sokoban-v0-easy", level="eassy")
    with pytest.raises(EnvError, match="did you mean 'num_boxes'"):
        make("game:Sokoban-v0-easy", num_box=3)
    with pytest.raises(EnvError, match="max_turns"):
        make("game:Sokoban-v0-easy", max_turns=0)
    with pytest.raises(EnvError, match="min_number"):
        make("game:GuessTheNumber-v0-easy", min_number=10)


def test_overrides_reach_the_game_and_never_the_registry():
    env = make("game:Sokoban-v0-easy", num_boxes=1)
    env.reset(0)
    assert len(env.boxes) == 1
    env.dim_room.append(99)
    other = make("game:Sokoban-v0-easy")
    other.reset(0)
    assert (other.dim_room, len(other.boxes)) == ([6, 6], 2)


def test_random_levels_draw_every_level():
    seen = {make_level(seed) for seed in range(20)}
    assert seen == {10, 50}


def make_level(seed):
    env = make("game:GuessTheNumber-v0-random")
    env.reset(seed)
    return env.max_number


class OldStyle(Env):
    """An environment in the published style: overrides reset and step, and forgets super().__init__()."""

    def __init__(self):
        self.left = 0

    def reset(self, seed=None):
        super().reset(seed)
        self.left = 2
        return "go", {}

    def step(self, action):
        self.left -= 1
        return "on", 1.0, self.left == 0, False, {}


def test_environments_in_the_published_style_work():
    env = OldStyle()
    assert env.reset(seed=4) == ("go", {})
    assert env.step("x") == ("on", 1.0, False, False, {})
    assert env.step("x")[2]
    with env as same:
        assert same.unwrapped is env


class Draws(Env):
    saved = ("drawn",)

    def begin(self):
        self.drawn = []
        return "", {}

    def act(self, action):
        self.drawn.append(self.random.random())
        return Turn("", self.drawn[-1])


def test_the_generator_for_libraries_is_part_of_seed_and_state():
    env = Draws()
    env.reset(1)
    env.step("")
    state = json.loads(json.dumps(env.get_state()))
    later = env.step("")
    other = Draws()
    other.set_state(state)
    assert other.step("") == later
    env.reset(1)
    assert env.step("")[1] == state["game"]["drawn"][0]


def test_infos_are_not_shared_between_steps():
    env = Draws()
    env.reset(0)
    env.step("")[4]["written"] = 1
    assert env.step("")[4] == {}


def test_print_envs_lists_every_family(capsys):
    registry = Registry()
    registry.register("toy:A", "x:Y")
    registry.register("joy:B", "x:Y")
    registry.print_envs()
    assert capsys.readouterr().out == "toy (1)\n  toy:A\njoy (1)\n  joy:B\n"


@pytest.mark.parametrize("name", GAMES)
def test_environments_satisfy_the_protocol_and_gymnasium(name):
    pytest.importorskip("gymnasium")
    env = make(name)
    assert isinstance(env, Environment)
    other = to_gymnasium(env)
    observation, _ = other.reset(seed=3)
    assert observation in other.observation_space
    ended = False
    while not ended:
        observation, reward, terminated, truncated, _ = other.step(env.sample_random_action())
        assert observation in other.observation_space
        assert isinstance(reward, float)
        assert not (terminated and truncated)
        ended = terminated or truncated
    plain, strict = make(name, max_turns=1), make(name, max_turns=1, strict_gymnasium=True)
    plain.reset(1)
    strict.reset(1)
    action = plain.sample_random_action()
    first, second = plain.step(action), strict.step(action)
    assert first[:2] == second[:2]
    assert second[2:4] == ((True, False) if first[4]["solved"] or not first[3] else (False, True))


def test_the_library_is_used_as_gem_is():
    from assay.agents import gem

    env = gem.make("game:GuessTheNumber-v0-easy")
    assert isinstance(env, gem.Env)
    assert all(getattr(gem, name) is not None for name in gem.__all__)
    with pytest.raises(AttributeError, match="no attribute 'spam'"):
        _ = gem.spam


@pytest.mark.parametrize("seed", [0, 1, 7, 2**31, 2**40, 2**130, [7, 3]])
def test_a_generator_put_into_a_seed_is_numpys_own(seed):
    used = seeded_generator(3)
    used.random(3)
    used.integers(5, size=3)  # leaves half a word behind
    mine, numpys = seeded_generator(seed, used), np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    assert mine is used
    assert mine.bit_generator.state == numpys.bit_generator.state
    assert mine.integers(1000, size=9).tolist() == numpys.integers(1000, size=9).tolist()


def test_random_actions_follow_from_the_seed_whether_or_not_state_was_taken():
    found = []
    for look in (False, True):
        env = make("game:GuessTheNumber-v0-hard")
        env.reset(5)
        if look:
            env.set_state(env.get_state())
        found.append([env.sample_random_action() for _ in range(8)])
    assert found[0] == found[1]
