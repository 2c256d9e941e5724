"""The training step of bench/jit.cc in JAX, run by @client.jit or by the plugin. The model is the GPT of
bench/compile_jax.py.

bench-jit runs this script. The arguments are the folder of the package tessera or the plugin's shared object, the
coordinator's address, the number of layers and the number of texts. For each line "WAY STEPS" on standard input the
script takes STEPS steps and prints the last loss, the processor time of all steps, and the time of each step; the times
are in microseconds. WAY is one of kWays in bench/jit.cc: "read" reads the loss of every step, "unread" reads only the
last loss, and "fed" also puts a new batch before every step. For "explain 0" the script prints the plan.
"""
import os
import pathlib
import sys
import time

import compile_jax
import served_jax


class Training:
    """A training. The subclasses set these members: `step` takes a step, and `get` reads the loss that `step` returns.
    `batch` holds the texts on the host, `text` holds them on the devices, and `feed` turns such a `batch` into an
    argument of `step`."""

    def take_steps(self, way, steps):
        """Takes `steps` steps. Returns the last loss and the time of each step in seconds."""
        times = []
        begin = time.perf_counter()
        for _ in range(steps):
            text = self.text if way != "fed" else self.feed(self.batch)
            self.state, loss = self.step(self.state, text, self.key)
            if way != "unread":
                value = self.get(loss)
                times.append(time.perf_counter() - begin)
                begin = time.perf_counter()
        if way == "unread":
            value = self.get(loss)
            times = [(time.perf_counter() - begin) / steps] * steps
        return float(value), times


def texts(batch):
    import numpy as np

    return np.asarray(compile_jax.integers(1000, compile_jax.VOCABULARY, batch, compile_jax.LENGTH + 1))


class ByClient(Training):
    """A training whose steps are traced by JAX on the CPU and run by @client.jit."""

    def __init__(self, folder, address, layers, batch):
        served_jax.prepare()
        sys.path.insert(0, folder)
        import jax
        import tessera
        from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

        client = tessera.connect(address)
        mesh = AbstractMesh((2,), ("data",))
        replicated, by_batch = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
        self.step = client.jit(compile_jax.gpt_step, donate_argnums=(0,),
                               in_shardings=(replicated, by_batch, replicated), out_shardings=(replicated, replicated))
        self.batch = texts(batch)
        tessera_mesh = tessera.Mesh({"data": 2})
        self.state = jax.tree.map(lambda a: client.put(a, tessera_mesh), compile_jax.gpt_state(layers))
        self.text = client.put(self.batch, tessera_mesh, tessera.P("data"))
        self.key = client.put(jax.random.key_data(jax.random.key(1)), tessera_mesh)
        self.get, self.feed = client.get, lambda batch: batch

    def explain(self):
        return self.step.explain(self.state, self.text, self.key)


class ByPlugin(Training):
    """A training by JAX itself, whose devices are the cluster's devices."""

    def __init__(self, plugin, address, layers, batch):
        os.environ.update(JAX_PLATFORMS="tessera", TESSERA_ADDRESS=address, TESSERA_PJRT_PLUGIN=plugin)
        sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "client/python/tessera_jax"))
        import tessera_jax
        tessera_jax.initialize()
        import jax
        import numpy as np
        from jax.sharding import AxisType, NamedSharding, PartitionSpec

        mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
        replicated, by_batch = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
        self.step = jax.jit(compile_jax.gpt_step, donate_argnums=(0,), out_shardings=(replicated, replicated))
        self.batch = texts(batch)
        # The state is copied by way of the host, so that each of Adam's two moments gets a buffer of its own: gpt_state
        # uses one array for both, and both are donated.
        self.state = jax.device_put(jax.tree.map(np.asarray, compile_jax.gpt_state(layers)), replicated)
        self.text = jax.device_put(self.batch, by_batch)
        self.key = jax.device_put(jax.random.PRNGKey(1), replicated)
        self.get, self.feed = float, lambda batch: jax.device_put(batch, by_batch)

    def explain(self):
        import tessera_jax

        return tessera_jax.explain(self.step.lower(self.state, self.text, self.key).compile())


def main():
    tessera_path, address, layers, batch = sys.argv[1:]
    training = (ByPlugin if tessera_path.endswith(".so") else ByClient)(tessera_path, address, int(layers), int(batch))
    print("ready", flush=True)
    for line in sys.stdin:
        way, steps = line.split()
        if way == "explain":
            print(training.explain())
            print("end of plan", flush=True)
            continue
        cpu = time.process_time()
        loss, times = training.take_steps(way, int(steps))
        cpu = time.process_time() - cpu
        print(loss, *(f"{t * 1e6:.2f}" for t in (cpu, *times)), flush=True)


if __name__ == "__main__":
    main()
