"""A token goes round the ring of ranks and every rank adds something of its own.

ckpt run -n 4 --every 1 examples/ring.py --laps 20000
"""

import argparse

import ckpt


def ring(comm, laps):
    """The token after so many laps; the same on every rank."""
    token = 0
    for lap in range(laps):
        if comm.rank > 0:
            token = comm.recv(source=comm.rank - 1)
        token = (31 * token + comm.rank + lap) % 1_000_003
        if comm.size > 1:
            comm.send(token, dest=(comm.rank + 1) % comm.size)
        if comm.rank == 0 and comm.size > 1:
            token = comm.recv(source=comm.size - 1)
    return comm.bcast(token, root=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--laps", type=int, default=1000)
    options = parser.parse_args()
    comm = ckpt.enable()
    token = ring(comm, options.laps)
    if comm.rank == 0:
        print(f"{options.laps} laps of {comm.size} ranks: {token}")


if __name__ == "__main__":
    main()
