"""A modest list of strong profanity and slurs, matched as whole words.

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
blowjobs bullshitting cocksucker cocksuckers dickhead dickheads dickwad dipshit dipshits douchebag douchebags
dumbass dumbasses dumbfuck faggot faggots fuckface fuckhead fucktard fuckwit gangbang gook gooks handjob
horseshit jizz kike kikes mindfuck nigga niggas nigger niggers paki pakis pussies pussy retard retarded
retards shitface shitfaced shithead shitheads shithole shitholes shitless shitload shitpost shitposting
shitposts shitshow shitstorm shitter shittier shittiest shitting shitty slut sluts slutty twat twats
wetback wetbacks whore whores
"""
_MASKED = "f*ck f**k f*cking f**king f*cked f**ked sh*t s**t sh*tty bullsh*t b*tch b**ch a**hole c*nt"

_PROFANE = frozenset(stem + ending for stem in _STEMS for ending in _ENDINGS) | {
    *_OTHERS.split(),
    *_MASKED.split(),
}
_WORD = re.compile(r"[a-z]+(?:\*+[a-z]+)?")


def is_profane(text: str) -> bool:
    """Whether a word of the text is on the list."""
    return not _PROFANE.isdisjoint(_WORD.findall(text.casefold()))
