"""Entry point of the `cllm` command. `--version` is answered before anything is imported."""

import gc
import sys

from cllm import WINDOWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

EXIT_INTERRUPTED = 130


def main() -> None:
    if sys.platform == "win32":
        sys.exit(WINDOWS)
    sys.excepthook = _report_bug
    try:
        if sys.argv[1:] == ["--version"] and _print_version():
            return
        # Modules are never garbage: the collector ignores them, now and at exit (decision 32).
        gc.disable()
        from cllm.cli.main import run

        gc.freeze()
        gc.enable()
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _report_bug(
    kind: type[BaseException], error: BaseException, traceback: "TracebackType | None"
) -> None:
    sys.__excepthook__(kind, error, traceback)
    print("cllm itself failed; please report this with the lines above.", file=sys.stderr)  # noqa: T201


def _print_version() -> bool:
    """Print the version; False on an error, which the command line then reports."""
    from cllm import __version__

    try:
        print(f"cllm {__version__}", flush=True)  # noqa: T201
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
