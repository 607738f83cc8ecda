"""Engines of the games: rules and state only; `assay.agents.lmgame.env` makes environments of them."""
