"""English word stems (Porter's algorithm, 1980), and the word forms that share a stem.

A search looks for the forms of a word, so that the index contains the words as they are written.
"""

import re

_VOWEL = "(?:[aeiou]|(?<=[^aeiou])y)"
_CONSONANT = "(?:[^aeiouy]|(?<![^aeiou])y)"
_HAS_VOWEL = re.compile(_VOWEL)
_SEQUENCES = re.compile(f"{_VOWEL}+{_CONSONANT}+")
_ENDS_SHORT = re.compile(f"{_CONSONANT}{_VOWEL}[^aeiouwxy]$")
_DOUBLE = re.compile(r"([^aeiouylsz])\1$")
_ENGLISH = re.compile(r"[a-z]{3,40}", re.ASCII)
_STEP_2 = {
    "ational": "ate",
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "izer": "ize",
    "bli": "ble",
    "alli": "al",
    "entli": "ent",
    "eli": "e",
    "ousli": "ous",
    "ization": "ize",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "iveness": "ive",
    "fulness": "ful",
    "ousness": "ous",
    "aliti": "al",
    "iviti": "ive",
    "biliti": "ble",
    "logi": "log",
}
_STEP_3 = {
    "icate": "ic",
    "ative": "",
    "alize": "al",
    "iciti": "ic",
    "ical": "ic",
    "ful": "",
    "ness": "",
}
_STEP_4 = (
    *("ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti"),
    *("ous", "ive", "ize", "ion", "al", "er", "ic", "ou"),
)
_INFLECTIONS = ("ed", "ing", "ings", "er", "ers")
_SUFFIXES = (
    *("", "s", "es", "e", *_INFLECTIONS, "ly", "ion", "ions", "ation", "ations", "ive", "able"),
    *("al", "ally", "ment", "ments", "ness", "ity", "ize", "izes", "ized", "izing"),
)
_DOUBLES_IN_FORMS = re.compile(r"[^aeiou][aeiou][^aeiouwxy]$")
_MIN_LENGTH = 3


def list_forms(word: str) -> tuple[str, ...]:
    """Other words with the same stem; none unless the word has 3 to 40 letters from a to z."""
    if _ENGLISH.fullmatch(word) is None:
        return ()
    stem = find_stem(word)
    candidates = [stem + suffix for suffix in _SUFFIXES]
    if stem.endswith("i"):
        candidates += [f"{stem[:-1]}y{suffix}" for suffix in _SUFFIXES]
    if _DOUBLES_IN_FORMS.search(stem):
        candidates += [f"{stem}{stem[-1]}{suffix}" for suffix in _INFLECTIONS]
    return tuple(
        form
        for form in dict.fromkeys(candidates)
        if form != word and len(form) >= _MIN_LENGTH and find_stem(form) == stem
    )


def find_stem(word: str) -> str:
    """Return the stem of a word of lower-case letters."""
    if len(word) < _MIN_LENGTH:
        return word
    stem = _replace_participle(_replace_plural(word))
    if stem.endswith("y") and _HAS_VOWEL.search(stem[:-1]):
        stem = stem[:-1] + "i"
    stem = _replace_suffix(_replace_suffix(stem, _STEP_2), _STEP_3)
    return _remove_final_e(_remove_suffix(stem))


def _count_sequences(stem: str) -> int:
    """Count how often consonants follow vowels."""
    return len(_SEQUENCES.findall(stem))


def _replace_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _replace_participle(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _count_sequences(word[:-3]) else word
    for suffix in ("ed", "ing"):
        stem = word.removesuffix(suffix)
        if stem != word:
            return _restore_ending(stem) if _HAS_VOWEL.search(stem) else word
    return word


def _restore_ending(stem: str) -> str:
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if _DOUBLE.search(stem):
        return stem[:-1]
    is_short = _count_sequences(stem) == 1 and _ENDS_SHORT.search(stem) is not None
    return stem + "e" if is_short else stem


def _replace_suffix(word: str, suffixes: dict[str, str]) -> str:
    for suffix, replacement in suffixes.items():
        if word.endswith(suffix):
            stem = word[: -len(suffix)]
            return stem + replacement if _count_sequences(stem) else word
    return word


def _remove_suffix(word: str) -> str:
    for suffix in _STEP_4:
        if word.endswith(suffix):
            stem = word[: -len(suffix)]
            can_remove = suffix != "ion" or stem.endswith(("s", "t"))
            return stem if can_remove and _count_sequences(stem) > 1 else word
    return word


def _remove_final_e(word: str) -> str:
    stem = word.removesuffix("e")
    if stem != word:
        count = _count_sequences(stem)
        if count > 1 or (count == 1 and _ENDS_SHORT.search(stem) is None):
            word = stem
    return word[:-1] if word.endswith("ll") and _count_sequences(word) > 1 else word
