"""Playing a game at random, for tests."""

import re

import numpy as np


def random_play(env, seed, choose=None):
    """Random actions to the end: (action, reward, terminated, truncated, info) of each step."""
    env.reset(seed)
    rng = np.random.default_rng(seed + 1000)
    while True:
        action = (choose and choose(env, rng)) or env.sample_random_action()
        _, reward, terminated, truncated, info = env.step(action)
        yield action, reward, terminated, truncated, info
        if terminated or truncated:
            return


def content(action):
    return re.fullmatch(r"\\boxed\{(.*)\}", action)[1]
