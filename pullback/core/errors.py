"""The errors and warnings a user can meet, and the words they share."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

# names that are compared with one that does not exist, how long they may be, and how many are listed
MANY, LONG, LISTED = 200, 60, 40


class PullbackError(ValueError):
    """A request Pullback refuses: the text says what is wrong, what was expected and what to do."""


class DescriptionError(PullbackError):
    """A robot description that cannot become a model."""


class DescriptionWarning(UserWarning):
    """A robot description that was loaded although something in it looks wrong."""


class SimulationWarning(UserWarning):
    """A simulation that goes on although a world is not finite, is about to be, or has steps that are not solved."""


class SecondDerivativeError(PullbackError):
    """A second derivative was asked of an operator that has a first one only."""


class GradientError(PullbackError):
    """A gradient that is not finite, of the batch elements `worlds`, though nothing that was asked is."""

    def __init__(self, text: str, worlds: Iterable[int] = ()) -> None:
        super().__init__(text)
        self.worlds = list(worlds)


def refuse_unknown_options(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise for an option that does not exist, listing the close ones."""
    choices = list(known)
    for name in given:
        if name not in choices:
            raise unknown_name(f"option of {function}", name, choices)


def shortened(text: str, length: int = 80) -> str:
    """Return a text of a file for a message, its middle left out where it is long."""
    return text if len(text) <= length else f"{text[: length // 2]} … {text[-length // 4 :]}"


def unknown_name(kind: str, name: object, choices: Iterable[str], where: str = "") -> PullbackError:
    """Return the error for a name that does not exist, listing the close ones."""
    if not isinstance(name, str):
        return PullbackError(f"{shortened(repr(name))} is no name of a {kind}; {hint('', choices)}")
    return PullbackError(f"no {kind} named {shortened(name)!r}{' in ' + where if where else ''}; {hint(name, choices)}")


def hint(name: str, choices: Iterable[str], cutoff: float = 0.5) -> str:
    """Return the close names among the choices as a question, or else the first of them as a list."""
    # comparing costs the product of two lengths: long names are not typed by hand
    choices = [choice for choice in islice(choices, MANY) if len(choice) <= LONG]
    close = get_close_matches(name, choices, n=3, cutoff=cutoff) if len(name) <= LONG else []
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    more = ", …" if len(choices) > LISTED else ""
    return f"choose from: {', '.join(choices[:LISTED])}{more}"
