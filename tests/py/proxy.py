"""A proxy before a server that can be cut: connections stay open, and nothing comes through any more."""

import selectors
import socket
import threading


class Proxy:
    """Passes bytes between its own port and `port`, but between `cut` and `mend`."""

    def __init__(self, port):
        self.target = ("127.0.0.1", port)
        self.is_cut, self.before = False, None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def cut(self, before=None):
        """Swallows everything from now on, or from the next message to the server that has `before` in it."""
        self.before = before
        self.is_cut = before is None

    def mend(self):
        """New connections come through. On those that lost something nothing is ever heard again."""
        self.is_cut, self.before = False, None

    def _listen(self):
        while True:
            try:
                here, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(here,), daemon=True).start()

    def _pass(self, here):
        try:
            there = socket.create_connection(self.target)
        except OSError:
            return here.close()
        other, whole = {here: there, there: here}, True
        with selectors.DefaultSelector() as selector:
            for end in other:
                selector.register(end, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    data = _read(key.fileobj)
                    if self.before and key.fileobj is here and self.before in data:
                        self.cut()
                    whole = whole and not self.is_cut
                    if not data:
                        selector.unregister(key.fileobj)
                    if whole and not (data and _sent(other[key.fileobj], data)):
                        return here.close(), there.close()


def _read(end):
    try:
        return end.recv(1 << 16)
    except OSError:
        return b""


def _sent(end, data):
    try:
        end.sendall(data)
        return True
    except OSError:
        return False
