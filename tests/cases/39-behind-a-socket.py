#!/usr/bin/env python3
"""39-behind-a-socket

A server that is already there, and listens on the Unix socket BUG_SOCKET: each connection is a conversation of its own. It never
reads its stdin. Every signal that can be caught is noted in BUG_LOG as `signal N`, each connection as `opened` and `closed`.

BUG_DEAF=1          connections are made, and nothing is ever answered.
BUG_FULL=1          nobody accepts: its queue is full after the first.

Its tools: `echo`; `hangup` (closes this connection without an answer); `hang` (never answers; a cancellation is noted).

A correct supervisor must: never signal it; say of its sessions' end that it was detached; connect anew, by the restart policy, when a
connection ends.
"""
import json
import os
import signal
import socket
import threading
import time


def log(text):
    path = os.environ.get("BUG_LOG")
    if path:
        with open(path, "a") as f:
            f.write(text + "\n")


def noted(number, _frame):
    log(f"signal {number}")


for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGCONT):
        signal.signal(number, noted)


def serve(connection):
    log("opened")
    lines = connection.makefile("rb")

    def send(message):
        connection.sendall(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    try:
        for line in lines:
            message = json.loads(line)
            method, rid, params = message.get("method"), message.get("id"), message.get("params") or {}
            if method == "notifications/cancelled":
                log("cancelled")
            if rid is None or method is None or os.environ.get("BUG_DEAF"):
                continue
            if method == "initialize":
                send({"id": rid, "result": {
                    "protocolVersion": params.get("protocolVersion", "2025-06-18"),
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "behind-a-socket", "version": "1"},
                }})
            elif method == "tools/list":
                names = ["echo", "hangup", "hang"]
                send({"id": rid, "result": {"tools": [
                    {"name": name, "inputSchema": {"type": "object"}} for name in names]}})
            elif method == "ping":
                send({"id": rid, "result": {}})
            elif method == "tools/call" and params.get("name") == "hangup":
                return
            elif method == "tools/call" and params.get("name") == "hang":
                pass
            elif method == "tools/call":
                text = (params.get("arguments") or {}).get("text", "")
                send({"id": rid, "result": {"content": [{"type": "text", "text": text}]}})
            else:
                send({"id": rid, "error": {"code": -32601, "message": "unknown"}})
    except OSError:
        pass
    finally:
        log("closed")
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        connection.close()


listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(os.environ["BUG_SOCKET"])
listener.listen(0 if os.environ.get("BUG_FULL") else 64)
while True:
    if os.environ.get("BUG_FULL"):
        time.sleep(60)
        continue
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
