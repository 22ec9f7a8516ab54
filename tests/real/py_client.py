"""The Python SDK's stdio client against one server.

py_client.py close|stay TOOL ARGUMENTS COMMAND [ARG...]

Does the handshake (with roots declared), lists the tools, calls one, and says `ready` with what it got, as a line of JSON.
Then it closes in the SDK's own way, or stays until it is ended from outside. With REAL_AWAIT_ROOTS set it is not ready
before the server has asked for the roots, and never answers that.
"""
import asyncio
import json
import os
import sys

import mcp.types as types
from mcp import ClientSession, StdioServerParameters, stdio_client


awaited = bool(os.environ.get("REAL_AWAIT_ROOTS"))
asked = asyncio.Event()


async def roots(_context):
    asked.set()
    if awaited:
        await asyncio.Event().wait()
    return types.ListRootsResult(roots=[types.Root(uri="file:///tmp")])


async def main(end, tool, arguments, command):
    server = StdioServerParameters(command=command[0], args=command[1:])
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write, list_roots_callback=roots) as session:
            await session.initialize()
            tools = await session.list_tools()
            result = await session.call_tool(tool, json.loads(arguments))
            if awaited:
                await asked.wait()
            text = result.content[0].text
            print(json.dumps({"ready": True, "tools": len(tools.tools), "text": text}), flush=True)
            if end == "stay":
                await asyncio.Event().wait()
    print(json.dumps({"closed": True}), flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
