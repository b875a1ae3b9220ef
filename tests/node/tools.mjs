// The library runs the tools that the model asks for, and asks it again with what they gave.
import { asked, client, tell } from './judge.mjs';

const [way, conversation] = process.argv.slice(2);
const defaultHeaders = conversation ? { 'X-Conversation-ID': conversation } : {};
const uses = [];
const runner = client({ defaultHeaders }).chat.completions.runTools({
  ...asked('What is the weather in Paris?'),
  stream: way === 'stream',
  tools: [
    {
      type: 'function',
      function: {
        name: 'weather',
        description: 'The weather in a city.',
        parse: JSON.parse,
        parameters: { type: 'object', properties: { city: { type: 'string' } } },
        function: ({ city }) => {
          uses.push(city);
          return 'Rain.';
        },
      },
    },
  ],
});
tell({ text: await runner.finalContent(), uses, roles: runner.messages.map(({ role }) => role) });
