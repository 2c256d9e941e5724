"""The step of bench/jit.cc in JAX, by @client.jit: the GPT of bench/compile_jax.py.

Run by bench-jit with the folder of the package tessera, the coordinator's address, the number of layers and that of
texts. For each line "WAY STEPS" on standard input so many steps are taken, and the last loss, the processor's time and
the time of each step in microseconds are printed. "explain 0" prints the plan.
"""
import sys
import time

import compile_jax
import served_jax


class Training:

    def __init__(self, client, layers, batch):
        import jax
        import numpy as np
        import tessera
        from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

        self.client = client
        mesh = AbstractMesh((2,), ("data",))
        whole, rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
        self.step = client.jit(compile_jax.gpt_step, donate_argnums=(0,), in_shardings=(whole, rows, whole),
                               out_shardings=(whole, whole))
        self.batch = np.asarray(compile_jax.integers(1000, compile_jax.VOCABULARY, batch, compile_jax.LENGTH + 1))
        on = tessera.Mesh({"data": 2})
        self.state = jax.tree.map(lambda a: client.put(a, on), compile_jax.gpt_state(layers))
        self.text = client.put(self.batch, on, tessera.P("data"))
        self.key = client.put(jax.random.key_data(jax.random.key(1)), on)

    def take(self, way, steps):
        """The last loss, and the seconds of each step."""
        times = []
        begin = time.perf_counter()
        for _ in range(steps):
            self.state, loss = self.step(self.state, self.batch if way == "fed" else self.text, self.key)
            if way != "unread":
                value = self.client.get(loss)
                times.append(time.perf_counter() - begin)
                begin = time.perf_counter()
        if way == "unread":
            value = self.client.get(loss)
            times = [(time.perf_counter() - begin) / steps] * steps
        return float(value), times


def main():
    folder, address, layers, batch = sys.argv[1:]
    served_jax.prepare()
    sys.path.insert(0, folder)
    import tessera

    with tessera.connect(address) as client:
        training = Training(client, int(layers), int(batch))
        print("ready", flush=True)
        for line in sys.stdin:
            way, steps = line.split()
            if way == "explain":
                print(training.step.explain(training.state, training.text, training.key))
                print("end of plan", flush=True)
                continue
            cpu = time.process_time()
            loss, times = training.take(way, int(steps))
            cpu = time.process_time() - cpu
            print(loss, *(f"{t * 1e6:.2f}" for t in (cpu, *times)), flush=True)


if __name__ == "__main__":
    main()
