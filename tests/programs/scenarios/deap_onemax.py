"""deap's OneMax example, its fitness evaluated by schwimmbad's MPIPool."""

import random

from deap import algorithms, base, creator, tools
from schwimmbad import MPIPool

creator.create("FitnessMax", base.Fitness, weights=(1.0,))
creator.create("Individual", list, fitness=creator.FitnessMax)


def one_max(individual):
    return (sum(individual),)


pool = MPIPool()  # closes itself at the end of the program: see emcee_pool.py
random.seed(64)
toolbox = base.Toolbox()
toolbox.register("map", pool.map)
toolbox.register("bit", random.randint, 0, 1)
toolbox.register("individual", tools.initRepeat, creator.Individual, toolbox.bit, 100)
toolbox.register("population", tools.initRepeat, list, toolbox.individual)
toolbox.register("evaluate", one_max)
toolbox.register("mate", tools.cxTwoPoint)
toolbox.register("mutate", tools.mutFlipBit, indpb=0.05)
toolbox.register("select", tools.selTournament, tournsize=3)
population, log = algorithms.eaSimple(toolbox.population(n=120), toolbox, 0.5, 0.2, 30, verbose=False)
for record in log:
    print(record["gen"], record["nevals"])
print(tools.selBest(population, 1)[0])
