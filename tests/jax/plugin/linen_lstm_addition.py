"""Flax linen: the sequence-to-sequence example. LSTMs read "12+34" and write "46", letter by letter."""
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

ALPHABET = "0123456789+= "
QUESTION, ANSWER, HIDDEN = 5, 4, 48


def encode(text, length):
    return [ALPHABET.index(c) for c in text.ljust(length)]


def make_batch(rng, size):
    pairs = rng.integers(0, 100, (size, 2))
    questions = [f"{a}+{b}" for a, b in pairs]
    lengths = np.array([len(q) for q in questions], np.int32)
    answers = np.array([encode(f"={a + b}", ANSWER + 1) for a, b in pairs], np.int32)
    return np.array([encode(q, QUESTION) for q in questions], np.int32), lengths, answers


class Seq2Seq(nn.Module):
    @nn.compact
    def __call__(self, questions, lengths, decoder_inputs):
        carry, _ = nn.RNN(nn.LSTMCell(HIDDEN), return_carry=True, name="encoder")(
            jax.nn.one_hot(questions, len(ALPHABET)), seq_lengths=lengths)
        hidden = nn.RNN(nn.OptimizedLSTMCell(HIDDEN), name="decoder")(
            jax.nn.one_hot(decoder_inputs, len(ALPHABET)), initial_carry=carry)
        return nn.Dense(len(ALPHABET))(hidden)


MODEL = Seq2Seq()
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(5e-3))


@jax.jit
def train_step(params, opt_state, questions, lengths, answers):
    def loss_fn(params):
        logits = MODEL.apply(params, questions, lengths, answers[:, :-1])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, answers[:, 1:])
        return losses.mean(), jnp.mean(logits.argmax(-1) == answers[:, 1:])

    (loss, accuracy), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
    updates, opt_state = OPTIMIZER.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss, accuracy


@jax.jit
def greedy(params, questions, lengths):
    def step(decoded, t):
        logits = MODEL.apply(params, questions, lengths, decoded[:, :-1])
        letters = jax.lax.dynamic_index_in_dim(logits, t, axis=1, keepdims=False).argmax(-1)
        return decoded.at[:, t + 1].set(letters), None

    start = jnp.full((questions.shape[0], ANSWER + 1), ALPHABET.index("="))
    return jax.lax.scan(step, start, jnp.arange(ANSWER))[0][:, 1:]


def main():
    rng = np.random.default_rng(0)
    questions, lengths, answers = make_batch(rng, 64)
    params = MODEL.init(jax.random.key(0), questions, lengths, answers[:, :-1])
    opt_state = OPTIMIZER.init(params)
    losses = []
    for step in range(80):
        params, opt_state, loss, accuracy = train_step(params, opt_state, *make_batch(rng, 64))
        losses.append(float(loss))
        if step % 20 == 19:
            print(f"step {step + 1}: loss {loss:.3f}, letters that are right {accuracy:.3f}")
    questions, lengths, answers = make_batch(rng, 8)
    written = np.asarray(greedy(params, questions, lengths))
    for q, w in zip(questions[:3], written):
        print("".join(ALPHABET[i] for i in q), "=", "".join(ALPHABET[i] for i in w))
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.array(losses, np.float32), written=written,
                 kernel=params["params"]["Dense_0"]["kernel"])


if __name__ == "__main__":
    main()
