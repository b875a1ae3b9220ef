// What the programs share: a client made as the library's own documentation says, and one line of
// JSON about what it met. The address comes in the environment variable that the library reads.
import OpenAI from 'openai';

export const model = 'openai/gpt-test';

export function client(options = {}) {
  return new OpenAI({ apiKey: 'any', ...options });
}

export function asked(text) {
  return { model, messages: [{ role: 'user', content: text }] };
}

export function tell(found) {
  console.log(JSON.stringify(found));
}
