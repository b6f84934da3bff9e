"""`caretaker serve` in the background, seen through its log and its metrics."""

import json
import re
import signal
import subprocess
import threading
import time
import urllib.request

from conftest import command, environment

MINUTE = 60
# Metrics are asked for, nothing tells of them.
POLL = 0.05
# Series by their grammar: a name, labels with three escapes, a number.
LABEL = r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"'
LINE = re.compile(rf"([a-zA-Z_:][\w:]*)(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def series(text):
    """Every series of a Prometheus text, (name, labels) to value. Nothing else may be in it."""
    found = {}
    for line in filter(lambda line: line and not line.startswith("#"), text.split("\n")):
        parsed = LINE.fullmatch(line)
        assert parsed, f"not a series: {line}"
        name, labels = parsed[1], re.findall(LABEL, parsed[2] or "")
        plain = {
            key: re.sub(r'\\[\\"n]', lambda escape: ESCAPES[escape[0]], value)
            for key, value in labels
        }
        key = (name, frozenset(plain.items()))
        assert key not in found, f"twice: {line}"
        found[key] = float(parsed[parsed.re.groups])
    return found


class Serving:
    """A server of `root`, with a tick and a walk each second."""

    def __init__(self, root, **settings):
        self.args = command("serve", root, "--listen", "127.0.0.1:0", "--log-format", "json")
        quick = {
            "AGENT_TICK_SECS": "1",
            "WAL_COMPACTION_INTERVAL_SECS": "1",
            "TOKIO_WORKER_THREADS": "4",
        }
        self.settings = environment(**quick | settings)
        self.said = []

    def __enter__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(self.args, env=self.settings, text=True, **pipes)
        for line in self.process.stdout:
            self.said.append(line)
            if "answering HTTP" in line:
                self.url = f"http://{json.loads(line)['address']}"
                break
        self.listener = threading.Thread(target=lambda: self.said.extend(self.process.stdout))
        self.listener.start()
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=MINUTE)
        self.listener.join()

    def ask(self, path, method="GET"):
        request = urllib.request.Request(self.url + path, method=method)
        with urllib.request.urlopen(request, timeout=MINUTE) as answer:
            return answer.read().decode()

    def metrics(self):
        return series(self.ask("/metrics"))

    def value(self, name, **labels):
        return self.metrics().get((name, frozenset(labels.items())))

    def until(self, done, what, patience=MINUTE):
        """Asks again and again until `done(self)`."""
        end = time.monotonic() + patience
        while not done(self):
            time.sleep(POLL)
            assert (
                time.monotonic() < end and self.process.poll() is None
            ), f"{what}: {''.join(self.said[-20:])}"

    def until_value(self, name, wanted, **labels):
        self.until(
            lambda s: s.value(name, **labels) == wanted, f"{name} {labels} is never {wanted}"
        )
