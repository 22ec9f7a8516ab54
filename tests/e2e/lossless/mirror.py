"""An MCP server that says lines from a file, and writes down every byte that it reads and says.

mirror.py PROTOCOL SCRIPT READ SAID

Each request but those of the handshake is answered with the next block of SCRIPT, which ends with a line `.`; `@ID@` is the request's
id and `@TOKEN@` its progress token, as they came.
"""
import json
import sys


class Number(str):
    """A number as its sender wrote it."""


def text(value):
    return value if isinstance(value, Number) else json.dumps(value)


protocol, script, read, said = sys.argv[1:]
capabilities = {"logging": {}, "completions": {}}
server_info = {"name": "mirror", "version": "1"}
modern = protocol == "2026-07-28"
lines = iter(open(script, encoding="utf-8", newline="\n").read().split("\n"))
read = open(read, "wb", buffering=0)
said = open(said, "wb", buffering=0)


def say(line):
    line = line.encode() + b"\n"
    said.write(line)
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def own(method):
    """The answer to the handshake."""
    if method == "initialize" and modern:
        return {"error": {"code": -32601, "message": "Method not found"}}
    if method == "initialize":
        return {"result": {"protocolVersion": protocol, "capabilities": capabilities, "serverInfo": server_info}}
    if method == "server/discover":
        return {"result": {"resultType": "complete", "supportedVersions": [protocol], "capabilities": capabilities,
                           "ttlMs": 0, "cacheScope": "private",
                           "_meta": {"io.modelcontextprotocol/serverInfo": server_info}}}
    return None


for line in sys.stdin.buffer:
    read.write(line)
    messages = json.loads(line, parse_int=Number, parse_float=Number)
    batch = isinstance(messages, list)
    for message in messages if batch else [messages]:
        if "method" not in message or message.get("id") is None:
            continue
        identity = text(message["id"])
        answer = own(message["method"])
        if answer is not None:
            say('{"jsonrpc":"2.0","id":%s,%s' % (identity, json.dumps(answer)[1:]))
            continue
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        token = text(meta.get("progressToken")) if isinstance(meta, dict) else "null"
        for line in lines:
            if line == ".":
                break
            say(line.replace("@ID@", identity).replace("@TOKEN@", token))
