"""The `cllm` command's way in. Answers `--version` by itself, before anything is imported."""

import sys

EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        if sys.argv[1:] == ["--version"] and _print_version():
            return
        from cllm.cli.main import run  # noqa: PLC0415

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _print_version() -> bool:
    """Print the version; False if that went wrong, which the command line then explains."""
    from cllm import __version__  # noqa: PLC0415

    try:
        print(f"cllm {__version__}", flush=True)  # noqa: T201
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
