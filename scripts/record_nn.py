#!/usr/bin/env python3
"""Records the results of jax.nn and Optax for the rows of tests/nn, whose test compares with them.

  scripts/jax_venv
  build/jax-venv/bin/python scripts/record_nn.py [ROW ...]

Writes tests/nn/recorded.jsonl: a line with the source, then a line for each row. The line of a row has its
inputs, its results in f64 and in f32 (with jax_enable_x64 and without), and the derivatives in f64 of the
sum of its results by each input of floats. tests/nn/rows.cc has the same rows in C++.
"""
import json
import os
import pathlib
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax import nn  # noqa: E402

init = nn.initializers
RECORDED = pathlib.Path(__file__).resolve().parent.parent / "tests/nn/recorded.jsonl"
NAMES = {"float32": "f32", "float64": "f64", "int32": "s32", "uint32": "u32", "bool": "bool"}

POINTS = np.array([-100, -20, -7, -6, -3, -2.5, -1.5, -1, -0.5, -1e-3, -1e-9, 0, 1e-9, 1e-3, 0.3, 0.5, 1,
                   1.5, 2, 3, 5.9, 6, 7, 20, 100])
SPECIAL = np.array([np.inf, -np.inf, np.nan])
# Makes numbers that look random and can all be represented in f32.
rng = np.random.default_rng(11)


def normal(*shape):
    return rng.normal(size=shape).astype(np.float32).astype(np.float64)


ROWS = []  # tuples of a name, a function of (dtype, *inputs), the inputs, and options


def row(name, function, *inputs, grads=True, dtypes=("f64", "f32")):
    ROWS.append((name, function, inputs, grads, dtypes))


# ---- jax.nn. ------------------------------------------------------------------------------------

ACTIVATIONS = ["identity", "relu", "relu6", "sigmoid", "log_sigmoid", "silu", "swish", "mish", "softplus",
               "soft_sign", "selu", "elu", "celu", "leaky_relu", "squareplus", "hard_tanh", "hard_sigmoid",
               "hard_silu", "hard_swish", "sparse_plus", "sparse_sigmoid", "gelu"]
for activation in ACTIVATIONS:
    row(activation, lambda dtype, x, f=getattr(nn, activation): f(x), POINTS)
row("special_points", lambda dtype, x: jnp.stack([getattr(nn, f)(x) for f in ACTIVATIONS]), SPECIAL, grads=False)
row("gelu_exact", lambda dtype, x: nn.gelu(x, approximate=False), POINTS)
row("log1mexp", lambda dtype, x: nn.log1mexp(x), POINTS[POINTS > 0])
row("elu_alpha", lambda dtype, x, a: nn.elu(x, a), POINTS, np.array(0.75))
row("celu_alpha", lambda dtype, x, a: nn.celu(x, a), POINTS, np.array(0.75))
row("leaky_relu_slope", lambda dtype, x, a: nn.leaky_relu(x, a), POINTS, np.array(0.25))
row("squareplus_b", lambda dtype, x, b: nn.squareplus(x, b), POINTS, np.array(2.0))
row("relu_s32", lambda dtype, x: nn.relu(x), np.arange(-3, 4, dtype=np.int32), dtypes=("f32",))
row("hard_tanh_s32", lambda dtype, x: nn.hard_tanh(x), np.arange(-3, 4, dtype=np.int32), dtypes=("f32",))
row("glu", lambda dtype, x: nn.glu(x), normal(3, 4))
row("glu_axis", lambda dtype, x: nn.glu(x, axis=0), normal(4, 3))
row("logsumexp", lambda dtype, x: nn.logsumexp(x, axis=1), 3 * normal(3, 5))
row("logmeanexp", lambda dtype, x: nn.logmeanexp(x, axis=0, keepdims=True), 3 * normal(3, 5))
row("softmax", lambda dtype, x: nn.softmax(x) * jnp.arange(5, dtype=dtype), 3 * normal(3, 5))
row("log_softmax", lambda dtype, x: nn.log_softmax(x, axis=0) * jnp.arange(5, dtype=dtype), 3 * normal(3, 5))
row("standardize", lambda dtype, x: nn.standardize(x) * jnp.arange(5, dtype=dtype), normal(3, 5))
row("one_hot", lambda dtype, x: nn.one_hot(x, 4, dtype=dtype), np.array([[3, 0], [-1, 4]], np.int32))
row("one_hot_axis", lambda dtype, x: nn.one_hot(x, 4, dtype=dtype, axis=0), np.array([[3, 0], [1, 4]], np.int32))

Q, K, V = normal(2, 5, 4, 3), normal(2, 6, 4, 3), normal(2, 6, 4, 3)
QKV = (Q, K, V)
GROUPED = (Q, normal(2, 6, 2, 3), normal(2, 6, 2, 3))
MASK = rng.integers(0, 2, (2, 1, 5, 6)).astype(bool)
MASK[..., 0] = True
row("attention", lambda dtype, q, k, v: nn.dot_product_attention(q, k, v), *QKV)
row("attention_no_batch", lambda dtype, q, k, v: nn.dot_product_attention(q, k, v, scale=0.5), Q[0], K[0], V[0])
row("attention_causal", lambda dtype, q, k, v: nn.dot_product_attention(q, k, v, is_causal=True), *QKV)
row("attention_grouped", lambda dtype, q, k, v: nn.dot_product_attention(q, k, v, is_causal=True), *GROUPED)
row("attention_mask", lambda dtype, q, k, v, m: nn.dot_product_attention(q, k, v, mask=m), *QKV, MASK)
row("attention_bias", lambda dtype, q, k, v, b, m: nn.dot_product_attention(q, k, v, bias=b, mask=m), *GROUPED,
    normal(2, 4, 5, 6), MASK)
row("attention_lengths", lambda dtype, q, k, v, m, n: nn.dot_product_attention(
    q, k, v, query_seq_lengths=m, key_value_seq_lengths=n), *QKV, np.array([5, 2], np.int32), np.array([3, 6], np.int32))
row("attention_window", lambda dtype, q, k, v: nn.dot_product_attention(q, k, v, local_window_size=(2, 1)), *QKV)

KEY = np.array([0, 20], np.uint32)
for name in ["glorot_uniform", "glorot_normal", "lecun_uniform", "lecun_normal", "he_uniform", "he_normal"]:
    row(name, lambda dtype, k, f=getattr(init, name): f()(k, (5, 8), dtype), KEY)
for name in ["zeros", "ones"]:
    row("init_" + name, lambda dtype, k, f=getattr(init, name): f(k, (2, 3), dtype), KEY)
row("init_constant", lambda dtype, k: init.constant(0.3)(k, (2, 3), dtype), KEY)
row("init_uniform", lambda dtype, k: init.uniform(0.3)(k, (4, 3), dtype), KEY)
row("init_normal", lambda dtype, k: init.normal(0.3)(k, (4, 3), dtype), KEY)
row("init_truncated_normal", lambda dtype, k: init.truncated_normal(0.3, lower=-1., upper=0.5)(k, (4, 3), dtype), KEY)
row("init_orthogonal", lambda dtype, k: init.orthogonal(2.0)(k, (4, 3), dtype), KEY)
row("init_orthogonal_axis", lambda dtype, k: init.orthogonal(1.0, 0)(k, (2, 3, 2), dtype), KEY)
row("variance_scaling_geo", lambda dtype, k: init.variance_scaling(
    0.7, "fan_geo_avg", "normal", in_axis=(0, 1), out_axis=3, batch_axis=2)(k, (2, 3, 2, 4), dtype), KEY)
row("variance_scaling_out", lambda dtype, k: init.variance_scaling(
    1.5, "fan_out", "truncated_normal")(k, (3, 2, 4), dtype), KEY)

# ---- Optax: the parameters after each of five steps. ---------------------------------------------

PARAMS = (normal(3, 2), normal(2), normal(5, 3, 2), normal(5, 2))


def training(optimizer):
    def run(dtype, w, b, gw, gb):
        params, out = {"w": w, "b": b}, []
        state = optimizer.init(params)
        for i in range(5):
            updates, state = optimizer.update({"w": gw[i], "b": gb[i]}, state, params)
            params = optax.apply_updates(params, updates)
            out.append(jnp.concatenate([params["w"].ravel(), params["b"]]))
        return jnp.stack(out)
    return run


def trained(name, optimizer, **options):
    row(name, training(optimizer), *PARAMS, **options)


matrices = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)  # noqa: E731
trained("sgd", optax.sgd(0.1))
trained("sgd_momentum", optax.sgd(0.1, momentum=0.9))
trained("sgd_nesterov", optax.sgd(0.1, momentum=0.9, nesterov=True))
trained("sgd_schedule", optax.sgd(optax.cosine_decay_schedule(0.1, 4)), dtypes=("f32",))
trained("adam", optax.adam(0.1))
trained("adam_nesterov", optax.adam(0.1, b1=0.8, b2=0.99, eps=1e-4, nesterov=True))
trained("adam_eps_root", optax.adam(0.1, eps_root=1e-3))
trained("adamw", optax.adamw(0.1))
trained("adamw_mask", optax.adamw(0.1, weight_decay=0.5, mask={"w": True, "b": False}))
trained("adamw_mask_function", optax.adamw(0.1, weight_decay=0.5, mask=matrices))
trained("rmsprop", optax.rmsprop(0.1))
trained("rmsprop_centered", optax.rmsprop(0.1, centered=True, momentum=0.9, nesterov=True, initial_scale=2.0))
trained("rmsprop_corrected", optax.rmsprop(0.1, eps_in_sqrt=False, bias_correction=True, momentum=0.5))
trained("adagrad", optax.adagrad(0.1))
trained("lion", optax.lion(0.1))
trained("lamb", optax.lamb(0.1, weight_decay=0.1))
trained("lamb_eps", optax.chain(optax.scale_by_trust_ratio(min_norm=1.5, trust_coefficient=0.5, eps=0.1),
                                optax.scale(-0.1)))
trained("clip", optax.chain(optax.clip(0.5), optax.sgd(0.1)))
trained("clip_by_global_norm", optax.chain(optax.clip_by_global_norm(2.0), optax.sgd(0.1)))
trained("ema", optax.chain(optax.ema(0.9), optax.scale(-0.1)))
trained("ema_biased", optax.chain(optax.ema(0.9, debias=False), optax.scale(-0.1)))
trained("decayed_by_schedule", optax.chain(optax.add_decayed_weights(optax.linear_schedule(0.5, 0.1, 3)),
                                           optax.sgd(0.1)), dtypes=("f32",))
trained("inverse", optax.chain(optax.identity(), optax.scale_by_learning_rate(0.1, flip_sign=False)))
row("global_norm", lambda dtype, w, b: optax.tree.norm({"w": w, "b": b}), *PARAMS[:2])
row("incremental_update", lambda dtype, w, v: optax.incremental_update([w], [v], 0.3)[0], normal(4), normal(4))

COUNTS = np.arange(0, 15, dtype=np.int32)
SCHEDULES = {
    "constant_schedule": optax.constant_schedule(0.3),
    "linear_schedule": optax.linear_schedule(0.3, 0.05, 7, 3),
    "polynomial_schedule": optax.polynomial_schedule(0.3, 0.05, 2.5, 8),
    "exponential_decay": optax.exponential_decay(0.3, 4, 0.5),
    "exponential_staircase": optax.exponential_decay(0.3, 4, 0.5, 2, staircase=True, end_value=0.1),
    "exponential_growth": optax.exponential_decay(0.3, 4, 1.5, end_value=0.8),
    "cosine_decay_schedule": optax.cosine_decay_schedule(0.3, 10, 0.1, 1.5),
    "warmup_cosine_decay_schedule": optax.warmup_cosine_decay_schedule(0.0, 0.3, 4, 12, 0.03),
    "piecewise_constant_schedule": optax.piecewise_constant_schedule(0.3, {4: 0.5, 9: 0.1}),
    "join_schedules": optax.join_schedules([optax.linear_schedule(0.1, 0.3, 4), optax.constant_schedule(0.2),
                                            optax.exponential_decay(0.3, 2, 0.5)], [5, 8]),
}
for name, schedule in SCHEDULES.items():
    row(name, lambda dtype, count, f=schedule: jnp.broadcast_to(f(count), count.shape), COUNTS, dtypes=("f32",))

LOGITS, LABELS = 3 * normal(4, 5), np.array([0, 4, 2, -1], np.int32)
PROBABILITIES = np.array(nn.softmax(normal(4, 5))).astype(np.float32).astype(np.float64)
row("l2_loss", lambda dtype, x, y: optax.l2_loss(x, y), normal(4), normal(4))
row("l2_loss_errors", lambda dtype, x: optax.l2_loss(x), normal(4))
row("huber_loss", lambda dtype, x, y: optax.huber_loss(x, y, delta=0.7), 2 * normal(8), normal(8))
row("softmax_cross_entropy", lambda dtype, x, y: optax.softmax_cross_entropy(x, y), LOGITS, PROBABILITIES)
row("softmax_cross_entropy_axis", lambda dtype, x, y: optax.softmax_cross_entropy(x, y, axis=0), LOGITS, PROBABILITIES)
row("integer_labels", lambda dtype, x, y: optax.softmax_cross_entropy_with_integer_labels(x, y), LOGITS, LABELS)
row("integer_labels_axis", lambda dtype, x, y: optax.softmax_cross_entropy_with_integer_labels(x, y, axis=0), LOGITS,
    np.array([0, 1, 2, 3, 3], np.int32))
row("sigmoid_binary_cross_entropy", lambda dtype, x, y: optax.sigmoid_binary_cross_entropy(x, y), LOGITS, PROBABILITIES)


# ---- The file. ----------------------------------------------------------------------------------

def written(x):
    x = np.asarray(x)
    return {"dtype": NAMES[str(x.dtype)], "shape": list(x.shape), "hex": x.tobytes().hex()}


def main():
    source = f"jax {jax.__version__}, optax {optax.__version__}, scripts/record_nn.py"
    lines = [json.dumps({"source": source})]
    before = {}
    if sys.argv[1:]:  # Record only the named rows, and keep the others unchanged.
        before = {r["name"]: r for r in map(json.loads, RECORDED.read_text().splitlines()[1:])}
    for name, function, inputs, grads, dtypes in ROWS:
        if name in before and name not in sys.argv[1:]:
            lines.append(json.dumps(before[name]))
            continue
        out = {"name": name, "inputs": [written(x) for x in inputs]}
        for dtype in dtypes:
            with jax.enable_x64(dtype == "f64"):
                wide = jnp.float64 if dtype == "f64" else jnp.float32
                at = [jnp.asarray(x, wide) if x.dtype == np.float64 else jnp.asarray(x) for x in inputs]
                out[dtype] = written(jax.jit(lambda *x: function(wide, *x))(*at))
        floats = [i for i, x in enumerate(inputs) if x.dtype == np.float64]
        if grads and floats and "f64" in dtypes:
            with jax.enable_x64(True):
                slopes = jax.jit(jax.grad(lambda *x: function(jnp.float64, *x).sum(), argnums=floats))
                out["grads"] = [written(g) for g in slopes(*map(jnp.asarray, inputs))]
        lines.append(json.dumps(out))
        print(name, flush=True)
    RECORDED.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
