"""The emulator's side of `nes.SuperMarioBros`: a script for a Python that has an emulator; it imports nothing of assay.

It speaks over its standard streams: a line of JSON in; a line of JSON and the frame's bytes out.
Arguments: nothing for gym-super-mario-bros, or the path of a ROM for stable-retro.
"""

import json
import os
import sys
import tempfile
from typing import Any

# Addresses of the game's memory, as stable-retro's description of the game has them.
BYTES = {"lives": 0x75A, "coins": 0x75E, "levelLo": 0x75C, "levelHi": 0x75F, "xscrollHi": 0x71A, "xscrollLo": 0x71C}
DIGITS = {"score": (0x7DD, 6), "time": (0x7F8, 3)}
GAME = "SuperMarioBros-Nes-v0"


class Packaged:
    """gym-super-mario-bros: the game without its title screens; needs numpy < 2."""

    bits = {"A": 1, "B": 2, "SELECT": 4, "START": 8, "UP": 16, "DOWN": 32, "LEFT": 64, "RIGHT": 128}

    def __init__(self):
        from gym_super_mario_bros import SuperMarioBrosEnv  # pyright: ignore[reportMissingImports]

        self.env = SuperMarioBrosEnv()

    def reset(self):
        self.env.reset()

    def frame(self, buttons):
        if not self.env.done:
            self.env.step(sum(self.bits[name] for name in buttons))

    def ram(self):
        return self.env.ram

    def picture(self):
        # The emulator gives 240 x 256; a television, and stable-retro, show 224 x 240 of it.
        return self.env.screen[8:232, 8:248]


class Retro:
    """stable-retro with a ROM of the user."""

    def __init__(self, rom):
        import stable_retro as retro  # pyright: ignore[reportMissingImports]

        # An integration of its own that links to the packaged description and to the user's file.
        self.folder = tempfile.TemporaryDirectory()
        place = os.path.join(self.folder.name, GAME)
        os.mkdir(place)
        source = os.path.join(retro.data.path(), "stable", GAME)
        for name in os.listdir(source):
            if not name.startswith("rom.") or name == "rom.sha":
                os.symlink(os.path.join(source, name), os.path.join(place, name))
        os.symlink(os.path.abspath(rom), os.path.join(place, "rom.nes"))
        retro.data.Integrations.add_custom_path(self.folder.name)
        self.env = retro.make(
            GAME,
            state="Level1-1",
            inttype=retro.data.Integrations.CUSTOM_ONLY,
            use_restricted_actions=retro.Actions.ALL,
            render_mode=None,
        )
        self.seen: Any = None

    def reset(self):
        self.seen = self.env.reset()[0]

    def frame(self, buttons):
        self.seen = self.env.step([int(name in buttons) for name in self.env.buttons])[0]

    def ram(self):
        return self.env.get_ram()

    def picture(self):
        return self.seen


def memory(ram):
    """The named values of the game's memory; lives counts the one being played."""
    found = {name: int(ram[address]) for name, address in BYTES.items()}
    for name, (address, length) in DIGITS.items():
        found[name] = sum(int(ram[address + i]) * 10 ** (length - 1 - i) for i in range(length))
    found["lives"] = (found["lives"] + 1) & 0xFF
    return found


def main():
    """Answer requests until the input ends."""
    out = sys.stdout.buffer
    # Whatever the packages print must not get into the protocol.
    sys.stdout = sys.stderr
    emulator = Retro(sys.argv[1]) if len(sys.argv) > 1 else Packaged()
    emulator.reset()
    first = memory(emulator.ram())
    for line in sys.stdin:
        request = json.loads(line)
        scroll = []
        now = memory(emulator.ram())
        if request["do"] == "reset":
            emulator.reset()
            now = first = memory(emulator.ram())
        else:
            for buttons in request["frames"]:
                emulator.frame(buttons)
                now = memory(emulator.ram())
                scroll.append([now["xscrollHi"], now["xscrollLo"]])
                if now["lives"] == 0 or (now["levelHi"], now["levelLo"]) != (first["levelHi"], first["levelLo"]):
                    break
        frame = emulator.picture()
        finished = (now["levelHi"], now["levelLo"]) != (first["levelHi"], first["levelLo"])
        reply = {"memory": now, "scroll": scroll, "finished": finished, "shape": list(frame.shape)}
        out.write(json.dumps(reply).encode() + b"\n" + frame.tobytes())
        out.flush()


if __name__ == "__main__":
    main()
