// What the programs for Anthropic's library share: a client made as its own documentation says, and
// one line of JSON about what it met. The address comes in the variable that the library reads.
import Anthropic from '@anthropic-ai/sdk';

export { Anthropic };
export const [model] = process.argv.slice(2);

export function client(options = {}) {
  return new Anthropic({ apiKey: 'any', maxRetries: 0, ...options });
}

export function asked(text, fields = {}) {
  return { model, max_tokens: 2000, messages: [{ role: 'user', content: text }], ...fields };
}

export function textOf(message) {
  return message.content.map((block) => (block.type === 'text' ? block.text : '')).join('');
}

export function tell(found) {
  console.log(JSON.stringify(found));
}
