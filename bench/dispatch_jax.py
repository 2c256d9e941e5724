"""The one op of bench/dispatch.cc in JAX: jit(x + x), on the CPU and, if there is a plugin, on an embedded Tessera.

`bench-dispatch --jax PYTHON` runs this script. The arguments are the number of elements, and the path of the plugin's
shared object or "".
"""
import os
import pathlib
import sys

import served_jax


def main():
    elements, plugin = sys.argv[1:]
    served_jax.prepare()
    if plugin:
        os.environ.update(JAX_PLATFORMS="cpu,tessera", TESSERA_EMBEDDED="1", TESSERA_PJRT_PLUGIN=plugin)
        sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "client/python/tessera_jax"))
        import tessera_jax
        tessera_jax.initialize()
    import jax
    import numpy as np

    numbers = np.arange(int(elements), dtype=np.float32)
    rows = {"x + x": "cpu"} | ({"x + x, plugin": "tessera"} if plugin else {})
    served_jax.serve({name: (lambda x: x + x, (jax.device_put(numbers, jax.devices(platform)[0]),))
                      for name, platform in rows.items()})


if __name__ == "__main__":
    main()
