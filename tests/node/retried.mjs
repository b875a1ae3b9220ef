// The library asks again by itself; says after how many milliseconds it had its answer.
import { asked, client, tell } from './judge.mjs';

const [conversation] = process.argv.slice(2);
const defaultHeaders = conversation ? { 'X-Conversation-ID': conversation } : {};
const begun = performance.now();
const completion = await client({ defaultHeaders }).chat.completions.create(asked('Hello.'));
tell({ text: completion.choices[0].message.content, waited: performance.now() - begun });
