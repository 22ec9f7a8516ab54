#!/usr/bin/env python3
"""38-many-lives

For what lasts longer than one process: restarts, breakers, health, eras. Each message that it reads is
noted as `pid method` in the file BUG_LOG. Variables say what is wrong with it:

BUG_NEEDS=FILE      exits with 3 at once while FILE is not there.
BUG_ERA             "legacy" (the default): `server/discover` is an unknown method.
                    "modern": `initialize` and `ping` are refused (-32022, -32601).
                    "dual": either era, by the first message; in the legacy one `server/discover` is refused.
                    "locks": modern, but once it has seen `initialize` everything is refused until its end.
                    "strict": legacy, and ends where the first message is not `initialize`.
                    "shuts": legacy, but once it has seen `server/discover` everything is refused until its end.
                    "neither": everything of the handshake is refused.
                    BUG_ERA_FILE=FILE: the word stands in FILE, and is read at each birth.
BUG_SILENT=METHOD   this method gets no answer; BUG_SILENT_PAGE=N: only page N of `tools/list` (pages count from 1).

Its tools: `echo`; `die` (SIGKILL); `leave` (exits with 0, no answer); `deaf` (answers, and reads nothing more);
`busy` (answers after `ms`, and reads nothing meanwhile).

A correct supervisor must: start it again by its policy, and tell it then what it must know (level of the log,
subscriptions); ask it in the era that it knows; take it for sick when it is deaf, and not when it is busy.
"""
import json
import os
import signal
import sys
import time

MODERN = "2026-07-28"


def note(role, pid):
    """Append 'role pid' to the file named by BUG_PIDS, so that a test can look for survivors."""
    path = os.environ.get("BUG_PIDS")
    if path:
        with open(path, "a") as f:
            f.write(f"{role} {pid}\n")


def log(text):
    path = os.environ.get("BUG_LOG")
    if path:
        with open(path, "a") as f:
            f.write(f"{os.getpid()} {text}\n")


class Server:
    def __init__(self):
        self.era = os.environ.get("BUG_ERA", "legacy")
        if os.environ.get("BUG_ERA_FILE"):
            with open(os.environ["BUG_ERA_FILE"]) as f:
                self.era = f.read().strip()
        self.locked = None  # of "dual", "locks" and "shuts": what the first message decided
        self.silent = os.environ.get("BUG_SILENT")
        self.silent_page = int(os.environ.get("BUG_SILENT_PAGE", "0"))

    def send(self, message):
        os.write(1, json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")

    def reply(self, rid, result):
        if self.is_modern():
            result = {"resultType": "complete", **result}
        self.send({"id": rid, "result": result})

    def fail(self, rid, code, message, data=None):
        error = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        self.send({"id": rid, "error": error})

    def is_modern(self):
        return self.era == "modern" or self.locked == "modern"

    def first(self, method):
        """What the first message decides."""
        if self.era == "dual":
            self.locked = "legacy" if method == "initialize" else "modern"
        elif self.era == "locks":
            self.locked = "wrong" if method == "initialize" else "modern"
        elif self.era == "shuts":
            self.locked = "legacy" if method == "initialize" else "wrong"
        elif self.era == "strict" and method != "initialize":
            sys.stderr.write("expected initialize\n")
            sys.exit(4)

    def handle(self, message):
        method, rid, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method is None:
            return
        detail = params.get("level") or params.get("uri") or params.get("cursor") or ""
        log(f"{method} {detail}".strip())
        if self.locked is None:
            self.locked = "none"
            self.first(method)
        if rid is None:
            return
        page = int(params.get("cursor", 1)) if method == "tools/list" else 0
        if method == self.silent and self.silent_page in (0, page):
            sys.stderr.write(f"{method} gets no answer\n")
            sys.stderr.flush()
            return
        if self.era == "neither":
            return self.fail(rid, -32601, "this server speaks neither era")
        if self.locked == "wrong":
            return self.fail(rid, -32600, "this process speaks the other era")
        if method == "initialize":
            if self.is_modern():
                return self.fail(rid, -32022, "Unsupported protocol version", {"supported": [MODERN]})
            return self.reply(rid, {
                "protocolVersion": params.get("protocolVersion", "2025-06-18"),
                "capabilities": {
                    "tools": {"listChanged": True}, "logging": {},
                    "resources": {"subscribe": True, "listChanged": True}, "prompts": {"listChanged": True},
                },
                "serverInfo": {"name": "many-lives", "version": "1"},
            })
        if method == "server/discover" and self.is_modern():
            return self.reply(rid, {
                "supportedVersions": [MODERN], "capabilities": {"tools": {}},
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "many-lives", "version": "1"}},
            })
        if method == "ping" and not self.is_modern():
            return self.reply(rid, {})
        if method == "tools/list":
            names = ["echo", "die", "leave", "deaf", "busy"]
            tools = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in names]
            result = {"tools": tools[page - 1:page]} if self.silent_page else {"tools": tools}
            if self.silent_page and page < len(names):
                result["nextCursor"] = str(page + 1)
            return self.reply(rid, result)
        if method in ("prompts/list", "resources/list"):
            return self.reply(rid, {method.split("/")[0]: []})
        if method in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            return self.reply(rid, {})
        if method == "tools/call":
            return self.call(rid, params.get("name"), params.get("arguments") or {})
        self.fail(rid, -32601, f"method not found: {method}")

    def call(self, rid, name, arguments):
        if name == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "leave":
            sys.exit(0)
        if name == "busy":
            time.sleep(float(arguments.get("ms", 1000)) / 1000)
        self.reply(rid, {"content": [{"type": "text", "text": str(arguments.get("text", ""))}], "isError": False})
        if name == "deaf":
            time.sleep(300)

    def run(self):
        for line in sys.stdin.buffer:
            if line.strip():
                self.handle(json.loads(line))


if __name__ == "__main__":
    note("server", os.getpid())
    needed = os.environ.get("BUG_NEEDS")
    if needed and not os.path.exists(needed):
        sys.stderr.write(f"{needed} is missing\n")
        sys.exit(3)
    log("born")
    try:
        Server().run()
    except (BrokenPipeError, KeyboardInterrupt):
        pass
