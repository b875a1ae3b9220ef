"""For tests of cllm and of what plugs into it: doubles and contract suites. Needs pytest."""
