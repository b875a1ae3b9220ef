"""The one error of the codecs: what arrived is not what its protocol promises."""


class MalformedError(ValueError):
    """The text says what was wrong; whoever carried the bytes knows whose they were."""
