"""The child process that runs the model: llama.cpp's server on loopback, behind a key.

Its settings, the key among them, come as one line of JSON on standard input, so that no other
user of the machine can see them. It answers with one line that says where it listens, and ends
when standard input does: with its parent, however that one ended.
"""

import json
import os
import sys
import threading
from typing import Any


def main() -> None:
    """Serve until standard input ends."""
    os.umask(0o077)
    settings = json.loads(sys.stdin.buffer.readline())
    answer = _keep_stdout_for_the_answer()
    server = _serve(settings)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    os.write(answer, json.dumps({"address": server.listening_address}).encode() + b"\n")
    threading.Event().wait()


def _keep_stdout_for_the_answer() -> int:
    """A descriptor for the answer alone; what llama.cpp prints goes to standard error."""
    answer = os.dup(1)
    os.dup2(2, 1)
    return answer


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    # Leaving through the interpreter would run llama.cpp's destructors under a running request.
    os._exit(0)


def _serve(settings: dict[str, Any]) -> Any:
    import xllamacpp  # noqa: PLC0415 - after standard output was moved out of its way

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["name"]}
    params.api_keys = [settings["key"]]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.slot_save_path = settings["slots"] + "/"
    params.n_ctx = settings["context"]
    params.n_parallel = 1
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    if settings["template"] is not None:
        params.chat_template = settings["template"]
    # Small batches, because a request that nobody waits for any more stops between two of them.
    params.n_batch = params.n_ubatch = 128
    params.cache_ram_mib = 0
    # On a processor this is slower the longer the history is (a fifth at 2,000 tokens).
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    # Errors only: they go into the sentence that says why the model did not start.
    params.verbosity = 1
    params.warmup = False
    params.fit_params = False
    params.ui = False
    params.cors_origins = ""
    params.cors_credentials = False
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
