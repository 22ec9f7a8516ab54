"""FastMCP's client against one server over stdio.

fastmcp_client.py close|stay TOOL ARGUMENTS COMMAND [ARG...]

Does the handshake (with roots declared), lists the tools, says that it calls one, calls it, and says `ready` with what it got, as
lines of JSON. Then it closes in the library's own way, or stays until it is ended from outside. It says that it is Ada when it is
asked.
"""
import asyncio
import json
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport


def say(**told):
    print(json.dumps(told), flush=True)


async def elicitation(_message, _response_type, _params, _context):
    return {"name": "Ada"}


async def main(end, tool, arguments, command):
    transport = StdioTransport(command[0], command[1:], keep_alive=False)
    async with Client(transport, roots=["file:///tmp"], elicitation_handler=elicitation) as client:
        tools = await client.list_tools()
        say(calling=True)
        result = await client.call_tool(tool, json.loads(arguments), raise_on_error=False)
        say(ready=True, tools=len(tools), text=result.content[0].text)
        if end == "stay":
            await asyncio.Event().wait()
    say(closed=True)


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
