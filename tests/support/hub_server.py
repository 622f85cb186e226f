"""A Hub of Hugging Face on this machine: one dataset, `owner/name`, which is a folder.

    python hub_server.py FOLDER

It prints the address, and then what it is asked.
"""

import hashlib
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

COMMIT = "0" * 40


class Hub(BaseHTTPRequestHandler):
    """Answers what huggingface_hub asks before it reads a file, and gives parts of files."""

    protocol_version = "HTTP/1.1"
    root = Path()

    def described(self, file):
        name = str(file.relative_to(self.root))
        oid = hashlib.sha1(str(file.stat().st_mtime_ns).encode()).hexdigest()
        if file.is_dir():
            return {"type": "directory", "oid": oid, "size": 0, "path": name}
        return {"type": "file", "oid": oid, "size": file.stat().st_size, "path": name}

    def reply(self, body, status=200, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        path = unquote(self.path.partition("?")[0])
        print(path, self.headers.get("range"), flush=True)
        if found := re.fullmatch(rf"/datasets/owner/name/resolve/{COMMIT}/(.*)", path):
            data = (self.root / found[1]).read_bytes()
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range") or "")
            self.reply(data[int(asked[1]) : int(asked[2]) + 1], 206)
        elif re.fullmatch(r"/api/datasets/owner/name(/revision/main)?", path):
            self.reply({"id": "owner/name", "sha": COMMIT, "private": False})
        elif path == f"/api/datasets/owner/name/tree/{COMMIT}" and "recursive=true" in self.path:
            self.reply([self.described(each) for each in sorted(self.root.rglob("*"))])
        else:
            self.reply({"error": "no"}, 404, **{"X-Error-Code": "RepoNotFound"})

    def log_message(self, *_):
        """Nothing."""


if __name__ == "__main__":
    Hub.root = Path(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
