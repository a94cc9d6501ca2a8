"""libEnsemble: a manager hands simulations to workers, which are ranks, as its documentation says."""

import time

import numpy as np
from libensemble import Ensemble
from libensemble.alloc_funcs.give_sim_work_first import give_sim_work_first
from libensemble.specs import AllocSpecs, ExitCriteria, GenSpecs, LibeSpecs, SimSpecs


def sphere(given, persis_info, sim_specs, libE_info):
    time.sleep(0.01)
    result = np.zeros(1, dtype=sim_specs["out"])
    result["f"] = (given["x"][0] ** 2).sum()
    return result, persis_info


def points(given, persis_info, gen_specs, libE_info):
    count = gen_specs["user"]["gen_batch_size"]
    result = np.zeros(count, dtype=gen_specs["out"])
    result["x"] = persis_info["rand_stream"].uniform(-1, 1, (count, 2))
    return result, persis_info


if __name__ == "__main__":
    ensemble = Ensemble(
        libE_specs=LibeSpecs(comms="mpi", disable_log_files=True, save_H_and_persis_on_abort=False),
        sim_specs=SimSpecs(sim_f=sphere, inputs=["x"], outputs=[("f", float)]),
        gen_specs=GenSpecs(gen_f=points, outputs=[("x", float, 2)], user={"gen_batch_size": 20}),
        alloc_specs=AllocSpecs(
            alloc_f=give_sim_work_first, user={"init_sample_size": 20, "num_active_gens": 1}
        ),
        exit_criteria=ExitCriteria(sim_max=300),
    )
    ensemble.add_random_streams(seed=3)
    history, _, flag = ensemble.run()
    if ensemble.is_manager:
        done = history[history["sim_ended"]]
        is_right = np.allclose(done["f"], (done["x"] ** 2).sum(axis=1))
        print(flag, len(done) >= 300, is_right, sorted(set(done["sim_worker"])))
