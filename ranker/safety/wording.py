"""Text as the patterns and the classifiers read it: folded, spelt out, and spelt right where it matters."""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST = 4_000
"""Characters of a text that are looked at: the first and the last half of so many."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PIECE = re.compile(r"[a-z]+(?:'[a-z]+)*|[0-9]+|[.!?]+|[😂🤣😆😅💀]")
_REPEATED = re.compile(r"([a-z])\1{2,}")
_FOLDED = str.maketrans({"’": "'", "‘": "'", "`": "'", "´": "'", "$": "s", "@": "a"})

# Contractions, and the verbs whose "n't" people write without the apostrophe.
_ENDINGS = {"n't": " not", "'m": " am", "'re": " are", "'ve": " have", "'ll": " will", "'d": " would"}
_BARE_NOT = ("do", "does", "did", "could", "would", "is", "are", "was", "were", "have", "has", "should")
_IS = ("he", "she", "it", "that", "there", "someone", "somebody", "what", "who")

# What people leave out when they type. Words that are also words of their own (ill, well, were) stay.
_SPELT_OUT = {
    **{f"{verb}nt": f"{verb} not" for verb in _BARE_NOT},
    **{f"{word}{s}": f"{word} is" for word in _IS for s in ("'s", "s") if (word, s) != ("it", "s")},
    **dict.fromkeys(("wont", "won't"), "will not"),
    **dict.fromkeys(("cant", "can't", "cannot"), "can not"),
    **dict.fromkeys(("aint", "ain't"), "is not"),
    **dict.fromkeys(("gonna", "gunna", "finna"), "going to"),
    **dict.fromkeys(("mom", "mum", "mommy", "mummy"), "mother"),
    **dict.fromkeys(("dad", "daddy"), "father"),
    **dict.fromkeys(("lmao", "lmfao", "rofl", "haha", "hahaha", "hehe", "xd", *"😂🤣😆😅💀"), "lol"),
    **dict.fromkeys(("od'd", "oded", "od'ed"), "overdosed"),
    **{"im": "i am", "ive": "i have", "theyre": "they are", "youre": "you are", "let's": "let us"},
    **{"ur": "your", "u": "you", "r": "are", "ya": "you", "yall": "you all", "y'all": "you all", "w": "with"},
    **{"wanna": "want to", "gotta": "got to", "tryna": "trying to", "imma": "i will", "lemme": "let me"},
    **{
        "pls": "please",
        "plz": "please",
        "bc": "because",
        "cuz": "because",
        "thru": "through",
        "til": "until",
    },
    **{"rn": "right now", "tn": "tonight", "tmrw": "tomorrow", "idk": "i do not know", "tbh": "honestly"},
    **{"bf": "boyfriend", "gf": "girlfriend", "ppl": "people", "smb": "somebody", "sth": "something"},
    **{"anymore": "any more", "noone": "no one", "alot": "a lot", "kinda": "kind of", "2": "to", "4": "for"},
    **{"kms": "kill myself", "kys": "kill yourself", "unalive": "kill", "unaliving": "killing"},
    **{"sewerslide": "suicide", "od": "overdose", "till": "until", "fml": "fuck my life"},
    **{"stfu": "shut the fuck up", "gtfo": "get the fuck out", "wtf": "what the fuck"},
}

# The words on which a life may hang: spelt right, whichever letter is missing, doubled or swapped.
_VITAL = """
abused abusing abusive again allergic ambulance anymore assaulted attacked battery bleeding blood boyfriend
breathe breathing bruises burning burned choking collapsed crisis cutting drowning drugged emergency ending
fallen fell girlfriend going harming heart hitting hotline hurting husband killed killing knife living
medicine molested murder myself overdose overdosed painkillers pills poison poisoned poisoning punched raped
seizure shooting sleeping smoke stabbed stalking strangled stroke suicidal suicide swallowed tablets
threatened threatening tonight trapped unconscious violent want
"""
_WORDS_OF_THEIR_OWN = """
batter breath breathed bruise buttery collapse downing dragged droning emergence hurtling pinched seeping
shouting strangle stubbed tables tablet tapped tripped violet
"""
_SOUNDS_LIKE = {letter: group for group in ("aeiouy", "csz", "ck", "td", "mn") for letter in group}
_ONE_LETTER_OFF = 7  # from this length on, a word that differs by a letter is hardly another word


@lru_cache(maxsize=1)
def _misspellings() -> dict[str, str]:
    """Wrong spelling to right one: neighbours swapped; in long words also a letter too many, too few, or
    another that sounds alike."""
    found: dict[str, str] = {}
    for word in _VITAL.split():
        for place in range(len(word)):
            left, right = word[:place], word[place:]
            wrong = {left + right[1] + right[0] + right[2:]} if len(right) > 1 and len(word) > 3 else set()
            if len(word) >= _ONE_LETTER_OFF and place:
                wrong |= {left + right[1:]}
                wrong |= {left + other + right[1:] for other in _SOUNDS_LIKE.get(right[0], "")}
                wrong |= {left + letter + right for letter in _LETTERS}
            for spelling in wrong - {word}:
                found.setdefault(spelling, word)
    for word in (*_VITAL.split(), *_WORDS_OF_THEIR_OWN.split()):
        found.pop(word, None)
    return found


@lru_cache(maxsize=8_192)
def _spelt(word: str) -> str:
    word = _REPEATED.sub(r"\1\1", word)
    if word in _SPELT_OUT:
        return _SPELT_OUT[word]
    if "'" in word:
        for ending, spelt in _ENDINGS.items():
            if word.endswith(ending):
                return word.removesuffix(ending) + spelt
        if word.endswith("'s"):
            return f"{_spelt(word[:-2])} s"
        return word.replace("'", "")
    return _misspellings().get(word, word)


def plain_words(text: str) -> str:
    """The words of a text, lower case, one space between, contractions spelt out, "." between sentences.

    Of a very long text only both ends are kept: the cost is bounded, and what matters is said there.
    """
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} . {text[-LONGEST // 2 :]}"
    folded = text.casefold().translate(_FOLDED)
    words = ("." if piece[0] in ".!?" else _spelt(piece) for piece in _PIECE.findall(folded))
    return " ".join(words).replace("my self", "myself")
