// The library runs the tools that the model asks for, and asks it again with what they gave.
import { asked, client, tell, textOf } from './claude.mjs';

const uses = [];
const look = {
  type: 'custom',
  name: 'look',
  description: 'Look at something.',
  input_schema: { type: 'object', properties: { at: { type: 'string' } } },
  run: ({ at }) => {
    uses.push(at);
    return `${at} is blue`;
  },
  parse: (input) => input,
};
const [, way] = process.argv.slice(2);
const runner = client().beta.messages.toolRunner({
  ...asked('What do you see?'),
  tools: [look],
  stream: way === 'stream',
});
let last;
for await (const step of runner) last = way === 'stream' ? await step.finalMessage() : step;
tell({ text: textOf(last), uses });
