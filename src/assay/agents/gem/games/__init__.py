"""The games: one module each, all on `assay.agents.gem.games.base.Game`."""
