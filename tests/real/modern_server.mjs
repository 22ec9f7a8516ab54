// A server of the modern revision alone, made with the TypeScript SDK (2.x).
//
// modern_server.mjs MODULES
//
// Tools: `echo`; `greet`, which asks for a name by `input_required`; `slow`, which tells of its progress; `grow`, which adds a
// tool, so that whoever listens is told of changed lists; `fail`.
const [modules] = process.argv.slice(2);
const sdk = `${modules}/@modelcontextprotocol/server/dist`;
const { McpServer, acceptedContent, inputRequired } = await import(`${sdk}/index.mjs`);
const { serveStdio } = await import(`${sdk}/stdio.mjs`);
const { z } = await import(`${modules}/zod/index.js`);

const says = text => ({ content: [{ type: 'text', text }] });
const name = z.object({ name: z.string() });

serveStdio(() => {
  const capabilities = { tools: { listChanged: true }, prompts: { listChanged: true }, resources: { listChanged: true, subscribe: true } };
  const server = new McpServer({ name: 'modern', version: '1.0.0' }, { capabilities, instructions: 'Say hello.' });
  server.registerTool('echo', { inputSchema: z.object({ text: z.string() }) }, async ({ text }) => says(`Echo: ${text}`));
  server.registerTool('greet', { description: 'Greets by a name that it asks for' }, async ctx => {
    const told = acceptedContent(ctx.mcpReq.inputResponses, 'who', name);
    if (told) return says(`Hello, ${told.name}`);
    return inputRequired({ inputRequests: { who: inputRequired.elicit({ message: 'Who are you?', requestedSchema: name }) } });
  });
  server.registerTool('slow', { inputSchema: z.object({ ms: z.number() }) }, async ({ ms }, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (const progress of [1, 2]) {
      await new Promise(resolve => setTimeout(resolve, ms / 2));
      if (progressToken !== undefined) {
        await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 2 } });
      }
    }
    return says(`slept ${ms} ms`);
  });
  let grown = 0;
  server.registerTool('grow', {}, async () => {
    grown += 1;
    server.registerTool(`grown-${grown}`, {}, async () => says('small'));
    return says(`there are ${grown} more`);
  });
  server.registerTool('fail', {}, async () => {
    throw new Error('it fails');
  });
  server.registerPrompt('hello', { argsSchema: name }, async ({ name }) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Say hello to ${name}.` } }],
  }));
  server.registerResource('readme', 'test://readme', { mimeType: 'text/plain' }, async uri => ({
    contents: [{ uri: uri.href, text: 'Read me.\n' }],
  }));
  return server;
}, { legacy: 'reject' });
