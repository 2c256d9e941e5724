"""Models that are written with JAX alone: their outputs, and steps of their training."""
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from registry import f32, key, normal, program, s32, weights


def descend(loss, params, rate=0.1):
    value, grads = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - rate * g, params, grads)


def rms_norm(x, g):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g


def layer_norm(x, g, b):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


def heads_of(x, n):
    return x.reshape(*x.shape[:-1], n, -1)


def attention(q, k, v, mask=None):
    scores = jnp.einsum("...thd,...shd->...hts", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = jnp.where(mask, scores, -1e9)
    return jnp.einsum("...hts,...shd->...thd", jax.nn.softmax(scores), v)


# ---- Layers and networks. ------------------------------------------------------------------------
MLP = [(weights(8, 16), normal(16)), (weights(16, 16), normal(16)), (weights(16, 4), normal(4))]


def mlp(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def cross_entropy(logits, labels):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1))


@program(MLP, f32(16, 8), s32(16, low=0, high=4))
def mlp_step(params, x, y):
    return descend(lambda p: cross_entropy(mlp(p, x), y), params)


@program(MLP, f32(16, 8), s32(16, low=0, high=4))
def mlp_epochs(params, x, y):
    step = lambda p, _: descend(lambda p: cross_entropy(mlp(p, x), y), p)[::-1]
    return lax.scan(step, params, length=5)


@program({"c": weights(3, 3, 1, 4), "w": weights(64, 10)}, f32(2, 8, 8, 1), s32(2, low=0, high=10))
def cnn_step(params, x, y):
    def loss(p):
        h = lax.conv_general_dilated(x, p["c"], (1, 1), "SAME",
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"))
        window = (1, 2, 2, 1)
        h = lax.reduce_window(jax.nn.relu(h), -jnp.inf, lax.max, window, window, "VALID")
        return cross_entropy(h.reshape(2, -1) @ p["w"], y)
    return descend(loss, params)


@program(weights(4, 8), weights(8, 8), normal(8), f32(3, 6, 4))
def rnn(wx, wh, b, x):
    step = lambda h, x: (jnp.tanh(x @ wx + h @ wh + b),) * 2
    return lax.scan(step, jnp.zeros((3, 8)), x.swapaxes(0, 1))


@program({"w": weights(12, 32), "b": normal(32), "o": weights(8, 1)}, f32(3, 6, 4), f32(3))
def lstm_step(params, x, y):
    def loss(p):
        def cell(state, x):
            h, c = state
            i, f, g, o = jnp.split(jnp.concatenate([x, h], 1) @ p["w"] + p["b"], 4, axis=1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None
        zeros = jnp.zeros((3, 8))
        (h, _), _ = lax.scan(cell, (zeros, zeros), x.swapaxes(0, 1))
        return jnp.mean(((h @ p["o"])[:, 0] - y) ** 2)
    return descend(loss, params)


@program(weights(4, 24), weights(8, 24), f32(3, 6, 4), s32(3, low=1, high=6))
def gru_of_lengths(wx, wh, x, lengths):
    def cell(h, inputs):
        x, t = inputs
        (zx, rx, nx), (zh, rh, nh) = jnp.split(x @ wx, 3, 1), jnp.split(h @ wh, 3, 1)
        z = jax.nn.sigmoid(zx + zh)
        new = (1 - z) * jnp.tanh(nx + jax.nn.sigmoid(rx + rh) * nh) + z * h
        h = jnp.where((t < lengths)[:, None], new, h)
        return h, h
    return lax.scan(cell, jnp.zeros((3, 8)), (x.swapaxes(0, 1), jnp.arange(6)))


@program(f32(2, 6, 2, 4), f32(2, 6, 2, 4), f32(2, 6, 2, 4))
def causal_attention(q, k, v):
    return attention(q, k, v, jnp.tril(jnp.ones((6, 6), bool)))


@program(f32(2, 8, 2, 4), f32(2, 8, 2, 4), f32(2, 8, 2, 4))
def sliding_window_attention(q, k, v):
    i, j = jnp.arange(8)[:, None], jnp.arange(8)
    return attention(q, k, v, (i >= j) & (i - j < 3))


@program(f32(2, 8, 4, 4), f32(2, 8, 2, 4), f32(2, 8, 2, 4))
def grouped_query_attention(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


@program(f32(8, 4), f32(8, 4), f32(8, 4))
def flash_attention(q, k, v):
    """Processes the keys block by block, and corrects the sums when larger scores come."""
    def block(carry, kv):
        out, total, largest = carry
        k, v = kv
        s = q @ k.T
        new = jnp.maximum(largest, s.max(1))
        p, scale = jnp.exp(s - new[:, None]), jnp.exp(largest - new)
        return (out * scale[:, None] + p @ v, total * scale + p.sum(1), new), None
    start = (jnp.zeros((8, 4)), jnp.zeros(8), jnp.full(8, -jnp.inf))
    (out, total, _), _ = lax.scan(block, start, (k.reshape(4, 2, 4), v.reshape(4, 2, 4)))
    return out / total[:, None], attention(q[:, None], k[:, None], v[:, None])[:, 0]


@program(f32(2, 6, 2, 8), s32(low=0, high=9))
def rotary_embedding(x, offset):
    angles = (jnp.arange(6) + offset)[:, None] * 10_000.0 ** (-jnp.arange(4) / 4)
    a, b = jnp.split(x, 2, axis=-1)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


@program(f32(4, 6, 8), f32(8), f32(8))
def norms_of_layers(x, g, b):
    groups = x.reshape(4, 6, 2, 4)
    grouped = (groups - groups.mean((1, 3), keepdims=True)) * lax.rsqrt(
        groups.var((1, 3), keepdims=True) + 1e-5)
    batched = jax.nn.standardize(x, axis=(0, 1))
    return layer_norm(x, g, b), rms_norm(x, g), grouped.reshape(x.shape), batched * g + b


BLOCK = {"qkv": weights(16, 48), "out": weights(16, 16), "up": weights(16, 32),
         "down": weights(32, 16), "g1": normal(16), "g2": normal(16)}


def transformer_block(p, x, mask=None):
    q, k, v = (heads_of(a, 2) for a in jnp.split(rms_norm(x, p["g1"]) @ p["qkv"], 3, -1))
    x = x + attention(q, k, v, mask).reshape(x.shape) @ p["out"]
    return x + jax.nn.gelu(rms_norm(x, p["g2"]) @ p["up"]) @ p["down"]


GPT = {"wte": normal(20, 16, scale=0.5), "wpe": normal(8, 16, scale=0.1), "g": normal(16),
       "blocks": [BLOCK, BLOCK]}


def gpt(params, tokens):
    t = tokens.shape[-1]
    x = params["wte"][tokens] + params["wpe"][:t]
    for p in params["blocks"]:
        x = transformer_block(p, x, jnp.tril(jnp.ones((t, t), bool)))
    return rms_norm(x, params["g"]) @ params["wte"].T


def gpt_loss(params, tokens):
    logits = gpt(params, tokens[:, :-1])
    return cross_entropy(logits.reshape(-1, 20), tokens[:, 1:].reshape(-1))


@program(BLOCK, f32(2, 6, 16))
def transformer_block_gradient(p, x):
    return jax.grad(lambda p: jnp.mean(transformer_block(p, x) ** 2))(p)


@program(GPT, s32(4, 9, low=0, high=20))
def gpt_step(params, tokens):
    return descend(partial(gpt_loss, tokens=tokens), params)


@program(GPT, s32(4, 9, low=0, high=20))
def gpt_step_scanned_and_rematerialised(params, tokens):
    blocks = jax.tree.map(lambda *p: jnp.stack(p), *params["blocks"])

    def loss(blocks):
        x = params["wte"][tokens[:, :-1]]
        body = jax.checkpoint(lambda x, p: (transformer_block(p, x), None))
        x, _ = lax.scan(body, x, blocks)
        return cross_entropy((x @ params["wte"].T).reshape(-1, 20), tokens[:, 1:].reshape(-1))
    return descend(loss, blocks)


# The gradients are rounded to bf16, so two implementations may differ by one unit in the last
# place.
@program(GPT, s32(4, 9, low=0, high=20), rtol=2**-7)
def gpt_step_in_bf16(params, tokens):
    half = lambda p: jax.tree.map(lambda a: a.astype(jnp.bfloat16), p)
    return descend(lambda p: gpt_loss(half(p), tokens).astype(jnp.float32), params)


@program(f32(2, 8, 8, 3), weights(48, 16), BLOCK, weights(16, 5))
def vision_transformer(x, embed, block, head):
    patches = x.reshape(2, 2, 4, 2, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(2, 4, 48)
    return transformer_block(block, patches @ embed).mean(1) @ head


@program(GPT, s32(1, 3, low=0, high=20))
def decoding_with_a_cache(params, prompt):
    """Decodes greedily, one token after another, with the keys and values of the earlier tokens in
    a cache."""
    def layer(p, x, cache, t):
        q, k, v = jnp.split(rms_norm(x, p["g1"]) @ p["qkv"], 3, -1)
        cache = tuple(lax.dynamic_update_slice(c, n[None], (t, 0)) for c, n in zip(cache, (k, v)))
        keys, values = (heads_of(c, 2) for c in cache)
        mask = (jnp.arange(8) <= t)[None, None]
        x = x + attention(heads_of(q, 2)[None], keys, values, mask).reshape(-1) @ p["out"]
        return x + jax.nn.gelu(rms_norm(x, p["g2"]) @ p["up"]) @ p["down"], cache

    def step(state, t):
        tokens, caches = state
        x = params["wte"][tokens[t]] + params["wpe"][t]
        new = []
        for p, cache in zip(params["blocks"], caches):
            x, cache = layer(p, x, cache, t)
            new.append(cache)
        token = jnp.argmax(rms_norm(x, params["g"]) @ params["wte"].T).astype(jnp.int32)
        return (jnp.where(t + 1 < 3, tokens, tokens.at[t + 1].set(token)), new), token
    tokens = jnp.zeros(9, jnp.int32).at[:3].set(prompt[0])
    caches = [(jnp.zeros((8, 16)), jnp.zeros((8, 16)))] * 2
    return lax.scan(step, (tokens, caches), jnp.arange(8))[0][0]


@program(GPT, s32(3, low=0, high=20))
def beam_search(params, first):
    def step(state, t):
        beams, scores = state
        logits = jax.nn.log_softmax(gpt(params, beams)[jnp.arange(3), t])
        scores, best = lax.top_k((scores[:, None] + logits).reshape(-1), 3)
        return (beams[best // 20].at[:, t + 1].set(best % 20), scores), None
    beams = jnp.zeros((3, 6), jnp.int32).at[:, 0].set(first)
    return lax.scan(step, (beams, jnp.zeros(3)), jnp.arange(5))[0]


@program(GPT, s32(1, 4, low=0, high=20), key(9))
def sampled_decoding(params, tokens, k):
    def step(tokens, inputs):
        t, k = inputs
        token = jax.random.categorical(k, gpt(params, tokens)[0, t] / 0.8)
        return tokens.at[0, t + 1].set(token), token
    tokens = jnp.zeros((1, 8), jnp.int32).at[:, :4].set(tokens)
    return lax.scan(step, tokens, (jnp.arange(3, 7), jax.random.split(k, 4)))


@program(f32(12, 8), weights(8, 4), weights(4, 8, 16), weights(4, 16, 8))
def mixture_of_experts(x, gate, up, down):
    """Sends each token to two experts, with room for six tokens per expert."""
    weight, chosen = lax.top_k(jax.nn.softmax(x @ gate), 2)
    places = jax.nn.one_hot(chosen, 4)
    position = jnp.cumsum(places.reshape(-1, 4), 0).reshape(places.shape) * places - 1
    dispatch = jax.nn.one_hot(position, 6) * places[..., None]
    routed = jnp.einsum("tkec,td->ecd", dispatch, x)
    done = jnp.einsum("ech,ehd->ecd", jax.nn.silu(jnp.einsum("ecd,edh->ech", routed, up)), down)
    return jnp.einsum("tkec,tk,ecd->td", dispatch, weight, done), chosen


@program(MLP, key(2), f32(8, 8))
def dropout_step(params, k, x):
    def loss(p):
        keep = jax.random.bernoulli(k, 0.8, x.shape)
        return jnp.mean(mlp(p, jnp.where(keep, x / 0.8, 0)) ** 2)
    return descend(loss, params)


@program(weights(20, 8), s32(16, low=0, high=20), s32(16, low=0, high=20),
         s32(16, 3, low=0, high=20))
def word_vectors_step(table, centre, context, negative):
    def loss(table):
        c = table[centre]
        good = jnp.sum(c * table[context], -1)
        bad = jnp.einsum("bd,bnd->bn", c, table[negative])
        return -jnp.mean(jax.nn.log_sigmoid(good) + jax.nn.log_sigmoid(-bad).sum(1))
    return descend(loss, table)


# ---- Generative models. --------------------------------------------------------------------------
@program({"e": weights(8, 8), "d": weights(4, 8)}, f32(6, 8), key(1))
def vae_step(params, x, k):
    def loss(p):
        mean, log_var = jnp.split(x @ p["e"], 2, 1)
        z = mean + jnp.exp(log_var / 2) * jax.random.normal(k, mean.shape)
        kl = -0.5 * jnp.sum(1 + log_var - mean**2 - jnp.exp(log_var), 1)
        return jnp.mean(jnp.sum((jnp.tanh(z @ p["d"]) - x) ** 2, 1) + kl)
    return descend(loss, params, 0.01)


@program(weights(4, 8), weights(8, 1), f32(6, 8), f32(6, 4))
def gan_step(g, d, real, noise):
    score = lambda d, x: (jnp.tanh(x) @ d)[:, 0]
    def of_critic(d):
        return jnp.mean(jax.nn.softplus(score(d, noise @ g)) + jax.nn.softplus(-score(d, real)))
    value, d = descend(of_critic, d)
    return value, d, descend(lambda g: jnp.mean(jax.nn.softplus(-score(d, noise @ g))), g)


@program([(weights(9, 16), normal(16)), (weights(16, 8), normal(8))], f32(6, 8), key(5))
def diffusion_step(params, x, k):
    alphas = jnp.cumprod(1 - jnp.linspace(1e-3, 0.2, 10))
    kt, kn = jax.random.split(k)
    t, noise = jax.random.randint(kt, (6,), 0, 10), jax.random.normal(kn, x.shape)
    a = alphas[t][:, None]
    noisy = jnp.sqrt(a) * x + jnp.sqrt(1 - a) * noise
    def loss(p):
        guess = mlp(p, jnp.concatenate([noisy, t[:, None] / 10], 1))
        return jnp.mean((guess - noise) ** 2)
    return descend(loss, params)


@program([(weights(2, 8), weights(8, 4)), (weights(2, 8), weights(8, 4))], f32(6, 4))
def normalising_flow_step(params, x):
    def loss(params):
        y, log_det = x, 0.0
        for w1, w2 in params:
            fixed, moved = jnp.split(y, 2, 1)
            shift, scale = jnp.split(jnp.tanh(fixed @ w1) @ w2, 2, 1)
            scale = jnp.tanh(scale)
            y = jnp.concatenate([moved * jnp.exp(scale) + shift, fixed], 1)
            log_det += scale.sum(1)
        return jnp.mean(0.5 * (y**2).sum(1) - log_det)
    return descend(loss, params)


@program(weights(6, 8), weights(8, 3), f32(7, 6), s32(12, low=0, high=7), s32(12, low=0, high=7))
def graph_network_step(w1, w2, nodes, source, target):
    def loss(ws):
        h = nodes
        degree = jax.ops.segment_sum(jnp.ones(12), target, 7) + 1
        for w in ws:
            h = h @ w
            h = jax.nn.relu((jax.ops.segment_sum(h[source], target, 7) + h) / degree[:, None])
        return jnp.mean(h**2)
    return descend(loss, (w1, w2))
