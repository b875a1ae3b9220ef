"""Pure: which part of a conversation is sent, estimated in tokens. Does no I/O."""
