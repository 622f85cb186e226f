"""A Google Cloud Storage in memory, on 127.0.0.1, that counts requests and fails when asked to.

    python gcs_server.py FOLDER     prints the port, and serves until its standard input ends

gcsfs uses STORAGE_EMULATOR_HOST. TensorFlow has no such variable, but its libcurl uses the proxy
`https_proxy`: the server answers CONNECT itself, with the certificate `host.pem` in the folder. Its
authority `ca.pem` goes to CURL_CA_BUNDLE. `make_certificates` writes both.

`Control` talks to it: POST /control sets the state (`refuse`: all requests get 401; `down`: all
connections are dropped; `drop_after`: the number of uploads until they are dropped; `latency`: the
seconds of an answer; `fail`: the number of requests for content that get 503; `stall`: the number
that wait for ten seconds), GET /control returns the requests so far, as [method, path, bytes sent,
bytes received].
"""

import base64
import datetime
import hashlib
import ipaddress
import json
import re
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET = "bucket"
HOSTS = ("storage.googleapis.com", "www.googleapis.com")


def make_certificates(folder):
    """Makes an authority, and its certificate for the hosts that TensorFlow connects to."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now = datetime.datetime.now(datetime.UTC)

    def certificate(subject, issuer, key, signing_key, *extensions):
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=2))
        )
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, is_critical)
        return builder.sign(signing_key, hashes.SHA256())

    pem = serialization.Encoding.PEM
    authority_key, host_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    is_authority = x509.BasicConstraints(ca=True, path_length=None), True
    authority = certificate("tests", "tests", authority_key, authority_key, is_authority)
    names = [*map(x509.DNSName, HOSTS), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    alternatives = x509.SubjectAlternativeName(names), False
    host = certificate(HOSTS[0], "tests", host_key, authority_key, alternatives)
    (folder / "ca.pem").write_bytes(authority.public_bytes(pem))
    (folder / "host.pem").write_bytes(
        host.public_bytes(pem)
        + host_key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def ask(url, data=None):
    """Returns the response of a local server to a GET, or with data to a POST."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, data, timeout=10) as answer:
        return answer.read()


class Control:
    """A server in another process.

    Args:
      folder: The folder of the certificates.

    Attributes:
      url: Its address.
    """

    def __init__(self, folder):
        make_certificates(Path(folder))
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"
        self._ca = str(Path(folder) / "ca.pem")

    def environment(self, client):
        """The environment variables for a client: "tensorflow" or "gcsfs"."""
        variables = {"https_proxy": self.url, "CURL_CA_BUNDLE": self._ca, "NO_GCE_CHECK": "true"}
        if client == "gcsfs":  # Examples of datasets are still read by TensorFlow.
            variables |= {"EPATH_USE_TF": "0", "STORAGE_EMULATOR_HOST": self.url}
        return variables

    def set(self, **state):
        """Sets the state; omitted values are reset."""
        self._ask(json.dumps(state).encode())

    def requests(self):
        """Returns the requests since the last call."""
        return json.loads(self._ask())

    def _ask(self, data=None):
        return ask(f"{self.url}/control", data)

    def close(self):
        """Ends the server."""
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


class Refused(Exception):
    """An error response: its code and message."""


class Storage:
    """The objects, and the state that `Control` sets."""

    def __init__(self):
        self.objects = {}
        self.uploads = {}
        self.lock = threading.RLock()
        self.generation = 1_700_000_000_000_000
        self.state = {}
        self.requests = []

    def bucket(self, name):
        if name != BUCKET:
            raise Refused(404, "The specified bucket does not exist.")

    def get(self, name):
        if name not in self.objects:
            raise Refused(404, f"No such object: {BUCKET}/{name}")
        return self.objects[name]

    def put(self, name, data, content_type="application/octet-stream"):
        with self.lock:
            self.generation += 1
            written = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
            self.objects[name] = {
                "data": bytes(data),
                "generation": self.generation,
                "written": written.replace("+00:00", "Z"),
                "type": content_type,
                "hash": base64.b64encode(hashlib.md5(bytes(data)).digest()).decode(),
            }
            return self.describe(name)

    def describe(self, name):
        stored = self.get(name)
        data = stored["data"]
        return {
            "kind": "storage#object",
            "id": f"{BUCKET}/{name}/{stored['generation']}",
            "name": name,
            "bucket": BUCKET,
            "generation": str(stored["generation"]),
            "metageneration": "1",
            "contentType": stored["type"],
            "size": str(len(data)),
            "md5Hash": stored["hash"],
            "etag": str(stored["generation"]),
            "timeCreated": stored["written"],
            "updated": stored["written"],
        }

    def list(self, prefix, delimiter, after, limit):
        items, prefixes, last = [], [], ""
        for name in sorted(self.objects):
            if not name.startswith(prefix) or name <= after:
                continue
            head, separator, _ = name[len(prefix) :].partition(delimiter or "\0")
            group = prefix + head + delimiter if delimiter and separator else None
            if group is None or group not in prefixes:
                if len(items) + len(prefixes) == limit:
                    token = base64.b64encode(last.encode()).decode()
                    return {"items": items, "prefixes": prefixes, "nextPageToken": token}
                items += [self.describe(name)] if group is None else []
                prefixes += [group] if group is not None else []
            last = name
        return {"items": items, "prefixes": prefixes}


class Handler(BaseHTTPRequestHandler):
    """Answers direct requests, and those through the proxy."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    base = ""

    def log_message(self, *_):
        pass

    def handle_expect_100(self):
        continues = super().handle_expect_100()
        self.wfile.flush()
        return continues

    def do_CONNECT(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        try:
            secure = self.server.context.wrap_socket(self.connection, server_side=True)
        except OSError:
            self.close_connection = True
            return
        self.connection = self.request = secure
        self.rfile, self.wfile = secure.makefile("rb"), secure.makefile("wb")
        self.base = f"https://{self.path.partition(':')[0]}"
        self.close_connection = False
        while not self.close_connection:
            self.handle_one_request()

    def read_body(self):
        # TensorFlow sends a length and chunks, both.
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            pieces = []
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self):
        body = self.read_body()
        storage = self.server.storage
        url = urlsplit(self.path)
        if url.path == "/control":
            with storage.lock:
                if self.command == "POST":
                    storage.state = json.loads(body)
                    status, headers, data = 200, {}, b""
                else:
                    status, headers, data = 200, {}, json.dumps(storage.requests).encode()
                    storage.requests = []
        else:
            if self.is_dropped(body):
                self.close_connection = True
                return
            time.sleep(storage.state.get("latency", 0))
            query = {k: v[0] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
            try:
                if storage.state.get("refuse"):
                    raise Refused(401, "Anonymous caller does not have access.")
                status, headers, data = self.result(url.path, query, body)
            except Refused as refused:
                code, message = refused.args
                error = {"code": code, "message": message, "errors": [{"message": message}]}
                status, headers, data = self.json({"error": error}, code)
            with storage.lock:
                storage.requests.append([self.command, self.path, len(body), len(data)])
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status not in (204, 308):
            self.send_header("Content-Length", str(len(data)))
        elif status == 308:
            self.send_header("Content-Length", "0")
        self.end_headers()
        if self.command != "HEAD" and status not in (204, 308):
            self.wfile.write(data)
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer

    def is_dropped(self, body):
        storage = self.server.storage
        with storage.lock:
            if storage.state.get("down"):
                return True
            # A request with an upload_id and a body is an upload.
            if "drop_after" in storage.state and "upload_id" in self.path and body:
                storage.state["drop_after"] -= 1
                return storage.state["drop_after"] < 0
        return False

    def is_one_of(self, counter):
        """Counts a request; returns whether it is one of those that must fail."""
        storage = self.server.storage
        with storage.lock:
            storage.state[counter] = storage.state.get(counter, 0) - 1
            return storage.state[counter] >= 0

    def json(self, content, status=200):
        return status, {"Content-Type": "application/json"}, json.dumps(content).encode()

    def result(self, path, query, body):
        storage = self.server.storage
        if match := re.fullmatch(r"/upload/storage/v1/b/([^/]+)/o", path):
            storage.bucket(match[1])
            return self.upload(path, query, body)
        if match := re.fullmatch(r"/storage/v1/b/([^/]+)", path):
            storage.bucket(match[1])
            return self.json({"kind": "storage#bucket", "id": BUCKET, "name": BUCKET})
        if match := re.fullmatch(r"/storage/v1/b/([^/]+)/o/?", path):
            storage.bucket(match[1])
            with storage.lock:
                after = base64.b64decode(query.get("pageToken", "")).decode()
                limit = int(query.get("maxResults", 1000))
                prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
                return self.json(storage.list(prefix, delimiter, after, limit))
        pattern = r"/storage/v1/b/([^/]+)/o/(.+?)/rewriteTo/b/([^/]+)/o/(.+)"
        if match := re.fullmatch(pattern, path):
            storage.bucket(match[3])
            copy = storage.put(unquote(match[4]), storage.get(unquote(match[2]))["data"])
            return self.json({"done": True, "resource": copy})
        if match := re.fullmatch(r"(/download)?/storage/v1/b/([^/]+)/o/(.+)", path):
            storage.bucket(match[2])
            name = unquote(match[3])
            if self.command == "DELETE":
                with storage.lock:
                    storage.get(name)
                    del storage.objects[name]
                return 204, {}, b""
            if match[1] or query.get("alt") == "media":
                return self.content(name, query.get("generation"))
            return self.json(storage.describe(name))
        if (match := re.fullmatch(r"/([^/]+)/(.+)", path)) and self.base:
            storage.bucket(match[1])
            return self.content(unquote(match[2]))
        raise Refused(501, f"{self.command} {path}")

    def content(self, name, generation=None):
        if self.is_one_of("stall"):
            time.sleep(10)
        if self.is_one_of("fail"):
            raise Refused(503, "The server is busy.")
        stored = self.server.storage.get(name)
        if generation not in (None, str(stored["generation"])):
            raise Refused(404, f"No such object: {BUCKET}/{name}#{generation}")
        data, headers = stored["data"], {"x-goog-generation": str(stored["generation"])}
        byte_range = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if byte_range is None:
            return 200, headers, data
        begin, end = int(byte_range[1]), min(int(byte_range[2] or len(data)), len(data) - 1)
        if begin >= len(data):
            raise Refused(416, "Requested range not satisfiable")
        headers["Content-Range"] = f"bytes {begin}-{end}/{len(data)}"
        return 206, headers, data[begin : end + 1]

    def upload(self, path, query, body):
        storage = self.server.storage
        if "upload_id" not in query and query.get("uploadType") == "multipart":
            boundary = re.search('boundary="?([^";]+)', self.headers["Content-Type"])[1].encode()
            description, data = (
                section.partition(b"\r\n\r\n")[2]
                if b"\r\n\r\n" in section
                else section.partition(b"\n\n")[2]
                for section in body.split(b"--" + boundary)[1:3]
            )
            name = json.loads(description)["name"]
            return self.json(storage.put(name, re.sub(rb"\r?\n\Z", b"", data)))
        if "upload_id" not in query:
            with storage.lock:
                storage.generation += 1
                key = str(storage.generation)
                name = query.get("name") or json.loads(body)["name"]
                storage.uploads[key] = name, bytearray()
            base = self.base or f"http://127.0.0.1:{self.server.server_port}"
            location = f"{base}{path}?uploadType=resumable&upload_id={key}"
            return 200, {"Location": location}, b""
        if query["upload_id"] not in storage.uploads:
            raise Refused(404, "no such upload")
        name, data = storage.uploads[query["upload_id"]]
        header = self.headers.get("Content-Range") or ""
        content_range = re.fullmatch(r"bytes (?:\*|(\d+)-(\d+))/(\*|\d+)", header)
        if content_range and content_range[1]:
            data[int(content_range[1]) :] = body
        elif not content_range:
            data[:] = body
        if not content_range or (content_range[3] != "*" and len(data) == int(content_range[3])):
            return self.json(storage.put(name, data))
        return 308, ({"Range": f"bytes=0-{len(data) - 1}"} if data else {}), b""


class Server(ThreadingHTTPServer):
    """The server; it prints nothing if a client disconnects."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass


def main():
    server = Server(("127.0.0.1", 0), Handler)
    server.storage = Storage()
    server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.context.load_cert_chain(Path(sys.argv[1]) / "host.pem")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
