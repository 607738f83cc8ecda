"""Reference players: search, greedy, random and scripted, by name through `players.make_player`."""
