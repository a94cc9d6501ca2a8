"""Elliptic curves and RSA in pure Python; signatures are deterministic."""

import hashlib

import ecdsa
import rsa
from ecdsa.util import sigencode_der

key = ecdsa.SigningKey.from_secret_exponent(123456789, curve=ecdsa.NIST192p)
for turn in range(12):
    signature = key.sign_deterministic(b"message %d" % turn, hashfunc=hashlib.sha256, sigencode=sigencode_der)
    print(turn, signature.hex()[:40], key.verifying_key.to_string().hex()[:20])
    print(
        key.verifying_key.verify(
            signature, b"message %d" % turn, hashfunc=hashlib.sha256, sigdecode=ecdsa.util.sigdecode_der
        )
    )
point = ecdsa.curves.NIST256p.generator
for k in (3, 5, 7):
    point = point * k + ecdsa.curves.NIST256p.generator
print(point.x(), point.y())
p, q = 1000000007, 998244353
public = rsa.PublicKey(p * q, 65537)
private = rsa.PrivateKey(p * q, 65537, rsa.common.inverse(65537, (p - 1) * (q - 1)), p, q)
value = 123456789
for _ in range(3000):
    value = rsa.core.encrypt_int(value, public.e, public.n)
    value = (rsa.core.decrypt_int(value, private.d, private.n) * 3 + 1) % 10**15
print(value, [n for n in range(10**6, 10**6 + 200) if rsa.prime.gcd(n, 30) == 1][-3:])
