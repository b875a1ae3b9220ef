// An answer that has to fit a schema, written with zod, read by the library.
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { asked, client, tell } from './judge.mjs';

const Capital = z.object({ city: z.string(), inhabitants: z.number().int() });
const completion = await client().chat.completions.parse({
  ...asked('The capital of France?'),
  response_format: zodResponseFormat(Capital, 'capital'),
});
tell(completion.choices[0].message.parsed);
