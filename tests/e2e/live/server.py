"""A server for the tests of live sessions: `server.py TOOL…`. Each tool answers with the server's mark; with `seconds` so much later.

MARK: what it answers, else its pid. STUBBORN: it ignores the end of its input and SIGTERM. MUTE: it never answers the handshake. BROKEN: it
refuses it.
"""
import json
import os
import signal
import sys
import threading
import time

MARK = os.environ.get("MARK", str(os.getpid()))
if os.environ.get("BUG_PIDS"):
    with open(os.environ["BUG_PIDS"], "a") as notes:
        notes.write(f"server {os.getpid()}\n")
if os.environ.get("STUBBORN"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = threading.Lock()


def say(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def call(number, params):
    time.sleep(float(params.get("arguments", {}).get("seconds", 0)))
    say({"id": number, "result": {"content": [{"type": "text", "text": MARK}]}})


for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        if os.environ.get("MUTE"):
            continue
        if os.environ.get("BROKEN"):
            sys.stderr.write("broken on purpose\n")
            say({"id": number, "error": {"code": -32000, "message": "broken"}})
            continue
        revision = message["params"]["protocolVersion"]
        info = {"name": "live", "version": "1"}
        say({"id": number, "result": {"protocolVersion": revision, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": info}})
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in sys.argv[1:]]
        say({"id": number, "result": {"tools": tools}})
    elif method == "tools/call":
        threading.Thread(target=call, args=(number, message["params"]), daemon=True).start()
    elif number is not None:
        say({"id": number, "error": {"code": -32601, "message": "no such method"}})

while os.environ.get("STUBBORN"):
    time.sleep(1)
