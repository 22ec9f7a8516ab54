// The TypeScript SDK's (2.x) stdio client against one server.
//
// ts2_client.mjs MODULES close|stay TOOL ARGUMENTS COMMAND [ARG...]
//
// Does the handshake (with roots declared), lists the tools, says that it calls one, calls it, and says `ready` with what it got, as lines of
// JSON. Then it closes in the SDK's own way, or stays until it is ended from outside. With REAL_AWAIT_ROOTS set it is not
// ready before the server has asked for the roots, and never answers that. REAL_MODE is how it negotiates: `legacy`, `auto`.
// It says that it is Ada when it is asked.
const [modules, end, tool, args, command, ...rest] = process.argv.slice(2);
const sdk = `${modules}/@modelcontextprotocol/client/dist`;
const { Client } = await import(`${sdk}/index.mjs`);
const { StdioClientTransport } = await import(`${sdk}/stdio.mjs`);

const awaited = Boolean(process.env.REAL_AWAIT_ROOTS);
let ask;
const asked = new Promise(resolve => { ask = resolve; });
const options = { capabilities: { roots: { listChanged: true }, elicitation: { form: {} } }, versionNegotiation: { mode: process.env.REAL_MODE ?? 'legacy' } };
const client = new Client({ name: 'real-client', version: '0.1.0' }, options);
client.setRequestHandler('roots/list', async () => {
  ask();
  if (awaited) await new Promise(() => {});
  return { roots: [{ uri: 'file:///tmp', name: 'tmp' }] };
});
client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: { name: 'Ada' } }));
await client.connect(new StdioClientTransport({ command, args: rest }));
const { tools } = await client.listTools();
console.log(JSON.stringify({ calling: true }));
const result = await client.callTool({ name: tool, arguments: JSON.parse(args) });
if (awaited) await asked;
console.log(JSON.stringify({ ready: true, tools: tools.length, text: result.content[0].text }));
if (end === 'stay') await new Promise(resolve => setTimeout(resolve, 1 << 30));
await client.close();
console.log(JSON.stringify({ closed: true }));
