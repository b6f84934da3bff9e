"""A proxy before an object store that answers some requests with an error of its own."""

import http.client
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

ANSWER = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>{code}</Code><Message>on purpose</Message></Error>"""
CODES = {
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    429: "TooManyRequests",
    500: "InternalError",
    503: "SlowDown",
}
HOP = {"connection", "transfer-encoding", "content-length", "server", "date"}


class Faulty:
    """Passes everything on to `url`, but for requests that match a fault."""

    def __init__(self, url):
        self.target, self.faults, self.seen = urlsplit(url).netloc, [], []
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def fault(self, method, pattern, status, times=1, before=lambda: None, lost=False):
        """Answers `status` so many times; if `lost`, after the request was carried out anyway.
        With status None `before` is called and the request is passed on."""
        self.faults.append([method, re.compile(pattern), status, times, before, lost])

    def settings(self):
        return {"AWS_ENDPOINT": self.url, "AWS_ENDPOINT_URL": self.url}

    def requests(self, method, pattern):
        """Statuses of the requests so far that match, in order."""
        return [status for m, path, status in self.seen if m == method and re.search(pattern, path)]

    def _due(self, method, path):
        with self.lock:
            for fault in self.faults:
                if fault[0] == method and fault[3] > 0 and fault[1].search(path):
                    fault[3] -= 1
                    return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy = None

    def _answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        fault = self.proxy._due(self.command, self.path)
        if fault:
            fault[4]()
            if fault[5]:
                self._passed_on(body)
        if fault and fault[2]:
            status, headers, answer = fault[2], {}, ANSWER.format(code=CODES[fault[2]]).encode()
        else:
            status, headers, answer = self._passed_on(body)
        self.proxy.seen.append((self.command, self.path, status))
        self.send_response(status)
        length = headers.get("content-length") if self.command == "HEAD" else None
        for name, value in headers.items():
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.send_header("content-length", length or str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    def _passed_on(self, body):
        to = http.client.HTTPConnection(self.proxy.target, timeout=60)
        to.request(self.command, self.path, body, dict(self.headers))
        answer = to.getresponse()
        read = answer.read()
        to.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, read

    def log_message(self, *_):
        pass

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer
