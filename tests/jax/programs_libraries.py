"""Programs written with Flax, Equinox and Optax."""
import functools

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from registry import Spec, f32, flags, key, normal, program, s32, weights


def squares(got, want):
    return jnp.mean((got - want) ** 2)


# ---- Flax, linen. --------------------------------------------------------------------------------
def variables(module, *shapes, dtype=jnp.float32, **kwargs):
    """Returns the initial variables of a linen module as NumPy arrays."""
    made = []

    def make(_):
        if not made:
            inputs = [jnp.ones(s, dtype) for s in shapes]
            made.append(jax.device_get(module.init(jax.random.key(0), *inputs, **kwargs)))
        return made[0]
    return Spec(make)


class LinenMlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.LayerNorm()(nn.gelu(nn.Dense(16)(x))))


@program(variables(LinenMlp(), (4, 8)), f32(4, 8), f32(4, 3))
def linen_mlp_step(v, x, y):
    value, grads = jax.value_and_grad(lambda v: squares(LinenMlp().apply(v, x), y))(v)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, v, grads)


@program(variables(nn.MultiHeadDotProductAttention(2), (2, 5, 8)), f32(2, 5, 8))
def linen_attention(v, x):
    return nn.MultiHeadDotProductAttention(2).apply(v, x, mask=nn.make_causal_mask(x[..., 0]))


class LinenNormed(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(8)(x))
        return nn.Dropout(0.5, deterministic=not train)(x)


@program(variables(LinenNormed(), (6, 4), train=False), f32(6, 4), key(1))
def linen_batch_norm_and_dropout(v, x, k):
    y, state = LinenNormed().apply(v, x, True, rngs={"dropout": k}, mutable=["batch_stats"])
    return y, state, LinenNormed().apply(v, x, False)


class LinenTagger(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(20, 8)(tokens)
        x = nn.RNN(nn.LSTMCell(8))(x)
        return nn.Dense(4)(nn.RMSNorm()(x))


@program(variables(LinenTagger(), (2, 6), dtype=jnp.int32), s32(2, 6, low=0, high=20),
         s32(2, 6, low=0, high=4))
def linen_tagger_gradient(v, tokens, tags):
    def loss(v):
        logits = LinenTagger().apply(v, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tags).mean()
    return jax.value_and_grad(loss)(v)


@program(variables(nn.GRUCell(6), (3, 6), (3, 4)), f32(3, 6), f32(3, 4))
def linen_gru_cell(v, h, x):
    return nn.GRUCell(6).apply(v, h, x)


@program(variables(nn.Conv(4, (3, 3)), (2, 6, 6, 3)), f32(2, 6, 6, 3))
def linen_convolution(v, x):
    return nn.avg_pool(nn.Conv(4, (3, 3)).apply(v, x), (2, 2), (2, 2))


@program(variables(nn.GroupNorm(2), (3, 5, 8)), variables(nn.DenseGeneral((2, 4)), (3, 5, 8)),
         f32(3, 5, 8))
def linen_group_norm_and_dense_general(g, d, x):
    return nn.DenseGeneral((2, 4)).apply(d, nn.GroupNorm(2).apply(g, x))


# ---- Flax, nnx. ----------------------------------------------------------------------------------
def nnx_program(make, *specs, **options):
    """Registers a program of a model that `make` makes from random numbers. The first argument of the
    program is the tree of the model's parameters."""
    def fresh():
        return make(nnx.Rngs(0))

    def register(function):
        @functools.wraps(function)
        def run(parameters, *args):
            model = fresh()
            state = nnx.state(model, nnx.Param)
            nnx.replace_by_pure_dict(state, parameters)
            nnx.update(model, state)
            return function(model, *args)
        parameters = Spec(lambda _: jax.device_get(nnx.to_pure_dict(nnx.state(fresh(), nnx.Param))))
        return program(parameters, *specs, **options)(run)
    return register


class NnxMlp(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(6, 12, rngs=rngs), nnx.Linear(12, 3, rngs=rngs)
        self.norm = nnx.LayerNorm(12, rngs=rngs)

    def __call__(self, x):
        return self.down(self.norm(nnx.silu(self.up(x))))


@nnx_program(NnxMlp, f32(5, 6), f32(5, 3))
def nnx_mlp_gradient(model, x, y):
    value, grads = nnx.value_and_grad(lambda m: squares(m(x), y))(model)
    return value, nnx.to_pure_dict(grads)


@nnx_program(NnxMlp, f32(5, 6), f32(5, 3))
def nnx_training_step(model, x, y):
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    grads = nnx.grad(lambda m: squares(m(x), y))(model)
    optimizer.update(model, grads)
    return nnx.to_pure_dict(nnx.state(model, nnx.Param))


@nnx_program(lambda rngs: nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs), f32(2, 5, 8))
def nnx_attention(model, x):
    return model(x, mask=nnx.make_causal_mask(x[..., 0]))


@nnx_program(lambda rngs: nnx.Embed(10, 4, rngs=rngs), s32(3, 5, low=0, high=10))
def nnx_embedding(model, tokens):
    return model.attend(model(tokens))


@nnx_program(lambda rngs: nnx.BatchNorm(4, rngs=rngs), f32(7, 4))
def nnx_batch_norm(model, x):
    y = model(x, use_running_average=False)
    return y, model.mean[...], model.var[...]


@nnx_program(lambda rngs: nnx.RNN(nnx.GRUCell(4, 6, rngs=rngs)), f32(2, 5, 4))
def nnx_gru(model, x):
    return model(x)


# ---- Equinox. ------------------------------------------------------------------------------------
def eqx_program(make, *specs, **options):
    """Registers a program of a module that `make` makes from a key. The first argument of the program
    is the tree of the module's arrays."""
    def register(function):
        static = eqx.partition(make(jax.random.key(0)), eqx.is_array)[1]
        arrays = Spec(lambda _: jax.device_get(
            eqx.partition(make(jax.random.key(0)), eqx.is_array)[0]))

        @functools.wraps(function)
        def run(arrays, *args):
            return function(eqx.combine(arrays, static), *args)
        return program(arrays, *specs, **options)(run)
    return register


def eqx_mlp(k):
    return eqx.nn.MLP(4, 2, 8, 2, key=k)


@eqx_program(eqx_mlp, f32(6, 4), f32(6, 2))
def equinox_mlp_step(model, x, y):
    @eqx.filter_jit
    def step(model):
        value, grads = eqx.filter_value_and_grad(lambda m: squares(jax.vmap(m)(x), y))(model)
        return value, eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, grads))
    value, model = step(model)
    return value, eqx.filter(model, eqx.is_array)


@eqx_program(lambda k: eqx.nn.GRUCell(3, 5, key=k), f32(7, 3))
def equinox_gru(cell, xs):
    return jax.lax.scan(lambda h, x: (cell(x, h),) * 2, jnp.zeros(5), xs)


@eqx_program(lambda k: eqx.nn.LSTMCell(3, 5, key=k), f32(7, 3))
def equinox_lstm_gradient(cell, xs):
    def loss(cell):
        zeros = jnp.zeros(5)
        (h, _), _ = jax.lax.scan(lambda s, x: (cell(x, s), None), (zeros, zeros), xs)
        return (h**2).sum()
    return eqx.filter_grad(loss)(cell)


@eqx_program(lambda k: eqx.nn.MultiheadAttention(2, 8, key=k), f32(6, 8))
def equinox_attention(layer, x):
    return layer(x, x, x, mask=jnp.tril(jnp.ones((6, 6), bool)))


@eqx_program(lambda k: [eqx.nn.LayerNorm(6), eqx.nn.RMSNorm(6), eqx.nn.GroupNorm(2, 6)], f32(4, 6))
def equinox_norms(layers, x):
    return [jax.vmap(layer)(x) for layer in layers]


@eqx_program(lambda k: eqx.nn.Embedding(9, 4, key=k), s32(6, low=0, high=9), key(3))
def equinox_embedding_and_dropout(table, tokens, k):
    return eqx.nn.Dropout(0.3)(jax.vmap(table)(tokens), key=k)


@eqx_program(lambda k: eqx.nn.RotaryPositionalEmbedding(8), f32(6, 8))
def equinox_rotary(layer, x):
    return layer(x)


@eqx_program(lambda k: eqx.filter_vmap(eqx_mlp)(jax.random.split(k, 3)), f32(5, 4))
def equinox_ensemble(models, x):
    each = eqx.filter_vmap(lambda m, x: jax.vmap(m)(x), in_axes=(eqx.if_array(0), None))
    return each(models, x).mean(0)


@eqx_program(lambda k: eqx.nn.Conv1d(3, 4, 3, key=k), f32(3, 10))
def equinox_convolution(layer, x):
    return layer(x)


# ---- Optax. --------------------------------------------------------------------------------------
def _optimizer_program(name, make):
    """Registers a program that trains a small layer for three steps. The optimizer's state passes
    through a scan."""
    def run(params, x, y):
        optimizer = make()

        def step(state, _):
            params, inner = state
            loss = lambda p: squares(jnp.tanh(x @ p["w"] + p["b"]), y)
            value, grads = jax.value_and_grad(loss)(params)
            updates, inner = optimizer.update(grads, inner, params, **(
                {"value": value} if name == "plateau" else {}))
            return (optax.apply_updates(params, updates), inner), value
        (params, _), values = jax.lax.scan(step, (params, optimizer.init(params)), length=3)
        return params, values
    run.__name__ = f"optax_{name}"
    program({"w": weights(8, 4), "b": normal(4)}, f32(6, 8), f32(6, 4))(run)


SCHEDULE = optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10)
for _name, _make in (
        ("sgd", lambda: optax.sgd(0.1)),
        ("momentum", lambda: optax.sgd(0.1, 0.9, nesterov=True)),
        ("adam", lambda: optax.adam(1e-2)),
        ("adamw", lambda: optax.adamw(SCHEDULE, weight_decay=0.1)),
        ("rmsprop", lambda: optax.rmsprop(1e-2)),
        ("adagrad", lambda: optax.adagrad(0.1)),
        ("lamb", lambda: optax.lamb(1e-2)),
        ("lion", lambda: optax.lion(1e-2)),
        ("adafactor", lambda: optax.adafactor(1e-2)),
        ("nadam", lambda: optax.nadam(1e-2)),
        ("amsgrad", lambda: optax.amsgrad(1e-2)),
        ("chain", lambda: optax.chain(optax.clip_by_global_norm(0.1), optax.scale_by_adam(),
                                      optax.add_decayed_weights(0.01),
                                      optax.scale_by_learning_rate(SCHEDULE))),
        ("multi_steps", lambda: optax.MultiSteps(optax.adam(1e-2), 2)),
        ("masked", lambda: optax.masked(optax.sgd(0.1), {"w": True, "b": False})),
        ("finite", lambda: optax.apply_if_finite(optax.sgd(0.1), 3)),
        ("ema", lambda: optax.chain(optax.sgd(0.1), optax.ema(0.9))),
        ("muon", lambda: optax.contrib.muon(1e-2))):
    _optimizer_program(_name, _make)


@program(s32(12, low=0, high=30))
def optax_schedules(step):
    o = optax
    return [s(step) for s in (o.constant_schedule(0.1), o.linear_schedule(0, 1, 10),
                              o.exponential_decay(0.1, 5, 0.9), o.cosine_decay_schedule(0.1, 20),
                              o.polynomial_schedule(1, 0, 2, 10), SCHEDULE,
                              o.piecewise_constant_schedule(1.0, {3: 0.5, 9: 0.1}))]


@program(f32(6, 5), s32(6, low=0, high=5), f32(6, 5), flags(6, 5))
def optax_losses(logits, labels, other, m):
    o = optax
    return (o.softmax_cross_entropy_with_integer_labels(logits, labels), o.l2_loss(logits, other),
            o.huber_loss(logits, other), o.sigmoid_binary_cross_entropy(logits, m),
            o.cosine_similarity(logits, other), o.log_cosh(logits, other),
            o.smooth_labels(jax.nn.one_hot(labels, 5), 0.1), o.kl_divergence(
                jax.nn.log_softmax(logits), jax.nn.softmax(other)))
