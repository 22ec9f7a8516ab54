// The TypeScript SDK's (1.x) stdio client against one server.
//
// ts1_client.mjs MODULES close|stay TOOL ARGUMENTS COMMAND [ARG...]
//
// Does the handshake (with roots declared), lists the tools, says that it calls one, calls it, and says `ready` with what it got, as lines of
// JSON. Then it closes in the SDK's own way, or stays until it is ended from outside. With REAL_AWAIT_ROOTS set it is not
// ready before the server has asked for the roots, and never answers that.
const [modules, end, tool, args, command, ...rest] = process.argv.slice(2);
const sdk = `${modules}/@modelcontextprotocol/sdk/dist/esm`;
const { Client } = await import(`${sdk}/client/index.js`);
const { StdioClientTransport } = await import(`${sdk}/client/stdio.js`);
const { ListRootsRequestSchema } = await import(`${sdk}/types.js`);

const awaited = Boolean(process.env.REAL_AWAIT_ROOTS);
let ask;
const asked = new Promise(resolve => { ask = resolve; });
const client = new Client({ name: 'real-client', version: '0.1.0' }, { capabilities: { roots: { listChanged: true } } });
client.setRequestHandler(ListRootsRequestSchema, async () => {
  ask();
  if (awaited) await new Promise(() => {});
  return { roots: [{ uri: 'file:///tmp', name: 'tmp' }] };
});
await client.connect(new StdioClientTransport({ command, args: rest }));
const { tools } = await client.listTools();
console.log(JSON.stringify({ calling: true }));
const result = await client.callTool({ name: tool, arguments: JSON.parse(args) });
if (awaited) await asked;
console.log(JSON.stringify({ ready: true, tools: tools.length, text: result.content[0].text }));
if (end === 'stay') await new Promise(resolve => setTimeout(resolve, 1 << 30));
await client.close();
console.log(JSON.stringify({ closed: true }));
