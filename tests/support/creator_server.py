"""Calls of the server of `rlds create`, in the process."""

import asyncio


async def call(app, method="GET", path="/", body=b"", headers=(), kind="http"):
    """What an application answers to a request: the status, the headers, the body."""
    sent, parts = [], [body[i : i + 65536] for i in range(0, len(body), 65536)] or [b""]
    path, _, query = path.partition("?")

    async def receive():
        if kind == "websocket":
            return {"type": "websocket.connect"}
        if not parts:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    given = {"host": "localhost:8000", **dict(headers)}
    scope = {"type": kind, "method": method, "path": path, "query_string": query.encode()}
    scope["headers"] = [(k.encode(), v.encode()) for k, v in given.items() if v is not None]
    await app(scope, receive, send)
    if kind == "websocket":
        return [message["type"] for message in sent]
    found = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:])


def answered(app, *args, **kwargs):
    return asyncio.run(call(app, *args, **kwargs))
