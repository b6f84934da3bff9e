"""A PostgreSQL of the tests' own on a free loopback port, which can be stopped and started again."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path

from waiting import until

# Debian keeps each version's programs in a folder of its own.
PROGRAMS = Path("/usr/lib/postgresql")
USER = "caretaker"


def program(name):
    found = sorted(PROGRAMS.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return str(found[-1]) if found else name


class Server:
    """Runs from its making until `close`."""

    def __init__(self, **environment):
        self.folder = Path(tempfile.mkdtemp(prefix="postgres"))
        self.folder.chmod(0o777)
        self.environment = {**os.environ, **environment}
        data = ["-D", "data", "-U", USER, "-A", "trust", "--no-sync"]
        subprocess.run(self._command("initdb", *data), cwd=self.folder, check=True, capture_output=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    def _command(self, name, *args):
        """PostgreSQL does not run as root; and it ends with the tests, however they end."""
        drop = ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"] * (os.getuid() == 0)
        return ["setpriv", "--pdeathsig", "KILL", *drop, program(name), *args]

    def start(self):
        """Until it answers. What a killed one left may have to die first."""
        settings = ["fsync=off", "max_connections=200", "listen_addresses=127.0.0.1"]
        options = [word for setting in settings for word in ("-c", setting)]
        where = ["-D", "data", "-k", str(self.folder), "-p", str(self.port)]

        def answers():
            if not self.runs():
                with open(self.folder / "log", "ab") as log:
                    self.process = subprocess.Popen(
                        self._command("postgres", *where, *options),
                        cwd=self.folder,
                        env=self.environment,
                        stdout=log,
                        stderr=log,
                    )
            ask = [program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
            return subprocess.run(ask).returncode == 0

        until(answers, lambda: f"it does not start: {self.said()}")

    def runs(self):
        return hasattr(self, "process") and self.process.poll() is None

    def stop(self, how=signal.SIGINT):
        """SIGINT: sends everybody away. SIGKILL: as when the machine dies."""
        self.process.send_signal(how)
        self.process.wait(timeout=60)

    def close(self):
        if self.runs():
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def said(self):
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def database(self):
        """A fresh database."""
        name = f"t{uuid.uuid4().hex}"
        Database(self.port, "postgres").run(f"CREATE DATABASE {name}")
        return Database(self.port, name)


class Database:
    """One database of the server, for its tests."""

    def __init__(self, port, name):
        self.port, self.name = port, name
        self.url = self.at(port)

    def at(self, port, user=USER):
        """Its address through another port."""
        return f"postgres://{user}@127.0.0.1:{port}/{self.name}"

    def run(self, sql):
        """What `sql` gives, as text."""
        ask = [program("psql"), "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", sql]
        done = subprocess.run(ask, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{sql}: {done.stderr}"
        return done.stdout

    def rows(self, sql):
        """The rows of a query, each a dict."""
        return json.loads(self.run(f"SELECT coalesce(json_agg(r), '[]') FROM ({sql}) AS r"))

    def value(self, sql):
        """The one value of a query."""
        [row] = self.rows(sql)
        [value] = row.values()
        return value

    def jobs(self, where="true"):
        return self.rows(f"SELECT * FROM caretaker_job WHERE {where} ORDER BY id")
