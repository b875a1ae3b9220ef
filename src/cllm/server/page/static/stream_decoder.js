// The events of a turn's stream in the three protocols, as pieces of a reply.
//
// A piece is {text}, {thinking}, {tool: {key, name, input}} or {error: {message, code}}.

/** Return the pieces of one server-sent event. */
export function decodeEvent({ event, data }) {
  if (!data || data === "[DONE]") return [];
  let body;
  try {
    body = JSON.parse(data);
  } catch {
    return [];
  }
  if (body.error) return [{ error: body.error }];
  if (Array.isArray(body.choices)) return body.choices.flatMap((choice) => decodeDelta(choice.delta ?? {}));
  const type = body.type ?? event;
  return type?.startsWith("response.") ? decodeResponse(type, body) : decodeAnthropic(type, body);
}

function decodeDelta(delta) {
  const pieces = [];
  const thinking = delta.reasoning_content ?? delta.reasoning;
  if (typeof thinking === "string" && thinking) pieces.push({ thinking });
  if (delta.content) pieces.push({ text: delta.content });
  for (const { index, function: call } of delta.tool_calls ?? []) {
    pieces.push({ tool: { key: index ?? 0, name: call?.name ?? "", input: call?.arguments ?? "" } });
  }
  return pieces;
}

function decodeAnthropic(type, { index, delta, content_block: block }) {
  if (type === "content_block_start" && /tool_use$/.test(block?.type)) {
    return [{ tool: { key: index, name: block.name, input: "" } }];
  }
  if (type !== "content_block_delta") return [];
  if (delta.type === "text_delta") return [{ text: delta.text }];
  if (delta.type === "thinking_delta") return [{ thinking: delta.thinking }];
  if (delta.type === "input_json_delta") return [{ tool: { key: index, name: "", input: delta.partial_json } }];
  return [];
}

function decodeResponse(type, { delta, item, output_index: key, response }) {
  if (type === "response.output_text.delta") return [{ text: delta }];
  if (/^response\.reasoning.*text\.delta$/.test(type)) return [{ thinking: delta }];
  if (type === "response.output_item.added" && /_call$/.test(item?.type)) {
    return [{ tool: { key, name: item.name ?? item.type, input: "" } }];
  }
  if (/call.*(arguments|input)\.delta$/.test(type)) return [{ tool: { key, name: "", input: delta } }];
  if (type === "response.failed" && response?.error) return [{ error: response.error }];
  return [];
}

/** Return the pieces with neighbouring texts joined. */
export function mergePieces(pieces) {
  const merged = [];
  for (const piece of pieces) {
    const last = merged.at(-1);
    const name = ["text", "thinking"].find((one) => piece[one] && last?.[one]);
    if (name) merged[merged.length - 1] = { [name]: last[name] + piece[name] };
    else merged.push(piece);
  }
  return merged;
}

/**
 * Return the length of the finished blocks at the start of Markdown text; 0 if none is finished.
 * A block ends with an empty line outside of a fence, if no indented line follows.
 */
export function findBlockEnd(text) {
  let end = 0;
  let fence = "";
  let position = 0;
  let wasEmpty = false;
  const lines = text.split("\n");
  for (const line of lines.slice(0, -1)) {
    if (wasEmpty && !fence && line.trim() && !/^\s/.test(line)) end = position;
    const [mark] = /^ {0,3}(`{3,}|~{3,})/.exec(line) ?? [""];
    if (mark.trim() && !fence) fence = mark.trim();
    else if (fence && mark.trim().startsWith(fence) && !line.trim().replaceAll(fence[0], "")) fence = "";
    wasEmpty = !line.trim();
    position += line.length + 1;
  }
  const rest = lines.at(-1);
  if (wasEmpty && !fence && rest && !/^\s/.test(rest)) end = position;
  return end;
}
