"""scipy: sparse matrices, results, splines, distributions."""

import numpy as np
import scipy.fft
import scipy.integrate
import scipy.interpolate
import scipy.optimize
import scipy.signal
import scipy.sparse as sp
import scipy.sparse.linalg
import scipy.spatial
import scipy.stats

from cases import case, main


@case
def sparse_of_all_formats():
    dense = np.array([[1.0, 0, 2], [0, 0, 3], [4, 5, 0]])
    kinds = [
        sp.csr_matrix,
        sp.csc_matrix,
        sp.coo_matrix,
        sp.lil_matrix,
        sp.dok_matrix,
        sp.dia_matrix,
        sp.bsr_matrix,
        sp.csr_array,
    ]
    made = [kind(dense) for kind in kinds]
    data = made[0].data
    while True:
        data[0] += 1
        made[3][1, 1] += 1
        made[4][1, 1] += 1
        yield (
            [float(m.sum()) for m in made],
            made[0][0, 0],
            (made[0] @ made[1]).toarray().tolist(),
            data is made[0].data,
            [m.format for m in made],
        )


@case
def solvers_and_splines():
    spline = scipy.interpolate.CubicSpline(np.arange(5.0), np.arange(5.0) ** 2)
    line = scipy.interpolate.interp1d(np.arange(3.0), np.arange(3.0) * 2)
    result = scipy.optimize.minimize(lambda x: (x[0] - 1) ** 2, [0.0])
    normal = scipy.stats.norm(1, 2)
    operator = scipy.sparse.linalg.aslinearoperator(sp.eye(3))
    stepper = scipy.integrate.RK45(lambda t, y: -y, 0, np.array([1.0]), 10)
    rotation = scipy.spatial.transform.Rotation.from_euler("z", 90, degrees=True)
    tree = scipy.spatial.cKDTree(np.arange(10.0).reshape(5, 2))
    state = scipy.signal.lfilter_zi([1.0], [1.0, 0.5])
    while True:
        stepper.step()
        yield (
            float(spline(1.5)),
            float(line(0.5)),
            round(float(result.x[0]), 4),
            result.success,
            normal.cdf(1),
            (operator @ np.ones(3)).tolist(),
            stepper.t,
            stepper.y.tolist(),
            rotation.as_quat().round(6).tolist(),
            tree.query([1.0, 1.0])[1],
            state.tolist(),
        )


if __name__ == "__main__":
    main()
