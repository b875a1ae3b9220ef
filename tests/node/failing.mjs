// A request that is refused: the class that the library makes of the answer, and what it holds.
import OpenAI from 'openai';

import { asked, client, tell } from './judge.mjs';

const [conversation, body] = process.argv.slice(2);
const openai = client({
  maxRetries: 0,
  defaultHeaders: conversation ? { 'X-Conversation-ID': conversation } : {},
});
try {
  await openai.chat.completions.create({ ...asked('Hello.'), ...JSON.parse(body ?? '{}') });
  tell({ name: null });
} catch (met) {
  tell({
    name: met.constructor.name,
    isApiError: met instanceof OpenAI.APIError,
    status: met.status,
    code: met.code,
    type: met.type,
    param: met.param,
    requestId: met.requestID,
    message: met.message,
  });
}
