"""A Hub of Hugging Face on this machine: one dataset, `owner/name`, which is a folder.

    python hub_server.py FOLDER

It prints the address, and then each request.
"""

import base64
import hashlib
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote


class Hub(BaseHTTPRequestHandler):
    """Answers huggingface_hub: metadata, byte ranges of files, commits."""

    protocol_version = "HTTP/1.1"
    root = Path()
    commit = "0" * 40

    def describe(self, file):
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
        if match := re.fullmatch(rf"/datasets/owner/name/resolve/{self.commit}/(.*)", path):
            data = (self.root / match[1]).read_bytes()
            byte_range = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range") or "")
            self.reply(data[int(byte_range[1]) : int(byte_range[2]) + 1], 206)
        elif re.fullmatch(r"/api/datasets/owner/name(/revision/main)?", path):
            self.reply({"id": "owner/name", "sha": self.commit, "private": False})
        elif (
            path == f"/api/datasets/owner/name/tree/{self.commit}" and "recursive=true" in self.path
        ):
            self.reply([self.describe(each) for each in sorted(self.root.rglob("*"))])
        else:
            self.reply({"error": "no"}, 404, **{"X-Error-Code": "RepoNotFound"})

    def do_POST(self):
        path = unquote(self.path.partition("?")[0])
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print(path, flush=True)
        if path.endswith("/preupload/main"):
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            self.reply({"files": [{"path": name, **modes} for name in names]})
        elif path == "/api/datasets/owner/name/commit/main":
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    file = self.root / line["value"]["path"]
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(base64.b64decode(line["value"]["content"]))
            Hub.commit = f"{int(self.commit) + 1:040}"
            address = f"http://{self.headers['Host']}/datasets/owner/name/commit/{self.commit}"
            self.reply({"success": True, "commitOid": self.commit, "commitUrl": address})
        else:
            self.reply({"error": "no"}, 404, **{"X-Error-Code": "RepoNotFound"})

    def log_message(self, *_):
        """Prints nothing."""


if __name__ == "__main__":
    Hub.root = Path(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
