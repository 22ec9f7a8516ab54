"""The Python SDK's stdio client against one server.

py_client.py close|stay TOOL ARGUMENTS COMMAND [ARG...]

Does the handshake (with roots declared), lists the tools, says that it calls one, calls it, and says `ready` with what it got, as lines of
JSON. Then it closes in the SDK's own way, or stays until it is ended from outside. With REAL_AWAIT_ROOTS set it is not ready
before the server has asked for the roots, and never answers that. REAL_MODE is how the SDK's newer client negotiates (`auto`,
`legacy`), which says that it is Ada when it is asked; without it, the older one is used, which is legacy.
"""
import asyncio
import contextlib
import json
import os
import sys

import mcp.types as types
from mcp import Client, ClientSession, StdioServerParameters, stdio_client


awaited = bool(os.environ.get("REAL_AWAIT_ROOTS"))
mode = os.environ.get("REAL_MODE")
asked = asyncio.Event()


def say(**told):
    print(json.dumps(told), flush=True)


async def roots(_context):
    asked.set()
    if awaited:
        await asyncio.Event().wait()
    return types.ListRootsResult(roots=[types.Root(uri="file:///tmp")])


async def elicitation(_context, _params):
    return types.ElicitResult(action="accept", content={"name": "Ada"})


@contextlib.asynccontextmanager
async def connected(command):
    server = StdioServerParameters(command=command[0], args=command[1:])
    if mode:
        async with Client(server, mode=mode, list_roots_callback=roots, elicitation_callback=elicitation) as client:
            yield client
        return
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write, list_roots_callback=roots) as session:
            await session.initialize()
            yield session


async def main(end, tool, arguments, command):
    async with connected(command) as client:
        tools = await client.list_tools()
        say(calling=True)
        result = await client.call_tool(tool, json.loads(arguments))
        if awaited:
            await asked.wait()
        say(ready=True, tools=len(tools.tools), text=result.content[0].text)
        if end == "stay":
            await asyncio.Event().wait()
    say(closed=True)


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
