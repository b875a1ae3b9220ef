// The list column.

export function start() {}
