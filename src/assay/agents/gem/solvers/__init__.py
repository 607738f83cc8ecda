"""Reference players: exact or good ones, which see only what a player may know."""
