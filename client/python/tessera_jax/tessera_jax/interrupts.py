"""Ctrl-C, which cancels the runs that the main thread waits for.

The plugin sees SIGINT beside the program's own handler. It asks this module whether Ctrl-C is to end what the program
does. If the program has a handler of its own, that handler decides alone: it may want to finish the step that is under
way, or call `tessera_jax.cancel()`.
"""

from __future__ import annotations

import atexit
import signal

from tessera_jax import library


@library.INTERRUPT_FILTER
def _ends_what_is_done():
    # Python's own handler raises KeyboardInterrupt.
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def install(plugin: library.Library) -> None:
    """Lets Ctrl-C cancel runs until the process ends."""
    plugin.set_interrupt_filter(_ends_what_is_done)
    atexit.register(plugin.set_interrupt_filter, library.INTERRUPT_FILTER())
