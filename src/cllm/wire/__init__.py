"""Pure codecs between JSON and values, both ways. They carry nothing and decide nothing."""
