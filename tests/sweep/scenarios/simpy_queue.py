"""Discrete events: generators as processes, with SimPy."""

import random

import simpy

random.seed(11)


def customer(env, name, counter, log):
    arrive = env.now
    with counter.request() as request:
        patience = random.uniform(1, 3)
        got = yield request | env.timeout(patience)
        if request in got:
            yield env.timeout(random.expovariate(1 / 2.0))
            log.append((name, "served", round(env.now - arrive, 6)))
        else:
            log.append((name, "left", round(env.now - arrive, 6)))


def source(env, number, counter, log):
    for i in range(number):
        env.process(customer(env, f"c{i}", counter, log))
        yield env.timeout(random.expovariate(1.0))


def tank(env, store, log):
    while True:
        amount = yield store.get(3)
        log.append(("tank", env.now, store.level))
        yield env.timeout(2)


env, log = simpy.Environment(), []
counter, store = simpy.Resource(env, capacity=2), simpy.Container(env, 50, init=50)
env.process(source(env, 6000, counter, log))
env.process(tank(env, store, log))
while env.peek() < 5000:
    env.step()
print(len(log), sum(1 for entry in log if entry[1] == "served"), log[-3:], env.now)
