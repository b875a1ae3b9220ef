// Errors as the library's own, and what it makes of those that pass.
import { Anthropic, asked, client, tell } from './claude.mjs';

const anthropic = client();

async function met(request) {
  try {
    await request();
    return 'nothing';
  } catch (error) {
    return [error.constructor.name, error.status ?? null, error instanceof Anthropic.APIError];
  }
}

const unknown = await met(() => anthropic.messages.create(asked('x', { model: 'no-such-model' })));
const empty = await met(() => anthropic.messages.create(asked('x', { messages: [] })));
const limited = await met(() => anthropic.messages.create(asked('Limited.')));
const overloaded = await met(() => anthropic.messages.create(asked('Overloaded.')));
const broken = await met(() => anthropic.messages.stream(asked('Broken.')).finalMessage());

const began = Date.now();
const patient = client({ maxRetries: 3 });
const answer = await patient.messages.create(asked('Patient.'));
tell({
  unknown,
  empty,
  limited,
  overloaded,
  broken,
  waited: Date.now() - began,
  text: answer.content[0].text,
});
