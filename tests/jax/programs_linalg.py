"""Linear algebra as users write it: factorizations of real and complex matrices, and gradients.

LAPACK libraries differ in the signs and phases of vectors. So a program returns only what does not
depend on these: products of the factors, eigenvalues in a fixed order, and magnitudes.
"""
import jax
import jax.numpy as jnp
from jax import lax
from jax._src.lax import linalg as lax_linalg
from registry import c64, f32, normal, positive_definite, program

linalg, scipy = jnp.linalg, jax.scipy.linalg
CLOSE = {"rtol": 5e-4}


def hermitian(z):
    return z @ z.conj().T / z.shape[0] + jnp.diag(jnp.arange(1.0, z.shape[0] + 1))


def ordered(w):
    """Sorts eigenvalues by their real parts, and then by their imaginary parts."""
    return lax.sort((w.real, w.imag), num_keys=2)


# ---- Complex matrices. ---------------------------------------------------------------------------
@program(c64(5, 5), c64(5, 2), **CLOSE)
def complex_solve(a, b):
    a = a + 5 * jnp.eye(5)
    return linalg.solve(a, b), linalg.inv(a), linalg.det(a), linalg.slogdet(a)


@program(c64(5, 5), c64(5, 2), **CLOSE)
def complex_cholesky(z, b):
    a = hermitian(z)
    factor = scipy.cho_factor(a, lower=True)
    return linalg.cholesky(a), linalg.cholesky(a, upper=True), scipy.cho_solve(factor, b)


@program(c64(4, 4), c64(4, 3), c64(3, 4), **CLOSE)
def complex_triangular_solves(a, b, c):
    a = a + 5 * jnp.eye(4)
    solve = lax.linalg.triangular_solve
    return ([scipy.solve_triangular(a, b, trans=t, lower=lower)
             for t in (0, 1, 2) for lower in (False, True)],
            solve(a, c), solve(a, c, transpose_a=True, conjugate_a=True, lower=True),
            solve(a, c, conjugate_a=True))


@program(c64(5, 3), c64(3, 5), **CLOSE)
def complex_qr(tall, wide):
    q, r = linalg.qr(tall)
    full, above = linalg.qr(tall, mode="complete")
    p, s = linalg.qr(wide)
    return q @ r, jnp.abs(r), q.conj().T @ q, full @ above, full.conj().T @ full, p @ s, jnp.abs(s)


@program(c64(2, 4, 4), **CLOSE)
def complex_eigh(z):
    a = jax.vmap(hermitian)(z)
    w, v = linalg.eigh(a)
    lower = linalg.eigh(a, UPLO="U", symmetrize_input=False)[0]
    return w, (v * w[:, None]) @ v.conj().mT, linalg.eigvalsh(a), lower


@program(c64(5, 3), c64(3, 5), **CLOSE)
def complex_svd(tall, wide):
    u, s, vh = linalg.svd(tall, full_matrices=False)
    full, t, wh = linalg.svd(wide)
    return (u * s) @ vh, s, t, (full * t) @ wh[:3], linalg.svdvals(wide)


@program(c64(5, 3), normal(3, 5), custom_calls=("lapack_cgesvd_ffi", "lapack_sgesvd_ffi"), **CLOSE)
def svd_by_qr_steps(z, a):
    def svd(x):
        return lax.linalg.svd(x, full_matrices=False, algorithm=lax.linalg.SvdAlgorithm.QR)
    (u, s, vh), (p, t, q) = svd(z), svd(a)
    return (u * s) @ vh, s, (p * t) @ q, t


@program(c64(4, 4), c64(4, 2), **CLOSE)
def complex_gradients(z, b):
    def loss(z, b):
        a = hermitian(z)
        l = linalg.cholesky(a)
        x = linalg.solve(z + 5 * jnp.eye(4), b)
        w, v = linalg.eigh(a)
        return (jnp.abs(l).sum() + (jnp.abs(x) ** 2).sum() + (jnp.abs(v @ (w[:, None] * b)) ** 2).sum()
                + linalg.slogdet(z)[1])
    return jax.grad(loss, (0, 1))(z, b)


@program(c64(5, 3), c64(3, 5), **CLOSE)
def complex_gradients_of_factors(tall, wide):
    def of_svd(a):
        u, s, vh = linalg.svd(a, full_matrices=False)
        return jnp.abs((u * jnp.sin(s)) @ vh).sum()

    def of_qr(a):
        q, r = linalg.qr(a)
        return jnp.abs(q).sum() + jnp.abs(r).sum() + jnp.abs(q @ jnp.sin(q.conj().T)).sum()
    return [jax.grad(f)(x) for f in (of_svd, of_qr) for x in (tall, wide)]


# ---- Matrices that are not symmetric. ------------------------------------------------------------
@program(normal(2, 5, 5), c64(4, 4), **CLOSE)
def general_eigenvalues(a, z):
    w, v = linalg.eig(a)
    # The residual is only a rounding error, so 1 is added to make the comparison relative to 1.
    residual = 1 + jnp.abs(a @ v - v * w[:, None])
    u, left = lax.linalg.eig(z, compute_right_eigenvectors=False)
    other = 1 + jnp.abs(left.conj().T @ z - u[:, None] * left.conj().T)
    return (ordered(w), residual, ordered(linalg.eigvals(z)), ordered(u), other,
            (jnp.abs(v) ** 2).sum(-2))


@program(normal(5, 5), c64(4, 4), **CLOSE)
def gradients_of_eigenvalues(a, z):
    def of_values(a):
        return (jnp.abs(linalg.eigvals(a)) ** 3).sum()

    def of_vectors(a):
        w, left, right = lax.linalg.eig(a, enable_eigvec_derivs=True)
        return (jnp.abs(right) ** 4).sum() + (jnp.abs(left @ jnp.diag(w)) ** 3).sum()
    return [jax.grad(f)(x) for f in (of_values, of_vectors) for x in (a, z)]


@program(normal(5, 5), c64(4, 4), **CLOSE)
def schur_forms(a, z):
    t, q = scipy.schur(a)
    s, p = scipy.schur(z)
    c, u = scipy.schur(a, output="complex")
    below = lambda m: jnp.abs(jnp.tril(m, -2)).max()
    return (q @ t @ q.T, q @ q.T, below(t), p @ s @ p.conj().T, jnp.tril(jnp.abs(s), -1),
            u @ c @ u.conj().T, ordered(jnp.diag(s)))


@program(normal(2, 5, 5), c64(4, 4), **CLOSE)
def hessenberg_forms(a, z):
    h, q = scipy.hessenberg(a, calc_q=True)
    g, p = scipy.hessenberg(z, calc_q=True)
    packed, taus = lax.linalg.hessenberg(z)
    return q @ h @ q.mT, jnp.tril(h, -2), p @ g @ p.conj().T, p @ p.conj().T, packed, taus


@program(normal(5, 5), c64(5, 5), **CLOSE)
def tridiagonal_forms(a, z):
    out = [lax.linalg.tridiagonal(m, lower=lower) for m in (a + a.T, hermitian(z))
           for lower in (True, False)]
    return out, scipy.eigh_tridiagonal(jnp.diag(a), jnp.diag(a, 1), eigvals_only=True)


@program(normal(5, 3), c64(3, 5), normal(4, 4), **CLOSE,
         custom_calls=("lapack_sgeqp3_ffi", "lapack_cgeqp3_ffi"))
def pivoted_qr(tall, wide, square):
    q, r, p = scipy.qr(tall, pivoting=True)
    u, s, o = scipy.qr(wide, pivoting=True, mode="economic")

    def loss(a):
        q, r, _ = scipy.qr(a, pivoting=True, mode="economic")
        return jnp.abs(r).sum() + (q**4).sum()
    return q @ r, p, u @ s, o, jnp.abs(jnp.diag(r)), jax.grad(loss)(square), jax.grad(loss)(tall)


@program(normal(5, 3), c64(4, 4), normal(2, 3, 5), c64(4, 2), normal(5, 2), **CLOSE,
         custom_calls=("lapack_sormqr_ffi", "lapack_cunmqr_ffi"))
def products_with_reflectors(tall, square, wide, beside, under):
    packed, taus = lax_linalg.geqrf(tall)
    other, complex_taus = lax_linalg.geqrf(square)
    wides, wide_taus = lax_linalg.geqrf(wide)
    ways = [(left, transpose) for left in (True, False) for transpose in (True, False)]
    return ([lax_linalg.ormqr(packed, taus, under if left else under.mT, left=left, transpose=t) for left, t in ways],
            [lax_linalg.ormqr(other, complex_taus, beside if left else beside.mT, left=left, transpose=t)
             for left, t in ways],
            lax_linalg.ormqr(wides, wide_taus, wide, transpose=True), scipy.qr_multiply(tall, under.mT, mode="right"))


@program(normal(6, 3), normal(3, 6), **CLOSE)
def gradients_of_all_of_qr(tall, wide):
    def loss(a):
        q, r = linalg.qr(a, mode="complete")
        return (q**4).sum() + jnp.sin(r).sum()
    return jax.grad(loss)(tall), jax.grad(loss)(wide)


# ---- Functions of matrices. ----------------------------------------------------------------------
@program(normal(2, 4, 4), c64(4, 4), **CLOSE)
def exponentials(a, z):
    return scipy.expm(a), scipy.expm(3 * z), jax.grad(lambda a: scipy.expm(a).sum())(a[0])


@program(positive_definite(5), c64(4, 4), **CLOSE)
def square_roots(a, z):
    root, of_complex = scipy.sqrtm(a), scipy.sqrtm(hermitian(z))
    return root @ root, of_complex @ of_complex


@program(normal(5, 3), c64(4, 4), **CLOSE)
def polar_forms(a, z):
    return scipy.polar(a), scipy.polar(z)


@program(normal(6, 3), normal(6, 2), c64(4, 6), c64(4), **CLOSE)
def least_squares(a, b, z, y):
    x, residuals, rank, s = linalg.lstsq(a, b)
    return (x, residuals, rank, s, linalg.lstsq(z, y)[0], linalg.pinv(a), linalg.pinv(z),
            linalg.matrix_rank(z), jax.grad(lambda a: jnp.sin(linalg.pinv(a)).sum())(a))


@program(normal(4, 4), c64(4, 4), f32(4), **CLOSE)
def norms_and_conditions(a, z, v):
    orders = (None, "fro", "nuc", 1, -1, 2, -2, jnp.inf, -jnp.inf)
    return ([linalg.norm(m, ord=o) for o in orders for m in (a, z)],
            [linalg.norm(v, ord=o) for o in (0, 1, 2, 3, jnp.inf, -jnp.inf)],
            [linalg.cond(z, p) for p in (None, 2, -2, 1, "fro")],
            linalg.matrix_power(z, 5), linalg.matrix_power(z, -2), linalg.multi_dot([a, z, v]))


@program(normal(4, 4), c64(4, 2), **CLOSE)
def solves_by_lu(a, b):
    lu = scipy.lu_factor(a)
    p, l, u = scipy.lu(a)
    return ([scipy.lu_solve(lu, b.real, trans=t) for t in (0, 1, 2)], p @ l @ u,
            jax.grad(lambda a: linalg.solve(a, b.real).sum())(a),
            jax.grad(lambda a: linalg.det(a))(a))
