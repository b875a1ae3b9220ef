"""The `cllm` command's way in. Answers `--version` by itself, before anything is imported."""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] == ["--version"]:
        from cllm import __version__  # noqa: PLC0415

        print(f"cllm {__version__}")  # noqa: T201
        return
    from cllm.cli.main import run  # noqa: PLC0415

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
