// A stream that breaks off after it has begun is an error of the library, not a short text.
import { asked, client, tell } from './judge.mjs';

let text = '';
let error = null;
try {
  const stream = await client().chat.completions.create({ ...asked('Hello.'), stream: true });
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
  }
} catch (met) {
  error = { name: met.constructor.name, message: met.message, code: met.code };
}
tell({ text, error });
