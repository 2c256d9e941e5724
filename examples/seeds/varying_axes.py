"""Values that vary over an axis of the mesh, and values that do not: docs/seeds/varying_axes.md."""
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec as P

mesh = jax.make_mesh((2,), ("x",), (AxisType.Auto,))
p, t = jnp.array([3.]), jnp.array([1., 2.])


def f(v):
    return jnp.mean(v ** 2)


def there_and_back(point, tangent):
    print("at a", jax.typeof(point), "along a", jax.typeof(tangent))
    y, fwd = jax.linearize(f, point)
    bwd = jax.linear_transpose(fwd, point)
    return bwd(fwd(tangent))[0]


def at_p(tangent):
    return there_and_back(p, tangent)


try:
    jax.shard_map(at_p, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(t)
except ValueError as e:
    print("ValueError:", e)


def at_a_p_for_each(tangent):
    return there_and_back(jax.lax.pcast(p, "x", to="varying"), tangent)


print(jax.shard_map(at_a_p_for_each, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(t))


def by_p(x):
    return jax.grad(lambda q: jnp.sum(q * x))(p)


def by_a_p_for_each(x):
    return jax.grad(lambda q: jnp.sum(q * x))(jax.lax.pcast(p, "x", to="varying"))


print(jax.shard_map(by_p, mesh=mesh, in_specs=P("x"), out_specs=P())(t))
print(jax.shard_map(by_a_p_for_each, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(t))
