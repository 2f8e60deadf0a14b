"""A modest list of strong profanity and slurs, matched as whole words, also where letters are masked.

It keeps such replies out of a pool; it does not judge people. Words that have an everyday meaning too (a
name, an animal, a plant, a mild oath) are left out on purpose: to lose a kind reply is worse than to keep a
rude one.
"""

from __future__ import annotations

import re

_STEMS = ("fuck", "motherfuck", "shit", "bullshit", "wank", "cunt", "bitch")
_ENDINGS = ("", "s", "es", "ed", "er", "ers", "ing", "in", "y")
_OTHERS = """
arsehole arseholes asshole assholes asshat asswipe bastard bastards beaner beaners bellend bellends blowjob
blowjobs bullshitting cocksucker cocksuckers dickhead dickheads dickwad dipshit dipshits douchebag
douchebags dumbass dumbasses dumbfuck faggot faggots ffs fuckface fuckhead fucktard fuckwit gangbang gook
gooks handjob horseshit jfc jizz kike kikes mindfuck nigga niggas nigger niggers paki pakis pussies
pussy retard retarded retards shitface shitfaced shithead shitheads shithole shitholes shitless shitload
shitpost shitposting shitposts shitshow shitstorm shitter shittier shittiest shitting shitty skank skanks slut
sluts slutty tosser tossers tranny trannies twat twats wetback wetbacks whore whores
"""
_PROFANE = frozenset(stem + ending for stem in _STEMS for ending in _ENDINGS) | frozenset(_OTHERS.split())

_WORD = re.compile(r"[a-z]+")
# A mask hides some letters of a word, and what is left of it must still give the word away: "f***", "sh!t".
_MASKED = re.compile(
    r"(?<![a-z*])(?:"
    r"(?:mother)?f[*#@$%!]+c?k(?:s|ed|er|ers|ing)?|f[*#]{2,}(?:ed|er|ers|ing)?|fu[*#]+k?(?:s|ed|er|ing)?"
    r"|(?:bull)?s(?:h[*#@$%!1]|[*#]{2})t(?:s|ty)?|sh[*#]{2}|b[*#@$%!1]tch(?:es|y)?|b[*#]{2,}(?:ch)?(?:es)?"
    r"|c[*#@$%!]nts?|c[*#]{2}ts?|d[*#@$%!1]cks?|a(?:[*#]{2}|-)holes?|p[*#@$%!]ssy|wh[*#@$%!]res?|sl[*#@$%!]ts?"
    r")(?![a-z*])"
)


def is_profane(text: str) -> bool:
    """Whether a word of the text is on the list, or is one of the worst of them under a mask."""
    folded = text.casefold()
    return not _PROFANE.isdisjoint(_WORD.findall(folded)) or _MASKED.search(folded) is not None
