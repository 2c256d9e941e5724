"""A TCP proxy for tests in Python. It can cut connections, refuse them, or hold their data back for
a while.

    with tcp_proxy.Proxy(cluster.address) as proxy:
        tessera.connect(proxy.address)
"""
import queue
import socket
import struct
import threading
import time

CHUNK = 1 << 16


class Proxy:
    def __init__(self, target=None):
        """Makes a proxy. Until a target is given, here or to aim(), connections are reset."""
        self._target = None
        if target is not None:
            self.aim(target)
        self._lock = threading.Lock()
        self._open = set()  # sockets
        self._away = False
        # by way: True for answers, False for requests
        self._open_ways = {True: threading.Event(), False: threading.Event()}
        for way in self._open_ways.values():
            way.set()
        self._cut_at = None  # number of bytes that answers may still carry
        self.delay = 0  # seconds that each byte is under way
        self.passed = 0  # number of bytes in both directions
        self.cuts = 0  # number of connections that cut_answer_after has cut
        self.refused = 0  # number of connections refused since go_away()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        self.let_through()
        self.cut()

    def aim(self, target):
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))

    def cut(self):
        """Resets every connection."""
        with self._lock:
            cut, self._open = self._open, set()
        for each in cut:
            _reset(each)

    def go_away(self):
        """Resets every connection, and refuses new ones until come_back()."""
        with self._lock:
            self._away, self.refused = True, 0
        self.cut()

    def hold(self, requests=True, answers=True):
        """Simulates a partition in one or both directions. Data that is sent arrives after
        let_through()."""
        for way, held in ((False, requests), (True, answers)):
            if held:
                self._open_ways[way].clear()

    def let_through(self):
        for way in self._open_ways.values():
            way.set()

    def come_back(self):
        with self._lock:
            self._away = False

    def cut_answer_after(self, count):
        """Resets the connection that carries the next `count` bytes towards the client."""
        with self._lock:
            self._cut_at = count

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the proxy ends
                return
            try:
                with self._lock:
                    away = self._away
                    self.refused += away
                    target = self._target
                server = None if away or not target else socket.create_connection(target, 5)
            except OSError:
                server = None
            if server is None:
                _reset(client)
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                each.settimeout(None)
            with self._lock:
                self._open |= {client, server}
            for ends in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source, sink, answers):
        line = queue.SimpleQueue()  # (time of arrival, data)
        threading.Thread(target=self._deliver, args=(line, sink, answers), daemon=True).start()
        try:
            while data := source.recv(CHUNK):
                with self._lock:
                    struck = answers and self._cut_at is not None and len(data) >= self._cut_at
                    if struck:
                        data, self._cut_at = data[:self._cut_at], None
                        self.cuts += 1
                    elif answers and self._cut_at is not None:
                        self._cut_at -= len(data)
                line.put((time.monotonic() + self.delay, data))
                if struck:
                    break
        except OSError:  # the connection was cut
            pass
        line.put((time.monotonic() + self.delay, None))
        with self._lock:
            self._open.discard(source)

    def _deliver(self, line, sink, answers):
        pause = threading.Event()
        while True:
            due, data = line.get()
            pause.wait(max(0, due - time.monotonic()))
            self._open_ways[answers].wait()
            if data is None:
                break
            try:
                sink.sendall(data)
                with self._lock:
                    self.passed += len(data)
            except OSError:  # the connection was cut
                break
        with self._lock:
            self._open.discard(sink)
        _reset(sink)


def _reset(each):
    try:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    each.close()
