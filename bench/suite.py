"""The benchmarks of `make bench` in the order of the report, and the tools that they need."""

from dataclasses import dataclass
from pathlib import Path

from results import RESULTS

SCRIPTS = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A script of this folder, its section in the report and its options for programs."""

    name: str
    title: str
    intro: str
    programs: tuple[str, ...] = ()
    scripts: Path = SCRIPTS
    results: Path = RESULTS

    @property
    def script(self) -> Path:
        return self.scripts / f"{self.name}.py"

    @property
    def result(self) -> Path:
        return self.results / f"{self.name}.json"


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A peer or floor, how it is measured, and the documentation that recommends this."""

    name: str
    configuration: str
    url: str = ""


TOOLS = (
    Tool(
        name="llm",
        configuration="The command, alone in its environment, with the model in "
        "`extra-openai-models.yaml`. `llm -c` continues a conversation in its SQLite log.",
        url="https://llm.datasette.io/en/stable/usage.html",
    ),
    Tool(
        name="LiteLLM",
        configuration="The proxy with a `config.yaml` of two models, one worker, "
        "`LITELLM_MODE=PRODUCTION` and `LITELLM_LOG=ERROR`, without a database, callbacks and its "
        "beta path in Rust (`rust: true`). In the translation between protocols, its functions as "
        "a library, in the version that accepts the OpenAI SDK of cllm's tests.",
        url="https://docs.litellm.ai/docs/proxy/prod",
    ),
    Tool(
        name="Portkey",
        configuration="The gateway `@portkey-ai/gateway` with `--headless`, one process.",
        url="https://github.com/Portkey-AI/gateway",
    ),
    Tool(
        name="LangGraph checkpointer",
        configuration="`SqliteSaver`: loads the state of the thread, then writes it after the "
        "question and after the reply.",
        url="https://docs.langchain.com/oss/python/langgraph/persistence",
    ),
    Tool(
        name="Agents SDK session",
        configuration="`SQLiteSession` of the OpenAI Agents SDK: reads the newest 40 items, adds "
        "two.",
        url="https://openai.github.io/openai-agents-python/sessions/",
    ),
    Tool(
        name="LangChain, LiteLLM, LlamaIndex (context window)",
        configuration="`trim_messages` of LangChain and of LiteLLM, `ChatMemoryBuffer` of "
        "LlamaIndex, with approximate token counts where possible, which is faster. They process "
        "all messages of the conversation in each turn.",
        url="https://reference.langchain.com/python/langchain-core/messages/utils/trim_messages",
    ),
    Tool(
        name="nginx",
        configuration="A floor: one worker that forwards, with connections that stay open, without "
        "a log and without buffering of responses.",
        url="https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive",
    ),
    Tool(
        name="bare proxy",
        configuration="A floor: Starlette on uvicorn and an aiohttp client that forward without "
        "inspection (`bench/bare_proxy.py`).",
    ),
)

BENCHMARKS = (
    Benchmark(
        name="startup",
        title="Start-up of the command",
        intro="A new process each time. `llm` is installed alone in its environment, as its "
        "documentation recommends. Both commands send the same question to a provider on loopback "
        "and save the reply.",
        programs=("llm",),
    ),
    Benchmark(
        name="cli",
        title="Settings and search of the command",
        intro="Turns with a Cllmfile, variables and context commands, and searches in 10,000 "
        "conversation files. The floor of a search is the start-up of the command and a query of "
        "SQLite's FTS5 for the same texts.",
    ),
    Benchmark(
        name="history_growth",
        title="Length of the history",
        intro="One more turn in a conversation of 10 to 100,000 messages. LangGraph's checkpointer "
        "and the session of the OpenAI Agents SDK store messages in SQLite. They have no search "
        "index, no leases and no records of usage. A JSON file is written whole in every turn, so "
        "that its cost grows with the conversation: use SQLite for long conversations.",
        programs=("peers", "llm"),
    ),
    Benchmark(
        name="conversation_growth",
        title="Number of conversations",
        intro="Lists, searches and turns in a store with 1,000 to 1,000,000 conversations of two "
        "messages with 200 bytes each.",
    ),
    Benchmark(
        name="store_sqlite",
        title="SQLite store",
        intro="A turn saves the question, loads 40 messages and saves the reply, 1 KB each. The "
        "floor is plain `sqlite3` that reads and writes the same rows. Lists and searches run on "
        "100,000 conversations with ten messages each.",
    ),
    Benchmark(
        name="store_postgres",
        title="PostgreSQL store",
        intro="The same with PostgreSQL on a Unix socket. The floor is plain asyncpg. CPU time is "
        "that of the client; wall time includes the server. Lists and searches run on 50,000 "
        "conversations.",
    ),
    Benchmark(
        name="store_json",
        title="JSON files",
        intro="The cost of a saved system prompt, and the index that finds a conversation by its "
        "history.",
    ),
    Benchmark(
        name="branches",
        title="Branches",
        intro="A branch shares the messages of its source. It is compared with a copy of the "
        "conversation.",
    ),
    Benchmark(
        name="wire",
        title="Translation between protocols",
        intro="From the body of a client's request to the body of the provider's request, and from "
        "a provider's event to the client's event, without a network. The floor of a request is "
        "`json.loads` and `json.dumps` of the same body, and of an event those of the client's "
        "event. LiteLLM is called as a library.",
    ),
    Benchmark(
        name="window",
        title="Context window",
        intro="The input cost of a conversation with a prompt cache, compared with the lowest "
        "possible cost and with two other ways to trim, and the CPU time of selecting the messages "
        "of one turn. cllm reads them from SQLite; the libraries get the whole conversation in "
        "memory, because they have no store.",
        programs=("peers",),
    ),
    Benchmark(
        name="server",
        title="HTTP server",
        intro="Requests through a gateway with one worker, from 16 clients. The floors are nginx "
        "and a bare proxy (Starlette and aiohttp) that forward without inspection. Portkey is not "
        "measured with streams: version 1.15 fails on them with Node 20 and 24.",
        programs=("litellm", "nginx", "node", "portkey"),
    ),
    Benchmark(
        name="streams",
        title="Parallel streams",
        intro="1 to 500 streams at the same time through a gateway with one worker.",
        programs=("litellm", "nginx"),
    ),
    Benchmark(
        name="recording",
        title="Requests with a whole history",
        intro="An agent sends 500 messages again with each question. `cllm serve` recognises the "
        "conversation among a million stored messages and saves only the new ones.",
    ),
    Benchmark(
        name="page",
        title="Web page",
        intro="The page in Chromium with 10,000 conversations and one of 2,000 messages. The floor "
        "is a static page with the same content, without scripts.",
        programs=("chromium",),
    ),
    Benchmark(
        name="local",
        title="Local model",
        intro="Turns of the command with the local model. Slot files save the state of the model "
        "between commands.",
    ),
    Benchmark(
        name="window_local",
        title="Window of the local model",
        intro="The tokens that the local model evaluates when a conversation outgrows its window.",
    ),
    Benchmark(
        name="path",
        title="Length of the code path",
        intro="Source files of cllm that a turn executes, and coroutines that wait for an event of "
        "the provider.",
    ),
)
