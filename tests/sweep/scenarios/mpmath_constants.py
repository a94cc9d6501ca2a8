"""Constants, integrals and zeros to many digits with mpmath."""

import mpmath

mpmath.mp.dps = 40
print(mpmath.pi, mpmath.euler, mpmath.zeta(3))
print(mpmath.quad(lambda x: mpmath.exp(-x * x), [0, 3]))
print(mpmath.findroot(lambda x: mpmath.cos(x) - x, 0.7))
print(mpmath.nsum(lambda n: 1 / n**4, [1, mpmath.inf]))
with mpmath.workdps(60):
    print(mpmath.gamma(mpmath.mpf(1) / 3))
matrix = mpmath.matrix(6, 6)
for i in range(6):
    for j in range(6):
        matrix[i, j] = mpmath.mpf(1) / (i + j + 1)
print(mpmath.det(matrix), mpmath.nstr(mpmath.inverse(matrix)[0, 0], 20))
print(mpmath.polyroots([1, -6, 11, -6]))
for k in range(1, 60):
    print(k, mpmath.besselj(k, 2.5), mpmath.zetazero(k).imag if k < 2 else "")
