"""Values, ports and errors: what everything else is written in. Imports nothing of cllm."""
