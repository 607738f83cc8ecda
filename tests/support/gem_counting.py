"""Small environments for tests of vectors and wrappers; a module of its own, so that they pickle."""

import os
import time

from assay.agents.gem.env import Env, Turn


class Counting(Env):
    """Episodes of a fixed length; observation e<episode>t<step>; the reward is the action's number."""

    saved = ("episode",)

    def __init__(self, length=2):
        super().__init__()
        self.length = length
        self.episode = 0

    def begin(self):
        self.episode += 1
        return f"e{self.episode}t0", {"turns": [0]}

    def act(self, action):
        ended = self.turn >= self.length
        return Turn(f"e{self.episode}t{self.turn}", float(action), ended, {"turns": [self.turn]})


class Troubled(Counting):
    """Does what its action says."""

    def act(self, action):
        if action == "raise":
            raise ValueError("out of order")
        if action == "die":
            os._exit(7)
        if action == "hang":
            time.sleep(30)
        return super().act("0")


class Waiting(Counting):
    """A step that waits 20 ms."""

    def act(self, action):
        time.sleep(0.02)
        return super().act(action)
