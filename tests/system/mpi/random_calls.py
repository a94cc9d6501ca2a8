"""A random program of MPI calls, as people mix them. All its choices follow from a seed, alike at all ranks where they must.

random_calls.py SEED STEPS [LEFT_OUT,…]       as a program of mpi4py

What each rank has received goes into one digest, which it prints every ten steps and at the end; what it writes, too,
depends on it. So one wrong, lost, doubled or exchanged message makes another output. Between two calls a rank sleeps for a
moment or not, so that images fall between any two of them, and calls wait for each other.
"""

import hashlib
import itertools
import os
import random
import sys
import time

import numpy as np
from mpi4py import MPI

seed, steps = int(sys.argv[1]), int(sys.argv[2])
left_out = set(sys.argv[3].split(",")) if len(sys.argv) > 3 else set()
world = MPI.COMM_WORLD
rank, size = world.rank, world.size
common = random.Random(seed)  # the same choices at all ranks
own, numbers = random.Random(f"{seed} {rank}"), np.random.default_rng([seed, rank])
digest = hashlib.blake2b(digest_size=8)


def note(*values):
    for value in values:
        digest.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())


def pause():
    time.sleep(own.choice([0, 0, 0.001, 0.004]))


def some(count):
    return numbers.integers(0, 1000, count).astype("d")


def objects_around_a_ring():
    far = common.randrange(1, max(2, size))
    value = {
        "a": own.random(),
        "b": [*range(own.randrange(50))],
        "c": bytes(common.choice([0, 10, 3000, 90000])),
    }
    note(world.sendrecv(value, (rank + far) % size, 5, source=(rank - far) % size, recvtag=5))


def buffers_around_a_ring():
    count, far = common.choice([0, 1, 100, 5000, 200000]), common.randrange(size)
    found = np.empty(count)
    world.Sendrecv(some(count), (rank + far) % size, 6, found, (rank - far) % size, 6)
    note(found)


def objects_received_in_another_order():
    tags = [*range(common.randrange(1, 12))]
    sent = [*tags]
    common.shuffle(tags)
    requests = [world.irecv(100000, source, 20 + tag) for source in range(size) for tag in tags]
    pause()
    for tag, target in itertools.product(sent, range(size)):
        world.send((rank, tag, own.random()), target, 20 + tag)
    note(MPI.Request.waitall(requests))


def buffers_waited_for_one_by_one():
    count, length = common.randrange(1, 8), common.choice([1, 1000, 30000])
    found = [np.empty(length) for _ in range(count * size)]
    sent = [some(length) for _ in range(count)]
    pairs = [*itertools.product(range(size), range(count))]
    receives = [world.Irecv(found[at], peer, 60 + tag) for at, (peer, tag) in enumerate(pairs)]
    sends = [world.Isend(sent[tag], peer, 60 + tag) for peer, tag in pairs]
    pause()
    places = []
    while (place := MPI.Request.Waitany(receives)) != MPI.UNDEFINED:
        places.append(place)
    MPI.Request.Waitall(sends)
    note(sorted(places), *found)


def collectives():
    count, root = common.choice([1, 7, 1000, 20000]), common.randrange(size)
    mine, found, all_found = some(count), np.empty(count), np.empty((size, count))
    world.Allreduce(mine, found, common.choice([MPI.SUM, MPI.MAX, MPI.MIN]))
    world.Allgather(mine, all_found)
    note(found, all_found, world.bcast([own.random(), mine[:3].tolist()] if rank == root else None, root))
    note(world.gather(own.random(), root), world.allgather((rank, own.random())))
    note(world.alltoall([own.random() for _ in range(size)]), world.scan(own.randrange(9)))
    note(world.scatter([own.random() for _ in range(size)] if rank == root else None, root))
    note(world.exscan(own.randrange(9)), world.reduce(own.randrange(1000), root=root))


def collectives_under_way():
    count, root = common.choice([1, 500, 9000]), common.randrange(size)
    total, given, everything = np.empty(count), some(count), np.empty((size, count))
    requests = [world.Iallreduce(some(count), total), world.Ibcast(given, root), world.Ibarrier()]
    objects_around_a_ring()
    pause()
    requests.append(world.Iallgather(some(count), everything))
    MPI.Request.Waitall(requests[::-1])
    note(total, given, everything)


def communicators():
    part = world.Split(rank % common.randrange(1, size + 1), -rank if common.random() < 0.5 else rank)
    other = part.Dup()
    pause()
    right, left = (other.rank + 1) % other.size, (other.rank - 1) % other.size
    note(part.rank, part.size, part.allreduce(own.randrange(99)), other.allgather(own.random()))
    note(other.sendrecv(own.random(), right, source=left))
    other.Free()
    part.Free()


kept = []


def communicators_that_are_kept():
    kept.append(world.Split(rank % 2, rank))
    if len(kept) > 3:
        kept.pop(0).Free()
    note([each.allreduce(own.randrange(50)) for each in kept])


persistent = []


def persistent_requests():
    if not persistent:
        out, into = np.zeros(200), np.zeros(200)
        left, right = (rank - 1) % size, (rank + 1) % size
        persistent.extend([out, into, world.Send_init(out, right, 90), world.Recv_init(into, left, 90)])
    out, into, send, receive = persistent
    out[:] = some(len(out))
    MPI.Prequest.Startall([receive, send])
    pause()
    MPI.Request.Waitall([send, receive])
    note(into)


def messages_from_anybody():
    targets = [[common.randrange(size) for _ in range(common.randrange(1, 5))] for _ in range(size)]
    for target in targets[rank]:
        world.send((rank, own.randrange(1000)), target, 101)
    found, status = [], MPI.Status()
    for _ in range(sum(each.count(rank) for each in targets)):
        how = own.randrange(4)
        if how == 0:
            world.probe(MPI.ANY_SOURCE, 101, status)
            found.append(world.recv(source=status.source, tag=status.tag))
        elif how == 1:
            found.append(world.mprobe(MPI.ANY_SOURCE, 101).recv())
        elif how == 2:
            while not world.iprobe(MPI.ANY_SOURCE, 101):
                pass
            found.append(world.recv(source=MPI.ANY_SOURCE, tag=101, status=status))
            assert found[-1][0] == status.source
        else:
            found.append(world.recv(source=MPI.ANY_SOURCE, tag=101))
    note(sorted(found))
    world.barrier()


windows = []


def one_sided():
    if not windows:
        windows.append(MPI.Win.Allocate(8 * 64, 8, comm=world))
        np.frombuffer(windows[0], "d")[:] = 0
    window, found, target = windows[0], np.empty(64), common.randrange(size)
    window.Fence()
    window.Put(some(8), (rank + 1) % size, (8 * (rank % 7), 8, MPI.DOUBLE))
    window.Fence()
    window.Accumulate(np.ones(4), target, (0, 4, MPI.DOUBLE))
    window.Fence()
    window.Get(found, (rank + 2) % size)
    window.Fence()
    window.Lock(target, MPI.LOCK_SHARED)
    window.Fetch_and_op(np.ones(1), np.zeros(1), target, 63)
    window.Unlock(target)
    window.Fence()
    note(found, np.frombuffer(window, "d").copy())


files = []


def a_parallel_file():
    if not files:
        files.append(MPI.File.Open(world, "parallel.bin", MPI.MODE_CREATE | MPI.MODE_RDWR))
    file, found, right = files[0], np.zeros(50), (rank + 1) % size
    begin = common.randrange(4) * size * 400
    file.Write_at_all(begin + rank * 400, some(50))
    file.Sync()
    world.barrier()
    file.Sync()
    file.Read_at_all(begin + right * 400, found)
    note(found)
    world.barrier()
    if common.random() < 0.2:
        files.pop().Close()


def plain_files():
    with open(f"log-{rank}.txt", "a") as file:
        file.write(f"{digest.hexdigest()} {own.random()}\n")
    if common.randrange(2 * size) == rank:
        with open(f"new-{rank}", "w") as file:
            file.write(digest.hexdigest())
        os.replace(f"new-{rank}", f"latest-{rank}")


running = []


def totals():
    found = own.random()
    for turn in itertools.count():
        found += world.allreduce(turn + rank)
        yield found


def generators_that_communicate():
    if not running or common.random() < 0.3:
        running.append(totals())
    note([next(each) for each in running[-3:]])


def neighbours_on_a_grid():
    grid = world.Create_cart(MPI.Compute_dims(size, 2), [True, False])
    for axis in (0, 1):
        source, target = grid.Shift(axis, 1)
        found = np.full(3, -1.0)
        grid.Sendrecv(some(3), target, 0, found, source, 0)
        note(found)
    found = np.full((4, 2), -1.0)
    grid.Neighbor_allgather(some(2), found)
    note(found)
    grid.Free()


def derived_types():
    found, column = np.zeros((6, 6)), MPI.DOUBLE.Create_vector(6, 1, 6).Commit()
    world.Sendrecv(
        [some(36).reshape(6, 6), 1, column], (rank + 1) % size, 7, [found, 1, column], (rank - 1) % size, 7
    )
    column.Free()
    note(found)


KINDS = (
    objects_around_a_ring,
    buffers_around_a_ring,
    objects_received_in_another_order,
    buffers_waited_for_one_by_one,
    collectives,
    collectives_under_way,
    communicators,
    communicators_that_are_kept,
    persistent_requests,
    messages_from_anybody,
    one_sided,
    a_parallel_file,
    plain_files,
    generators_that_communicate,
    neighbours_on_a_grid,
    derived_types,
)
kinds = [each for each in KINDS if each.__name__ not in left_out]
for step in range(steps):
    kind = common.choice(kinds)
    kind()
    pause()
    note(step)
    if step % 10 == 0:
        print(step, kind.__name__, digest.hexdigest(), flush=True)
for each in (*windows, *persistent[2:]):
    each.Free()
for each in files:
    each.Close()
print("end", digest.hexdigest(), flush=True)
