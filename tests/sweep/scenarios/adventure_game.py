"""The Colossal Cave, played by a script."""

import random

import adventure
from adventure import load_advent_dat
from adventure.game import Game

random.seed(7)
for seed in range(7, 19):
    game = Game(seed)
    load_advent_dat(game)
    game.start()
    print(len(game.output))
    for line in (
        "no\neast\nget lamp\nget keys\nwest\nsouth\nsouth\nsouth\nunlock grate\nopen grate\ndown\nwest\nget cage\nwest\n"
        "light lamp\nwest\nget rod\nwest\nwest\ndrop rod\nget bird\ntake rod\nwest\ndown\ndown\nsouth\nlook\ninventory\n"
        "north\nnorth\nrelease bird\nscore\nno"
    ).splitlines():
        answer = game.do_command([line] if line in ("no", "yes") else line.split())
        print(line, "->", " ".join(answer.split())[:100])
        if game.is_finished:
            break
