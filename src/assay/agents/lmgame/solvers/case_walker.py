"""A player that knows the script of the courtroom: presses what unlocks statements, presents what contradicts them."""

from __future__ import annotations

from assay.agents.lmgame.games.courtroom import Courtroom


def next_action(engine: Courtroom) -> str:
    """The next button of a run without a penalty."""
    if engine.mode == "page":
        return "a"
    node = engine.node
    if node is None:
        return "b"
    if "ask" in node:
        if engine.record_open:
            return "b"
        options = node["ask"]["options"]
        goal = next(i for i, option in enumerate(options) if not option.get("penalty"))
        return "a" if engine.chosen == goal else "down"
    statements = node["examine"]["statements"]
    shown = engine.statements()
    for place, number in enumerate(shown):
        fitting = [name for name in statements[number].get("present", {}) if name in engine.evidence]
        if fitting:
            if engine.chosen != place:
                return "b" if engine.record_open else "right" if place > engine.chosen else "left"
            if not engine.record_open:
                return "r"
            goal = engine.evidence.index(fitting[0])
            if engine.selected == goal:
                return "up"
            # The shorter way round the record.
            size = len(engine.evidence)
            return "right" if (goal - engine.selected) % size <= size // 2 else "left"
    if engine.record_open:
        return "b"
    wanted = {statement.get("when") for statement in statements} - {None, *engine.flags}
    gifts = [
        place
        for place, number in enumerate(shown)
        if any(
            isinstance(part, dict)
            and (part.get("set") in wanted or ("give" in part and part["give"] not in engine.evidence))
            for part in statements[number]["press"]
        )
    ]
    if not gifts or engine.chosen == gifts[0]:
        return "l" if gifts else "right"
    return "right" if gifts[0] > engine.chosen else "left"
