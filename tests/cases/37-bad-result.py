#!/usr/bin/env python3
"""37-bad-result

A call of `echo` is answered with what its argument `kind` names: "array" ([1]), "null",
"deep" (arrays in arrays, 100,000 levels), "control" (a string that moves a terminal's
cursor), or, without it, the usual text.

A correct supervisor must: say that the server's answer can't be used, and show its
beginning, escaped and cut, in place of an error of its own or of a success; fail that
one request alone, and go on with the stream.
"""
import json
import os
import sys
import threading


def note(role, pid):
    """Append 'role pid' to the file named by BUG_PIDS, so that a test can look for survivors."""
    path = os.environ.get("BUG_PIDS")
    if path:
        with open(path, "a") as f:
            f.write(f"{role} {pid}\n")


class Server:
    """Minimal MCP stdio server: newline-delimited JSON-RPC 2.0 on fd 0 and fd 1."""

    extra_tools = ()

    def __init__(self):
        self.lock = threading.Lock()
        note("server", os.getpid())

    # -- output ---------------------------------------------------------------
    def write(self, data):
        with self.lock:
            view = memoryview(data)
            while view:
                view = view[os.write(1, view):]

    def encode(self, msg):
        text = json.dumps({"jsonrpc": "2.0", **msg}, ensure_ascii=False, separators=(",", ":"))
        return text.encode() + b"\n"

    def send(self, msg):
        self.write(self.encode(msg))

    def reply(self, rid, result):
        self.send({"id": rid, "result": result})

    def text(self, rid, text):
        self.reply(rid, {"content": [{"type": "text", "text": text}], "isError": False})

    def fail(self, rid, code, message):
        self.send({"id": rid, "error": {"code": code, "message": message}})

    # -- protocol -------------------------------------------------------------
    def tools(self):
        names = ("echo",) + tuple(self.extra_tools)
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        return [{"name": n, "description": n, "inputSchema": schema} for n in names]

    def initialize(self, rid, params):
        self.reply(rid, {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": os.path.basename(sys.argv[0]), "version": "0.1.0"},
        })

    def initialized(self):
        pass

    def call(self, rid, name, args):
        if name == "echo":
            self.text(rid, str(args.get("text", "")))
        else:
            self.fail(rid, -32602, f"unknown tool: {name}")

    def notification(self, method, params):
        pass

    def response(self, msg):
        pass

    def handle(self, msg):
        method, rid, params = msg.get("method"), msg.get("id"), msg.get("params") or {}
        if method is None:
            self.response(msg)
        elif "id" not in msg:
            if method == "notifications/initialized":
                self.initialized()
            self.notification(method, params)
        elif method == "initialize":
            self.initialize(rid, params)
        elif method == "ping":
            self.reply(rid, {})
        elif method == "tools/list":
            self.reply(rid, {"tools": self.tools()})
        elif method == "tools/call":
            self.call(rid, params.get("name"), params.get("arguments") or {})
        else:
            self.fail(rid, -32601, f"method not found: {method}")

    # -- input ----------------------------------------------------------------
    def lines(self):
        parts = []
        while True:
            chunk = os.read(0, 1 << 16)
            if not chunk:
                return
            *done, rest = chunk.split(b"\n")
            for line in done:
                parts.append(line)
                yield b"".join(parts)
                parts = []
            if rest:
                parts.append(rest)

    def started(self):
        pass

    def eof(self):
        pass

    def run(self):
        self.started()
        for line in self.lines():
            if not line.strip():
                continue
            try:
                msg = json.loads(line)
            except ValueError:
                self.fail(None, -32700, "parse error")
                continue
            self.handle(msg)
        self.eof()


DEEP = 100_000
RESULTS = {
    "array": "[1]",
    "null": "null",
    "deep": '{"content":[],"structuredContent":' + "[" * DEEP + "]" * DEEP + "}",
    "control": json.dumps("\x1b]0;owned\x07" + "x" * 1000),
}


class BadResult(Server):
    def call(self, rid, name, args):
        result = RESULTS.get(args.get("kind"))
        if result is None:
            return super().call(rid, name, args)
        text = '{"jsonrpc":"2.0","id":' + json.dumps(rid) + ',"result":' + result + "}\n"
        self.write(text.encode())


BadResult().run()
