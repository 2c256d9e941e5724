"""The states of devices, as attributes of JAX's devices.

JAX asks a plugin for the attributes of a device once. The state changes, so it is a property of JAX's class, which asks
the plugin each time. The class is that of all devices; those of other platforms have no such attributes.
"""

from __future__ import annotations

from tessera_jax import library


def install(plugin: library.Library, platform: str) -> None:
    """Adds `state` and `why` to JAX's devices of `platform`, and a state other than "ready" to their `repr`."""
    from jax._src.lib import xla_client

    device_class = xla_client.Device
    plain_repr = device_class.__repr__

    def look(device, name):
        if device.platform != platform:
            raise AttributeError(f"'{type(device).__name__}' object has no attribute '{name}'")
        return plugin.device_state(device.id)

    def describe(device):
        text = plain_repr(device)
        if device.platform != platform:
            return text
        state, why = plugin.device_state(device.id)
        return text if state == "ready" else f"{text[:-1]}, {state}: {why})"

    device_class.state = property(lambda device: look(device, "state")[0],
                                  doc="ready, cordoned, unresponsive, away, lost or unknown (docs/jax.md)")
    device_class.why = property(lambda device: look(device, "why")[1],
                                doc="the reason of a state other than ready, else an empty text")
    device_class.__repr__ = describe
